//! Encodes and decodes streamed answers (server-sent events) of OpenAI's Responses API. The gateway encodes answers for
//! its clients by [`encode_stream`]; `RemoteModel` decodes the answers of a server, event by event, with a
//! [`StreamDecoder`].

use serde_json::{Value, json};

use super::super::assembly::Assembly;
use super::super::fields;
use super::super::{EARLY, ReasoningOrder, ResponseHead, data, pieces, reported_error};
use super::item_ids::{call_id, message_id};
use super::response::{
    OutputItemKind, decode_response, encode_call, encode_message, encode_text, encode_thought, item_kind,
    output, read_thought, response, sent_arguments, status,
};
use crate::Error;
use crate::chat::{Completion, ReasoningPart, Stop};
use crate::model::Listener;
use crate::sse::SseEvent;

/// Encodes an answer as a stream of events. `text_pieces` are the pieces in which the text was or will be sent, with
/// one event each; together they are the text. `order` is the position of the reasoning.
#[must_use]
pub fn encode_stream(
    completion: &Completion,
    text_pieces: &[&str],
    head: ResponseHead<'_>,
    order: ReasoningOrder,
) -> Vec<SseEvent> {
    let mut events = Vec::new();
    // Adds an event with this name, the next number, and the fields of the object `rest`.
    let mut event = |name: &str, mut rest: Value| {
        let mut body = json!({"type": name, "sequence_number": events.len()});
        if let (Some(body), Some(rest)) = (body.as_object_mut(), rest.as_object_mut()) {
            body.append(rest);
        }
        events.push(SseEvent::new(name, body.to_string()));
    };
    let begun = response(completion, head, "in_progress", &[]);
    event("response.created", json!({"response": begun}));
    event("response.in_progress", json!({"response": begun}));
    let items = output(completion, head, order);
    // The reasoning, if it comes before the text.
    for (index, thought) in completion.thoughts.iter().enumerate().filter(|_| order == ReasoningOrder::First)
    {
        thought_events(head, index, (index, thought), &mut event);
    }
    // The text, which is one message item.
    let has_text = !completion.text.is_empty();
    // The index of the message item.
    let message_index = if order == ReasoningOrder::First { completion.thoughts.len() } else { 0 };
    if let (true, Some(whole)) = (has_text, items.get(message_index)) {
        let position =
            json!({"output_index": message_index, "item_id": message_id(head), "content_index": 0});
        // Returns the fields of an event of the text: its position, and the field `key`.
        let with = |key: &str, value: Value| {
            let mut body = position.clone();
            super::super::put(&mut body, key, value);
            body
        };
        // The word for the text in the names of events, and the field with the whole text in the event that ends the
        // text.
        let (kind, done) = match completion.stop {
            Stop::Refused => ("refusal", "refusal"),
            _ => ("output_text", "text"),
        };
        let empty = encode_message(head, "in_progress", &[]);
        event("response.output_item.added", json!({"output_index": message_index, "item": empty}));
        event("response.content_part.added", with("part", encode_text(completion, "")));
        for piece in text_pieces {
            let mut body = with("delta", json!(piece));
            if kind == "output_text" {
                super::super::put(&mut body, "logprobs", json!([]));
            }
            event(&format!("response.{kind}.delta"), body);
        }
        let mut body = with(done, json!(completion.text));
        if kind == "output_text" {
            super::super::put(&mut body, "logprobs", json!([]));
        }
        event(&format!("response.{kind}.done"), body);
        event("response.content_part.done", with("part", encode_text(completion, &completion.text)));
        event("response.output_item.done", json!({"output_index": message_index, "item": whole}));
    }
    // The number of message items: 1 if there is a text, otherwise 0. Reasoning after the text follows these items.
    let message_count = usize::from(has_text);
    for (index, thought) in
        completion.thoughts.iter().enumerate().filter(|_| order == ReasoningOrder::AfterText)
    {
        thought_events(head, message_count + index, (index, thought), &mut event);
    }
    // The calls, which always come last.
    let first_call = message_count + completion.thoughts.len();
    for (index, call) in completion.calls.iter().enumerate() {
        // The index of the item in the output.
        let at = first_call + index;
        let id = call_id(head, index);
        let begun = encode_call(head, index, call, "", "in_progress");
        event("response.output_item.added", json!({"output_index": at, "item": begun}));
        let sent = sent_arguments(head, call);
        let is_custom = fields::text(&begun, "type") == "custom_tool_call";
        let kind = if is_custom { "custom_tool_call_input" } else { "function_call_arguments" };
        for piece in pieces(&sent) {
            let body = json!({"output_index": at, "item_id": id, "delta": piece});
            event(&format!("response.{kind}.delta"), body);
        }
        let body = match is_custom {
            true => json!({"output_index": at, "item_id": id, "input": sent}),
            false => {
                json!({"output_index": at, "item_id": id, "name": fields::text(&begun, "name"), "arguments": sent})
            }
        };
        event(&format!("response.{kind}.done"), body);
        let whole = encode_call(head, index, call, &sent, "completed");
        event("response.output_item.done", json!({"output_index": at, "item": whole}));
    }
    let status = status(completion);
    event(&format!("response.{status}"), json!({"response": response(completion, head, status, &items)}));
    events
}

/// Encodes `thought`, the part of the reasoning with the index `index`, as events, and passes the name and the fields
/// of each event to `event`. The item of the part has the index `at` in the output.
fn thought_events(
    head: ResponseHead<'_>,
    at: usize,
    (index, thought): (usize, &ReasoningPart),
    event: &mut impl FnMut(&str, Value),
) {
    let whole = encode_thought(head, index, thought);
    // The item as it begins: without its texts and its encrypted content.
    let begun = encode_thought(head, index, &ReasoningPart::default());
    let id = fields::text(&whole, "id");
    event("response.output_item.added", json!({"output_index": at, "item": begun}));
    for (number, text) in thought.texts.iter().enumerate() {
        // Returns the fields of an event of this text: its position, and the field `key`.
        let with = |key: &str, value: Value| json!({"item_id": id, "output_index": at, "summary_index": number, key: value});
        let part = |text: &str| json!({"type": "summary_text", "text": text});
        event("response.reasoning_summary_part.added", with("part", part("")));
        for piece in pieces(text) {
            event("response.reasoning_summary_text.delta", with("delta", json!(piece)));
        }
        event("response.reasoning_summary_text.done", with("text", json!(text)));
        event("response.reasoning_summary_part.done", with("part", part(text)));
    }
    event("response.output_item.done", json!({"output_index": at, "item": whole}));
}

/// A call that has begun, with every identifier by which later events may refer to it.
#[derive(Debug)]
struct StartedCall {
    /// The index of the call's item in the output, if the server states one.
    output_index: Option<u64>,
    /// The id of the call's item; may be empty.
    id: String,
    /// The id of the call; may be empty.
    call_id: String,
    /// The index of the call in the completion.
    call: usize,
}

/// Decodes a stream of events.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    assembly: Assembly,
    /// The calls that have begun.
    calls: Vec<StartedCall>,
    /// The whole answer, after the final event.
    done: Option<Completion>,
}

impl StreamDecoder {
    /// Decodes the next event: adds its content to the completion, and passes the pieces to the listener. Events after
    /// the end of the answer are ignored.
    ///
    /// # Errors
    /// If the event violates the format or is not in order, the server reports an error, or the listener cancels.
    pub fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error> {
        // Some servers also end streams of this format with `[DONE]`, as in chat completions.
        if self.done.is_some() || event.data.trim() == "[DONE]" {
            return Ok(());
        }
        let body = data(event)?;
        let text = |key: &str| fields::text(&body, key);
        match text("type") {
            "" => Err(Error::Malformed("an event of the stream has no `type`")),
            "response.output_item.added" => self.begin(&body, listener),
            "response.output_text.delta" | "response.refusal.delta" => {
                self.assembly.text(text("delta"), listener)
            }
            "response.function_call_arguments.delta" => {
                let call = self.call(&body).ok_or(Error::Malformed(
                    "an event of the stream adds arguments to a tool call that did not begin",
                ))?;
                self.assembly.arguments(call, text("delta"), listener)
            }
            "response.function_call_arguments.done" => {
                let call = self
                    .call(&body)
                    .ok_or(Error::Malformed("an event of the stream ends a tool call that did not begin"))?;
                self.assembly.complete_arguments(call, text("arguments"), listener)
            }
            "response.output_item.done" => self.end(&body, listener),
            "response.completed" | "response.incomplete" => self.complete(&body),
            "response.failed" => {
                let error = body.get("response").and_then(|response| response.get("error"));
                Err(reported_error(error.unwrap_or(&Value::Null)))
            }
            // The event itself describes the error. Some servers put the description into a field `error`, as in an
            // answer.
            "error" => {
                Err(reported_error(body.get("error").filter(|error| error.is_object()).unwrap_or(&body)))
            }
            // Events that only repeat others, and events of future versions of the format, are ignored.
            _ => Ok(()),
        }
    }

    /// Finds the call that an event is about, and returns the index of the call in the completion; `None` if no such
    /// call has begun. An event is about a call if both state the same index in the output. If one of them states no
    /// index, their ids must be equal; some servers send the id of the call in place of the id of its item.
    fn call(&self, body: &Value) -> Option<usize> {
        let (index, id) = (fields::count(body, "output_index"), fields::text(body, "item_id"));
        let is_same = |begun: &&StartedCall| match (index, begun.output_index) {
            (Some(index), Some(known)) => index == known,
            _ => !id.is_empty() && (begun.id == id || begun.call_id == id),
        };
        self.calls.iter().find(is_same).map(|begun| begun.call)
    }

    /// Decodes the beginning of an output item. A call is added to the completion. Other items are ignored: text
    /// arrives in its own events, and reasoning with the event that ends its item.
    fn begin(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        let item =
            body.get("item").ok_or(Error::Malformed("a `response.output_item.added` event has no `item`"))?;
        if item_kind(item)? != OutputItemKind::Call {
            return Ok(());
        }
        let field = |key: &str| fields::text(item, key);
        let output_index = fields::count(body, "output_index");
        // A call without an index is never the same as another one.
        let has_same_index =
            |begun: &StartedCall| output_index.is_some() && begun.output_index == output_index;
        if self.calls.iter().any(has_same_index) {
            return Err(Error::Malformed("two tool calls have the same `output_index`"));
        }
        let call = self.assembly.call(field("call_id"), field("name"), listener)?;
        let (id, call_id) = (field("id").to_owned(), field("call_id").to_owned());
        self.calls.push(StartedCall { output_index, id, call_id, call });
        self.assembly.arguments(call, field("arguments"), listener)
    }

    /// Decodes the event that ends an output item. For a call, the event repeats the arguments: they must equal the
    /// streamed arguments, or are added if none were streamed. For reasoning, this is the only event that is read. For
    /// a message, the event is ignored.
    fn end(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        let item =
            body.get("item").ok_or(Error::Malformed("a `response.output_item.done` event has no `item`"))?;
        match item_kind(item)? {
            OutputItemKind::Call => {}
            OutputItemKind::Message => return Ok(()),
            OutputItemKind::Thought => {
                return self.assembly.thought(read_thought(item), listener).map(|_| ());
            }
        }
        let field = |key: &str| fields::text(item, key);
        // The event has the whole item, and so the id of the call: some servers send no other identifier.
        let by_call_id = || {
            let has_call_id =
                |begun: &&StartedCall| !begun.call_id.is_empty() && begun.call_id == field("call_id");
            self.calls.iter().find(has_call_id).map(|begun| begun.call)
        };
        let call = self
            .call(body)
            .or_else(by_call_id)
            .ok_or(Error::Malformed("an event of the stream ends a tool call that did not begin"))?;
        self.assembly.complete_arguments(call, field("arguments"), listener)
    }

    /// Decodes the final event, which repeats the whole answer. Fails if the repeated text and calls differ from those
    /// that the listener has received.
    fn complete(&mut self, body: &Value) -> Result<(), Error> {
        let response = body
            .get("response")
            .ok_or(Error::Malformed("the final event of the stream has no `response`"))?;
        let mut end = decode_response(response)?;
        let streamed = &mut self.assembly.completion;
        if end.text != streamed.text || end.calls != streamed.calls {
            return Err(Error::Malformed(
                "the final event of the stream does not repeat the text and the calls that were streamed",
            ));
        }
        // Some servers do not repeat the reasoning.
        if end.thoughts.is_empty() {
            end.thoughts = std::mem::take(&mut streamed.thoughts);
        }
        self.done = Some(end);
        Ok(())
    }

    /// Returns whether the answer is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done.is_some()
    }

    /// Returns the answer.
    ///
    /// # Errors
    /// If the stream ended before the answer was complete.
    pub fn finish(self) -> Result<Completion, Error> {
        self.done.ok_or(EARLY)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Api, tests::streamed};
    use super::*;

    const TEXT: &str = r#"{"type":"response.output_text.delta","output_index":0,"delta":"a"}"#;
    const CALL: &str = r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":""}}"#;
    const MORE: &str =
        r#"{"type":"response.function_call_arguments.delta","output_index":1,"item_id":"fc","delta":"{}"}"#;

    fn end(output: &str) -> String {
        let usage = r#"{"input_tokens":1,"output_tokens":2}"#;
        format!(
            r#"{{"type":"response.completed","response":{{"status":"completed","output":[{output}],"usage":{usage}}}}}"#
        )
    }

    fn check(bodies: &[&str], expected: &str) {
        let events: Vec<SseEvent> = bodies.iter().map(|body| SseEvent::new("", *body)).collect();
        assert_eq!(streamed(Api::Responses, &events), expected, "{bodies:?}");
    }

    #[test]
    fn streams_of_servers() {
        let bad = |why: &str| {
            format!(
                "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
            )
        };
        let a = r#"{"type":"message","content":[{"type":"output_text","text":"a"}]}"#;
        let f = r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#;
        check(&[r#"{"type":"response.new"}"#, TEXT, &end(a)], "End \"a\" 1+2");
        check(&[TEXT, CALL, MORE, &end(&format!("{a},{f}")), "[DONE]"], "Calls \"a\" 1+2 c=f{}");
        check(
            &[TEXT, TEXT, &end(a)],
            &bad("the final event of the stream does not repeat the text and the calls that were streamed"),
        );
        check(
            &[CALL, &end(f)],
            &bad("the final event of the stream does not repeat the text and the calls that were streamed"),
        );
        check(
            &[TEXT],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(&[MORE], &bad("an event of the stream adds arguments to a tool call that did not begin"));
        check(&[CALL, CALL], &bad("two tool calls have the same `output_index`"));
        let done = r#"{"type":"response.function_call_arguments.done","output_index":1,"item_id":"fc","arguments":"{}"}"#;
        check(&[CALL, done, &end(f)], "Calls \"\" 1+2 c=f{}");
        check(&[CALL, MORE, done, &end(f)], "Calls \"\" 1+2 c=f{}");
        let other = done.replace("{}", "{ }");
        check(
            &[CALL, MORE, &other],
            &bad("the final arguments of a tool call differ from the arguments that were streamed"),
        );
        let item = r#"{"type":"response.output_item.done","item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#;
        check(&[CALL, item, &end(f)], "Calls \"\" 1+2 c=f{}");
        let by_id = MORE.replace(r#""output_index":1,"#, "");
        check(&[CALL, &by_id, &end(f)], "Calls \"\" 1+2 c=f{}");
        check(
            &[r#"{"type":"response.output_item.added","item":{"type":"mcp_call"}}"#],
            &bad("the `type` of an output item is not `message`, `function_call` or `reasoning`"),
        );
        check(
            &[r#"{"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"}}}"#],
            "the model server is busy; try again later",
        );
        check(
            &[r#"{"type":"error","code":"rate_limit_exceeded","message":"m"}"#],
            "the model server is busy; try again later",
        );
        check(&["{}"], &bad("an event of the stream has no `type`"));
    }
}
