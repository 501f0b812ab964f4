//! Guards the connection between one MCP client and one MCP server by a policy, without I/O.
//!
//! A [`Proxy`] takes one message at a time and returns the messages to send, with their receivers. Exactly the judged
//! values are sent: a call is serialized from the judged arguments, and a message that two parsers could read
//! differently is rejected.
//!
//! The proxy does not see the model, so every call is judged as influenced by everything that this client was shown.
//! Methods, notifications and result fields that are not known to be harmless are not forwarded.
//!
//! The caller owns the [session](MonitoredSession). A conversation may have several servers, each with a proxy of its
//! own, and may also have a chat with a model. The gateway and `flowgate mcp` drive proxies.
//!
//! * `client`, `server` and `server_initiated`: handle the messages of each side.
//! * `message` and `request_ids`: parse and serialize messages, and generate the IDs of requests.
//! * `revision`: defines which methods and fields each revision of MCP has.
//! * `initialize`, `listing`, `notifications`, `subscriptions`, `input_required`: handle one part of the protocol each.
//! * `answer` and `ifc`: label answers, and exchange labels with the server and the client.
//! * `failed_requests` and `refusal`: answer requests that have no answer of the server, and calls that do not run.
//! * `elicitation` and `asked_call`: ask a person about a call.
//! * `pins`: defines the records of approved tools.
//! * `session`: defines the state in which the proxy labels messages and judges calls.
//! * `ruling` and `carry_over`: record decisions, and process earlier inputs again under another policy.
//! * `watching`: implements watch mode, which enforces nothing.

mod answer;
mod asked_call;
mod carry_over;
mod client;
mod elicitation;
mod failed_requests;
mod ifc;
mod initialize;
mod input_required;
mod listing;
mod message;
mod notifications;
mod pins;
mod refusal;
mod request_ids;
mod revision;
mod ruling;
mod server;
mod server_initiated;
mod session;
mod subscriptions;
#[cfg(test)]
mod tests;
mod watching;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use asked_call::AskedCall;
use flowgate::monitor::{Attribution, AuthorizedCall, Verdict};
use flowgate::trace::{Call, Tool, TraceEntry};
use flowgate_audit::watch::WatchedVerdict;
use flowgate_guard::approve::{QuestionBudget, QuestionCount};
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Map, Value};

pub use elicitation::{ProxyDecision, elicited_decision};
use input_required::{InputRound, SentCall};
use listing::ToolListing;
use message::{RequestId, error};
pub use pins::{Pins, PinsError};
pub use refusal::WAITING_STATUS;
pub use revision::{
    LISTEN_METHOD, Revision, client_methods, freezable_methods, is_revision_date, server_request_methods,
};
pub use ruling::ProxyRuling;
use ruling::RulingTape;
pub use session::MonitoredSession;
pub use subscriptions::SUBSCRIPTION_ID_KEY;
use subscriptions::Subscription;

/// Limits on the resources that a client and a server may use.
#[derive(Debug, Clone, Copy)]
pub struct ProxyLimits {
    /// The maximum size of one message, in bytes.
    pub message: usize,
    /// The maximum number of unanswered requests of each side.
    pub outstanding: usize,
    /// The maximum total size of a session's messages, in bytes. The trace keeps every event, so a longer session ends
    /// instead.
    pub session: usize,
}

impl Default for ProxyLimits {
    /// Returns limits of 4 MiB for a message, 256 unanswered requests, and 256 MiB for a session.
    fn default() -> Self {
        Self { message: 4 << 20, outstanding: 256, session: 256 << 20 }
    }
}

/// The operator's settings for one proxy.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    /// The name of the server in policies.
    pub server: String,
    /// Whether a person uses the client interactively and answers its elicitations.
    pub is_interactive: bool,
    /// The approved tools. Without pins, the tools of the first list count as approved.
    pub pins: Option<Pins>,
    /// Whether the tools of the first list are approved and pinned.
    pub accept_new: bool,
    /// A word in generated request IDs that is unique to this conversation. It is set if several clients may share the
    /// proxy: the server then receives each request under a generated ID with this word, not under the client's own ID.
    pub id_word: Option<String>,
    /// Whether people decide the policy's questions elsewhere; the proxy then returns [`ProxyAction::Ask`] to the
    /// caller.
    pub asks_elsewhere: bool,
    /// Whether the proxy only watches: it stops, asks about and hides nothing, and reports what it would have stopped
    /// ([`Proxy::take_watched`]). Only the operator's settings can say so, never a message.
    pub is_watching: bool,
    /// The limits on the questions that the person at the client is asked.
    pub questions: QuestionBudget,
    /// The limits of the session.
    pub limits: ProxyLimits,
}

impl ProxySettings {
    /// Returns default settings for a server with this name in policies.
    pub fn new(server: &str) -> Self {
        let (server, limits) = (server.to_owned(), ProxyLimits::default());
        Self {
            server,
            is_interactive: false,
            pins: None,
            accept_new: false,
            id_word: None,
            asks_elsewhere: false,
            is_watching: false,
            questions: QuestionBudget { questions: 100, refusals_in_row: 5 },
            limits,
        }
    }
}

/// An action for the caller. Actions are executed in order.
///
/// The list is exhaustive on purpose: a caller has to execute each action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProxyAction {
    /// Send this message to the client.
    Client(String),
    /// Send this message to the server.
    Server(String),
    /// Ask a person the [question](Proxy::question) of this name, and report the answer with
    /// [`handle_decision`](Proxy::handle_decision).
    Ask(String),
    /// Report this to the operator. It contains no content except names that the server chose.
    Note(String),
    /// Ask a person to approve this tool as the server describes it; the tool is hidden until then. Only returned with
    /// [`asks_elsewhere`](ProxySettings::asks_elsewhere).
    Unapproved {
        /// The name of the tool.
        name: String,
        /// The digest of the server's description of the tool.
        digest: String,
        /// The server's description of the tool.
        description: Value,
    },
    /// Persist these pins.
    Pins(Pins),
}

/// The state of one connection between a client and a server.
#[derive(Debug)]
pub struct Proxy {
    settings: ProxySettings,
    /// The client's requests that have no answer yet, by the IDs that the server receives.
    client_requests: BTreeMap<RequestId, PendingClientRequest>,
    /// IDs of requests that no client waits for any more, but that the server may still answer.
    abandoned: BTreeSet<RequestId>,
    /// Requests to the client, and questions to its user or to a person elsewhere, that have no answer yet.
    outgoing_requests: BTreeMap<RequestId, OutgoingRequest>,
    /// Calls that the proxy answered with a question to the client's user, oldest first: the client sends them again
    /// with the user's decision.
    retries: VecDeque<RetryableCall>,
    /// The questions that the person at the client was asked.
    questions: QuestionCount,
    /// Calls that the server answered with a request for input, oldest first: the client sends them again with its
    /// responses.
    rounds: VecDeque<InputRound>,
    /// The tools that the server has listed, and which of them the client is offered.
    listing: ToolListing,
    /// The resources that the client has subscribed to.
    subscribed: BTreeSet<String>,
    /// Whether the client declared that it can elicit input from its user.
    can_elicit: bool,
    /// Whether the current client receives the labels of answers.
    tells_labels: bool,
    /// The client's request IDs, by the IDs that the server receives.
    client_ids: BTreeMap<RequestId, RequestId>,
    /// The judgements since the last call of [`take_judgements`](Proxy::take_judgements).
    judged: Vec<CallVerdict>,
    /// The verdicts that were not enforced since the last call of [`take_watched`](Proxy::take_watched).
    watched: Vec<WatchedVerdict>,
    /// The number of IDs generated so far. Each generated ID contains its number, which makes the ID unique.
    number_count: u64,
    /// The bytes of all messages so far.
    received_bytes: usize,
    /// Where the rulings come from: from the present policy, or from an earlier one.
    tape: RulingTape,
    /// While inputs of an earlier conversation are processed: the `id_word` of the present conversation, which may be
    /// `None`; otherwise `None`.
    own_id_word: Option<Option<String>>,
}

/// A request of the client that has no answer yet.
#[derive(Debug)]
enum PendingClientRequest {
    /// `initialize` or `server/discover`; the call as which it was judged, if that was permitted.
    Initialize { call: Option<RunningCall> },
    /// A request whose answer contains no content.
    Nothing,
    /// A page of tools of the list with this number.
    Tools { list: u64 },
    /// A call of a tool, or a request that is judged like one.
    Call(RunningCall),
    /// A stream of notifications, for as long as the client listens.
    Listening(Subscription),
    /// A call that waits for a person's decision; the server has not received it.
    Waiting,
}

/// A call that was sent to the server.
#[derive(Debug)]
struct RunningCall {
    tool: Tool,
    /// The ID of the call in the trace.
    call_id: String,
    kind: ProxyCallKind,
    /// The token of its progress notifications.
    progress: Option<Value>,
    /// Whether the client's label was raised while the call ran, since a message of the server may have revealed
    /// something about the answer.
    has_raised: bool,
    /// Whether the client receives the label of the answer.
    tells_label: bool,
    /// The call as it was sent, if the server may answer it by asking for input.
    sent: Option<Box<SentCall>>,
}

impl RunningCall {
    /// Creates the record of a running call for `initialize` or a request of the server, which are judged like calls.
    /// The answer has content, and its receiver does not learn the label of the answer. Such a call has no progress
    /// notifications, and the client does not repeat it.
    fn without_progress(tool: Tool, call_id: String) -> Self {
        Self {
            tool,
            call_id,
            kind: ProxyCallKind::Content,
            progress: None,
            has_raised: false,
            tells_label: false,
            sent: None,
        }
    }
}

/// The kind of a call, which determines the form of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ProxyCallKind {
    /// A call of a tool.
    Tool,
    /// A request for content of the server, such as a resource; its answer is shown like a tool's.
    Content,
    /// A list under this key; its answer is shown only if its label makes no tool uncallable.
    List(&'static str),
    /// An action of the server, such as a subscription; its answer has no content, and no text of it is shown.
    WithoutContent,
}

impl ProxyCallKind {
    /// Returns whether the answer is a list.
    fn is_list(self) -> bool {
        matches!(self, Self::List(_))
    }
}

/// A request to the client, or a question to a person.
#[derive(Debug)]
enum OutgoingRequest {
    /// A request of the server, which is judged as a call.
    Server { running: RunningCall },
    /// A question whether a call may run, to the client's user or to a person elsewhere.
    /// `id` is the ID of the call, and `pending` the call itself. `is_at_client` says that the client's user is asked.
    Person { question: AskedCall, id: RequestId, pending: Box<JudgedRequest>, is_at_client: bool },
}

/// A judged request of the client, in the form in which it is sent.
#[derive(Debug)]
struct JudgedRequest {
    method: String,
    tool: Tool,
    kind: ProxyCallKind,
    /// The parameters without the judged arguments.
    params: Map<String, Value>,
    /// The token of its progress notifications, if the client wants them.
    progress: Option<Value>,
    /// Whether the client can elicit input from its user when an answer asks for it, and then calls again.
    can_retry: bool,
    /// The input that a server may request from this client in its answer, if the client supports such answers.
    allowed_inputs: Option<Vec<&'static str>>,
    /// The name of the round that the request continues.
    round: Option<String>,
    /// In watch mode, the reason why the request would have been refused before it was judged.
    objection: Option<String>,
}

/// A call that the proxy answered with a question to the client's user. The client sends it again with the decision.
#[derive(Debug)]
struct RetryableCall {
    /// The name by which the client refers to the question.
    name: String,
    question: AskedCall,
    pending: Box<JudgedRequest>,
}

/// A call that may run, with the ID of the call in the trace: a permit was redeemed for it, or the proxy only watches
/// (see `watching`).
struct PermittedRequest {
    call_id: String,
    arguments: Map<String, Value>,
}

impl From<&AuthorizedCall> for PermittedRequest {
    fn from(call: &AuthorizedCall) -> Self {
        let arguments = call.call().arguments.clone().unwrap_or_default();
        Self { call_id: call.call().id.clone(), arguments }
    }
}

/// The outcome of judging a call.
enum CallRuling {
    /// The call may run.
    Run(PermittedRequest),
    /// A person has to decide.
    Ask(AskedCall),
    /// The call must not run; the refusal for the client.
    No(Value),
}

/// The JSON-RPC error code of a refused request.
const REFUSED: i64 = -32001;
/// The JSON-RPC error code of a message that is not a valid request.
const INVALID_REQUEST: i64 = -32600;
/// The JSON-RPC error code of a request with an unknown method.
const METHOD_NOT_FOUND: i64 = -32601;

/// The maximum number of abandoned requests that are remembered.
const MAX_ABANDONED: usize = 100_000;

impl Proxy {
    /// Creates the proxy for one connection.
    pub fn new(settings: ProxySettings) -> Self {
        let listing = ToolListing::new(settings.pins.clone());
        Self {
            settings,
            client_requests: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            outgoing_requests: BTreeMap::new(),
            retries: VecDeque::new(),
            questions: QuestionCount::default(),
            rounds: VecDeque::new(),
            listing,
            subscribed: BTreeSet::new(),
            can_elicit: false,
            tells_labels: false,
            client_ids: BTreeMap::new(),
            judged: Vec::new(),
            watched: Vec::new(),
            number_count: 0,
            received_bytes: 0,
            tape: RulingTape::default(),
            own_id_word: None,
        }
    }

    /// Handles the end of the server: answers each open request of the client with an error, and drops the requests of
    /// the server and the questions to people.
    pub fn handle_server_exit(&mut self, session: &mut dyn MonitoredSession) -> Vec<ProxyAction> {
        self.outgoing_requests.clear();
        let waiting = std::mem::take(&mut self.client_requests);
        let out = waiting.iter().flat_map(|(id, pending)| {
            let class = "the server ended before it answered";
            self.end_without_answer(session, id, pending, class)
        });
        let out = out.collect();
        self.restore_client_ids(out)
    }

    /// Ends a request that was sent to the server and has no answer that can be forwarded. `id` is the ID under which
    /// the server received it; an ID of no open request has no effect. `class` names the kind of failure for the
    /// operator; the client gets the same message for all kinds.
    pub fn handle_failed_request(
        &mut self,
        session: &mut dyn MonitoredSession,
        id: &Value,
        class: &str,
    ) -> Vec<ProxyAction> {
        let Some((id, pending)) =
            RequestId::from_value(id).and_then(|id| self.client_requests.remove_entry(&id))
        else {
            return Vec::new();
        };
        let out = self.end_without_answer(session, &id, &pending, class);
        let out = self.restore_client_ids(out);
        self.abandon(id);
        out
    }

    /// Ends the request with this ID, which could not be sent to the server: the client receives the reason `why`, and
    /// nothing becomes an event. The ID is not used again. Does nothing if no open request has this ID.
    pub fn handle_unsent_request(&mut self, id: &Value, why: &str) -> Vec<ProxyAction> {
        let Some(id) = RequestId::from_value(id).filter(|id| self.client_requests.contains_key(id)) else {
            return Vec::new();
        };
        let out = self.restore_client_ids(vec![ProxyAction::Client(error(Some(&id), REFUSED, why, None))]);
        self.abandon(id);
        out
    }

    /// Sets whether the current client receives the labels of answers, as `_meta.ifc` of their results.
    pub fn set_tells_labels(&mut self, tells: bool) {
        self.tells_labels = tells;
    }

    /// Returns and removes the verdicts on calls that were judged since the last call of this method.
    pub fn take_judgements(&mut self) -> Vec<CallVerdict> {
        std::mem::take(&mut self.judged)
    }

    /// Returns the tool of this name of the proxy's server.
    fn tool(&self, name: &str) -> Tool {
        Tool::of(&self.settings.server, name)
    }

    /// Returns the next number for a generated ID; no number is returned twice.
    fn next_number(&mut self) -> u64 {
        self.number_count = self.number_count.saturating_add(1);
        self.number_count
    }

    /// Adds the size of a message to the bytes of the session, and returns whether the session is still within two
    /// limits: on its bytes, and on the number of abandoned requests whose IDs are remembered. Every message counts,
    /// also one that is then rejected.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.received_bytes = self.received_bytes.saturating_add(bytes);
        self.received_bytes <= self.settings.limits.session && self.abandoned.len() < MAX_ABANDONED
    }

    /// Judges a call as influenced by everything that this client was shown, and records the verdict. `rest` are the
    /// parameters of the request besides the arguments, which rules can examine. A permit is redeemed at once. In watch
    /// mode, every call may run; `objection` is then the reason, if any, for which enforcement would have refused the
    /// call without judging it.
    fn judge(
        &mut self,
        session: &mut dyn MonitoredSession,
        tool: &Tool,
        arguments: Map<String, Value>,
        rest: Map<String, Value>,
        objection: Option<&str>,
    ) -> CallRuling {
        let count = self.next_number();
        let id = format!("{}#{count}", self.settings.server);
        let call = Call { id, tool: tool.clone(), arguments: Ok(arguments.clone()) };
        if self.is_watching() {
            return CallRuling::Run(self.judge_without_effect(session, call, rest, objection));
        }
        let digest = session.digest_of(&call);
        let entry = TraceEntry { extra: rest, ..TraceEntry::from(call) };
        let monitor = session.monitor();
        // The input is of an earlier conversation: what the earlier policy decided about the call stays.
        if self.tape.is_following() {
            return self.follow_ruling(monitor, entry);
        }
        let event = monitor.trace().len();
        let verdict = monitor.judge_entry(entry, Attribution::everything());
        let judgement = verdict.judgement();
        self.judged.push(CallVerdict {
            tool: tool.clone(),
            arguments,
            outcome: judgement.outcome(),
            reasons: judgement.reasons.clone(),
            label: judgement.label.clone(),
            decided: judgement.decided,
            digest,
            event,
        });
        let (ruling, recorded) = match verdict {
            Verdict::Permit(permit) => match monitor.redeem(permit) {
                Ok(authorized) => (CallRuling::Run(PermittedRequest::from(&authorized)), ProxyRuling::Yes),
                Err(denial) => {
                    let refusal = self.judgement_refusal(monitor, "deny", denial.judgement());
                    (CallRuling::No(refusal), ProxyRuling::No)
                }
            },
            Verdict::Confirm(question) => {
                (CallRuling::Ask(AskedCall::Open(Box::new(question))), ProxyRuling::Ask)
            }
            Verdict::Deny(denial) => {
                let refusal = self.judgement_refusal(monitor, "deny", denial.judgement());
                (CallRuling::No(refusal), ProxyRuling::No)
            }
        };
        self.tape.choose(recorded);
        ruling
    }

    /// Removes a request that no client waits for any more. Its ID is remembered and must not be used again, since the
    /// server may still answer it.
    fn abandon(&mut self, id: RequestId) {
        self.client_requests.remove(&id);
        self.client_ids.remove(&id);
        self.abandoned.insert(id);
    }
}
