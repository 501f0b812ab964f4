//! One message of a client to an MCP server, until it is answered.
//!
//! The conversation is held while a message is judged and labelled, not while a server works on it: calls of one
//! conversation run in parallel. Turns of its chat and messages of its servers are serialised.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::events::Events;
use super::headers::{Beside, is_of_a_page};
use super::listening::Watch;
use super::rest::Patience;
use super::upstream::{BROKEN, Body, SESSION};
pub(crate) use super::way::broken_off;
use super::way::{Way, refusal};
use super::{Put, Told};
use crate::approvals::{Answered, Asked, Asker};
use crate::limits::weight;
use crate::log::{self, millis};
use crate::mcp::{ASKABLE, LISTEN, Limits, Out, Said};
use crate::model_routes::clients::{AtWork, Known, Listening};
use crate::model_routes::config::Server;
use crate::model_routes::report::{Verdicts, sentence_of};
use crate::model_routes::sessions::Session;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::{Cause, Failure};
use crate::model_routes::{Bound, CONVERSATION, ModelRoutes, Waiting, conversation_of};
use crate::recorder;
use crate::reply::Reply;
use crate::store::{BESIDE, StoreError};
use crate::values::{NoRoom, SETTING, Share, WHAT};
use flowgate_guard::approve::Decision;

/// The conversation of a client that names none and has no chats: everything that the client was ever shown counts
/// there.
const UNNAMED: &str = "mcp";
/// The header and its value by which a client asks for the labels of answers.
const FEATURES: &str = "x-mcp-features";
const LABELS: &str = "ifc_labels";
/// The limit on cancelled requests that are remembered until they end.
pub(crate) const MOST_CANCELLED: usize = 10_000;
/// The limit on server messages that one request may cause.
const MOST_HEARD: usize = 1_000;
/// The time limit for a person at the client to answer.
const PATIENCE: Duration = Duration::from_secs(300);

/// A request whose body has not been read.
#[derive(Debug)]
pub(crate) struct Request {
    pub(super) client: Arc<Known>,
    pub(super) server: Arc<Server>,
    pub(super) conversation: String,
    /// The server's id of the MCP session.
    pub(super) session: Option<String>,
    pub(super) beside: Beside,
    /// Whether the client accepts an event stream.
    pub(super) streams: bool,
    /// Whether the client asks for the labels of answers.
    labels: bool,
    pub(super) place: Place,
}

/// The quota that a request takes of its client.
#[derive(Debug)]
pub(crate) enum Place {
    /// One of its parallel requests.
    Asks(#[expect(dead_code, reason = "given back when it is dropped")] AtWork),
    /// One of its parallel streams of server messages that answer no request.
    Listens(Arc<Listening>),
}

/// Requests that wait for an answer of the person at a client, by client, conversation and id.
pub(crate) type Waiters = std::collections::HashMap<(String, String, String), SyncSender<String>>;

impl ModelRoutes {
    /// Authenticates the client of a request to a server and checks its limits, before any of the body is read.
    pub(crate) fn receive_for(&self, server: &str, headers: &HeaderMap) -> Result<Request, Reply> {
        self.receive_with(server, headers, Bound::Parallel, |client| AtWork::begin(client).map(Place::Asks))
    }

    /// Authenticates the client of a listening stream and checks its limits.
    pub(crate) fn receive_listener(&self, server: &str, headers: &HeaderMap) -> Result<Request, Reply> {
        self.receive_with(server, headers, Bound::Listening, |client| {
            Listening::begin(client).map(Arc::new).map(Place::Listens)
        })
    }

    fn receive_with(
        &self,
        server: &str,
        headers: &HeaderMap,
        bound: Bound,
        place: impl FnOnce(&Arc<Known>) -> Option<Place>,
    ) -> Result<Request, Reply> {
        if is_of_a_page(headers) {
            let why = "pages of other hosts may not ask: send no header `origin`";
            return Err(refusal(StatusCode::FORBIDDEN, why));
        }
        let (client, _) =
            self.clients.find_by_key(headers).map_err(|why| refusal(StatusCode::UNAUTHORIZED, why))?;
        let server = client.spec.server(server).map(Arc::clone).ok_or_else(|| {
            let names: Vec<&str> = client.spec.servers.iter().map(|server| server.name.as_str()).collect();
            let why = format!("this client has no server of this name; it has: {}", names.join(", "));
            refusal(StatusCode::NOT_FOUND, &why)
        })?;
        let named = conversation_of(headers).ok().flatten();
        if let Err(seconds) = client.take_turn() {
            self.client_limit(&client, named.as_deref(), Bound::Requests);
            let why = format!("this client may not ask more often: wait {seconds} s");
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, &why).logged());
        }
        let Some(place) = place(&client) else {
            self.client_limit(&client, named.as_deref(), bound);
            let why = "this client has as many requests open as it may: wait for one of them";
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, why).logged());
        };
        let bad = |why: String| refusal(StatusCode::BAD_REQUEST, &why);
        let conversation = match conversation_of(headers).map_err(bad)? {
            Some(name) => name,
            // Its chats are found by their prefixes, and a message to a server has none.
            None if client.spec.upstream.is_some() => {
                let why = format!(
                    "a client that has chats as well says which conversation this is: send `{CONVERSATION}`"
                );
                return Err(bad(why));
            }
            None => UNNAMED.to_owned(),
        };
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let streams = text("accept").is_some_and(|kinds| kinds.contains("text/event-stream"));
        let labels = text(FEATURES).is_some_and(|list| list.split(',').any(|one| one.trim() == LABELS));
        let (session, beside) = (text(SESSION), Beside::read(headers).map_err(bad)?);
        Ok(Request { client, server, conversation, session, beside, streams, labels, place })
    }

    /// Ends the MCP session of a client at its server. The conversation keeps the labels of everything that was shown.
    pub(crate) fn end_connection(&self, request: &Request) -> Reply {
        let (client, place) = (&request.client.spec, format!("{}/", request.server.name));
        if let Some(why) = self.approvals.stops(client, &request.conversation, &place) {
            return refusal(StatusCode::FORBIDDEN, &why);
        }
        if let Some(session) = &request.session {
            request.server.upstream.end(session);
        }
        Reply::nothing(StatusCode::NO_CONTENT)
    }

    /// Answers a message. It blocks on the server and therefore runs on a worker thread. What is streamed goes to
    /// `parts`; the result is then `None`.
    pub(crate) fn exchange(
        &self,
        request: &Request,
        body: &[u8],
        waiting: &Waiting,
        parts: Sender<Part>,
    ) -> Option<Reply> {
        let Ok(text) = std::str::from_utf8(body) else {
            return Some(refusal(StatusCode::BAD_REQUEST, "the body is no UTF-8"));
        };
        // This parse serves the checks of HTTP only; the state machine decides whether the message is valid.
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let Err(why) = request.beside.check(&message) {
            return Some(refusal(StatusCode::BAD_REQUEST, &why));
        }
        if message.get("method").is_none() && is_own(message.get("id")) {
            // Without a waiter, the answer is late or reached another gateway. It is dropped and does not count as
            // consent.
            self.hand_to_waiter(request, &message, text);
            return Some(Reply::nothing(StatusCode::ACCEPTED));
        }
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        if matches!(request.place, Place::Listens(_)) && !request.streams {
            let why = "what happens at a server is a stream: send `accept: text/event-stream`";
            return Some(refusal(StatusCode::NOT_ACCEPTABLE, why));
        }
        let way = Way::new(parts, request.streams && is_request, &request.conversation);
        let mut exchange = Exchange::new(self, request, waiting, way);
        let begun = Instant::now();
        // Notifications may still end work that began earlier.
        let may_begin = if is_request { self.recorder.may_begin() } else { Ok(()) };
        let said = match may_begin {
            Ok(()) => exchange.put(Told::Client { text: text.to_owned(), labels: request.labels }),
            Err(error) => Err(error.into()),
        };
        let done = said.and_then(|said| exchange.carry_out(said));
        exchange.log(begun.elapsed(), is_request, done.as_ref().err());
        match done {
            Ok(()) => exchange.way.finish(is_request),
            Err(failure) => {
                let reply = exchange.way.fail(&failure, message.get("id").filter(|_| is_request));
                reply.map(Reply::logged)
            }
        }
    }

    /// Notes that the request with this server-side id was cancelled.
    fn cancel(&self, id: &Value) {
        let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        // Entries of requests that had already ended stay behind, so a full set is cleared.
        if cancelled.len() >= MOST_CANCELLED {
            cancelled.clear();
            self.log.limit(&log::Limit {
                what: "cancelled requests that are remembered",
                effect: "all were forgotten: those that still wait for a server end when it answers",
                setting: "none",
                most: u64::try_from(MOST_CANCELLED).unwrap_or(u64::MAX),
                client: "",
                conversation: None,
            });
        }
        cancelled.insert(id.to_string());
    }

    fn is_cancelled(&self, id: &Value) -> bool {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string())
    }

    /// Hands an answer to the request that waits for it.
    fn hand_to_waiter(&self, request: &Request, message: &Value, text: &str) {
        let Some(id) = message.get("id") else { return };
        let key = (request.client.spec.name.clone(), request.conversation.clone(), id.to_string());
        if let Some(waiter) = self.waiters().remove(&key) {
            // The channel has room for one answer.
            let _ = waiter.try_send(text.to_owned());
        }
    }
}

/// Returns whether an id belongs to a question of the gateway.
pub(super) fn is_own(id: Option<&Value>) -> bool {
    id.and_then(Value::as_str).is_some_and(|id| id.starts_with("flowgate-"))
}

/// Returns whether a server asks the client for this method, in a request or in its answer.
fn is_asked(message: &Value, method: &str) -> bool {
    let names = |one: &Value| one.get("method").and_then(Value::as_str) == Some(method);
    let in_answer = message.pointer("/result/inputRequests").and_then(Value::as_object);
    names(message) || in_answer.is_some_and(|all| all.values().any(names))
}

/// Returns whether a message to a client ends its request.
fn is_answer(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message.get("method").is_none())
}

/// Returns the name by which a freeze matches a message to a server.
fn frozen_as(message: &Value) -> String {
    match (message.get("method").and_then(Value::as_str), message.pointer("/params/name")) {
        (Some("tools/call"), Some(Value::String(name))) => name.clone(),
        (method, _) => method.unwrap_or_default().to_owned(),
    }
}

/// A request that is being answered.
pub(super) struct Exchange<'e> {
    pub(super) routes: &'e ModelRoutes,
    pub(super) request: &'e Request,
    pub(super) waiting: &'e Waiting,
    pub(super) way: Way,
    /// The number of messages received from the server.
    pub(super) heard: usize,
    /// The verdicts of the request.
    verdicts: Cell<Verdicts>,
    /// The tool called last, or the method, as freezes name it.
    called: String,
}

/// The actions that a server's message leads to, and a problem that ends the request.
pub(super) type Heard = (Vec<Out>, Option<&'static str>);

impl<'e> Exchange<'e> {
    pub(super) fn new(routes: &'e ModelRoutes, request: &'e Request, waiting: &'e Waiting, way: Way) -> Self {
        let called = String::new();
        Self { routes, request, waiting, way, heard: 0, verdicts: Cell::default(), called }
    }

    /// Writes the log line of a message.
    fn log(&self, took: Duration, is_request: bool, failure: Option<&Failure>) {
        let Request { client, server, conversation, .. } = self.request;
        let (client, log) = (&client.spec.name, &self.routes.log);
        let verdicts = self.verdicts.get();
        if is_request || failure.is_some() {
            let mut fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            fields.extend(verdicts.fields());
            fields.push(("heard", self.heard.into()));
            fields.push(("ms", millis(took)));
            let (event, sentence) = match failure {
                None => (log::Event::Exchange, ""),
                Some(failure) => {
                    fields.push(("status", failure.status.as_u16().into()));
                    fields.extend(failure.detail.as_ref().map(|detail| ("detail", detail.as_str().into())));
                    match failure.cause {
                        Cause::Store(why) => (log::Event::Failure, why),
                        _ => (log::Event::Refused, sentence_of(failure.status)),
                    }
                }
            };
            log.write(event, client, fields, sentence);
        }
        verdicts.report_limit(log, client, Some(conversation));
    }

    /// Carries out actions until none are left.
    pub(super) fn carry_out(&mut self, said: Vec<Out>) -> Result<(), Failure> {
        let mut left: VecDeque<Out> = said.into();
        while let Some(out) = left.pop_front() {
            let more = match out {
                Out::Client(text) => self.tell_client(text)?,
                Out::Server(text) => self.tell_server(&text)?,
                Out::Note(note) => {
                    self.routes.remark(&format!("{}: {note}", self.request.client.spec.name));
                    Vec::new()
                }
                // The questions were already asked while the conversation was held.
                Out::Ask(_) | Out::Pins(_) | Out::Unapproved { .. } => Vec::new(),
            };
            more.into_iter().rev().for_each(|out| left.push_front(out));
        }
        Ok(())
    }

    /// Sends a message to the client. If it is a question, waits for the answer.
    fn tell_client(&mut self, text: String) -> Result<Vec<Out>, Failure> {
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let own = message.get("id").filter(|_| message.get("method").is_some());
        let Some(own) = own.filter(|id| is_own(Some(id))) else {
            self.way.send(text, message.get("method").is_none());
            return Ok(Vec::new());
        };
        let answer = match self.way.streams {
            true => self.ask_client(own, text),
            false => None,
        };
        let silent = json!({"jsonrpc": "2.0", "id": own, "result": {"action": "cancel"}});
        // The question is closed even if the client has disconnected.
        self.put_for(
            &Waiting::default(),
            Told::Client { text: answer.unwrap_or_else(|| silent.to_string()), labels: false },
        )
    }

    fn ask_client(&mut self, own: &Value, text: String) -> Option<String> {
        let (client, conversation) = (&self.request.client.spec.name, &self.request.conversation);
        let key = (client.clone(), conversation.clone(), own.to_string());
        let (sender, answers) = sync_channel(1);
        self.routes.waiters().insert(key.clone(), sender);
        self.way.send(text, false);
        let answer = self.wait_for(&answers);
        self.routes.waiters().remove(&key);
        answer
    }

    fn wait_for(&self, answers: &Receiver<String>) -> Option<String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !self.waiting.has_gone() && !self.way.is_lost {
            match answers.recv_timeout(Duration::from_millis(200)) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Sends a message to the server, and labels everything that it answers.
    fn tell_server(&mut self, text: &str) -> Result<Vec<Out>, Failure> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let mut headers = self.request.beside.of(&message);
        if let Some(session) = &self.request.session {
            headers.push((SESSION.to_owned(), session.clone()));
        }
        let id = message.get("id").filter(|_| message.get("method").is_some());
        if let Some(cancelled) = message.pointer("/params/requestId").filter(|_| id.is_none()) {
            self.routes.cancel(cancelled);
        }
        self.called = frozen_as(&message);
        let (routes, waiting) = (self.routes, self.waiting);
        let subscribes = message.get("method").and_then(Value::as_str) == Some(LISTEN);
        if subscribes {
            // The first event may arrive late, so the stream begins now.
            self.way.begin();
        }
        let watch = Watch::new(routes, self.request, waiting, self.way.parts.clone());
        let stop = || match id {
            Some(id) if subscribes => watch.is_over() || routes.is_cancelled(id),
            Some(id) => waiting.has_gone() || routes.is_cancelled(id),
            // A notification has no answer, and is sent even if the client has disconnected.
            None => routes.is_closing(),
        };
        let sent = self.request.server.upstream.send(text, &headers, &stop);
        // A response to a notification is not read.
        let Some(id) = id else {
            return Ok(Vec::new());
        };
        let (told, problem) = match sent {
            Err(why) => (Vec::new(), Some(why)),
            Ok(answer) => {
                let session = answer.session.clone().or_else(|| self.request.session.clone());
                // Only the answer to `initialize` may name the MCP session: later, the name would be unlabelled text
                // of the server.
                let greets = message.get("method").and_then(Value::as_str) == Some("initialize");
                self.way.connection(answer.session.filter(|_| greets));
                match answer.body {
                    Body::Nothing | Body::NotAllowed => (Vec::new(), None),
                    Body::Message(answer) => match self.take(&answer) {
                        Ok(_share) => self.heard(id, answer)?,
                        Err(why) => (Vec::new(), Some(why)),
                    },
                    Body::Unknown => {
                        self.way.status = StatusCode::NOT_FOUND;
                        let why = "the server does not know the connection any more; begin a new one";
                        (Vec::new(), Some(why))
                    }
                    Body::Stream(events) => self.listen(id, *events, session.as_deref(), &stop)?,
                }
            }
        };
        // A notification or a question in place of the answer does not count as one.
        let is_answered = told.iter().any(|out| matches!(out, Out::Client(text) if is_answer(text)));
        let mut all = told;
        // A client that still waits for an answer receives an error.
        if !is_answered {
            let why = problem.unwrap_or("the server does not answer").to_owned();
            let Request { client, server, conversation, .. } = self.request;
            let fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            routes.log.write(log::Event::Upstream, &client.spec.name, fields, &why);
            all.extend(self.put(Told::Failed { id: id.clone(), why })?);
        }
        Ok(all)
    }

    /// Reads a stream up to the answer to a request, resuming it if the server ends it early, and passes on what
    /// precedes the answer.
    fn listen(
        &mut self,
        id: &Value,
        mut events: Events,
        session: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Heard, Failure> {
        let mut patience = Patience::begin();
        loop {
            let problem = match events.next(&|| stop() || patience.is_over()) {
                Ok(Some(event)) => Ok(event),
                Ok(None) => Err(None),
                Err(why) => Err(Some(why)),
            };
            let event = match problem {
                Ok(event) => event,
                Err(None | Some(BROKEN)) if self.rest_of(&mut events, session, &mut patience, stop) => {
                    continue;
                }
                Err(why) => return Ok((Vec::new(), why)),
            };
            let _share = match self.take(&event) {
                Ok(share) => share,
                Err(why) => return Ok((Vec::new(), Some(why))),
            };
            let message: Value = serde_json::from_str(&event).unwrap_or_default();
            let is_answer = message.get("method").is_none();
            if is_answer && message.get("id") != Some(id) {
                // The answer to another request is dropped.
                continue;
            }
            let (told, problem) = match matches!(self.request.place, Place::Listens(_)) && !is_answer {
                true => self.told(id, &message, &event)?,
                false => self.heard(id, event)?,
            };
            if is_answer || problem.is_some() {
                return Ok((told, problem));
            }
            self.carry_out(told)?;
            if stop() || self.way.is_lost {
                return Ok((Vec::new(), Some("nobody waits for the answer any more")));
            }
        }
    }

    /// Reserves memory for a server's message before it is parsed.
    pub(super) fn take(&self, text: &str) -> Result<Share, &'static str> {
        let Request { client, conversation, .. } = self.request;
        self.routes.values.take(weight(text.as_bytes())).map_err(|why| {
            self.routes.log.limit(&log::Limit {
                what: WHAT,
                effect: "an answer of a server was not read, and the client was told that there is none",
                setting: SETTING,
                most: u64::try_from(self.routes.values.most()).unwrap_or(u64::MAX),
                client: &client.spec.name,
                conversation: Some(conversation),
            });
            match why {
                NoRoom::TooLarge => "the answer of the server has too many values",
                NoRoom::Taken => "the gateway has no room for the answer of the server",
            }
        })
    }

    /// Labels a server's message, unless a freeze has stopped the server or the message exceeds a limit.
    pub(super) fn heard(&mut self, id: &Value, text: String) -> Result<Heard, Failure> {
        let Request { client, server, conversation, .. } = self.request;
        self.heard += 1;
        if text.len() > Limits::default().message {
            return Ok((Vec::new(), Some("the answer of the server is larger than 4 MiB")));
        }
        if self.heard > MOST_HEARD {
            return Ok((Vec::new(), Some("the server says more than one answer may take")));
        }
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        if message.get("method").is_none() && message.get("id") != Some(id) {
            return Ok((Vec::new(), Some("the server does not answer the request")));
        }
        let stops = |method: &str| {
            let place = format!("{}/{method}", server.name);
            self.routes.approvals.stops(&client.spec, conversation, &place).is_some()
        };
        if stops(&self.called)
            || ASKABLE.into_iter().any(|method| is_asked(&message, method) && stops(method))
        {
            return Ok((Vec::new(), Some("this server is stopped by its operator")));
        }
        Ok((self.put(Told::Server(text))?, None))
    }

    /// Hands an input to the state machine, asks pending questions, and stores the outcome before anything is sent.
    pub(super) fn put(&self, what: Told) -> Result<Vec<Out>, Failure> {
        // A server's message is processed even if the client has disconnected.
        match what {
            Told::Client { .. } => self.put_for(self.waiting, what),
            _ => self.put_for(&Waiting::default(), what),
        }
    }

    fn put_for(&self, waiting: &Waiting, what: Told) -> Result<Vec<Out>, Failure> {
        let Request { client, conversation, .. } = self.request;
        let routes = self.routes;
        let found = routes.sessions.named(client, conversation);
        let mut held = routes.sessions.lock(client, &found, waiting)?;
        let done = held.get().map(|session| {
            if !routes.sessions.has_room(session, (&client.spec.name, conversation)) {
                let why = "the conversation is as long as this gateway keeps them: begin a new one";
                return Err(Failure::new(StatusCode::BAD_REQUEST, why));
            }
            // A failed call is noted even where a freeze stops everything else.
            if !matches!(what, Told::Failed { .. }) {
                routes.approvals.check_frozen(&client.spec, conversation)?;
            }
            routes.sessions.catch_up(client, session)?;
            session.conversation.withdraw(&routes.approvals.withdrawn(&client.spec)?);
            self.pin(session, &what)?;
            let mut said = self.tell(session, what);
            self.note_tools(session, &mut said)?;
            while let Some(at) = said.iter().position(|out| matches!(out, Out::Ask(_))) {
                let Out::Ask(question) = said.remove(at) else { continue };
                let (answer, allowed) = self.decide(session, &question)?;
                // While the question was open, consents may have been withdrawn, and others may have written to
                // stores.
                session.conversation.withdraw(&routes.approvals.withdrawn(&client.spec)?);
                routes.sessions.recall_stores(client, session)?;
                let decided = Told::Decided { question, said: answer };
                let mut out = self.tell(session, decided);
                if let Some(asked) = allowed {
                    self.stop(session, &mut out);
                    self.note_approved(session, &asked, &out);
                }
                said.extend(out);
            }
            self.stop(session, &mut said);
            self.note_ran(session, &said);
            let events = std::mem::take(&mut session.events);
            Ok((said, events))
        });
        let done = done.unwrap_or_else(|| {
            Err(Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the conversation is not there"))
        });
        let events = done.as_ref().map(|(_, events)| events.as_slice()).unwrap_or_default();
        let kept = match routes.recorder.record(events) {
            Ok(()) => routes.sessions.keep(client, &found, &mut held),
            Err(error) => Err(routes.sessions.give_up(&found, &mut held, error)),
        };
        if kept.is_err() {
            routes.take_back(events);
        }
        drop(held);
        done.and_then(|(said, _)| kept.map(|()| said))
    }

    pub(super) fn tell(&self, session: &mut Session, what: Told) -> Vec<Out> {
        let spec = &self.request.client.spec;
        let accepted = match &what {
            Told::Client { text, .. } => self.note_answer(session, text),
            _ => None,
        };
        let put = Put { server: self.request.server.name.clone(), what };
        let (mut said, judged) = session.put(spec, put);
        let mut verdicts = self.verdicts.get();
        verdicts.count(&judged);
        self.verdicts.set(verdicts);
        let events = judged.into_iter().map(|call| recorder::judged(spec, &self.request.conversation, call));
        session.events.extend(events);
        for out in &said {
            if let Out::Client(text) = out {
                self.note_question(session, text);
            }
        }
        if let Some(asked) = accepted {
            self.stop(session, &mut said);
            self.note_approved(session, &asked, &said);
        }
        said
    }

    /// Asks people whether a call may run. Returns their answer and, if it is a yes, the question. If they cannot be
    /// asked, the call fails, and nothing of it is stored.
    fn decide(&self, session: &mut Session, question: &str) -> Result<(Said, Option<Asked>), StoreError> {
        let Request { client, server, conversation, .. } = self.request;
        let Some(found) = session.question(&server.name, question) else {
            return Ok((Said::Nothing, None));
        };
        let ask = session.conversation.ask(found);
        let asker =
            Asker { client: &client.spec, conversation, turns: BESIDE, waiting: self.waiting, key: None };
        let answered = self.routes.approvals.ask(asker, &ask, &session.used);
        session.is_unasked = answered.is_err();
        let Answered { decision, asked } = answered?;
        Ok(match (decision, asked) {
            (Decision::Allow, Some(asked)) => {
                // A second call with the same arguments in this message is a new question.
                session.used.push(asked.clone());
                (Said::Yes, Some(asked))
            }
            (Decision::Refuse, _) => (Said::No, None),
            (Decision::Later, Some(asked)) => (Said::NotYet(asked.id), None),
            (Decision::Unasked, _) => (Said::Unasked, None),
            _ => (Said::Nothing, None),
        })
    }

    /// Withholds messages to the server that a freeze has stopped.
    fn stop(&self, session: &mut Session, said: &mut Vec<Out>) {
        let Request { client, server, conversation, .. } = self.request;
        let mut kept = Vec::new();
        for out in std::mem::take(said) {
            let Out::Server(text) = &out else {
                kept.push(out);
                continue;
            };
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            let tool = format!("{}/{}", server.name, frozen_as(&message));
            match self.routes.approvals.stops(&client.spec, conversation, &tool) {
                None => kept.push(out),
                Some(why) => {
                    let id = message.get("id").filter(|_| message.get("method").is_some());
                    let unsent = id.map(|id| Told::Unsent { id: id.clone(), why });
                    kept.extend(unsent.map(|unsent| self.tell(session, unsent)).unwrap_or_default());
                }
            }
        }
        *said = kept;
    }
}
