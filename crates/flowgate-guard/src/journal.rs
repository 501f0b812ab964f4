//! What is put into a conversation, in order: enough to make it again, anywhere.
//!
//! A conversation reads no clock and draws no random number. Under the same policy, with the same settings and the same key,
//! the same inputs make the same conversation, with every label and every verdict. So what is kept of a conversation is
//! what was put in ([`Conversation::inputs`]), not what became of it; whoever makes it [again](crate::conversation::Conversation::again)
//! finds out whether it came to the same.
//!
//! [`Conversation::inputs`]: crate::conversation::Conversation::inputs

use std::collections::BTreeSet;

use flowgate_lm::chat::{Completion, Message, Sampling, Sources};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approve::Decision;
use crate::catalogue::Offered;
use crate::conversation::{Need, ToolAnswer};
use crate::history::Recollected;

/// One thing that was put into a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// It was asked what it needs, and this was the answer.
    Need(Met),
    /// Somebody of this role said something.
    Note(String, Value),
    /// The user said something.
    User(Value),
    /// Another agent set a task.
    Task {
        /// The task.
        content: Value,
        /// What the other agent's call carried, in names.
        carries: Value,
    },
    /// The turn went on.
    GoOn,
    /// The label of the next step was chosen, in names.
    Choose(Value),
    /// Tools were offered.
    Offer(Vec<Offered>),
    /// How tokens are chosen.
    Sampling(Sampling),
    /// What stores of the account carry.
    Recall(Value),
    /// The consents on these lines of the policy are withdrawn, and no others.
    Withdrawn(BTreeSet<usize>),
    /// What was written to stores was marked.
    Stamped(String),
    /// A chat was sent.
    Sent {
        /// How many of its messages stood where they stood.
        kept: usize,
        /// The others.
        rest: Vec<Message>,
        /// What the client's memory said of them.
        seen: Vec<Recollected>,
        /// Where their parts come from, as far as the client said.
        #[serde(default, skip_serializing_if = "Sources::is_empty")]
        sources: Sources,
    },
    /// What the caller got for an answer.
    AnsweredTo(Message),
    /// The model's message.
    Completed(Completion),
    /// The screener's answer.
    Screened(Completion),
    /// A slot's text.
    Filled(Completion),
    /// A slot could not be filled.
    Unfilled,
    /// The model gave no answer.
    Failed,
    /// The turn was given up.
    Stop,
    /// A person's decision.
    Decided(Decision),
    /// The turn ended before a person had decided.
    Postponed,
    /// It went on.
    Resumed {
        /// How many messages of the chat stood.
        kept: usize,
        /// The one that asked to go on.
        new: Option<Message>,
    },
    /// A call runs elsewhere.
    HandOver,
    /// A tool's answer.
    Ran(ToolAnswer),
}

/// What a conversation needed, as far as it must be the same when it is made again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Met {
    /// A message of the model, which is hidden this many regions.
    Complete(usize),
    /// A screener.
    Screen,
    /// A text for a slot.
    Fill,
    /// A decision on the call with this digest.
    Approve(String),
    /// A tool's answer to this call.
    Run {
        /// The tool.
        tool: String,
        /// The canonical print of the arguments.
        arguments: String,
    },
    /// The user.
    User,
}

impl Met {
    pub(crate) fn of(need: &Need) -> Self {
        match need {
            Need::Complete(view) => Self::Complete(view.names.all().len()),
            Need::Screen(_) => Self::Screen,
            Need::Fill(_) => Self::Fill,
            Need::Approve(ask) => Self::Approve(ask.digest.clone()),
            Need::Run(call) => {
                Self::Run { tool: call.call().tool.to_string(), arguments: call.arguments_json() }
            }
            Need::User(_) => Self::User,
        }
    }
}

/// The identity of a tool: its server, if it has one, and its name.
pub(crate) mod tool {
    use flowgate::trace::Tool;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(tool: &Tool, serializer: S) -> Result<S::Ok, S::Error> {
        (tool.server.as_deref(), &*tool.name).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tool, D::Error> {
        let (server, name) = <(Option<String>, String)>::deserialize(deserializer)?;
        Ok(server.map_or_else(|| Tool::local(&name), |server| Tool::of(&server, &name)))
    }
}

/// A value that may be missing: `null` is one.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}
