//! Reads OpenAI's chat format into trace entries: messages with the calls that they propose (also the older
//! `function_call`), tool outputs, lists of tools, and the bare calls that some logs contain. The reader of messages
//! ([`super`]) calls [`read`] for each message that is neither JSON-RPC nor Anthropic's.

use serde_json::{Map, Value};

use super::super::event::{Call, EventBody, Message, Output, Tool, ToolDescription, TraceEntry};
use super::super::origin::{Origin, OriginPart, ToolDescriptionFormat};
use super::{server, unknown_fields};

/// Creates a message of the given role. The index of the message in `Origin` is 0; the caller corrects it.
pub(super) fn message(role: &str, content: Value) -> TraceEntry {
    let origin = Some(Origin::whole(0));
    TraceEntry { origin, ..TraceEntry::from(Message::new(role, content)) }
}

/// Returns the events of one message. By the form of the message, these are one bare call (an object with `function`
/// and no role), one description for each tool of a list, one tool output, or the message itself and then the calls
/// that it proposes. The older `function_call` has no id, so the name of the function connects it with its output. The
/// index of the message in `Origin` is 0; the caller corrects it. An error describes the problem; the caller adds the
/// location.
pub(super) fn read(object: &Map<String, Value>) -> Result<Vec<TraceEntry>, String> {
    if object.contains_key("function") && !object.contains_key("role") {
        return Ok(vec![call(object, Map::new(), OriginPart::Bare)?]);
    }
    if !object.contains_key("role") && object.contains_key("tools") {
        return tools(object);
    }
    let role = object
        .get("role")
        .and_then(Value::as_str)
        .ok_or("the message has no `role`; add one, such as `user`")?;
    let content = object.get("content").cloned().unwrap_or_default();
    let extra = unknown_fields(
        object,
        &["role", "content", "tool_calls", "function_call", "tool_call_id", "metadata"],
    );
    // An output; the role `function` is that of the older form.
    if role == "tool" || role == "function" {
        let output = tool_output(object, role, content);
        return Ok(vec![TraceEntry { extra, origin: Some(Origin::whole(0)), ..TraceEntry::from(output) }]);
    }
    // A message, and the calls that it proposes.
    let mut entries = vec![TraceEntry { extra: extra.clone(), ..message(role, content) }];
    match object.get("tool_calls") {
        None | Some(Value::Null) => {}
        Some(Value::Array(calls)) => {
            for (index, proposed) in calls.iter().enumerate() {
                let no_object =
                    || format!("tool call {index} is not a JSON object; write one with a `function`");
                let proposed = proposed.as_object().ok_or_else(no_object)?;
                entries.push(call(proposed, extra.clone(), OriginPart::Call(index))?);
            }
        }
        Some(_) => return Err("`tool_calls` is not a list; write a list of calls".to_owned()),
    }
    // The older form of a call.
    if let Some(function) = object.get("function_call").and_then(Value::as_object) {
        let name = function
            .get("name")
            .and_then(Value::as_str)
            .ok_or("`function_call` has no `name`; add the name of the function")?;
        let arguments = function.get("arguments").cloned().unwrap_or_default();
        let id = format!("function:{name}");
        let body = EventBody::Call(to_call(id, tool(None, name), &arguments));
        let origin = Some(Origin { message: 0, part: OriginPart::Legacy });
        entries.push(TraceEntry { extra, origin, ..TraceEntry::from(body) });
    }
    Ok(entries)
}

/// Reads a tool output from a message with the role `tool` or, in the older form, `function`.
fn tool_output(object: &Map<String, Value>, role: &str, content: Value) -> Output {
    let name = object.get("name").and_then(Value::as_str);
    let call_id = match object.get("tool_call_id").and_then(Value::as_str) {
        Some(id) => id.to_owned(),
        None if role == "function" => format!("function:{}", name.unwrap_or_default()),
        None => String::new(),
    };
    let tool = name.map(|name| tool(server(object), name));
    // `error` is a text in some logs and a Boolean in others.
    let reports_error = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    // OpenAI's format has no field for the error flag, so other programs and this project add their own.
    let own = object.get("flowgate").and_then(|own| own.get("is_error"));
    let flags = object.get("is_error").into_iter().chain(own).filter(|flag| !flag.is_null());
    // `None`, unknown, if the output has none of these fields.
    let is_error = flags.chain(object.get("error")).map(reports_error).reduce(|one, other| one || other);
    Output { call_id, tool, content, structured: None, is_error }
}

/// Returns the tool descriptions that the agent receives, one event each. Fails if `tools` is not a list, or if one of
/// the descriptions is malformed.
fn tools(object: &Map<String, Value>) -> Result<Vec<TraceEntry>, String> {
    let list = object
        .get("tools")
        .and_then(Value::as_array)
        .ok_or("`tools` is not a list; write a list of tool descriptions")?;
    list.iter().enumerate().map(|(index, item)| read_tool_description(object, index, item)).collect()
}

/// Reads the description of a tool in the format of MCP, Anthropic or OpenAI, which differ in the name and the position
/// of the schema. `message` is the object with the list, which may name the server of all its tools, and `index` the
/// position of `item` in the list. Fails if `item` is not an object with a name.
fn read_tool_description(
    message: &Map<String, Value>,
    index: usize,
    item: &Value,
) -> Result<TraceEntry, String> {
    let no_object = || format!("tool {index} is not a JSON object; write an object with a `name`");
    let object = item.as_object().ok_or_else(no_object)?;
    let function = object.get("function").and_then(Value::as_object);
    // The object with the fields of the description, its format, and the key of the schema of the arguments.
    let (fields, format, key) = match function {
        Some(function) => (function, ToolDescriptionFormat::OpenAi, "parameters"),
        None if object.contains_key("input_schema") => {
            (object, ToolDescriptionFormat::Anthropic, "input_schema")
        }
        None => (object, ToolDescriptionFormat::Mcp, "inputSchema"),
    };
    let name = fields.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| format!("tool {index} has no `name`; add one"))?;
    let description = fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned();
    let input_schema = fields.get(key).cloned().unwrap_or_default().into();
    let output_schema = fields.get("outputSchema").filter(|_| format == ToolDescriptionFormat::Mcp).cloned();
    let server = server(object).or(server(message));
    // The description has no other fields: those that this function does not read become `extra` fields of the event.
    let (tool, other) = (tool(server, name), Map::new());
    let body = EventBody::Tool(ToolDescription { tool, description, input_schema, output_schema, other });
    let origin = Some(Origin { message: 0, part: OriginPart::Tool(index, format) });
    let mut extra = unknown_fields(object, &["name", "description", "type", "function", key]);
    if format == ToolDescriptionFormat::Mcp {
        extra.remove("outputSchema");
    }
    Ok(TraceEntry { extra, origin, ..TraceEntry::from(body) })
}

/// Reads an entry of `tool_calls`, or a bare call; `part` says which. `extra` are the unknown fields of the message
/// that contains the call; those of the call itself are added to them. Fails if the call has no `function.name`.
fn call(
    object: &Map<String, Value>,
    mut extra: Map<String, Value>,
    part: OriginPart,
) -> Result<TraceEntry, String> {
    let function = object.get("function").and_then(Value::as_object);
    let name = function.and_then(|f| f.get("name")).and_then(Value::as_str);
    let name = name.ok_or("a tool call of the message has no `function.name`; add the name of the tool")?;
    let arguments = function.and_then(|f| f.get("arguments")).cloned().unwrap_or_default();
    let id = object.get("id").and_then(Value::as_str).unwrap_or_default();
    extra.extend(unknown_fields(object, &["id", "type", "function", "metadata"]));
    let call = to_call(id.to_owned(), tool(server(object), name), &arguments);
    // The caller sets the index of the message.
    let origin = Some(Origin { message: 0, part });
    Ok(TraceEntry { extra, origin, ..TraceEntry::from(call) })
}

/// Creates a tool from the names that a log gives to its server and to the tool.
fn tool(server: Option<&str>, name: &str) -> Tool {
    Tool { server: server.map(Into::into), name: name.into() }
}

/// Creates a call from its arguments, which are JSON text in OpenAI's format and an object in many logs.
pub(super) fn to_call(id: String, tool: Tool, arguments: &Value) -> Call {
    match arguments {
        Value::String(text) => Call::from_json(id, tool, text),
        // The empty text means no arguments.
        Value::Null => Call::from_json(id, tool, ""),
        // Printed and parsed again, so that inexact numbers are detected here as well.
        value => Call::from_json(id, tool, &value.to_string()),
    }
}
