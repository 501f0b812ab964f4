//! Reads a message in Anthropic's format into trace entries. In this format, texts, calls (`tool_use`) and outputs
//! (`tool_result`) are blocks of the list `content`. The reader of messages ([`super`]) calls [`read`] for each message
//! that contains a call or an output. Any other message has the same form in OpenAI's format, so `openai` reads it.

use serde_json::{Map, Value};

use super::super::event::{EventBody, Output, Tool, TraceEntry};
use super::super::origin::{Origin, OriginPart};
use super::openai::{message, to_call};
use super::{server, unknown_fields};

/// Returns the type of a content block.
fn kind(block: &Value) -> Option<&str> {
    block.get("type").and_then(Value::as_str)
}

/// Returns whether a message can only be Anthropic's; all others are read as OpenAI's, which have the same shape.
pub(super) fn is_anthropic(object: &Map<String, Value>) -> bool {
    let blocks = object.get("content").and_then(Value::as_array);
    blocks.is_some_and(|blocks| {
        blocks.iter().any(|block| matches!(kind(block), Some("tool_use" | "tool_result")))
    })
}

/// Returns the events of one message in order: one for each call and each result among its blocks, and one message for
/// each group of other blocks between them. Each has the unknown fields of the message. The index of the message in
/// `Origin` is 0; the caller corrects it. Fails if the message has no `role`, or if a call has no id or no name.
pub(super) fn read(object: &Map<String, Value>) -> Result<Vec<TraceEntry>, String> {
    let role = object
        .get("role")
        .and_then(Value::as_str)
        .ok_or("the message has no `role`; add one, such as `user`")?;
    let extra = unknown_fields(object, &["role", "content", "metadata"]);
    let mut entries = Vec::new();
    // The blocks since the last call or result, which become one message.
    let mut pending: Vec<Value> = Vec::new();
    // Adds the blocks before block `end` as one message.
    let flush = |pending: &mut Vec<Value>, entries: &mut Vec<TraceEntry>, end: usize| {
        if !pending.is_empty() {
            let origin = Some(Origin { message: 0, part: OriginPart::Blocks(end - pending.len()) });
            let content = Value::Array(std::mem::take(pending));
            entries.push(TraceEntry { extra: extra.clone(), origin, ..message(role, content) });
        }
    };
    let blocks = object.get("content").and_then(Value::as_array).map_or(&[] as &[Value], Vec::as_slice);
    for (index, block) in blocks.iter().enumerate() {
        let body = match kind(block) {
            Some("tool_use") => {
                let field = |name: &str| block.get(name).and_then(Value::as_str);
                let missing =
                    |name: &str| format!("block {index} of the type `tool_use` has no `{name}`; add it");
                let id = field("id").ok_or_else(|| missing("id"))?.to_owned();
                let name = field("name").ok_or_else(|| missing("name"))?;
                let server = block.as_object().and_then(server).map(Into::into);
                let tool = Tool { server, name: name.into() };
                EventBody::Call(to_call(id, tool, block.get("input").unwrap_or(&Value::Null)))
            }
            Some("tool_result") => {
                let id = block.get("tool_use_id").and_then(Value::as_str).unwrap_or_default();
                EventBody::Output(Output {
                    call_id: id.to_owned(),
                    tool: None,
                    content: block.get("content").cloned().unwrap_or_default(),
                    structured: None,
                    is_error: Some(block.get("is_error").and_then(Value::as_bool).unwrap_or(false)),
                })
            }
            _ => {
                pending.push(block.clone());
                continue;
            }
        };
        flush(&mut pending, &mut entries, index);
        let part = if matches!(body, EventBody::Call(_)) {
            OriginPart::Use(index)
        } else {
            OriginPart::Result(index)
        };
        let origin = Some(Origin { message: 0, part });
        entries.push(TraceEntry { extra: extra.clone(), origin, ..TraceEntry::from(body) });
    }
    flush(&mut pending, &mut entries, blocks.len());
    Ok(entries)
}
