//! Writes the reply to a client of an MCP server: one message, or a stream of messages. A listening stream begins at
//! once. Any other stream begins with the first message that precedes the answer: a failure before that is reported
//! with an HTTP status.
//!
//! `exchange`, `person_questions`, `server_requests` and `listening` call this module.

use axum::http::StatusCode;
use flowgate_lm::sse::SseEvent;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::upstream::SESSION;
use crate::chat::headers::CONVERSATION;
use crate::chat::stream::ReplyPart;
use crate::http::reply::HttpReply;
use crate::http::request_error::RequestError;
use crate::virtual_keys::scope::name_for_client;

/// The JSON-RPC code of an invalid request, for the errors that the HTTP routes report themselves. Errors of the
/// proxy have codes of their own.
const INVALID: i64 = -32600;

/// The reply to a client, until it is complete.
pub(super) struct PendingReply {
    pub(super) parts: Sender<ReplyPart>,
    /// Whether the reply may be a stream of messages.
    pub(super) streams: bool,
    headers: Vec<(&'static str, String)>,
    /// The HTTP status of an answer that is not a stream.
    pub(super) status: StatusCode,
    /// Whether the stream has begun: its status and headers are sent, and only messages can follow.
    has_begun: bool,
    /// Whether the client has disconnected.
    pub(super) is_lost: bool,
    /// The answer to the request, which is sent at the end.
    answer: Option<String>,
}

impl PendingReply {
    /// Creates a reply of which nothing is sent yet. `streams` says whether it may be a stream; a stream is sent to
    /// `parts`. A header of the reply has the name of the `conversation` in the form that the client knows.
    pub(super) fn new(parts: Sender<ReplyPart>, streams: bool, conversation: &str) -> Self {
        let headers = vec![(CONVERSATION, name_for_client(conversation).to_owned())];
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

    /// Sets the header with the server's id of the MCP session.
    pub(super) fn set_session_header(&mut self, session: Option<String>) {
        self.headers.extend(session.map(|session| (SESSION, session)));
    }

    /// Sends a message. `is_answer` says that it is the answer to the request, which is sent at the end of the reply.
    /// Any other message is sent at once if the reply may be a stream, and dropped otherwise.
    pub(super) async fn send(&mut self, text: String, is_answer: bool) {
        if is_answer {
            self.answer = Some(text);
        } else if self.streams {
            self.stream(&text).await;
        }
    }

    /// Begins the stream with its headers, so that the client receives them before the first message, which may arrive
    /// late. Does nothing if the stream has begun.
    pub(super) async fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let headers = std::mem::take(&mut self.headers);
            self.send_part(ReplyPart::Begin(headers)).await;
        }
    }

    /// Returns the channel to the client, once the stream has begun.
    pub(super) fn begun_parts(&self) -> Option<Sender<ReplyPart>> {
        self.has_begun.then(|| self.parts.clone())
    }

    /// Sends a message in the stream. Begins the stream first, if it has not begun.
    async fn stream(&mut self, text: &str) {
        self.begin().await;
        let event = SseEvent::new("message", text).encode();
        self.send_part(ReplyPart::Bytes(event.into_bytes())).await;
    }

    /// Sends a part of the stream, or notes that the client has disconnected. Waits here if the client reads slowly.
    async fn send_part(&mut self, part: ReplyPart) {
        if self.parts.send(part).await.is_err() {
            self.is_lost = true;
        }
    }

    /// Ends the reply. If the stream has begun, writes the answer to it and returns `None`; otherwise returns the
    /// answer as the reply. `is_request` says whether the client's message was a request; any other message has no
    /// answer, and is accepted with the status 202.
    pub(super) async fn finish(mut self, is_request: bool) -> Option<HttpReply> {
        match self.answer.take() {
            Some(answer) if self.has_begun => {
                self.stream(&answer).await;
                None
            }
            Some(answer) => {
                // An error without an id answers no request: it says that the message of the client was refused.
                let message: Value = serde_json::from_str(&answer).unwrap_or_default();
                if message.get("error").is_some() && message.get("id").is_none_or(Value::is_null) {
                    self.status = StatusCode::BAD_REQUEST;
                }
                Some(self.with_headers(HttpReply::json_text(self.status, answer)))
            }
            None if self.has_begun => None,
            None if is_request => Some(self.with_headers(error_reply(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the request ended without an answer because of a bug in the gateway, but may have taken effect: check that before you send it again, and report the bug",
            ))),
            None => Some(self.with_headers(HttpReply::empty(StatusCode::ACCEPTED))),
        }
    }

    /// Reports the failure of the client's message: as the reply or, if the stream has begun, as its last message.
    /// In the second case, the last message has the `id` of the request, and `None` is returned. `id` is `None` if
    /// the client's message was no request.
    pub(super) async fn fail(mut self, failure: &RequestError, id: Option<&Value>) -> Option<HttpReply> {
        if self.has_begun {
            let mut error = error(&failure.message);
            if let (Some(error), Some(id)) = (error.as_object_mut(), id) {
                error.insert("id".to_owned(), id.clone());
            }
            self.stream(&error.to_string()).await;
            return None;
        }
        Some(self.with_headers(error_reply(failure.status, &failure.message)))
    }

    /// Adds the headers to a reply that is not a stream.
    fn with_headers(&self, reply: HttpReply) -> HttpReply {
        self.headers.iter().fold(reply, |reply, (name, value)| reply.with_header(name, value))
    }
}

/// Returns whether a JSON-RPC id has the prefix that the gateway gives the ids of its own questions to the person at
/// the client.
pub(super) fn is_generated_id(id: Option<&Value>) -> bool {
    id.and_then(Value::as_str).is_some_and(|id| id.starts_with("flowgate-"))
}

/// Builds the event that ends a broken stream.
pub(crate) fn stream_error_event(why: &str) -> SseEvent {
    SseEvent::new("message", error(why).to_string())
}

/// Builds a JSON-RPC error that refers to no request.
fn error(why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": INVALID, "message": why}})
}

/// Builds a reply with an HTTP status and a JSON-RPC error. A reply with the status 429 tells the client to retry after
/// a second.
pub(super) fn error_reply(status: StatusCode, why: &str) -> HttpReply {
    let reply = HttpReply::json(status, &error(why));
    match status {
        StatusCode::TOO_MANY_REQUESTS => reply.with_header("retry-after", "1"),
        _ => reply,
    }
}
