//! One message of a client to an MCP server, until it is answered.
//!
//! The conversation is held while a message is judged and labelled, not while a server works on it: calls of one
//! conversation run in parallel. Turns of its chat and messages of its servers are serialised.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::event_stream::EventStream;
pub(crate) use super::pending_reply::stream_error_event;
use super::pending_reply::{PendingReply, error_reply};
use super::pending_requests::MOST_CANCELLED;
use super::proxies::{ProxyEvent, ServerProxyEvent};
use super::request::{ClientSlot, McpRequest};
use super::resumption::{ResumptionLimits, resume};
use super::stream_watch::StreamWatch;
use super::upstream::{BROKEN, SESSION, ServerAnswerBody};
use crate::approvals::{ApprovalContext, ApprovalOutcome, ApprovalReference};
use crate::chat::ModelRoutes;
use crate::chat::conversations::ConversationState;
use crate::chat::report::{VerdictTotals, sentence_of};
use crate::chat::stream::ReplyPart;
use crate::database::{DatabaseError, TURN_OUTSIDE_CHAT, block_on};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::http::value_budget::{SETTING, ValueBudgetError, ValueBudgetShare, WHAT};
use crate::limits::estimated_memory;
use crate::log::{self, millis};
use crate::recorder;
use flowgate_guard::approve::Decision;
use flowgate_mcp::{LISTEN_METHOD, PersonAnswer, ProxyAction, ProxyLimits, SERVER_REQUEST_METHODS};

/// The limit on server messages that one request may cause.
const MAX_SERVER_MESSAGES: usize = 1_000;
/// The time limit for a person at the client to answer.
const PERSON_TIMEOUT: Duration = Duration::from_secs(300);

impl ModelRoutes {
    /// Answers a message. It blocks on the server and therefore runs on a worker thread. What is streamed goes to
    /// `parts`; the result is then `None`.
    pub(crate) fn exchange(
        &self,
        request: &McpRequest,
        body: &[u8],
        waiting: &ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Option<HttpReply> {
        let Ok(text) = std::str::from_utf8(body) else {
            return Some(error_reply(StatusCode::BAD_REQUEST, "the body is not UTF-8"));
        };
        // This parse serves the checks of HTTP only; the state machine decides whether the message is valid.
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let Err(why) = request.headers.check(&message) {
            return Some(error_reply(StatusCode::BAD_REQUEST, &why));
        }
        if message.get("method").is_none() && is_generated_id(message.get("id")) {
            // Without a waiter, the answer is late or reached another gateway. It is dropped and does not count as
            // consent.
            self.hand_to_waiter(request, &message, text);
            return Some(HttpReply::empty(StatusCode::ACCEPTED));
        }
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        if matches!(request.slot, ClientSlot::ListeningStream(_)) && !request.streams {
            let why = "what happens at a server is a stream: send `accept: text/event-stream`";
            return Some(error_reply(StatusCode::NOT_ACCEPTABLE, why));
        }
        let way = PendingReply::new(parts, request.streams && is_request, &request.conversation);
        let mut exchange = McpExchange::new(self, request, waiting, way);
        let begun = Instant::now();
        // Notifications may still end work that began earlier.
        let may_begin = if is_request { self.recorder.check_witness_lag() } else { Ok(()) };
        let said = match may_begin {
            Ok(()) => {
                exchange.apply_event(ProxyEvent::Client { text: text.to_owned(), labels: request.labels })
            }
            Err(error) => Err(error.into()),
        };
        let done = said.and_then(|said| exchange.perform_actions(said));
        exchange.log(begun.elapsed(), is_request, done.as_ref().err());
        match done {
            Ok(()) => exchange.reply.finish(is_request),
            Err(failure) => {
                let reply = exchange.reply.fail(&failure, message.get("id").filter(|_| is_request));
                reply.map(HttpReply::mark_logged)
            }
        }
    }

    /// Notes that the request with this server-side id was cancelled.
    fn cancel(&self, id: &Value) {
        if self.pending.cancel(id) {
            self.log.limit(&log::Limit {
                what: "cancelled requests that are remembered",
                effect: "all were forgotten: those that still wait for a server end when it answers",
                setting: "none",
                most: u64::try_from(MOST_CANCELLED).unwrap_or(u64::MAX),
                client: "",
                conversation: None,
            });
        }
    }

    /// Hands an answer to the request that waits for it.
    fn hand_to_waiter(&self, request: &McpRequest, message: &Value, text: &str) {
        let Some(id) = message.get("id") else { return };
        let key = (request.client.spec.name.clone(), request.conversation.clone(), id.to_string());
        if let Some(waiter) = self.pending.waiters().remove(&key) {
            // The channel has room for one answer.
            let _ = waiter.try_send(text.to_owned());
        }
    }
}

/// Returns whether an id belongs to a question of the gateway.
pub(super) fn is_generated_id(id: Option<&Value>) -> bool {
    id.and_then(Value::as_str).is_some_and(|id| id.starts_with("flowgate-"))
}

/// Returns whether a server asks the client for this method, in a request or in its answer.
fn is_requested_method(message: &Value, method: &str) -> bool {
    let names = |one: &Value| one.get("method").and_then(Value::as_str) == Some(method);
    let in_answer = message.pointer("/result/inputRequests").and_then(Value::as_object);
    names(message) || in_answer.is_some_and(|all| all.values().any(names))
}

/// Returns whether a message to a client ends its request.
fn is_answer(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message.get("method").is_none())
}

/// Returns the name by which a freeze matches a message to a server.
fn freeze_name(message: &Value) -> String {
    match (message.get("method").and_then(Value::as_str), message.pointer("/params/name")) {
        (Some("tools/call"), Some(Value::String(name))) => name.clone(),
        (method, _) => method.unwrap_or_default().to_owned(),
    }
}

/// A request that is being answered.
pub(super) struct McpExchange<'e> {
    pub(super) routes: &'e ModelRoutes,
    pub(super) request: &'e McpRequest,
    pub(super) waiting: &'e ClientPresence,
    pub(super) reply: PendingReply,
    /// The number of messages received from the server.
    pub(super) received: usize,
    /// The verdicts of the request.
    verdicts: Cell<VerdictTotals>,
    /// The tool called last, or the method, as freezes name it.
    called: String,
}

/// The actions that a server's message leads to, and a problem that ends the request.
pub(super) type MessageOutcome = (Vec<ProxyAction>, Option<&'static str>);

impl<'e> McpExchange<'e> {
    pub(super) fn new(
        routes: &'e ModelRoutes,
        request: &'e McpRequest,
        waiting: &'e ClientPresence,
        way: PendingReply,
    ) -> Self {
        let called = String::new();
        Self { routes, request, waiting, reply: way, received: 0, verdicts: Cell::default(), called }
    }

    /// Writes the log line of a message.
    fn log(&self, took: Duration, is_request: bool, failure: Option<&RequestError>) {
        let McpRequest { client, server, conversation, .. } = self.request;
        let (client, log) = (&client.spec.name, &self.routes.log);
        let verdicts = self.verdicts.get();
        if is_request || failure.is_some() {
            let mut fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            fields.extend(verdicts.fields());
            fields.push(("heard", self.received.into()));
            fields.push(("ms", millis(took)));
            let (event, sentence) = match failure {
                None => (log::LogEvent::Exchange, ""),
                Some(failure) => {
                    fields.push(("status", failure.status.as_u16().into()));
                    fields.extend(failure.detail.as_ref().map(|detail| ("detail", detail.as_str().into())));
                    match failure.cause {
                        RequestErrorCause::Store(why) => (log::LogEvent::Failure, why),
                        _ => (log::LogEvent::Refused, sentence_of(failure.status)),
                    }
                }
            };
            log.write(event, client, fields, sentence);
        }
        verdicts.report_limit(log, client, Some(conversation));
    }

    /// Carries out actions until none are left.
    pub(super) fn perform_actions(&mut self, said: Vec<ProxyAction>) -> Result<(), RequestError> {
        let mut left: VecDeque<ProxyAction> = said.into();
        while let Some(out) = left.pop_front() {
            let more = match out {
                ProxyAction::Client(text) => self.send_to_client(text)?,
                ProxyAction::Server(text) => self.send_to_server(&text)?,
                ProxyAction::Note(note) => {
                    self.routes.remark(&format!("{}: {note}", self.request.client.spec.name));
                    Vec::new()
                }
                // The questions were already asked while the conversation was held.
                ProxyAction::Ask(_) | ProxyAction::Pins(_) | ProxyAction::Unapproved { .. } => Vec::new(),
            };
            more.into_iter().rev().for_each(|out| left.push_front(out));
        }
        Ok(())
    }

    /// Sends a message to the client. If it is a question, waits for the answer.
    fn send_to_client(&mut self, text: String) -> Result<Vec<ProxyAction>, RequestError> {
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let own = message.get("id").filter(|_| message.get("method").is_some());
        let Some(own) = own.filter(|id| is_generated_id(Some(id))) else {
            self.reply.send(text, message.get("method").is_none());
            return Ok(Vec::new());
        };
        let answer = match self.reply.streams {
            true => self.ask_client(own, text),
            false => None,
        };
        let silent = json!({"jsonrpc": "2.0", "id": own, "result": {"action": "cancel"}});
        // The question is closed even if the client has disconnected.
        self.apply_event_for(
            &ClientPresence::default(),
            ProxyEvent::Client { text: answer.unwrap_or_else(|| silent.to_string()), labels: false },
        )
    }

    fn ask_client(&mut self, own: &Value, text: String) -> Option<String> {
        let (client, conversation) = (&self.request.client.spec.name, &self.request.conversation);
        let key = (client.clone(), conversation.clone(), own.to_string());
        let (sender, answers) = sync_channel(1);
        self.routes.pending.waiters().insert(key.clone(), sender);
        self.reply.send(text, false);
        let answer = self.wait_for(&answers);
        self.routes.pending.waiters().remove(&key);
        answer
    }

    fn wait_for(&self, answers: &Receiver<String>) -> Option<String> {
        let until = Instant::now() + PERSON_TIMEOUT;
        while Instant::now() < until && !self.waiting.has_gone() && !self.reply.is_lost {
            match answers.recv_timeout(Duration::from_millis(200)) {
                Ok(answer) => return Some(answer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }

    /// Sends a message to the server, and labels everything that it answers.
    fn send_to_server(&mut self, text: &str) -> Result<Vec<ProxyAction>, RequestError> {
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let mut headers = self.request.headers.for_message(&message);
        if let Some(session) = &self.request.session {
            headers.push((SESSION.to_owned(), session.clone()));
        }
        let id = message.get("id").filter(|_| message.get("method").is_some());
        if let Some(cancelled) = message.pointer("/params/requestId").filter(|_| id.is_none()) {
            self.routes.cancel(cancelled);
        }
        self.called = freeze_name(&message);
        let (routes, waiting) = (self.routes, self.waiting);
        let subscribes = message.get("method").and_then(Value::as_str) == Some(LISTEN_METHOD);
        if subscribes {
            // The first event may arrive late, so the stream begins now.
            self.reply.begin();
        }
        let watch = StreamWatch::new(routes, self.request, waiting, self.reply.parts.clone());
        let stop = || match id {
            Some(id) if subscribes => watch.is_over() || routes.pending.take_cancelled(id),
            Some(id) => waiting.has_gone() || routes.pending.take_cancelled(id),
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
                self.reply.set_session_header(answer.session.filter(|_| greets));
                match answer.body {
                    ServerAnswerBody::Nothing | ServerAnswerBody::StreamNotOffered => (Vec::new(), None),
                    ServerAnswerBody::Message(answer) => match self.reserve_memory(&answer) {
                        Ok(_share) => self.handle_server_message(id, answer)?,
                        Err(why) => (Vec::new(), Some(why)),
                    },
                    ServerAnswerBody::SessionUnknown => {
                        self.reply.status = StatusCode::NOT_FOUND;
                        let why = "the server does not know the connection any more; begin a new one";
                        (Vec::new(), Some(why))
                    }
                    ServerAnswerBody::Stream(events) => {
                        self.listen(id, *events, session.as_deref(), &stop)?
                    }
                }
            }
        };
        // A notification or a question in place of the answer does not count as one.
        let is_answered = told.iter().any(|out| matches!(out, ProxyAction::Client(text) if is_answer(text)));
        let mut all = told;
        // A client that still waits for an answer receives an error.
        if !is_answered {
            let why = problem.unwrap_or("the server does not answer").to_owned();
            let McpRequest { client, server, conversation, .. } = self.request;
            let fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            routes.log.write(log::LogEvent::Upstream, &client.spec.name, fields, &why);
            all.extend(self.apply_event(ProxyEvent::Failed { id: id.clone(), why })?);
        }
        Ok(all)
    }

    /// Reads a stream up to the answer to a request, resuming it if the server ends it early, and passes on what
    /// precedes the answer.
    fn listen(
        &mut self,
        id: &Value,
        mut events: EventStream,
        session: Option<&str>,
        stop: &dyn Fn() -> bool,
    ) -> Result<MessageOutcome, RequestError> {
        let mut patience = ResumptionLimits::begin();
        loop {
            let problem = match events.next(&|| stop() || patience.is_over()) {
                Ok(Some(event)) => Ok(event),
                Ok(None) => Err(None),
                Err(why) => Err(Some(why)),
            };
            let event = match problem {
                Ok(event) => event,
                Err(None | Some(BROKEN)) if self.resume(&mut events, session, &mut patience, stop) => {
                    continue;
                }
                Err(why) => return Ok((Vec::new(), why)),
            };
            let _share = match self.reserve_memory(&event) {
                Ok(share) => share,
                Err(why) => return Ok((Vec::new(), Some(why))),
            };
            let message: Value = serde_json::from_str(&event).unwrap_or_default();
            let is_answer = message.get("method").is_none();
            if is_answer && message.get("id") != Some(id) {
                // The answer to another request is dropped.
                continue;
            }
            let (told, problem) =
                match matches!(self.request.slot, ClientSlot::ListeningStream(_)) && !is_answer {
                    true => self.handle_stream_message(id, &message, &event)?,
                    false => self.handle_server_message(id, event)?,
                };
            if is_answer || problem.is_some() {
                return Ok((told, problem));
            }
            self.perform_actions(told)?;
            if stop() || self.reply.is_lost {
                return Ok((Vec::new(), Some("nobody waits for the answer any more")));
            }
        }
    }

    /// Resumes a stream of the server. Returns whether there is more of it.
    fn resume(
        &self,
        events: &mut EventStream,
        session: Option<&str>,
        limits: &mut ResumptionLimits,
        stop: &dyn Fn() -> bool,
    ) -> bool {
        let McpRequest { client, server, conversation, headers: beside, .. } = self.request;
        let mut headers = beside.for_message(&Value::Null);
        headers.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
        let is_frozen = || {
            let tools = format!("{}/", server.name);
            block_on(self.routes.approvals.freeze_reason(&client.spec, conversation, &tools)).is_some()
        };
        resume(events, &server.upstream, &headers, limits, &|| !is_frozen(), stop)
    }

    /// Reserves memory for a server's message before it is parsed.
    pub(super) fn reserve_memory(&self, text: &str) -> Result<ValueBudgetShare, &'static str> {
        let McpRequest { client, conversation, .. } = self.request;
        self.routes.values.take(estimated_memory(text.as_bytes())).map_err(|why| {
            self.routes.log.limit(&log::Limit {
                what: WHAT,
                effect: "an answer of a server was not read, and the client was told that there is none",
                setting: SETTING,
                most: u64::try_from(self.routes.values.total_bytes()).unwrap_or(u64::MAX),
                client: &client.spec.name,
                conversation: Some(conversation),
            });
            match why {
                ValueBudgetError::TooLarge => "the answer of the server has too many values",
                ValueBudgetError::Taken => "the gateway has no room for the answer of the server",
            }
        })
    }

    /// Labels a server's message, unless a freeze has stopped the server or the message exceeds a limit.
    pub(super) fn handle_server_message(
        &mut self,
        id: &Value,
        text: String,
    ) -> Result<MessageOutcome, RequestError> {
        let McpRequest { client, server, conversation, .. } = self.request;
        self.received += 1;
        if text.len() > ProxyLimits::default().message {
            return Ok((Vec::new(), Some("the answer of the server is larger than 4 MiB")));
        }
        if self.received > MAX_SERVER_MESSAGES {
            return Ok((Vec::new(), Some("the server says more than one answer may take")));
        }
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        if message.get("method").is_none() && message.get("id") != Some(id) {
            return Ok((Vec::new(), Some("the server does not answer the request")));
        }
        let stops = |method: &str| {
            let place = format!("{}/{method}", server.name);
            block_on(self.routes.approvals.freeze_reason(&client.spec, conversation, &place)).is_some()
        };
        if stops(&self.called)
            || SERVER_REQUEST_METHODS
                .into_iter()
                .any(|method| is_requested_method(&message, method) && stops(method))
        {
            return Ok((Vec::new(), Some("this server is stopped by its operator")));
        }
        Ok((self.apply_event(ProxyEvent::Server(text))?, None))
    }

    /// Hands an input to the state machine, asks pending questions, and stores the outcome before anything is sent.
    pub(super) fn apply_event(&self, what: ProxyEvent) -> Result<Vec<ProxyAction>, RequestError> {
        // A server's message is processed even if the client has disconnected.
        match what {
            ProxyEvent::Client { .. } => self.apply_event_for(self.waiting, what),
            _ => self.apply_event_for(&ClientPresence::default(), what),
        }
    }

    fn apply_event_for(
        &self,
        waiting: &ClientPresence,
        what: ProxyEvent,
    ) -> Result<Vec<ProxyAction>, RequestError> {
        let McpRequest { client, conversation, .. } = self.request;
        let routes = self.routes;
        let found = routes.sessions.find_by_name(client, conversation);
        let mut held = block_on(routes.sessions.lock(client, &found, waiting))?;
        let done = held.get().map(|session| {
            if !routes.sessions.has_room(session, (&client.spec.name, conversation)) {
                let why = "the conversation is as long as this gateway keeps them: begin a new one";
                return Err(RequestError::new(StatusCode::BAD_REQUEST, why));
            }
            // A failed call is noted even where a freeze stops everything else.
            if !matches!(what, ProxyEvent::Failed { .. }) {
                block_on(routes.approvals.check_frozen(&client.spec, conversation))?;
            }
            block_on(routes.sessions.catch_up(client, session))?;
            session
                .conversation
                .withdraw_consents(&block_on(routes.approvals.frozen_consents(&client.spec))?);
            self.pin(session, &what)?;
            let mut said = self.apply_event_to_session(session, what);
            self.note_tools(session, &mut said)?;
            while let Some(at) = said.iter().position(|out| matches!(out, ProxyAction::Ask(_))) {
                let ProxyAction::Ask(question) = said.remove(at) else { continue };
                let (answer, allowed) = self.ask_people(session, &question)?;
                // While the question was open, consents may have been withdrawn, and others may have written to
                // stores.
                session
                    .conversation
                    .withdraw_consents(&block_on(routes.approvals.frozen_consents(&client.spec))?);
                block_on(routes.sessions.recall_external_state(client, session))?;
                let decided = ProxyEvent::Decided { question, said: answer };
                let mut out = self.apply_event_to_session(session, decided);
                if let Some(asked) = allowed {
                    self.withhold_frozen(session, &mut out);
                    self.note_approved(session, &asked, &out);
                }
                said.extend(out);
            }
            self.withhold_frozen(session, &mut said);
            self.note_forwarded_call(session, &said);
            let events = std::mem::take(&mut session.events);
            Ok((said, events))
        });
        let done = done.unwrap_or_else(|| {
            Err(RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "the conversation is not there"))
        });
        let events = done.as_ref().map(|(_, events)| events.as_slice()).unwrap_or_default();
        let kept = match routes.recorder.record(events) {
            Ok(()) => block_on(routes.sessions.persist(client, &found, &mut held)),
            Err(error) => Err(block_on(routes.sessions.evict_unpersisted(&found, &mut held, error))),
        };
        if kept.is_err() {
            routes.record_taken_back(events);
        }
        drop(held);
        done.and_then(|(said, _)| kept.map(|()| said))
    }

    pub(super) fn apply_event_to_session(
        &self,
        session: &mut ConversationState,
        what: ProxyEvent,
    ) -> Vec<ProxyAction> {
        let spec = &self.request.client.spec;
        let accepted = match &what {
            ProxyEvent::Client { text, .. } => self.note_answer(session, text),
            _ => None,
        };
        let put = ServerProxyEvent { server: self.request.server.name.clone(), what };
        let (mut said, judged) = session.handle_proxy_event(spec, put);
        let mut verdicts = self.verdicts.get();
        verdicts.count(&judged);
        self.verdicts.set(verdicts);
        let events =
            judged.into_iter().map(|call| recorder::judged_entry(spec, &self.request.conversation, call));
        session.events.extend(events);
        for out in &said {
            if let ProxyAction::Client(text) = out {
                self.note_question(session, text);
            }
        }
        if let Some(asked) = accepted {
            self.withhold_frozen(session, &mut said);
            self.note_approved(session, &asked, &said);
        }
        said
    }

    /// Asks people whether a call may run. Returns their answer and, if it is a yes, the question. If they cannot be
    /// asked, the call fails, and nothing of it is stored.
    fn ask_people(
        &self,
        session: &mut ConversationState,
        question: &str,
    ) -> Result<(PersonAnswer, Option<ApprovalReference>), DatabaseError> {
        let McpRequest { client, server, conversation, .. } = self.request;
        let Some(found) = session.question(&server.name, question) else {
            return Ok((PersonAnswer::Nothing, None));
        };
        let ask = session.conversation.approval_request(found);
        let asker = ApprovalContext {
            client: &client.spec,
            conversation,
            turns: TURN_OUTSIDE_CHAT,
            waiting: self.waiting,
            key: None,
        };
        let answered = block_on(self.routes.approvals.ask(asker, &ask, &session.used));
        session.is_unasked = answered.is_err();
        let ApprovalOutcome { decision, asked } = answered?;
        Ok(match (decision, asked) {
            (Decision::Allow, Some(asked)) => {
                // A second call with the same arguments in this message is a new question.
                session.used.push(asked.clone());
                (PersonAnswer::Yes, Some(asked))
            }
            (Decision::Refuse, _) => (PersonAnswer::No, None),
            (Decision::Later, Some(asked)) => (PersonAnswer::NotYet(asked.id), None),
            (Decision::Unasked, _) => (PersonAnswer::Unasked, None),
            _ => (PersonAnswer::Nothing, None),
        })
    }

    /// Withholds messages to the server that a freeze has stopped.
    fn withhold_frozen(&self, session: &mut ConversationState, said: &mut Vec<ProxyAction>) {
        let McpRequest { client, server, conversation, .. } = self.request;
        let mut kept = Vec::new();
        for out in std::mem::take(said) {
            let ProxyAction::Server(text) = &out else {
                kept.push(out);
                continue;
            };
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            let tool = format!("{}/{}", server.name, freeze_name(&message));
            match block_on(self.routes.approvals.freeze_reason(&client.spec, conversation, &tool)) {
                None => kept.push(out),
                Some(why) => {
                    let id = message.get("id").filter(|_| message.get("method").is_some());
                    let unsent = id.map(|id| ProxyEvent::Unsent { id: id.clone(), why });
                    kept.extend(
                        unsent.map(|unsent| self.apply_event_to_session(session, unsent)).unwrap_or_default(),
                    );
                }
            }
        }
        *said = kept;
    }
}
