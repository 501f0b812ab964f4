//! Decodes requests of OpenAI's chat completions, as the gateway receives them from its clients: the messages with
//! their declared provenance, the tools and the settings. The descriptor of the format refers to [`decode_request`].

use std::sync::Arc;

use super::super::documents;
use super::super::fields::{
    ALLOWED_TOOLS, CUSTOM_TOOL, ObjectFields, UNKNOWN_EFFORT, UNKNOWN_PART, UNKNOWN_TOOL,
};
use super::super::known_fields::{DecodeOptions, KnownFields};
use super::super::output_format::{read_format, read_named_schema};
use super::super::provider_tools::add_provider_tools;
use super::super::{ReceivedRequest, ToolForms, WireError, extension, parse_image_url};
use super::{
    ASSISTANT, CALL, CALLED, CHOICE, CHOSEN, FILE, FILE_PART, FILE_PART_OF_USER, FUNCTION, IMAGE_PART,
    IMAGE_PART_OF_USER, IMAGE_URL, JSON_FORMAT, JSON_SCHEMA, OUTPUT, PLAIN, REFUSAL_PART,
    REFUSAL_PART_OF_USER, REQUEST, SCHEMA_FORMAT, STREAM_OPTIONS, TEXT_FORMAT, TEXT_PART, TEXT_PART_OF_USER,
    TOOL, USER, WEB_SEARCH,
};
use crate::chat::{
    Effort, Message, OutputFormat, Part, ProviderTool, ProviderToolUse, Reasoning, Request, Sampling, Source,
    Sources, ToolCall, ToolChoice, ToolSpec, Verbosity,
};
use crate::json::Json;

/// Decodes the body of a request. `options` lists the fields and tools that are dropped instead of being rejected.
///
/// # Errors
/// If the body violates the format, or asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>, options: &DecodeOptions) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::of_body(body, options)?;
    let accepts_search = body.accepts_provider_tool(&ProviderTool::WebSearch);
    body.reject_unsupported_except(&REQUEST, |field| field == WEB_SEARCH_FIELD && accepts_search)?;
    // Whether a streamed answer is to end with the token usage.
    let mut usage = false;
    if body.get("stream_options").is_some() {
        let options = body.object("stream_options")?;
        options.reject_unsupported(&STREAM_OPTIONS)?;
        usage = options.flag("include_usage")?;
    }
    // Both fields are names of the same limit.
    let (old, new) = (body.tokens("max_tokens")?, body.tokens("max_completion_tokens")?);
    if old.is_some() && new.is_some() && old != new {
        return body.field_error("max_tokens", "differs from `max_completion_tokens`; send one of the two");
    }
    if body.get("messages").is_none() {
        return body.field_error("messages", "is missing");
    }
    let mut tools: Vec<ToolSpec> = Vec::new();
    for tool in body.objects("tools")? {
        // A tool that the operator has dropped is `None`.
        tools.extend(read_tool(&tool?)?);
    }
    let provider_tools = read_web_search(&body, accepts_search)?;
    add_provider_tools(&body, &mut tools, &provider_tools)?;
    let (messages, sources) = read_messages(&body)?;
    let request = Request {
        messages: messages.into(),
        tools,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens: new.or(old),
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: body.whole_number("seed")?,
            stop: body.texts("stop")?,
            reasoning: Reasoning {
                effort: body.word("reasoning_effort", Effort::from_name, UNKNOWN_EFFORT)?,
                ..Reasoning::default()
            },
            verbosity: body.word("verbosity", Verbosity::from_name, "is not `low`, `medium` or `high`")?,
            // If the field is absent, a message may have several calls.
            single_call: body.get("parallel_tool_calls").is_some() && !body.flag("parallel_tool_calls")?,
        },
        format: read_output_format(&body)?,
    };
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    Ok(ReceivedRequest {
        request,
        model,
        stream,
        usage,
        sources,
        tool_forms: ToolForms::default(),
        previous_response: None,
        item_references: Vec::new(),
        provider_tools,
        max_provider_calls: None,
        citable: Arc::default(),
    })
}

/// The field by which a request asks for a web search of the provider. It is not one of the tools.
const WEB_SEARCH_FIELD: &str = "web_search_options";

/// Decodes the field `web_search_options`. Returns the search as a tool of the provider; an empty list if the field is
/// absent, or if the operator's configuration drops it. `is_accepted` says whether the client may ask for a search: if
/// not, [`decode_request`] has refused the field already.
fn read_web_search(body: &ObjectFields<'_>, is_accepted: bool) -> Result<Vec<ProviderToolUse>, WireError> {
    if !is_accepted || body.get(WEB_SEARCH_FIELD).is_none() || body.is_dropped_by_operator(WEB_SEARCH_FIELD) {
        return Ok(Vec::new());
    }
    body.object(WEB_SEARCH_FIELD)?.reject_unsupported(&WEB_SEARCH)?;
    Ok(vec![ProviderToolUse::from(ProviderTool::WebSearch)])
}

/// Decodes the field `response_format`, the form that the client demands of the text; `None` if the field is absent or
/// permits any text.
fn read_output_format(body: &ObjectFields<'_>) -> Result<Option<OutputFormat>, WireError> {
    if body.get("response_format").is_none() {
        return Ok(None);
    }
    let known = [("text", &TEXT_FORMAT), ("json_object", &JSON_FORMAT), ("json_schema", &SCHEMA_FORMAT)];
    let unknown = "is not `text`, `json_object` or `json_schema`";
    read_format(&body.object("response_format")?, &known, unknown, |format| {
        let schema = format.object("json_schema")?;
        schema.reject_unsupported(&JSON_SCHEMA)?;
        read_named_schema(&schema)
    })
}

/// Decodes the list `messages`. The second part of the result is the provenance that the client declares for the parts
/// of the user's messages.
fn read_messages(body: &ObjectFields<'_>) -> Result<(Vec<Message>, Sources), WireError> {
    let (mut messages, mut sources) = (Vec::new(), Sources::default());
    for message in body.objects("messages")? {
        let message = message?;
        messages.push(read_message(&message)?);
        if matches!(messages.last(), Some(Message::User(_))) {
            sources.set(messages.len() - 1, sources_of(&message)?);
        }
    }
    Ok((messages, sources))
}

/// Returns the provenance of each part of a user's message, in order: the one that the part declares, otherwise the one
/// that the message declares, otherwise `None`. Content that is a string counts as one part.
fn sources_of(message: &ObjectFields<'_>) -> Result<Vec<Option<Source>>, WireError> {
    let message_source = message.source()?;
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Json::Text(_)) => Ok(vec![message_source]),
        Some(_) => {
            let source = |part: Result<ObjectFields<'_>, WireError>| {
                let part = part?;
                match part.optional_text("type")? {
                    // A file that declares nothing itself is never `typed`, even if its message is.
                    Some("file") => documents::source_of(&part, message_source),
                    _ => Ok(part.source()?.or(message_source)),
                }
            };
            message.objects("content")?.map(source).collect()
        }
    }
}

/// Decodes a message according to its role. Only a message of the user may declare the provenance of its parts, and
/// only an output of a tool whether the tool failed. A refusal of the model, which is a separate field in this format,
/// becomes part of the message's text, since a [`Message`] has no field for refusals.
fn read_message(message: &ObjectFields<'_>) -> Result<Message, WireError> {
    match message.text("role")? {
        "system" | "developer" => {
            message.reject_unsupported(&PLAIN)?;
            Ok(Message::System(read_content(message)?))
        }
        "user" => {
            message.reject_unsupported(&USER)?;
            Ok(Message::User(read_parts(message, &PARTS_OF_USER)?))
        }
        "assistant" => {
            message.reject_unsupported(&ASSISTANT)?;
            let mut text = String::new();
            for part in read_content(message)? {
                match part {
                    Part::Text(piece) => text.push_str(&piece),
                    _ => {
                        return message.field_error(
                            "content",
                            "has an image or a file, which an assistant message cannot contain; send it in a user \
                            message",
                        );
                    }
                }
            }
            text.push_str(message.optional_text("refusal")?.unwrap_or_default());
            let calls = message.objects("tool_calls")?.map(|call| read_call(&call?));
            Ok(Message::Assistant { text, calls: calls.collect::<Result<_, _>>()?, thoughts: Vec::new() })
        }
        "tool" => {
            message.reject_unsupported(&OUTPUT)?;
            let call_id = message.text("tool_call_id")?.to_owned();
            Ok(Message::Tool {
                call_id,
                content: read_content(message)?,
                is_error: extension::is_error(message)?,
            })
        }
        "function" => {
            message.field_error("role", "is the old form of `tool`; use the role `tool`, with `tool_call_id`")
        }
        _ => message.field_error("role", "is not `system`, `developer`, `user`, `assistant` or `tool`"),
    }
}

/// Decodes a call in an assistant message. Fails for a call of a custom tool, which this module does not support.
fn read_call(call: &ObjectFields<'_>) -> Result<ToolCall, WireError> {
    if call.optional_text("type")? == Some("custom") {
        return call.field_error("type", CUSTOM_TOOL);
    }
    call.reject_unsupported(&CALL)?;
    let function = call.object("function")?;
    function.reject_unsupported(&CALLED)?;
    Ok(ToolCall {
        id: call.text("id")?.to_owned(),
        name: function.text("name")?.to_owned(),
        arguments: function.text("arguments")?.to_owned(),
    })
}

/// The known fields of parts of a message that is not the user's: of texts, refusals, images and files, in this order.
const PARTS: [KnownFields; 4] = [TEXT_PART, REFUSAL_PART, IMAGE_PART, FILE_PART];
/// The known fields of parts of a user's message, in the order of [`PARTS`]. In addition, these parts may declare their
/// provenance.
const PARTS_OF_USER: [KnownFields; 4] =
    [TEXT_PART_OF_USER, REFUSAL_PART_OF_USER, IMAGE_PART_OF_USER, FILE_PART_OF_USER];

/// Decodes the content of a message that is not the user's.
fn read_content(message: &ObjectFields<'_>) -> Result<Vec<Part>, WireError> {
    read_parts(message, &PARTS)
}

/// Decodes the content of a message: a string, or a list of parts, whose known fields are `known` ([`PARTS`] or
/// [`PARTS_OF_USER`]). If the content is absent or an empty string, the result is empty.
fn read_parts(message: &ObjectFields<'_>, known: &[KnownFields; 4]) -> Result<Vec<Part>, WireError> {
    match message.get("content") {
        None => return Ok(Vec::new()),
        Some(Json::Text(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Json::Text(text)) => return Ok(vec![Part::Text(text.clone().into_owned())]),
        Some(_) => {}
    }
    message.objects("content")?.map(|part| read_part(&part?, known)).collect()
}

/// Decodes a part of a message. The second parameter has the known fields of a text, a refusal, an image and a file.
fn read_part(
    part: &ObjectFields<'_>,
    [text, refusal, image, file]: &[KnownFields; 4],
) -> Result<Part, WireError> {
    match part.text("type")? {
        "text" => {
            part.reject_unsupported(text)?;
            Ok(Part::Text(part.text("text")?.to_owned()))
        }
        // A refusal becomes a text, since `Part` has no variant for refusals.
        "refusal" => {
            part.reject_unsupported(refusal)?;
            Ok(Part::Text(part.text("refusal")?.to_owned()))
        }
        "image_url" => {
            part.reject_unsupported(image)?;
            let image = part.object("image_url")?;
            image.reject_unsupported(&IMAGE_URL)?;
            parse_image_url(image.text("url")?).or_else(|problem| image.field_error("url", problem))
        }
        "file" => {
            part.reject_unsupported(file)?;
            let file = part.object("file")?;
            file.reject_unsupported(&FILE)?;
            let pdf = documents::parse_pdf(file.text("file_data")?);
            pdf.map_or_else(|| file.field_error("file_data", documents::ONLY_PDF), Ok)
        }
        _ => part.field_error("type", UNKNOWN_PART),
    }
}

/// Decodes an item of the field `tools`. `None` for a tool that is dropped: the provider would run it, and the
/// operator's configuration lists its type among the tools to drop.
fn read_tool(tool: &ObjectFields<'_>) -> Result<Option<ToolSpec>, WireError> {
    match tool.text("type")? {
        "function" => {}
        kind if tool.drops_tool(kind) => return Ok(None),
        "custom" => {
            return tool.field_error("type", CUSTOM_TOOL);
        }
        _ => return tool.field_error("type", UNKNOWN_TOOL),
    }
    tool.reject_unsupported(&TOOL)?;
    let function = tool.object("function")?;
    function.reject_unsupported(&FUNCTION)?;
    Ok(Some(ToolSpec {
        name: function.text("name")?.to_owned(),
        description: function.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: function.schema("parameters")?.into(),
    }))
}

/// Decodes the field `tool_choice`: whether the model may, must or must not call a tool, or which one it must call. The
/// field is a word or, to name a tool, an object.
fn read_choice(body: &ObjectFields<'_>) -> Result<ToolChoice, WireError> {
    match body.get("tool_choice") {
        None => Ok(ToolChoice::Auto),
        Some(Json::Text(word)) => match word.as_ref() {
            "auto" => Ok(ToolChoice::Auto),
            "required" => Ok(ToolChoice::Any),
            "none" => Ok(ToolChoice::None),
            _ => body.field_error("tool_choice", "is not `auto`, `required` or `none`"),
        },
        Some(_) => {
            let choice = body.object("tool_choice")?;
            match choice.optional_text("type")? {
                Some("allowed_tools") => return choice.field_error("type", ALLOWED_TOOLS),
                Some("custom") => return choice.field_error("type", CUSTOM_TOOL),
                _ => choice.reject_unsupported(&CHOICE)?,
            }
            let chosen = choice.object("function")?;
            chosen.reject_unsupported(&CHOSEN)?;
            Ok(ToolChoice::Tool(chosen.text("name")?.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","messages":[],{field}}}"#);
        let shown = match decode_request(
            &Json::from(&serde_json::from_str(&text).unwrap()),
            &DecodeOptions::default(),
        ) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for fine in [
            r#""n":1"#,
            r#""n":null"#,
            r#""user":"u""#,
            r#""stop":"x""#,
            r#""stream_options":null"#,
            r#""max_tokens":5,"max_completion_tokens":5"#,
            r#""tool_choice":"auto""#,
            r#""reasoning_effort":"low","verbosity":"high","parallel_tool_calls":false"#,
            r#""store":true,"prompt_cache_key":"k","safety_identifier":"s","service_tier":"flex""#,
            r#""messages":[{"role":"assistant","content":"a","reasoning_content":"r"}]"#,
            r#""messages":[{"role":"tool","tool_call_id":"c","name":"f","content":"r"}]"#,
            r#""response_format":{"type":"text"}"#,
            r#""response_format":{"type":"json_object"}"#,
            r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"strict":true}}"#,
        ] {
            check(fine, "fine");
        }
        check(r#""seed_":2"#, "`seed_` is not known");
        let search = "`web_search_options` is a tool that the provider runs: the policy has to label its outputs, and \
            the upstream has to have it; leave it out";
        check(r#""web_search_options":{}"#, search);
        let accepted = |fields: &str| {
            let options =
                DecodeOptions { provider_tools: vec![ProviderTool::WebSearch], ..DecodeOptions::default() };
            let text = format!(r#"{{"model":"m","messages":[{{"role":"user","content":"u"}}],{fields}}}"#);
            let read = decode_request(&Json::parse(&text).unwrap(), &options);
            read.map(|read| (read.request.tools.len(), read.provider_tools.len()))
                .map_err(|error| error.to_string())
        };
        assert_eq!(accepted(r#""web_search_options":{"search_context_size":"low"}"#), Ok((1, 1)));
        assert_eq!(accepted(r#""web_search_options":null"#), Ok((0, 0)));
        assert_eq!(
            accepted(r#""web_search_options":{"user_location":{}}"#).unwrap_err(),
            "`web_search_options.user_location` cannot be passed on with the search; leave it out"
        );
        assert_eq!(
            accepted(
                r#""web_search_options":{},"tools":[{"type":"function","function":{"name":"web_search"}}]"#
            )
            .unwrap_err(),
            "`tools` has a tool of the provider and another tool of the same name; leave one of them out"
        );
        check(
            r#""n":2"#,
            "`n` is supported only as 1: a conversation continues with one message of the model",
        );
        for field in [r#"logprobs":true"#, r#"top_logprobs":5"#] {
            let (name, _) = field.split_once('"').unwrap();
            let problem =
                "asks for words that the model did not write, which no rule has judged; leave it out";
            check(&format!(r#""{field}"#), &format!("`{name}` {problem}"));
        }
        check(
            r#""response_format":{"type":"grammar"}"#,
            "`response_format.type` is not `text`, `json_object` or `json_schema`",
        );
        check(
            r#""response_format":{"type":"json_object","schema":{}}"#,
            "`response_format.schema` is not known",
        );
        check(
            r#""response_format":{"type":"json_schema"}"#,
            "`response_format.json_schema` is not an object",
        );
        check(
            r#""response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{},"example":1}}"#,
            "`response_format.json_schema.example` is not known",
        );
        check(
            r#""reasoning_effort":"extreme""#,
            "`reasoning_effort` is not `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
        );
        check(r#""verbosity":"max""#, "`verbosity` is not `low`, `medium` or `high`");
        check(
            r#""functions":[]"#,
            "`functions` is the old form of `tools` and `tool_choice`; send these instead",
        );
        check(r#""a secret":1"#, "`...` is not known");
        check(
            r#""max_tokens":1,"max_completion_tokens":2"#,
            "`max_tokens` differs from `max_completion_tokens`; send one of the two",
        );
        check(r#""max_tokens":-1"#, "`max_tokens` is not a non-negative integer");
        check(r#""max_tokens":4294967296"#, "`max_tokens` is larger than 4294967295");
        check(r#""stop":[1]"#, "`stop` contains an item that is not a string");
        check(r#""stream":1"#, "`stream` is neither true nor false");
        check(
            r#""tools":[{"type":"custom","custom":{}}]"#,
            "`tools[0].type` is supported in the Responses API only; declare a function",
        );
        check(r#""tools":[{"type":"function"}]"#, "`tools[0].function` is not an object");
        check(
            r#""tool_choice":{"type":"allowed_tools"}"#,
            "`tool_choice.type` is a choice among tools; declare in `tools` only those that the model may call",
        );
        check(r#""model":1"#, "`model` is not a string");
        let message = |message: &str, expected: &str| check(&format!(r#""messages":[{message}]"#), expected);
        message(
            r#"{"role":"function","content":""}"#,
            "`messages[0].role` is the old form of `tool`; use the role `tool`, with `tool_call_id`",
        );
        message(
            r#"{"role":"other","content":""}"#,
            "`messages[0].role` is not `system`, `developer`, `user`, `assistant` or `tool`",
        );
        message(
            r#"{"role":"user","content":"","name":"n"}"#,
            "`messages[0].name` names a participant, which is text for the model without a label; put the name into the content",
        );
        message(r#"{"role":"user","content":3}"#, "`messages[0].content` is not a list");
        message(r#"{"role":"tool","content":""}"#, "`messages[0].tool_call_id` is missing");
        message(
            r#"{"role":"assistant","audio":{"id":"a"}}"#,
            "`messages[0].audio` concerns speech, which no rule can judge; leave it out",
        );
        let part = |part: &str, expected: &str| {
            message(&format!(r#"{{"role":"user","content":[{part}]}}"#), expected);
        };
        part(
            r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AA","detail":"auto"}}"#,
            "fine",
        );
        part(
            r#"{"type":"file","file":{"filename":"a.pdf","file_data":"data:application/pdf;base64,AA"}}"#,
            "fine",
        );
        part(
            r#"{"type":"file","file":{"file_data":"data:text/plain;base64,AA"}}"#,
            "`messages[0].content[0].file.file_data` is not the content of a PDF; send other documents as text",
        );
        part(
            r#"{"type":"file","file":{"file_id":"f"}}"#,
            "`messages[0].content[0].file.file_id` refers to state at the provider, which has no label; send the \
            content itself",
        );
        part(
            r#"{"type":"image_url","image_url":{"url":"https://example.org/a.png"}}"#,
            "`messages[0].content[0].image_url.url` would be fetched by the provider, and what it returns has no \
            label; send the content in base64",
        );
        part(
            r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#,
            "`messages[0].content[0].image_url.url` must be a data URL; send one such as `data:image/png;base64,…`",
        );
        part(
            r#"{"type":"image_url","image_url":{"url":"data:image/png,xx"}}"#,
            "`messages[0].content[0].image_url.url` is a data URL without `;base64,`; encode the image in \
            base64",
        );
    }
}
