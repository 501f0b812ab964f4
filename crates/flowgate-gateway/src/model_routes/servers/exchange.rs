//! One request of a client to a server, until it is answered.
//!
//! The conversation is held while a message is judged and labelled, not while a server thinks: calls of one conversation run at the
//! same time. A turn of its chat and a message of a server come one after the other.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::headers::{Beside, is_of_a_page};
use super::upstream::{Body, SESSION};
use super::{Put, Told};
use crate::approvals::{Answered, Asked, Asker};
use crate::audit::Event;
use crate::mcp::{Out, Pins, Said};
use crate::model_routes::clients::{AtWork, Known};
use crate::model_routes::config::Server;
use crate::model_routes::sessions::Session;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::Failure;
use crate::model_routes::{CONVERSATION, ModelRoutes, Waiting, conversation_of};
use crate::recorder;
use crate::reply::Reply;
use crate::store::{Offer, StoreError, wait};
use flowgate_guard::approve::Decision;

/// The conversation of a client that names none: whatever it was shown, in any of its chats, counts.
const UNNAMED: &str = "mcp";
/// The header and the word by which a client asks what answers carry.
const FEATURES: &str = "x-mcp-features";
const LABELS: &str = "ifc_labels";
/// How many tools of one list people are asked about.
const MOST_PROPOSED: usize = 20;
/// How long a person in front of a client may take to answer.
const PATIENCE: Duration = Duration::from_secs(300);
/// What JSON-RPC calls a request that is refused for what stands beside it.
const INVALID: i64 = -32600;

/// A request, not yet read.
#[derive(Debug)]
pub(crate) struct Request {
    client: Arc<Known>,
    server: Arc<Server>,
    conversation: String,
    /// What the server calls the connection.
    session: Option<String>,
    beside: Beside,
    /// Whether the client takes a stream of events.
    streams: bool,
    /// Whether it wants to know what answers carry.
    labels: bool,
    _at_work: AtWork,
}

/// Requests that wait for what somebody in front of a client says, by client, conversation and id.
pub(crate) type Waiters = std::collections::HashMap<(String, String, String), SyncSender<String>>;

impl ModelRoutes {
    /// Who asks which server, before anything of the body is read.
    pub(crate) fn receive_for(&self, server: &str, headers: &HeaderMap) -> Result<Request, Reply> {
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
        if let Err(seconds) = client.take_turn() {
            let why = format!("this client may not ask more often: wait {seconds} s");
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, &why));
        }
        let Some(at_work) = AtWork::begin(&client) else {
            let why = "this client has as many requests open as it may: wait for one of them";
            return Err(refusal(StatusCode::TOO_MANY_REQUESTS, why));
        };
        let bad = |why: String| refusal(StatusCode::BAD_REQUEST, &why);
        let conversation = conversation_of(headers).map_err(bad)?.unwrap_or_else(|| UNNAMED.to_owned());
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let streams = text("accept").is_some_and(|kinds| kinds.contains("text/event-stream"));
        let labels = text(FEATURES).is_some_and(|list| list.split(',').any(|one| one.trim() == LABELS));
        let (session, beside) = (text(SESSION), Beside::read(headers).map_err(bad)?);
        Ok(Request { client, server, conversation, session, beside, streams, labels, _at_work: at_work })
    }

    /// The client ends a connection: what was shown in it is known all the same.
    pub(crate) fn end_connection(&self, request: &Request) -> Reply {
        if let Some(session) = &request.session {
            request.server.upstream.end(session);
        }
        Reply::nothing(StatusCode::NO_CONTENT)
    }

    /// Answers a message; waits for the server, and so runs beside the sockets. What is streamed goes to `parts`; then there is no
    /// reply.
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
        // What the message is to HTTP; whether it is one at all is for the machine to say.
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let Err(why) = request.beside.check(&message) {
            return Some(refusal(StatusCode::BAD_REQUEST, &why));
        }
        if message.get("method").is_none() && self.is_awaited(request, &message, text) {
            return Some(Reply::nothing(StatusCode::ACCEPTED));
        }
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        let way = Way::new(parts, request.streams && is_request, &request.conversation);
        let mut exchange = Exchange { routes: self, request, waiting, way };
        let said = exchange.put(Told::Client { text: text.to_owned(), labels: request.labels });
        match said.and_then(|said| exchange.carry_out(said)) {
            Ok(()) => exchange.way.finish(is_request),
            // In a stream, whoever waits knows its error by the id alone.
            Err(failure) => exchange.way.fail(&failure, message.get("id").filter(|_| is_request)),
        }
    }

    /// Whether a request waits for this answer, and has got it.
    fn is_awaited(&self, request: &Request, message: &Value, text: &str) -> bool {
        let Some(id) = message.get("id") else { return false };
        let key = (request.client.spec.name.clone(), request.conversation.clone(), id.to_string());
        let waiter = self.waiters().remove(&key);
        waiter.is_some_and(|waiter| waiter.try_send(text.to_owned()).is_ok())
    }
}

/// A request that is being answered.
struct Exchange<'e> {
    routes: &'e ModelRoutes,
    request: &'e Request,
    waiting: &'e Waiting,
    way: Way,
}

impl Exchange<'_> {
    /// Does what is to be done, until there is nothing left.
    fn carry_out(&mut self, said: Vec<Out>) -> Result<(), Failure> {
        let mut left: VecDeque<Out> = said.into();
        while let Some(out) = left.pop_front() {
            let more = match out {
                Out::Client(text) => self.to_client(text)?,
                Out::Server(text) => self.to_server(&text)?,
                Out::Note(note) => {
                    self.routes.remark(&format!("{}: {note}", self.request.client.spec.name));
                    Vec::new()
                }
                // Questions were asked while the conversation was held.
                Out::Ask(_) | Out::Pins(_) | Out::Unapproved { .. } => Vec::new(),
            };
            more.into_iter().rev().for_each(|out| left.push_front(out));
        }
        Ok(())
    }

    /// Sends something to the client. If it is a question, waits for the answer.
    fn to_client(&mut self, text: String) -> Result<Vec<Out>, Failure> {
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let own = message.get("id").filter(|_| message.get("method").is_some());
        let Some(own) = own.filter(|id| id.as_str().is_some_and(|id| id.starts_with("flowgate-"))) else {
            self.way.send(text, message.get("method").is_none());
            return Ok(Vec::new());
        };
        let answer = match self.way.streams {
            true => self.ask_client(own, text),
            false => None,
        };
        let silent = json!({"jsonrpc": "2.0", "id": own, "result": {"action": "cancel"}});
        self.put(Told::Client { text: answer.unwrap_or_else(|| silent.to_string()), labels: false })
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

    /// Sends something to the server, and labels all that it answers.
    fn to_server(&mut self, text: &str) -> Result<Vec<Out>, Failure> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let mut headers = self.request.beside.of(&message);
        if let Some(session) = &self.request.session {
            headers.push((SESSION.to_owned(), session.clone()));
        }
        let id = message.get("id").filter(|_| message.get("method").is_some());
        let mut told = Vec::new();
        let problem = match self.request.server.upstream.send(text, &headers) {
            Err(why) => Some(why),
            Ok(answer) => {
                self.way.connection(answer.session);
                match answer.body {
                    Body::Nothing => None,
                    Body::Message(answer) => {
                        told = self.put(Told::Server(answer))?;
                        None
                    }
                    Body::Unknown => {
                        self.way.status = StatusCode::NOT_FOUND;
                        Some("the server does not know the connection any more; begin a new one")
                    }
                    Body::Stream(mut events) => loop {
                        match events.next() {
                            Err(why) => break Some(why),
                            Ok(None) => break None,
                            Ok(Some(event)) => {
                                let answers = id.is_some_and(|id| is_answer(&event, id));
                                let said = self.put(Told::Server(event))?;
                                if answers {
                                    told = said;
                                    break None;
                                }
                                self.carry_out(said)?;
                            }
                        }
                    },
                }
            }
        };
        // Whoever still waits for an answer gets none.
        if let Some(id) = id.filter(|_| told.is_empty()) {
            let why = problem.unwrap_or("the server does not answer").to_owned();
            told = self.put(Told::Failed { id: id.clone(), why })?;
        }
        Ok(told)
    }

    /// Hands something to the machine, asks what is to be asked, and keeps all of it before anything goes out.
    fn put(&self, what: Told) -> Result<Vec<Out>, Failure> {
        let Request { client, conversation, .. } = self.request;
        let routes = self.routes;
        let found = routes.sessions.named(client, conversation);
        // What a server has said is taken in also if nobody waits for it any more.
        let nobody_else = Waiting::default();
        let waiting = if matches!(what, Told::Client { .. }) { self.waiting } else { &nobody_else };
        let mut held = routes.sessions.lock(client, &found, waiting)?;
        let done = held.get().map(|session| {
            if !routes.sessions.has_room(session) {
                let why = "the conversation is as long as this gateway keeps them: begin a new one";
                return Err(Failure::new(StatusCode::BAD_REQUEST, why));
            }
            routes.approvals.check_frozen(&client.spec, conversation)?;
            routes.sessions.catch_up(client, session)?;
            self.pin(session, &what)?;
            let mut said = self.tell(session, what);
            self.note_tools(&mut said)?;
            while let Some(at) = said.iter().position(|out| matches!(out, Out::Ask(_))) {
                let Out::Ask(question) = said.remove(at) else { continue };
                let answer = self.decide(session, &question);
                let decided = Told::Decided { question, said: answer };
                said.extend(self.tell(session, decided));
            }
            self.stop(session, &mut said);
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
        drop(held);
        done.and_then(|(said, _)| kept.map(|()| said))
    }

    fn tell(&self, session: &mut Session, what: Told) -> Vec<Out> {
        let spec = &self.request.client.spec;
        let put = Put { server: self.request.server.name.clone(), what };
        let (said, judged) = session.put(spec, put);
        let events = judged.iter().map(|call| recorder::judged(spec, &self.request.conversation, call));
        session.events.extend(events);
        said
    }

    /// Before tools are listed: which were approved of. The first list that a tenant is shown of a server is, unless the operator
    /// wants to see it first.
    fn pin(&self, session: &mut Session, what: &Told) -> Result<(), StoreError> {
        let Told::Client { text, .. } = what else { return Ok(()) };
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if message.get("method").and_then(Value::as_str) != Some("tools/list") {
            return Ok(());
        }
        let Request { client, server, .. } = self.request;
        let known = wait(self.routes.approvals.store.approved(&client.spec.tenant, &server.name))?;
        let accept_new = known.is_empty() && !server.approves_first;
        let pins = Pins::from(known);
        if session.pins(&server.name) != Some(&pins) {
            self.tell(session, Told::Pinned { pins, accept_new });
        }
        Ok(())
    }

    /// Keeps which tools count as approved of, and asks about those that do not.
    fn note_tools(&self, said: &mut Vec<Out>) -> Result<(), StoreError> {
        let Request { client, server, .. } = self.request;
        let offer = |tool: &str, digest: &str| {
            let (server, tool, digest) = (server.name.clone(), tool.to_owned(), digest.to_owned());
            Offer { server, tool, digest }
        };
        let mut proposed = 0;
        for out in said.iter() {
            match out {
                Out::Pins(pins) => {
                    let offers: Vec<Offer> = pins.tools().map(|(tool, digest)| offer(tool, digest)).collect();
                    wait(self.routes.approvals.store.approve_first(&client.spec.tenant, &offers))?;
                }
                Out::Unapproved { name, digest, said } if proposed < MOST_PROPOSED => {
                    proposed += 1;
                    self.routes.approvals.propose(&client.spec, &offer(name, digest), said)?;
                }
                _ => {}
            }
        }
        said.retain(|out| !matches!(out, Out::Pins(_) | Out::Unapproved { .. }));
        Ok(())
    }

    /// Asks people whether a call may run.
    fn decide(&self, session: &mut Session, question: &str) -> Said {
        let Request { client, server, conversation, .. } = self.request;
        let Some(found) = session.question(&server.name, question) else { return Said::Nothing };
        let ask = session.conversation.ask(found);
        let asker = Asker { client: &client.spec, conversation, turns: BESIDE, waiting: self.waiting };
        let Answered { decision, asked } = self.routes.approvals.ask(asker, &ask, &session.used);
        match (decision, asked) {
            (Decision::Allow, Some(asked)) => {
                let Asked { digest, tool, .. } = asked.clone();
                session.events.push(Event::ApprovalUsed { conversation: conversation.clone(), tool, digest });
                session.used.push(asked);
                Said::Yes
            }
            (Decision::Refuse, _) => Said::No,
            (Decision::Later, Some(asked)) => Said::NotYet(asked.id),
            _ => Said::Nothing,
        }
    }

    /// What somebody has stopped does not go out.
    fn stop(&self, session: &mut Session, said: &mut Vec<Out>) {
        let Request { client, server, conversation, .. } = self.request;
        let mut kept = Vec::new();
        for out in std::mem::take(said) {
            let Out::Server(text) = &out else {
                kept.push(out);
                continue;
            };
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            let tool = match (message.get("method").and_then(Value::as_str), message.pointer("/params/name"))
            {
                (Some("tools/call"), Some(Value::String(name))) => format!("{}/{name}", server.name),
                (Some(method), _) => format!("{}/{method}", server.name),
                (None, _) => server.name.clone(),
            };
            match self.routes.approvals.stops(&client.spec, conversation, &tool) {
                None => kept.push(out),
                Some(why) => {
                    let failed = message.get("id").filter(|_| message.get("method").is_some());
                    let failed = failed.map(|id| Told::Failed { id: id.clone(), why });
                    kept.extend(failed.map(|failed| self.tell(session, failed)).unwrap_or_default());
                }
            }
        }
        *said = kept;
    }
}

/// Questions beside the chat stand across its turns: the same call, for the same reasons, is the same question.
const BESIDE: i64 = -1;

fn is_answer(event: &str, id: &Value) -> bool {
    let event: Value = serde_json::from_str(event).unwrap_or_default();
    event.get("method").is_none() && event.get("id") == Some(id)
}

/// The way back to the client: one message, or a stream of them.
struct Way {
    parts: Sender<Part>,
    streams: bool,
    headers: Vec<(&'static str, String)>,
    status: StatusCode,
    has_begun: bool,
    /// Nobody reads any more.
    is_lost: bool,
    answer: Option<String>,
}

impl Way {
    fn new(parts: Sender<Part>, streams: bool, conversation: &str) -> Self {
        let headers = vec![(CONVERSATION, conversation.to_owned())];
        Self {
            parts,
            streams,
            headers,
            status: StatusCode::OK,
            has_begun: false,
            is_lost: false,
            answer: None,
        }
    }

    /// What the server calls the connection.
    fn connection(&mut self, session: Option<String>) {
        self.headers.extend(session.map(|session| (SESSION, session)));
    }

    /// Sends a message: the answer last. What is no answer can only be streamed.
    fn send(&mut self, text: String, is_answer: bool) {
        if is_answer {
            self.answer = Some(text);
        } else if self.streams {
            self.stream(&text);
        }
    }

    fn stream(&mut self, text: &str) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let headers = std::mem::take(&mut self.headers);
            self.put(Part::Begin(headers));
        }
        let event = flowgate_lm::sse::Event::new("message", text).encode();
        self.put(Part::Bytes(event.into_bytes()));
    }

    fn put(&mut self, part: Part) {
        self.is_lost |= self.parts.blocking_send(part).is_err();
    }

    fn finish(mut self, is_request: bool) -> Option<Reply> {
        match self.answer.take() {
            Some(answer) if self.has_begun => {
                self.stream(&answer);
                None
            }
            Some(answer) => Some(self.dressed(Reply::json_text(self.status, answer))),
            None if self.has_begun => None,
            None if is_request => {
                Some(self.dressed(refusal(StatusCode::INTERNAL_SERVER_ERROR, "there is no answer")))
            }
            None => Some(self.dressed(Reply::nothing(StatusCode::ACCEPTED))),
        }
    }

    fn fail(mut self, failure: &Failure, id: Option<&Value>) -> Option<Reply> {
        if self.has_begun {
            self.stream(&error(id, &failure.message).to_string());
            return None;
        }
        Some(self.dressed(refusal(failure.status, &failure.message)))
    }

    fn dressed(&self, reply: Reply) -> Reply {
        self.headers.iter().fold(reply, |reply, (name, value)| reply.named(name, value))
    }
}

fn error(id: Option<&Value>, why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": INVALID, "message": why}})
}

/// A refusal that says so to HTTP as well.
fn refusal(status: StatusCode, why: &str) -> Reply {
    let reply = Reply::json(status, &error(None, why));
    match status {
        StatusCode::TOO_MANY_REQUESTS => reply.named("retry-after", "1"),
        _ => reply,
    }
}
