//! Encodes requests of OpenAI's chat completions for a model's server. [`encode_request`] returns a JSON value.
//! `RemoteModel` calls [`SentRequest::body`], which returns bytes: each request contains the whole chat, and `body`
//! reuses the bytes of the previous request, so that earlier messages are not serialised again.

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

/// The name of the field that limits the tokens of the answer.
pub(crate) const LIMIT: &str = "max_completion_tokens";
/// The older name of this field, which servers other than OpenAI's accept.
#[cfg(feature = "remote")]
pub(crate) const OLD_LIMIT: &str = "max_tokens";

/// A request, and how it is sent. This value serialises as the body of the request.
#[derive(Debug)]
pub(crate) struct SentRequest<'a> {
    pub(crate) request: &'a Request,
    /// The name of the model.
    pub(crate) model: &'a str,
    /// Whether a streamed answer is requested.
    pub(crate) stream: bool,
    /// The name of the field that limits the tokens of the answer: [`LIMIT`] or `max_tokens`.
    pub(crate) limit: &'static str,
}

impl SentRequest<'_> {
    /// Returns the body in JSON, and the offset at which its last message ends. After sending, the caller stores the
    /// body up to this offset with the chat, for the next request.
    ///
    /// The body is `{"model": ..., "messages": [...], other fields}`. If the beginning of the previous body, up to its
    /// last message, is stored with the chat, only the messages after it are serialised, and appended to it.
    pub(crate) fn body(&self) -> serde_json::Result<(Vec<u8>, usize)> {
        let head = format!(r#"{{"model":{},"messages":["#, serde_json::to_string(self.model)?);
        let messages = &self.request.messages;
        let stored = messages.take_serialized_prefix();
        // The stored beginning may be that of a request to another model, or have no messages: it is then not reused.
        let reusable =
            stored.filter(|stored| stored.text.starts_with(head.as_bytes()) && stored.messages > 0);
        let SerializedPrefix { text: mut body, messages: reused_count } =
            reusable.unwrap_or(SerializedPrefix { text: head.into_bytes(), messages: 0 });
        let new_messages = messages.get(reused_count..).unwrap_or_default();
        // Allocates the whole body at once. A tool, and the other fields together, are estimated at 512 bytes each.
        body.reserve(
            new_messages.iter().map(estimated_size).sum::<usize>() + 512 * self.request.tools.len() + 512,
        );
        for (index, message) in new_messages.iter().enumerate() {
            // A comma precedes every message of the chat but the first.
            if reused_count + index > 0 {
                body.push(b',');
            }
            serde_json::to_writer(&mut body, &SentMessage(message))?;
        }
        let end = body.len();
        body.push(b']');
        // The other fields are serialised as an object of their own, which is then merged into the body: its opening
        // brace, at `end + 1`, becomes a comma, or is removed if the object has no fields; its closing brace closes the
        // body.
        serde_json::to_writer(&mut body, &RemainingFields(self))?;
        match body.get_mut(end + 1..) {
            Some([brace, b'"', ..]) => *brace = b',',
            _ => drop(body.remove(end + 1)),
        }
        Ok((body, end))
    }
}

/// Estimates the serialised size of a message in bytes, to allocate the body at once: the size of its texts, a
/// sixteenth more for escapes, and constants for the names of the fields. The constants are guesses: a wrong estimate
/// only costs another allocation.
fn estimated_size(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text(text) | Part::ImageUrl(text) | Part::ImageData { data: text, .. } => text.len(),
    };
    let text = match message {
        Message::System(parts) | Message::User(parts) => parts.iter().map(part).sum(),
        Message::Assistant { text, calls, .. } => {
            // 96 for the fields of a call, its id and its name.
            text.len() + calls.iter().map(|call| 96 + call.arguments.len()).sum::<usize>()
        }
        // 64 for the id of the call.
        Message::Tool { content, .. } => 64 + content.iter().map(part).sum::<usize>(),
    };
    // 40 for the names of the fields of any message.
    40 + text * 17 / 16
}

impl Serialize for SentRequest<'_> {
    /// Serialises the whole body, all messages included. [`SentRequest::body`] returns the same fields, but reuses the
    /// bytes of earlier messages.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        body.serialize_entry("model", self.model)?;
        body.serialize_entry("messages", &MappedList(&self.request.messages, SentMessage))?;
        self.serialize_remaining(&mut body)?;
        body.end()
    }
}

/// The fields of a request except the model and the messages, which [`SentRequest::body`] appends.
struct RemainingFields<'a>(&'a SentRequest<'a>);

impl Serialize for RemainingFields<'_> {
    /// Serialises these fields as an object of their own.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut body = serializer.serialize_map(None)?;
        self.0.serialize_remaining(&mut body)?;
        body.end()
    }
}

impl SentRequest<'_> {
    /// Serialises all fields except the model and the messages as entries of `body`. Settings that the request leaves
    /// open are not sent, so that the server's defaults apply.
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
            // The name of this field, `self.limit`, depends on the server.
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

/// A list whose items are serialised as the values that a function returns for them.
struct MappedList<'a, T, W>(&'a [T], fn(&'a T) -> W);

impl<T, W: Serialize> Serialize for MappedList<'_, T, W> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(self.1))
    }
}

/// A message of the chat, which serialises as an item of the field `messages`.
struct SentMessage<'a>(&'a Message);

impl Serialize for SentMessage<'_> {
    /// Serialises the message. Its reasoning, and whether a tool failed, are not sent: the format has no field for
    /// them.
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
                // The content is null if the message has calls but no text.
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

/// The content of a message, which serialises as a string or as a list of parts.
struct SentContent<'a>(&'a [Part]);

impl Serialize for SentContent<'_> {
    /// Serialises the parts of a message, or of a tool output, as the value of its field `content`.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A single text, or no part at all, is sent as a string: some servers accept no list of parts.
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

/// A tool, which serialises as an item of the field `tools`.
struct SentTool<'a>(&'a ToolSpec);

impl Serialize for SentTool<'_> {
    /// Serialises the tool as a function.
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
    /// Serialises the name, the description and the parameters of the tool; an empty description is not sent.
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
