//! MCP: a machine between a client and a server, which everything that they say to each other passes.
//!
//! It does no I/O. It is handed one message at a time, and says what is to be sent, to whom. What is judged is what is sent: a call
//! goes out as it is printed from what was judged, and a message that two readers could read differently goes nowhere.
//!
//! The machine does not see the model. So whatever this client was shown has influenced each call, and what is not known to be
//! harmless is not passed: methods, notifications, fields of results.
//!
//! The [session](Session) is the caller's: one conversation may have several servers, each with a machine of its own, and a chat beside
//! them.

mod answer;
mod asking;
mod client;
mod greeting;
mod ifc;
mod listing;
mod message;
mod names;
mod notices;
mod pins;
mod refusal;
mod rounds;
mod server;
mod session;
mod subscriptions;
#[cfg(test)]
mod tests;
mod unanswered;
mod unasked;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use flowgate::monitor::{Attribution, Authorized, Question, Verdict};
use flowgate::trace::{Body, Call, Entry, Tool};
use flowgate_guard::conversation::Judged;
use serde_json::{Map, Value};

pub use asking::Said;
use listing::Listing;
use message::{Id, error};
pub use pins::Pins;
pub(crate) use refusal::WAITING;
use rounds::{Round, Sent};
pub(crate) use server::ASKABLE;
pub use session::Session;
use subscriptions::Subscription;
pub(crate) use subscriptions::{LISTEN, SUBSCRIPTION};

/// How much a client and a server may make of each other.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one message.
    pub message: usize,
    /// Requests of one side that are not answered yet.
    pub outstanding: usize,
    /// Bytes of all messages of a session. Nothing is forgotten, so a longer session ends instead.
    pub session: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message: 4 << 20, outstanding: 256, session: 256 << 20 }
    }
}

/// What a machine is told by the operator.
#[derive(Debug, Clone)]
pub struct Settings {
    /// What policies call the server.
    pub server: String,
    /// A person sits in front of the client, and answers what it asks.
    pub is_interactive: bool,
    /// The tools that were approved of; without them, those of the first list are.
    pub pins: Option<Pins>,
    /// What the first list has is approved of.
    pub accept_new: bool,
    /// Several clients may speak at the same time: each request gets an id of ours, under which the server knows it, with this word in it
    /// that no other conversation has.
    pub names: Option<String>,
    /// People decide elsewhere what the policy asks: the caller is told of it.
    pub asks_elsewhere: bool,
    /// What the session may take.
    pub limits: Limits,
}

impl Settings {
    /// Settings for a server that policies call so.
    pub fn new(server: &str) -> Self {
        let (server, limits) = (server.to_owned(), Limits::default());
        Self {
            server,
            is_interactive: false,
            pins: None,
            accept_new: false,
            names: None,
            asks_elsewhere: false,
            limits,
        }
    }
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Out {
    /// Send this to the client.
    Client(String),
    /// Send this to the server.
    Server(String),
    /// Ask somebody the [question](Proxy::question) of this name, and say what was [decided](Proxy::decided).
    Ask(String),
    /// Tell the operator. It holds no content, but names that the server chose.
    Note(String),
    /// A tool is hidden until somebody approves of it, as the server describes it.
    Unapproved {
        /// Its name.
        name: String,
        /// Stands for all that is said of it.
        digest: String,
        /// What is said of it.
        said: Value,
    },
    /// Keep these pins.
    Pins(Pins),
}

/// The machine.
#[derive(Debug)]
pub struct Proxy {
    settings: Settings,
    /// What the client has asked for and the server has not answered.
    asked: BTreeMap<Id, Asked>,
    /// Ids of requests that nobody waits for any more, but that may still be answered.
    abandoned: BTreeSet<Id>,
    /// What the client was asked and has not answered.
    asking: BTreeMap<Id, Asking>,
    /// Calls that a person was asked about in their answers, the oldest first: they come again with what the person said.
    retries: VecDeque<Retry>,
    /// Calls that the server wants more for, the oldest first: they come again with what the client says.
    rounds: VecDeque<Round>,
    listing: Listing,
    /// Resources that the client wants to hear of.
    subscribed: BTreeSet<String>,
    /// The client can ask its user.
    can_ask: bool,
    /// Whoever asks now is told what answers carry.
    tells_labels: bool,
    /// What clients call their requests, by the ids that the server knows.
    names: BTreeMap<Id, Id>,
    /// What was judged since it was last taken out.
    judged: Vec<Judged>,
    /// Calls and questions so far, for ids of their own.
    count: u64,
    /// Bytes so far.
    spent: usize,
}

/// What the client has asked for.
#[derive(Debug)]
enum Asked {
    /// Who the server is.
    Greeting { call: Option<Running> },
    /// Something whose answer says nothing.
    Nothing,
    /// A page of tools, of this list.
    Tools { list: u64 },
    /// A call of a tool, or something like one.
    Call(Running),
    /// What happens at the server, for as long as the client listens.
    Listening(Subscription),
    /// A call that a person is asked about; the server has not seen it.
    Waiting,
}

/// A call that runs.
#[derive(Debug)]
struct Running {
    tool: Tool,
    /// Its id in the trace.
    call_id: String,
    kind: Kind,
    /// By what its progress is told.
    progress: Option<Value>,
    /// Whether the client was told of progress, and so has seen something of the answer.
    has_progressed: bool,
    /// Whether the client is told what the answer carries.
    tells_label: bool,
    /// How it was sent, if it can come again.
    sent: Option<Box<Sent>>,
}

impl Running {
    /// One that tells nothing before its answer, and does not come again.
    fn plain(tool: Tool, call_id: String) -> Self {
        Self {
            tool,
            call_id,
            kind: Kind::Content,
            progress: None,
            has_progressed: false,
            tells_label: false,
            sent: None,
        }
    }
}

/// What a call is, and what its answer is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A call of a tool.
    Tool,
    /// Something that the server holds, such as a resource: the answer is shown as a tool's.
    Content,
    /// What there is, under this key: the answer is shown only where it takes no tool away.
    List(&'static str),
    /// Something that the server is to do; the answer says nothing.
    Nothing,
}

/// What the client was asked.
#[derive(Debug)]
enum Asking {
    /// By the server, under the rules for calls.
    Server { running: Running },
    /// By us, whether a call may run; or somebody else is asked, under the digest of the call.
    Person { question: Box<Question>, id: Id, pending: Box<Pending> },
}

/// A request of the client that is judged, as it is to be sent.
#[derive(Debug)]
struct Pending {
    method: String,
    tool: Tool,
    kind: Kind,
    /// The parameters, but for those that were judged.
    params: Map<String, Value>,
    progress: Option<Value>,
    /// The client asks its person if an answer says so, and calls again.
    can_retry: bool,
    /// What a server may ask this client for in its answer, if the client knows such answers.
    can: Option<Vec<&'static str>>,
    /// The round that it comes again of.
    again: Option<String>,
}

/// A call that a person was asked about in its answer.
#[derive(Debug)]
struct Retry {
    /// By what the client tells us which one it was.
    name: String,
    question: Box<Question>,
    pending: Box<Pending>,
}

/// A call that may run, under the id that its answer is to have in the trace.
struct Permitted {
    call_id: String,
    arguments: Map<String, Value>,
}

impl From<&Authorized> for Permitted {
    fn from(call: &Authorized) -> Self {
        let arguments = call.call().arguments.clone().unwrap_or_default();
        Self { call_id: call.call().id.clone(), arguments }
    }
}

/// What becomes of a call.
enum Ruling {
    Run(Authorized),
    Ask(Box<Question>),
    No(Value),
}

/// What was asked for and cannot be had.
const REFUSED: i64 = -32001;
const INVALID: i64 = -32600;
const UNKNOWN: i64 = -32601;

/// How many abandoned requests are remembered.
const MAX_ABANDONED: usize = 100_000;

impl Proxy {
    /// A machine for one connection.
    pub fn new(settings: Settings) -> Self {
        let listing = Listing::new(settings.pins.clone());
        Self {
            settings,
            asked: BTreeMap::new(),
            abandoned: BTreeSet::new(),
            asking: BTreeMap::new(),
            retries: VecDeque::new(),
            rounds: VecDeque::new(),
            listing,
            subscribed: BTreeSet::new(),
            can_ask: false,
            tells_labels: false,
            names: BTreeMap::new(),
            judged: Vec::new(),
            count: 0,
            spent: 0,
        }
    }

    /// The server has ended: every request that waits has no answer.
    pub fn ended(&mut self, session: &mut dyn Session) -> Vec<Out> {
        self.asking.clear();
        let waiting = std::mem::take(&mut self.asked);
        let out = waiting.iter().flat_map(|(id, asked)| {
            let class = "the server has ended";
            self.unanswered(session, id, asked, class)
        });
        let out = out.collect();
        self.under_their_names(out)
    }

    /// The server was sent this request, which it knows by this id, and has not answered it in a way that can be passed on. The class of
    /// the failure is for the operator; the client gets the same message for all of them.
    pub fn failed(&mut self, session: &mut dyn Session, id: &Value, class: &str) -> Vec<Out> {
        let Some((id, asked)) = Id::of(id).and_then(|id| self.asked.remove_entry(&id)) else {
            return Vec::new();
        };
        let out = self.unanswered(session, &id, &asked, class);
        let out = self.under_their_names(out);
        self.abandon(id);
        out
    }

    /// The server was not sent this request: the client is told why, and nothing has happened.
    pub fn unsent(&mut self, id: &Value, why: &str) -> Vec<Out> {
        let Some(id) = Id::of(id).filter(|id| self.asked.contains_key(id)) else { return Vec::new() };
        let out = self.under_their_names(vec![Out::Client(error(Some(&id), REFUSED, why, None))]);
        self.abandon(id);
        out
    }

    /// Whether who asks from now on is told what answers carry, as `_meta.ifc`.
    pub fn tell_labels(&mut self, tells: bool) {
        self.tells_labels = tells;
    }

    /// Takes out what was judged since the last time.
    pub fn judged(&mut self) -> Vec<Judged> {
        std::mem::take(&mut self.judged)
    }

    fn tool(&self, name: &str) -> Tool {
        Tool::of(&self.settings.server, name)
    }

    fn next(&mut self) -> u64 {
        self.count = self.count.saturating_add(1);
        self.count
    }

    /// Counts what was said; whether there is still room.
    fn has_room(&mut self, bytes: usize) -> bool {
        self.spent = self.spent.saturating_add(bytes);
        self.spent <= self.settings.limits.session && self.abandoned.len() < MAX_ABANDONED
    }

    /// Judges a call as if everything that this client was shown had influenced it.
    fn judge(
        &mut self,
        session: &mut dyn Session,
        tool: &Tool,
        arguments: Map<String, Value>,
        rest: Map<String, Value>,
    ) -> Ruling {
        let count = self.next();
        let id = format!("{}#{count}", self.settings.server);
        let call = Call { id, tool: tool.clone(), arguments: Ok(arguments.clone()) };
        let digest = session.digest_of(&call);
        let entry = Entry { extra: rest, ..Entry::from(Body::Call(call)) };
        let monitor = session.monitor();
        let event = monitor.trace().len();
        let verdict = monitor.judge_entry(entry, Attribution::everything());
        let judgement = verdict.judgement();
        self.judged.push(Judged {
            tool: tool.clone(),
            arguments,
            outcome: judgement.outcome(),
            reasons: judgement.reasons.clone(),
            label: judgement.label.clone(),
            digest,
            event,
        });
        match verdict {
            Verdict::Permit(permit) => match monitor.redeem(permit) {
                Ok(authorized) => Ruling::Run(authorized),
                Err(denial) => Ruling::No(self.refused(monitor, "deny", denial.judgement())),
            },
            Verdict::Confirm(question) => Ruling::Ask(Box::new(question)),
            Verdict::Deny(denial) => Ruling::No(self.refused(monitor, "deny", denial.judgement())),
        }
    }

    /// Nobody waits for this request any more; its id must not come again.
    fn abandon(&mut self, id: Id) {
        self.asked.remove(&id);
        self.names.remove(&id);
        self.abandoned.insert(id);
    }
}
