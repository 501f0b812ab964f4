//! Grants: approvals that a person gives for the rest of a session.
//!
//! A grant covers the same call again: the same tool, the same value in every argument that is not payload, and the reasons
//! that the person was shown. If a rule asked, payload must be the same as well, because the rule may have read it. A
//! changed value, another reason, or a label that the person was not shown is a new question.
//!
//! Only a statement that says `grant conversation` lets a person grant what it asks about. A call whose arguments refer to
//! external state that can change, such as the id of a draft, cannot be granted: the same arguments would not be the same
//! call. A grant has the label of the question that it answered, and covers only calls whose verdicts carry that label: an
//! observer who may see such a verdict may know that there is a grant.

use serde_json::{Map, Value};

use super::{Denial, Judgement, Monitor, Permit, Question, Reason, ReasonKind};
use crate::label::Label;
use crate::policy::Action;
use crate::trace::{Call, Tool};

/// The maximum number of grants of one session.
const MAX_GRANTS: usize = 1_000;

/// An approval that covers equal calls of this session.
#[derive(Debug, Clone, PartialEq)]
pub struct Grant {
    /// The tool.
    pub tool: Tool,
    /// The arguments that must be the same.
    pub arguments: Map<String, Value>,
    /// The reasons that the person was shown.
    pub reasons: Vec<Reason>,
    /// The label of the question.
    decided: Label,
    /// Whether arguments that are payload must be the same, too.
    covers_payload: bool,
}

impl Grant {
    /// Whether the grant covers a reason against a call.
    fn covers(&self, reason: &Reason) -> bool {
        let same = |known: &Reason| {
            (known.kind, &known.statement, &known.part, &known.label, &known.message)
                == (reason.kind, &reason.statement, &reason.part, &reason.label, &reason.message)
        };
        reason.is_grantable && reason.action == Action::Ask && self.reasons.iter().any(same)
    }
}

impl Question {
    /// Whether a person may answer the question for the rest of the session: every statement that asks allows it, and the call
    /// refers to no external state that can change.
    pub fn is_grantable(&self) -> bool {
        let asks = self.judgement().reasons.iter().all(|reason| reason.is_grantable);
        asks && !self.judgement().reasons.is_empty() && self.referred.is_empty()
    }
}

/// # Grants
///
/// Approvals that hold for the rest of the session.
impl Monitor {
    /// Turns a person's approval into a permit, as [`approve`](Self::approve) does, and lets equal calls of this session run
    /// without a question from now on.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all, or if the question cannot be answered for the rest of the session.
    pub fn approve_for_session(&mut self, question: Question) -> Result<Permit, Denial> {
        if !question.is_grantable() || self.grants.len() >= MAX_GRANTS {
            let message = "this question can be answered for one call only";
            return Err(self.stale_denial(question.judgement, message));
        }
        let grant = self.grant_of(&question);
        let mut permit = self.approve(question)?;
        self.grants.extend(grant);
        // Verdicts that were given before the grant stay valid: it only permits more.
        permit.version = self.version;
        Ok(permit)
    }

    /// Returns the grants of this session.
    pub fn session_grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Withdraws all grants of this session. Calls that were permitted by them but have not run may no longer run. Returns
    /// whether there were any.
    pub fn withdraw_grants(&mut self) -> bool {
        let had_grants = !self.grants.is_empty();
        self.grants.clear();
        self.version += u64::from(had_grants);
        had_grants
    }

    fn grant_of(&self, question: &Question) -> Option<Grant> {
        let call = question.call()?;
        let reasons = question.judgement.reasons.clone();
        let covers_payload = reasons.iter().any(|reason| reason.kind == ReasonKind::Rule);
        let (tool, decided) = (call.tool.clone(), question.judgement.decided);
        let arguments = self.granted_arguments(call, covers_payload)?;
        Some(Grant { tool, arguments, reasons, decided, covers_payload })
    }

    /// Returns the arguments of a call that a grant fixes.
    fn granted_arguments(&self, call: &Call, covers_payload: bool) -> Option<Map<String, Value>> {
        let mut arguments = call.arguments.clone().ok()?;
        if !covers_payload {
            for name in self.payload_arguments(&call.tool) {
                // That there is such an argument is part of the decision.
                if let Some(value) = arguments.get_mut(&name) {
                    *value = Value::Null;
                }
            }
        }
        Some(arguments)
    }

    /// Moves the reasons that a grant covers to the notes, if one grant covers all of them.
    pub(super) fn apply_grants(&self, call: &Call, judgement: &mut Judgement) {
        if judgement.reasons.is_empty() {
            return;
        }
        let covers = |grant: &&Grant| {
            grant.tool == call.tool
                && grant.decided.flows_to(&judgement.decided)
                && judgement.reasons.iter().all(|reason| grant.covers(reason))
                && self.granted_arguments(call, grant.covers_payload).as_ref() == Some(&grant.arguments)
        };
        if self.grants.iter().any(|grant| covers(&grant)) {
            let covered = judgement.reasons.drain(..).map(|reason| Reason {
                kind: ReasonKind::Granted,
                action: Action::Log,
                message: format!("granted for this conversation: {}", reason.message),
                ..reason
            });
            judgement.notes.extend(covered);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Attribution, CallDependency, Outcome, Verdict};
    use super::*;
    use crate::policy::Policy;
    use crate::trace::{Message, TraceEntry};

    const POLICY: &str = r#"lattice integrity: trusted < untrusted
lattice secrecy: public < private
store drafts: written by edit, read by send_draft
label m as trusted, public if:
    (m: Message)
    m.role == "user"
require trusted, public grant conversation if:
    (call: ToolCall) is tool:r"send|send_draft|edit"
payload call.arguments.body if:
    (call: ToolCall) is tool:send
require trusted, public if:
    (call: ToolCall) is tool:pay
require trusted, public grant conversation else deny if:
    (call: ToolCall) is tool:erase
require top if:
    (call: ToolCall) is tool:book
ask "book it?" grant conversation if:
    (call: ToolCall) is tool:book
ask "by night?" if:
    (call: ToolCall) is tool:book({when: "night"})
"#;

    fn monitor() -> Monitor {
        let mut monitor = Monitor::new(Arc::new(Policy::parse(POLICY).unwrap()));
        monitor.push(TraceEntry::from(Message::new("user", "Hello."))).unwrap();
        monitor.push(TraceEntry::from(Message::new("page", "A page."))).unwrap();
        monitor
    }

    fn judge(monitor: &mut Monitor, (name, arguments): (&str, &str), label: Option<Label>) -> Verdict {
        let id = format!("c{}", monitor.trace().len());
        let call = TraceEntry::from(Call::from_json(id, Tool::local(name), arguments));
        let label = label.unwrap_or_else(|| monitor.policy().space().top());
        let decision = CallDependency::View(label);
        monitor.judge_entry(call, Attribution { decision, ..Attribution::everything() })
    }

    /// The outcome of the second call, after the first one was granted; `None` if the first cannot be granted.
    fn after(first: (&str, &str), second: (&str, &str)) -> Option<Outcome> {
        let mut monitor = monitor();
        let Verdict::Confirm(question) = judge(&mut monitor, first, None) else { return None };
        let is_grantable = question.is_grantable();
        let permit = match monitor.approve_for_session(question) {
            Ok(permit) => permit,
            Err(denial) => {
                assert!(!is_grantable, "{denial}");
                assert!(monitor.session_grants().is_empty());
                return None;
            }
        };
        assert!(is_grantable && monitor.session_grants().len() == 1);
        monitor.redeem(permit).unwrap();
        let again = judge(&mut monitor, second, None);
        let outcome = again.judgement().outcome();
        if let Verdict::Permit(permit) = again {
            assert!(permit.judgement().notes.iter().any(|note| note.kind == ReasonKind::Granted));
            assert!(monitor.withdraw_grants());
            let denial = monitor.redeem(permit).unwrap_err();
            assert!(denial.to_string().contains("a question has come up"), "{denial}");
        }
        Some(outcome)
    }

    #[test]
    fn a_grant_covers_the_same_call_and_no_other() {
        let send = ("send", r#"{"to": "ann", "body": "a"}"#);
        let (permit, asks) = (Some(Outcome::Permit), Some(Outcome::Confirm));
        assert_eq!(after(send, send), permit);
        assert_eq!(after(send, ("send", r#"{"body": "b", "to": "ann"}"#)), permit, "payload may change");
        for other in [
            r#"{"to": "eve", "body": "a"}"#,
            r#"{"to": "ann"}"#,
            r#"{"to": "ann", "body": "a", "cc": "eve"}"#,
            r#"{"to": ["ann"], "body": "a"}"#,
        ] {
            assert_eq!(after(send, ("send", other)), asks, "{other}");
        }
        // Another tool, and a tool whose statement allows no grant.
        assert_eq!(after(send, ("pay", r#"{"to": "ann", "body": "a"}"#)), asks);
        assert_eq!(after(("pay", r#"{"to": "ann"}"#), send), None);
        // What is denied is not asked about.
        assert_eq!(after(("erase", "{}"), ("erase", "{}")), None);
        // The state of the draft can change.
        assert_eq!(after(("send_draft", r#"{"id": 7}"#), ("send_draft", r#"{"id": 7}"#)), None);
        // A rule may read every argument, and another rule is another reason.
        let book = ("book", r#"{"when": "noon", "note": "a"}"#);
        assert_eq!(after(book, book), permit);
        assert_eq!(after(book, ("book", r#"{"when": "noon", "note": "b"}"#)), asks);
        assert_eq!(after(("book", r#"{"when": "night"}"#), ("book", r#"{"when": "night"}"#)), None);
    }

    /// An observer below the label of the question must not learn that there is a grant.
    #[test]
    fn a_grant_covers_no_call_below_the_label_of_its_question() {
        let mut monitor = monitor();
        let element = |dimension, name| monitor.policy().space().element(dimension, name).unwrap().label;
        let (untrusted, private) = (element("integrity", "untrusted"), element("secrecy", "private"));
        let both = untrusted.join(&private);
        let send = ("send", r#"{"to": "ann"}"#);
        let outcome = |monitor: &mut Monitor, label| judge(monitor, send, Some(label)).judgement().outcome();
        let Verdict::Confirm(question) = judge(&mut monitor, send, Some(untrusted)) else { panic!() };
        let permit = monitor.approve_for_session(question).unwrap();
        monitor.redeem(permit).unwrap();
        assert_eq!(outcome(&mut monitor, untrusted), Outcome::Permit);
        // The person was not shown that private text is sent.
        assert_eq!(outcome(&mut monitor, both), Outcome::Confirm);
        assert_eq!(outcome(&mut monitor, private), Outcome::Confirm);
    }
}
