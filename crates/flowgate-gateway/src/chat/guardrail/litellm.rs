//! Reads and writes the messages of LiteLLM's generic guardrail API. LiteLLM sends one message with the chat before it
//! asks a model, and another one with the answer of the model, without the chat. `guardrail` calls this module.
//!
//! LiteLLM sends the texts of a chat twice: as a list (`texts`), and in `structured_messages`, which also has roles,
//! calls and the ids of outputs. Only `structured_messages` can be judged, so a request without them is refused. A
//! text, an image or a call that is missing in them would reach the model without a judgement, so such a request is
//! refused as well.

use std::collections::HashSet;

use flowgate::json::{self, Numbers};
use flowgate_lm::chat::{Completion, Stop, ToolCall};
use serde_json::{Map, Value, json};

/// The longest `litellm_call_id`, in bytes.
const MAX_CALL_ID: usize = 256;
/// The separator between the texts of an answer with several alternatives, which are judged as one text.
const TEXT_SEPARATOR: &str = "\n\n";

/// A message of LiteLLM.
#[derive(Debug, PartialEq)]
pub(super) struct GuardrailRequest {
    /// `litellm_call_id`: the id of LiteLLM's request to the model. The message with the chat and the one with the
    /// answer have the same id.
    pub(super) call: Option<String>,
    pub(super) input: GuardrailInput,
}

/// What LiteLLM asks about.
#[derive(Debug, PartialEq)]
pub(super) enum GuardrailInput {
    /// The chat before the model is asked, as the text of a request for chat completions with the name of the model.
    Chat(String),
    /// The answer of the model. An answer that is streamed arrives several times, each time with more of its text.
    Answer(Completion),
}

impl GuardrailRequest {
    /// Reads the body of a request. Unknown fields are ignored: they describe LiteLLM and its caller.
    ///
    /// # Errors
    /// If the body does not have the form of LiteLLM, or has a text, an image or a call that the chat in it lacks. The
    /// message says what is wrong.
    pub(super) fn read(body: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body)
            .map_err(|_| "the body of the request is not valid UTF-8: encode it in UTF-8")?;
        let fields =
            match json::parse(text, Numbers::Any) {
                Ok(Value::Object(fields)) => fields,
                Ok(_) => return Err(
                    "the body of the request is not a JSON object: send a message of LiteLLM's guardrail API"
                        .to_owned(),
                ),
                Err(error) => return Err(format!("the body of the request is not valid JSON: {error}")),
            };
        let call = match fields.get("litellm_call_id") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) if !id.is_empty() && id.len() <= MAX_CALL_ID => Some(id.clone()),
            Some(_) => {
                return Err(format!(
                    "`litellm_call_id` is not a string of 1 to {MAX_CALL_ID} bytes: send another one, or none"
                ));
            }
        };
        let input = match fields.get("input_type").and_then(Value::as_str) {
            Some("request") => GuardrailInput::Chat(read_chat(&fields)?),
            Some("response") => GuardrailInput::Answer(read_answer(&fields)?),
            _ => {
                return Err(
                    "`input_type` is neither \"request\" nor \"response\": send one of them".to_owned()
                );
            }
        };
        Ok(Self { call, input })
    }
}

/// Returns the body of the reply that lets LiteLLM continue.
pub(super) fn permitted() -> Value {
    json!({"action": "NONE"})
}

/// Returns the body of the reply that stops the request or the answer, for this reason.
pub(super) fn blocked(reason: &str) -> Value {
    json!({"action": "BLOCKED", "blocked_reason": format!("flowgate: {reason}")})
}

/// Reads the chat from `fields`, the fields of LiteLLM's message, and returns it as the text of a request for chat
/// completions, without the fields that LiteLLM adds for providers.
///
/// # Errors
/// If the message has no chat, or has a text, an image or a call that the chat lacks.
fn read_chat(fields: &Map<String, Value>) -> Result<String, String> {
    let messages = list(fields, "structured_messages")?;
    if messages.is_empty() {
        return Err("the request has no `structured_messages`: only chats can be judged, so use the guardrail for chats alone".to_owned());
    }
    // Checks that all texts, images and calls of the request are in its messages, where they are judged.
    check_contents(fields, messages)?;
    let messages: Vec<Value> = messages.iter().cloned().map(without_provider_fields).collect();
    // The form of the request needs the name of a model, although none is asked.
    let model = fields.get("model").and_then(Value::as_str).unwrap_or("unknown");
    Ok(json!({"model": model, "messages": messages, "tools": list(fields, "tools")?}).to_string())
}

/// Reads the answer of a model from `fields`, the fields of LiteLLM's message. If the client has requested several
/// alternatives (`n`), they are judged as one answer with all of their texts and calls.
///
/// # Errors
/// If the answer has images, or a text or a call that cannot be read.
fn read_answer(fields: &Map<String, Value>) -> Result<Completion, String> {
    if !list(fields, "images")?.is_empty() {
        return Err("the answer has images, which cannot be judged: ask the model for text".to_owned());
    }
    let texts: Option<Vec<&str>> = list(fields, "texts")?.iter().map(Value::as_str).collect();
    let texts = texts.ok_or("an item of `texts` is not a string: send strings only")?;
    let calls: Option<Vec<ToolCall>> = list(fields, "tool_calls")?.iter().map(read_call).collect();
    let calls = calls.ok_or(NO_CALL)?;
    let stop = if calls.is_empty() { Stop::End } else { Stop::Calls };
    Ok(Completion { text: texts.join(TEXT_SEPARATOR), calls, stop, ..Completion::default() })
}

/// The message about a value in `tool_calls` that [`read_call`] cannot read.
const NO_CALL: &str = "an item of `tool_calls` is not a call of a function, and only such calls can be judged: offer the model functions only";

/// Reads a call of a function; `None` for any other value. A call without `type` counts as a call of a function. A
/// missing id or missing arguments are read as an empty text: a call in a streamed answer can lack its id, and the id
/// is not needed here.
fn read_call(call: &Value) -> Option<ToolCall> {
    if !matches!(call.get("type"), None | Some(Value::Null)) && call.get("type")? != "function" {
        return None;
    }
    let function = call.get("function")?;
    let text = |value: Option<&Value>| match value {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => None,
    };
    let name = function.get("name")?.as_str()?.to_owned();
    Some(ToolCall { id: text(call.get("id"))?, name, arguments: text(function.get("arguments"))? })
}

/// Returns a field that is a list; an empty one if the field is absent or null.
fn list<'f>(fields: &'f Map<String, Value>, name: &str) -> Result<&'f [Value], String> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("`{name}` is not a list: send a list, or leave it out")),
    }
}

/// Checks that each text, image and call in the other `fields` of a request is also in its `messages`, where it is
/// judged. A text or an image counts as being in a message if any string of the message equals it.
///
/// # Errors
/// Which field has an item that no message has, or an item that cannot be read.
fn check_contents(fields: &Map<String, Value>, messages: &[Value]) -> Result<(), String> {
    let mut known = HashSet::new();
    messages.iter().for_each(|message| collect_texts(message, &mut known));
    for name in ["texts", "images"] {
        for text in list(fields, name)? {
            let text = text
                .as_str()
                .ok_or_else(|| format!("an item of `{name}` is not a string: send strings only"))?;
            if !text.is_empty() && !known.contains(text) {
                return Err(format!(
                    "an item of `{name}` is in no message of `structured_messages`: add the message"
                ));
            }
        }
    }
    // The calls of the messages. A call that cannot be read is left out, and so equals no item of `tool_calls`.
    let calls: Vec<ToolCall> = messages
        .iter()
        .filter_map(|message| message.get("tool_calls")?.as_array())
        .flatten()
        .filter_map(read_call)
        .collect();
    let made: HashSet<(&str, &str)> =
        calls.iter().map(|call| (call.name.as_str(), call.arguments.as_str())).collect();
    for call in list(fields, "tool_calls")? {
        let call = read_call(call).ok_or(NO_CALL)?;
        if !made.contains(&(call.name.as_str(), call.arguments.as_str())) {
            return Err("an item of `tool_calls` is in no message of `structured_messages`: add the message"
                .to_owned());
        }
    }
    Ok(())
}

/// Adds all strings in a value to `known`, those in its lists and fields as well. The names of fields are not added.
fn collect_texts<'v>(value: &'v Value, known: &mut HashSet<&'v str>) {
    match value {
        Value::String(text) => {
            known.insert(text);
        }
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, known)),
        Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, known)),
        _ => {}
    }
}

/// The fields of messages, parts and calls that LiteLLM adds for providers: how to cache, and the reasoning of the
/// model, which only the model itself reads again.
const PROVIDER_FIELDS: [&str; 5] =
    ["cache_control", "provider_specific_fields", "reasoning_content", "reasoning_items", "thinking_blocks"];

/// Returns a message without the fields in [`PROVIDER_FIELDS`] and without null fields. These are also removed from the
/// parts and the calls of the message. Texts, names and arguments are unchanged. Returns null if the message is not an
/// object.
fn without_provider_fields(message: Value) -> Value {
    // Removes these fields from an object, but not from the values in it.
    let clean = |value: Value| match value {
        Value::Object(mut fields) => {
            fields.retain(|name, field| !field.is_null() && !PROVIDER_FIELDS.contains(&name.as_str()));
            Value::Object(fields)
        }
        other => other,
    };
    let Value::Object(mut fields) = clean(message) else { return Value::Null };
    for name in ["content", "tool_calls"] {
        if let Some(Value::Array(items)) = fields.get_mut(name) {
            for item in items {
                *item = clean(item.take());
                if let Some(function) = item.get_mut("function") {
                    *function = clean(function.take());
                }
            }
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &Value) -> Result<GuardrailInput, String> {
        GuardrailRequest::read(body.to_string().as_bytes()).map(|request| request.input)
    }

    /// The chat has the messages without null fields and without fields for providers. Unknown fields are ignored.
    #[test]
    fn chats_are_read_from_the_messages() {
        let messages = json!([
            {"role": "system", "content": "Help.", "cache_control": {"type": "ephemeral"}},
            {"role": "user", "content": [{"type": "text", "text": "Go.", "cache_control": null}]},
            {"role": "assistant", "content": null, "thinking_blocks": [], "tool_calls": [{
                "id": "1", "type": "function", "index": 0,
                "function": {"name": "f", "arguments": "{}", "provider_specific_fields": null},
            }]},
            {"role": "tool", "content": "out", "tool_call_id": "1"},
        ]);
        let body = json!({
            "input_type": "request", "litellm_call_id": "c", "model": "m", "texts": ["Help.", "Go.", "", "out"],
            "structured_messages": messages, "request_data": {}, "new_field": 1,
            "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        });
        let request = GuardrailRequest::read(body.to_string().as_bytes()).unwrap();
        let expected = json!({
            "model": "m",
            "messages": [
                {"role": "system", "content": "Help."},
                {"role": "user", "content": [{"type": "text", "text": "Go."}]},
                {"role": "assistant", "tool_calls": [{
                    "id": "1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{}"},
                }]},
                {"role": "tool", "content": "out", "tool_call_id": "1"},
            ],
            "tools": [{"type": "function", "function": {"name": "f"}}],
        });
        let GuardrailInput::Chat(chat) = &request.input else { panic!("{request:?}") };
        assert_eq!(serde_json::from_str::<Value>(chat).unwrap(), expected);
        assert_eq!(request.call.as_deref(), Some("c"));
    }

    #[test]
    fn answers_are_read() {
        let check = |more: Value, text: &str, calls: &[&str]| {
            let mut body = json!({"input_type": "response"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let Ok(GuardrailInput::Answer(answer)) = read(&body) else { panic!("{body}") };
            let called = answer.calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
            assert_eq!(
                (answer.text.as_str(), called.collect::<Vec<_>>().as_slice()),
                (text, calls.iter().map(|call| (*call).to_owned()).collect::<Vec<_>>().as_slice()),
                "{body}"
            );
        };
        check(json!({}), "", &[]);
        check(json!({"texts": null, "tool_calls": null, "images": null}), "", &[]);
        check(json!({"texts": ["a", "b"]}), "a\n\nb", &[]);
        let call =
            json!({"id": null, "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        check(json!({"texts": [], "tool_calls": [call]}), "", &["f {\"a\":1}"]);
        check(json!({"tool_calls": [{"function": {"name": "f", "arguments": null}}]}), "", &["f "]);
    }

    #[test]
    fn what_cannot_be_judged_is_refused() {
        let check = |body: Value, expected: &str| assert_eq!(read(&body).unwrap_err(), expected, "{body}");
        let chat = |more: Value| {
            let mut body =
                json!({"input_type": "request", "structured_messages": [{"role": "user", "content": "a"}]});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        let input_type = "`input_type` is neither \"request\" nor \"response\": send one of them";
        check(json!({}), input_type);
        check(json!({"input_type": "other"}), input_type);
        check(
            json!([]),
            "the body of the request is not a JSON object: send a message of LiteLLM's guardrail API",
        );
        let no_chat = "the request has no `structured_messages`: only chats can be judged, so use the guardrail for chats alone";
        check(json!({"input_type": "request", "texts": ["a"]}), no_chat);
        check(chat(json!({"structured_messages": null})), no_chat);
        check(
            chat(json!({"structured_messages": "a"})),
            "`structured_messages` is not a list: send a list, or leave it out",
        );
        check(
            chat(json!({"texts": ["a", "more"]})),
            "an item of `texts` is in no message of `structured_messages`: add the message",
        );
        check(
            chat(json!({"images": ["https://x.org"]})),
            "an item of `images` is in no message of `structured_messages`: add the message",
        );
        check(chat(json!({"texts": [1]})), "an item of `texts` is not a string: send strings only");
        let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
        check(
            chat(json!({"tool_calls": [call]})),
            "an item of `tool_calls` is in no message of `structured_messages`: add the message",
        );
        check(
            chat(json!({"litellm_call_id": ""})),
            "`litellm_call_id` is not a string of 1 to 256 bytes: send another one, or none",
        );
        check(
            chat(json!({"litellm_call_id": 1})),
            "`litellm_call_id` is not a string of 1 to 256 bytes: send another one, or none",
        );
        let answer = |name: &str, value: Value| json!({"input_type": "response", name: value});
        let no_call = NO_CALL;
        for call in [
            json!({"id": "1", "type": "custom", "custom": {"name": "f"}}),
            json!({"function": {"arguments": "{}"}}),
            json!({"function": {"name": "f", "arguments": {}}}),
            json!({"id": 1, "function": {"name": "f", "arguments": "{}"}}),
            json!(null),
        ] {
            check(answer("tool_calls", json!([call])), no_call);
        }
        check(answer("texts", json!([null])), "an item of `texts` is not a string: send strings only");
        check(
            answer("images", json!(["x"])),
            "the answer has images, which cannot be judged: ask the model for text",
        );
        let read = |body: &str| GuardrailRequest::read(body.as_bytes()).unwrap_err();
        assert_eq!(
            read(r#"{"input_type":"response","input_type":"request"}"#),
            "the body of the request is not valid JSON: duplicate key at line 1 column 37"
        );
        assert!(read("{").contains("not valid JSON"));
        assert_eq!(
            GuardrailRequest::read(b"\xff").unwrap_err(),
            "the body of the request is not valid UTF-8: encode it in UTF-8"
        );
    }
}
