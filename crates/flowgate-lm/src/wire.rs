//! Encodes and decodes the four formats in which chats are transmitted. The client side (`remote`) encodes requests and
//! decodes answers; the server side (the gateway) decodes requests and encodes answers. This module does no I/O.
//!
//! | format | path | provider |
//! |---|---|---|
//! | [`chat_completions`] | `/chat/completions` | OpenAI, and nearly every server of local models |
//! | [`responses`] | `/responses` | OpenAI |
//! | [`messages`] | `/messages` | Anthropic |
//! | [`generate_content`] | `/models/NAME:generateContent` | Google |
//!
//! Each format has a module with its descriptor ([`Form`], in `form`), its decoders and its encoders; [`Api`] selects
//! one of the formats. [`embeddings`] has the format of requests for embeddings. The other modules contain what the
//! formats share:
//!
//! * of requests: `known_fields` declares the permitted fields, `fields` reads them (and the fields of answers),
//!   `extension` reads whether a client declares that a tool failed, `documents` reads files, `output_format` reads and
//!   writes the demanded form of the text, and `tool_forms` records tools that are not plain functions;
//! * of tools that the provider runs: `provider_tools` and `mcp_servers`;
//! * of answers: `assembly` assembles streamed answers, `writer` streams answers to clients, `safeguards` answers
//!   requests for verdicts on calls, and `status` decodes and encodes errors.
//!
//! Every field of a client's request is understood, dropped for a reason, or rejected by name ([`listed`]); nothing is
//! passed on unexamined. Unknown fields of a server's answer are ignored, but an answer is rejected if it uses
//! something that the request did not offer, such as a tool of the provider or a second choice.
//!
//! Some formats cannot express everything. [`Api::unsupported_feature`] describes a feature of a request that a format
//! cannot express although the answer depends on it. Other features are left out without an error: only Anthropic's
//! and Gemini's formats mark a tool output as an error, only chat completions and Gemini's format have a seed, and
//! Gemini's format cannot limit the calls of a message to one.

mod assembly;
pub mod chat_completions;
mod documents;
pub mod embeddings;
mod extension;
mod fields;
mod form;
pub mod generate_content;
mod known_fields;
mod mcp_servers;
pub mod messages;
mod output_format;
mod provider_tools;
pub mod responses;
mod safeguards;
mod status;
#[cfg(test)]
mod tests;
mod tool_forms;
mod writer;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::chat::{
    CitableDocument, Completion, Message, Part, ProviderTool, ProviderToolUse, Request, Sources, Stop,
};
use crate::json::Json;
use crate::{Error, sse};
use generate_content::{Target, TargetMethod};

pub(crate) use assembly::{MAX_ANSWER, MAX_CALLS};
pub use form::{Decoder, Form, FormRoute, KeyHeader, TokenCountRequest};
pub use known_fields::{DecodeOptions, FieldOutcome, ListedField, listed};
pub(crate) use messages::ReportedPiece;
pub use safeguards::SafeguardAnswer;
pub(crate) use status::{error_for_status, reported_error};
pub use tool_forms::{ONLY_FUNCTIONS, ToolForms};
pub use writer::ResponseWriter;

/// One of the four formats.
///
/// The enumeration is exhaustive on purpose: a program that writes bodies of its own needs code for each format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenAI's chat completions.
    ChatCompletions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
    /// Gemini's `generateContent`.
    GenerateContent,
}

/// The metadata of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHead<'a> {
    /// The id of the answer.
    pub id: &'a str,
    /// The model that answers.
    pub model: &'a str,
    /// The time of the answer, in seconds since 1970; not part of Anthropic's and Gemini's formats.
    pub created: u64,
    /// The forms of the tools that the answer may call, as the decoder of the request recorded them.
    pub tools: &'a ToolForms,
    /// Whether the server keeps the chat; only the Responses format reports this.
    pub storage: AnswerStorage<'a>,
}

/// Whether a later request can continue from an answer by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerStorage<'a> {
    /// No later request can: the server keeps no chats.
    NotStored,
    /// A later request can. Contains the id of the earlier answer that this request itself continues, if it names one.
    Stored(Option<&'a str>),
}

/// The position of the reasoning in an encoded stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReasoningOrder {
    /// Before the text, as models write it.
    First,
    /// Between the text and the calls, because the text was sent before the reasoning was judged.
    AfterText,
}

/// A request as a server receives it.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    /// The request.
    pub request: Request,
    /// The name of the requested model; empty in Gemini's format until it is [taken from the
    /// address](Self::addressed_to).
    pub model: String,
    /// Whether the answer is to be streamed; false in Gemini's format until it is taken from the address.
    pub stream: bool,
    /// Whether the stream is to report token usage; chat completions do so only on request.
    pub usage: bool,
    /// The provenance of the parts of the user's messages, as the client declares it.
    pub sources: Sources,
    /// The forms of the request's tools, which the encoder of the answer needs.
    pub tool_forms: ToolForms,
    /// The id of the earlier answer whose chat the messages continue; `None` if the messages are the whole chat. Only
    /// the Responses API has such ids. A server that keeps no chats must reject a request with one.
    pub previous_response: Option<String>,
    /// The references to items of earlier answers, which the request contains in place of the items themselves, in the
    /// order of the input. Only the Responses API has references. A server that keeps no chats must reject them.
    pub item_references: Vec<ItemReference>,
    /// The tools of the provider that the client asks for. [`Self::request`] offers them to the model as functions; the
    /// receiver of the request has the provider run each permitted call in a separate request.
    pub provider_tools: Vec<ProviderToolUse>,
    /// The most calls of all tools of the provider together that the client permits in this turn; `None` for no limit.
    pub max_provider_calls: Option<u64>,
    /// The documents that the answer may cite. Each is the text of a part of a message in [`Self::request`]. Only the
    /// Messages API has them.
    pub citable: Arc<[CitableDocument]>,
}

/// A reference to an item of an earlier answer, in place of the item itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemReference {
    /// The id of the answer.
    pub answer: String,
    /// The index of the message, with an empty text, that the decoder has put in the place of the answer. `None` for a
    /// part of the reasoning, which belongs to no message of a request.
    pub message: Option<usize>,
}

impl ReceivedRequest {
    /// Sets the model, and whether the answer is streamed, from `target`, the address of the request. In Gemini's
    /// format, only the address states them.
    #[must_use]
    pub fn addressed_to(self, target: &Target) -> Self {
        Self { model: target.model.clone(), stream: target.method == TargetMethod::Stream, ..self }
    }
}

/// A request that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WireError {
    /// The path of the field; empty for the whole body. A name that is not a plain word is shown as `...`.
    pub place: String,
    /// What is wrong with the field: the rest of a sentence that begins with its path.
    pub problem: &'static str,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place.as_str() {
            "" => write!(f, "the body of the request {}", self.problem),
            place => write!(f, "`{place}` {}", self.problem),
        }
    }
}

impl std::error::Error for WireError {}

impl Api {
    /// All formats.
    pub const ALL: [Self; 4] =
        [Self::ChatCompletions, Self::Responses, Self::Messages, Self::GenerateContent];

    /// Returns the descriptor of the format.
    #[must_use]
    pub fn form(self) -> &'static Form {
        match self {
            Self::ChatCompletions => &chat_completions::FORM,
            Self::Responses => &responses::FORM,
            Self::Messages => &messages::FORM,
            Self::GenerateContent => &generate_content::FORM,
        }
    }

    /// Returns the format with this name in configurations and on the command line; `None` if there is none.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.form().name == name)
    }

    /// Returns the path below a server's base address for an answer of the model with the name `model`. `stream` is
    /// whether the answer is to be streamed.
    #[must_use]
    pub fn path(self, model: &str, stream: bool) -> Cow<'static, str> {
        (self.form().path)(model, stream)
    }

    /// Returns the format of a request with this path below a server's base address; `None` if no format has the path.
    /// In Gemini's format, the path also names the model and the method, which are the second part of the result; in
    /// the other formats, this part is `None`. A query after the path is ignored.
    #[must_use]
    pub fn of_path(path: &str) -> Option<(Self, Option<Target>)> {
        let path = path.split('?').next().unwrap_or_default();
        // In a format whose address does not name the model, all requests have the same path, so any arguments of
        // `Api::path` return it.
        let is_fixed = |api: &Self| !api.form().is_addressed() && api.path("", false) == path;
        match Self::ALL.into_iter().find(is_fixed) {
            Some(api) => Some((api, None)),
            // Only Gemini's addresses name the model.
            None => Some((Self::GenerateContent, Some(Target::parse(path.strip_prefix("/models/")?)?))),
        }
    }

    /// Returns the format whose answers have the fields of a JSON value; `None` if no format has them.
    #[must_use]
    pub fn of_response(value: &Value) -> Option<Self> {
        Self::ALL.into_iter().find(|api| (api.form().is_response)(value))
    }

    /// Returns a description, with advice, of a feature of the request that this format cannot express and without
    /// which the answer would be wrong; `None` if there is no such feature. The caller reports the text in
    /// [`Error::Unsupported`], and does not send the request.
    #[must_use]
    pub fn unsupported_feature(self, request: &Request) -> Option<&'static str> {
        (self.form().unsupported_feature)(request)
    }

    /// Encodes the body of a request to the model with the name `model`. `stream` requests a streamed answer.
    #[must_use]
    pub fn encode_request(self, request: &Request, model: &str, stream: bool) -> Value {
        (self.form().encode_request)(request, model, stream)
    }

    /// Decodes the body of a request.
    ///
    /// # Errors
    /// If the body violates the format, or asks for something that a [`Request`] cannot express.
    pub fn decode_request(self, body: &Json<'_>) -> Result<ReceivedRequest, WireError> {
        self.decode_request_dropping(body, &DecodeOptions::default())
    }

    /// Decodes the body of a request as [`Self::decode_request`] does, but drops the fields and tools that `options`
    /// lists for this instead of rejecting them, and accepts the tools of the provider that `options` lists.
    ///
    /// # Errors
    /// If the rest of the body violates the format, or asks for something that a [`Request`] cannot express.
    pub fn decode_request_dropping(
        self,
        body: &Json<'_>,
        options: &DecodeOptions,
    ) -> Result<ReceivedRequest, WireError> {
        (self.form().decode_request)(body, options)
    }

    /// Returns the version of the format that [`Self::decode_request`] understands.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.form().version
    }

    /// Encodes the body of an answer that is not streamed.
    #[must_use]
    pub fn encode_response(self, completion: &Completion, head: ResponseHead<'_>) -> Value {
        (self.form().encode_response)(completion, head)
    }

    /// Decodes the body of an answer that is not streamed.
    ///
    /// # Errors
    /// If the body describes an error, violates the format, or does not contain exactly one complete answer.
    pub fn decode_response(self, body: &Value) -> Result<Completion, Error> {
        (self.form().decode_response)(body)
    }

    /// Encodes an answer as a stream, with its reasoning before its text. `usage` says whether the stream reports the
    /// token usage; formats other than chat completions always report it.
    #[must_use]
    pub fn encode_stream(
        self,
        completion: &Completion,
        head: ResponseHead<'_>,
        usage: bool,
    ) -> Vec<sse::SseEvent> {
        self.encode_pieces(completion, &pieces(&completion.text), head, (usage, ReasoningOrder::First))
    }

    /// Encodes an answer as a stream. The items of `pieces` together are the text of the answer, and each of them
    /// becomes one event. `usage` says whether the stream reports the token usage; it affects only chat completions,
    /// since the other formats always report the usage. `order` is the position of the reasoning; it has no effect on
    /// chat completions, which have no reasoning.
    fn encode_pieces(
        self,
        completion: &Completion,
        pieces: &[&str],
        head: ResponseHead<'_>,
        (usage, order): (bool, ReasoningOrder),
    ) -> Vec<sse::SseEvent> {
        (self.form().encode_stream)(completion, pieces, head, (usage, order))
    }

    /// Returns the pieces of an answer's text for which the body of the answer reports citations, each with its
    /// citations; none in formats without citations.
    pub(crate) fn reported_citations(self, body: &Value) -> Vec<ReportedPiece> {
        if self == Self::Messages { messages::reported_citations(body) } else { Vec::new() }
    }

    /// Creates a decoder of streams.
    #[must_use]
    pub fn decoder(self) -> Decoder {
        Decoder((self.form().decoder)())
    }

    /// Encodes the body of an error answer with this HTTP status.
    #[must_use]
    pub fn encode_error(self, status: u16, message: &str) -> Value {
        (self.form().encode_error)(status, message)
    }

    /// Encodes the event that ends a stream whose answer has failed with this HTTP status.
    #[must_use]
    pub fn encode_error_event(self, status: u16, message: &str) -> sse::SseEvent {
        (self.form().encode_error_event)(self.encode_error(status, message))
    }

    /// Returns whether servers of this format run a tool of the provider.
    #[must_use]
    pub fn runs_provider_tool(self, tool: &ProviderTool) -> bool {
        provider_tools::is_supported(self, tool)
    }

    /// Declares a tool of the provider in the body of a request, in place of all other tools. Returns false, and leaves
    /// the body as it is, if the format cannot express the tool or its restrictions.
    pub(crate) fn declare_provider_tool(self, wanted: &ProviderToolUse, body: &mut Value) -> bool {
        provider_tools::declare(self, wanted, body)
    }

    /// Decodes the answer to a request that declares a tool of the provider; its text is the output of the tool.
    ///
    /// # Errors
    /// In the same cases as [`Self::decode_response`], and if the answer calls a function.
    pub(crate) fn decode_provider_answer(self, body: Value) -> Result<Completion, Error> {
        provider_tools::decode_answer(self, body)
    }

    /// Encodes the list of the models with these names, which belong to `owner`.
    #[must_use]
    pub fn encode_model_list(self, names: &[&str], owner: &str) -> Value {
        (self.form().encode_model_list)(names, owner)
    }
}

/// The error of a stream that ends before the answer is complete.
const EARLY: Error = Error::Incomplete("the stream of its server ended too early");

/// The most characters of a text in one event of an encoded stream. The number is arbitrary.
const PIECE: usize = 24;

/// Splits a text into pieces of [`PIECE`] characters, one for each event of an encoded stream. The last piece may be
/// shorter; an empty text has no pieces.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.char_indices().nth(PIECE).map_or(rest.len(), |(at, _)| at);
        let (piece, tail) = rest.split_at(end);
        pieces.push(piece);
        rest = tail;
    }
    pieces
}

/// Makes the stop reason of a decoded answer agree with its calls. An answer with calls that ends with [`Stop::End`]
/// gets [`Stop::Calls`], since servers report a normal end if the request named the tool that must be called. Fails for
/// an answer that ends with [`Stop::Calls`] but has no call.
fn correct_stop_reason(mut completion: Completion) -> Result<Completion, Error> {
    match completion.stop {
        Stop::End if !completion.calls.is_empty() => completion.stop = Stop::Calls,
        Stop::Calls if completion.calls.is_empty() => {
            return Err(Error::Malformed(
                "the answer ends with a request for tool calls, but contains no call",
            ));
        }
        _ => {}
    }
    Ok(completion)
}

/// Parses the field `data` of a server-sent event as JSON.
fn data(event: &sse::SseEvent) -> Result<Value, Error> {
    serde_json::from_str(&event.data)
        .map_err(|_| Error::Malformed("the `data` of a server-sent event is not valid JSON"))
}

/// Returns the text of a message that consists of one text, or the empty text for a message without parts; `None` for
/// any other message. Encoders send a message with such a text as a string, and any other message as a list of parts.
fn only_text(parts: &[Part]) -> Option<&str> {
    match parts {
        [] => Some(""),
        [Part::Text(text)] => Some(text),
        _ => None,
    }
}

/// Returns the URL of an image or of a PDF: its address, or a data URL if the part has the content itself. `None` if
/// the part is a text.
fn image_url(part: &Part) -> Option<String> {
    match part {
        Part::Text(_) => None,
        Part::ImageUrl(url) => Some(url.clone()),
        Part::ImageData { media_type, data } => Some(format!("data:{media_type};base64,{data}")),
    }
}

/// Parses the URL of an image in a client's request; the error says what is wrong with the URL. Accepts only data URLs:
/// the model's server would fetch the content of any other URL, and this fetch could carry data to a host that an
/// attacker chose.
fn parse_image_url(url: &str) -> Result<Part, &'static str> {
    if let Some(rest) = url.strip_prefix("data:") {
        let (media_type, data) = rest
            .split_once(";base64,")
            .ok_or("is a data URL without `;base64,`; encode the image in base64")?;
        if !is_plain(media_type) {
            return Err("has a media type that is empty or has parameters; write one such as `image/png`");
        }
        if !is_image(media_type) {
            return Err(NO_IMAGE);
        }
        return Ok(Part::ImageData { media_type: media_type.to_owned(), data: data.to_owned() });
    }
    if url.starts_with("https://") || url.starts_with("http://") {
        return Err(documents::FETCHED);
    }
    Err("must be a data URL; send one such as `data:image/png;base64,…`")
}

/// The problem of content that is sent as an image, but whose media type is not that of an image.
const NO_IMAGE: &str = "has a media type that does not begin with `image/`; send a PDF as a document";

/// Returns whether a media type is for images.
fn is_image(media_type: &str) -> bool {
    media_type.starts_with("image/")
}

/// Returns whether a media type can be part of a data URL: it is not empty and has no parameters.
fn is_plain(media_type: &str) -> bool {
    !media_type.is_empty() && !media_type.contains([';', ','])
}

/// Adds a call to the messages of a chat, for a format in which text and calls are separate items. If the last message
/// is the model's, the call is added to this message; otherwise, a new message of the model with the call is added.
fn add_call(messages: &mut Vec<Message>, call: crate::chat::ToolCall) {
    if let Some(Message::Assistant { calls, .. }) = messages.last_mut() {
        calls.push(call);
    } else {
        messages.push(Message::Assistant { text: String::new(), calls: vec![call], thoughts: Vec::new() });
    }
}

/// Returns the arguments of a call, a JSON text, as an object: some formats require an object, and no text.
///
/// Arguments that are not a JSON object become the field `unparsed` of an object: an agent must be able to continue
/// after a model has written malformed arguments. Empty arguments become an empty object.
fn arguments_object(arguments: &str) -> Value {
    if arguments.trim().is_empty() {
        return Value::Object(Map::new());
    }
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ => Value::Object(Map::from_iter([("unparsed".to_owned(), Value::from(arguments))])),
    }
}

/// Sets the field `key` of a JSON object. A value that is not an object remains unchanged.
fn put(body: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(body) = body.as_object_mut() {
        body.insert(key.to_owned(), value.into());
    }
}
