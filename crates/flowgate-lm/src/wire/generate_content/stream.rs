//! Encodes and decodes streamed answers (server-sent events) of Gemini's API. The gateway encodes answers for its
//! clients; `RemoteModel` decodes the answers of a server. Each event has the form of a whole answer, but contains only
//! a piece of the content, so [`super::response`] does most of the work.

use serde_json::{Value, json};

use super::super::{EARLY, ReasoningOrder, ResponseHead, data};
use super::request::{call_part, text_part};
use super::response::{AnswerReader, event, finish, thought_part};
use crate::Error;
use crate::chat::{Completion, ReasoningPart};
use crate::model::Listener;
use crate::sse::SseEvent;

/// Encodes an answer as a stream of events. The items of `text_pieces` together are the text of the answer, and each of
/// them becomes one event. `head` has the answer's id and the name of the model, which each event repeats. `order` is
/// the position of the reasoning.
#[must_use]
pub fn encode_stream(
    completion: &Completion,
    text_pieces: &[&str],
    head: ResponseHead<'_>,
    order: ReasoningOrder,
) -> Vec<SseEvent> {
    // `text_part` and `call_part` look up the signatures of the text and of the calls in the reasoning.
    let thoughts: Vec<&ReasoningPart> = completion.thoughts.iter().collect();
    let texts = text_pieces.iter().map(|piece| json!({"text": piece}));
    let mut parts: Vec<Value> = Vec::new();
    match order {
        ReasoningOrder::First => parts.extend(thought_part(completion).into_iter().chain(texts)),
        ReasoningOrder::AfterText => parts.extend(texts.chain(thought_part(completion))),
    }
    // The pieces of the text have no signature. If the text has one, it follows in a part with an empty text.
    parts.extend(text_part("", &thoughts));
    parts.extend(completion.calls.iter().enumerate().map(|(index, call)| call_part(call, index, &thoughts)));
    let mut bodies: Vec<Value> = parts.into_iter().map(|part| event(&[part], head)).collect();
    // The last event has an empty text, as providers send it: some clients reject a content without parts.
    let mut last = event(&[json!({"text": ""})], head);
    finish(&mut last, completion);
    bodies.push(last);
    bodies.iter().map(|body| SseEvent::new("", body.to_string())).collect()
}

/// Decodes the events of one streamed answer.
#[derive(Debug, Default)]
pub struct StreamDecoder(AnswerReader);

impl StreamDecoder {
    /// Decodes the next event: adds its content to the completion, and passes the pieces to the listener. Events after
    /// the one with the finish reason, which ends the answer, are ignored.
    ///
    /// # Errors
    /// If the event violates the format, the server reports an error, or the listener cancels.
    pub fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error> {
        if self.0.is_done() { Ok(()) } else { self.0.read(&data(event)?, listener) }
    }

    /// Returns whether the answer is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.is_done()
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// If the stream ended before an event had a finish reason.
    pub fn finish(self) -> Result<Completion, Error> {
        self.0.finish().ok_or(EARLY)?
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Api, tests::streamed};
    use super::*;

    fn check(bodies: &[Value], expected: &str) {
        let events: Vec<SseEvent> = bodies.iter().map(|body| SseEvent::new("", body.to_string())).collect();
        assert_eq!(streamed(Api::GenerateContent, &events), expected, "{bodies:?}");
    }

    #[test]
    fn streams_of_servers() {
        let part = |part: Value| json!({"candidates": [{"content": {"parts": [part]}, "index": 0}]});
        let end = json!({"candidates": [{"finishReason": "STOP"}], "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 7}});
        let usage = json!({"usageMetadata": {"promptTokenCount": 2}});
        let (a, thought) = (part(json!({"text": "a"})), part(json!({"text": "t", "thought": true})));
        let call = part(json!({"functionCall": {"name": "f", "args": {"a": 1}}}));
        check(&[thought, a.clone(), usage, a.clone(), end.clone()], "End \"aa\" 3+7");
        check(&[call.clone(), call.clone(), end.clone()], r#"Calls "" 3+7 call_0=f{"a":1} call_1=f{"a":1}"#);
        // What follows the end is ignored.
        check(&[a.clone(), end, call.clone()], "End \"a\" 3+7");
        check(
            &[a, call],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(&[], "the model's answer is not complete: the stream of its server ended too early; try again");
        check(
            &[json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED"}})],
            "the model server is busy; try again later",
        );
        check(
            &[json!("text")],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
    }
}
