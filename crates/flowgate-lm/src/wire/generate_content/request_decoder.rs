//! Decodes requests of Gemini's API, as the gateway receives them from its clients: requests for an answer
//! ([`decode_request`]) and for a number of tokens ([`decode_count_request`]). This file decodes the settings;
//! [`super::content`] decodes the chat, and [`super::tools`] the tools.

use std::sync::Arc;

use super::super::fields::ObjectFields;
use super::super::known_fields::DecodeOptions;
use super::super::output_format::{checked_schema, read_schema};
use super::super::{ReceivedRequest, ToolForms, WireError};
use super::content::{ContentReader, read_system};
use super::schema::json_schema;
use super::tools::{read_choice, read_tools};
use super::{CONFIG, COUNT, REQUEST, THINKING};
use crate::chat::{
    Effort, OutputFormat, OutputSchema, Reasoning, Request, Sampling, ThinkingDisplay, ThinkingMode,
};
use crate::json::Json;

/// Decodes the body of a request. `options` lists the fields and tools that are dropped instead of being rejected, and
/// the tools of the provider that the client may ask for. Only the address of the request names the model and says
/// whether the answer is streamed; the caller adds both with [`ReceivedRequest::addressed_to`].
///
/// # Errors
/// If the body violates the format, or asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>, options: &DecodeOptions) -> Result<ReceivedRequest, WireError> {
    read_request(&ObjectFields::of_body(body, options)?)
}

/// Decodes the body by which a client asks for a number of tokens, and returns the request whose tokens are to be
/// counted. The body has either the contents of this request (`contents`) or the whole request
/// (`generateContentRequest`). `options` is as for [`decode_request`].
///
/// # Errors
/// In the same cases as [`decode_request`], and if the body has both fields.
pub fn decode_count_request(body: &Json<'_>, options: &DecodeOptions) -> Result<Request, WireError> {
    let body = ObjectFields::of_body(body, options)?;
    body.reject_unsupported(&COUNT)?;
    match (body.get("generateContentRequest"), body.get("contents")) {
        (Some(_), Some(_)) => {
            body.field_error("contents", "is sent with `generateContentRequest`; send one of the two")
        }
        (Some(_), None) => Ok(read_request(&body.object("generateContentRequest")?)?.request),
        (None, _) => Ok(Request { messages: read_contents(&body)?.messages.into(), ..Request::default() }),
    }
}

/// Decodes the fields of a request for an answer. [`decode_count_request`] also calls this function, for a request
/// whose tokens are to be counted.
fn read_request(body: &ObjectFields<'_>) -> Result<ReceivedRequest, WireError> {
    body.reject_unsupported(&REQUEST)?;
    let ContentReader { messages, sources, .. } = read_contents(body)?;
    let (tools, provider_tools) = read_tools(body)?;
    let choice = read_choice(body, &tools)?;
    let (mut sampling, mut format) = (Sampling::default(), None);
    if body.get("generationConfig").is_some() {
        let config = body.object("generationConfig")?;
        config.reject_unsupported(&CONFIG)?;
        sampling = Sampling {
            max_tokens: config.tokens("maxOutputTokens")?,
            temperature: config.number("temperature")?,
            top_p: config.number("topP")?,
            seed: config.whole_number("seed")?,
            stop: config.texts("stopSequences")?,
            reasoning: read_reasoning(&config)?,
            verbosity: None,
            single_call: false,
        };
        format = read_output_format(&config)?;
    }
    let request = Request { messages: messages.into(), tools, choice, sampling, format };
    // The model and `stream` are replaced by `addressed_to`. Every answer of this format reports the usage.
    let (model, stream, usage) = (String::new(), false, true);
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

/// Decodes the chat, from the fields `systemInstruction` and `contents`. Fails if `contents` is missing. The result has
/// the messages and their declared provenance.
fn read_contents(body: &ObjectFields<'_>) -> Result<ContentReader, WireError> {
    if body.get("contents").is_none() {
        return body.field_error("contents", "is missing");
    }
    let mut reader = ContentReader::default();
    reader.messages.extend(read_system(body)?);
    for content in body.objects("contents")? {
        reader.read(&content?)?;
    }
    Ok(reader)
}

/// Decodes the form that the request demands of the text; `None` for any text. `config` is the object
/// `generationConfig`: its field `responseMimeType` says whether the text must be JSON. The schema of the JSON, if
/// there is one, is in `responseSchema` in Gemini's form of schemas, or in `responseJsonSchema` as a JSON schema.
fn read_output_format(config: &ObjectFields<'_>) -> Result<Option<OutputFormat>, WireError> {
    let schema = match (config.get("responseSchema"), config.get("responseJsonSchema")) {
        (Some(_), Some(_)) => {
            return config
                .field_error("responseSchema", "is sent with `responseJsonSchema`; send one of the two");
        }
        (Some(schema), None) => {
            // Only checks that the field is an object.
            config.object("responseSchema")?;
            Some(checked_schema(config, "responseSchema", json_schema(schema))?)
        }
        (None, Some(_)) => Some(read_schema(config, "responseJsonSchema")?),
        (None, None) => None,
    };
    match (config.optional_text("responseMimeType")?, schema) {
        (None | Some("text/plain"), None) => Ok(None),
        (Some("application/json"), None) => Ok(Some(OutputFormat::JsonObject)),
        (Some("application/json"), Some(schema)) => {
            // The format has no name and no description of a schema.
            let (name, description) = (String::new(), String::new());
            Ok(Some(OutputFormat::Schema(OutputSchema { name, description, schema, strict: None })))
        }
        (None | Some("text/plain"), Some(_)) => {
            config.field_error("responseMimeType", "must be `application/json` if there is a schema")
        }
        (Some(_), _) => config.field_error("responseMimeType", "is not `text/plain` or `application/json`"),
    }
}

/// Decodes the parameters of reasoning from the field `thinkingConfig` of `config`, the object `generationConfig`. If
/// the field is absent, the result leaves all parameters to the server.
fn read_reasoning(config: &ObjectFields<'_>) -> Result<Reasoning, WireError> {
    let mut reasoning = Reasoning::default();
    if config.get("thinkingConfig").is_none() {
        return Ok(reasoning);
    }
    let thinking = config.object("thinkingConfig")?;
    thinking.reject_unsupported(&THINKING)?;
    if thinking.get("includeThoughts").is_some() {
        let is_shown = thinking.flag("includeThoughts")?;
        reasoning.display =
            Some(if is_shown { ThinkingDisplay::Summarized } else { ThinkingDisplay::Omitted });
    }
    // The budget is a number of tokens; -1 lets the model decide, and 0 turns reasoning off.
    reasoning.thinking = match thinking.get("thinkingBudget") {
        None => None,
        Some(Json::Number(number)) if number.as_i64() == Some(-1) => Some(ThinkingMode::Adaptive),
        Some(_) => thinking.tokens("thinkingBudget")?.map(|budget| match budget {
            0 => ThinkingMode::Disabled,
            budget => ThinkingMode::Enabled(budget),
        }),
    };
    // Returns the effort for the name of a level in capitals: `None` for an unknown name, which is an error, and
    // `Some(None)` for the name that leaves the level to the server.
    let level = |name: &str| match name {
        "THINKING_LEVEL_UNSPECIFIED" => Some(None),
        "MINIMAL" => Some(Some(Effort::Minimal)),
        "LOW" => Some(Some(Effort::Low)),
        "MEDIUM" => Some(Some(Effort::Medium)),
        "HIGH" => Some(Some(Effort::High)),
        _ => None,
    };
    let unknown = "is not `MINIMAL`, `LOW`, `MEDIUM` or `HIGH`";
    reasoning.effort = thinking.word("thinkingLevel", |name| level(&name.to_uppercase()), unknown)?.flatten();
    Ok(reasoning)
}

#[cfg(test)]
mod tests;
