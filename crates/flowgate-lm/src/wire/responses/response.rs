//! Encodes and decodes answers of OpenAI's Responses API that are not streamed. The gateway encodes answers for its
//! clients; `RemoteModel` decodes the answers of a server. Some events of a stream contain the same objects, so
//! [`super::stream`] uses this module as well.

use serde_json::{Value, json};

use super::super::assembly::{MAX_THOUGHTS, TOO_MANY_CALLS, TOO_MANY_THOUGHTS, call_id_or_index};
use super::super::fields::{self, called_tool_name};
use super::super::tool_forms::custom_input;
use super::super::{
    AnswerStorage, MAX_CALLS, ReasoningOrder, ResponseHead, correct_stop_reason, put, reported_error,
};
use super::item_ids::{call_id, message_id, thought_id};
use crate::Error;
use crate::chat::{Completion, ReasoningPart, Seal, Stop, ToolCall, Usage};

/// Encodes the body of an answer. The reasoning, the text and the calls are items of the list `output`.
#[must_use]
pub fn encode_response(completion: &Completion, head: ResponseHead<'_>) -> Value {
    let output = output(completion, head, ReasoningOrder::First);
    response(completion, head, status(completion), &output)
}

/// Encodes the object `response`: the body of an answer, or a field of events in a stream. `status` is `in_progress`,
/// `completed` or `incomplete`; `output` is the list of output items. The fields that only repeat the request have
/// constant values.
pub(super) fn response(
    completion: &Completion,
    head: ResponseHead<'_>,
    status: &str,
    output: &[Value],
) -> Value {
    // The reason why an answer is incomplete; it is not used for other answers.
    let reason = match completion.stop {
        Stop::Length => "max_output_tokens",
        _ => "content_filter",
    };
    let details = if status == "incomplete" { json!({"reason": reason}) } else { Value::Null };
    let usage = if status == "in_progress" { Value::Null } else { usage(completion.usage) };
    let (is_stored, previous) = match head.storage {
        AnswerStorage::NotStored => (false, None),
        AnswerStorage::Stored(previous) => (true, previous),
    };
    json!({
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": status,
        "error": null,
        "incomplete_details": details,
        "instructions": null,
        "max_output_tokens": null,
        "model": head.model,
        "output": output,
        "parallel_tool_calls": true,
        "previous_response_id": previous,
        "store": is_stored,
        "temperature": null,
        "tool_choice": "auto",
        "tools": [],
        "top_p": null,
        "metadata": {},
        "usage": usage,
    })
}

/// Returns the status of an answer. An answer that reached the token limit is incomplete. A refusal with a text is a
/// complete answer; a refusal without a text comes from the provider's filter, which cut the answer off.
pub(super) fn status(completion: &Completion) -> &'static str {
    match completion.stop {
        Stop::Length => "incomplete",
        Stop::Refused if completion.text.is_empty() => "incomplete",
        _ => "completed",
    }
}

/// Encodes the token usage. Clients expect the fields with details, but the gateway reports no details to them, so
/// these fields are 0.
fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input.saturating_add(usage.output),
    })
}

/// Encodes the items of an answer: the reasoning and the text, in the order that `order` states, and then the calls.
/// The text becomes one message item; an empty text becomes none.
pub(super) fn output(completion: &Completion, head: ResponseHead<'_>, order: ReasoningOrder) -> Vec<Value> {
    let message = (!completion.text.is_empty()).then(|| {
        let part = encode_text(completion, &completion.text);
        encode_message(
            head,
            if completion.stop == Stop::Length { "incomplete" } else { "completed" },
            &[part],
        )
    });
    let calls = completion.calls.iter().enumerate();
    let calls =
        calls.map(|(index, item)| encode_call(head, index, item, &sent_arguments(head, item), "completed"));
    let thoughts = completion.thoughts.iter().enumerate();
    let mut items: Vec<Value> =
        thoughts.map(|(index, thought)| encode_thought(head, index, thought)).collect();
    match order {
        ReasoningOrder::First => items.extend(message),
        // Inserts the message before the reasoning.
        ReasoningOrder::AfterText => items.splice(0..0, message).for_each(drop),
    }
    items.extend(calls);
    items
}

/// Encodes the part of the reasoning with the index `index` as an item for a client. The encrypted content is null if
/// the part has none, or if it does not come from a server of this format.
pub(super) fn encode_thought(head: ResponseHead<'_>, index: usize, thought: &ReasoningPart) -> Value {
    let summary = |text: &String| json!({"type": "summary_text", "text": text});
    let encrypted = match &thought.seal {
        Seal::Item { encrypted, .. } => encrypted.clone(),
        _ => None,
    };
    json!({
        "id": thought_id(head, index),
        "type": "reasoning",
        "summary": thought.texts.iter().map(summary).collect::<Vec<_>>(),
        "encrypted_content": encrypted,
    })
}

/// Encodes `text` as the only part of the message item. `text` is the whole text of the answer, or empty in the event
/// of a stream that begins the part. The text of a refusal becomes a part of another type.
pub(super) fn encode_text(completion: &Completion, text: &str) -> Value {
    match completion.stop {
        Stop::Refused => json!({"type": "refusal", "refusal": text}),
        // Clients expect the fields for annotations and log-probabilities, which a completion does not have.
        _ => json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []}),
    }
}

/// Encodes the message item of an answer with this `status` and the parts `content`.
pub(super) fn encode_message(head: ResponseHead<'_>, status: &str, content: &[Value]) -> Value {
    json!({
        "id": message_id(head),
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    })
}

/// Encodes the call with the index `index` as an item with this `status`. `arguments` are the arguments that were sent
/// so far. The item has the form in which the client declared the tool: the arguments of a custom tool are a text, and
/// the item of a tool in a namespace states the namespace and the name of the tool within it.
pub(super) fn encode_call(
    head: ResponseHead<'_>,
    index: usize,
    call: &ToolCall,
    arguments: &str,
    status: &str,
) -> Value {
    let form = head.tools.of(&call.name);
    let namespace = form.and_then(|form| form.namespace.as_ref());
    // The type of the item, and the name of the field with the arguments.
    let (kind, input) = match form {
        Some(form) if form.is_custom => ("custom_tool_call", "input"),
        _ => ("function_call", "arguments"),
    };
    let mut item = json!({
        "id": call_id(head, index),
        "type": kind,
        "status": status,
        "call_id": call.id,
        "name": namespace.map_or(&call.name, |(_, name)| name),
        input: arguments,
    });
    if let Some((namespace, _)) = namespace {
        put(&mut item, "namespace", namespace.as_str());
    }
    item
}

/// Returns the arguments of a call as a client expects them: JSON, or the plain text if the tool is a custom one.
pub(super) fn sent_arguments(head: ResponseHead<'_>, call: &ToolCall) -> String {
    match head.tools.of(&call.name) {
        Some(form) if form.is_custom => custom_input(&call.arguments),
        _ => call.arguments.clone(),
    }
}

/// Decodes the body of an answer.
///
/// # Errors
/// If the body describes an error, violates the format, or is not finished.
pub fn decode_response(body: &Value) -> Result<Completion, Error> {
    if let Some(error) = fields::non_null_child(body, "error") {
        return Err(reported_error(error));
    }
    let mut completion = Completion::default();
    let mut refused = false;
    let items = fields::list(body, "output")
        .ok_or(Error::Malformed("the field `output` of the answer is missing or is not a list"))?;
    for item in items {
        match item_kind(item)? {
            OutputItemKind::Message => refused |= read_message(item, &mut completion.text)?,
            OutputItemKind::Call => {
                let index = completion.calls.len();
                if index >= MAX_CALLS {
                    return Err(TOO_MANY_CALLS);
                }
                completion.calls.push(ToolCall {
                    id: call_id_or_index(fields::text(item, "call_id"), index),
                    name: called_tool_name(item)?.to_owned(),
                    arguments: fields::text(item, "arguments").to_owned(),
                });
            }
            OutputItemKind::Thought => completion.thoughts.push(read_thought(item)),
        }
        if completion.thoughts.len() > MAX_THOUGHTS {
            return Err(TOO_MANY_THOUGHTS);
        }
    }
    completion.stop = read_stop_reason(body, refused, !completion.calls.is_empty())?;
    completion.usage = read_usage(body);
    correct_stop_reason(completion)
}

/// Decodes the token counts of an answer; a count that the answer does not state is 0.
fn read_usage(body: &Value) -> Usage {
    let usage = body.get("usage").unwrap_or(&Value::Null);
    let count = |key: &str| fields::count(usage, key).unwrap_or(0);
    let cached =
        usage.get("input_tokens_details").and_then(|details| fields::count(details, "cached_tokens"));
    let (input, output) = (count("input_tokens"), count("output_tokens"));
    Usage { input, output, cached: cached.unwrap_or(0) }
}

/// Decodes the part of the reasoning that an item contains: its readable summaries, and its encrypted content if the
/// server returns it. The author of the part is left empty, since the item does not name the model; the caller sets it.
pub(super) fn read_thought(item: &Value) -> ReasoningPart {
    let summary = fields::list(item, "summary").unwrap_or_default().iter();
    let texts = summary.map(|part| fields::text(part, "text").to_owned()).filter(|text| !text.is_empty());
    let encrypted = Some(fields::text(item, "encrypted_content").to_owned()).filter(|text| !text.is_empty());
    ReasoningPart {
        texts: texts.collect(),
        seal: Seal::Item { id: fields::text(item, "id").to_owned(), encrypted },
        author: String::new(),
    }
}

/// Decodes from the status of an answer why the model stopped. A completed answer does not state whether it is a
/// refusal or has calls, so `refused` and `calls` say what its items contain. An unknown reason is an error, since the
/// answer may be incomplete.
fn read_stop_reason(body: &Value, refused: bool, calls: bool) -> Result<Stop, Error> {
    let reason = body.get("incomplete_details").map_or("", |details| fields::text(details, "reason"));
    match (fields::text(body, "status"), reason) {
        ("completed", _) if refused => Ok(Stop::Refused),
        ("completed", _) if calls => Ok(Stop::Calls),
        ("completed", _) => Ok(Stop::End),
        ("incomplete", "max_output_tokens") => Ok(Stop::Length),
        ("incomplete", "content_filter") => Ok(Stop::Refused),
        _ => Err(Error::Malformed(
            "the `status` is neither `completed` nor `incomplete` with the reason `max_output_tokens` or `content_filter`",
        )),
    }
}

/// The kind of an item of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputItemKind {
    /// The text of the answer.
    Message,
    /// A tool call.
    Call,
    /// A part of the model's reasoning.
    Thought,
}

/// Returns the kind of an item. Fails for an unknown kind: such an item would come from a tool of the provider,
/// although the request offered none.
pub(super) fn item_kind(item: &Value) -> Result<OutputItemKind, Error> {
    match fields::text(item, "type") {
        "message" => Ok(OutputItemKind::Message),
        "function_call" => Ok(OutputItemKind::Call),
        "reasoning" => Ok(OutputItemKind::Thought),
        _ => Err(Error::Malformed(
            "the `type` of an output item is not `message`, `function_call` or `reasoning`",
        )),
    }
}

/// Appends the text of a message item to `text`, and returns whether the message contains a refusal.
fn read_message(item: &Value, text: &mut String) -> Result<bool, Error> {
    let mut refused = false;
    for part in fields::list(item, "content").unwrap_or_default() {
        let field = |key: &str| fields::text(part, key);
        match field("type") {
            "output_text" => text.push_str(field("text")),
            "refusal" => {
                refused = true;
                text.push_str(field("refusal"));
            }
            _ => {
                return Err(Error::Malformed(
                    "the `type` of a part of a message is not `output_text` or `refusal`",
                ));
            }
        }
    }
    Ok(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let shown = match decode_response(&serde_json::from_str(body).unwrap()) {
            Ok(answer) => format!(
                "{:?} {:?} {}",
                answer.stop,
                answer.text,
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
        let text = r#"{"type":"message","content":[{"type":"output_text","text":"a","new":1}]}"#;
        let call = r#"{"type":"function_call","id":"fc","call_id":"c","name":"f","arguments":"{}"}"#;
        check(
            &format!(r#"{{"status":"completed","output":[{{"type":"reasoning"}},{text},{text}]}}"#),
            "End \"aa\"",
        );
        check(&format!(r#"{{"status":"completed","output":[{text},{call}]}}"#), "Calls \"a\" c=f{}");
        check(
            &format!(
                r#"{{"status":"incomplete","incomplete_details":{{"reason":"max_output_tokens"}},"output":[{text}]}}"#
            ),
            "Length \"a\"",
        );
        check(
            r#"{"status":"incomplete","incomplete_details":{"reason":"content_filter"},"output":[]}"#,
            "Refused \"\"",
        );
        check(
            r#"{"status":"incomplete","incomplete_details":{"reason":"steered"},"output":[]}"#,
            &bad(
                "the `status` is neither `completed` nor `incomplete` with the reason `max_output_tokens` or `content_filter`",
            ),
        );
        check(
            r#"{"status":"queued","output":[]}"#,
            &bad(
                "the `status` is neither `completed` nor `incomplete` with the reason `max_output_tokens` or `content_filter`",
            ),
        );
        check(
            r#"{"status":"completed","output":[{"type":"mcp_call"}]}"#,
            &bad("the `type` of an output item is not `message`, `function_call` or `reasoning`"),
        );
        check(
            r#"{"status":"failed","error":{"code":"rate_limit_exceeded","message":"m"},"output":[]}"#,
            "the model server is busy; try again later",
        );
        check("{}", &bad("the field `output` of the answer is missing or is not a list"));
    }
}
