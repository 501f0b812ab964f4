//! Defines the *need* of a conversation, the input that it waits for ([`Need`]): the model's next message, a person's
//! decision, a tool's answer. The driver of the conversation, such as [`crate::agent`] or the gateway, obtains this
//! input and passes it to the method that the variant of [`Need`] names. It passes the answer of a tool as a
//! [`ToolAnswer`].

use flowgate::monitor::AuthorizedCall;
use flowgate_lm::chat::Request;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::turn::Turn;
use crate::approve::ApprovalRequest;
use crate::view::View;

/// The input that a conversation waits for.
///
/// The list is exhaustive on purpose: a program has to serve each need.
#[derive(Debug)]
#[must_use]
pub enum Need {
    /// The model's next message: [`Conversation::accept_completion`](super::Conversation::accept_completion).
    Complete(View),
    /// The screener model's answer: what the next step depends on, or which tools are offered in this turn. It is
    /// passed to [`Conversation::accept_screening`](super::Conversation::accept_screening).
    Screen(Request),
    /// The text of a slot, from a model without tools: [`Conversation::accept_fill`](super::Conversation::accept_fill).
    Fill(Request),
    /// A person's decision: [`Conversation::accept_decision`](super::Conversation::accept_decision).
    Approve(Box<ApprovalRequest>),
    /// A tool's answer. The call may run:
    /// [`Conversation::accept_tool_answer`](super::Conversation::accept_tool_answer).
    Run(AuthorizedCall),
    /// The user's next message ([`Conversation::add_user_message`](super::Conversation::add_user_message)), or the
    /// answers of the calls that were handed over
    /// ([`Conversation::accept_messages`](super::Conversation::accept_messages)). Until then, the turn has ended with
    /// this outcome.
    User(Turn),
}

/// The answer of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// Text, or a list of content blocks.
    pub content: Value,
    /// The same content as a JSON value, if the tool returns both.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
    /// Whether it is an error.
    pub is_error: bool,
    /// A label, by the names of its elements
    /// ([`Conversation::reply_label_names`](super::Conversation::reply_label_names)), that the answer carries in
    /// addition to what the policy states: for a tool that is itself an agent.
    #[serde(default, deserialize_with = "crate::journal::present", skip_serializing_if = "Option::is_none")]
    pub carries: Option<Value>,
}

impl ToolAnswer {
    /// Returns an answer that consists of text.
    pub fn text(text: impl Into<String>) -> Self {
        Self { content: Value::String(text.into()), structured: None, is_error: false, carries: None }
    }

    /// Returns an error answer.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }
}
