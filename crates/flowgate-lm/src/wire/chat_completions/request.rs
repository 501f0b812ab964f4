//! Encodes requests of OpenAI's chat completions for a model's server: as a [`Value`] ([`encode_request`]), or as bytes
//! ([`SentRequest::body`], which `RemoteModel` sends). The bytes begin with those of the chat's previous request, so
//! that earlier messages are not serialised again.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::super::documents::named_pdf;
use super::super::output_format::encode_named_schema;
use super::super::{image_url, only_text};
use crate::chat::{
    Effort, Message, OutputFormat, Part, Request, SerializedPrefix, ToolCall, ToolChoice, ToolSpec, Verbosity,
};

/// Encodes the body of a request to the model with the name `model`. `stream` requests a streamed answer.
#[must_use]
pub fn encode_request(request: &Request, model: &str, stream: bool) -> Value {
    // Serialisation cannot fail: all keys are strings, and all values are representable in JSON.
    serde_json::to_value(SentRequest { request, model, stream, limit: LIMIT }).unwrap_or_default()
}

/// The name of the field for the token limit.
pub(crate) const LIMIT: &str = "max_completion_tokens";
/// The older name of the field for the token limit.
#[cfg(feature = "remote")]
pub(crate) const OLD_LIMIT: &str = "max_tokens";

/// A request with the settings of its transmission. Serialising this value gives the body.
#[derive(Debug)]
pub(crate) struct SentRequest<'a> {
    pub(crate) request: &'a Request,
    /// The name of the model.
    pub(crate) model: &'a str,
    /// Whether a streamed answer is requested.
    pub(crate) stream: bool,
    /// The name of the field for the token limit: [`LIMIT`] or `max_tokens`.
    pub(crate) limit: &'static str,
}

impl SentRequest<'_> {
    /// Returns the body in JSON, and the offset at which the messages end.
    ///
    /// Each request contains the whole chat. If the beginning of the previous body (the model and the earlier messages)
    /// is stored with the chat, only the new messages are serialised, and appended to this beginning.
    pub(crate) fn body(&self) -> serde_json::Result<(Vec<u8>, usize)> {
        let head = format!(r#"{{"model":{},"messages":["#, serde_json::to_string(self.model)?);
        let messages = &self.request.messages;
        // A stored beginning is reused only if it names the same model and has messages.
        let reusable = messages.take_serialized_prefix();
        let reusable =
            reusable.filter(|reusable| reusable.text.starts_with(head.as_bytes()) && reusable.messages > 0);
        let SerializedPrefix { text: mut body, messages: reused_count } =
            reusable.unwrap_or(SerializedPrefix { text: head.into_bytes(), messages: 0 });
        let new_messages = messages.get(reused_count..).unwrap_or_default();
        // One allocation for the whole body, with an estimate of 512 bytes for each tool and for the other fields.
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
        // The other fields are serialised as a separate object `{...}`, whose closing brace also closes the body. The
        // opening brace of this object becomes a comma; if the object has no fields, the brace is removed.
        serde_json::to_writer(&mut body, &RemainingFields(self))?;
        match body.get_mut(end + 1..) {
            Some([bracket, b'"', ..]) => *bracket = b',',
            _ => drop(body.remove(end + 1)),
        }
        Ok((body, end))
    }
}

/// Estimates the serialised size of a message in bytes, to allocate the body at once: the size of the texts, a
/// sixteenth more for escapes, and a constant for the names of the fields. A wrong estimate only costs another
/// allocation.
fn estimated_size(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::ImageUrl(text) | Part::ImageData { data: text, .. } => text.len(),
    };
    let text = match message {
        // The numbers of bytes are guesses: 96 for the names of a call, 64 for those of an output, 40 for any message.
        Message::System(parts) | Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant { text, calls, .. } => {
            text.len() + calls.iter().map(|call| 96 + call.arguments.len()).sum::<usize>()
        }
        Message::Tool { content, .. } => 64 + content.iter().map(part).sum::<usize>(),
    };
    40 + text * 17 / 16
}

impl Serialize for SentRequest<'_> {
    /// Serialises the whole body without the cache of earlier messages; [`SentRequest::body`] uses the cache.
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
    /// Serialises the fields after the messages as an object of their own.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        self.0.serialize_remaining(&mut body)?;
        body.end()
    }
}

impl SentRequest<'_> {
    /// Serialises all fields except the model and the messages. Settings that the request leaves open are not sent, so
    /// that the server's defaults apply.
    fn serialize_remaining<M: SerializeMap>(&self, body: &mut M) -> Result<(), M::Error> {
        let Request { messages: _, tools, choice, sampling, format } = self.request;
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
        let settings = [
            // `self.limit` is the name of the field for this limit, which differs between servers.
            (self.limit, sampling.max_tokens.map(Value::from)),
            ("temperature", sampling.temperature.map(Value::from)),
            ("top_p", sampling.top_p.map(Value::from)),
            ("seed", sampling.seed.map(Value::from)),
            ("stop", Some(&sampling.stop).filter(|stop| !stop.is_empty()).map(|stop| json!(stop))),
        ];
        for (key, value) in settings {
            if let Some(value) = value {
                body.serialize_entry(key, &value)?;
            }
        }
        let effort = sampling.reasoning.effort.map(Effort::name);
        let verbosity = sampling.verbosity.map(Verbosity::name);
        for (key, word) in [("reasoning_effort", effort), ("verbosity", verbosity)] {
            if let Some(word) = word {
                body.serialize_entry(key, word)?;
            }
        }
        let format = format.as_ref().map(|format| match format {
            OutputFormat::JsonObject => json!({"type": "json_object"}),
            OutputFormat::Schema(schema) => {
                json!({"type": "json_schema", "json_schema": encode_named_schema(schema)})
            }
        });
        if let Some(format) = format {
            body.serialize_entry("response_format", &format)?;
        }
        if sampling.single_call && !tools.is_empty() {
            body.serialize_entry("parallel_tool_calls", &false)?;
        }
        if self.stream {
            body.serialize_entry("stream", &true)?;
            body.serialize_entry("stream_options", &json!({"include_usage": true}))?;
        }
        Ok(())
    }
}

/// A list that is serialised with each item replaced by the result of a function.
struct MappedList<'a, T, W>(&'a [T], fn(&'a T) -> W);

impl<T, W: Serialize> Serialize for MappedList<'_, T, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

/// A message, which is serialised in this format.
struct SentMessage<'a>(&'a Message);

impl Serialize for SentMessage<'_> {
    /// Serialises a message of the chat as an item of the field `messages`.
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
            Message::Assistant { text, calls, .. } => {
                // The content of a message with calls and no text is null. The format has no field for reasoning.
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

/// Encodes a call of an assistant message.
pub(super) fn encode_call(call: &ToolCall) -> Value {
    let function = json!({"name": call.name, "arguments": call.arguments});
    json!({"id": call.id, "type": "function", "function": function})
}

/// The content of a message, which is serialised as a string or as a list of parts.
struct SentContent<'a>(&'a [Part]);

impl Serialize for SentContent<'_> {
    /// Serialises the parts of a message, or of a tool output, as its field `content`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A single text is sent as a string: some servers accept no list of parts.
        if let Some(text) = only_text(self.0) {
            return serializer.serialize_str(text);
        }
        let part = |part: &Part| match part {
            Part::Text(text) => json!({"type": "text", "text": text}),
            image => match named_pdf(image) {
                Some((name, url)) => json!({"type": "file", "file": {"filename": name, "file_data": url}}),
                None => json!({"type": "image_url", "image_url": {"url": image_url(image)}}),
            },
        };
        serializer.collect_seq(self.0.iter().map(part))
    }
}

/// A tool, which is serialised in this format.
struct SentTool<'a>(&'a ToolSpec);

impl Serialize for SentTool<'_> {
    /// Serialises a tool as an item of the field `tools`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("type", "function")?;
        body.serialize_entry("function", &SentFunction(self.0))?;
        body.end()
    }
}

/// The field `function` of a tool.
struct SentFunction<'a>(&'a ToolSpec);

impl Serialize for SentFunction<'_> {
    /// Serialises a tool as the field `function` of an item of `tools`; an empty description is not sent.
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
