//! Runs one turn: from the decoded request of a client to the completion that it receives.
//!
//! The request's conversation is held while the turn runs. The model routes call [`run`] and store the outcome
//! afterwards.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate::monitor::{Authorized, Monitor, PushError};
use flowgate::trace::Tool;
use flowgate_guard::agent::{Agent, Observer, Toolbox, TurnError};
use flowgate_guard::approve::{Ask, Decision, DigestKey};
use flowgate_guard::conversation::{CONTINUE, Conversation, Ended, Reply, Settings, Turn as Done, Void};
use flowgate_guard::history::Chat;
use flowgate_guard::{Offered, Words};
use flowgate_lm::chat::{Completion, Message, Request, Stop, ToolCall, ToolChoice, ToolSpec};
use flowgate_lm::wire;
use flowgate_lm::{Complete, Error, Listener};

use super::Waiting;
use super::clients::Known;
use super::config::{Client, Upstream};
use super::report::{self, Report, Timed};
use super::sessions::Session;
use super::stream::Outgoing;
use crate::approvals::known::Names;
use crate::approvals::{Answered, Approvals, Asked, Asker};
use crate::ask::journal::Journal;
use crate::audit::Event;
use crate::log::Log;
use crate::recorder::{self, Note};
use crate::status::Waits;
use crate::store::StoreError;
use crate::visibility;

/// The failure of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The cause, for the log.
    pub(crate) cause: Cause,
    /// A detail for the log only. It may name files of the operator and never contains content.
    pub(crate) detail: Option<String>,
}

/// The cause of a failure. Its texts are constants of the gateway: messages may quote what others wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The request or its client.
    Request,
    /// The conversation is full.
    Full,
    /// The client has disconnected.
    Gone,
    /// A model's server.
    Upstream(&'static str),
    /// The store or the audit log.
    Store(&'static str),
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), cause: Cause::Request, detail: None }
    }

    pub(crate) fn because(self, cause: Cause) -> Self {
        Self { cause, ..self }
    }

    /// Adds a detail for the log.
    pub(crate) fn detailed(self, detail: String) -> Self {
        Self { detail: Some(detail), ..self }
    }
}

impl From<PushError> for Failure {
    fn from(error: PushError) -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            format!("the conversation has no room for more, begin a new one: {error}"),
        )
        .because(Cause::Full)
    }
}

/// The number of tools that a client may offer.
const MAX_TOOLS: usize = 512;

/// Creates an empty conversation of a client. The answers of its extern predicates go to the journal.
pub(crate) fn begin(client: &Known, key: [u8; 32], journal: &Journal) -> Result<Conversation, Failure> {
    let settings =
        Settings { expires: client.spec.stands, ..Settings::new(client.spec.method, DigestKey::new(key)) };
    let mut monitor = Monitor::new(Arc::clone(&client.spec.policy));
    monitor.set_predicates(journal.predicates(&client.spec.predicates), Vec::new());
    let mut conversation = Conversation::new(monitor, Vec::new(), settings)?;
    conversation.keep_inputs();
    Ok(conversation)
}

/// A request with everything needed to answer it.
#[derive(Clone, Copy)]
pub(crate) struct Turn<'t> {
    pub(crate) client: &'t Known,
    /// The name of the conversation.
    pub(crate) name: &'t str,
    /// The request without its messages.
    pub(crate) asked: &'t Arc<wire::Asked>,
    /// Its messages.
    pub(crate) chat: &'t Chat<'t>,
    /// The client's key for the upstream, if it brings one.
    pub(crate) key: Option<&'t str>,
    pub(crate) waiting: &'t Waiting,
    pub(crate) approvals: &'t Approvals,
    pub(crate) log: &'t Log,
    /// Whether the client asks for an explanation of what is hidden from the model.
    pub(crate) explains: bool,
}

/// Rejects requests that no model may receive, before the chat is added to the conversation.
pub(crate) fn check(client: &Known, asked: &wire::Asked) -> Result<(), Failure> {
    let upstream = upstream(client)?;
    if !upstream.models.is_empty() && !upstream.models.contains(&asked.model) {
        let message =
            format!("this client may not ask for the model; it may ask for: {}", upstream.models.join(", "));
        return Err(Failure::new(StatusCode::NOT_FOUND, message));
    }
    if asked.request.tools.len() > MAX_TOOLS {
        let message = format!("there are more than {MAX_TOOLS} tools; send those that the agent needs");
        return Err(Failure::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}

fn upstream(client: &Known) -> Result<&Upstream, Failure> {
    client.spec.upstream().map_err(|why| Failure::new(StatusCode::NOT_FOUND, why))
}

/// Adds a chat to its conversation and runs the agent until the client has to act.
pub(crate) fn run(
    turn: Turn<'_>,
    session: &mut Session,
    stream: &mut Option<Outgoing>,
    report: &mut Report,
) -> Result<Completion, Failure> {
    let Turn { client, name, asked, chat, key, waiting, approvals, log, explains } = turn;
    let upstream = upstream(client)?;
    let request = &asked.request;
    let mut remote = upstream.remote.asked_for(&asked.model);
    if let Some(key) = key {
        remote =
            remote.key(key).map_err(|error| Failure::new(StatusCode::UNAUTHORIZED, error.to_string()))?;
    }
    let small = remote.asked_for(client.spec.small_model.as_deref().unwrap_or(&asked.model));

    let withdrawn = approvals.withdrawn(&client.spec)?;
    let has_changed = session.conversation.withdraw(&withdrawn);
    let mut is_resumed = false;
    let asker = Asker { client: &client.spec, conversation: name, turns: session.turns(), waiting, key };
    let (mut question, mut used): (Option<Asked>, Vec<Asked>) = (None, Vec::new());
    let mut given_up = Vec::new();
    if session.conversation.resume(&mut session.history, chat) {
        let digest = session.conversation.asked().unwrap_or_default();
        let Answered { decision, asked } = approvals.answer_to(asker, &digest)?;
        match decision {
            Decision::Later => {
                let completion = waiting_for(&client.spec, asked.as_ref(), &session.conversation.postpone());
                session.answered(client, &completion);
                report.waits = asked.map(|asked| Waits { question: asked.id });
                return Ok(completion);
            }
            Decision::Allow => used.extend(asked),
            Decision::Refuse | Decision::Silent | Decision::Unasked => {}
        }
        // In the meantime others may have written to the stores that the question refers to.
        if let Some(record) = approvals.stores_since(&client.spec.tenant, session.recalled.as_deref())? {
            session.recall(&record).map_err(|_| StoreError::Damaged("a tenant's stores"))?;
        }
        session.conversation.decided(decision);
        is_resumed = true;
    } else {
        if session.conversation.waits_for_decision() {
            approvals.give_up(&client.spec, name)?;
            let cause = "the conversation went on without the answer";
            given_up = session.conversation.give_up_approved(cause);
        }
        session.offer(&client.spec, asked, &approvals.names)?;
        session.conversation.set_sampling(request.sampling.clone());
        let mut known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = session.conversation.sent_chat(&mut known.client, &mut session.history, chat)?;
        let sent = sent.ok_or_else(|| {
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the beginning of the chat is not known")
        })?;
        client.note_bits(sent.bits);
    }
    let known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
    let Session { conversation, explained, .. } = session;
    visibility::log(log, &client.spec, &known.client, name, conversation, explained);
    if explains {
        let told = visibility::header(&client.spec, &known.client, conversation);
        if let Some(stream) = stream.as_mut() {
            stream.header(visibility::ANSWER, told.clone());
        }
        report.explained = Some(told);
    }
    drop(known);
    let micros = AtomicU64::new(0);
    let model = Chosen { model: &remote, choice: &request.choice, is_first: AtomicBool::new(true) };
    let begun = Instant::now();
    let mut watch = Watch { turn, stream, before: String::new(), recalled: session.recalled.clone() };
    let mut unasked = None;
    let mut ask = |ask: &Ask| {
        let Answered { decision, asked } = match approvals.ask(asker, ask, &used) {
            Ok(answered) => answered,
            Err(error) => {
                unasked = Some(error);
                // The error ends the turn, of which nothing is stored.
                return Decision::Later;
            }
        };
        match decision {
            Decision::Allow => used.extend(asked),
            Decision::Later => question = asked,
            Decision::Refuse | Decision::Silent | Decision::Unasked => {}
        }
        decision
    };
    let (model, small) = (Timed::new(&model, &micros), Timed::new(&small, &micros));
    let mut agent = Agent {
        model: &model,
        screener: &small,
        filler: &small,
        tools: &Toolbox::elsewhere(),
        approver: &mut ask,
        clock: &|| begun.elapsed(),
        observer: &mut watch,
    };
    let ended = agent.go_on(&mut session.conversation);
    report.upstream(Duration::from_micros(micros.load(Ordering::Relaxed)));
    if let Some(error) = unasked {
        ended.iter().for_each(|turn| report.turn(turn));
        session.is_unasked = true;
        return Err(error.into());
    }
    let mut turn = match ended {
        Ok(turn) => turn,
        Err(error) => {
            let judged = session.conversation.judged();
            report.judged(&judged);
            given_up.extend(session.conversation.give_up_approved("the turn failed"));
            session.events = events(client, name, &mut Done { judged, void: given_up, ..Done::default() });
            session.void = used;
            return Err(match error {
                TurnError::Model(error) => of_model(&error),
                TurnError::Full(error) => error.into(),
            });
        }
    };
    report.turn(&turn);
    turn.void.splice(0..0, given_up);
    let is_void = |asked: &Asked| turn.void.iter().any(|void| void.digest == asked.digest);
    (session.void, session.used) = used.into_iter().partition(is_void);
    session.events = events(client, name, &mut turn);
    if turn.ended != Some(Ended::Asked) {
        // A freeze may have stopped calls since they were handed over.
        let mut calls = turn.calls.iter();
        let stopped = calls.find_map(|call| approvals.stops(&client.spec, name, &call.tool.to_string()));
        if let Some(why) = stopped {
            session.keep_back(client, name, &mut turn, &why);
            return Err(Failure::new(StatusCode::FORBIDDEN, why));
        }
        // Calls that were permitted before a person was asked depend on the consents of that time.
        let is_other = is_resumed && has_changed || approvals.withdrawn(&client.spec)? != withdrawn;
        if !turn.calls.is_empty() && is_other {
            let why = "what the policy consents to has changed meanwhile: try again";
            session.keep_back(client, name, &mut turn, why);
            return Err(Failure::new(StatusCode::CONFLICT, why));
        }
    }
    if turn.ended != Some(Ended::Asked) {
        for call in &turn.calls {
            let Some(digest) = call.approved.clone() else { continue };
            let (conversation, tool) = (name.to_owned(), call.tool.to_string());
            session.events.push(Event::ApprovalUsed { conversation, tool, digest }.into());
        }
    }
    let completion = match turn.ended {
        Some(Ended::Asked) => {
            let completion = waiting_for(&client.spec, question.as_ref(), &turn);
            report.waits = question.map(|asked| Waits { question: asked.id });
            completion
        }
        _ => completion(&turn, &|tool| client.spec.name_of(tool)),
    };
    session.answered(client, &completion);
    Ok(completion)
}

/// The number of requests that a session remembers as carrying the tools on offer.
const KNOWN_OFFERS: usize = 4;

impl Session {
    /// Offers the tools of a request to the model.
    fn offer(&mut self, client: &Client, asked: &Arc<wire::Asked>, names: &Names) -> Result<(), PushError> {
        if self.offered.iter().any(|known| known.as_ptr() == Arc::as_ptr(asked)) {
            return Ok(());
        }
        let tools = || asked.request.tools.iter();
        let said =
            tools().map(|tool| (client.tool_of(&tool.name), tool.description.as_str(), &tool.parameters));
        if !self.conversation.offers(said) {
            self.offered.clear();
            names.note_tools(tools().map(|tool| client.tool_of(&tool.name).to_string()));
            self.conversation.offer(tools().map(|tool| offered(client, tool)).collect())?;
        }
        self.offered.truncate(KNOWN_OFFERS - 1);
        // The weak pointer keeps the allocation, so that no other request can have the same address.
        self.offered.insert(0, Arc::downgrade(asked));
        Ok(())
    }

    /// Withholds the calls of a turn: approvals that they used become void.
    fn keep_back(&mut self, client: &Known, name: &str, turn: &mut Done, cause: &str) {
        self.void.append(&mut self.used);
        for call in &mut turn.calls {
            let Some(digest) = call.approved.take() else { continue };
            let (tool, reasons, cause) = (call.tool.clone(), Vec::new(), cause.to_owned());
            self.events.push(recorder::void(&client.spec, name, Void { tool, digest, reasons, cause }));
        }
    }

    /// Adds the completion to the conversation as the message that the client receives.
    fn answered(&mut self, client: &Known, completion: &Completion) {
        let message = Message::Assistant { text: completion.text.clone(), calls: completion.calls.clone() };
        let mut known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
        self.conversation.answered_to(&mut known.client, &mut self.history, &message);
    }
}

/// Moves the audit records out of a turn.
fn events(client: &Known, name: &str, turn: &mut Done) -> Vec<Note> {
    let judged = std::mem::take(&mut turn.judged).into_iter();
    let withheld = std::mem::take(&mut turn.withheld).into_iter();
    let judged = judged.map(|call| recorder::judged(&client.spec, name, call));
    let void = std::mem::take(&mut turn.void).into_iter();
    let judged = judged.chain(void.map(|void| recorder::void(&client.spec, name, void)));
    judged.chain(withheld.map(|text| recorder::withheld(&client.spec, name, text))).collect()
}

/// Builds the completion for a turn that waits for a person.
fn waiting_for(client: &Client, question: Option<&Asked>, turn: &Done) -> Completion {
    let note = format!(
        "[a person has to allow what comes next: question {}. Say `{CONTINUE}` when it is decided; anything else gives it up.]",
        question.map_or("unknown", |asked| &asked.id)
    );
    let mut completion = completion(turn, &|tool| client.name_of(tool));
    let _ = write!(completion.text, "{}{note}", if completion.text.is_empty() { "" } else { BETWEEN });
    completion
}

/// Joins the model's replies into one text.
fn said(replies: &[Reply]) -> String {
    let mut text = String::new();
    for reply in replies {
        let part = match reply.withheld.as_slice() {
            [] => reply.text.clone(),
            rules => format!("[withheld by a rule: {}]", rules.join("; ")),
        };
        let _ = write!(text, "{}{part}", if text.is_empty() { "" } else { BETWEEN });
    }
    text
}

/// The separator between two replies of the model in one completion.
const BETWEEN: &str = "\n\n";

/// Builds the completion of a turn for the client.
fn completion(turn: &Done, name: &dyn Fn(&Tool) -> String) -> Completion {
    let mut text = said(&turn.replies);
    if turn.ended == Some(Ended::Clearance) {
        let note = "[the policy does not let the model's server see what it would take to go on]";
        let _ = write!(text, "{}{note}", if text.is_empty() { "" } else { BETWEEN });
    }
    let call = |call: &flowgate_guard::conversation::Handed| {
        let (id, name, arguments) = (call.id.clone(), name(&call.tool), call.arguments.clone());
        ToolCall { id, name, arguments }
    };
    let calls: Vec<ToolCall> = turn.calls.iter().map(call).collect();
    let stop = match (calls.is_empty(), turn.ended) {
        (false, _) => Stop::Calls,
        (true, Some(Ended::Steps | Ended::Full)) => Stop::Length,
        // Calls that were not handed to the client are no reason to stop.
        (true, _) if turn.stop == Stop::Calls => Stop::End,
        (true, _) => turn.stop,
    };
    Completion { text, calls, stop, usage: turn.spent.tokens }
}

/// Builds the offer of a client's tool from its description. Its label is up to the policy.
fn offered(client: &Client, tool: &ToolSpec) -> Offered {
    Offered {
        tool: client.tool_of(&tool.name),
        description: tool.description.clone(),
        parameters: tool.parameters.clone(),
        output: None,
        words: Words::Server,
    }
}

/// A model whose first message follows the client's choice of tool.
struct Chosen<'a> {
    model: &'a dyn Complete,
    choice: &'a ToolChoice,
    is_first: AtomicBool,
}

impl Complete for Chosen<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error> {
        let is_there = match self.choice {
            ToolChoice::Tool(name) => request.tools.iter().any(|tool| tool.name == *name),
            ToolChoice::Any => !request.tools.is_empty(),
            ToolChoice::Auto | ToolChoice::None => true,
        };
        // A second message answers a denied call, and may have to explain it in text.
        if !self.is_first.swap(false, Ordering::Relaxed) || !is_there || request.choice == *self.choice {
            return self.model.complete(request, listener);
        }
        self.model.complete(&Request { choice: self.choice.clone(), ..request.clone() }, listener)
    }
}

/// Streams text that may be released early, and cancels the turn when the client has disconnected.
struct Watch<'a> {
    turn: Turn<'a>,
    stream: &'a mut Option<Outgoing>,
    /// The text of the model's earlier replies.
    before: String,
    /// The record of the tenant's stores that the conversation recalled last.
    recalled: Option<String>,
}

impl Observer for Watch<'_> {
    fn stands(&mut self, conversation: &Conversation) {
        // The rest is sent at the end of the answer.
        if conversation.is_over() {
            return;
        }
        self.before = said(conversation.replies());
        if let Some(stream) = self.stream.as_mut()
            && let Some(rest) = self.before.strip_prefix(stream.sent())
        {
            let rest = rest.to_owned();
            stream.text(&rest);
        }
    }

    fn says(&mut self, text: &str) {
        let Some(stream) = self.stream.as_mut() else { return };
        if stream.sent() == self.before && !self.before.is_empty() {
            stream.text(BETWEEN);
        }
        stream.text(text);
    }

    fn before_decided(&mut self, conversation: &mut Conversation) -> Result<(), String> {
        let Turn { client, approvals, .. } = self.turn;
        let record = approvals.stores_since(&client.spec.tenant, self.recalled.as_deref());
        let Some(record) = record.map_err(|error| error.to_string())? else { return Ok(()) };
        let read = serde_json::from_str(&record).map_err(|error| error.to_string())?;
        conversation.recall(&read).map_err(|error| error.to_string())?;
        self.recalled = Some(record);
        Ok(())
    }

    fn before_run(&mut self, _: &mut Conversation, call: &Authorized) -> Result<(), String> {
        let Turn { client, name, approvals, .. } = self.turn;
        approvals.stops(&client.spec, name, &call.call().tool.to_string()).map_or(Ok(()), Err)
    }

    fn is_cancelled(&self) -> bool {
        self.turn.waiting.has_gone() || self.stream.as_ref().is_some_and(|stream| stream.is_lost)
    }
}

/// The constant message to a client for every failure of a model's server.
const NO_COMPLETION: &str =
    "the model's server gave no answer that can be passed on; the log of the gateway has the reason";

/// Converts a failure of a model. Whatever a model's server can choose, such as its status, the name of its error or
/// the time to wait, goes to the log only: the server may have been shown hidden text, and no label and no rule of the
/// policy covers an error.
fn of_model(error: &Error) -> Failure {
    let (status, message) = match error {
        // These are decided in the gateway, before anything is sent.
        Error::OverBudget(_) => (StatusCode::PAYMENT_REQUIRED, error.to_string()),
        Error::Unsupported(_) => (StatusCode::BAD_REQUEST, error.to_string()),
        _ => (StatusCode::BAD_GATEWAY, NO_COMPLETION.to_owned()),
    };
    Failure::new(status, message).because(report::of_error(error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_one_message() {
        let reply = |text: &str, withheld: &[&str]| Reply {
            text: text.to_owned(),
            label: Vec::new(),
            withheld: withheld.iter().map(|rule| (*rule).to_owned()).collect(),
            disarmed: Vec::new(),
        };
        let check = |turn: Done, text: &str, stop: Stop| {
            let completion = completion(&turn, &|tool| tool.name.to_string());
            assert_eq!((completion.text.as_str(), completion.stop), (text, stop));
        };
        check(Done::default(), "", Stop::End);
        let replies = vec![reply("one", &[]), reply("", &["no secrets"]), reply("two", &[])];
        check(
            Done { replies, ..Done::default() },
            "one\n\n[withheld by a rule: no secrets]\n\ntwo",
            Stop::End,
        );
        check(Done { ended: Some(Ended::Steps), ..Done::default() }, "", Stop::Length);
        let ended = Some(Ended::Clearance);
        check(
            Done { ended, ..Done::default() },
            "[the policy does not let the model's server see what it would take to go on]",
            Stop::End,
        );
    }
}
