//! Encodes and decodes streamed answers (server-sent events) of OpenAI's chat completions. The gateway encodes answers
//! for its clients; `RemoteModel` decodes the answers of a server.

use serde_json::{Value, json};

use super::super::assembly::Assembly;
use super::super::fields;
use super::super::{EARLY, ResponseHead, correct_stop_reason, pieces, reported_error};
use super::response::{arguments, finish_reason, read_finish_reason, read_usage, usage};
use crate::Error;
use crate::chat::{Completion, Stop};
use crate::json::Json;
use crate::model::Listener;
use crate::sse::SseEvent;

/// Encodes an answer as a stream of chunks: a chunk with the role, one for each item of `text_pieces` (which together
/// are the text of the answer), the calls, and a chunk with the finish reason. If `with_usage` is true, a last chunk
/// reports the token usage.
#[must_use]
pub fn encode_stream(
    completion: &Completion,
    text_pieces: &[&str],
    head: ResponseHead<'_>,
    with_usage: bool,
) -> Vec<SseEvent> {
    // All chunks of an answer begin with the same fields. Their JSON is written as text, so that this beginning is
    // formatted only once.
    let (id, created, model) = (json!(head.id), head.created, json!(head.model));
    let begin = format!(
        r#"{{"id":{id},"object":"chat.completion.chunk","created":{created},"model":{model},"choices":["#
    );
    // Returns a chunk with the choice `choice` (JSON), or without a choice if `choice` is empty. If the client has
    // requested the usage, each chunk has the field `usage`, which is null in all chunks but the last.
    let chunk = |choice: &str, used_tokens: &Value| {
        let field = if with_usage { format!(r#","usage":{used_tokens}"#) } else { String::new() };
        SseEvent::new("", format!("{begin}{choice}]{field}}}"))
    };
    // Returns a chunk that adds `delta` to the message. `finish` is the finish reason; null in all such chunks but the
    // last.
    let delta = |delta: Value, finish: Value| {
        let choice = format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#);
        chunk(&choice, &Value::Null)
    };
    // The first chunk has the role. Its content is an empty text, or null if the message will have no content.
    let only_calls = completion.text.is_empty() && !completion.calls.is_empty();
    let initial_content =
        if only_calls || completion.stop == Stop::Refused { Value::Null } else { json!("") };
    let role = json!({"role": "assistant", "content": initial_content, "refusal": null});
    let mut events = vec![delta(role, Value::Null)];
    let key = if completion.stop == Stop::Refused { "refusal" } else { "content" };
    for piece in text_pieces {
        events.push(delta(json!({key: piece}), Value::Null));
    }
    // Each call begins with its id and its name; its arguments follow in pieces.
    for (index, call) in completion.calls.iter().enumerate() {
        let function = json!({"name": call.name, "arguments": ""});
        let first = json!({"index": index, "id": call.id, "type": "function", "function": function});
        events.push(delta(json!({"tool_calls": [first]}), Value::Null));
        for piece in pieces(&call.arguments) {
            let more = json!({"index": index, "function": {"arguments": piece}});
            events.push(delta(json!({"tool_calls": [more]}), Value::Null));
        }
    }
    events.push(delta(json!({}), json!(finish_reason(completion))));
    // The format requires the usage in a separate chunk without a choice.
    if with_usage {
        events.push(chunk("", &usage(completion.usage)));
    }
    events.push(SseEvent::new("", "[DONE]"));
    events
}

/// Decodes the chunks of one streamed answer.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    assembly: Assembly,
    /// The ids of the calls so far, as the server sent them: empty for a call without an id.
    ids: Vec<String>,
    /// Whether the answer contains a refusal.
    refused: bool,
    /// The stop reason, after the chunk that states it.
    finish: Option<Stop>,
    /// Whether the stream has ended with `[DONE]`.
    done: bool,
}

impl StreamDecoder {
    /// Decodes the next event: adds its chunk to the completion, and passes the pieces of the chunk to the listener.
    /// Events after `[DONE]`, which ends the stream, are ignored.
    ///
    /// # Errors
    /// If the event is not a valid chunk, the server reports an error, or the listener cancels.
    pub fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error> {
        if self.done {
            return Ok(());
        }
        if event.data.trim() == "[DONE]" {
            // If no chunk had a finish reason, the answer may be incomplete.
            self.done = self.finish.is_some();
            return if self.done { Ok(()) } else { Err(EARLY) };
        }
        // `Json` borrows from the text instead of copying it: an answer has many chunks.
        let chunk = Json::parse(&event.data).map_err(|_| {
            Error::Malformed("the `data` of a server-sent event is not valid JSON, or has a key twice")
        })?;
        if let Some(error) = fields::non_null_child(&chunk, "error") {
            return Err(reported_error(&error.to_value()));
        }
        if let Some(usage) = fields::non_null_child(&chunk, "usage") {
            self.assembly.completion.usage = read_usage(&usage.to_value());
        }
        let choices = fields::list(&chunk, "choices")
            .ok_or(Error::Malformed("the field `choices` of an event is missing or is not a list"))?;
        let choice = match choices {
            // The chunk contains only the usage.
            [] => return Ok(()),
            [choice] if choice.get("index").is_none_or(|index| index.to_value() == 0) => choice,
            _ => {
                return Err(Error::Malformed("`choices` has several items, or one whose `index` is not 0"));
            }
        };
        if let Some(delta) = choice.get("delta") {
            self.delta(delta, listener)?;
        }
        if let Some(reason) = fields::non_null_child(choice, "finish_reason") {
            self.finish = Some(read_finish_reason(Some(&reason.to_value()), self.refused)?);
        }
        Ok(())
    }

    /// Decodes the `delta` of a chunk: pieces of the text, of the refusal or of calls. The text of a refusal becomes
    /// text of the answer, and marks the answer as refused. Fails if the delta adds something although an earlier chunk
    /// had the finish reason.
    fn delta(&mut self, delta: &Json<'_>, listener: &mut dyn Listener) -> Result<(), Error> {
        let field = |key: &str| fields::text(delta, key);
        let calls = fields::list(delta, "tool_calls").unwrap_or_default();
        let is_empty = field("content").is_empty() && field("refusal").is_empty() && calls.is_empty();
        if self.finish.is_some() && !is_empty {
            return Err(Error::Malformed("the stream continues after the event with `finish_reason`"));
        }
        self.assembly.text(field("content"), listener)?;
        self.refused |= !field("refusal").is_empty();
        self.assembly.text(field("refusal"), listener)?;
        calls.iter().try_for_each(|call| self.call(call, listener))
    }

    /// Decodes the next piece of a call, and passes it to the listener. The `index` of the piece says to which call it
    /// belongs. Fails if that is uncertain, because the index is missing or skips a number, or the id or the name
    /// differs from that of earlier pieces: otherwise, pieces of two calls could form a call that the model did not
    /// make.
    fn call(&mut self, piece: &Json<'_>, listener: &mut dyn Listener) -> Result<(), Error> {
        if fields::non_null_child(piece, "type").is_some_and(|kind| kind.as_str() != Some("function")) {
            return Err(Error::Malformed("the `type` of a tool call is not `function`"));
        }
        let function = piece.get("function").unwrap_or(&Json::Null);
        let (id, name) = (fields::text(piece, "id"), fields::text(function, "name"));
        let index = match fields::non_null_child(piece, "index") {
            Some(index) => index.to_value().as_u64().and_then(|index| usize::try_from(index).ok()),
            // Servers that send each call in one piece may omit the index: a piece with a name then begins a new call.
            None if !name.is_empty() => Some(self.ids.len()),
            None => None,
        };
        let index = index.ok_or(Error::Malformed("a piece of a tool call has no valid `index`"))?;
        // The next unused index begins a new call; an index in use continues its call.
        if index == self.ids.len() {
            self.assembly.call(id, name, listener)?;
            self.ids.push(id.to_owned());
        } else {
            let known_id = self
                .ids
                .get(index)
                .ok_or(Error::Malformed("the indices of the tool calls are not consecutive"))?;
            let call = self.assembly.completion.calls.get(index);
            if !id.is_empty() && id != known_id {
                return Err(Error::Malformed(
                    "two pieces of one tool call (the same `index`) have different ids",
                ));
            }
            if !name.is_empty() && call.is_none_or(|call| call.name != name) {
                return Err(Error::Malformed(
                    "two pieces of one tool call (the same `index`) have different names",
                ));
            }
        }
        let more = arguments(function.get("arguments").map(Json::to_value).as_ref());
        self.assembly.arguments(index, &more, listener)
    }

    /// Returns whether the answer is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// If the stream ended before the answer was complete, or if the finish reason announces calls but the answer has
    /// none.
    pub fn finish(mut self) -> Result<Completion, Error> {
        if !self.done {
            return Err(EARLY);
        }
        self.assembly.completion.stop = self.finish.ok_or(EARLY)?;
        correct_stop_reason(self.assembly.completion)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::streamed;
    use super::*;
    use crate::wire;

    fn check(chunks: &[&str], expected: &str) {
        let events: Vec<SseEvent> = chunks.iter().map(|chunk| SseEvent::new("", *chunk)).collect();
        assert_eq!(streamed(wire::Api::ChatCompletions, &events), expected, "{chunks:?}");
    }

    #[test]
    fn streams_of_servers() {
        let end = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
        let a = r#"{"choices":[{"index":0,"delta":{"content":"a","reasoning_content":"r"}}]}"#;
        check(&[a, a, end, "[DONE]"], "End \"aa\"");
        check(
            &[a, end],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(
            &[a, "[DONE]"],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(
            &[a, end, a, "[DONE]"],
            "the model server sent an answer that cannot be read: the stream continues after the event with \
            `finish_reason`; check the address and the API of the model server",
        );
        check(
            &[end, r#"{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#, "[DONE]"],
            "End \"\" 3+4",
        );
        check(
            &["{"],
            "the model server sent an answer that cannot be read: the `data` of a server-sent event is not valid JSON, or \
            has a key twice; check the address and the API of the model server",
        );
        check(
            &[r#"{"choices":[],"choices":[]}"#],
            "the model server sent an answer that cannot be read: the `data` of a server-sent event is not valid JSON, or \
            has a key twice; check the address and the API of the model server",
        );
        check(
            &["{}"],
            "the model server sent an answer that cannot be read: the field `choices` of an event is missing or is not a list; check the \
            address and the API of the model server",
        );
        check(&[r#"{"error":{"code":503}}"#], "the model server is busy; try again later");
        check(
            &[r#"{"choices":[{"index":1,"delta":{"content":"b"}}]}"#],
            "the model server sent an answer that cannot be read: `choices` has several items, or one whose \
            `index` is not 0; check the address and the API of the model server",
        );
        let call = |call: &str| format!(r#"{{"choices":[{{"index":0,"delta":{{"tool_calls":[{call}]}}}}]}}"#);
        let begin = call(r#"{"index":0,"id":"c","function":{"name":"f","arguments":"{"}}"#);
        let more = call(r#"{"index":0,"id":"c","function":{"name":null,"arguments":"}"}}"#);
        check(&[&begin, &more, end, "[DONE]"], "Calls \"\" c=f{}");
        let other = call(r#"{"index":0,"id":"d","function":{"name":"f","arguments":"{}"}}"#);
        check(
            &[&begin, &other],
            "the model server sent an answer that cannot be read: two pieces of one tool call (the same `index`) \
            have different ids; check the address and the API of the model server",
        );
        let renamed = call(r#"{"index":0,"id":"c","function":{"name":"g","arguments":"{}"}}"#);
        check(
            &[&begin, &renamed],
            "the model server sent an answer that cannot be read: two pieces of one tool call (the same `index`) \
            have different names; check the address and the API of the model server",
        );
        let later = call(r#"{"index":2,"id":"d","function":{"name":"f","arguments":"{}"}}"#);
        check(
            &[&begin, &later],
            "the model server sent an answer that cannot be read: the indices of the tool calls are not \
            consecutive; check the address and the API of the model server",
        );
        let whole = call(r#"{"function":{"name":"g","arguments":{"a":1}}}"#);
        check(&[&whole, &whole, end, "[DONE]"], r#"Calls "" call_0=g{"a":1} call_1=g{"a":1}"#);
        let lost = call(r#"{"function":{"arguments":"}"}}"#);
        check(
            &[&begin, &lost],
            "the model server sent an answer that cannot be read: a piece of a tool call has no valid \
            `index`; check the address and the API of the model server",
        );
    }
}
