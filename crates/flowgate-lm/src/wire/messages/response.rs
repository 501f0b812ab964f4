//! Encodes and decodes answers of Anthropic's Messages API that are not streamed. The gateway encodes answers for its
//! clients; `RemoteModel` decodes the answers of a server. Streams contain some of the same objects, so
//! [`super::stream`] calls this module as well.

use serde_json::{Value, json};

use super::super::assembly::{MAX_THOUGHTS, TOO_MANY_CALLS, TOO_MANY_THOUGHTS, call_id_or_index};
use super::super::fields::{self, called_tool_name};
use super::super::{MAX_CALLS, ResponseHead, correct_stop_reason, put, reported_error};
use super::citations::{encode_citation, text_pieces};
use super::request::{shown_block, tool_use};
use crate::Error;
use crate::chat::{Completion, ReasoningPart, Seal, Stop, ToolCall, Usage};

/// The field of an answer that contains the verdicts on its calls.
pub(super) const SAFEGUARD_RESULTS: &str = "safeguard_results";

/// Encodes the body of an answer. The reasoning, the text and the calls are blocks of the list `content`. A text with
/// citations is divided into several blocks, one for each cited piece and for each text between them.
#[must_use]
pub fn encode_response(completion: &Completion, head: ResponseHead<'_>) -> Value {
    let text = text_pieces(&completion.text, &completion.citations).into_iter().map(|(text, citations)| {
        let mut block = json!({"type": "text", "text": text});
        if !citations.is_empty() {
            put(&mut block, "citations", citations.iter().map(encode_citation).collect::<Vec<_>>());
        }
        block
    });
    let thoughts = completion.thoughts.iter().map(shown_block);
    let content: Vec<Value> = thoughts.chain(text).chain(completion.calls.iter().map(tool_use)).collect();
    let mut body = json!({
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": content,
        "stop_reason": stop_reason(completion.stop),
        "stop_sequence": null,
        "usage": {"input_tokens": completion.usage.input, "output_tokens": completion.usage.output},
    });
    // The verdicts on the calls, if the client has asked for them.
    if let Some(results) = head.tools.safeguard_results(&completion.calls) {
        put(&mut body, SAFEGUARD_RESULTS, results);
    }
    body
}

/// Returns the `stop_reason` of an answer: the reason why the model stopped, in the words of this format.
pub(super) fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Refused => "refusal",
    }
}

/// Decodes the body of an answer, except its citations. Citations refer to documents of the request, so a caller that
/// knows these documents reads the citations by `reported_citations`.
///
/// # Errors
/// If the body describes an error, or violates the format.
pub fn decode_response(body: &Value) -> Result<Completion, Error> {
    if let Some(error) = fields::non_null_child(body, "error") {
        return Err(reported_error(error));
    }
    let mut completion = Completion::default();
    for block in fields::list(body, "content")
        .ok_or(Error::Malformed("the field `content` of the answer is missing or is not a list"))?
    {
        let field = |key: &str| fields::text(block, key);
        match block_kind(block)? {
            BlockKind::Text => completion.text.push_str(field("text")),
            BlockKind::Use => {
                let index = completion.calls.len();
                if index >= MAX_CALLS {
                    return Err(TOO_MANY_CALLS);
                }
                let name = called_tool_name(block)?.to_owned();
                let input = block.get("input").filter(|input| input.is_object());
                let arguments =
                    input.ok_or(Error::Malformed("the `input` of a tool call is not an object"))?.to_string();
                completion.calls.push(ToolCall { id: call_id_or_index(field("id"), index), name, arguments });
            }
            BlockKind::Thought => completion.thoughts.push(read_thought(block)),
        }
        if completion.thoughts.len() > MAX_THOUGHTS {
            return Err(TOO_MANY_THOUGHTS);
        }
    }
    completion.stop = read_stop_reason(body.get("stop_reason"))?;
    completion.usage = read_usage(body.get("usage"), Usage::default());
    correct_stop_reason(completion)
}

/// Decodes the part of the reasoning that a block contains. In a stream, the block has only the beginning of the part,
/// and events add the rest. The author of the part is left empty, since the block does not name the model; the caller
/// sets it.
pub(super) fn read_thought(block: &Value) -> ReasoningPart {
    let field = |key: &str| fields::text(block, key).to_owned();
    if fields::text(block, "type") == "redacted_thinking" {
        return ReasoningPart { seal: Seal::Redacted(field("data")), ..ReasoningPart::default() };
    }
    let texts = Some(field("thinking")).filter(|text| !text.is_empty());
    ReasoningPart {
        texts: texts.into_iter().collect(),
        seal: Seal::Signature(field("signature")),
        author: String::new(),
    }
}

/// The kind of a block of an answer's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockKind {
    /// A piece of the answer's text.
    Text,
    /// A tool call.
    Use,
    /// A part of the model's reasoning.
    Thought,
}

/// Returns the kind of a block. Fails for an unknown kind: such a block would come from a tool of the provider,
/// although the request offered none.
pub(super) fn block_kind(block: &Value) -> Result<BlockKind, Error> {
    match fields::text(block, "type") {
        "text" => Ok(BlockKind::Text),
        "tool_use" => Ok(BlockKind::Use),
        "thinking" | "redacted_thinking" => Ok(BlockKind::Thought),
        _ => Err(Error::Malformed("the `type` of a content block is not `text`, `tool_use` or `thinking`")),
    }
}

/// Decodes a `stop_reason`. An unknown reason is an error, since the answer may then be incomplete.
pub(super) fn read_stop_reason(reason: Option<&Value>) -> Result<Stop, Error> {
    match reason.and_then(Value::as_str) {
        Some("end_turn" | "stop_sequence") => Ok(Stop::End),
        Some("tool_use") => Ok(Stop::Calls),
        Some("max_tokens" | "model_context_window_exceeded") => Ok(Stop::Length),
        Some("refusal") => Ok(Stop::Refused),
        _ => Err(Error::Malformed("the `stop_reason` is missing, or is one that Flowgate does not know")),
    }
}

/// Decodes the token usage. An absent count is taken from `before`, the usage that earlier events of a stream reported.
/// The server does not include input tokens that it wrote to its cache or read from it in `input_tokens`, so they are
/// added. If `input_tokens` is absent, the counts of cached tokens are ignored, since `before` contains them already.
pub(super) fn read_usage(usage: Option<&Value>, before: Usage) -> Usage {
    let count = |key: &str| usage.and_then(|usage| fields::count(usage, key));
    let written = count("cache_creation_input_tokens").unwrap_or(0);
    let read = count("cache_read_input_tokens").unwrap_or(0);
    let (input, cached) = match count("input_tokens") {
        Some(input) => (input.saturating_add(written).saturating_add(read), read),
        None => (before.input, before.cached),
    };
    Usage { input, output: count("output_tokens").unwrap_or(before.output), cached }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let shown = match decode_response(&serde_json::from_str(body).unwrap()) {
            Ok(answer) => format!(
                "{:?} {:?} {}+{} {}",
                answer.stop,
                answer.text,
                answer.usage.input,
                answer.usage.output,
                answer
                    .calls
                    .iter()
                    .map(|call| format!("{}={}{}", call.id, call.name, call.arguments))
                    .collect::<String>()
            ),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown.trim_end(), expected, "{body}");
    }

    #[test]
    fn answers_are_decoded_or_refused() {
        let bad = |why: &str| {
            format!(
                "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
            )
        };
        check(
            r#"{"content":[{"type":"thinking","thinking":"t"},{"type":"text","text":"a","citations":null},{"type":"text","text":"b"}],"stop_reason":"stop_sequence",
                "usage":{"input_tokens":1,"cache_read_input_tokens":10,"cache_creation_input_tokens":100,"output_tokens":5}}"#,
            "End \"ab\" 111+5",
        );
        check(
            r#"{"content":[{"type":"tool_use","id":"","name":"f","input":{"a": 1}}],"stop_reason":"tool_use"}"#,
            r#"Calls "" 0+0 call_0=f{"a":1}"#,
        );
        check(
            r#"{"content":[],"stop_reason":"tool_use"}"#,
            &bad("the answer ends with a request for tool calls, but contains no call"),
        );
        check(
            r#"{"content":[],"stop_reason":"pause_turn"}"#,
            &bad("the `stop_reason` is missing, or is one that Flowgate does not know"),
        );
        check(r#"{"content":[],"stop_reason":"model_context_window_exceeded"}"#, "Length \"\" 0+0");
        check(
            r#"{"content":[{"type":"server_tool_use"}]}"#,
            &bad("the `type` of a content block is not `text`, `tool_use` or `thinking`"),
        );
        check(
            r#"{"content":[{"type":"tool_use","name":"f","input":"x"}]}"#,
            &bad("the `input` of a tool call is not an object"),
        );
        check(
            r#"{"type":"error","error":{"type":"authentication_error"}}"#,
            "the model's server rejected the request with the HTTP status 401 (authentication_error); see the documentation of its API",
        );
        check("3", &bad("the field `content` of the answer is missing or is not a list"));
    }
}
