//! Serves the model routes: the chats of agents pass the guard before a model receives them.
//!
//! An agent uses the gateway instead of a provider as its base URL; the agent needs no other change. The gateway
//! decodes a request of any supported API into a chat, [adds
//! it](flowgate_guard::conversation::Conversation::accept_messages) to the guarded conversation that the chat belongs
//! to, and judges the output of the model before the agent receives any of that output. Streaming and non-streaming
//! routes share this code. `http::service` calls it.
//!
//! * `clients`: clients by their keys; `request_quota`: how often a client may send requests.
//! * `prefix_cache`: the cache of decoded chat prefixes.
//! * [`recheck`]: comparison of an audit log with a replay of the stored conversations.
//! * `report`: the log line of a request.
//! * `conversations`: the conversation that a request belongs to.
//! * `quotations`: administration of the texts that clients were shown.
//! * `turn`: one request, from its chat to its completion; `upstream_model`: the model that the turn calls.
//! * `stream`: streamed answers.
//! * `maintenance`: periodic maintenance of the database and the audit log.

pub(crate) mod clients;
pub(crate) mod conversations;
mod maintenance;
mod prefix_cache;
mod quotations;
pub mod recheck;
pub(crate) mod report;
mod request_quota;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
mod turn;
mod upstream_model;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use axum::http::{HeaderMap, StatusCode, header};
use flowgate_guard::history::SentChat;
use flowgate_lm::chat::{Completion, Source};
use flowgate_lm::wire::{Api, ReceivedRequest, ResponseHead};
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;
use tokio_util::sync::CancellationToken;

use crate::approvals::ApprovalService;
use crate::approvals::freeze_targets::FreezeTargets;
use crate::approvals::people::People;
use crate::approvals::webhook::Webhook;
use crate::config::{self, AuditSpec, GatewayConfig};
use crate::database::{self, Database, DatabaseError, RequestAdmission};
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::http::value_budget::ValueBudget;
use crate::log::{Limit, LogEvent, OperatorLog};
use crate::mcp_proxy::pending_requests::PendingRequests;
use crate::mcp_proxy::stream_place::MAX_LISTENING;
use crate::recorder::{AuditEntry, Recorder};
use crate::tls::client_certificate::ClientCertificate;
use crate::visibility::{self, EXPLAIN_HEADER, EXPLAIN_VALUE, HIDDEN_HEADER};
use crate::witness::HeadDestinations;
use clients::{ClientRequestPlace, ClientState, Clients};
#[cfg(test)]
pub(crate) use conversations::GROWTH;
use conversations::{ConversationHandle, Conversations, LockedConversation};
use prefix_cache::with_default_provenance;
use report::RequestReport;
use stream::{OutgoingReply, ReplyPart};
use turn::TurnRequest;

/// The header in which a client names the conversation of a request.
pub(crate) const CONVERSATION: &str = "x-flowgate-conversation";
/// The header in which a client declares the provenance of those parts of user messages that have no mark of their own.
pub(crate) const SOURCE: &str = "x-flowgate-source";

/// The state that all model routes share.
#[derive(Debug)]
pub(crate) struct ModelRoutes {
    pub(crate) clients: Clients,
    pub(crate) sessions: Conversations,
    pub(crate) approvals: Arc<ApprovalService>,
    pub(crate) recorder: Recorder,
    answers: AtomicU64,
    /// Requests to MCP servers that are in progress.
    pub(crate) pending: PendingRequests,
    pub(crate) log: OperatorLog,
    /// The memory budget of parsed JSON values, which all requests share.
    pub(crate) values: ValueBudget,
    /// Cancelled when the gateway shuts down.
    pub(crate) closing: CancellationToken,
}

/// A limit on the requests of a client.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ClientLimit {
    /// Requests per minute.
    Requests,
    /// Requests in parallel.
    Parallel,
    /// Parallel streams of MCP server messages that answer no request.
    Listening,
}

/// The refusal of a request that exceeds the quota of its client, or that the database could not count.
#[derive(Debug)]
pub(crate) struct QuotaRefusal {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    /// The number of seconds after which the client may try again.
    retry_after: u64,
}

impl QuotaRefusal {
    /// Adds the `retry-after` header, and marks the reply as logged, because the refusal was logged when the quota was
    /// checked.
    pub(crate) fn add_to(&self, reply: HttpReply) -> HttpReply {
        reply.with_header("retry-after", &self.retry_after.to_string()).mark_logged()
    }
}

/// A client's request whose body has not been read.
#[derive(Debug)]
pub(crate) struct ModelRouteRequest {
    pub(crate) api: Api,
    pub(crate) client: Arc<ClientState>,
    /// The key for the upstream, if the client sends its own.
    pub(crate) key: Option<String>,
    /// The name of the conversation, if the client names one.
    pub(crate) conversation: Option<String>,
    /// Whether the client asks for an explanation of what is hidden from the model.
    explains: bool,
    /// The provenance of unmarked parts of user messages, if the client declares a provenance.
    pub(crate) unmarked: Option<Source>,
    _at_work: ClientRequestPlace,
}

impl ModelRoutes {
    /// Opens the database and starts its maintenance tasks.
    ///
    /// # Errors
    /// If the database, the audit log or the webhook cannot be opened.
    pub(crate) async fn open(
        config: GatewayConfig,
        values: ValueBudget,
        log: OperatorLog,
    ) -> Result<Self, DatabaseError> {
        log.redact_keys(&config.keys);
        for client in &config.clients {
            for advice in visibility::client_advice(client) {
                let event = if advice.is_intended { LogEvent::HiddenOnPurpose } else { LogEvent::Hidden };
                log.write(event, &client.name, vec![("advice", advice.id.into())], &advice.text);
            }
        }
        let open = Arc::new(Database::open(&config.store.place).await?);
        let started = Self::start(config, Arc::clone(&open), values, log).await;
        if started.is_err() {
            open.close().await;
        }
        started
    }

    /// Opens the audit log and the webhook, and starts the maintenance tasks of the open database `open`.
    async fn start(
        config: GatewayConfig,
        open: Arc<Database>,
        values: ValueBudget,
        log: OperatorLog,
    ) -> Result<Self, DatabaseError> {
        let GatewayConfig { clients, store, people, asking, webhook, audit, keys, .. } = config;
        let recorder = Recorder::open(audit.as_ref(), &clients, keys, &open, &log).await?;
        open.accept_database()?;
        remark_open_files(&store.place, audit.as_ref(), &log);
        let webhook =
            webhook.map(|(url, secret)| Webhook::new(url, secret.into_bytes(), log.clone())).transpose();
        let webhook = webhook.map_err(DatabaseError::Runtime)?;
        let people = People::new(people, &clients);
        let approvals = ApprovalService::new(
            Arc::clone(&open),
            people,
            recorder.clone(),
            asking,
            webhook,
            FreezeTargets::of(&clients),
            log.clone(),
        );
        let approvals = Arc::new(approvals);
        maintenance::spawn_tasks(&open, &approvals, &recorder, &log, store.retention, store.quotation_age);
        let sessions =
            Conversations::new(open, store.memory, store.conversation, values.clone(), log.clone());
        let (clients, answers) = (Clients::new(clients), AtomicU64::new(0));
        let pending = PendingRequests::default();
        let closing = CancellationToken::new();
        Ok(Self { clients, sessions, approvals, recorder, answers, pending, log, values, closing })
    }

    /// Signs the audit log, stores its head and closes the database before the process exits. After a killed process,
    /// the next start signs the log and stores its head.
    pub(crate) async fn finish(&self) {
        if self.recorder.sign_head().is_ok() {
            let _ = self.sessions.store().persist_log_head().await;
        }
        let recorder = self.recorder.clone();
        let deliver_heads = move || recorder.witnesses().map(HeadDestinations::finish);
        let _ = tokio::task::spawn_blocking(deliver_heads).await;
        self.sessions.store().close().await;
    }

    /// Returns the names of failing witnesses that are optional, so that the gateway works without them.
    pub(crate) fn degraded_parts(&self) -> Vec<&'static str> {
        self.recorder.witnesses().map(HeadDestinations::failing_destinations).unwrap_or_default()
    }

    /// Returns which of these fail now: the database and the audit log, if they cannot be written, and an overdue
    /// required witness.
    pub(crate) async fn failing_parts(&self) -> Vec<&'static str> {
        let mut failing = Vec::new();
        if !self.sessions.store().is_writable().await {
            failing.push("store");
        }
        if !self.recorder.is_writable() {
            failing.push("audit log");
        }
        failing.extend(self.recorder.witnesses().and_then(HeadDestinations::overdue_destination));
        failing
    }

    /// Writes a remark to the operator's log; a remark may contain names that clients chose.
    pub(crate) fn remark(&self, remark: &str) {
        self.log.write(LogEvent::Remark, "", Vec::new(), remark);
    }

    /// Logs that a client has reached a limit on its requests.
    pub(crate) fn client_limit(&self, client: &ClientState, conversation: Option<&str>, bound: ClientLimit) {
        let (what, setting, advice, most) = match bound {
            ClientLimit::Requests => {
                let most = client.spec.requests_per_minute.into();
                ("requests of one client in a minute", Some("[clients.NAME] requests-per-minute"), None, most)
            }
            ClientLimit::Parallel => {
                let most = u64::try_from(client.spec.parallel).unwrap_or(u64::MAX);
                ("requests of one client at the same time", Some("[clients.NAME] parallel"), None, most)
            }
            ClientLimit::Listening => {
                let most = u64::try_from(MAX_LISTENING).unwrap_or(u64::MAX);
                ("streams of one client at the same time", None, Some("end streams that are not read"), most)
            }
        };
        let effect = "the request was refused with 429";
        self.log.limit(&Limit {
            what,
            effect,
            setting,
            advice,
            most,
            client: &client.spec.name,
            conversation,
        });
    }

    /// Takes one request from the quota of a client. Gateways that share a database share the quota.
    ///
    /// # Errors
    /// If the quota is exhausted, or the database cannot count the request. The message tells the client what to do.
    pub(crate) async fn take_request(
        &self,
        client: &ClientState,
        conversation: Option<&str>,
    ) -> Result<(), QuotaRefusal> {
        let store = self.sessions.store();
        let admission = match client.take_request() {
            Err(seconds) => RequestAdmission::Exhausted { seconds },
            Ok(()) if !store.is_shared() => RequestAdmission::Admitted,
            Ok(()) => {
                let counted = store.take_request(&client.spec.name, client.spec.requests_per_minute).await;
                counted.map_err(|error| {
                    let failure = RequestError::from(error);
                    let mut report = RequestReport::begin(conversation);
                    report.set_failure(&failure);
                    report.write(&self.log, &client.spec.name, None);
                    QuotaRefusal { status: failure.status, message: failure.message, retry_after: 1 }
                })?
            }
        };
        let RequestAdmission::Exhausted { seconds } = admission else { return Ok(()) };
        self.client_limit(client, conversation, ClientLimit::Requests);
        let message = format!("this client may not ask more often: wait {seconds} s");
        Err(QuotaRefusal { status: StatusCode::TOO_MANY_REQUESTS, message, retry_after: seconds })
    }

    /// Authenticates the client and checks its limits before any of the body is read.
    pub(crate) async fn receive(
        &self,
        api: Api,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<ModelRouteRequest, HttpReply> {
        let (client, key) = self
            .clients
            .find(headers, certificate)
            .map_err(|why| error_reply(api, StatusCode::UNAUTHORIZED, why))?;
        let named = conversation_of(headers);
        let name = named.as_ref().ok().and_then(Option::as_deref);
        let refuse =
            |status, message: &str| with_conversation_header(error_reply(api, status, message), name);
        if let Err(refusal) = self.take_request(&client, name).await {
            return Err(refusal.add_to(refuse(refusal.status, &refusal.message)));
        }
        let Some(at_work) = ClientRequestPlace::acquire(&client) else {
            self.client_limit(&client, name, ClientLimit::Parallel);
            let message = "this client has as many requests open as it may: wait for one of them";
            return Err(refuse(StatusCode::TOO_MANY_REQUESTS, message).mark_logged());
        };
        let unmarked =
            declared_default_source(headers).map_err(|why| refuse(StatusCode::BAD_REQUEST, &why))?;
        let conversation = named.map_err(|why| error_reply(api, StatusCode::BAD_REQUEST, &why))?;
        let explains =
            headers.get_all(EXPLAIN_HEADER).iter().any(|value| value.as_bytes() == EXPLAIN_VALUE.as_bytes());
        Ok(ModelRouteRequest { api, client, key, conversation, unmarked, explains, _at_work: at_work })
    }

    /// Answers a request. A streamed answer is sent to `parts`, and the result is then `None`.
    pub(crate) async fn answer(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Option<HttpReply> {
        let mut report = RequestReport::begin(received.conversation.as_deref());
        let reply = self.answer_with_report(received, body, presence, parts, &mut report).await;
        if let Some(reply) = reply.as_ref().filter(|reply| reply.status.as_u16() >= 400) {
            report.set_rejected(reply.status);
        }
        report.write(&self.log, &received.client.spec.name, received.key.as_deref());
        reply.map(HttpReply::mark_logged)
    }

    /// Finds the conversation of a request and runs its turn. Sets the outcome in `report`, which the caller logs. A
    /// streamed answer is sent to `parts`, and the result is then `None`. `presence` tells whether the client still
    /// waits.
    async fn answer_with_report(
        &self,
        received: &ModelRouteRequest,
        body: &[u8],
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
        report: &mut RequestReport,
    ) -> Option<HttpReply> {
        let api = received.api;
        let bad = |message: &str| error_reply(api, StatusCode::BAD_REQUEST, message);
        let Ok(body) = std::str::from_utf8(body) else { return Some(bad("the body is not UTF-8")) };
        let request = match received.client.prefix_cache.decode(api, body) {
            Ok(request) => request,
            Err(why) => return Some(bad(&why)),
        };
        let failed = |report: &mut RequestReport, failure: RequestError| {
            report.set_failure(&failure);
            error_reply(api, failure.status, &failure.message)
        };
        let chat = request.chat(received.unmarked);
        received.client.prefix_cache.insert(&request, &chat);
        let handle = match self.sessions.find(&received.client, received.conversation.as_deref(), &chat).await
        {
            Ok(handle) => handle,
            Err(failure) => return Some(failed(report, failure)),
        };
        report.set_conversation(handle.name());
        let done =
            self.stream_turn(received, &handle, (body, &request, &chat), presence, parts, report).await;
        done.unwrap_or_else(|failure| {
            Some(with_conversation_header(failed(report, failure), Some(handle.name())))
        })
    }

    /// Runs one turn in a conversation, and stores it before the end of its reply is sent. `body` is the text of the
    /// request, `request` its decoded form and `chat` its messages, of which those in the prefix cache are known by
    /// their digests only. A streamed answer is sent to `parts`, and the result is then `None`.
    async fn stream_turn(
        &self,
        received: &ModelRouteRequest,
        handle: &ConversationHandle,
        (body, request, chat): (&str, &prefix_cache::PartlyCachedRequest, &SentChat<'_>),
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
        report: &mut RequestReport,
    ) -> Result<Option<HttpReply>, RequestError> {
        let client = &received.client;
        let mut locked = self.sessions.lock(client, handle, presence).await?;
        // The cached prefix carries digests only; if the history of this conversation lacks one of its messages, the
        // whole body is decoded.
        let has_cached_messages = locked.get().is_none_or(|session| session.history.knows_digests_of(chat));
        let whole = match (!has_cached_messages)
            .then(|| prefix_cache::decode_whole(received.api, body))
            .transpose()
        {
            Ok(whole) => whole,
            Err(why) => {
                self.sessions.persist(client, handle, &mut locked).await?;
                return Err(RequestError::new(StatusCode::BAD_REQUEST, why));
            }
        };
        let whole = whole.as_ref().map(|asked| {
            let messages = &asked.request.messages;
            SentChat::of(messages).with_sources(with_default_provenance(
                asked.sources.clone(),
                messages,
                received.unmarked,
            ))
        });
        let chat = whole.as_ref().unwrap_or(chat);
        let number = self.answers.fetch_add(1, Ordering::Relaxed);
        let created = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let id = format!("{}-{created}-{number}", prefix(received.api));
        let settings = &request.settings;
        let head = ResponseHead { id: &id, model: &settings.model, created };
        let stream = OutgoingReply::new(received.api, head, settings.usage, handle.name(), parts);
        let mut stream = settings.stream.then_some(stream);
        let reply = (&mut stream, &mut *report);
        let done =
            self.run_guarded(received, handle.name(), &mut locked, (settings, chat), presence, reply).await;
        // The turn is recorded and stored before its reply is sent, whether or not it failed.
        let events = locked.get().map(|session| std::mem::take(&mut session.events)).unwrap_or_default();
        let persisted = match self.recorder.record_redacting(&events, received.key.as_deref()) {
            Ok(()) => self.sessions.persist(client, handle, &mut locked).await,
            Err(error) => Err(self.sessions.evict_unpersisted(handle, &mut locked, error).await),
        };
        if persisted.is_err() {
            self.record_taken_back(&events);
        }
        drop(locked);
        let done = done.and_then(|completion| persisted.map(|()| completion));
        match (done, stream) {
            (Ok(completion), Some(mut stream)) => Ok(stream.finish(&completion, report.waits.as_ref()).await),
            (Ok(completion), None) => {
                let mut body = received.api.encode_response(&completion, head);
                report.waits.iter().for_each(|waits| waits.add_to_body(&mut body));
                let reply = HttpReply::json(StatusCode::OK, &body).with_header(CONVERSATION, handle.name());
                let reply = match &report.waits {
                    Some(waits) => waits.add_to_reply(reply),
                    None => reply,
                };
                Ok(Some(match &report.explained {
                    Some(explanation) => reply.with_header(HIDDEN_HEADER, explanation),
                    None => reply,
                }))
            }
            (Err(failure), Some(mut stream)) if stream.has_begun() => {
                report.set_failure(&failure);
                stream.fail(failure.status, &failure.message).await;
                Ok(None)
            }
            (Err(failure), _) => Err(failure),
        }
    }

    /// Records that approved calls of a turn did not run, because the turn could not be stored.
    pub(crate) fn record_taken_back(&self, events: &[AuditEntry]) {
        let cause = "the turn could not be kept";
        let notes: Vec<AuditEntry> = events.iter().filter_map(|note| note.correction(cause)).collect();
        if let Err(error) = self.recorder.record(&notes) {
            let sentence = format!("the audit log does not record that approved calls did not run: {error}");
            self.log.write(LogEvent::Failure, "", Vec::new(), &sentence);
        }
    }

    /// Checks whether a turn may run (room in the conversation, the model, the audit log, freezes), and runs it in the
    /// locked conversation with this name. `asked` is the request and `chat` its messages. Text that may be released
    /// early is sent to `stream`, if the client asks for a stream.
    async fn run_guarded(
        &self,
        received: &ModelRouteRequest,
        name: &str,
        locked: &mut LockedConversation<'_>,
        (asked, chat): (&Arc<ReceivedRequest>, &SentChat<'_>),
        presence: &ClientPresence,
        (stream, report): (&mut Option<OutgoingReply>, &mut RequestReport),
    ) -> Result<Completion, RequestError> {
        let Some(session) = locked.get() else {
            let message =
                "the request failed because of a bug in the gateway: the conversation is not loaded";
            return Err(RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message));
        };
        if !self.sessions.has_room(session, (&received.client.spec.name, name)) {
            let message = "the conversation has reached the size limit of this gateway: begin a new one";
            return Err(
                RequestError::new(StatusCode::BAD_REQUEST, message).with_cause(RequestErrorCause::Full)
            );
        }
        turn::check(&received.client, asked)?;
        self.recorder.check_witness_lag()?;
        self.approvals.check_frozen(&received.client.spec, name).await?;
        self.sessions.catch_up(&received.client, session).await?;
        let (client, key) = (&received.client, received.key.as_deref());
        turn::run(
            TurnRequest {
                client,
                name,
                asked,
                chat,
                key,
                presence,
                approvals: &self.approvals,
                log: &self.log,
                explains: received.explains,
            },
            session,
            stream,
            report,
        )
        .await
    }

    /// Lists the models that a client may ask for.
    pub(crate) fn models(
        &self,
        headers: &HeaderMap,
        certificate: Option<&ClientCertificate>,
    ) -> Result<HttpReply, HttpReply> {
        let api = if headers.contains_key("x-api-key") { Api::Messages } else { Api::ChatCompletions };
        let (client, _) = self
            .clients
            .find(headers, certificate)
            .map_err(|why| error_reply(api, StatusCode::UNAUTHORIZED, why))?;
        let upstream = client.spec.upstream().map_err(|why| error_reply(api, StatusCode::NOT_FOUND, why))?;
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
        Ok(HttpReply::json(StatusCode::OK, &list))
    }
}

/// Reads the header that declares the provenance of those parts of user messages that have no mark of their own.
fn declared_default_source(headers: &HeaderMap) -> Result<Option<Source>, String> {
    let mut values = headers.get_all(SOURCE).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(_), Some(_)) => Err(format!("the header `{SOURCE}` occurs twice: send it once")),
        (Some(value), None) => match value.to_str().ok().and_then(Source::from_name) {
            Some(source) => Ok(Some(source)),
            None => {
                let names: Vec<&str> = Source::ALL.iter().map(|source| source.name()).collect();
                Err(format!("the header `{SOURCE}` must be one of: {}", names.join(", ")))
            }
        },
    }
}

/// Warns the operator if other users of the system can read the database file or the audit log.
fn remark_open_files(place: &config::DatabaseAddress, audit: Option<&AuditSpec>, log: &OperatorLog) {
    let mut paths = match place {
        config::DatabaseAddress::File(path) => database::sqlite::file::database_files(path),
        _ => Vec::new(),
    };
    paths.extend(
        audit.into_iter().flat_map(|audit| [audit.file.clone(), audit.file.with_added_extension("content")]),
    );
    for path in database::sqlite::file::readable_by_others(&paths) {
        let path = path.display();
        let sentence = format!("{path} can be read or written by others than its owner: chmod 600 {path}");
        log.write(LogEvent::Remark, "", Vec::new(), &sentence);
    }
}

/// Reads the name of the conversation from the headers of a request; `None` if the client names none.
pub(crate) fn conversation_of(headers: &HeaderMap) -> Result<Option<String>, String> {
    let mut values = headers.get_all(CONVERSATION).iter();
    let (value, other) = (values.next().map(|value| value.to_str()), values.next());
    match value {
        // Refused, because another program that reads the request might use the other value.
        _ if other.is_some() => Err(format!("the header `{CONVERSATION}` occurs twice: send it once")),
        None => Ok(None),
        Some(Ok(name)) if !name.is_empty() && name.len() <= 128 => Ok(Some(name.to_owned())),
        Some(_) => Err(format!("the header `{CONVERSATION}` must have 1 to 128 visible ASCII characters")),
    }
}

/// Adds the name of the conversation to a reply, if it is known.
pub(crate) fn with_conversation_header(reply: HttpReply, name: Option<&str>) -> HttpReply {
    match name {
        Some(name) => reply.with_header(CONVERSATION, name),
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
pub(crate) fn error_reply(api: Api, status: StatusCode, message: &str) -> HttpReply {
    let reply = HttpReply::json(status, &api.encode_error(status.as_u16(), message));
    if status == StatusCode::TOO_MANY_REQUESTS { reply.header(header::RETRY_AFTER, "1") } else { reply }
}
