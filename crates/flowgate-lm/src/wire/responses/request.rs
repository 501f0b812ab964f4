//! Encodes requests of OpenAI's Responses API, as `RemoteModel` sends them to a server. The module [`super`] describes
//! how the format differs from the others.

use serde_json::{Value, json};

use super::super::documents::named_pdf;
use super::super::output_format::encode_named_schema;
use super::super::{image_url, only_text, put};
use crate::chat::{
    Message, OutputFormat, Part, ReasoningPart, Request, Seal, ToolCall, ToolChoice, ToolSpec,
};

/// Encodes the body of a request to the model with the name `model`. `stream` requests a streamed answer. Settings that
/// the request leaves open are not sent, so that the server's defaults apply. The seed and the thinking mode are left
/// out, since the format has no fields for them.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
    let input: Vec<Value> = request.messages.iter().flat_map(|message| items(message, model)).collect();
    let mut body = json!({"model": model, "input": input, "store": false});
    if !request.tools.is_empty() {
        put(&mut body, "tools", request.tools.iter().map(encode_tool).collect::<Vec<_>>());
    }
    match &request.choice {
        ToolChoice::Auto => {}
        ToolChoice::Any => put(&mut body, "tool_choice", "required"),
        ToolChoice::None => put(&mut body, "tool_choice", "none"),
        ToolChoice::Tool(name) => put(&mut body, "tool_choice", json!({"type": "function", "name": name})),
    }
    let sampling = &request.sampling;
    let reasoning = &sampling.reasoning;
    let effort = reasoning.effort.map(|effort| json!(effort.name()));
    let summary = reasoning.summary.map(|summary| json!(summary.name()));
    let mut reasoning_fields = serde_json::Map::new();
    reasoning_fields.extend(effort.map(|effort| ("effort".to_owned(), effort)));
    reasoning_fields.extend(summary.map(|summary| ("summary".to_owned(), summary)));
    // The provider stores no copy of the reasoning (`store` is false). The answer must therefore contain an encrypted
    // copy, which later requests return to the model. It is requested if the client asks for it, or for an effort or a
    // summary of the reasoning.
    let include = (reasoning.is_returned || !reasoning_fields.is_empty())
        .then(|| json!(["reasoning.encrypted_content"]));
    // Without tools, there are no calls to restrict.
    let is_single = sampling.single_call && !request.tools.is_empty();
    // The fields that the body has only if the request sets them.
    let others = [
        ("reasoning", Some(Value::Object(reasoning_fields)).filter(|fields| *fields != json!({}))),
        ("include", include),
        ("text", text_settings(request)),
        ("parallel_tool_calls", is_single.then_some(Value::Bool(false))),
        ("max_output_tokens", request.sampling.max_tokens.map(Value::from)),
        ("temperature", request.sampling.temperature.map(Value::from)),
        ("top_p", request.sampling.top_p.map(Value::from)),
        ("stream", stream.then_some(Value::Bool(true))),
    ];
    for (key, value) in others {
        if let Some(value) = value {
            put(&mut body, key, value);
        }
    }
    body
}

/// Encodes the field `text`: the verbosity and the format of the text; `None` if the request states neither.
fn text_settings(request: &Request) -> Option<Value> {
    let mut settings = serde_json::Map::new();
    let verbosity = request.sampling.verbosity.map(|verbosity| json!(verbosity.name()));
    settings.extend(verbosity.map(|verbosity| ("verbosity".to_owned(), verbosity)));
    let format = request.format.as_ref().map(|format| match format {
        OutputFormat::JsonObject => json!({"type": "json_object"}),
        OutputFormat::Schema(schema) => {
            let mut fields = serde_json::Map::from_iter([("type".to_owned(), json!("json_schema"))]);
            fields.extend(encode_named_schema(schema));
            Value::Object(fields)
        }
    });
    settings.extend(format.map(|format| ("format".to_owned(), format)));
    (!settings.is_empty()).then_some(Value::Object(settings))
}

/// Encodes a message as items of the input for the model with the name `model`. The text, each call and each part of
/// the reasoning are separate items. Reasoning is sent only to the model that wrote it.
fn items(message: &Message, model: &str) -> Vec<Value> {
    match message {
        Message::System(parts) => vec![json!({"role": "system", "content": encode_content(parts)})],
        Message::User(parts) => vec![json!({"role": "user", "content": encode_content(parts)})],
        Message::Assistant { text, calls, thoughts } => {
            // A message without text and calls is sent with an empty text, so that it is not lost.
            let has_text = !text.is_empty() || calls.is_empty();
            let message = has_text.then(|| json!({"role": "assistant", "content": text}));
            let call = |call: &ToolCall| json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments});
            let readable = thoughts.iter().filter(|thought| thought.is_readable_by(model));
            let thoughts = readable.filter_map(reasoning_item);
            thoughts.chain(message).chain(calls.iter().map(call)).collect()
        }
        // The format has no field for whether the tool failed.
        Message::Tool { call_id, content: parts, is_error: _ } => {
            vec![json!({"type": "function_call_output", "call_id": call_id, "output": encode_content(parts)})]
        }
    }
}

/// Encodes a part of the reasoning for a request, as the item that the server sent. `None` if the part does not come
/// from a server of this format, or if it has no encrypted content: the server has not stored the item, so it could not
/// read the reasoning.
fn reasoning_item(thought: &ReasoningPart) -> Option<Value> {
    let Seal::Item { id, encrypted: Some(encrypted) } = &thought.seal else { return None };
    let summary = |text: &String| json!({"type": "summary_text", "text": text});
    let summary: Vec<Value> = thought.texts.iter().map(summary).collect();
    let mut item = json!({"type": "reasoning", "summary": summary, "encrypted_content": encrypted});
    if !id.is_empty() {
        put(&mut item, "id", id.as_str());
    }
    Some(item)
}

/// Encodes the content of a message or of a tool output: a single text as a string, other parts as a list.
fn encode_content(parts: &[Part]) -> Value {
    if let Some(text) = only_text(parts) {
        return json!(text);
    }
    let part = |part: &Part| match part {
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        image => match named_pdf(image) {
            Some((name, url)) => json!({"type": "input_file", "filename": name, "file_data": url}),
            // The format requires `detail`; with `auto`, the server chooses the resolution.
            None => json!({"type": "input_image", "image_url": image_url(image), "detail": "auto"}),
        },
    };
    parts.iter().map(part).collect()
}

/// Encodes a tool as a function, and asks the server not to enforce its schema.
fn encode_tool(tool: &ToolSpec) -> Value {
    let mut body = json!({"type": "function", "name": tool.name});
    if !tool.description.is_empty() {
        put(&mut body, "description", tool.description.as_str());
    }
    put(&mut body, "parameters", (*tool.parameters).clone());
    // By default the server treats schemas as strict, and changes or rejects those that are not.
    put(&mut body, "strict", false);
    body
}
