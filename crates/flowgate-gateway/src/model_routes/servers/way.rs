//! The reply to a client of an MCP server: one message, or a stream of messages.
//!
//! `exchange` and `listening` write here.

use axum::http::StatusCode;
use flowgate_lm::sse::Event;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::upstream::SESSION;
use crate::model_routes::CONVERSATION;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::Failure;
use crate::reply::Reply;

/// The JSON-RPC code of an invalid request, for errors that precede the state machine.
const INVALID: i64 = -32600;

/// The reply to a client, until it is complete.
pub(super) struct Way {
    pub(super) parts: Sender<Part>,
    pub(super) streams: bool,
    headers: Vec<(&'static str, String)>,
    pub(super) status: StatusCode,
    has_begun: bool,
    /// Whether the client has disconnected.
    pub(super) is_lost: bool,
    answer: Option<String>,
}

impl Way {
    pub(super) fn new(parts: Sender<Part>, streams: bool, conversation: &str) -> Self {
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

    /// Sets the header with the server's id of the MCP session.
    pub(super) fn connection(&mut self, session: Option<String>) {
        self.headers.extend(session.map(|session| (SESSION, session)));
    }

    /// Sends a message. The answer is kept for the end; other messages are dropped unless the reply is a stream.
    pub(super) fn send(&mut self, text: String, is_answer: bool) {
        if is_answer {
            self.answer = Some(text);
        } else if self.streams {
            self.stream(&text);
        }
    }

    /// Begins a stream, whose first message may arrive late.
    pub(super) fn begin(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            let headers = std::mem::take(&mut self.headers);
            self.put(Part::Begin(headers));
        }
    }

    fn stream(&mut self, text: &str) {
        self.begin();
        let event = Event::new("message", text).encode();
        self.put(Part::Bytes(event.into_bytes()));
    }

    fn put(&mut self, part: Part) {
        self.is_lost |= self.parts.blocking_send(part).is_err();
    }

    pub(super) fn finish(mut self, is_request: bool) -> Option<Reply> {
        match self.answer.take() {
            Some(answer) if self.has_begun => {
                self.stream(&answer);
                None
            }
            Some(answer) => {
                // An error without an id refers to the message that was sent.
                let message: Value = serde_json::from_str(&answer).unwrap_or_default();
                if message.get("error").is_some() && message.get("id").is_none_or(Value::is_null) {
                    self.status = StatusCode::BAD_REQUEST;
                }
                Some(self.dressed(Reply::json_text(self.status, answer)))
            }
            None if self.has_begun => None,
            None if is_request => {
                Some(self.dressed(refusal(StatusCode::INTERNAL_SERVER_ERROR, "there is no answer")))
            }
            None => Some(self.dressed(Reply::nothing(StatusCode::ACCEPTED))),
        }
    }

    pub(super) fn fail(mut self, failure: &Failure, id: Option<&Value>) -> Option<Reply> {
        if self.has_begun {
            let mut error = error(&failure.message);
            if let (Some(error), Some(id)) = (error.as_object_mut(), id) {
                error.insert("id".to_owned(), id.clone());
            }
            self.stream(&error.to_string());
            return None;
        }
        Some(self.dressed(refusal(failure.status, &failure.message)))
    }

    fn dressed(&self, reply: Reply) -> Reply {
        self.headers.iter().fold(reply, |reply, (name, value)| reply.named(name, value))
    }
}

/// Builds the event that ends a broken stream.
pub(crate) fn broken_off(why: &str) -> Event {
    Event::new("message", error(why).to_string())
}

fn error(why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": INVALID, "message": why}})
}

/// Builds a JSON-RPC error with an HTTP status.
pub(super) fn refusal(status: StatusCode, why: &str) -> Reply {
    let reply = Reply::json(status, &error(why));
    match status {
        StatusCode::TOO_MANY_REQUESTS => reply.named("retry-after", "1"),
        _ => reply,
    }
}
