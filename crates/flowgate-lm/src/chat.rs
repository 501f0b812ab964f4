//! Defines a chat with tools, in the terms that all providers share: the [`Request`] to a model, with its [`Message`]s
//! and tools ([`ToolSpec`]), and the model's answer, a [`Completion`]. Callers use these types for every model;
//! [`wire`](crate::wire) translates them to the format of each provider.
//!
//! The submodules define
//!
//! * [`Messages`]: the chat so far,
//! * [`OutputFormat`]: the form that the model's text must have,
//! * [`ProviderTool`]: a tool that the provider runs, and [`ProviderMcpServer`]: an MCP server that the provider calls,
//! * [`Reasoning`]: the parameters of a model's reasoning, and [`ReasoningPart`]: a part of the reasoning itself,
//! * [`CitableDocument`]: a document that an answer may cite, and [`Citation`]: a cited passage of it,
//! * [`Source`]: where a part of a user's message comes from.

mod citations;
mod mcp_server;
mod messages;
mod output_format;
mod provider_tool;
mod reasoning;
mod source;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(crate) use citations::ReportedCitation;
pub use citations::{CitableDocument, Citation, CitedPiece, DocumentKind, carried_over};
pub use mcp_server::{McpAddress, McpCredentials, McpLabel, ProviderMcpServer};
pub use messages::Messages;
pub(crate) use messages::SerializedPrefix;
pub use output_format::{OutputFormat, OutputSchema};
pub use provider_tool::{ProviderTool, ProviderToolUse};
pub use reasoning::{
    Effort, Reasoning, ReasoningPart, ReasoningSummary, Seal, ThinkingDisplay, ThinkingMode, Verbosity,
};
pub use source::{Source, Sources};

/// A request to a model for the next message of a chat.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The chat so far.
    pub messages: Messages,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Whether the model must, may or must not call a tool.
    pub choice: ToolChoice,
    /// How the message is generated.
    pub sampling: Sampling,
    /// The form that the text of the message must have; `None` for any text.
    pub format: Option<OutputFormat>,
}

/// One message of a chat.
///
/// The enumeration is exhaustive on purpose, so that every `match` handles every kind of message: a message that a
/// program did not handle would be shown without its label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The operator's instructions.
    System(Vec<Part>),
    /// A message of the user.
    User(Vec<Part>),
    /// A message of the model.
    Assistant {
        /// The text of the message; empty if the model only called tools.
        text: String,
        /// The calls of the message, in order.
        calls: Vec<ToolCall>,
        /// The reasoning before the text and the calls, as the model's server returned it. Reasoning that a client
        /// sends is never decoded into this field.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        thoughts: Vec<ReasoningPart>,
    },
    /// The output of a tool.
    Tool {
        /// The id of the call.
        call_id: String,
        /// The content of the output.
        content: Vec<Part>,
        /// Whether the output is an error instead of a result. `None` if unknown: not every format can express it.
        #[serde(default)]
        is_error: Option<bool>,
    },
}

/// A part of a message.
///
/// The enumeration is exhaustive on purpose, so that every `match` handles every kind of part: a part that a program
/// did not handle would be shown without its label.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// An image by its URL.
    ImageUrl(String),
    /// An image or a PDF by its content, in base64.
    ImageData {
        /// The media type, such as `image/png`.
        media_type: String,
        /// The content, in base64.
        data: String,
    },
}

/// A tool as it is described to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name by which it is called.
    pub name: String,
    /// The description of what it does.
    pub description: String,
    /// The JSON schema of its arguments. The requests of many chats share one copy.
    pub parameters: Arc<Value>,
}

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the output of the tool refers to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as the model wrote them: JSON, unless the model made a mistake.
    pub arguments: String,
}

/// Whether a model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// The model must call a tool, and chooses which one.
    Any,
    /// The model must not call a tool.
    None,
    /// The model must call the tool with this name.
    Tool(String),
}

/// How the message is generated: sampling, reasoning, and when generation stops. `None` leaves a parameter to the
/// server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// The most tokens to generate.
    pub max_tokens: Option<u32>,
    /// The temperature; 0 selects the most probable token.
    pub temperature: Option<f64>,
    /// The probability mass to sample from (nucleus sampling).
    pub top_p: Option<f64>,
    /// The seed, for servers with reproducible sampling.
    pub seed: Option<u64>,
    /// Texts that end the message (stop sequences).
    pub stop: Vec<String>,
    /// How the model reasons.
    pub reasoning: Reasoning,
    /// How long the model's text is to be.
    pub verbosity: Option<Verbosity>,
    /// Whether a message has at most one call.
    pub single_call: bool,
}

/// The answer of a model.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Completion {
    /// The text of the answer; empty if the model only called tools.
    pub text: String,
    /// The calls of the answer, in order.
    pub calls: Vec<ToolCall>,
    /// The reasoning before the text and the calls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thoughts: Vec<ReasoningPart>,
    /// The pieces of the text that cite documents of the request, in order and without overlaps. Every citation refers
    /// to the client's own copy of a document. Empty unless the caller gave the model the documents that it may cite.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub citations: Vec<CitedPiece>,
    /// Why generation stopped.
    pub stop: Stop,
    /// The cost of the answer; 0 if the server does not report it.
    pub usage: Usage,
}

/// Why a model stopped generating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Stop {
    /// The message is complete.
    #[default]
    End,
    /// The model waits for the outputs of its calls.
    Calls,
    /// The limit on tokens was reached.
    Length,
    /// The provider's filter, or the model itself, refused to answer.
    Refused,
}

/// The cost of a completion, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// The tokens of the request.
    pub input: u64,
    /// The tokens of the answer.
    pub output: u64,
    /// How many tokens of the request the server has read from its cache; 0 if the server does not report it. These
    /// tokens are counted in [`input`](Self::input) as well.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cached: u64,
}

/// Returns whether a number of tokens is 0. Such a number is left out of the serialised form.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde calls")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Request {
    /// Returns this request without what only the model of the chat may receive. It is for a second model, such as a
    /// screener, which reads the chat but does not write its next message. Removes the reasoning in the messages, since
    /// the second model cannot read the seals of the first one's reasoning. Removes also the form of the text and the
    /// parameters that [`Sampling::without_reasoning`] resets: they are the client's wishes for an answer that the
    /// client receives, and it does not receive the second model's answer.
    #[must_use]
    pub fn without_reasoning(mut self) -> Self {
        for message in self.messages.edit() {
            if let Message::Assistant { thoughts, .. } = message {
                thoughts.clear();
            }
        }
        Self { sampling: self.sampling.without_reasoning(), format: None, ..self }
    }
}

impl Sampling {
    /// Resets `reasoning`, `verbosity` and `single_call` to their defaults, and keeps the other parameters.
    #[must_use]
    pub fn without_reasoning(self) -> Self {
        Self { reasoning: Reasoning::default(), verbosity: None, single_call: false, ..self }
    }
}

impl Usage {
    /// Returns the sum of two costs; a sum that is too large is replaced by the largest number.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
            cached: self.cached.saturating_add(other.cached),
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
