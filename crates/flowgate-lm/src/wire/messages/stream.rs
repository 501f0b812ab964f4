//! Encodes and decodes streamed answers (server-sent events) of Anthropic's Messages API. The gateway encodes answers
//! for its clients by [`encode_stream`]; `RemoteModel` decodes the answers of a server, event by event, with a
//! [`StreamDecoder`].

use serde_json::{Value, json};

use super::super::assembly::Assembly;
use super::super::fields;
use super::super::{
    EARLY, ReasoningOrder, ReportedPiece, ResponseHead, arguments_object, correct_stop_reason, data, pieces,
    put, reported_error,
};
use super::citations::{CitationReader, encode_citation, text_pieces};
use super::request::shown_block;
use super::response::{
    BlockKind, SAFEGUARD_RESULTS, block_kind, read_stop_reason, read_thought, read_usage, stop_reason,
};
use crate::Error;
use crate::chat::{Completion, ReasoningPart, ReportedCitation, Stop, Usage};
use crate::model::Listener;
use crate::sse::SseEvent;

/// The most blocks of one answer.
const MAX_BLOCKS: usize = 4096;

/// Encodes an answer as a stream of events. `written` are the pieces in which the text was or will be sent, with one
/// event each; together they are the text. `order` is the position of the reasoning. A text with citations is divided
/// at its citations instead, into several blocks, as in an answer that is not streamed.
#[must_use]
pub fn encode_stream(
    completion: &Completion,
    written: &[&str],
    head: ResponseHead<'_>,
    order: ReasoningOrder,
) -> Vec<SseEvent> {
    // Returns an event with this name, and with the fields of the object `rest`.
    let event = |name: &str, mut rest: Value| {
        let mut body = json!({"type": name});
        if let (Some(body), Some(rest)) = (body.as_object_mut(), rest.as_object_mut()) {
            body.append(rest);
        }
        SseEvent::new(name, body.to_string())
    };
    let message = json!({
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": {"input_tokens": completion.usage.input, "output_tokens": 0},
    });
    let mut events = vec![event("message_start", json!({"message": message})), event("ping", json!({}))];
    let mut index = 0_u64;
    // Adds the events of a content block, which begins as `begin` and is completed by `deltas`.
    let mut block = |(begin, deltas): (Value, Vec<Value>)| {
        events.push(event("content_block_start", json!({"index": index, "content_block": begin})));
        for delta in deltas {
            events.push(event("content_block_delta", json!({"index": index, "delta": delta})));
        }
        events.push(event("content_block_stop", json!({"index": index})));
        index += 1;
    };
    // The blocks in their order: the reasoning before or after the text, then the calls.
    let thoughts = completion.thoughts.iter().map(thought_events);
    let text = text_events(completion, written).into_iter();
    match order {
        ReasoningOrder::First => thoughts.chain(text).for_each(&mut block),
        ReasoningOrder::AfterText => text.chain(thoughts).for_each(&mut block),
    }
    for call in &completion.calls {
        // Arguments that are a JSON object are sent exactly as the model wrote them; others are wrapped in an object.
        let object = arguments_object(&call.arguments);
        let is_object = serde_json::from_str::<Value>(&call.arguments).is_ok_and(|value| value == object);
        let json = if is_object { call.arguments.clone() } else { object.to_string() };
        let delta = |piece: &&str| json!({"type": "input_json_delta", "partial_json": piece});
        let begin = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
        block((begin, pieces(&json).iter().map(delta).collect()));
    }
    let mut delta = json!({"stop_reason": stop_reason(completion.stop), "stop_sequence": null});
    if let Some(results) = head.tools.safeguard_results(&completion.calls) {
        put(&mut delta, SAFEGUARD_RESULTS, results);
    }
    // The last events repeat the usage of the whole answer, since the first event may not have it: if an answer is
    // streamed before it is complete, its tokens are not counted yet.
    let Usage { input, output, .. } = completion.usage;
    let usage = json!({"input_tokens": input, "output_tokens": output});
    events.push(event("message_delta", json!({"delta": delta, "usage": usage})));
    events.push(event("message_stop", json!({})));
    events
}

/// Returns the blocks of the text, each as it begins in a stream, with the deltas that complete it: none without a text,
/// and several for a text with citations. `written` are the pieces of a text without citations.
fn text_events(completion: &Completion, written: &[&str]) -> Vec<(Value, Vec<Value>)> {
    let text_delta = |piece: &&str| json!({"type": "text_delta", "text": piece});
    let begin = || json!({"type": "text", "text": ""});
    if completion.citations.is_empty() {
        if completion.text.is_empty() {
            return Vec::new();
        }
        return vec![(begin(), written.iter().map(text_delta).collect())];
    }
    let mut blocks = Vec::new();
    for (text, citations) in text_pieces(&completion.text, &completion.citations) {
        let mut deltas: Vec<Value> = pieces(text).iter().map(text_delta).collect();
        let cited = citations.iter().map(encode_citation);
        deltas.extend(cited.map(|citation| json!({"type": "citations_delta", "citation": citation})));
        blocks.push((begin(), deltas));
    }
    blocks
}

/// Returns the block with which a part of the reasoning begins in a stream, and the deltas that complete it.
fn thought_events(thought: &ReasoningPart) -> (Value, Vec<Value>) {
    let whole = shown_block(thought);
    if fields::text(&whole, "type") == "redacted_thinking" {
        // Redacted reasoning has no readable text, so the block is sent as a whole.
        return (whole, Vec::new());
    }
    let text = |piece: &&str| json!({"type": "thinking_delta", "thinking": piece});
    let mut deltas: Vec<Value> = pieces(fields::text(&whole, "thinking")).iter().map(text).collect();
    deltas.push(json!({"type": "signature_delta", "signature": fields::text(&whole, "signature")}));
    (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
}

/// A block of the streamed answer that has begun. It may also have ended.
#[derive(Debug)]
struct StartedBlock {
    kind: BlockKind,
    /// The index of the call or of the part of the reasoning in the completion; the position of a text in the text of
    /// the completion.
    index: usize,
    /// Whether the block has ended.
    ended: bool,
    /// The citations of a text.
    citations: Vec<ReportedCitation>,
}

/// Decodes a stream of events.
#[derive(Debug, Default)]
pub struct StreamDecoder {
    assembly: Assembly,
    /// Whether the event `message_start` has arrived.
    begun: bool,
    /// The blocks of the answer that have begun, by their index.
    blocks: Vec<StartedBlock>,
    /// Reads the citations, and counts them.
    citations: CitationReader,
    /// The citations of the text blocks that have ended, each with the position of the block in the text.
    cited: Vec<ReportedPiece>,
    /// The stop reason, after the event that states it.
    stop: Option<Stop>,
    /// Whether the event `message_stop` has arrived.
    done: bool,
}

impl StreamDecoder {
    /// Decodes the next event: adds its content to the completion, and passes the pieces to the listener. Events after
    /// the end of the answer are ignored.
    ///
    /// # Errors
    /// If the event violates the format or is not in order, the server reports an error, or the listener cancels.
    pub fn feed(&mut self, event: &SseEvent, listener: &mut dyn Listener) -> Result<(), Error> {
        if self.done {
            return Ok(());
        }
        let body = data(event)?;
        let name = body.get("type").and_then(Value::as_str);
        let name = name.ok_or(Error::Malformed("an event of the stream has no `type`"))?;
        let needs_start = matches!(
            name,
            "content_block_start"
                | "content_block_delta"
                | "content_block_stop"
                | "message_delta"
                | "message_stop"
        );
        if needs_start && !self.begun {
            return Err(Error::Malformed("an event of the stream came before `message_start`"));
        }
        match name {
            "message_start" if self.begun => {
                Err(Error::Malformed("the stream has two events `message_start`"))
            }
            "message_start" => {
                self.begun = true;
                let usage = body.get("message").and_then(|message| message.get("usage"));
                self.assembly.completion.usage = read_usage(usage, self.assembly.completion.usage);
                Ok(())
            }
            "content_block_start" => self.begin(&body, listener),
            "content_block_delta" => self.delta(&body, listener),
            "content_block_stop" => self.end(&body, listener),
            "message_delta" => {
                let delta = body.get("delta");
                if let Some(reason) = delta.and_then(|delta| fields::non_null_child(delta, "stop_reason")) {
                    self.stop = Some(read_stop_reason(Some(reason))?);
                }
                self.assembly.completion.usage =
                    read_usage(body.get("usage"), self.assembly.completion.usage);
                Ok(())
            }
            "message_stop" => {
                if self.stop.is_none() || self.blocks.iter().any(|block| !block.ended) {
                    return Err(EARLY);
                }
                self.done = true;
                Ok(())
            }
            "error" => Err(reported_error(body.get("error").unwrap_or(&Value::Null))),
            // Pings, and events of future versions of the format, are ignored.
            _ => Ok(()),
        }
    }

    /// Decodes the beginning of a content block: a text, a call, or a part of the model's reasoning. The blocks must
    /// have consecutive indices.
    fn begin(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        if index(body)? != self.blocks.len() {
            return Err(Error::Malformed("the indices of the content blocks are not consecutive"));
        }
        if self.blocks.len() >= MAX_BLOCKS {
            return Err(Error::TooMany("4096 content blocks; ask for a shorter answer"));
        }
        let block = body
            .get("content_block")
            .ok_or(Error::Malformed("a `content_block_start` event has no `content_block`"))?;
        let field = |key: &str| fields::text(block, key);
        let kind = block_kind(block)?;
        // As in `StartedBlock`: the index of the call or of the part of the reasoning in the completion, or the
        // position of the text.
        let mut index = self.assembly.completion.text.len();
        let mut citations = Vec::new();
        match kind {
            BlockKind::Text => {
                citations = self.citations.read_block(block);
                self.assembly.text(field("text"), listener)?;
            }
            BlockKind::Use => {
                index = self.assembly.call(field("id"), field("name"), listener)?;
                // Some servers send the whole input at once.
                let input = block.get("input").and_then(Value::as_object).filter(|input| !input.is_empty());
                if let Some(input) = input {
                    let json = Value::Object(input.clone()).to_string();
                    self.assembly.arguments(index, &json, listener)?;
                }
            }
            BlockKind::Thought => index = self.assembly.thought(read_thought(block), listener)?,
        }
        self.blocks.push(StartedBlock { kind, index, ended: false, citations });
        Ok(())
    }

    /// Decodes a piece of an open block: of the text, of the arguments of a call, of the reasoning, or of the signature
    /// of the reasoning; or a citation of the text.
    fn delta(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        let block = self.blocks.get_mut(index(body)?).filter(|block| !block.ended);
        let block = block.ok_or(Error::Malformed(
            "a `content_block_delta` event has the index of a block that is not open",
        ))?;
        let delta =
            body.get("delta").ok_or(Error::Malformed("a `content_block_delta` event has no `delta`"))?;
        let field = |key: &str| fields::text(delta, key);
        match (field("type"), block.kind) {
            ("text_delta", BlockKind::Text) => self.assembly.text(field("text"), listener),
            ("input_json_delta", BlockKind::Use) => {
                let call = block.index;
                self.assembly.arguments(call, field("partial_json"), listener)
            }
            ("thinking_delta", BlockKind::Thought) => {
                let index = block.index;
                self.assembly.thought_text(index, field("thinking"), listener)
            }
            ("signature_delta", BlockKind::Thought) => {
                let index = block.index;
                self.assembly.signature(index, field("signature"))
            }
            // A known type of delta, but in a block of another type.
            ("text_delta" | "input_json_delta" | "thinking_delta" | "signature_delta", _) => {
                Err(Error::Malformed("the `delta` of a content block does not have the type of its block"))
            }
            ("citations_delta", BlockKind::Text) => {
                block
                    .citations
                    .extend(delta.get("citation").and_then(|citation| self.citations.read(citation)));
                Ok(())
            }
            // Deltas of other types, from future versions of the format, are ignored.
            _ => Ok(()),
        }
    }

    /// Decodes the end of an open block. Records the citations of a text with the position of the text. Gives an empty
    /// object to a call whose arguments are still empty. Fails if no block with the index of the event is open.
    fn end(&mut self, body: &Value, listener: &mut dyn Listener) -> Result<(), Error> {
        let block = self.blocks.get_mut(index(body)?).filter(|block| !block.ended);
        let block = block.ok_or(Error::Malformed(
            "a `content_block_stop` event has the index of a block that is not open",
        ))?;
        block.ended = true;
        let (kind, index) = (block.kind, block.index);
        let citations = std::mem::take(&mut block.citations);
        if !citations.is_empty() {
            let end = self.assembly.completion.text.len();
            self.cited.push(ReportedPiece { start: index, end, citations });
        }
        let calls = &self.assembly.completion.calls;
        // A server need not send pieces for a call without arguments, whose block begins with the input `{}`.
        if kind == BlockKind::Use && calls.get(index).is_some_and(|call| call.arguments.is_empty()) {
            self.assembly.arguments(index, "{}", listener)?;
        }
        Ok(())
    }

    /// Takes out the citations of the blocks that have ended.
    pub(crate) fn take_citations(&mut self) -> Vec<ReportedPiece> {
        std::mem::take(&mut self.cited)
    }

    /// Returns whether the answer is complete.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.done
    }

    /// Returns the answer, without its citations: these refer to documents by their positions in the request that was
    /// sent, so a caller that knows this request takes them by `take_citations`.
    ///
    /// # Errors
    /// If the stream ended before the answer was complete.
    pub fn finish(mut self) -> Result<Completion, Error> {
        if !self.done {
            return Err(EARLY);
        }
        self.assembly.completion.stop = self.stop.ok_or(EARLY)?;
        // Also fails for an answer that ends with the stop reason of calls but has no calls.
        correct_stop_reason(self.assembly.completion)
    }
}

/// Returns the index of the block that an event is about. Fails if the event has no valid index.
fn index(body: &Value) -> Result<usize, Error> {
    let index = fields::count(body, "index").and_then(|index| usize::try_from(index).ok());
    index.ok_or(Error::Malformed("an event of a content block has no valid `index`"))
}

#[cfg(test)]
mod tests {
    use super::super::super::{Api, tests::streamed};
    use super::*;

    const START: &str =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":3,"output_tokens":1}}}"#;
    const TEXT: &str =
        r#"{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}"#;
    const USE: &str = r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"u","name":"f","input":{}}}"#;
    const A: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}"#;
    const JSON: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{\"a\": 1}"}}"#;
    const END: &str = r#"{"type":"content_block_stop","index":0}"#;
    const DELTA: &str =
        r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}"#;
    const STOP: &str = r#"{"type":"message_stop"}"#;

    fn check(bodies: &[&str], expected: &str) {
        let events: Vec<SseEvent> = bodies.iter().map(|body| SseEvent::new("", *body)).collect();
        assert_eq!(streamed(Api::Messages, &events), expected, "{bodies:?}");
    }

    #[test]
    fn streams_of_servers() {
        let bad = |why: &str| {
            format!(
                "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
            )
        };
        let new = r#"{"type":"new"}"#;
        check(&[START, TEXT, A, new, A, END, DELTA, STOP], "End \"aa\" 3+7");
        check(&[START, USE, JSON, END, DELTA, STOP], r#"Calls "" 3+7 u=f{"a": 1}"#);
        check(&[START, USE, END, DELTA, STOP], r#"Calls "" 3+7 u=f{}"#);
        let thought = TEXT.replace(r#""type":"text","text":"""#, r#""type":"thinking""#);
        let think = A.replace("text_delta", "thinking_delta");
        check(&[START, &thought, &think, END, DELTA, STOP], "End \"\" 3+7");
        check(&[TEXT], &bad("an event of the stream came before `message_start`"));
        check(&[START, START], &bad("the stream has two events `message_start`"));
        check(&[START, A], &bad("a `content_block_delta` event has the index of a block that is not open"));
        check(
            &[START, TEXT, JSON],
            &bad("the `delta` of a content block does not have the type of its block"),
        );
        check(&[START, TEXT, TEXT], &bad("the indices of the content blocks are not consecutive"));
        check(
            &[START, TEXT, END, A],
            &bad("a `content_block_delta` event has the index of a block that is not open"),
        );
        check(
            &[START, TEXT, A, DELTA, STOP],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(
            &[START, TEXT, A, END, STOP],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(
            &[START, TEXT, A, END, DELTA],
            "the model's answer is not complete: the stream of its server ended too early; try again",
        );
        check(
            &[r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#],
            "the model server is busy; try again later",
        );
        check(&["{}"], &bad("an event of the stream has no `type`"));
    }
}
