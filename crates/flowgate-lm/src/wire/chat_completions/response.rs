//! Encodes and decodes answers of OpenAI's chat completions that are not streamed. The gateway encodes answers for its
//! clients; `RemoteModel` decodes the answers of a server. `stream` shares the encoding and decoding of finish reasons,
//! usage and arguments.

use serde_json::{Value, json};

use super::super::assembly::{TOO_MANY_CALLS, call_id_or_index};
use super::super::fields::{self, called_tool_name};
use super::super::{MAX_CALLS, ResponseHead, correct_stop_reason, reported_error};
use super::request::encode_call;
use crate::Error;
use crate::chat::{Completion, Stop, ToolCall, Usage};

/// Encodes the body of an answer. The text of a refusal is sent in the field `refusal`, and any other text in
/// `content`.
#[must_use]
pub fn encode_response(completion: &Completion, head: ResponseHead<'_>) -> Value {
    let refused = completion.stop == Stop::Refused;
    let text = if completion.text.is_empty() { Value::Null } else { json!(completion.text) };
    let (content, refusal) = if refused { (Value::Null, text) } else { (text, Value::Null) };
    let mut message = json!({"role": "assistant", "content": content, "refusal": refusal});
    if !completion.calls.is_empty() {
        super::super::put(
            &mut message,
            "tool_calls",
            completion.calls.iter().map(encode_call).collect::<Vec<_>>(),
        );
    }
    let finish = finish_reason(completion);
    json!({
        "id": head.id,
        "object": "chat.completion",
        "created": head.created,
        "model": head.model,
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": finish}],
        "usage": usage(completion.usage),
    })
}

/// Returns the `finish_reason` of an answer: the reason why the model stopped, in the words of this format.
pub(super) fn finish_reason(completion: &Completion) -> &'static str {
    match completion.stop {
        Stop::End => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length => "length",
        // If the provider's filter has refused, there is no text. If the model has refused, its text says so, and the
        // answer ends normally.
        Stop::Refused if completion.text.is_empty() => "content_filter",
        Stop::Refused => "stop",
    }
}

/// Encodes the token usage.
pub(super) fn usage(usage: Usage) -> Value {
    let total = usage.input.saturating_add(usage.output);
    json!({"prompt_tokens": usage.input, "completion_tokens": usage.output, "total_tokens": total})
}

/// Decodes the body of an answer.
///
/// # Errors
/// If the body describes an error, violates the format, or does not contain exactly one answer.
pub fn decode_response(body: &Value) -> Result<Completion, Error> {
    if let Some(error) = fields::non_null_child(body, "error") {
        return Err(reported_error(error));
    }
    let [choice] = fields::list(body, "choices")
        .ok_or(Error::Malformed("the field `choices` of the answer is missing or is not a list"))?
    else {
        return Err(Error::Malformed("the list `choices` of the answer does not have exactly one item"));
    };
    let message = choice.get("message").ok_or(Error::Malformed("the item of `choices` has no `message`"))?;
    let field = |key: &str| fields::text(message, key);
    let mut completion = Completion { text: field("content").to_owned(), ..Completion::default() };
    // The text of a refusal, which is in a field of its own, becomes text of the answer.
    completion.text.push_str(field("refusal"));
    let calls = fields::list(message, "tool_calls").unwrap_or_default();
    if calls.len() > MAX_CALLS {
        return Err(TOO_MANY_CALLS);
    }
    for (index, call) in calls.iter().enumerate() {
        completion.calls.push(read_call(call, index)?);
    }
    completion.stop = read_finish_reason(choice.get("finish_reason"), !field("refusal").is_empty())?;
    completion.usage = read_usage(body.get("usage").unwrap_or(&Value::Null));
    correct_stop_reason(completion)
}

/// Decodes a `finish_reason`. `refused` says whether the answer contains the text of a refusal. Servers then report a
/// normal end (`stop` or `tool_calls`), which is decoded as a refusal. A missing or unknown reason is an error, since
/// the answer may be incomplete.
pub(super) fn read_finish_reason(finish_reason: Option<&Value>, refused: bool) -> Result<Stop, Error> {
    match finish_reason.and_then(Value::as_str) {
        Some("content_filter") => Ok(Stop::Refused),
        Some("length") => Ok(Stop::Length),
        Some("stop" | "tool_calls") if refused => Ok(Stop::Refused),
        Some("stop") => Ok(Stop::End),
        Some("tool_calls") => Ok(Stop::Calls),
        _ => Err(Error::Malformed(
            "the `finish_reason` is missing, or is none of `stop`, `length`, `tool_calls` and `content_filter`",
        )),
    }
}

/// Decodes the token usage; an absent count is 0.
pub(super) fn read_usage(usage: &Value) -> Usage {
    let count = |key: &str| fields::count(usage, key).unwrap_or(0);
    let cached =
        usage.get("prompt_tokens_details").and_then(|details| fields::count(details, "cached_tokens"));
    let (input, output) = (count("prompt_tokens"), count("completion_tokens"));
    Usage { input, output, cached: cached.unwrap_or(0) }
}

/// Decodes a tool call. `index` is its index in the message; a call without an id gets an id that contains the index.
fn read_call(call: &Value, index: usize) -> Result<ToolCall, Error> {
    if call.get("type").is_some_and(|kind| kind != "function") {
        return Err(Error::Malformed("the `type` of a tool call is not `function`"));
    }
    let function = call.get("function").ok_or(Error::Malformed("a tool call has no `function`"))?;
    Ok(ToolCall {
        id: call_id_or_index(fields::text(call, "id"), index),
        name: called_tool_name(function)?.to_owned(),
        arguments: arguments(function.get("arguments")),
    })
}

/// Returns the arguments of a call, the field `arguments`, as a JSON text; empty if the field is absent or null. The
/// format has a string with JSON there, but some servers send the object itself.
pub(super) fn arguments(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(body: &str, expected: &str) {
        let shown = match decode_response(&serde_json::from_str(body).unwrap()) {
            Ok(answer) => format!(
                "{:?} {:?} {:?}",
                answer.stop,
                answer.text,
                answer
                    .calls
                    .iter()
                    .map(|call| format!("{}={}{}", call.id, call.name, call.arguments))
                    .collect::<Vec<_>>()
            ),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{body}");
    }

    #[test]
    fn answers_are_decoded_or_refused() {
        let bad = |why: &str| {
            format!(
                "the model server sent an answer that cannot be read: {why}; check the address and the API of the model server"
            )
        };
        check(
            r#"{"choices":[{"message":{"content":"a","new":1},"finish_reason":"stop"}],"x":{}}"#,
            "End \"a\" []",
        );
        check(
            r#"{"choices":[{"message":{"content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},"finish_reason":"stop"}]}"#,
            r#"Calls "" ["call_0=f{\"a\":1}"]"#,
        );
        check(
            r#"{"choices":[{"message":{"content":null},"finish_reason":"tool_calls"}]}"#,
            &bad("the answer ends with a request for tool calls, but contains no call"),
        );
        check(
            r#"{"choices":[{"message":{"content":"a"},"finish_reason":null}]}"#,
            &bad(
                "the `finish_reason` is missing, or is none of `stop`, `length`, `tool_calls` and `content_filter`",
            ),
        );
        check(
            r#"{"choices":[{"message":{"content":null},"finish_reason":"content_filter"}]}"#,
            "Refused \"\" []",
        );
        check(r#"{"choices":[]}"#, &bad("the list `choices` of the answer does not have exactly one item"));
        check(
            r#"{"choices":[{},{}]}"#,
            &bad("the list `choices` of the answer does not have exactly one item"),
        );
        check(r#"{"choices":[{}]}"#, &bad("the item of `choices` has no `message`"));
        check("[]", &bad("the field `choices` of the answer is missing or is not a list"));
        check(
            r#"{"choices":[{"message":{"tool_calls":[{"type":"custom"}]},"finish_reason":"stop"}]}"#,
            &bad("the `type` of a tool call is not `function`"),
        );
        check(r#"{"error":{"code":429,"message":"m"}}"#, "the model server is busy; try again later");
    }
}
