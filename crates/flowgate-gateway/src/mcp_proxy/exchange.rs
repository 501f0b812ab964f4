//! Processes one message of a client to an MCP server until it is answered. The HTTP service calls
//! [`ModelRoutes::exchange`].
//!
//! The conversation is locked while a message is judged and labelled, but not while a server works on it. Calls of one
//! conversation therefore run in parallel at their servers, but their messages, and the turns of the chat, are judged
//! one after the other.
//!
//! An exchange is a task that runs to its end even if its client disconnects: a message that was sent to a server has
//! an outcome, which is labelled and stored.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate::trace::Tool;
use flowgate_lm::BoxFuture;
use flowgate_mcp::ProxyAction;
use serde_json::Value;
use tokio::sync::mpsc::Sender;

use super::exchange_trace::ExchangeTrace;
use super::pending_reply::{PendingReply, error_reply, is_generated_id};
use super::proxies::ProxyEvent;
use super::request::{ClientPlace, McpRequest};
use crate::chat::ModelRoutes;
use crate::chat::report::{VerdictTotals, sentence_of};
use crate::chat::stream::ReplyPart;
use crate::config::ClientSettings;
use crate::http::client_presence::ClientPresence;
use crate::http::reply::HttpReply;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::log::{self, millis};
use crate::page::figures::RequestFigures;

impl ModelRoutes {
    /// Processes the message `body` of a client to an MCP server, and writes its line in the operator's log. The
    /// message is a request, a notification, or the response of the client to a question of the gateway; such a
    /// response is handed to the task that waits for it. Returns the reply, or `None` if the reply was sent to `parts`
    /// as a stream. `presence` says whether the client is still connected.
    pub(crate) async fn exchange(
        &self,
        request: &McpRequest,
        body: &[u8],
        presence: &ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Option<HttpReply> {
        let Ok(text) = std::str::from_utf8(body) else {
            let why = "the body of the request is not valid UTF-8: encode it in UTF-8";
            return Some(error_reply(StatusCode::BAD_REQUEST, why));
        };
        // Only the checks below use this value (`null` if the text is not JSON). The proxy parses the text itself, and
        // decides whether it is a valid message.
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        if let Err(why) = request.headers.check(&message) {
            return Some(error_reply(StatusCode::BAD_REQUEST, &why));
        }
        if message.get("method").is_none() && is_generated_id(message.get("id")) {
            // The response to a question of the gateway. If no task waits for it, the response is late or has reached
            // another gateway: it is dropped, and does not count as consent.
            self.hand_to_waiter(request, &message, text);
            return Some(HttpReply::empty(StatusCode::ACCEPTED));
        }
        let is_request = message.get("method").is_some() && message.get("id").is_some();
        // The message `subscriptions/listen` opens a listening stream, whose reply can only be a stream.
        if matches!(request.place, ClientPlace::ListeningStream(_)) && !request.streams {
            let why = "the messages of a server are sent as a stream, which this request does not accept: \
                send `accept: text/event-stream`";
            return Some(error_reply(StatusCode::NOT_ACCEPTABLE, why));
        }
        let reply = PendingReply::new(parts, request.streams && is_request, &request.conversation);
        let mut exchange = McpExchange::new(self, request, presence, reply);
        // A notification has no answer, and no span.
        if is_request {
            exchange.trace = ExchangeTrace::begin(&self.telemetry, request, &message);
        }
        // The exchange runs here; then it is counted and logged, and the reply is completed.
        let begun = Instant::now();
        // No request begins while a required witness of the audit log is too far behind. Notifications may still end
        // work that began earlier.
        let may_begin = if is_request { self.recorder.check_witness_lag() } else { Ok(()) };
        let outcome = match may_begin {
            Ok(()) => exchange.run(text).await,
            Err(error) => Err(error.into()),
        };
        let took = begun.elapsed();
        exchange.count(took, outcome.is_err(), &message);
        exchange.log(took, is_request, outcome.as_ref().err());
        exchange.trace.end(outcome.as_ref().err());
        match outcome {
            Ok(()) => exchange.reply.finish(is_request).await,
            Err(failure) => {
                let reply = exchange.reply.fail(&failure, message.get("id").filter(|_| is_request)).await;
                // `exchange.log` has written the line about the failure, so the HTTP service must write none.
                reply.map(HttpReply::mark_logged)
            }
        }
    }
}

/// A message of a client that is being processed, with everything that its processing needs.
pub(super) struct McpExchange<'e> {
    pub(super) routes: &'e ModelRoutes,
    pub(super) request: &'e McpRequest,
    pub(super) presence: &'e ClientPresence,
    pub(super) reply: PendingReply,
    /// The number of messages received from the server.
    pub(super) received: usize,
    /// The verdicts of the request.
    pub(super) verdicts: VerdictTotals,
    /// The name by which a freeze stops the message that was sent last to the server: the tool of a call, or the
    /// method.
    pub(super) called: String,
    /// The spans of the request.
    pub(super) trace: ExchangeTrace,
}

impl<'e> McpExchange<'e> {
    /// Creates the exchange of a request that was just received: it has no verdicts yet, no message of the server was
    /// received, and no tool was called (`called` is empty).
    pub(super) fn new(
        routes: &'e ModelRoutes,
        request: &'e McpRequest,
        presence: &'e ClientPresence,
        reply: PendingReply,
    ) -> Self {
        let (verdicts, called, trace) = (VerdictTotals::default(), String::new(), ExchangeTrace::default());
        Self { routes, request, presence, reply, received: 0, verdicts, called, trace }
    }

    /// Hands the message `text` of the client to the proxy, and performs the resulting actions.
    ///
    /// # Errors
    /// If the message is refused, or its outcome cannot be processed or stored.
    async fn run(&mut self, text: &str) -> Result<(), RequestError> {
        let event = ProxyEvent::Client { text: text.to_owned(), labels: self.request.labels };
        let actions = self.apply_event(event).await?;
        self.perform_actions(actions).await
    }

    /// Counts the exchange in the figures and the coverage of the page for people, and in the metrics. `took` is the
    /// time that it took, `is_failed` says whether it failed, and `message` is the message of the client.
    fn count(&self, took: Duration, is_failed: bool, message: &Value) {
        let (routes, ClientSettings { name, watch, .. }) = (self.routes, &self.request.client.spec);
        let figures = RequestFigures {
            client: name.clone(),
            took,
            is_failed,
            verdicts: self.verdicts.counts(),
            findings: self.verdicts.findings.clone(),
            ..RequestFigures::default()
        };
        routes.figures.count(&figures, Instant::now());
        routes.metrics.count_calls(name, &self.verdicts.by_tool, watch.is_some());
        if let Some(tool) = called_tool(message, &self.request.server.name) {
            // Other messages are judged like calls, under the names of their methods. The coverage leaves these out.
            let judged = self.verdicts.tools.iter().filter(|judged| **judged == tool);
            judged.for_each(|judged| routes.coverage.note_call(name, judged));
            routes.metrics.count_tool_time(name, &tool.to_string(), took);
        }
    }

    /// Writes the log line of a request, or of another message that failed. Also reports if the evaluation of a call
    /// reached a limit, such as the limit on fuel. `took` is the time that the message took, and `failure` why it
    /// failed, if it did.
    fn log(&self, took: Duration, is_request: bool, failure: Option<&RequestError>) {
        let McpRequest { client, server, conversation, .. } = self.request;
        let is_watching = client.spec.watch.is_some();
        let (client, log) = (&client.spec.name, &self.routes.log);
        // A notification that succeeds has no line.
        if is_request || failure.is_some() {
            let mut fields =
                vec![("conversation", conversation.as_str().into()), ("server", server.name.as_str().into())];
            fields.extend(is_watching.then(|| ("mode", "watch".into())));
            fields.extend(self.verdicts.fields());
            // The number of messages of the server.
            fields.push(("heard", self.received.into()));
            fields.push(("ms", millis(took)));
            let (event, sentence) = match failure {
                None => (log::LogEvent::Exchange, ""),
                Some(failure) => {
                    fields.push(("status", failure.status.as_u16().into()));
                    fields.extend(failure.detail.as_ref().map(|detail| ("detail", detail.as_str().into())));
                    match failure.cause {
                        // The database or the audit log failed.
                        RequestErrorCause::Store(why) => (log::LogEvent::Failure, why),
                        _ => (log::LogEvent::Refused, sentence_of(failure.status)),
                    }
                }
            };
            log.write(event, client, fields, sentence);
        }
        self.verdicts.report_limit(log, client, Some(conversation));
    }

    /// Performs actions in order: sends messages to the client and the server, and writes remarks to the operator's
    /// log. The answer to a sent message may lead to further actions, which are performed next. The future is boxed
    /// because reading a server's stream calls this method again.
    ///
    /// # Errors
    /// If an answer cannot be processed or stored; the remaining actions are then not performed.
    pub(super) fn perform_actions<'a>(
        &'a mut self,
        actions: Vec<ProxyAction>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        Box::pin(async move {
            let mut remaining: VecDeque<ProxyAction> = actions.into();
            while let Some(action) = remaining.pop_front() {
                let more = match action {
                    ProxyAction::Client(text) => self.send_to_client(text).await?,
                    ProxyAction::Server(text) => self.send_to_server(text).await?,
                    ProxyAction::Note(note) => {
                        self.routes.remark(&format!("{}: {note}", self.request.client.spec.name));
                        Vec::new()
                    }
                    // `conversation_inputs` has performed these actions while the conversation was locked.
                    ProxyAction::Ask(_) | ProxyAction::Pins(_) | ProxyAction::Unapproved { .. } => Vec::new(),
                };
                // In reverse, so that the first of them is performed next.
                more.into_iter().rev().for_each(|action| remaining.push_front(action));
            }
            Ok(())
        })
    }

    /// Sends a message to the client. If it is a question of the gateway, which is a request with a generated id,
    /// waits for the answer and returns the actions that result from it; other messages lead to no actions.
    async fn send_to_client(&mut self, text: String) -> Result<Vec<ProxyAction>, RequestError> {
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        let request_id = message.get("id").filter(|_| message.get("method").is_some());
        match request_id.filter(|id| is_generated_id(Some(id))) {
            Some(question_id) => self.ask_at_client(question_id, text).await,
            None => {
                // A message without a method is the answer, with which the reply ends.
                self.reply.send(text, message.get("method").is_none()).await;
                Ok(Vec::new())
            }
        }
    }
}

/// Returns the tool of the server that a message of the client calls; `None` for other messages.
fn called_tool(message: &Value, server: &str) -> Option<Tool> {
    let is_call = message.get("method").and_then(Value::as_str) == Some("tools/call");
    let name = message.pointer("/params/name").and_then(Value::as_str)?;
    is_call.then(|| Tool::of(server, name))
}
