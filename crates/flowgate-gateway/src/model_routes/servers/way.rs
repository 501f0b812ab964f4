//! How a client is answered: in one message, or in a stream of them.

use axum::http::StatusCode;
use flowgate_lm::sse::Event;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use super::upstream::SESSION;
use crate::model_routes::CONVERSATION;
use crate::model_routes::stream::Part;
use crate::model_routes::turn::Failure;
use crate::reply::Reply;

/// What JSON-RPC calls a request that is refused for what stands beside it.
const INVALID: i64 = -32600;

/// The way back to the client: one message, or a stream of them.
pub(super) struct Way {
    pub(super) parts: Sender<Part>,
    pub(super) streams: bool,
    headers: Vec<(&'static str, String)>,
    pub(super) status: StatusCode,
    has_begun: bool,
    /// Nobody reads any more.
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

    /// What the server calls the connection.
    pub(super) fn connection(&mut self, session: Option<String>) {
        self.headers.extend(session.map(|session| (SESSION, session)));
    }

    /// Sends a message: the answer last. What is no answer can only be streamed.
    pub(super) fn send(&mut self, text: String, is_answer: bool) {
        if is_answer {
            self.answer = Some(text);
        } else if self.streams {
            self.stream(&text);
        }
    }

    /// Begins a stream, in which nothing may come for long.
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
                // What nobody has asked for can only be about what was sent.
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

/// What ends a stream whose answer cannot go on.
pub(crate) fn broken_off(why: &str) -> Event {
    Event::new("message", error(why).to_string())
}

fn error(why: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": null, "error": {"code": INVALID, "message": why}})
}

/// A refusal that says so to HTTP as well.
pub(super) fn refusal(status: StatusCode, why: &str) -> Reply {
    let reply = Reply::json(status, &error(why));
    match status {
        StatusCode::TOO_MANY_REQUESTS => reply.named("retry-after", "1"),
        _ => reply,
    }
}
