//! Adds a machine-readable status to an answer whose turn waits for a person: in headers, and in a field of the body or
//! of the last event of a stream. Clients of the model providers ignore both. The model routes call it.

use flowgate_lm::sse::SseEvent;
use serde_json::{Map, Value, json};

use crate::http::reply::HttpReply;
use flowgate_mcp::WAITING_STATUS;

/// The header with the status of the turn.
const STATUS: &str = "x-flowgate-status";
/// The header with the id of the question.
const QUESTION: &str = "x-flowgate-question";
/// The name of the field that a body or an event receives.
const FIELD: &str = "flowgate";

/// A turn that waits for a person to decide a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WaitingStatus {
    /// The id of the question.
    pub(crate) question: String,
}

impl WaitingStatus {
    /// Returns the JSON value of the field [`FIELD`]: the status, and the id of the question.
    fn value(&self) -> Value {
        json!({"status": WAITING_STATUS, "question": self.question})
    }

    /// Returns the status as headers.
    pub(crate) fn headers(&self) -> [(&'static str, String); 2] {
        [(STATUS, WAITING_STATUS.to_owned()), (QUESTION, self.question.clone())]
    }

    /// Adds the headers to an answer.
    pub(crate) fn add_to_reply(&self, reply: HttpReply) -> HttpReply {
        self.headers().into_iter().fold(reply, |reply, (name, value)| reply.with_header(name, &value))
    }

    /// Adds the status, as the field [`FIELD`], to a body that is a JSON object; any other body is left unchanged.
    pub(crate) fn add_to_body(&self, body: &mut Value) {
        if let Some(body) = body.as_object_mut() {
            self.insert(body);
        }
    }

    /// Adds the status, as the field [`FIELD`], to the last event whose data is a JSON object; events with other data,
    /// such as `[DONE]`, do not count.
    pub(crate) fn add_to_events(&self, events: &mut [SseEvent]) {
        for event in events.iter_mut().rev() {
            if let Ok(Value::Object(mut body)) = serde_json::from_str(&event.data) {
                self.insert(&mut body);
                event.data = Value::Object(body).to_string();
                return;
            }
        }
    }

    /// Sets the field [`FIELD`] of an object to the status.
    fn insert(&self, body: &mut Map<String, Value>) {
        body.insert(FIELD.to_owned(), self.value());
    }
}
