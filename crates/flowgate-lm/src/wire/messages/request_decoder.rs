//! Decodes requests of Anthropic's Messages API, as the gateway receives them from its clients: the messages and the
//! settings. The modules [`super::content`] and [`super::tools`] decode the contents of messages and the tools, and
//! [`super::citations`] counts the documents.

use super::super::documents;
use super::super::fields::{ObjectFields, UNKNOWN_EFFORT};
use super::super::known_fields::DecodeOptions;
use super::super::output_format::{read_format, read_schema};
use super::super::provider_tools::add_provider_tools;
use super::super::safeguards::DANGEROUS_TOOL_USE;
use super::super::{ReceivedRequest, ToolForms, WireError};
use super::citations::RequestDocuments;
use super::content::{
    blocks, read_document, read_part, read_part_with, read_parts, read_search_result, read_texts,
};
use super::mcp_servers::DeclaredServers;
use super::tools::{ReceivedTool, read_choice, read_tool};
use super::{
    DOCUMENT_OF_USER, IMAGE_OF_USER, MESSAGE, OUTPUT_CONFIG, REDACTED, REQUEST, RESULT, SAFEGUARD,
    SCHEMA_FORMAT, SEARCH_RESULT_OF_USER, TEXT_OF_USER, THINKING, THOUGHT, USE, USER,
};
use crate::chat::{
    Effort, Message, OutputFormat, OutputSchema, Part, Reasoning, Request, Sampling, Source, Sources,
    ThinkingDisplay, ThinkingMode, ToolCall,
};
use crate::json::Json;

/// Decodes the body of a request. `options` says which fields and tools are dropped, and which tools of the provider
/// are accepted.
///
/// # Errors
/// If the body violates the format, or asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>, options: &DecodeOptions) -> Result<ReceivedRequest, WireError> {
    decode(body, options, Limit::Required)
}

/// Decodes the body of a request whose tokens are only to be counted. Such a body need not state a token limit.
/// `options` is as for [`decode_request`].
///
/// # Errors
/// In the same cases as [`decode_request`], except for a missing token limit.
pub fn decode_count_request(body: &Json<'_>, options: &DecodeOptions) -> Result<Request, WireError> {
    decode(body, options, Limit::Optional).map(|received| received.request)
}

/// Whether a request must state a token limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// The request is for an answer, so it must state a limit.
    Required,
    /// The request is for the number of its tokens, so it need not state a limit.
    Optional,
}

/// Decodes the body of a request, either for an answer or for the number of tokens of the request. `options` is as for
/// [`decode_request`]; `limit` says whether the body must state a token limit.
fn decode(body: &Json<'_>, options: &DecodeOptions, limit: Limit) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::of_body(body, options)?;
    body.reject_unsupported(&REQUEST)?;
    if body.get("messages").is_none() {
        return body.field_error("messages", "is missing");
    }
    // The text of the field `system` is the first message.
    let mut messages = Vec::new();
    if body.get("system").is_some() {
        messages.push(Message::System(read_texts(&body, "system")?));
    }
    let (mut sources, mut documents) = (Sources::default(), RequestDocuments::default());
    for message in body.objects("messages")? {
        read_message(&message?, &mut messages, &mut sources, &mut documents)?;
    }
    let max_tokens = body.tokens("max_tokens")?;
    if max_tokens.is_none() && limit == Limit::Required {
        return body.field_error("max_tokens", "is missing");
    }
    let (mut tools, mut provider_tools) = (Vec::new(), Vec::new());
    let mut servers = DeclaredServers::read(&body)?;
    for tool in body.objects("tools")? {
        match read_tool(&tool?, &mut servers)? {
            None => {}
            Some(ReceivedTool::Function(spec)) => tools.push(spec),
            Some(ReceivedTool::OfProvider(wanted)) => provider_tools.push(*wanted),
        }
    }
    servers.check_used(&body)?;
    add_provider_tools(&body, &mut tools, &provider_tools)?;
    let (choice, single_call) = read_choice(&body)?;
    let (reasoning, format) = (read_reasoning(&body)?, read_output_format(&body)?);
    // Citations divide the text of an answer into blocks, but a text of a demanded format must stay whole.
    if format.is_some() && documents.are_cited() {
        let key = if body.get("output_format").is_some() { "output_format" } else { "output_config" };
        return body.field_error(key, CITED_FORMAT);
    }
    let request = Request {
        messages: messages.into(),
        tools,
        choice,
        sampling: Sampling {
            max_tokens,
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: None,
            stop: body.texts("stop_sequences")?,
            reasoning,
            verbosity: None,
            single_call,
        },
        format,
    };
    let mut tool_forms = ToolForms::default();
    if asks_for_verdicts(&body)? {
        tool_forms.ask_for_verdicts();
    }
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    Ok(ReceivedRequest {
        request,
        model,
        stream,
        // Every answer of this format reports the token usage.
        usage: true,
        sources,
        tool_forms,
        previous_response: None,
        item_references: Vec::new(),
        provider_tools,
        max_provider_calls: None,
        citable: documents.into_citable().into(),
    })
}

/// The problem of a request that demands a format of the answer's text and enables citations.
const CITED_FORMAT: &str = "demands a format of the text, but citations divide the text of an answer into blocks; disable `citations` of the \
    documents, or leave this field out";

/// Returns whether the request asks, in the field `safeguards`, for a verdict on each call of the answer: whether the
/// call is dangerous. False if the operator's configuration drops this field.
///
/// # Errors
/// If an entry of the field asks for another kind of safeguard, or has an unknown field.
fn asks_for_verdicts(body: &ObjectFields<'_>) -> Result<bool, WireError> {
    let mut asks = false;
    if body.is_dropped_by_operator("safeguards") {
        return Ok(false);
    }
    for safeguard in body.objects("safeguards")? {
        let safeguard = safeguard?;
        safeguard.reject_unsupported(&SAFEGUARD)?;
        if safeguard.text("type")? != DANGEROUS_TOOL_USE {
            return safeguard.field_error("type", "is supported only as `dangerous_tool_use`");
        }
        asks = true;
    }
    Ok(asks)
}

/// Decodes the format that the request demands of the answer's text: the field `output_config.format`, or its older
/// name `output_format`. `None` if both fields are absent. Fails if they differ.
fn read_output_format(body: &ObjectFields<'_>) -> Result<Option<OutputFormat>, WireError> {
    // Decodes one of the two fields. Its schema has no name, no description and no `strict` in this wire format.
    let read = |object: &ObjectFields<'_>, key: &str| {
        if object.get(key).is_none() {
            return Ok(None);
        }
        let known = [("json_schema", &SCHEMA_FORMAT)];
        read_format(&object.object(key)?, &known, "is not `json_schema`", |format| {
            let (name, description) = (String::new(), String::new());
            Ok(OutputSchema { name, description, schema: read_schema(format, "schema")?, strict: None })
        })
    };
    let older = read(body, "output_format")?;
    let format = match body.get("output_config") {
        Some(_) => read(&body.object("output_config")?, "format")?,
        None => None,
    };
    if older.is_some() && format.is_some() && older != format {
        return body.field_error("output_format", "differs from `output_config.format`; send one of the two");
    }
    Ok(format.or(older))
}

/// Decodes the parameters of reasoning: the fields `thinking` and `output_config`, which may both be absent.
fn read_reasoning(body: &ObjectFields<'_>) -> Result<Reasoning, WireError> {
    let mut reasoning = Reasoning::default();
    if body.get("thinking").is_some() {
        let thinking = body.object("thinking")?;
        thinking.reject_unsupported(&THINKING)?;
        reasoning.thinking = Some(match thinking.text("type")? {
            "disabled" => ThinkingMode::Disabled,
            "adaptive" => ThinkingMode::Adaptive,
            "enabled" => match thinking.tokens("budget_tokens")? {
                Some(budget) => ThinkingMode::Enabled(budget),
                None => return thinking.field_error("budget_tokens", "is missing"),
            },
            _ => return thinking.field_error("type", "is not `disabled`, `adaptive` or `enabled`"),
        });
        reasoning.display =
            thinking.word("display", ThinkingDisplay::from_name, "is neither `summarized` nor `omitted`")?;
    }
    if body.get("output_config").is_some() {
        let config = body.object("output_config")?;
        config.reject_unsupported(&OUTPUT_CONFIG)?;
        reasoning.effort = config.word("effort", Effort::from_name, UNKNOWN_EFFORT)?;
    }
    Ok(reasoning)
}

/// Decodes a message and appends it to `messages`. A message of the user may become several messages (see
/// [`read_user`]). Adds the declared provenance of the user's parts to `sources`, and counts the documents in
/// `documents`.
fn read_message(
    message: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
    documents: &mut RequestDocuments,
) -> Result<(), WireError> {
    // Only a message of the user may declare its provenance, so `USER` declares the fields of such a message.
    let is_user = message.text("role")? == "user";
    message.reject_unsupported(if is_user { &USER } else { &MESSAGE })?;
    match message.text("role")? {
        "user" => read_user(message, messages, sources, documents),
        "assistant" => {
            messages.push(read_assistant(message)?);
            Ok(())
        }
        "system" => {
            messages.push(Message::System(read_texts(message, "content")?));
            Ok(())
        }
        _ => message.field_error("role", "is not `user`, `assistant` or `system`"),
    }
}

/// Decodes a message of the model. Its text blocks are joined, and the order of text and calls is not kept: a message
/// that a client sends back therefore equals the one that the model wrote, even if citations divided its text into
/// blocks.
fn read_assistant(message: &ObjectFields<'_>) -> Result<Message, WireError> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    if let Some(Json::Text(content)) = message.get("content") {
        content.as_ref().clone_into(&mut text);
        return Ok(Message::Assistant { text, calls, thoughts: Vec::new() });
    }
    for block in blocks(message, "content")? {
        match block.text("type")? {
            "tool_use" => calls.push(read_call(&block)?),
            // The reasoning is dropped, so that a client cannot write text into it: the gateway has its own copy of the
            // reasoning.
            "thinking" => block.reject_unsupported(&THOUGHT)?,
            "redacted_thinking" => block.reject_unsupported(&REDACTED)?,
            _ => {
                let Part::Text(part) = read_part(&block)? else {
                    return block
                        .field_error("type", "is `image`, which an assistant message cannot contain");
                };
                text.push_str(&part);
            }
        }
    }
    Ok(Message::Assistant { text, calls, thoughts: Vec::new() })
}

/// Decodes a message of the user and appends the result to `messages`. In this format, a message of the user can also
/// contain tool outputs: each output becomes a separate message, and the parts between two outputs become one message
/// of the user. The declared provenance of the user's parts is added to `sources`, and the documents are counted in
/// `documents`.
fn read_user(
    message: &ObjectFields<'_>,
    messages: &mut Vec<Message>,
    sources: &mut Sources,
    documents: &mut RequestDocuments,
) -> Result<(), WireError> {
    let message_source = message.source()?;
    // Appends a message of the user with these parts and their sources.
    let mut push = |messages: &mut Vec<Message>, parts: Vec<(Part, Option<Source>)>| {
        let (parts, part_sources): (Vec<Part>, Vec<Option<Source>>) = parts.into_iter().unzip();
        sources.set(messages.len(), part_sources);
        messages.push(Message::User(parts));
    };
    if let Some(Json::Text(text)) = message.get("content") {
        push(messages, vec![(Part::Text(text.clone().into_owned()), message_source)]);
        return Ok(());
    }
    // The parts since the last tool output, each with its source.
    let mut pending = Vec::new();
    let blocks = blocks(message, "content")?;
    for block in &blocks {
        match block.text("type")? {
            "document" => {
                let parts = read_document(block, &DOCUMENT_OF_USER, documents)?;
                let source = documents::source_of(block, message_source)?;
                pending.extend(parts.into_iter().map(|part| (part, source)));
            }
            "search_result" => {
                let part = read_search_result(block, &SEARCH_RESULT_OF_USER, documents)?;
                pending.push((part, documents::source_of(block, message_source)?));
            }
            "tool_result" => {
                if !pending.is_empty() {
                    push(messages, std::mem::take(&mut pending));
                }
                block.reject_unsupported(&RESULT)?;
                messages.push(Message::Tool {
                    call_id: block.text("tool_use_id")?.to_owned(),
                    content: read_parts(block, "content", documents)?,
                    is_error: Some(block.flag("is_error")?),
                });
            }
            // A text or an image; a block of any other type is an error.
            _ => {
                let part = read_part_with(block, &TEXT_OF_USER, &IMAGE_OF_USER)?;
                pending.push((part, block.source()?.or(message_source)));
            }
        }
    }
    // A message without blocks becomes a message without parts.
    if !pending.is_empty() || blocks.is_empty() {
        push(messages, pending);
    }
    Ok(())
}

/// Decodes a block `tool_use`, which is a tool call in a message of the model. The arguments are an object in this
/// format, and a text in [`ToolCall`].
fn read_call(block: &ObjectFields<'_>) -> Result<ToolCall, WireError> {
    block.reject_unsupported(&USE)?;
    let input = block.get("input").filter(|input| matches!(input, Json::Object(_)));
    let Some(input) = input else { return block.field_error("input", "is not an object") };
    Ok(ToolCall {
        id: block.text("id")?.to_owned(),
        name: block.text("name")?.to_owned(),
        arguments: input.to_string(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],{field}}}"#);
        let shown = match decode_request(
            &Json::from(&serde_json::from_str(&text).unwrap()),
            &DecodeOptions::default(),
        ) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(shown, expected, "{field}");
    }

    fn decoded(field: &str) -> Request {
        let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],{field}}}"#);
        let body = serde_json::from_str(&text).unwrap();
        decode_request(&Json::from(&body), &DecodeOptions::default()).unwrap().request
    }

    /// Reasoning in a client's request reaches no model.
    #[test]
    fn reasoning_of_clients_is_dropped() {
        let request = decoded(
            r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"obey","signature":"s"},
                {"type":"text","text":"a"}]}]"#,
        );
        let expected = Message::Assistant { text: "a".to_owned(), calls: Vec::new(), thoughts: Vec::new() };
        assert_eq!(request.messages[..], [expected]);
    }

    #[test]
    fn reasoning_is_asked_for() {
        let reasoning = decoded(
            r#""thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"xhigh"}"#,
        )
        .sampling
        .reasoning;
        let expected = Reasoning {
            effort: Some(Effort::Xhigh),
            thinking: Some(ThinkingMode::Adaptive),
            display: Some(ThinkingDisplay::Omitted),
            ..Reasoning::default()
        };
        assert_eq!(reasoning, expected);
    }

    /// Verdicts are asked for by one kind of safeguard; the context for a classifier is dropped.
    #[test]
    fn verdicts_are_asked_for() {
        let asked = r#"{"type":"dangerous_tool_use","classifier_context":{"v":1}}"#;
        let check = |safeguards: &str, expected: Result<bool, &str>| {
            let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],"safeguards":{safeguards}}}"#);
            let body = serde_json::from_str(&text).unwrap();
            let read = decode_request(&Json::from(&body), &DecodeOptions::default());
            let asks = read.map(|read| read.tool_forms.safeguard_results(&[]).is_some());
            assert_eq!(
                asks.map_err(|error| error.to_string()),
                expected.map_err(str::to_owned),
                "{safeguards}"
            );
        };
        check("null", Ok(false));
        check("[]", Ok(false));
        check(&format!("[{asked}]"), Ok(true));
        check(&format!("[{asked},{asked}]"), Ok(true));
        let other = "`safeguards[0].type` is supported only as `dangerous_tool_use`";
        check(r#"[{"type":"other"}]"#, Err(other));
        check(r#"[{"type":"dangerous_tool_use","more":1}]"#, Err("`safeguards[0].more` is not known"));
    }

    /// The operator can list fields and tools that are dropped instead of being refused.
    #[test]
    fn declared_parts_are_dropped() {
        let check = |body: &str, expected: Result<usize, &str>| {
            let dropped = DecodeOptions {
                dropped_fields: vec![
                    "diagnostics".to_owned(),
                    "safeguards".to_owned(),
                    "tools.vendor_hint".to_owned(),
                ],
                dropped_tools: vec!["web_search".to_owned()],
                ..DecodeOptions::default()
            };
            let text = format!(r#"{{"model":"m","max_tokens":1,"messages":[],{body}}}"#);
            let read = decode_request(&Json::from(&serde_json::from_str(&text).unwrap()), &dropped);
            let read = read.map(|read| read.request.tools.len()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{body}");
        };
        check(r#""diagnostics":{"a":1}"#, Ok(0));
        check(r#""safeguards":[{"type":"other"}]"#, Ok(0));
        check(r#""tools":[{"name":"f","vendor_hint":1},{"name":"g","vendor_hint":2}]"#, Ok(2));
        check(r#""tools":[{"name":"f"},{"type":"web_search_20250305","name":"web_search"}]"#, Ok(1));
        check(r#""vendor_hint":1"#, Err("`vendor_hint` is not known"));
        check(
            r#""messages":[{"role":"assistant","content":"a","diagnostics":1}]"#,
            Err("`messages[0].diagnostics` is not known"),
        );
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        for fine in [
            r#""metadata":{"user_id":"u"}"#,
            r#""system":[{"type":"text","text":"s","cache_control":{"type":"ephemeral"}}]"#,
            r#""tool_choice":{"type":"auto","disable_parallel_tool_use":false}"#,
            r#""tools":[{"type":"custom","name":"f"}]"#,
            r#""tools":[{"name":"f","eager_input_streaming":true}]"#,
            r#""tools":[{"name":"f","defer_loading":true,"input_examples":[{}],"allowed_callers":["direct"]}]"#,
            r#""thinking":{"type":"adaptive","display":"omitted"},"output_config":{"effort":"medium"}"#,
            r#""output_config":{"format":{"type":"json_schema","schema":{}},"effort":"low"}"#,
            r#""output_format":{"type":"json_schema","schema":{"type":"object"}}"#,
            r#""output_format":{"type":"json_schema","schema":{}},
                "output_config":{"format":{"type":"json_schema","schema":{}}}"#,
            r#""thinking":{"type":"enabled","budget_tokens":9}"#,
            r#""thinking":{"type":"disabled"}"#,
            r#""context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]}"#,
            r#""service_tier":"standard_only","speed":"standard""#,
            r#""tool_choice":{"type":"any","disable_parallel_tool_use":true}"#,
            r#""messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},
                {"type":"redacted_thinking","data":"d"},{"type":"text","text":"a"}]}]"#,
            r#""messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c",
                "content":[{"type":"tool_reference","tool_name":"f"}]}]}]"#,
        ] {
            check(fine, "fine");
        }
        check(r#""max_tokens":null"#, "`max_tokens` is missing");
        check(r#""top_k":5"#, "`top_k` is a kind of sampling that the gateway does not pass on; use `top_p`");
        check(r#""thinking":{"type":"enabled"}"#, "`thinking.budget_tokens` is missing");
        check(
            r#""thinking":{"type":"always"}"#,
            "`thinking.type` is not `disabled`, `adaptive` or `enabled`",
        );
        check(
            r#""thinking":{"type":"adaptive","display":"full"}"#,
            "`thinking.display` is neither `summarized` nor `omitted`",
        );
        check(r#""thinking":{"type":"adaptive","new":1}"#, "`thinking.new` is not known");
        check(
            r#""output_config":{"effort":"extreme"}"#,
            "`output_config.effort` is not `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`",
        );
        check(
            r#""output_config":{"format":{"type":"json_object"}}"#,
            "`output_config.format.type` is not `json_schema`",
        );
        check(
            r#""output_format":{"type":"json_schema","schema":{},"name":"n"}"#,
            "`output_format.name` is not known",
        );
        check(
            r#""output_format":{"type":"json_schema","schema":{}},
                "output_config":{"format":{"type":"json_schema","schema":{"type":"object"}}}"#,
            "`output_format` differs from `output_config.format`; send one of the two",
        );
        check(r#""mcp_servers":[]"#, "fine");
        let unlabelled = |place: &str| {
            format!(
                "`{place}` is an MCP server that the provider would call: the policy has to label its outputs by name \
                (`label out.content as untrusted if: (out: ToolOutput) is tool:mcp__LABEL`, with the label of the \
                server, which has letters, digits, `-` and single `_`), and the upstream has to have such servers; or \
                put the server behind the gateway"
            )
        };
        check(
            r#""mcp_servers":[{"type":"url","url":"https://a.example/","name":"weather"}]"#,
            &unlabelled("mcp_servers[0].name"),
        );
        check(
            r#""tools":[{"type":"mcp_toolset","mcp_server_name":"weather"}]"#,
            &unlabelled("tools[0].type"),
        );
        check(
            r#""container":"c""#,
            "`container` refers to state at the provider, which has no label; send the content itself",
        );
        check(
            r#""tools":[{"type":"web_search_20250305","name":"web_search"}]"#,
            "`tools[0].type` is a tool that the provider runs: the policy has to label its outputs, and the \
            upstream has to have it; leave it out",
        );
        check(
            r#""tools":[{"type":"bash_20250124","name":"bash"}]"#,
            "`tools[0].type` is a tool whose arguments only the provider describes; declare it as a custom tool",
        );
        check(
            r#""tools":[{"type":"web_searching","name":"f"}]"#,
            "`tools[0].type` is not a known type of tool; leave the tool out",
        );
        check(r#""messages":[{"role":"system","content":"s"}]"#, "fine");
        check(
            r#""messages":[{"role":"assistant","content":"s","flowgate":{"source":"typed"}}]"#,
            "`messages[0].flowgate` is not known",
        );
        check(
            r#""messages":[{"role":"tool","content":"s"}]"#,
            "`messages[0].role` is not `user`, `assistant` or `system`",
        );
        let block = |role: &str, block: &str, expected: &str| {
            check(&format!(r#""messages":[{{"role":"{role}","content":[{block}]}}]"#), expected);
        };
        block(
            "assistant",
            r#"{"type":"document"}"#,
            "`messages[0].content[0].type` is a kind of content that no rule can judge; send it as text",
        );
        for kind in ["server_tool_use", "web_search_tool_result", "mcp_tool_result"] {
            block(
                "assistant",
                &format!(r#"{{"type":"{kind}"}}"#),
                "`messages[0].content[0].type` is the record of a tool that the provider has run, whose output has no \
                label; leave it out",
            );
        }
        block(
            "user",
            r#"{"type":"image","source":{"type":"url","url":"https://example.org/a.png"}}"#,
            "`messages[0].content[0].source.url` would be fetched by the provider, and what it returns has no label; \
            send the content in base64",
        );
        block(
            "user",
            r#"{"type":"image","source":{"type":"base64","media_type":"application/pdf","data":"AA"}}"#,
            "`messages[0].content[0].source.media_type` has a media type that does not begin with `image/`; send a PDF \
            as a document",
        );
        block(
            "user",
            r#"{"type":"thinking"}"#,
            "`messages[0].content[0].type` belongs to a message of the model; send it in one",
        );
        block(
            "assistant",
            r#"{"type":"thinking","notes":"n"}"#,
            "`messages[0].content[0].notes` is not known",
        );
        block(
            "user",
            r#"{"type":"image","source":{"type":"file","file_id":"f"}}"#,
            "`messages[0].content[0].source.file_id` refers to state at the provider, which has no label; send the \
            content itself",
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
