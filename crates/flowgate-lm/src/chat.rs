//! A chat with tools, in the words that all providers share.
//!
//! What a provider calls it is the business of [`wire`](crate::wire).

mod messages;
mod source;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use messages::Messages;
pub(crate) use messages::Written;
pub use source::{Source, Sources};

/// What a model is asked: to write the next message of a chat.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Request {
    /// The chat so far.
    pub messages: Messages,
    /// The tools that the model may call.
    pub tools: Vec<ToolSpec>,
    /// Whether it must, may or must not call one.
    pub choice: ToolChoice,
    /// How the next token is chosen, and when to stop.
    pub sampling: Sampling,
}

/// One message of a chat.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The operator's instructions.
    System(Vec<Part>),
    /// What the user says.
    User(Vec<Part>),
    /// What the model said.
    Assistant {
        /// Its text; empty if it only called tools.
        text: String,
        /// The calls that it made, in order.
        calls: Vec<ToolCall>,
    },
    /// A tool's answer.
    Tool {
        /// The id of the call.
        call_id: String,
        /// What was answered.
        content: Vec<Part>,
        /// Whether it is an error instead of a result. `None` if that is not known: not every form can say so.
        #[serde(default)]
        is_error: Option<bool>,
    },
}

/// A piece of what somebody says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Text.
    Text(String),
    /// An image by its address.
    ImageUrl(String),
    /// An image by its bytes, in base64.
    ImageData {
        /// For example `image/png`.
        media_type: String,
        /// The bytes, in base64.
        data: String,
    },
}

/// A tool as a model is told of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// The name to call it by.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
}

/// A call as a model wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The id that the answer will bear.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments, in JSON if the model kept to it.
    pub arguments: String,
}

/// Whether a model calls tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ToolChoice {
    /// As it likes.
    #[default]
    Auto,
    /// It must call one.
    Any,
    /// It must not.
    None,
    /// It must call this one.
    Tool(String),
}

/// How the next token is chosen, and when to stop. `None` leaves it to the server.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sampling {
    /// The most tokens to write.
    pub max_tokens: Option<u32>,
    /// 0 for the likeliest token.
    pub temperature: Option<f64>,
    /// The mass that is sampled from.
    pub top_p: Option<f64>,
    /// For servers that can repeat themselves.
    pub seed: Option<u64>,
    /// Texts that end the message.
    pub stop: Vec<String>,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Completion {
    /// Its text; empty if it only called tools.
    pub text: String,
    /// The calls that it made, in order.
    pub calls: Vec<ToolCall>,
    /// Why it stopped.
    pub stop: Stop,
    /// What it cost.
    pub usage: Usage,
}

/// Why a model stopped writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// It had said what it wanted to say.
    #[default]
    End,
    /// It waits for answers to its calls.
    Calls,
    /// It had written as much as it may.
    Length,
    /// The provider's filter, or the model itself, refused.
    Refused,
}

/// What a completion cost, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens read.
    pub input: u64,
    /// Tokens written.
    pub output: u64,
}

impl Usage {
    /// Both together.
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
