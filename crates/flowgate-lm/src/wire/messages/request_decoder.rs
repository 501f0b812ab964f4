//! Decodes requests of Anthropic's Messages API.

use super::super::fields::{AllowedFields, EXTENSION, NOT_SUPPORTED, ObjectFields};
use super::super::{ReceivedRequest, WireError, is_plain, parse_image_url};
use crate::chat::{Message, Part, Request, Sampling, Source, Sources, ToolCall, ToolChoice, ToolSpec};
use crate::json::Json;

const REQUEST: AllowedFields = AllowedFields {
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

/// Decodes the body of a request.
///
/// # Errors
/// If it asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::from_value(body, "")?;
    body.reject_unknown(&REQUEST)?;
    if body.get("messages").is_none() {
        return body.field_error("messages", "is missing");
    }
    let mut messages = Vec::new();
    if body.get("system").is_some() {
        messages.push(Message::System(read_texts(&body, "system")?));
    }
    let mut sources = Sources::default();
    for message in body.objects("messages")? {
        read_message(&message?, &mut messages, &mut sources)?;
    }
    let max_tokens = body.tokens("max_tokens")?;
    if max_tokens.is_none() {
        return body.field_error("max_tokens", "is missing");
    }
    let tools = body.objects("tools")?;
    let request = Request {
        messages: messages.into(),
        tools: tools.map(|tool| read_tool(&tool?)).collect::<Result<_, _>>()?,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens,
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: None,
            stop: body.texts("stop_sequences")?,
        },
    };
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    Ok(ReceivedRequest { request, model, stream, usage: true, sources })
}

// `cache_control` affects only caching and cost.
const TEXT: AllowedFields =
    AllowedFields { read: &["type", "text"], dropped: &["cache_control"], fixed: &[("citations", &["[]"])] };
const IMAGE: AllowedFields =
    AllowedFields { read: &["type", "source"], dropped: &["cache_control"], fixed: &[] };
const URL: AllowedFields = AllowedFields { read: &["type", "url"], dropped: &[], fixed: &[] };
const BASE64: AllowedFields =
    AllowedFields { read: &["type", "media_type", "data"], dropped: &[], fixed: &[] };
const USE: AllowedFields = AllowedFields {
    read: &["type", "id", "name", "input"],
    dropped: &["cache_control"],
    fixed: &[("caller", &[r#"{"type":"direct"}"#])],
};
const RESULT: AllowedFields = AllowedFields {
    read: &["type", "tool_use_id", "content", "is_error"],
    dropped: &["cache_control"],
    fixed: &[],
};
const MESSAGE: AllowedFields = AllowedFields { read: &["role", "content"], dropped: &[], fixed: &[] };
// Parts of the user may declare a source; tool outputs among them may not.
const USER: AllowedFields = AllowedFields { read: &["role", "content", EXTENSION], dropped: &[], fixed: &[] };
const TEXT_OF_USER: AllowedFields = AllowedFields {
    read: &["type", "text", EXTENSION],
    dropped: &["cache_control"],
    fixed: &[("citations", &["[]"])],
};
const IMAGE_OF_USER: AllowedFields =
    AllowedFields { read: &["type", "source", EXTENSION], dropped: &["cache_control"], fixed: &[] };

/// Returns the blocks of a content that is a list.
fn blocks<'a>(of: &ObjectFields<'a>, key: &str) -> Result<Vec<ObjectFields<'a>>, WireError> {
    of.objects(key)?.collect()
}

fn read_texts(of: &ObjectFields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    if let Some(Json::Text(text)) = of.get(key) {
        return Ok(vec![Part::Text(text.clone().into_owned())]);
    }
    let text = |block: &ObjectFields<'_>| {
        if block.text("type")? == "text" {
            read_part(block)
        } else {
            block.field_error("type", NOT_SUPPORTED)
        }
    };
    blocks(of, key)?.iter().map(text).collect()
}

fn read_parts(of: &ObjectFields<'_>, key: &str) -> Result<Vec<Part>, WireError> {
    if let Some(Json::Text(text)) = of.get(key) {
        return Ok(vec![Part::Text(text.clone().into_owned())]);
    }
    blocks(of, key)?.iter().map(read_part).collect()
}

fn read_part(block: &ObjectFields<'_>) -> Result<Part, WireError> {
    read_part_with(block, &TEXT, &IMAGE)
}

/// Reads a text or an image. `text` and `image` are the fields that the two may have.
fn read_part_with(
    block: &ObjectFields<'_>,
    text: &AllowedFields,
    image: &AllowedFields,
) -> Result<Part, WireError> {
    match block.text("type")? {
        "text" => {
            block.reject_unknown(text)?;
            Ok(Part::Text(block.text("text")?.to_owned()))
        }
        "image" => {
            block.reject_unknown(image)?;
            let source = block.object("source")?;
            match source.text("type")? {
                "url" => {
                    source.reject_unknown(&URL)?;
                    parse_image_url(source.text("url")?).or_else(|problem| source.field_error("url", problem))
                }
                "base64" => {
                    source.reject_unknown(&BASE64)?;
                    if !is_plain(source.text("media_type")?) {
                        return source.field_error(
                            "media_type",
                            "is a media type that is empty or has parameters; write one such as `image/png`",
                        );
                    }
                    Ok(Part::ImageData {
                        media_type: source.text("media_type")?.to_owned(),
                        data: source.text("data")?.to_owned(),
                    })
                }
                _ => source.field_error("type", NOT_SUPPORTED),
            }
        }
        _ => block.field_error("type", NOT_SUPPORTED),
    }
}

/// Reads a message and adds it to `messages`; a message of the user may become several. The provenance of the user's
/// parts is added to `sources`.
fn read_message(
    message: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
) -> Result<(), WireError> {
    let is_user = message.text("role")? == "user";
    message.reject_unknown(if is_user { &USER } else { &MESSAGE })?;
    match message.text("role")? {
        "user" => read_user(message, messages, sources),
        "assistant" => {
            let (mut text, mut calls) = (String::new(), Vec::new());
            if let Some(Json::Text(content)) = message.get("content") {
                content.as_ref().clone_into(&mut text);
            } else {
                for block in blocks(message, "content")? {
                    if block.text("type")? == "tool_use" {
                        calls.push(read_call(&block)?);
                    } else if let Part::Text(part) = read_part(&block)? {
                        text.push_str(&part);
                    } else {
                        return block.field_error("type", NOT_SUPPORTED);
                    }
                }
            }
            messages.push(Message::Assistant { text, calls });
            Ok(())
        }
        "system" => {
            messages.push(Message::System(read_texts(message, "content")?));
            Ok(())
        }
        _ => message.field_error("role", NOT_SUPPORTED),
    }
}

/// Reads a message of the user: each tool output becomes a separate message, and so does each run of other parts.
fn read_user(
    message: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
) -> Result<(), WireError> {
    let of_message = message.source()?;
    let mut push = |messages: &mut Vec<Message>, marked: Vec<(Part, Option<Source>)>| {
        let (parts, of_parts): (Vec<Part>, Vec<Option<Source>>) = marked.into_iter().unzip();
        sources.set(messages.len(), of_parts);
        messages.push(Message::User(parts));
    };
    if let Some(Json::Text(text)) = message.get("content") {
        push(messages, vec![(Part::Text(text.clone().into_owned()), of_message)]);
        return Ok(());
    }
    let mut marked = Vec::new();
    let blocks = blocks(message, "content")?;
    for block in &blocks {
        if block.text("type")? != "tool_result" {
            let part = read_part_with(block, &TEXT_OF_USER, &IMAGE_OF_USER)?;
            marked.push((part, block.source()?.or(of_message)));
            continue;
        }
        if !marked.is_empty() {
            push(messages, std::mem::take(&mut marked));
        }
        block.reject_unknown(&RESULT)?;
        messages.push(Message::Tool {
            call_id: block.text("tool_use_id")?.to_owned(),
            content: read_parts(block, "content")?,
            is_error: Some(block.flag("is_error")?),
        });
    }
    if !marked.is_empty() || blocks.is_empty() {
        push(messages, marked);
    }
    Ok(())
}

fn read_call(block: &ObjectFields<'_>) -> Result<ToolCall, WireError> {
    block.reject_unknown(&USE)?;
    let input = block.get("input").filter(|input| matches!(input, Json::Object(_)));
    let Some(input) = input else { return block.field_error("input", "is not an object") };
    Ok(ToolCall {
        id: block.text("id")?.to_owned(),
        name: block.text("name")?.to_owned(),
        arguments: input.to_string(),
    })
}

// `eager_input_streaming` asks for arguments while they are generated; here they are sent after the call was judged.
const TOOL: AllowedFields = AllowedFields {
    read: &["type", "name", "description", "input_schema"],
    dropped: &["cache_control", "strict", "eager_input_streaming"],
    fixed: &[],
};

fn read_tool(tool: &ObjectFields<'_>) -> Result<ToolSpec, WireError> {
    // The provider's own tools have a type with a date.
    if tool.optional_text("type")?.is_some_and(|kind| kind != "custom") {
        return tool.field_error("type", NOT_SUPPORTED);
    }
    tool.reject_unknown(&TOOL)?;
    Ok(ToolSpec {
        name: tool.text("name")?.to_owned(),
        description: tool.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: tool.schema("input_schema")?.into(),
    })
}

const CHOICE: AllowedFields = AllowedFields {
    read: &["type", "name"],
    dropped: &[],
    fixed: &[("disable_parallel_tool_use", &["false"])],
};

fn read_choice(body: &ObjectFields<'_>) -> Result<ToolChoice, WireError> {
    let Some(choice) = body.get("tool_choice") else { return Ok(ToolChoice::Auto) };
    let choice = ObjectFields::from_value(choice, "tool_choice")?;
    choice.reject_unknown(&CHOICE)?;
    match choice.text("type")? {
        "auto" => Ok(ToolChoice::Auto),
        "any" => Ok(ToolChoice::Any),
        "none" => Ok(ToolChoice::None),
        "tool" => Ok(ToolChoice::Tool(choice.text("name")?.to_owned())),
        _ => choice.field_error("type", NOT_SUPPORTED),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],{field}}}"#);
        let shown = match decode_request(&Json::from(&serde_json::from_str(&text).unwrap())) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for fine in [
            r#""metadata":{"user_id":"u"}"#,
            r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]"#,
            r#""tool_choice":{"type":"auto","disable_parallel_tool_use":false}"#,
            r#""tools":[{"type":"custom","name":"f"}]"#,
            r#""tools":[{"name":"f","eager_input_streaming":true}]"#,
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
        check(r#""tools":[{"name":"f","defer_loading":true}]"#, "`tools[0].defer_loading` is not supported");
        check(
            r#""tool_choice":{"type":"any","disable_parallel_tool_use":true}"#,
            "`tool_choice.disable_parallel_tool_use` has a value that is not supported",
        );
        check(r#""messages":[{"role":"system","content":"s"}]"#, "fine");
        check(
            r#""messages":[{"role":"assistant","content":"s","flowgate":{"source":"typed"}}]"#,
            "`messages[0].flowgate` is not supported",
        );
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
        // It must also fit into a data URL, for the other formats.
        for media_type in ["", "image/png;x", "a,b"] {
            block(
                "user",
                &format!(
                    r#"{{"type":"image","source":{{"type":"base64","media_type":"{media_type}","data":""}}}}"#
                ),
                "`messages[0].content[0].source.media_type` is a media type that is empty or has parameters; \
                write one such as `image/png`",
            );
        }
        block(
            "assistant",
            r#"{"type":"tool_use","id":"i","name":"f","input":"x"}"#,
            "`messages[0].content[0].input` is not an object",
        );
    }
}
