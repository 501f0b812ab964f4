//! Reads a message of an MCP log (JSON-RPC) into trace entries. The reader of messages ([`super`]) calls [`read`] for
//! each message that has `jsonrpc`, as a client or a proxy records them.
//!
//! Every request is read as a call: `tools/call` as a call of the named tool, any other method as a call of a tool with
//! the name of the method. So the content of a resource or a prompt has a label like a tool output. The server is the
//! one that the log names (`server`); what a server reports about itself identifies nothing.

use serde_json::{Map, Value};

use super::super::event::{EventBody, Output, Tool, TraceEntry};
use super::super::origin::{Origin, OriginPart};
use super::openai::{message, to_call};
use super::{server, unknown_fields};

/// Returns the event of one JSON-RPC message: a call, an output or, for a notification, a message with the role `mcp`.
/// A request other than `tools/call` is a call of a tool with the name of its method. The index of the message in
/// `Origin` is 0; the caller corrects it. Fails if a call does not name its tool, or if the message has neither a
/// method nor an id.
pub(super) fn read(object: &Map<String, Value>) -> Result<Vec<TraceEntry>, String> {
    let server = server(object);
    let extra = unknown_fields(
        object,
        &["jsonrpc", "id", "method", "params", "result", "error", "metadata", "server"],
    );
    // Each server counts its own ids, so the name of the server becomes a part of the id.
    let id = match object.get("id") {
        Some(Value::String(id)) => Some(format!("{}#{id}", server.unwrap_or_default())),
        Some(Value::Number(id)) => Some(format!("{}#{id}", server.unwrap_or_default())),
        _ => None,
    };
    // A request has a method and an id, a notification only a method, and a response only an id.
    let params = object.get("params").cloned().unwrap_or_default();
    let body = match (object.get("method").and_then(Value::as_str), id) {
        (Some("tools/call"), Some(id)) => {
            let name = params
                .get("name")
                .and_then(Value::as_str)
                .ok_or("`tools/call` has no `params.name`; add the name of the tool")?;
            let arguments = params.get("arguments").cloned().unwrap_or_default();
            EventBody::Call(to_call(id, tool(server, name), &arguments))
        }
        (Some(method), Some(id)) => EventBody::Call(to_call(id, tool(server, method), &params)),
        (Some(_), None) => return Ok(vec![TraceEntry { extra, ..message("mcp", params) }]),
        (None, Some(call_id)) => EventBody::Output(output(object, call_id)),
        (None, None) => return Err("a JSON-RPC message has neither a `method` (a string) nor an `id` (a string or a number): correct it, or remove it from the trace".to_owned()),
    };
    let part = if matches!(body, EventBody::Call(_)) { OriginPart::Request } else { OriginPart::Response };
    Ok(vec![TraceEntry { extra, origin: Some(Origin { message: 0, part }), ..TraceEntry::from(body) }])
}

/// Creates a tool of the server that the log names; without a server, a tool of the agent itself.
fn tool(server: Option<&str>, name: &str) -> Tool {
    Tool { server: server.map(Into::into), name: name.into() }
}

/// Reads a JSON-RPC response as the output of the call with the same id. An `error` is the output of a tool that fails.
/// The content is `result.content`, as `tools/call` has it, or for other methods the whole result.
fn output(object: &Map<String, Value>, call_id: String) -> Output {
    if let Some(error) = object.get("error") {
        return Output::error(call_id, error.clone());
    }
    let result = object.get("result").cloned().unwrap_or_default();
    let structured = result.get("structuredContent").cloned();
    let is_error = result.get("isError").and_then(Value::as_bool).unwrap_or(false);
    let content = result.get("content").cloned().unwrap_or(result);
    // A response does not name the tool; the call does.
    Output { call_id, tool: None, content, structured, is_error: Some(is_error) }
}
