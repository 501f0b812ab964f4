//! Requests.

use serde_json::{Value, json};

use super::super::fields::{Fields, Known, NOT_SUPPORTED};
use super::super::{Asked, WireError, arguments_object, image_at, put};
use crate::chat::{Message, Part, Request, Sampling, ToolCall, ToolChoice, ToolSpec};

/// The most tokens to write, if a request does not say.
pub const MAX_TOKENS: u32 = 4096;

/// The body of a request.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
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
        parts => put(&mut body, "system", parts.iter().map(|part| block(part)).collect::<Vec<_>>()),
    }
    put(&mut body, "messages", messages(rest));
    if !request.tools.is_empty() {
        put(&mut body, "tools", request.tools.iter().map(tool).collect::<Vec<_>>());
    }
    match &request.choice {
        ToolChoice::Auto => {}
        ToolChoice::Any => put(&mut body, "tool_choice", json!({"type": "any"})),
        ToolChoice::None => put(&mut body, "tool_choice", json!({"type": "none"})),
        ToolChoice::Tool(name) => put(&mut body, "tool_choice", json!({"type": "tool", "name": name})),
    }
    let others = [
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

fn parts_of(message: &Message) -> &[Part] {
    match message {
        Message::System(parts) | Message::User(parts) | Message::Tool { content: parts, .. } => parts,
        Message::Assistant { .. } => &[],
    }
}

fn messages(messages: &[Message]) -> Vec<Value> {
    let mut found: Vec<Value> = Vec::new();
    // The answers of tools that are waiting for their message.
    let mut results: Vec<Value> = Vec::new();
    for message in messages {
        if !matches!(message, Message::Tool { .. }) && !results.is_empty() {
            found.push(json!({"role": "user", "content": std::mem::take(&mut results)}));
        }
        match message {
            Message::System(parts) | Message::User(parts) => {
                found.push(json!({"role": "user", "content": content(parts)}));
            }
            Message::Assistant { text, calls } if calls.is_empty() => {
                found.push(json!({"role": "assistant", "content": text}));
            }
            Message::Assistant { text, calls } => {
                let said = (!text.is_empty()).then(|| json!({"type": "text", "text": text}));
                let blocks: Vec<Value> = said.into_iter().chain(calls.iter().map(tool_use)).collect();
                found.push(json!({"role": "assistant", "content": blocks}));
            }
            Message::Tool { call_id, content: parts, is_error } => {
                let mut result = json!({"type": "tool_result", "tool_use_id": call_id});
                if !parts.is_empty() {
                    put(&mut result, "content", content(parts));
                }
                if *is_error {
                    put(&mut result, "is_error", true);
                }
                results.push(result);
            }
        }
    }
    if !results.is_empty() {
        found.push(json!({"role": "user", "content": results}));
    }
    found
}

pub(super) fn tool_use(call: &ToolCall) -> Value {
    let input = arguments_object(&call.arguments);
    json!({"type": "tool_use", "id": call.id, "name": call.name, "input": input})
}

fn content(parts: &[Part]) -> Value {
    match parts {
        [Part::Text(text)] => json!(text),
        _ => parts.iter().map(block).collect(),
    }
}

fn block(part: &Part) -> Value {
    match part {
        Part::Text(text) => json!({"type": "text", "text": text}),
        Part::ImageUrl(url) => json!({"type": "image", "source": {"type": "url", "url": url}}),
        Part::ImageData { media_type, data } => {
            json!({"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}})
        }
    }
}

fn tool(tool: &ToolSpec) -> Value {
    let mut body = json!({"name": tool.name});
    if !tool.description.is_empty() {
        put(&mut body, "description", tool.description.as_str());
    }
    put(&mut body, "input_schema", tool.parameters.clone());
    body
}

const REQUEST: Known = Known {
    read: &[
        "model",
        "max_tokens",
        "system",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "top_p",
        "stop_sequences",
        "stream",
    ],
    dropped: &["metadata", "cache_control"],
    fixed: &[("service_tier", &[r#""auto""#]), ("thinking", &[r#"{"type":"disabled"}"#])],
};

/// Reads the body of a request.
///
/// # Errors
/// If it asks for something that a [`Request`] cannot say.
pub fn decode_request(body: &Value) -> Result<Asked, WireError> {
    let body = Fields::of(body, "")?;
    body.only(&REQUEST)?;
    if body.get("messages").is_none() {
        return body.wrong("messages", "is missing");
    }
    let mut messages = Vec::new();
    if body.get("system").is_some() {
        messages.push(Message::System(read_texts(&body, "system")?));
    }
    for (at, item) in body.list("messages")?.iter().enumerate() {
        read_message(item, at, &mut messages)?;
    }
    let max_tokens = body.tokens("max_tokens")?;
    if max_tokens.is_none() {
        return body.wrong("max_tokens", "is missing");
    }
    let tools = body.list("tools")?.iter().enumerate();
    let request = Request {
        messages,
        tools: tools.map(|(at, item)| read_tool(item, at)).collect::<Result<_, _>>()?,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens,
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: None,
            stop: body.texts("stop_sequences")?,
        },
    };
    Ok(Asked { request, model: body.text("model")?.to_owned(), stream: body.flag("stream")?, usage: true })
}

// `cache_control` says what may be kept, and costs only money.
const TEXT: Known =
    Known { read: &["type", "text"], dropped: &["cache_control"], fixed: &[("citations", &["[]"])] };
const IMAGE: Known = Known { read: &["type", "source"], dropped: &["cache_control"], fixed: &[] };
const URL: Known = Known { read: &["type", "url"], dropped: &[], fixed: &[] };
const BASE64: Known = Known { read: &["type", "media_type", "data"], dropped: &[], fixed: &[] };
const USE: Known = Known {
    read: &["type", "id", "name", "input"],
    dropped: &["cache_control"],
    fixed: &[("caller", &[r#"{"type":"direct"}"#])],
};
const RESULT: Known =
    Known { read: &["type", "tool_use_id", "content", "is_error"], dropped: &["cache_control"], fixed: &[] };
const MESSAGE: Known = Known { read: &["role", "content"], dropped: &[], fixed: &[] };

/// The blocks of a content, which may be a text alone.
fn blocks<'a>(of: &Fields<'a>, key: &str) -> Result<Vec<Fields<'a>>, WireError> {
    let block = |(at, item)| Fields::of(item, of.at(&format!("{key}[{at}]")));
    of.list(key)?.iter().enumerate().map(block).collect()
}

fn read_texts(of: &Fields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    if let Some(Value::String(text)) = of.get(key) {
        return Ok(vec![Part::Text(text.clone())]);
    }
    let text = |block: &Fields<'_>| {
        if block.text("type")? == "text" { read_part(block) } else { block.wrong("type", NOT_SUPPORTED) }
    };
    blocks(of, key)?.iter().map(text).collect()
}

fn read_parts(of: &Fields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    if let Some(Value::String(text)) = of.get(key) {
        return Ok(vec![Part::Text(text.clone())]);
    }
    blocks(of, key)?.iter().map(read_part).collect()
}

fn read_part(block: &Fields<'_>) -> Result<Part, WireError> {
    match block.text("type")? {
        "text" => {
            block.only(&TEXT)?;
            Ok(Part::Text(block.text("text")?.to_owned()))
        }
        "image" => {
            block.only(&IMAGE)?;
            let source = Fields::of(block.get("source").unwrap_or(&Value::Null), block.at("source"))?;
            match source.text("type")? {
                "url" => {
                    source.only(&URL)?;
                    image_at(source.text("url")?).or_else(|problem| source.wrong("url", problem))
                }
                "base64" => {
                    source.only(&BASE64)?;
                    Ok(Part::ImageData {
                        media_type: source.text("media_type")?.to_owned(),
                        data: source.text("data")?.to_owned(),
                    })
                }
                _ => source.wrong("type", NOT_SUPPORTED),
            }
        }
        _ => block.wrong("type", NOT_SUPPORTED),
    }
}

fn read_message(item: &Value, at: usize, messages: &mut Vec<Message>) -> Result<(), WireError> {
    let message = Fields::of(item, format!("messages[{at}]"))?;
    message.only(&MESSAGE)?;
    match message.text("role")? {
        "user" => read_user(&message, messages),
        "assistant" => {
            let (mut text, mut calls) = (String::new(), Vec::new());
            if let Some(Value::String(said)) = message.get("content") {
                text.clone_from(said);
            } else {
                for block in blocks(&message, "content")? {
                    if block.text("type")? == "tool_use" {
                        calls.push(read_call(&block)?);
                    } else if let Part::Text(said) = read_part(&block)? {
                        text.push_str(&said);
                    } else {
                        return block.wrong("type", NOT_SUPPORTED);
                    }
                }
            }
            messages.push(Message::Assistant { text, calls });
            Ok(())
        }
        "system" => {
            messages.push(Message::System(read_texts(&message, "content")?));
            Ok(())
        }
        _ => message.wrong("role", NOT_SUPPORTED),
    }
}

fn read_user(message: &Fields<'_>, messages: &mut Vec<Message>) -> Result<(), WireError> {
    if let Some(Value::String(text)) = message.get("content") {
        messages.push(Message::User(vec![Part::Text(text.clone())]));
        return Ok(());
    }
    let mut said = Vec::new();
    let blocks = blocks(message, "content")?;
    for block in &blocks {
        if block.text("type")? != "tool_result" {
            said.push(read_part(block)?);
            continue;
        }
        if !said.is_empty() {
            messages.push(Message::User(std::mem::take(&mut said)));
        }
        block.only(&RESULT)?;
        messages.push(Message::Tool {
            call_id: block.text("tool_use_id")?.to_owned(),
            content: read_parts(block, "content")?,
            is_error: block.flag("is_error")?,
        });
    }
    if !said.is_empty() || blocks.is_empty() {
        messages.push(Message::User(said));
    }
    Ok(())
}

fn read_call(block: &Fields<'_>) -> Result<ToolCall, WireError> {
    block.only(&USE)?;
    let input = block.get("input").filter(|input| input.is_object());
    let Some(input) = input else { return block.wrong("input", "is no object") };
    Ok(ToolCall {
        id: block.text("id")?.to_owned(),
        name: block.text("name")?.to_owned(),
        arguments: input.to_string(),
    })
}

const TOOL: Known = Known {
    read: &["type", "name", "description", "input_schema"],
    dropped: &["cache_control", "strict"],
    fixed: &[],
};

fn read_tool(item: &Value, at: usize) -> Result<ToolSpec, WireError> {
    let tool = Fields::of(item, format!("tools[{at}]"))?;
    // The provider's own tools have types with a date.
    if tool.optional_text("type")?.is_some_and(|kind| kind != "custom") {
        return tool.wrong("type", NOT_SUPPORTED);
    }
    tool.only(&TOOL)?;
    Ok(ToolSpec {
        name: tool.text("name")?.to_owned(),
        description: tool.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: tool.schema("input_schema")?,
    })
}

const CHOICE: Known =
    Known { read: &["type", "name"], dropped: &[], fixed: &[("disable_parallel_tool_use", &["false"])] };

fn read_choice(body: &Fields<'_>) -> Result<ToolChoice, WireError> {
    let Some(choice) = body.get("tool_choice") else { return Ok(ToolChoice::Auto) };
    let choice = Fields::of(choice, "tool_choice")?;
    choice.only(&CHOICE)?;
    match choice.text("type")? {
        "auto" => Ok(ToolChoice::Auto),
        "any" => Ok(ToolChoice::Any),
        "none" => Ok(ToolChoice::None),
        "tool" => Ok(ToolChoice::Tool(choice.text("name")?.to_owned())),
        _ => choice.wrong("type", NOT_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],{field}}}"#);
        let shown = match decode_request(&serde_json::from_str(&text).unwrap()) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for fine in [
            r#""metadata":{"user_id":"u"}"#,
            r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]"#,
            r#""tool_choice":{"type":"auto","disable_parallel_tool_use":false}"#,
            r#""tools":[{"type":"custom","name":"f"}]"#,
        ] {
            check(fine, "fine");
        }
        check(r#""max_tokens":null"#, "`max_tokens` is missing");
        check(r#""top_k":5"#, "`top_k` is not supported");
        check(
            r#""thinking":{"type":"enabled","budget_tokens":9}"#,
            "`thinking` has a value that is not supported",
        );
        check(r#""mcp_servers":[]"#, "`mcp_servers` is not supported");
        check(r#""container":"c""#, "`container` is not supported");
        check(
            r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#,
            "`tools[0].type` is not supported",
        );
        check(
            r#""tool_choice":{"type":"any","disable_parallel_tool_use":true}"#,
            "`tool_choice.disable_parallel_tool_use` has a value that is not supported",
        );
        check(r#""messages":[{"role":"system","content":"s"}]"#, "fine");
        check(r#""messages":[{"role":"tool","content":"s"}]"#, "`messages[0].role` is not supported");
        let block = |role: &str, block: &str, expected: &str| {
            check(&format!(r#""messages":[{{"role":"{role}","content":[{block}]}}]"#), expected);
        };
        block("user", r#"{"type":"document"}"#, "`messages[0].content[0].type` is not supported");
        block("assistant", r#"{"type":"thinking"}"#, "`messages[0].content[0].type` is not supported");
        block(
            "user",
            r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#,
            "`messages[0].content[0].source.type` is not supported",
        );
        block(
            "assistant",
            r#"{"type":"tool_use","id":"i","name":"f","input":"x"}"#,
            "`messages[0].content[0].input` is no object",
        );
    }

    #[test]
    fn system_messages() {
        let part = |text: &str| vec![Part::from(text)];
        let check = |messages: Vec<Message>, expected: Value| {
            let body = encode_request(&Request { messages, ..Request::default() }, "m", false);
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
