//! Encodes requests of Anthropic's Messages API, as `RemoteModel` sends them to a server. The module [`super`]
//! describes how the format differs from the others.

use serde_json::{Value, json};

use super::super::documents::is_pdf;
use super::super::output_format::described_schema;
use super::super::{arguments_object, put};
use crate::chat::{
    Effort, Message, OutputFormat, Part, Reasoning, ReasoningPart, Request, Seal, ThinkingMode, ToolCall,
    ToolChoice, ToolSpec,
};

/// The token limit of a request that states none.
pub const MAX_TOKENS: u32 = 4096;

/// Encodes the body of a request to the model with the name `model`. `stream` requests a streamed answer. The system
/// messages at the beginning that contain only texts are sent in the field `system`, and all others among the messages.
/// The format requires a token limit, so a request without one gets [`MAX_TOKENS`]. The seed, the verbosity and the
/// summary of the reasoning are left out, since the format has no fields for them.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
    // The number of system messages at the beginning that contain only texts.
    let is_text = |part: &Part| matches!(part, Part::Text(_));
    let leads = |message: &&Message| matches!(message, Message::System(parts) if parts.iter().all(is_text));
    let leading = request.messages.iter().take_while(leads).count();
    let (system, rest) = request.messages.split_at(leading);
    let sampling = &request.sampling;
    let mut body = json!({"model": model, "max_tokens": sampling.max_tokens.unwrap_or(MAX_TOKENS)});
    let system: Vec<&Part> = system.iter().flat_map(parts_of).collect();
    match system.as_slice() {
        [] => {}
        [Part::Text(text)] => put(&mut body, "system", text.as_str()),
        parts => put(&mut body, "system", parts.iter().map(|part| encode_part(part)).collect::<Vec<_>>()),
    }
    put(&mut body, "messages", messages(rest, model));
    if !request.tools.is_empty() {
        put(&mut body, "tools", request.tools.iter().map(encode_tool).collect::<Vec<_>>());
    }
    let Reasoning { effort, thinking, display, .. } = &sampling.reasoning;
    let mut output = serde_json::Map::new();
    output.extend(effort.and_then(effort_name).map(|name| ("effort".to_owned(), json!(name))));
    // The format has no form for JSON without a schema: see `Api::unsupported_feature`.
    if let Some(OutputFormat::Schema(schema)) = &request.format {
        let format = json!({"type": "json_schema", "schema": described_schema(schema)});
        output.insert("format".to_owned(), format);
    }
    let output = (!output.is_empty()).then_some(Value::Object(output));
    let thinking = thinking.map(|thinking| {
        let mut body = encode_thinking(thinking);
        if let Some(display) = display.filter(|_| thinking != ThinkingMode::Disabled) {
            put(&mut body, "display", display.name());
        }
        body
    });
    // The fields that the body has only if the request sets them.
    let others = [
        ("tool_choice", encode_choice(request)),
        ("thinking", thinking),
        ("output_config", output),
        ("temperature", sampling.temperature.map(Value::from)),
        ("top_p", sampling.top_p.map(Value::from)),
        ("stop_sequences", Some(&sampling.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ("stream", stream.then_some(Value::Bool(true))),
    ];
    for (key, value) in others {
        if let Some(value) = value {
            put(&mut body, key, value);
        }
    }
    body
}

/// Encodes the field `tool_choice`: which tools the model may or must call, and whether it may call only one. `None` if
/// the request leaves both to the server.
fn encode_choice(request: &Request) -> Option<Value> {
    // The limit of one call per message is a part of this field, which is therefore sent for `Auto` as well if there is
    // such a limit.
    let is_single = request.sampling.single_call && !request.tools.is_empty();
    let mut choice = match &request.choice {
        ToolChoice::Auto if is_single => json!({"type": "auto"}),
        ToolChoice::Auto => return None,
        ToolChoice::Any => json!({"type": "any"}),
        ToolChoice::None => json!({"type": "none"}),
        ToolChoice::Tool(name) => json!({"type": "tool", "name": name}),
    };
    if is_single && request.choice != ToolChoice::None {
        put(&mut choice, "disable_parallel_tool_use", true);
    }
    Some(choice)
}

/// Encodes the field `thinking`, without `display`.
fn encode_thinking(thinking: ThinkingMode) -> Value {
    match thinking {
        ThinkingMode::Disabled => json!({"type": "disabled"}),
        ThinkingMode::Adaptive => json!({"type": "adaptive"}),
        ThinkingMode::Enabled(budget) => json!({"type": "enabled", "budget_tokens": budget}),
    }
}

/// Returns the name of an effort in this format, whose least effort is `low`. Returns `None` for [`Effort::None`], for
/// which no effort is sent: only the field `thinking` can turn reasoning off.
fn effort_name(effort: Effort) -> Option<&'static str> {
    match effort {
        Effort::None => None,
        Effort::Minimal => Some(Effort::Low.name()),
        known => Some(known.name()),
    }
}

/// Returns the parts of a message; none for a message of the model.
fn parts_of(message: &Message) -> &[Part] {
    match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => parts,
        Message::Assistant { .. } => &[],
    }
}

/// Encodes the messages after those in the field `system`, for the model with the name `model`. Consecutive tool
/// outputs become the blocks of one message of the user. A system message is sent as a message of the user, since not
/// every model accepts system messages here. Reasoning is sent only to the model that wrote it.
fn messages(messages: &[Message], model: &str) -> Vec<Value> {
    let mut encoded: Vec<Value> = Vec::new();
    // The tool outputs since the last message that is not one; they form one message.
    let mut results: Vec<Value> = Vec::new();
    for message in messages {
        if !matches!(message, Message::Tool { .. }) && !results.is_empty() {
            encoded.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
        }
        match message {
            Message::System(parts) | Message::User(parts) => {
                encoded.push(json!({"role": "user", "content": encode_content(parts)}));
            }
            Message::Assistant { text, calls, thoughts } => {
                let readable = thoughts.iter().filter(|thought| thought.is_readable_by(model));
                let mut blocks: Vec<Value> = readable.filter_map(sealed_block).collect();
                // A message of text alone needs no blocks.
                if calls.is_empty() && blocks.is_empty() {
                    encoded.push(json!({"role": "assistant", "content": text}));
                    continue;
                }
                blocks.extend((!text.is_empty()).then(|| json!({"type": "text", "text": text})));
                blocks.extend(calls.iter().map(tool_use));
                encoded.push(json!({"role": "assistant", "content": blocks}));
            }
            Message::Tool { call_id, content: parts, is_error } => {
                let mut result = json!({"type": "tool_result", "tool_use_id": call_id});
                if !parts.is_empty() {
                    put(&mut result, "content", encode_content(parts));
                }
                if *is_error == Some(true) {
                    put(&mut result, "is_error", true);
                }
                results.push(result);
            }
        }
    }
    if !results.is_empty() {
        encoded.push(json!({"role": "user", "content": results}));
    }
    encoded
}

/// Encodes a part of the reasoning for a server, as the block in which a server of this format sent it. `None` if the
/// part has no seal, or a seal of another format.
fn sealed_block(thought: &ReasoningPart) -> Option<Value> {
    match &thought.seal {
        Seal::Signature(signature) => {
            Some(json!({"type": "thinking", "thinking": thought.texts.concat(), "signature": signature}))
        }
        Seal::Redacted(data) => Some(json!({"type": "redacted_thinking", "data": data})),
        Seal::None | Seal::Part { .. } | Seal::Item { .. } => None,
    }
}

/// Encodes a part of the reasoning for a client. If the part comes from a server of another format, its block has an
/// empty signature.
pub(super) fn shown_block(thought: &ReasoningPart) -> Value {
    let unsigned = || json!({"type": "thinking", "thinking": thought.text(), "signature": ""});
    sealed_block(thought).unwrap_or_else(unsigned)
}

/// Encodes a call as a block `tool_use`.
pub(super) fn tool_use(call: &ToolCall) -> Value {
    let input = arguments_object(&call.arguments);
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

/// Encodes the content of a message or of a tool output: a single text as a string, other parts as a list of blocks.
fn encode_content(parts: &[Part]) -> Value {
    match parts {
        [Part::Text(text)] => json!(text),
        _ => parts.iter().map(encode_part).collect(),
    }
}

/// Encodes a part of a message as a block.
fn encode_part(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::ImageUrl(url) => json!({"type": "image", "source": {"type": "url", "url": url}}),
        Part::ImageData { media_type, data } => {
            let kind = if is_pdf(part) { "document" } else { "image" };
            json!({"type": kind, "source": {"type": "base64", "media_type": media_type, "data": data}})
        }
    }
}

/// Encodes a tool; an empty description is not sent.
fn encode_tool(tool: &ToolSpec) -> Value {
    let mut body = json!({"name": tool.name});
    if !tool.description.is_empty() {
        put(&mut body, "description", tool.description.as_str());
    }
    put(&mut body, "input_schema", (*tool.parameters).clone());
    body
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_messages() {
        let part = |text: &str| vec![Part::from(text)];
        let check = |messages: Vec<Message>, expected: Value| {
            let body =
                encode_request(&Request { messages: messages.into(), ..Request::default() }, "m", false);
            assert_eq!(json!([body.get("system"), body.get("messages")]), expected);
        };
        let (a, b) = (Message::System(part("a")), Message::System(part("b")));
        check(vec![a.clone()], json!(["a", []]));
        let both = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
        check(vec![a.clone(), b.clone()], json!([both, []]));
        let said = Message::User(part("u"));
        let user = |text: &str| json!({"role": "user", "content": text});
        check(vec![a, said, b], json!(["a", [user("u"), user("b")]]));
        let seen = Message::System(vec![Part::ImageUrl("https://a/b.png".to_owned())]);
        let image = json!({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}});
        check(vec![seen], json!([null, [{"role": "user", "content": [image]}]]));
    }
}
