//! Defines a chat with tools, in the terms that all providers share: the request to a model, and the model's answer.
//!
//! Callers use these types for every model; [`wire`](crate::wire) translates them to the format of each provider.

mod messages;
mod reasoning;
mod source;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use messages::Messages;
pub(crate) use messages::SerializedPrefix;
pub use reasoning::{
    Effort, Reasoning, ReasoningPart, ReasoningSummary, Seal, Thinking, ThinkingDisplay, Verbosity,
};
pub use source::{Source, Sources};

/// A request to a model for the next message of a chat.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The chat so far.
    pub messages: Messages,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Whether it must, may or must not call one.
    pub choice: ToolChoice,
    /// How the message is generated.
    pub sampling: Sampling,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The operator's instructions.
    System(Vec<Part>),
    /// A message of the user.
    User(Vec<Part>),
    /// A message of the model.
    Assistant {
        /// Its text; empty if it only called tools.
        text: String,
        /// Its calls, in order.
        calls: Vec<ToolCall>,
        /// The reasoning before both. What a client sends as reasoning is never decoded into it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        thoughts: Vec<ReasoningPart>,
    },
    /// The output of a tool.
    Tool {
        /// The id of the call.
        call_id: String,
        /// The content of the output.
        content: Vec<Part>,
        /// Whether it is an error instead of a result. `None` if unknown: not every format can express it.
        #[serde(default)]
        is_error: Option<bool>,
    },
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// An image by its URL.
    ImageUrl(String),
    /// An image by its content, in base64.
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
    /// The JSON schema of its arguments, which requests of many chats share.
    pub parameters: Arc<Value>,
}

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that its output refers to.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments; JSON if the model wrote valid JSON.
    pub arguments: String,
}

/// Whether a model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// The model decides.
    #[default]
    Auto,
    /// It must call a tool.
    Any,
    /// It must not call a tool.
    None,
    /// It must call this tool.
    Tool(String),
}

/// How the message is generated: sampling, reasoning, and when generation stops. `None` leaves it to the server.
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
    /// Its text; empty if it only called tools.
    pub text: String,
    /// Its calls, in order.
    pub calls: Vec<ToolCall>,
    /// The reasoning before both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub thoughts: Vec<ReasoningPart>,
    /// Why generation stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
}

/// Why a model stopped generating.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// The message is complete.
    #[default]
    End,
    /// The model waits for the outputs of its calls.
    Calls,
    /// The limit on tokens was reached.
    Length,
    /// The provider's filter, or the model itself, refused.
    Refused,
}

/// What a completion cost, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Input tokens.
    pub input: u64,
    /// Output tokens.
    pub output: u64,
}

impl Request {
    /// Returns the request without the reasoning of earlier messages, and without parameters for the reasoning of the
    /// next one: for another model than the one that wrote that reasoning, which could not read it.
    #[must_use]
    pub fn without_reasoning(mut self) -> Self {
        for message in self.messages.edit() {
            if let Message::Assistant { thoughts, .. } = message {
                thoughts.clear();
            }
        }
        Self { sampling: self.sampling.without_reasoning(), ..self }
    }
}

impl Sampling {
    /// Returns the parameters without those that concern reasoning, the length of the text, and the number of calls.
    #[must_use]
    pub fn without_reasoning(self) -> Self {
        Self { reasoning: Reasoning::default(), verbosity: None, single_call: false, ..self }
    }
}

impl Usage {
    /// Returns the sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input: self.input.saturating_add(other.input),
            output: self.output.saturating_add(other.output),
        }
    }
}

impl From<&str> for Part {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}
