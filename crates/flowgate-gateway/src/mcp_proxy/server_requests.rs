//! Sends a message to an MCP server, and has the proxy judge and label everything that the server sends until its
//! answer. If no answer arrives, reports the failure to the proxy and the operator. `exchange` calls it for the actions
//! that the proxy returns.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use flowgate_mcp::{LISTEN_METHOD, ProxyAction, ProxyLimits, server_request_methods};
use serde_json::Value;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::answer_bytes::BROKEN;
use super::event_stream::EventStream;
use super::exchange::McpExchange;
use super::freezes::freeze_name;
use super::pending_requests::MAX_CANCELLED;
use super::proxies::ProxyEvent;
use super::request::{ClientPlace, McpRequest};
use super::resumption::ResumptionLimits;
use super::stop_signal::{NOT_AWAITED, StopSignal};
use super::stream_check::StreamCheck;
use super::upstream::{SESSION, ServerAnswer, ServerAnswerBody};
use crate::chat::ModelRoutes;
use crate::http::request_error::RequestError;
use crate::http::value_budget::{LIMIT_NAME, LIMIT_SETTING, ValueBudgetError, ValueBudgetShare};
use crate::limits::estimated_memory;
use crate::log;
use crate::telemetry::trace_parent::TRACE_PARENT;

/// The limit on server messages that one request may cause.
const MAX_SERVER_MESSAGES: usize = 1_000;
/// The reason why a request ends if the server exceeds the limit on messages, for the operator's log.
pub(super) const TOO_MANY_MESSAGES: &str =
    "the MCP server sent more than 1000 messages before its answer: check that server";

/// The time that a notification has to reach its server when the gateway shuts down.
const NOTIFICATION_GRACE: Duration = Duration::from_secs(1);

/// The actions that result from a server's message, and the problem if the message makes the request fail. The problem
/// is for the operator's log. The client receives the same message for all problems: a server could choose which one
/// occurs, and so pass unlabelled information to the client.
pub(super) type MessageOutcome = (Vec<ProxyAction>, Option<Cow<'static, str>>);

impl ModelRoutes {
    /// Cancels the request with this server-side id or, if it has not begun, remembers the cancellation. Logs if the
    /// memory of cancellations, which all clients share, was full and was cleared.
    fn cancel(&self, id: &Value) {
        if self.pending.cancel(id) {
            self.log.limit(&log::Limit {
                what: "cancelled requests that are remembered",
                effect: "the cancellations were forgotten, so a cancelled request that begins later waits for its \
                    server",
                setting: None,
                advice: None,
                most: u64::try_from(MAX_CANCELLED).unwrap_or(u64::MAX),
                client: "",
                conversation: None,
            });
        }
    }
}

/// Returns whether a server's message contains a request with this method for the client: the message itself, or one of
/// the inputs that an answer requires.
fn is_requested_method(message: &Value, method: &str) -> bool {
    let has_method = |request: &Value| request.get("method").and_then(Value::as_str) == Some(method);
    let input_requests = message.pointer("/result/inputRequests").and_then(Value::as_object);
    has_method(message) || input_requests.is_some_and(|requests| requests.values().any(has_method))
}

/// Returns whether a message to a client is the response to its request, and not a request or a notification.
fn is_answer(text: &str) -> bool {
    serde_json::from_str::<Value>(text).is_ok_and(|message| message.get("method").is_none())
}

impl<'e> McpExchange<'e> {
    /// Sends the message `text` to the server, and returns the actions that result from the server's answer. Messages
    /// before the answer are handled and forwarded as they arrive. If no answer arrives, logs the reason for the
    /// operator and reports the failure to the proxy, so that the client receives an error. A notification, or a
    /// response to a request of the server, has no answer, and leads to no actions.
    pub(super) async fn send_to_server(&mut self, text: String) -> Result<Vec<ProxyAction>, RequestError> {
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let mut headers = self.request.headers.for_message(&message);
        if let Some(session) = &self.request.session {
            headers.push((SESSION.to_owned(), session.clone()));
        }
        let routes = self.routes;
        let upstream = &self.request.server.upstream;
        // The name by which a freeze stops the call and, later, its answer.
        self.called = freeze_name(&message);
        let Some(id) = message.get("id").filter(|_| message.get("method").is_some()) else {
            self.send_without_answer(text, &message, &headers).await;
            return Ok(Vec::new());
        };
        let running = routes.pending.begin(id);
        let mut stop = self.stop_signal(running.cancelled.clone());
        if message.get("method").and_then(Value::as_str) == Some(LISTEN_METHOD) {
            // The first event may arrive late, so the stream begins now.
            self.reply.begin().await;
            stop = self.add_stream_check(stop);
        }
        let mut span = self.trace.begin_server_request(self.request, &message);
        headers.extend(span.trace_parent().map(|value| (TRACE_PARENT.to_owned(), value)));
        let (mut actions, problem) = match upstream.send(text, &headers, &mut stop).await {
            Ok(answer) => self.handle_answer(&message, id, answer, &mut stop).await?,
            Err(why) => (Vec::new(), Some(why.into())),
        };
        drop(running);
        // A notification or a question does not count as the answer.
        let is_answered =
            actions.iter().any(|action| matches!(action, ProxyAction::Client(text) if is_answer(text)));
        // A client that still waits for an answer receives an error.
        if !is_answered {
            span.fail("no_answer");
            let no_answer = "the MCP server did not answer: check the log of that server";
            let why = problem.map_or_else(|| no_answer.to_owned(), Cow::into_owned);
            let McpRequest { client, server, conversation, .. } = self.request;
            let fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            routes.log.write(log::LogEvent::Upstream, &client.spec.name, fields, &why);
            actions.extend(self.apply_event(ProxyEvent::Failed { id: id.clone(), why }).await?);
        }
        Ok(actions)
    }

    /// Sends the notification or response `text` to the server, even if the client has disconnected. `message` is the
    /// parsed text. If the server answers nevertheless, the answer is ignored.
    async fn send_without_answer(&self, text: String, message: &Value, headers: &[(String, String)]) {
        let routes = self.routes;
        // The notification that cancels a request names it; no other notification has this field.
        if let Some(cancelled) = message.pointer("/params/requestId") {
            routes.cancel(cancelled);
        }
        let mut stop = StopSignal::default();
        // When the gateway shuts down, the message has only a little time left.
        let is_late = async {
            routes.closing.cancelled().await;
            sleep(NOTIFICATION_GRACE).await;
        };
        tokio::select! {
            _ = self.request.server.upstream.send(text, headers, &mut stop) => {}
            () = is_late => {}
        }
    }

    /// Creates the signal that ends the wait for the answer to a request when the client disconnects or cancels the
    /// request. `cancelled` is the token of the request.
    fn stop_signal(&self, cancelled: CancellationToken) -> StopSignal<'e> {
        StopSignal { client: self.presence.clone(), cancelled, ..StopSignal::default() }
    }

    /// Returns the signal `stop` with the further conditions that end a listening stream: the shutdown of the gateway,
    /// a freeze, and the expiry of the client's token. The check for the last two also keeps the client's connection
    /// open, once the reply has begun.
    pub(super) fn add_stream_check(&self, stop: StopSignal<'e>) -> StopSignal<'e> {
        let check = StreamCheck::new(self.routes, self.request, self.reply.begun_parts());
        StopSignal { closing: self.routes.closing.clone(), check: Some(Box::new(check)), ..stop }
    }

    /// Handles the answer of the server to `message`, which the server knows by `id`: a single message or a stream.
    /// Returns the resulting actions and, if the request failed, the problem. Returns neither if the server sent no
    /// message: the caller notices that the answer is missing.
    async fn handle_answer(
        &mut self,
        message: &Value,
        id: &Value,
        answer: ServerAnswer,
        stop: &mut StopSignal<'_>,
    ) -> Result<MessageOutcome, RequestError> {
        // The MCP session, with which a stream that breaks off is resumed.
        let session = answer.session.clone().or_else(|| self.request.session.clone());
        // Only the answer to `initialize` may name the MCP session: later, the name would be unlabelled text of the
        // server.
        let is_initialize = message.get("method").and_then(Value::as_str) == Some("initialize");
        self.reply.set_session_header(answer.session.filter(|_| is_initialize));
        Ok(match answer.body {
            ServerAnswerBody::Nothing | ServerAnswerBody::StreamNotOffered => (Vec::new(), None),
            ServerAnswerBody::Message(answer) => match self.reserve_memory(&answer) {
                // The memory is reserved until the message has been handled.
                Ok(_share) => self.handle_server_message(id, answer).await?,
                Err(why) => (Vec::new(), Some(why.into())),
            },
            ServerAnswerBody::SessionUnknown => {
                self.reply.status = StatusCode::NOT_FOUND;
                let why = "the server no longer has this MCP session: begin a new one with `initialize`";
                (Vec::new(), Some(why.into()))
            }
            ServerAnswerBody::Stream(events) => {
                self.read_stream(id, *events, session.as_deref(), stop).await?
            }
        })
    }

    /// Reads the stream `events` up to the answer to the request `id`, and performs the actions that result from the
    /// messages before the answer. Resumes the stream if the server ends it early. `session` is the id of the MCP
    /// session, which a resumption needs, and `stop` ends the wait. Returns the actions that result from the answer,
    /// and the problem if the stream broke off. If the stream ends without an answer and cannot be resumed, returns
    /// neither: the caller notices that the answer is missing.
    async fn read_stream(
        &mut self,
        id: &Value,
        mut events: EventStream,
        session: Option<&str>,
        stop: &mut StopSignal<'_>,
    ) -> Result<MessageOutcome, RequestError> {
        let mut limits = ResumptionLimits::begin();
        stop.until = Some(limits.until);
        loop {
            let event = match events.next(stop).await {
                Ok(Some(event)) => event,
                // The condition of this arm resumes the stream. If the stream cannot be resumed, one of the next two
                // arms applies.
                Ok(None) | Err(BROKEN) if self.resume(&mut events, session, &mut limits, stop).await => {
                    continue;
                }
                Ok(None) => return Ok((Vec::new(), None)),
                Err(why) => return Ok((Vec::new(), Some(why.into()))),
            };
            // The memory is reserved until the event has been handled.
            let _share = match self.reserve_memory(&event) {
                Ok(share) => share,
                Err(why) => return Ok((Vec::new(), Some(why.into()))),
            };
            // A text that is not JSON becomes `null`, and is dropped like the answer to another request.
            let message: Value = serde_json::from_str(&event).unwrap_or_default();
            let is_answer = message.get("method").is_none();
            if is_answer && message.get("id") != Some(id) {
                // The answer to another request is dropped.
                continue;
            }
            // In a listening stream, all messages before the answer belong to the subscription.
            let is_of_subscription =
                matches!(self.request.place, ClientPlace::ListeningStream(_)) && !is_answer;
            let (actions, problem) = match is_of_subscription {
                true => self.handle_stream_message(id, &message, &event).await?,
                false => self.handle_server_message(id, event).await?,
            };
            if is_answer || problem.is_some() {
                return Ok((actions, problem));
            }
            self.perform_actions(actions).await?;
            if stop.is_over().await || self.reply.is_lost {
                return Ok((Vec::new(), Some(NOT_AWAITED.into())));
            }
        }
    }

    /// Reserves memory for a server's message before the message is parsed, until the returned share is dropped. If the
    /// gateway's budget for parsed values (`--max-values`) has no room, logs the limit, and returns the problem for the
    /// operator's log.
    pub(super) fn reserve_memory(&self, text: &str) -> Result<ValueBudgetShare, &'static str> {
        let McpRequest { client, conversation, .. } = self.request;
        self.routes.values.take(estimated_memory(text.as_bytes())).map_err(|why| {
            let (effect, problem) = match why {
                ValueBudgetError::TooLarge => (
                    "a message of a server was not read, since it alone needs more than a quarter of `--max-values`; a request that waited for it failed",
                    "the answer of the MCP server has too many JSON values: raise `--max-values`, or let the agent ask for less",
                ),
                ValueBudgetError::Taken => (
                    "a message of a server was not read; a request that waited for it failed",
                    "the gateway has no memory left for the answer of the MCP server: raise `--max-values`, or let the agent try again later",
                ),
            };
            self.routes.log.limit(&log::Limit {
                what: LIMIT_NAME,
                effect,
                setting: Some(LIMIT_SETTING),
                advice: None,
                most: u64::try_from(self.routes.values.total_bytes()).unwrap_or(u64::MAX),
                client: &client.spec.name,
                conversation: Some(conversation),
            });
            problem
        })
    }

    /// Hands a server's message to the proxy, which judges and labels it, and returns the resulting actions.
    /// Returns a problem instead in three cases: the message exceeds a limit; it is an answer, but not to the
    /// request `id`; or a freeze stops the server, the called tool, or a method that the message requests of the
    /// client.
    pub(super) async fn handle_server_message(
        &mut self,
        id: &Value,
        text: String,
    ) -> Result<MessageOutcome, RequestError> {
        self.received += 1;
        if text.len() > ProxyLimits::default().message {
            return Ok((
                Vec::new(),
                Some("the answer of the MCP server is larger than 4 MiB: let the agent ask for less".into()),
            ));
        }
        if self.received > MAX_SERVER_MESSAGES {
            return Ok((Vec::new(), Some(TOO_MANY_MESSAGES.into())));
        }
        // A text that is not JSON becomes `null`, which has no id and so is no response to the request.
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        if message.get("method").is_none() && message.get("id") != Some(id) {
            return Ok((
                Vec::new(),
                Some(
                    "the MCP server ended its answer without a response to the request: check that server"
                        .into(),
                ),
            ));
        }
        // The methods that the message requests of the client; a freeze can stop each by its name, like a tool.
        let asked: Vec<_> =
            server_request_methods().filter(|method| is_requested_method(&message, method)).collect();
        // `self.called` is the tool or the method of the request that the server answers.
        for name in std::iter::once(self.called.as_str()).chain(asked) {
            // The reason is a freeze, a key that is no longer valid, or a database that cannot be read.
            if let Some(why) = self.routes.freeze_of(self.request, name).await {
                return Ok((
                    Vec::new(),
                    Some(format!("the answer of the MCP server is stopped: {why}").into()),
                ));
            }
        }
        Ok((self.apply_event(ProxyEvent::Server(text)).await?, None))
    }
}
