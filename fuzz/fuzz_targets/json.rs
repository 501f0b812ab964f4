//! Generates and mutates JSON with the names that the wire formats use: all fields of requests that the decoders know, and
//! those of answers.

use std::sync::LazyLock;

use flowgate_lm::wire::{Api, embeddings, listed};
use serde_json::{Value, json};

use crate::bytes::Choices;

/// Changes one part.
pub(crate) fn edit(value: &mut Value, choices: &mut Choices<'_>) {
    let nth = choices.below(256) * 256 + choices.below(256);
    let mut left = nth % size(value);
    let Some(part) = at(value, &mut left) else { return };
    match (part, choices.below(6)) {
        (Value::Array(items), 0) => items.extend(items.last().cloned()),
        (Value::Array(items), 1) => drop(items.pop()),
        (Value::Object(fields), 0 | 1) => {
            fields.insert(choices.of(&KEYS).to_owned(), built(choices, 1));
        }
        (part, 2 | 3) => *part = json!(choices.of(&WORDS)),
        (part, 4) => *part = Value::Null,
        (part, _) => *part = built(choices, 4),
    }
}

/// Returns the number of parts.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.values().map(size).sum::<usize>(),
        _ => 1,
    }
}

/// Returns the part that `left` others precede.
fn at<'v>(value: &'v mut Value, left: &mut usize) -> Option<&'v mut Value> {
    if *left == 0 {
        return Some(value);
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().find_map(|item| at(item, left)),
        Value::Object(fields) => fields.values_mut().find_map(|field| at(field, left)),
        _ => None,
    }
}

/// Generates an arbitrary JSON value.
fn built(choices: &mut Choices<'_>, depth: usize) -> Value {
    match choices.below(if depth == 0 { 5 } else { 8 }) {
        0 => Value::Null,
        1 => Value::Bool(choices.below(2) == 0),
        2 => json!(choices.of(&[0.0, 0.5, 1e15, -1.0])),
        3 => json!(choices.of(&[0_u64, 1, 2, 7, 429, u64::MAX])),
        4 => json!(choices.of(&WORDS)),
        5 => json!(choices.text(6)),
        6 => (0..choices.below(4)).map(|_| built(choices, depth - 1)).collect(),
        _ => {
            let fields =
                (0..choices.below(8)).map(|_| (choices.of(&KEYS).to_owned(), built(choices, depth - 1)));
            Value::Object(fields.collect())
        }
    }
}

/// The names of fields: those of requests, as the decoders list them, and those of answers.
static KEYS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let listed = Api::ALL.into_iter().flat_map(listed).chain(embeddings::listed());
    let mut keys: Vec<&str> = ANSWER_KEYS.into_iter().chain(listed.map(|row| row.field)).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
});

/// The names of fields of answers, in addition to those that requests have as well.
#[rustfmt::skip]
const ANSWER_KEYS: [&str; 56] = [
    "type", "role", "content", "messages", "input", "output", "tools", "tool_calls", "function", "choices",
    "message", "delta", "index", "error", "code", "usage", "text", "id", "name", "arguments", "model",
    "status", "item", "response", "finish_reason", "stop_reason", "content_block", "max_tokens", "system",
    "source", "url", "image_url", "media_type", "data", "call_id", "item_id", "output_index", "partial_json",
    "refusal", "incomplete_details", "reason", "tool_choice", "tool_use_id", "tool_call_id", "is_error",
    "stop", "stop_sequences", "stream", "instructions", "description", "parameters", "input_schema",
    "input_tokens", "output_tokens", "prompt_tokens", "cache_read_input_tokens",
];

#[rustfmt::skip]
const WORDS: [&str; 56] = [
    "", "assistant", "user", "system", "developer", "tool", "text", "image", "image_url", "input_image",
    "input_text", "output_text", "refusal", "tool_use", "tool_result", "function", "function_call",
    "function_call_output", "message", "reasoning", "thinking", "message_start", "message_delta",
    "message_stop", "content_block_start", "content_block_delta", "content_block_stop", "text_delta",
    "input_json_delta", "response.completed", "response.incomplete", "response.failed",
    "response.output_text.delta", "response.output_item.added", "response.output_item.done",
    "response.function_call_arguments.delta", "response.function_call_arguments.done", "error", "completed",
    "incomplete", "max_output_tokens", "content_filter", "stop", "tool_calls", "length", "end_turn",
    "max_tokens", "url", "base64", "data:image/png;base64,AA", "https://a/b", "{\"a\": 1}", "{",
    "a;b,c", "\n\u{7f}\u{2028}", "[DONE]",
];
