//! OpenAI chat messages, and the bare tool calls that some logs hold.

use serde_json::{Map, Value};

use super::super::event::{Body, Call, Entry, Message, Output, Tool};
use super::{server, unknown};

/// A message of the given role.
pub(super) fn message(role: &str, content: Value) -> Entry {
    Entry::from(Body::Message(Message { role: role.to_owned(), content }))
}

/// The message itself, then the calls that it proposes.
pub(super) fn read(object: &Map<String, Value>) -> Result<Vec<Entry>, String> {
    if object.contains_key("function") && !object.contains_key("role") {
        return Ok(vec![call(object, Map::new())?]);
    }
    if !object.contains_key("role") && object.contains_key("tools") {
        return Ok(vec![message("tools", object.get("tools").cloned().unwrap_or_default())]);
    }
    let role = object.get("role").and_then(Value::as_str).ok_or("the message has no `role`")?;
    let content = object.get("content").cloned().unwrap_or_default();
    let extra =
        unknown(object, &["role", "content", "tool_calls", "function_call", "tool_call_id", "metadata"]);
    if role == "tool" || role == "function" {
        let name = object.get("name").and_then(Value::as_str);
        let call_id = match object.get("tool_call_id").and_then(Value::as_str) {
            Some(id) => id.to_owned(),
            None if role == "function" => format!("function:{}", name.unwrap_or_default()),
            None => String::new(),
        };
        let tool = name.map(|name| tool(server(object), name));
        let says_error = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
        let is_error = ["is_error", "error"].iter().any(|key| object.get(*key).is_some_and(says_error));
        let output = Output { call_id, tool, content, structured: None, is_error };
        return Ok(vec![Entry { extra, ..Entry::from(Body::Output(output)) }]);
    }
    let mut entries = vec![Entry { extra: extra.clone(), ..message(role, content) }];
    match object.get("tool_calls") {
        None | Some(Value::Null) => {}
        Some(Value::Array(calls)) => {
            for proposed in calls {
                let proposed = proposed.as_object().ok_or("a tool call is a JSON object")?;
                entries.push(call(proposed, extra.clone())?);
            }
        }
        Some(_) => return Err("`tool_calls` is a list".to_owned()),
    }
    if let Some(function) = object.get("function_call").and_then(Value::as_object) {
        let name = function.get("name").and_then(Value::as_str).ok_or("`function_call` has no `name`")?;
        let arguments = function.get("arguments").cloned().unwrap_or_default();
        let id = format!("function:{name}");
        entries.push(Entry { extra, ..Entry::from(Body::Call(to_call(id, tool(None, name), &arguments))) });
    }
    Ok(entries)
}

fn call(object: &Map<String, Value>, mut extra: Map<String, Value>) -> Result<Entry, String> {
    let function = object.get("function").and_then(Value::as_object);
    let name = function.and_then(|f| f.get("name")).and_then(Value::as_str);
    let name = name.ok_or("a tool call has no `function.name`")?;
    let arguments = function.and_then(|f| f.get("arguments")).cloned().unwrap_or_default();
    let id = object.get("id").and_then(Value::as_str).unwrap_or_default();
    extra.extend(unknown(object, &["id", "type", "function", "metadata"]));
    let call = to_call(id.to_owned(), tool(server(object), name), &arguments);
    Ok(Entry { extra, ..Entry::from(Body::Call(call)) })
}

fn tool(server: Option<&str>, name: &str) -> Tool {
    Tool { server: server.map(Into::into), name: name.into() }
}

/// Arguments stand as JSON text in OpenAI's format and as an object in many logs.
pub(super) fn to_call(id: String, tool: Tool, arguments: &Value) -> Call {
    match arguments {
        Value::String(text) => Call::from_json(id, tool, text),
        Value::Null => Call::from_json(id, tool, ""),
        // Printed and read again, so that inexact numbers are found here as well.
        value => Call::from_json(id, tool, &value.to_string()),
    }
}
