//! Encodes and decodes requests of OpenAI's Responses API.

use serde_json::{Value, json};

use super::super::fields::{AllowedFields, EXTENSION, NOT_SUPPORTED, ObjectFields};
use super::super::{
    ReceivedRequest, WireError, add_call, extension, image_url, only_text, parse_image_url, put,
};
use crate::chat::{Message, Part, Request, Sampling, Source, Sources, ToolCall, ToolChoice, ToolSpec};
use crate::json::Json;

/// Encodes the body of a request.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
    let input: Vec<Value> = request.messages.iter().flat_map(items).collect();
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
    let others = [
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

/// Encodes a message as items of the input: its text and each of its calls is a separate item.
fn items(message: &Message) -> Vec<Value> {
    match message {
        Message::System(parts) => vec![json!({"role": "system", "content": encode_content(parts)})],
        Message::User(parts) => vec![json!({"role": "user", "content": encode_content(parts)})],
        Message::Assistant { text, calls } => {
            let has_text = !text.is_empty() || calls.is_empty();
            let message = has_text.then(|| json!({"role": "assistant", "content": text}));
            let call = |call: &ToolCall| json!({"type": "function_call", "call_id": call.id, "name": call.name, "arguments": call.arguments});
            message.into_iter().chain(calls.iter().map(call)).collect()
        }
        Message::Tool { call_id, content: parts, is_error: _ } => {
            vec![json!({"type": "function_call_output", "call_id": call_id, "output": encode_content(parts)})]
        }
    }
}

fn encode_content(parts: &[Part]) -> Value {
    if let Some(text) = only_text(parts) {
        return json!(text);
    }
    let part = |part: &Part| match part {
        Part::Text(text) => json!({"type": "input_text", "text": text}),
        image => json!({"type": "input_image", "image_url": image_url(image), "detail": "auto"}),
    };
    parts.iter().map(part).collect()
}

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

const REQUEST: AllowedFields = AllowedFields {
    read: &[
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "max_output_tokens",
        "temperature",
        "top_p",
        "stream",
        "stream_options",
    ],
    dropped: &["user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"],
    fixed: &[
        ("store", &["false"]),
        ("background", &["false"]),
        ("include", &["[]"]),
        ("parallel_tool_calls", &["true"]),
        ("text", &["{}", r#"{"format":{"type":"text"}}"#]),
        ("top_logprobs", &["0"]),
        ("truncation", &[r#""disabled""#]),
        ("service_tier", &[r#""auto""#, r#""default""#]),
    ],
};
const OPTIONS: AllowedFields = AllowedFields { read: &[], dropped: &["include_obfuscation"], fixed: &[] };

/// Decodes the body of a request.
///
/// # Errors
/// If it asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::from_value(body, "")?;
    body.reject_unknown(&REQUEST)?;
    if let Some(options) = body.get("stream_options") {
        ObjectFields::from_value(options, "stream_options")?.reject_unknown(&OPTIONS)?;
    }
    let (mut messages, mut sources) = (Vec::new(), Sources::default());
    if let Some(text) = body.optional_text("instructions")? {
        messages.push(Message::System(vec![Part::from(text)]));
    }
    match body.get("input") {
        None => return body.field_error("input", "is missing"),
        Some(Json::Text(text)) => messages.push(Message::User(vec![Part::Text(text.clone().into_owned())])),
        Some(_) => {
            for item in body.objects("input")? {
                read_item(&item?, &mut messages, &mut sources)?;
            }
        }
    }
    let tools = body.objects("tools")?;
    let request = Request {
        messages: messages.into(),
        tools: tools.map(|tool| read_tool(&tool?)).collect::<Result<_, _>>()?,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens: body.tokens("max_output_tokens")?,
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: None,
            stop: Vec::new(),
        },
    };
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    Ok(ReceivedRequest { request, model, stream, usage: true, sources })
}

// Clients send the items of earlier answers back, with their ids.
const MESSAGE: AllowedFields = AllowedFields {
    read: &["role", "content"],
    dropped: &["id", "status", "phase"],
    fixed: &[("type", &[r#""message""#])],
};
const USER: AllowedFields = AllowedFields {
    read: &["role", "content", EXTENSION],
    dropped: &["id", "status", "phase"],
    fixed: &[("type", &[r#""message""#])],
};
const CALL: AllowedFields = AllowedFields {
    read: &["type", "call_id", "name", "arguments"],
    dropped: &["id", "status"],
    fixed: &[("caller", &[r#"{"type":"direct"}"#]), ("async", &["false"])],
};
const OUTPUT: AllowedFields = AllowedFields {
    read: &["type", "call_id", "output", extension::EXTENSION_FIELD],
    dropped: &["id", "status"],
    fixed: &[],
};

/// Reads an item of the input and adds it to `messages`. The provenance of the user's parts is added to `sources`.
fn read_item(
    item: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
) -> Result<(), WireError> {
    match item.optional_text("type")? {
        None | Some("message") => {
            let is_user = item.text("role")? == "user";
            item.reject_unknown(if is_user { &USER } else { &MESSAGE })?;
            let parts = read_parts(item, "content", if is_user { &PARTS_OF_USER } else { &PARTS })?;
            messages.push(match item.text("role")? {
                "system" | "developer" => Message::System(parts),
                "user" => {
                    sources.set(messages.len(), sources_of(item)?);
                    Message::User(parts)
                }
                "assistant" => {
                    let mut text = String::new();
                    for part in parts {
                        match part {
                            Part::Text(piece) => text.push_str(&piece),
                            _ => {
                                return item.field_error(
                                    "content",
                                    "has an image, which an assistant message cannot contain",
                                );
                            }
                        }
                    }
                    Message::Assistant { text, calls: Vec::new() }
                }
                _ => return item.field_error("role", NOT_SUPPORTED),
            });
        }
        Some("function_call") => {
            item.reject_unknown(&CALL)?;
            let text = |key: &str| item.text(key).map(str::to_owned);
            let call = ToolCall { id: text("call_id")?, name: text("name")?, arguments: text("arguments")? };
            add_call(messages, call);
        }
        Some("function_call_output") => {
            item.reject_unknown(&OUTPUT)?;
            let call_id = item.text("call_id")?.to_owned();
            messages.push(Message::Tool {
                call_id,
                content: read_content(item, "output")?,
                is_error: extension::is_error(item)?,
            });
        }
        Some(_) => return item.field_error("type", NOT_SUPPORTED),
    }
    Ok(())
}

/// The fields of parts: texts, refusals and images.
const PARTS: [AllowedFields; 3] = [
    AllowedFields {
        read: &["type", "text"],
        dropped: &[],
        fixed: &[("annotations", &["[]"]), ("logprobs", &["[]"])],
    },
    AllowedFields { read: &["type", "refusal"], dropped: &[], fixed: &[] },
    AllowedFields { read: &["type", "image_url"], dropped: &[], fixed: &[("detail", &[r#""auto""#])] },
];
const PARTS_OF_USER: [AllowedFields; 3] = [
    AllowedFields {
        read: &["type", "text", EXTENSION],
        dropped: &[],
        fixed: &[("annotations", &["[]"]), ("logprobs", &["[]"])],
    },
    AllowedFields { read: &["type", "refusal", EXTENSION], dropped: &[], fixed: &[] },
    AllowedFields {
        read: &["type", "image_url", EXTENSION],
        dropped: &[],
        fixed: &[("detail", &[r#""auto""#])],
    },
];

/// Returns the sources of the parts of a message: the part's own, or else that of the message.
fn sources_of(item: &ObjectFields<'_>) -> Result<Vec<Option<Source>>, WireError> {
    let of_message = item.source()?;
    match item.get("content") {
        Some(Json::List(_)) => {
            item.objects("content")?.map(|part| Ok(part?.source()?.or(of_message))).collect()
        }
        _ => Ok(vec![of_message]),
    }
}

fn read_content(item: &ObjectFields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    read_parts(item, key, &PARTS)
}

/// Reads the parts under `key`: a text, or a list of texts, refusals and images. The last argument lists the fields
/// that these three may have.
fn read_parts(
    item: &ObjectFields<'_>,
    key: &str,
    [text, refusal, image]: &[AllowedFields; 3],
) -> Result<Vec<Part>, WireError> {
    match item.get(key) {
        None => return item.field_error(key, "is missing"),
        Some(Json::Text(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Json::Text(text)) => return Ok(vec![Part::Text(text.clone().into_owned())]),
        Some(_) => {}
    }
    let part = |part: Result<ObjectFields<'_>, WireError>| {
        let part = part?;
        match part.text("type")? {
            "input_text" | "output_text" => {
                part.reject_unknown(text)?;
                Ok(Part::Text(part.text("text")?.to_owned()))
            }
            "refusal" => {
                part.reject_unknown(refusal)?;
                Ok(Part::Text(part.text("refusal")?.to_owned()))
            }
            "input_image" => {
                part.reject_unknown(image)?;
                parse_image_url(part.text("image_url")?)
                    .or_else(|problem| part.field_error("image_url", problem))
            }
            _ => part.field_error("type", NOT_SUPPORTED),
        }
    };
    item.objects(key)?.map(part).collect()
}

// `strict` has no effect here: whatever the server enforces, the arguments are checked before the call runs.
const TOOL: AllowedFields =
    AllowedFields { read: &["type", "name", "description", "parameters"], dropped: &["strict"], fixed: &[] };

fn read_tool(tool: &ObjectFields<'_>) -> Result<ToolSpec, WireError> {
    if tool.text("type")? != "function" {
        return tool.field_error("type", NOT_SUPPORTED);
    }
    tool.reject_unknown(&TOOL)?;
    Ok(ToolSpec {
        name: tool.text("name")?.to_owned(),
        description: tool.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: tool.schema("parameters")?.into(),
    })
}

const CHOICE: AllowedFields =
    AllowedFields { read: &["name"], dropped: &[], fixed: &[("type", &[r#""function""#])] };

/// Decodes `tool_choice`: whether the model may, must or must not call a tool, or which one it must call.
fn read_choice(body: &ObjectFields<'_>) -> Result<ToolChoice, WireError> {
    match body.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Json::Text(word)) => match word.as_ref() {
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Any),
            "none" => Ok(ToolChoice::None),
            _ => body.field_error("tool_choice", NOT_SUPPORTED),
        },
        Some(choice) => {
            let choice = ObjectFields::from_value(choice, "tool_choice")?;
            choice.reject_unknown(&CHOICE)?;
            Ok(ToolChoice::Tool(choice.text("name")?.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","input":"i",{field}}}"#);
        let shown = match decode_request(&Json::from(&serde_json::from_str(&text).unwrap())) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for fine in [
            r#""store":false"#,
            r#""previous_response_id":null"#,
            r#""text":{"format":{"type":"text"}}"#,
            r#""input":[{"role":"user","content":"a"}]"#,
            r#""input":[{"type":"message","id":"m","status":"completed","role":"assistant",
                "content":[{"type":"output_text","text":"t","annotations":[],"logprobs":[]}]}]"#,
            r#""input":[{"type":"function_call","id":"f","status":"completed","call_id":"c","name":"n","arguments":"{}"}]"#,
        ] {
            check(fine, "fine");
        }
        check(r#""previous_response_id":"r""#, "`previous_response_id` is not supported");
        check(r#""conversation":"c""#, "`conversation` is not supported");
        check(r#""prompt":{"id":"p"}"#, "`prompt` is not supported");
        check(r#""reasoning":{"effort":"low"}"#, "`reasoning` is not supported");
        check(r#""store":true"#, "`store` has a value that is not supported");
        check(r#""include":["message.output_text.logprobs"]"#, "`include` has a value that is not supported");
        check(r#""tools":[{"type":"web_search"}]"#, "`tools[0].type` is not supported");
        check(r#""tools":[{"type":"mcp","server_url":"u"}]"#, "`tools[0].type` is not supported");
        check(
            r#""tool_choice":{"type":"file_search"}"#,
            "`tool_choice.type` has a value that is not supported",
        );
        check(r#""input":[{"type":"item_reference","id":"i"}]"#, "`input[0].type` is not supported");
        check(r#""input":[{"type":"reasoning","id":"i"}]"#, "`input[0].type` is not supported");
        check(r#""input":3"#, "`input` is not a list");
        check(r#""input":null"#, "`input` is missing");
        check(
            r#""input":[{"role":"user","content":[{"type":"input_image","file_id":"f"}]}]"#,
            "`input[0].content[0].file_id` is not supported",
        );
        check(
            r#""input":[{"role":"user","content":[{"type":"input_file","file_data":"f"}]}]"#,
            "`input[0].content[0].type` is not supported",
        );
    }
}
