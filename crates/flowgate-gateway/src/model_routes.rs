//! Model routes: agents' chats pass the guard on their way to a model.
//!
//! An agent uses the gateway as its base URL instead of a provider; it needs no other change. The gateway decodes a
//! request of any supported API into a chat, [adds it](flowgate_guard::conversation::Conversation::sent) to the guarded
//! conversation that it belongs to, and judges the output of the model before the agent receives any of it. All routes
//! take this one path, streaming or not.
//!
//! * [`config`]: the file that names upstreams and clients.
//! * `clients`: clients by their keys, and their quotas.
//! * `beginnings`: the cache of decoded chat prefixes.
//! * [`recheck`]: comparison of an audit log with a replay of the stored conversations.
//! * `report`: the log line of a request.
//! * `sessions`: the conversation that a request belongs to.
//! * `quotations`: administration of the texts that clients were shown.
//! * `servers`: MCP servers, in the same conversations.
//! * `turn`: one request, from its chat to its completion.
//! * `stream`: streamed answers.
//! * `upkeep`: periodic maintenance of the store.

mod beginnings;
mod clients;
pub mod config;
mod quotations;
pub mod recheck;
pub(crate) mod report;
pub(crate) mod servers;
mod sessions;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod upkeep;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, StatusCode, header};
use flowgate_guard::history::Chat;
use flowgate_lm::chat::{Completion, Source};
use flowgate_lm::wire::{Api, Asked, Head};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use crate::approvals::Approvals;
use crate::approvals::known::Names;
use crate::approvals::people::People;
use crate::approvals::webhook::Webhook;
use crate::log::{Event, Limit, Log};
use crate::recorder::{AuditSpec, Note, Recorder};
use crate::reply::Reply;
use crate::store::{self, Store, StoreError};
use crate::values::Values;
use crate::visibility::{self, ANSWER, EXPLAIN, HIDDEN};
use crate::witness::Witnesses;
use beginnings::filled;
#[cfg(test)]
pub(crate) use clients::MOST_LISTENING;
use clients::{AtWork, Clients, Known};
use config::Config;
pub use config::{Client, Secret};
use report::Report;
#[cfg(test)]
pub(crate) use servers::exchange::MOST_CANCELLED;
use servers::exchange::Waiters;
#[cfg(test)]
pub(crate) use servers::listening::MOST_UNASKED;
pub(crate) use servers::listens;
#[cfg(test)]
pub(crate) use sessions::GROWTH;
use sessions::{Found, Held, Sessions};
use stream::{Outgoing, Part};
pub(crate) use turn::Failure;
use turn::{Cause, Turn};

/// The header in which a client names the conversation of a request.
pub(crate) const CONVERSATION: &str = "x-flowgate-conversation";
/// The header in which a client declares the provenance of those parts of the user's messages that it does not mark.
pub(crate) const SOURCE: &str = "x-flowgate-source";

/// The state that all model routes share.
#[derive(Debug)]
pub(crate) struct ModelRoutes {
    clients: Clients,
    sessions: Sessions,
    pub(crate) approvals: Arc<Approvals>,
    recorder: Recorder,
    answers: AtomicU64,
    waiters: Mutex<Waiters>,
    /// Requests to MCP servers that were cancelled, by the ids that the servers know.
    cancelled: Mutex<std::collections::HashSet<String>>,
    pub(crate) log: Log,
    /// The bound on the memory of parsed JSON values.
    values: Values,
    /// Whether the gateway is shutting down.
    is_closing: AtomicBool,
}

/// Whether the client still waits for its answer. Once the [`Gone`] of a request is dropped, its turn ends as soon as
/// it can.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Waiting {
    pub(crate) fn has_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the guard whose drop signals to the turn that the client has disconnected.
    pub(crate) fn until_dropped(&self) -> Gone {
        Gone(Arc::clone(&self.0))
    }
}

/// Signals on drop that the client has disconnected.
#[derive(Debug)]
pub(crate) struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A limit on the requests of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    /// Requests per minute.
    Requests,
    /// Requests in parallel.
    Parallel,
    /// Parallel streams of server messages that answer no request.
    Listening,
}

/// A client's request whose body has not been read.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) api: Api,
    pub(crate) client: Arc<Known>,
    /// The key for the upstream, if the client brings its own.
    pub(crate) key: Option<String>,
    /// The conversation, if the client names it.
    pub(crate) conversation: Option<String>,
    /// Whether the client asks for an explanation of what is hidden from the model.
    explains: bool,
    /// The provenance of unmarked parts of the user's messages, if the client declares it.
    pub(crate) unmarked: Option<Source>,
    _at_work: AtWork,
}

impl ModelRoutes {
    /// Opens the store and starts its maintenance tasks.
    ///
    /// # Errors
    /// If the store, the audit log or the webhook cannot be opened.
    pub(crate) async fn open(config: Config, values: Values, log: Log) -> Result<Self, StoreError> {
        let Config { clients, store, people, asking, webhook, audit, keys, .. } = config;
        log.hide(&keys);
        for client in &clients {
            for advice in visibility::of_client(client) {
                let event = if advice.is_meant { Event::HiddenAsMeant } else { Event::Hidden };
                log.write(event, &client.name, vec![("advice", advice.id.into())], &advice.text);
            }
        }
        let open = Arc::new(Store::open(&store.place).await?);
        let recorder = Recorder::open(audit.as_ref(), &clients, keys, &open, &log).await?;
        open.accept()?;
        remark_open_files(&store.place, audit.as_ref(), &log);
        let webhook =
            webhook.map(|(url, secret)| Webhook::new(url, secret.into_bytes(), log.clone())).transpose();
        let webhook = webhook.map_err(|_| StoreError::Damaged("no thread can be started for the webhook"))?;
        let people = People::new(people, &clients);
        let approvals = Approvals::new(
            Arc::clone(&open),
            people,
            recorder.clone(),
            asking,
            webhook,
            Names::of(&clients),
            log.clone(),
        );
        let approvals = Arc::new(approvals);
        upkeep::begin(&open, &approvals, &recorder, &log, store.retention, store.quotation_age);
        let sessions = Sessions::new(open, store.memory, store.conversation, values.clone(), log.clone());
        let (clients, answers) = (Clients::new(clients), AtomicU64::new(0));
        let (waiters, cancelled) = (Mutex::default(), Mutex::default());
        let is_closing = AtomicBool::new(false);
        Ok(Self {
            clients,
            sessions,
            approvals,
            recorder,
            answers,
            waiters,
            cancelled,
            log,
            values,
            is_closing,
        })
    }

    /// Signs the audit log and stores its head before the process exits. A killed process does neither; the next start
    /// catches up.
    pub(crate) async fn finish(&self) {
        if self.recorder.seal().is_ok() {
            let _ = self.sessions.store().note_log().await;
        }
        let recorder = self.recorder.clone();
        let told = move || recorder.witnesses().map(Witnesses::finish);
        let _ = tokio::task::spawn_blocking(told).await;
    }

    /// Returns the names of failing parts that do not stop the gateway from working.
    pub(crate) fn late(&self) -> Vec<&'static str> {
        self.recorder.witnesses().map(Witnesses::failing).unwrap_or_default()
    }

    /// Returns the names of the parts that cannot be written now.
    pub(crate) async fn failing(&self) -> Vec<&'static str> {
        let mut failing = Vec::new();
        if !self.sessions.store().is_writable().await {
            failing.push("store");
        }
        if !self.recorder.is_writable() {
            failing.push("audit log");
        }
        failing.extend(self.recorder.witnesses().and_then(Witnesses::too_late));
        failing
    }

    fn waiters(&self) -> MutexGuard<'_, Waiters> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes a remark for the operator; it may contain names that others chose.
    fn remark(&self, remark: &str) {
        self.log.write(Event::Remark, "", Vec::new(), remark);
    }

    /// Logs that a client has reached a limit on its requests.
    pub(crate) fn client_limit(&self, client: &Known, conversation: Option<&str>, bound: Bound) {
        let (what, setting, most) = match bound {
            Bound::Requests => {
                let most = client.spec.requests_per_minute.into();
                ("requests of one client in a minute", "[clients.NAME] requests-per-minute", most)
            }
            Bound::Parallel => {
                let most = u64::try_from(client.spec.parallel).unwrap_or(u64::MAX);
                ("requests of one client at the same time", "[clients.NAME] parallel", most)
            }
            Bound::Listening => {
                let most = u64::try_from(clients::MOST_LISTENING).unwrap_or(u64::MAX);
                ("streams of one client at the same time", "none; end streams that nobody reads", most)
            }
        };
        let effect = "the request was refused with 429";
        self.log.limit(&Limit { what, effect, setting, most, client: &client.spec.name, conversation });
    }

    /// Authenticates the client and checks its limits before any of the body is read.
    pub(crate) fn receive(&self, api: Api, headers: &HeaderMap) -> Result<Received, Reply> {
        let (client, key) =
            self.clients.find(headers).map_err(|why| refusal(api, StatusCode::UNAUTHORIZED, why))?;
        let named = conversation_of(headers);
        let name = named.as_ref().ok().and_then(Option::as_deref);
        let refuse = |status, message: &str| of_conversation(refusal(api, status, message), name);
        if let Err(seconds) = client.take_turn() {
            self.client_limit(&client, name, Bound::Requests);
            let message = format!("this client may not ask more often: wait {seconds} s");
            return Err(refuse(StatusCode::TOO_MANY_REQUESTS, &message).logged());
        }
        let Some(at_work) = AtWork::begin(&client) else {
            self.client_limit(&client, name, Bound::Parallel);
            let message = "this client has as many requests open as it may: wait for one of them";
            return Err(refuse(StatusCode::TOO_MANY_REQUESTS, message).logged());
        };
        let unmarked = source_of(headers).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
        let conversation = named.map_err(|why| refusal(api, StatusCode::BAD_REQUEST, &why))?;
        let explains = headers.get_all(EXPLAIN).iter().any(|value| value.as_bytes() == HIDDEN.as_bytes());
        Ok(Received { api, client, key, conversation, unmarked, explains, _at_work: at_work })
    }

    /// Answers a request. It blocks on models and therefore runs on a worker thread. What is streamed before the
    /// turn ends goes to `parts`; the result is then `None`.
    pub(crate) fn answer(
        &self,
        received: &Received,
        body: &[u8],
        waiting: &Waiting,
        parts: Sender<Part>,
    ) -> Option<Reply> {
        let mut report = Report::begin(received.conversation.as_deref());
        let reply = self.answered(received, body, waiting, parts, &mut report);
        if let Some(reply) = reply.as_ref().filter(|reply| reply.status.as_u16() >= 400) {
            report.refused(reply.status);
        }
        report.write(&self.log, &received.client.spec.name, received.key.as_deref());
        reply.map(Reply::logged)
    }

    fn answered(
        &self,
        received: &Received,
        body: &[u8],
        waiting: &Waiting,
        parts: Sender<Part>,
        report: &mut Report,
    ) -> Option<Reply> {
        let api = received.api;
        let bad = |message: &str| refusal(api, StatusCode::BAD_REQUEST, message);
        let Ok(body) = std::str::from_utf8(body) else { return Some(bad("the body is no UTF-8")) };
        let request = match received.client.beginnings.read(api, body) {
            Ok(request) => request,
            Err(why) => return Some(bad(&why)),
        };
        let failed = |report: &mut Report, failure: turn::Failure| {
            report.failed(&failure);
            refusal(api, failure.status, &failure.message)
        };
        let chat = request.chat(received.unmarked);
        received.client.beginnings.note(&request, &chat);
        let found = match self.sessions.find(&received.client, received.conversation.as_deref(), &chat) {
            Ok(found) => found,
            Err(failure) => return Some(failed(report, failure)),
        };
        report.name(found.name());
        let done = self.turn(received, &found, (body, &request, &chat), waiting, parts, report);
        done.unwrap_or_else(|failure| Some(of_conversation(failed(report, failure), Some(found.name()))))
    }

    fn turn(
        &self,
        received: &Received,
        found: &Found,
        (body, request, chat): (&str, &beginnings::Request, &Chat<'_>),
        waiting: &Waiting,
        parts: Sender<Part>,
        report: &mut Report,
    ) -> Result<Option<Reply>, turn::Failure> {
        let client = &received.client;
        let mut held = self.sessions.lock(client, found, waiting)?;
        // The cached prefix may contain messages that the history of this conversation does not.
        let is_there = held.get().is_none_or(|session| session.history.has_beginning(chat));
        let whole = match (!is_there).then(|| beginnings::whole(received.api, body)).transpose() {
            Ok(whole) => whole,
            Err(why) => {
                self.sessions.keep(client, found, &mut held)?;
                return Err(turn::Failure::new(StatusCode::BAD_REQUEST, why));
            }
        };
        let whole = whole.as_ref().map(|asked| {
            let messages = &asked.request.messages;
            Chat::of(messages).with_sources(filled(asked.sources.clone(), messages, received.unmarked))
        });
        let chat = whole.as_ref().unwrap_or(chat);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let id = format!("{}-{created}-{number}", prefix(received.api));
        let asked = &request.asked;
        let head = Head { id: &id, model: &asked.model, created };
        let stream = Outgoing::new(received.api, head, asked.usage, found.name(), parts);
        let mut stream = asked.stream.then_some(stream);
        let done =
            self.guarded(received, found.name(), &mut held, (asked, chat), waiting, (&mut stream, report));
        // The turn is recorded and stored before its reply is sent, whether or not it failed.
        let events = held.get().map(|session| std::mem::take(&mut session.events)).unwrap_or_default();
        let kept = match self.recorder.record_without(&events, received.key.as_deref()) {
            Ok(()) => self.sessions.keep(client, found, &mut held),
            Err(error) => Err(self.sessions.give_up(found, &mut held, error)),
        };
        if kept.is_err() {
            self.take_back(&events);
        }
        drop(held);
        let done = done.and_then(|completion| kept.map(|()| completion));
        match (done, stream) {
            (Ok(completion), Some(mut stream)) => Ok(stream.finish(&completion, report.waits.as_ref())),
            (Ok(completion), None) => {
                let mut body = received.api.encode_response(&completion, head);
                report.waits.iter().for_each(|waits| waits.in_body(&mut body));
                let reply = Reply::json(StatusCode::OK, &body).named(CONVERSATION, found.name());
                let reply = match &report.waits {
                    Some(waits) => waits.of_reply(reply),
                    None => reply,
                };
                Ok(Some(match &report.explained {
                    Some(told) => reply.named(ANSWER, told),
                    None => reply,
                }))
            }
            (Err(failure), Some(mut stream)) if stream.has_begun() => {
                report.failed(&failure);
                stream.fail(failure.status, &failure.message);
                Ok(None)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Records that approved calls of a turn did not run, since the turn could not be stored.
    fn take_back(&self, events: &[Note]) {
        let cause = "the turn could not be kept";
        let notes: Vec<Note> = events.iter().filter_map(|note| note.taken_back(cause)).collect();
        if let Err(error) = self.recorder.record(&notes) {
            let sentence = format!("it is not recorded that approved calls did not run: {error}");
            self.log.write(Event::Failure, "", Vec::new(), &sentence);
        }
    }

    fn guarded(
        &self,
        received: &Received,
        name: &str,
        held: &mut Held<'_>,
        (asked, chat): (&Arc<Asked>, &Chat<'_>),
        waiting: &Waiting,
        (stream, report): (&mut Option<Outgoing>, &mut Report),
    ) -> Result<Completion, turn::Failure> {
        let Some(session) = held.get() else {
            let message = "the conversation is not there";
            return Err(turn::Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        };
        if !self.sessions.has_room(session, (&received.client.spec.name, name)) {
            let message = "the conversation is as long as this gateway keeps them: begin a new one";
            return Err(turn::Failure::new(StatusCode::BAD_REQUEST, message).because(Cause::Full));
        }
        turn::check(&received.client, asked)?;
        self.recorder.may_begin()?;
        self.approvals.check_frozen(&received.client.spec, name)?;
        self.sessions.catch_up(&received.client, session)?;
        let (client, key) = (&received.client, received.key.as_deref());
        turn::run(
            Turn {
                client,
                name,
                asked,
                chat,
                key,
                waiting,
                approvals: &self.approvals,
                log: &self.log,
                explains: received.explains,
            },
            session,
            stream,
            report,
        )
    }

    /// Lists the models that a client may ask for.
    pub(crate) fn models(&self, headers: &HeaderMap) -> Result<Reply, Reply> {
        let api = if headers.contains_key("x-api-key") { Api::Messages } else { Api::ChatCompletions };
        let (client, _) =
            self.clients.find(headers).map_err(|why| refusal(api, StatusCode::UNAUTHORIZED, why))?;
        let upstream = client.spec.upstream().map_err(|why| refusal(api, StatusCode::NOT_FOUND, why))?;
        let model = |name: &String| match api {
            Api::Messages => {
                json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
            }
            _ => json!({"id": name, "object": "model", "created": 0, "owned_by": upstream.name}),
        };
        let models: Vec<Value> = upstream.models.iter().map(model).collect();
        let list = match api {
            Api::Messages => {
                let end = |model: Option<&Value>| model.and_then(|model| model.get("id")).cloned();
                json!({"first_id": end(models.first()), "last_id": end(models.last()), "has_more": false, "data": models})
            }
            _ => json!({"object": "list", "data": models}),
        };
        Ok(Reply::json(StatusCode::OK, &list))
    }
}

/// Reads the declared provenance of unmarked parts of the user's messages.
fn source_of(headers: &HeaderMap) -> Result<Option<Source>, String> {
    let mut values = headers.get_all(SOURCE).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(format!("`{SOURCE}` stands there twice: send it once")),
        (Some(value), None) => match value.to_str().ok().and_then(Source::named) {
            Some(source) => Ok(Some(source)),
            None => {
                let names: Vec<&str> = Source::ALL.iter().map(|source| source.name()).collect();
                Err(format!("`{SOURCE}` is one of: {}", names.join(", ")))
            }
        },
    }
}

/// Warns the operator of files that other users of the system can read.
fn remark_open_files(place: &config::Place, audit: Option<&AuditSpec>, log: &Log) {
    let mut paths = match place {
        config::Place::File(path) => store::file::files(path),
        _ => Vec::new(),
    };
    paths.extend(
        audit.into_iter().flat_map(|audit| [audit.file.clone(), audit.file.with_added_extension("content")]),
    );
    for path in store::file::open_to_others(&paths) {
        let path = path.display();
        let sentence = format!("{path} can be read or written by others than its owner: chmod 600 {path}");
        log.write(Event::Remark, "", Vec::new(), &sentence);
    }
}

/// Reads the name of the conversation from the headers of a request.
fn conversation_of(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mut values = headers.get_all(CONVERSATION).iter();
    let (value, other) = (values.next().map(|value| value.to_str()), values.next());
    match value {
        // Another reader of the request might use the other value.
        _ if other.is_some() => Err(format!("`{CONVERSATION}` stands there twice: send it once")),
        None => Ok(None),
        Some(Ok(name)) if !name.is_empty() && name.len() <= 128 => Ok(Some(name.to_owned())),
        Some(_) => Err(format!("`{CONVERSATION}` is 1 to 128 plain characters")),
    }
}

/// Adds the name of the conversation to a reply, if it is known.
pub(crate) fn of_conversation(reply: Reply, name: Option<&str>) -> Reply {
    match name {
        Some(name) => reply.named(CONVERSATION, name),
        None => reply,
    }
}

fn prefix(api: Api) -> &'static str {
    match api {
        Api::ChatCompletions => "chatcmpl",
        Api::Responses => "resp",
        Api::Messages => "msg",
    }
}

/// Builds an error reply in the form of an API.
pub(crate) fn refusal(api: Api, status: StatusCode, message: &str) -> Reply {
    let reply = Reply::json(status, &api.encode_error(status.as_u16(), message));
    if status == StatusCode::TOO_MANY_REQUESTS { reply.header(header::RETRY_AFTER, "1") } else { reply }
}
