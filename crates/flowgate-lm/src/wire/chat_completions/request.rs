//! Encodes and decodes requests of OpenAI's chat completions.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::super::fields::{AllowedFields, EXTENSION, NOT_SUPPORTED, ObjectFields};
use super::super::{ReceivedRequest, WireError, extension, image_url, only_text, parse_image_url};
use crate::chat::{
    Message, Part, Request, Sampling, SerializedPrefix, Source, Sources, ToolCall, ToolChoice, ToolSpec,
};
use crate::json::Json;

/// Encodes the body of a request.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
    // Serialisation cannot fail: all keys are strings, and all values are representable in JSON.
    serde_json::to_value(SentRequest { request, model, stream, limit: LIMIT }).unwrap_or_default()
}

/// The name of the token limit.
pub(crate) const LIMIT: &str = "max_completion_tokens";
/// The older name of the token limit.
#[cfg(feature = "remote")]
pub(crate) const OLD_LIMIT: &str = "max_tokens";

/// A request as it is sent.
#[derive(Debug)]
pub(crate) struct SentRequest<'a> {
    pub(crate) request: &'a Request,
    pub(crate) model: &'a str,
    pub(crate) stream: bool,
    /// The name of the token limit.
    pub(crate) limit: &'static str,
}

impl SentRequest<'_> {
    /// Returns the body in JSON, and the offset at which the messages end. A chat is long and is sent whole with each
    /// request, so the serialised form of earlier messages, which `head` and the first messages form, is extended.
    pub(crate) fn body(&self) -> serde_json::Result<(Vec<u8>, usize)> {
        let head = format!(r#"{{"model":{},"messages":["#, serde_json::to_string(self.model)?);
        let messages = &self.request.messages;
        let reusable = messages.take_serialized_prefix();
        let reusable =
            reusable.filter(|reusable| reusable.text.starts_with(head.as_bytes()) && reusable.messages > 0);
        let SerializedPrefix { text: mut body, messages: reused_count } =
            reusable.unwrap_or(SerializedPrefix { text: head.into_bytes(), messages: 0 });
        let new_messages = messages.get(reused_count..).unwrap_or_default();
        // One allocation for the whole body.
        body.reserve(
            new_messages.iter().map(estimated_size).sum::<usize>() + 512 * self.request.tools.len() + 512,
        );
        for (index, message) in new_messages.iter().enumerate() {
            if reused_count + index > 0 {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &SentMessage(message))?;
        }
        let end = body.len();
        body.push(b']');
        // The other fields are serialised as a separate object `{...}`. Its opening brace becomes a comma; if it has no
        // fields, the brace is removed.
        serde_json::to_writer(&mut body, &RemainingFields(self))?;
        match body.get_mut(end + 1..) {
            Some([bracket, b'"', ..]) => *bracket = b',',
            _ => drop(body.remove(end + 1)),
        }
        Ok((body, end))
    }
}

/// Estimates the serialised size of a message in bytes, assuming few escapes.
fn estimated_size(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::ImageUrl(text) | Part::ImageData { data: text, .. } => text.len(),
    };
    let text = match message {
        Message::System(parts) | Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant { text, calls } => {
            text.len() + calls.iter().map(|call| 96 + call.arguments.len()).sum::<usize>()
        }
        Message::Tool { content, .. } => 64 + content.iter().map(part).sum::<usize>(),
    };
    40 + text * 17 / 16
}

impl Serialize for SentRequest<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", self.model)?;
        body.serialize_entry("messages", &MappedList(&self.request.messages, SentMessage))?;
        self.serialize_remaining(&mut body)?;
        body.end()
    }
}

/// The fields of a request after its messages.
struct RemainingFields<'a>(&'a SentRequest<'a>);

impl Serialize for RemainingFields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        self.0.serialize_remaining(&mut body)?;
        body.end()
    }
}

impl SentRequest<'_> {
    /// Serialises all fields except the model and the messages.
    fn serialize_remaining<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        let Request { messages: _, tools, choice, sampling } = self.request;
        if !tools.is_empty() {
            body.serialize_entry("tools", &MappedList(tools, SentTool))?;
        }
        match choice {
            ToolChoice::Auto => {}
            ToolChoice::Any => body.serialize_entry("tool_choice", "required")?,
            ToolChoice::None => body.serialize_entry("tool_choice", "none")?,
            ToolChoice::Tool(name) => {
                let tool = json!({"type": "function", "function": {"name": name}});
                body.serialize_entry("tool_choice", &tool)?;
            }
        }
        let numbers = [
            (self.limit, sampling.max_tokens.map(Value::from)),
            ("temperature", sampling.temperature.map(Value::from)),
            ("top_p", sampling.top_p.map(Value::from)),
            ("seed", sampling.seed.map(Value::from)),
            ("stop", Some(&sampling.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ];
        for (key, value) in numbers {
            if let Some(value) = value {
                body.serialize_entry(key, &value)?;
            }
        }
        if self.stream {
            body.serialize_entry("stream", &true)?;
            body.serialize_entry("stream_options", &json!({"include_usage": true}))?;
        }
        Ok(())
    }
}

/// A list whose items are serialised by a function.
struct MappedList<'a, T, W>(&'a [T], fn(&'a T) -> W);

impl<T, W: Serialize> Serialize for MappedList<'_, T, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

struct SentMessage<'a>(&'a Message);

impl Serialize for SentMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        match self.0 {
            Message::System(parts) => {
                body.serialize_entry("role", "system")?;
                body.serialize_entry("content", &SentContent(parts))?;
            }
            Message::User(parts) => {
                body.serialize_entry("role", "user")?;
                body.serialize_entry("content", &SentContent(parts))?;
            }
            Message::Assistant { text, calls } => {
                let text = Some(text).filter(|text| !text.is_empty() || calls.is_empty());
                body.serialize_entry("role", "assistant")?;
                body.serialize_entry("content", &text)?;
                if !calls.is_empty() {
                    body.serialize_entry("tool_calls", &MappedList(calls, encode_call))?;
                }
            }
            Message::Tool { call_id, content, is_error: _ } => {
                body.serialize_entry("role", "tool")?;
                body.serialize_entry("tool_call_id", call_id)?;
                body.serialize_entry("content", &SentContent(content))?;
            }
        }
        body.end()
    }
}

pub(super) fn encode_call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

struct SentContent<'a>(&'a [Part]);

impl Serialize for SentContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Some(text) = only_text(self.0) {
            return serializer.serialize_str(text);
        }
        let part = |part: &Part| match part {
            Part::Text(text) => json!({"type": "text", "text": text}),
            image => json!({"type": "image_url", "image_url": {"url": image_url(image)}}),
        };
        serializer.collect_seq(self.0.iter().map(part))
    }
}

struct SentTool<'a>(&'a ToolSpec);

impl Serialize for SentTool<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("type", "function")?;
        body.serialize_entry("function", &SentFunction(self.0))?;
        body.end()
    }
}

struct SentFunction<'a>(&'a ToolSpec);

impl Serialize for SentFunction<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("name", &self.0.name)?;
        if !self.0.description.is_empty() {
            body.serialize_entry("description", &self.0.description)?;
        }
        body.serialize_entry("parameters", &self.0.parameters)?;
        body.end()
    }
}

const REQUEST: AllowedFields = AllowedFields {
    read: &[
        "model",
        "messages",
        "tools",
        "tool_choice",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "seed",
        "stop",
        "stream",
        "stream_options",
    ],
    dropped: &["user", "metadata", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"],
    fixed: &[
        ("n", &["1"]),
        ("store", &["false"]),
        ("logprobs", &["false"]),
        ("logit_bias", &["{}"]),
        ("modalities", &[r#"["text"]"#]),
        ("response_format", &[r#"{"type":"text"}"#]),
        ("parallel_tool_calls", &["true"]),
        ("frequency_penalty", &["0", "0.0"]),
        ("presence_penalty", &["0", "0.0"]),
        ("service_tier", &[r#""auto""#, r#""default""#]),
    ],
};
const OPTIONS: AllowedFields =
    AllowedFields { read: &["include_usage"], dropped: &["include_obfuscation"], fixed: &[] };

/// Decodes the body of a request.
///
/// # Errors
/// If it asks for something that a [`Request`] cannot express.
pub fn decode_request(body: &Json<'_>) -> Result<ReceivedRequest, WireError> {
    let body = ObjectFields::from_value(body, "")?;
    body.reject_unknown(&REQUEST)?;
    let mut usage = false;
    if let Some(options) = body.get("stream_options") {
        let options = ObjectFields::from_value(options, "stream_options")?;
        options.reject_unknown(&OPTIONS)?;
        usage = options.flag("include_usage")?;
    }
    let (old, new) = (body.tokens("max_tokens")?, body.tokens("max_completion_tokens")?);
    if old.is_some() && new.is_some() && old != new {
        return body.field_error("max_tokens", "differs from `max_completion_tokens`; send one of the two");
    }
    if body.get("messages").is_none() {
        return body.field_error("messages", "is missing");
    }
    let tools = body.objects("tools")?;
    let (messages, sources) = read_messages(&body)?;
    let request = Request {
        messages: messages.into(),
        tools: tools.map(|tool| read_tool(&tool?)).collect::<Result<_, _>>()?,
        choice: read_choice(&body)?,
        sampling: Sampling {
            max_tokens: new.or(old),
            temperature: body.number("temperature")?,
            top_p: body.number("top_p")?,
            seed: body.whole_number("seed")?,
            stop: body.texts("stop")?,
        },
    };
    let (model, stream) = (body.text("model")?.to_owned(), body.flag("stream")?);
    Ok(ReceivedRequest { request, model, stream, usage, sources })
}

/// Decodes the messages of a request, from an object without any other field.
///
/// # Errors
/// If one contains something that a [`Message`] cannot express.
pub fn decode_messages(body: &Json<'_>) -> Result<(Vec<Message>, Sources), WireError> {
    let body = ObjectFields::from_value(body, "")?;
    body.reject_unknown(&AllowedFields { read: &["messages"], dropped: &[], fixed: &[] })?;
    read_messages(&body)
}

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

/// Returns the sources of the parts of a message: the part's own, or else that of the message.
fn sources_of(message: &ObjectFields<'_>) -> Result<Vec<Option<Source>>, WireError> {
    let of_message = message.source()?;
    match message.get("content") {
        None => Ok(Vec::new()),
        Some(Json::Text(_)) => Ok(vec![of_message]),
        Some(_) => message.objects("content")?.map(|part| Ok(part?.source()?.or(of_message))).collect(),
    }
}

const PLAIN: AllowedFields = AllowedFields { read: &["role", "content"], dropped: &[], fixed: &[] };
const USER: AllowedFields = AllowedFields { read: &["role", "content", EXTENSION], dropped: &[], fixed: &[] };
const ASSISTANT: AllowedFields = AllowedFields {
    read: &["role", "content", "refusal", "tool_calls"],
    dropped: &[],
    fixed: &[("annotations", &["[]"])],
};
// `name` is redundant: the call identifies the tool.
const TOOL: AllowedFields = AllowedFields {
    read: &["role", "content", "tool_call_id", extension::EXTENSION_FIELD],
    dropped: &["name"],
    fixed: &[],
};

/// Decodes a message of one of the roles. A refusal of the model is text like any other.
fn read_message(message: &ObjectFields<'_>) -> Result<Message, WireError> {
    match message.text("role")? {
        "system" | "developer" => {
            message.reject_unknown(&PLAIN)?;
            Ok(Message::System(read_content(message)?))
        }
        "user" => {
            message.reject_unknown(&USER)?;
            Ok(Message::User(read_parts(message, &PARTS_OF_USER)?))
        }
        "assistant" => {
            message.reject_unknown(&ASSISTANT)?;
            let mut text = String::new();
            for part in read_content(message)? {
                match part {
                    Part::Text(piece) => text.push_str(&piece),
                    _ => {
                        return message.field_error(
                            "content",
                            "has an image, which an assistant message cannot contain",
                        );
                    }
                }
            }
            text.push_str(message.optional_text("refusal")?.unwrap_or_default());
            let calls = message.objects("tool_calls")?.map(|call| read_call(&call?));
            Ok(Message::Assistant { text, calls: calls.collect::<Result<_, _>>()? })
        }
        "tool" => {
            message.reject_unknown(&TOOL)?;
            let call_id = message.text("tool_call_id")?.to_owned();
            Ok(Message::Tool {
                call_id,
                content: read_content(message)?,
                is_error: extension::is_error(message)?,
            })
        }
        _ => message.field_error("role", NOT_SUPPORTED),
    }
}

const CALL: AllowedFields = AllowedFields {
    read: &["id", "function", "index"],
    dropped: &[],
    fixed: &[("type", &[r#""function""#])],
};
const CALLED: AllowedFields = AllowedFields { read: &["name", "arguments"], dropped: &[], fixed: &[] };

fn read_call(call: &ObjectFields<'_>) -> Result<ToolCall, WireError> {
    call.reject_unknown(&CALL)?;
    let function = call.object("function")?;
    function.reject_unknown(&CALLED)?;
    Ok(ToolCall {
        id: call.text("id")?.to_owned(),
        name: function.text("name")?.to_owned(),
        arguments: function.text("arguments")?.to_owned(),
    })
}

/// The fields of parts: texts, refusals and images.
const PARTS: [AllowedFields; 3] = [
    AllowedFields { read: &["type", "text"], dropped: &[], fixed: &[] },
    AllowedFields { read: &["type", "refusal"], dropped: &[], fixed: &[] },
    AllowedFields { read: &["type", "image_url"], dropped: &[], fixed: &[] },
];
const PARTS_OF_USER: [AllowedFields; 3] = [
    AllowedFields { read: &["type", "text", EXTENSION], dropped: &[], fixed: &[] },
    AllowedFields { read: &["type", "refusal", EXTENSION], dropped: &[], fixed: &[] },
    AllowedFields { read: &["type", "image_url", EXTENSION], dropped: &[], fixed: &[] },
];
const IMAGE_URL: AllowedFields =
    AllowedFields { read: &["url"], dropped: &[], fixed: &[("detail", &[r#""auto""#])] };

fn read_content(message: &ObjectFields<'_>) -> Result<Vec<Part>, WireError> {
    read_parts(message, &PARTS)
}

/// Decodes the content of a message: a text, or a list of parts. The last argument lists the fields that parts of type
/// `text`, `refusal` and `image_url` may have.
fn read_parts(
    message: &ObjectFields<'_>,
    [text, refusal, image]: &[AllowedFields; 3],
) -> Result<Vec<Part>, WireError> {
    match message.get("content") {
        None => return Ok(Vec::new()),
        Some(Json::Text(text)) if text.is_empty() => return Ok(Vec::new()),
        Some(Json::Text(text)) => return Ok(vec![Part::Text(text.clone().into_owned())]),
        Some(_) => {}
    }
    let part = |part: Result<ObjectFields<'_>, WireError>| {
        let part = part?;
        match part.text("type")? {
            "text" => {
                part.reject_unknown(text)?;
                Ok(Part::Text(part.text("text")?.to_owned()))
            }
            "refusal" => {
                part.reject_unknown(refusal)?;
                Ok(Part::Text(part.text("refusal")?.to_owned()))
            }
            "image_url" => {
                part.reject_unknown(image)?;
                let image = part.object("image_url")?;
                image.reject_unknown(&IMAGE_URL)?;
                parse_image_url(image.text("url")?).or_else(|problem| image.field_error("url", problem))
            }
            _ => part.field_error("type", NOT_SUPPORTED),
        }
    };
    message.objects("content")?.map(part).collect()
}

const SPEC: AllowedFields = AllowedFields { read: &["type", "function"], dropped: &[], fixed: &[] };
// `strict` has no effect here: whatever the server enforces, the arguments are checked before the call runs.
const FUNCTION: AllowedFields =
    AllowedFields { read: &["name", "description", "parameters"], dropped: &["strict"], fixed: &[] };

fn read_tool(tool: &ObjectFields<'_>) -> Result<ToolSpec, WireError> {
    if tool.text("type")? != "function" {
        return tool.field_error("type", NOT_SUPPORTED);
    }
    tool.reject_unknown(&SPEC)?;
    let function = tool.object("function")?;
    function.reject_unknown(&FUNCTION)?;
    Ok(ToolSpec {
        name: function.text("name")?.to_owned(),
        description: function.optional_text("description")?.unwrap_or_default().to_owned(),
        parameters: function.schema("parameters")?.into(),
    })
}

const CHOICE: AllowedFields =
    AllowedFields { read: &["function"], dropped: &[], fixed: &[("type", &[r#""function""#])] };
const CHOSEN: AllowedFields = AllowedFields { read: &["name"], dropped: &[], fixed: &[] };

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
            let chosen = choice.object("function")?;
            chosen.reject_unknown(&CHOSEN)?;
            Ok(ToolChoice::Tool(chosen.text("name")?.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &str, expected: &str) {
        let text = format!(r#"{{"model":"m","messages":[],{field}}}"#);
        let shown = match decode_request(&Json::from(&serde_json::from_str(&text).unwrap())) {
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
            r#""messages":[{"role":"tool","tool_call_id":"c","name":"f","content":"r"}]"#,
        ] {
            check(fine, "fine");
        }
        check(r#""n":2"#, "`n` has a value that is not supported");
        check(r#""logprobs":true"#, "`logprobs` has a value that is not supported");
        check(r#""store":true"#, "`store` has a value that is not supported");
        check(r#""parallel_tool_calls":false"#, "`parallel_tool_calls` has a value that is not supported");
        check(
            r#""response_format":{"type":"json_object"}"#,
            "`response_format` has a value that is not supported",
        );
        check(r#""reasoning_effort":"low""#, "`reasoning_effort` is not supported");
        check(r#""functions":[]"#, "`functions` is not supported");
        check(r#""a secret":1"#, "`...` is not supported");
        check(
            r#""max_tokens":1,"max_completion_tokens":2"#,
            "`max_tokens` differs from `max_completion_tokens`; send one of the two",
        );
        check(r#""max_tokens":-1"#, "`max_tokens` is not a non-negative integer");
        check(r#""max_tokens":4294967296"#, "`max_tokens` is larger than 4294967295");
        check(r#""stop":[1]"#, "`stop` contains an item that is not a string");
        check(r#""stream":1"#, "`stream` is neither true nor false");
        check(r#""tools":[{"type":"custom","custom":{}}]"#, "`tools[0].type` is not supported");
        check(r#""tools":[{"type":"function"}]"#, "`tools[0].function` is not an object");
        check(
            r#""tool_choice":{"type":"allowed_tools"}"#,
            "`tool_choice.type` has a value that is not supported",
        );
        check(r#""model":1"#, "`model` is not a string");
        let message = |message: &str, expected: &str| check(&format!(r#""messages":[{message}]"#), expected);
        message(r#"{"role":"function","content":""}"#, "`messages[0].role` is not supported");
        message(r#"{"role":"user","content":"","name":"n"}"#, "`messages[0].name` is not supported");
        message(r#"{"role":"user","content":3}"#, "`messages[0].content` is not a list");
        message(r#"{"role":"tool","content":""}"#, "`messages[0].tool_call_id` is missing");
        message(r#"{"role":"assistant","audio":{"id":"a"}}"#, "`messages[0].audio` is not supported");
        let part = |part: &str, expected: &str| {
            message(&format!(r#"{{"role":"user","content":[{part}]}}"#), expected);
        };
        part(r#"{"type":"file","file":{"file_id":"f"}}"#, "`messages[0].content[0].type` is not supported");
        part(r#"{"type":"image_url","image_url":{"url":"https://a/b.png","detail":"auto"}}"#, "fine");
        part(
            r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#,
            "`messages[0].content[0].image_url.url` must be an `http://` URL, an `https://` URL or a data URL",
        );
        part(
            r#"{"type":"image_url","image_url":{"url":"data:image/png,xx"}}"#,
            "`messages[0].content[0].image_url.url` is a data URL without `;base64,`; encode the image in \
            base64",
        );
    }
}
