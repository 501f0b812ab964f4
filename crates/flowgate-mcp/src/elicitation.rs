//! Asks a person whether a call may run, if the policy's verdict on the call is to ask. `client` then calls this
//! module, which uses the first of these ways that is possible:
//!
//! 1. In the answer to the call (*input required*), if the operator declared the client interactive and the protocol
//!    revision allows the call to be sent again with the person's answer.
//! 2. By an elicitation, if the operator declared the client interactive and the client supports elicitations.
//! 3. By [`ProxyAction::Ask`], if the program that drives the proxy can ask a person (`asks_elsewhere`).
//!
//! The client shows the arguments in full, so a call with arguments longer than `MAX_SHOWN` is asked about only in the
//! third way. If no way is possible, or the answer is anything but an explicit yes, the call is denied.
//!
//! The person at the client is asked within a [`QuestionBudget`](flowgate_guard::approve::QuestionBudget). After too
//! many refusals in a row, or too many questions in the session, calls that need an approval are denied without a
//! question. A question whose call the client cancels counts as refused. At most [`MAX_OPEN`] elicitations may be open
//! at the same time, and as many calls may wait to be sent again with the person's answer. The program that asks people
//! in the third way limits its questions itself.

use flowgate::monitor::{Monitor, PersonDecision, Question};
use flowgate_guard::approve::{Decision, QuestionCount};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::asked_call::AskedCall;
use super::message::{RequestId, request, result};
use super::ruling::ProxyRuling;
use super::session::MonitoredSession;
use super::{
    JudgedRequest, OutgoingRequest, PendingClientRequest, PermittedRequest, Proxy, ProxyAction,
    ProxyCallKind, RetryableCall, input_required, refusal,
};

/// The maximum length in bytes of the arguments that a person is shown. A call with longer ones cannot be confirmed,
/// since the person would not see all of it.
const MAX_SHOWN: usize = 4_000;

/// The method of a question to the client's user.
const ELICIT: &str = "elicitation/create";
/// The most elicitations that are open at the same time; one more is not asked. Also the most calls that wait to be
/// sent again with the person's answer; one more drops the oldest, which is then denied and counts as a refusal.
const MAX_OPEN: usize = 20;
/// The verdict in the refusal of a call that a person is not asked about.
const TOO_MANY: &str = "no person was asked, because there were too many questions";

/// The decision on a call, as a proxy receives it. It differs from [`Decision`] in two ways: a call of an MCP client is
/// allowed at most once, and an undecided question has a name, which the refusal of the call states. The serialized
/// names are persisted by the gateway, so they stay when a variant is renamed.
///
/// The list is exhaustive on purpose: a program has to act on each variant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyDecision {
    /// The call may run, once.
    #[serde(rename = "yes", alias = "allow_once")]
    AllowOnce,
    /// The call may run, once: everybody whom the question names has approved it.
    #[serde(rename = "yes_by_all")]
    AllowByAll,
    /// The call must not run.
    #[serde(rename = "no", alias = "deny")]
    Deny,
    /// No decision arrived in time.
    #[serde(rename = "nothing", alias = "unanswered")]
    Unanswered,
    /// No person was asked, since there are too many questions.
    Unasked,
    /// The question of this name is undecided and still open.
    #[serde(rename = "not_yet", alias = "undecided")]
    Undecided(String),
}

impl ProxyDecision {
    /// Returns the decision on a question that was asked outside the client. A permission for the whole conversation
    /// allows this call only. `question` is the name of the stored question; `None` if it was not stored: a decision
    /// that allows the call or leaves it undecided then counts as no answer.
    pub fn new(decision: Decision, question: Option<String>) -> Self {
        match (decision, question) {
            (Decision::AllowOnce | Decision::AllowForConversation, Some(_)) => Self::AllowOnce,
            (Decision::AllowByAll, Some(_)) => Self::AllowByAll,
            (Decision::Deny, _) => Self::Deny,
            (Decision::Unasked, _) => Self::Unasked,
            (Decision::Undecided, Some(question)) => Self::Undecided(question),
            (
                Decision::Unanswered
                | Decision::AllowOnce
                | Decision::AllowForConversation
                | Decision::AllowByAll
                | Decision::Undecided,
                _,
            ) => Self::Unanswered,
        }
    }
}

impl From<PersonDecision> for ProxyDecision {
    /// Converts the decision of the person at the client. Every permission counts as a permission of this call only.
    fn from(decision: PersonDecision) -> Self {
        match decision.allows() {
            true => Self::AllowOnce,
            false => Self::Deny,
        }
    }
}

impl From<&ProxyDecision> for Decision {
    /// Converts a decision to the form that the budget of questions counts.
    fn from(decision: &ProxyDecision) -> Self {
        match decision {
            ProxyDecision::AllowOnce => Self::AllowOnce,
            ProxyDecision::AllowByAll => Self::AllowByAll,
            ProxyDecision::Deny => Self::Deny,
            ProxyDecision::Unanswered => Self::Unanswered,
            ProxyDecision::Unasked => Self::Unasked,
            ProxyDecision::Undecided(_) => Self::Undecided,
        }
    }
}

/// Returns the decision of the person at the client, who is asked by an elicitation, from the `action` of the result:
/// only `accept` allows the call.
pub fn elicited_decision(action: Option<&Value>) -> PersonDecision {
    match action.and_then(Value::as_str) {
        Some("accept") => PersonDecision::AllowOnce,
        _ => PersonDecision::Deny,
    }
}

impl Proxy {
    /// Asks a person whether the call of the request `id` may run, in the first of these ways that is possible: in the
    /// answer to the call, by an elicitation, or outside the client. Refuses the call if none of them is possible.
    pub(super) fn ask(
        &mut self,
        monitor: &mut Monitor,
        id: RequestId,
        question: AskedCall,
        pending: JudgedRequest,
    ) -> Vec<ProxyAction> {
        let arguments = question.call().and_then(|call| call.arguments.clone().ok()).unwrap_or_default();
        let shown = escape_invisible(&Value::Object(arguments).to_string());
        let has_room = self.outgoing_requests.len() < self.settings.limits.outstanding;
        // A client shows the arguments in full, so its user is not asked about a call with longer arguments.
        let fits_dialog = self.settings.is_interactive && shown.len() <= MAX_SHOWN;
        // Whether the user of the client would be asked, so that the budget of questions and the limits on open ones
        // apply.
        let asks_person = fits_dialog && (pending.can_retry || self.can_elicit);
        // A question in the answer does not count towards the open elicitations: `ask_in_answer` limits such questions.
        let may_ask = self.questions.allows_question(self.settings.questions)
            && (pending.can_retry || self.open_elicitations() < MAX_OPEN);
        let can_elicit_here = fits_dialog && self.can_elicit;
        let way = if asks_person && !may_ask {
            ProxyRuling::Unasked
        } else if fits_dialog && pending.can_retry {
            // The client sends the person's answer with a repetition of the call, so no request stays open here, and
            // `has_room` does not matter.
            ProxyRuling::AskedInAnswer
        } else if !has_room || !(can_elicit_here || self.settings.asks_elsewhere) {
            ProxyRuling::Unaskable
        } else if can_elicit_here {
            ProxyRuling::AskedAtClient
        } else {
            ProxyRuling::AskedElsewhere
        };
        // While inputs of an earlier conversation are processed again, `choose` returns the recorded way.
        let is_at_client = match self.tape.choose(way) {
            ProxyRuling::Unasked => {
                let refusal = self.asked_refusal(monitor, TOO_MANY, &question);
                return vec![self.flood_note(&pending), refusal::refusal_answer(&id, pending.kind, &refusal)];
            }
            ProxyRuling::AskedInAnswer => {
                return vec![self.ask_in_answer(monitor, &id, question, pending, &shown)];
            }
            ProxyRuling::AskedAtClient => true,
            ProxyRuling::AskedElsewhere => false,
            ruling => {
                if ruling != ProxyRuling::Unaskable {
                    self.tape.note_divergence();
                }
                let refusal = self.asked_refusal(monitor, "nobody was asked", &question);
                return vec![refusal::refusal_answer(&id, pending.kind, &refusal)];
            }
        };
        let question_id = self.generated_id();
        let out = match is_at_client {
            true => ProxyAction::Client(request(
                &question_id,
                ELICIT,
                &elicitation_params(&pending, &shown, &question, monitor),
            )),
            false => ProxyAction::Ask(question_id.value().as_str().unwrap_or_default().to_owned()),
        };
        if is_at_client {
            // The question counts as asked; its outcome is counted when the client answers or cancels.
            self.questions.count(Decision::Undecided);
        }
        self.client_requests.insert(id.clone(), PendingClientRequest::Waiting);
        let pending = Box::new(pending);
        self.outgoing_requests
            .insert(question_id, OutgoingRequest::Person { question, id, pending, is_at_client });
        vec![out]
    }

    /// Returns the number of questions to the client's user that have no answer yet, without those in answers to calls.
    fn open_elicitations(&self) -> usize {
        let is_open =
            |asking: &&OutgoingRequest| matches!(asking, OutgoingRequest::Person { is_at_client: true, .. });
        self.outgoing_requests.values().filter(is_open).count()
    }

    /// Withdraws the question about the call of the request `id`, which the client has cancelled. A question that the
    /// client's user was shown is settled as unanswered, which the flood rule counts like a refusal: otherwise a person
    /// who dismisses questions would be asked without end.
    pub(super) fn withdraw_question(&mut self, id: &RequestId) {
        let mut was_shown = false;
        self.outgoing_requests.retain(|_, asking| {
            let OutgoingRequest::Person { id: of, is_at_client, .. } = asking else { return true };
            was_shown |= *is_at_client && of == id;
            of != id
        });
        if was_shown {
            self.questions.settle(Decision::Unanswered);
        }
    }

    /// Returns the count of the questions to the person at the client.
    pub fn question_count(&self) -> QuestionCount {
        self.questions
    }

    /// Sets the count of the questions to the person at the client: that of all proxies with the same person.
    pub fn set_question_count(&mut self, count: QuestionCount) {
        self.questions = count;
    }

    /// Asks in the answer to a call, as the revision without sessions requires, and remembers the call: the client
    /// sends the call again with the person's answer. Above the limit on remembered calls, the oldest one is dropped,
    /// which denies it. `shown` are the arguments as the person is shown them.
    fn ask_in_answer(
        &mut self,
        monitor: &Monitor,
        id: &RequestId,
        question: AskedCall,
        pending: JudgedRequest,
        shown: &str,
    ) -> ProxyAction {
        let name = self.generated_id().value().as_str().unwrap_or_default().to_owned();
        let answer = json!({
            "resultType": "input_required",
            "inputRequests": {&name: {"method": ELICIT, "params": elicitation_params(&pending, shown, &question, monitor)}},
            "requestState": name,
        });
        // The question counts as asked; its outcome is counted when the client sends the call again.
        self.questions.count(Decision::Undecided);
        self.retries.push_back(RetryableCall { name, question, pending: Box::new(pending) });
        if self.retries.len() > MAX_OPEN {
            self.retries.pop_front();
            self.questions.settle(Decision::Unanswered);
        }
        ProxyAction::Client(result(id, &answer))
    }

    /// Counts the decision of the person at the client, for the budget of questions.
    pub(super) fn count_decision(&mut self, decision: &ProxyDecision) {
        self.questions.settle(decision.into());
    }

    /// Returns the note for the operator that the person at the client is not asked about a call, since a limit on
    /// questions is reached.
    fn flood_note(&self, pending: &JudgedRequest) -> ProxyAction {
        let budget = self.settings.questions;
        ProxyAction::Note(format!(
            "`{}` did not run, and the person at the client is not asked any more: {} questions in a row were refused, the \
             session had {}, or {MAX_OPEN} are open; check whether a text in the session provokes these calls",
            pending.tool, budget.refusals_in_row, budget.questions
        ))
    }

    /// Returns the remembered call that a request sends again, and the person's decision on it, if the `requestState`
    /// of the request names a question to a person. Forgets the call, and removes `requestState` and `inputResponses`
    /// from the parameters. Otherwise returns `None` and leaves the parameters unchanged: they may belong to a round
    /// with the server.
    pub(super) fn take_retry(
        &mut self,
        params: &mut Map<String, Value>,
    ) -> Option<(RetryableCall, ProxyDecision)> {
        let name = params.get("requestState")?.as_str()?.to_owned();
        let at = self.retries.iter().position(|retry| retry.name == name)?;
        let retry = self.retries.remove(at)?;
        // Without the person's answer, the decision is a denial.
        let action = params.get("inputResponses").and_then(|responses| responses.get(&name)?.get("action"));
        let decision = elicited_decision(action).into();
        params.shift_remove("requestState");
        params.shift_remove("inputResponses");
        Some((retry, decision))
    }

    /// Runs a call that was sent again, if it has the tool and the arguments that the person was asked about, and if
    /// the decision allows it; refuses it otherwise. `retry` is the remembered call; `name` and `arguments` are the
    /// tool and the arguments of the call as it was sent again.
    pub(super) fn handle_retry(
        &mut self,
        monitor: &mut Monitor,
        id: RequestId,
        retry: RetryableCall,
        name: &str,
        arguments: &Map<String, Value>,
        decision: &ProxyDecision,
    ) -> Vec<ProxyAction> {
        self.count_decision(decision);
        let RetryableCall { question, pending, .. } = retry;
        let asked_arguments = question.call().and_then(|call| call.arguments.as_ref().ok());
        // If the server asked for input before, the arguments in the question also have the client's responses to it.
        // The call that is sent again does not repeat them.
        let asked_arguments = asked_arguments.map(|asked| match pending.round {
            Some(_) => input_required::without_responses(asked),
            None => asked.clone(),
        });
        if *pending.tool.name != *name || asked_arguments.as_ref() != Some(arguments) {
            let says =
                "this `requestState` belongs to a question about another call; call without `requestState`";
            return vec![refusal::refusal_answer(
                &id,
                ProxyCallKind::Tool,
                &refusal::unjudged_refusal("malformed", says),
            )];
        }
        // `handle_person_decision` answers only requests that wait for a person, so the repeated request is marked as
        // one.
        self.client_requests.insert(id.clone(), PendingClientRequest::Waiting);
        self.handle_person_decision(monitor, question, id, *pending, decision)
    }

    /// Returns the open question of this name, whether it is asked outside the client ([`ProxyAction::Ask`]), by an
    /// elicitation, or in the answer to a call. `None` if no open question has this name.
    pub fn question(&self, name: &str) -> Option<&Question> {
        match self.outgoing_requests.get(&RequestId::from_name(name)) {
            Some(OutgoingRequest::Person { question, .. }) => question.open(),
            _ => self.retries.iter().find(|retry| retry.name == name)?.question.open(),
        }
    }

    /// Handles a person's decision on the question that was [asked](ProxyAction::Ask) under this name. An unknown name
    /// has no effect: the question was answered or withdrawn before.
    pub fn handle_decision(
        &mut self,
        session: &mut dyn MonitoredSession,
        name: &str,
        decision: &ProxyDecision,
    ) -> Vec<ProxyAction> {
        // `outgoing_requests` also contains requests of the server to the client: a decision must not answer one of
        // those.
        let question_id = RequestId::from_name(name);
        if !matches!(self.outgoing_requests.get(&question_id), Some(OutgoingRequest::Person { .. })) {
            return Vec::new();
        }
        let Some(OutgoingRequest::Person { question, id, pending, .. }) =
            self.outgoing_requests.remove(&question_id)
        else {
            return Vec::new();
        };
        let out = self.handle_person_decision(session.monitor(), question, id, *pending, decision);
        self.restore_client_ids(out)
    }

    /// Handles a person's decision on the question about the request `id`: sends the call if it is allowed and the
    /// monitor still permits it, and refuses it otherwise. Does nothing if the request does not wait for a person
    /// any more. While the question is undecided, the refusal contains the name of the question, so that the client can
    /// wait for the decision and repeat the call.
    pub(super) fn handle_person_decision(
        &mut self,
        monitor: &mut Monitor,
        question: AskedCall,
        id: RequestId,
        pending: JudgedRequest,
        decision: &ProxyDecision,
    ) -> Vec<ProxyAction> {
        if !matches!(self.client_requests.get(&id), Some(PendingClientRequest::Waiting)) {
            return Vec::new();
        }
        self.client_requests.remove(&id);
        let refusal = match decision {
            ProxyDecision::AllowOnce | ProxyDecision::AllowByAll => {
                match self.permit_approved(monitor, question, decision) {
                    Ok(permitted) => return self.run(id, permitted, pending),
                    Err(refusal) => refusal,
                }
            }
            ProxyDecision::Deny => self.asked_refusal(monitor, "refused by a person", &question),
            ProxyDecision::Unanswered => self.asked_refusal(monitor, "nobody has answered", &question),
            ProxyDecision::Unasked => self.asked_refusal(monitor, TOO_MANY, &question),
            ProxyDecision::Undecided(name) => {
                let mut refusal = self.asked_refusal(monitor, "nobody has answered yet", &question);
                if let Some(refusal) = refusal.as_object_mut() {
                    refusal.insert("question".to_owned(), name.as_str().into());
                    refusal.insert(
                        "advice".to_owned(),
                        "repeat the call with the same arguments after a person has decided".into(),
                    );
                }
                refusal
            }
        };
        vec![refusal::refusal_answer(&id, pending.kind, &refusal)]
    }

    /// Returns the call that a person has approved by `decision`, ready to be sent, or the refusal if the monitor does
    /// not permit it in spite of the approval.
    fn permit_approved(
        &mut self,
        monitor: &mut Monitor,
        question: AskedCall,
        decision: &ProxyDecision,
    ) -> Result<PermittedRequest, Value> {
        match question {
            AskedCall::Open(question) => {
                // The caller vouches that everybody has approved whom the question names.
                let approvers = match decision {
                    ProxyDecision::AllowByAll => question.approvers(),
                    _ => Vec::new(),
                };
                let permit = monitor.approve_by(*question, &approvers);
                let authorized = permit.and_then(|permit| monitor.redeem(permit));
                // Records whether the call runs, for a later change of the policy.
                self.tape.rule(authorized.is_ok());
                match authorized {
                    Ok(authorized) => Ok(PermittedRequest::from(&authorized)),
                    Err(denial) => Err(self.judgement_refusal(monitor, "deny", denial.judgement())),
                }
            }
            // A call of an earlier policy: the record says whether the call ran. That policy may have denied it in
            // spite of the approval.
            AskedCall::Earlier(entry) => {
                // `rule` returns the ruling of the record, and ignores its argument.
                let has_run = self.tape.is_following() && self.tape.rule(false);
                let permitted = has_run.then(|| self.record_earlier_call(monitor, *entry)).flatten();
                permitted.ok_or_else(|| self.earlier_refusal(monitor))
            }
        }
    }
}

/// Returns the parameters of a question to the client's user: a text with the tool, the arguments (`shown`) and the
/// reasons, and a schema without fields. The schema needs none, since only the action (accept or not) is the answer.
fn elicitation_params(
    pending: &JudgedRequest,
    shown: &str,
    question: &AskedCall,
    monitor: &Monitor,
) -> Map<String, Value> {
    // A question of an earlier policy was asked already: nothing is sent.
    let Some(question) = question.open() else { return Map::new() };
    let reasons =
        question.judgement().reasons.iter().map(|reason| format!("* {}", escape_invisible(&reason.message)));
    let evidence = monitor.question_evidence(question);
    let evidence: String =
        evidence.iter().map(|sentence| format!("\n* {}", escape_invisible(sentence))).collect();
    let evidence = if evidence.is_empty() { evidence } else { format!("\n\nWhat is known:{evidence}") };
    let text = format!(
        "The policy asks before this call runs. {}\n\nTool: {}\nArguments: {shown}\n\nWhy:\n{}{evidence}",
        escape_invisible(&question.summary(monitor.policy())),
        escape_invisible(&pending.tool.to_string()),
        reasons.collect::<Vec<_>>().join("\n")
    );
    let schema = json!({"type": "object", "properties": {}});
    let mut params = Map::new();
    params.insert("message".to_owned(), Value::String(text));
    params.insert("requestedSchema".to_owned(), schema);
    params
}

/// Escapes untrusted text for display, so that a person sees what is asked: no character is invisible or changes the
/// writing direction. Letters and digits of all scripts stay, and so does all visible ASCII; others become `\u{...}`.
fn escape_invisible(text: &str) -> String {
    // Unicode classifies the Hangul fillers as letters, although they are invisible.
    let is_filler = |c: char| matches!(c, '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}');
    let is_plain = |c: char| !c.is_control() && !is_filler(c) && (c.is_ascii() || c.is_alphanumeric());
    let mut shown = String::new();
    for c in text.chars() {
        match is_plain(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_explicit_yes_allows_a_call() {
        let accept = json!("accept");
        for action in [
            None,
            Some(&json!("decline")),
            Some(&json!("cancel")),
            Some(&json!(true)),
            Some(&json!("Accept")),
        ] {
            assert_eq!(elicited_decision(action), PersonDecision::Deny, "{action:?}");
        }
        assert_eq!(elicited_decision(Some(&accept)), PersonDecision::AllowOnce);
        for decision in PersonDecision::ALL {
            let received = Decision::from(&ProxyDecision::from(decision));
            assert_eq!(received.allows(), decision.allows(), "{decision:?}");
        }
        let id = || Some("q1".to_owned());
        for (decision, stored, expected, persisted) in [
            (Decision::AllowOnce, id(), ProxyDecision::AllowOnce, json!("yes")),
            (Decision::AllowForConversation, id(), ProxyDecision::AllowOnce, json!("yes")),
            (Decision::AllowOnce, None, ProxyDecision::Unanswered, json!("nothing")),
            (Decision::AllowForConversation, None, ProxyDecision::Unanswered, json!("nothing")),
            (Decision::Deny, id(), ProxyDecision::Deny, json!("no")),
            (Decision::Deny, None, ProxyDecision::Deny, json!("no")),
            (Decision::Unanswered, id(), ProxyDecision::Unanswered, json!("nothing")),
            (Decision::Unasked, None, ProxyDecision::Unasked, json!("unasked")),
            (Decision::Undecided, id(), ProxyDecision::Undecided("q1".to_owned()), json!({"not_yet": "q1"})),
            (Decision::Undecided, None, ProxyDecision::Unanswered, json!("nothing")),
        ] {
            let received = ProxyDecision::new(decision, stored);
            assert_eq!(received, expected, "{decision:?}");
            assert_eq!(serde_json::to_value(&received).unwrap(), persisted);
            assert_eq!(serde_json::from_value::<ProxyDecision>(persisted).unwrap(), received);
        }
    }

    #[test]
    fn nothing_that_a_person_reads_is_invisible() {
        for (text, expected) in [
            ("pay 5 € to Zoë", "pay 5 \\u{20ac} to Zoë"),
            (
                "a\u{200b}b\u{202e}c\u{3164}d\u{115f}\u{1160}\u{ffa0}",
                "a\\u{200b}b\\u{202e}c\\u{3164}d\\u{115f}\\u{1160}\\u{ffa0}",
            ),
            ("line\nbreak", "line\\u{a}break"),
            ("支付 плати", "支付 плати"),
        ] {
            assert_eq!(escape_invisible(text), expected, "{text:?}");
        }
    }
}
