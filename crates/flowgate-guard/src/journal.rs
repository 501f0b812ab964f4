//! Defines the journal: the inputs of a conversation in order, sufficient to replay it anywhere.
//!
//! A conversation reads no clock and draws no random numbers. Under the same policy, settings and key, the same inputs
//! produce the same conversation, with every label and every verdict. The journal therefore records the inputs
//! ([`Journal::take`]), not the resulting state; a [replay](crate::conversation::Conversation::replay)
//! checks that it does not diverge.
//!
//! A conversation submits every [`Input`] to one function, both live and in a replay. Live, the function also records
//! the input in the [`Journal`]. The gateway stores the recorded inputs. The serialized form of an input is stored in
//! databases: a variant or a field keeps its name.

use std::collections::BTreeSet;

use flowgate_lm::chat::{Completion, Message, OutputFormat, Sampling, Sources};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approve::Decision;
use crate::catalogue::OfferedTool;
use crate::conversation::{Need, ToolAnswer};
use crate::history::TextQuotations;

/// The inputs of a conversation since they were last taken, if inputs are recorded.
#[derive(Debug, Default)]
pub struct Journal {
    inputs: Option<Vec<Input>>,
}

impl Journal {
    /// Records inputs from now on, to be [taken](Self::take).
    pub fn start(&mut self) {
        self.inputs.get_or_insert_default();
    }

    /// Takes the inputs recorded since the last call.
    pub fn take(&mut self) -> Vec<Input> {
        self.inputs.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns whether there are no inputs that [`take`](Self::take) has not returned yet. True for a journal that
    /// records nothing.
    pub fn is_empty(&self) -> bool {
        self.inputs.as_ref().is_none_or(Vec::is_empty)
    }

    /// Records the input that `input` returns. Does not call `input` if no inputs are recorded, since it may copy a
    /// whole chat.
    pub(crate) fn record(&mut self, input: impl FnOnce() -> Input) {
        if let Some(inputs) = &mut self.inputs {
            inputs.push(input());
        }
    }
}

/// One input of a conversation.
///
/// The list is exhaustive on purpose: a replay has to apply each input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The caller asked what the conversation waits for next; this is the result.
    Need(RecordedNeed),
    /// Parameters of the policy that the caller has, in addition to those of the settings. Only the first input of a
    /// conversation may be this one.
    Parameters(Map<String, Value>),
    /// A message of this role that begins no turn, such as context.
    Note(String, Value),
    /// A message of the user.
    User(Value),
    /// A task of another agent.
    Task {
        /// The task.
        content: Value,
        /// The label of the other agent's call, by the names of its elements.
        carries: Value,
    },
    /// A turn that had ended was continued, without a new message of the user.
    GoOn,
    /// The label that was chosen for the next step, by the names of its elements.
    Choose(Value),
    /// The tools on offer.
    Offer(Vec<OfferedTool>),
    /// The sampling parameters.
    Sampling(Sampling),
    /// The form of the model's text.
    Format {
        /// The form; `None` for any.
        format: Option<OutputFormat>,
        /// The results of lookups of its texts in the client's memory.
        seen: Vec<TextQuotations>,
    },
    /// The labels that other conversations of the tenant have written to stores.
    Recall(Value),
    /// The complete set of policy lines whose consents are withdrawn.
    Withdrawn(BTreeSet<usize>),
    /// What people have approved for the rest of the conversation is withdrawn.
    GrantsWithdrawn,
    /// What people have approved for the rest of the conversation is withdrawn, for the calls with these digests.
    GrantsWithdrawnFor(BTreeSet<String>),
    /// A stamp, a text that no other conversation uses. It marks the stores that were written to since the last stamp.
    Stamped(String),
    /// A chat sent by the caller.
    Sent {
        /// How many messages at its beginning had the digests of the history. A message whose calls differ from the
        /// history only in their spelling is not one of them.
        kept: usize,
        /// How many of these are certainly those of the history: all messages up to an earlier answer that the caller
        /// named or, in a carried-over [`Self::Resumed`], all kept ones. Otherwise 0.
        #[serde(default, skip_serializing_if = "is_zero")]
        certain: usize,
        /// The remaining messages.
        rest: Vec<Message>,
        /// The results of lookups of these messages in the client's memory.
        seen: Vec<TextQuotations>,
        /// The sources of their parts, as far as the client declared them.
        #[serde(default, skip_serializing_if = "Sources::is_empty")]
        sources: Sources,
    },
    /// The answer that the caller received.
    AnsweredTo(Message),
    /// An answer that the caller received under another policy, before the conversation was
    /// [carried over](crate::conversation::Conversation::carry_over).
    Carried {
        /// The answer.
        message: Message,
        /// The tools of its calls, in order: the server, if it has one, and the name.
        tools: Vec<(Option<String>, String)>,
    },
    /// A call that ran under another policy while the model wrote an answer, and its answer, before the conversation
    /// was [carried over](crate::conversation::Conversation::carry_over).
    CarriedRun {
        /// The tool: the server, if it has one, and the name.
        tool: (Option<String>, String),
        /// The arguments as JSON.
        arguments: String,
        /// The answer.
        answer: ToolAnswer,
    },
    /// The model's message.
    Completed(Completion),
    /// The screener's answer.
    Screened(Completion),
    /// The text of a slot.
    Filled(Completion),
    /// A slot could not be filled.
    Unfilled,
    /// The model gave no answer.
    Failed,
    /// The turn was aborted.
    Stop,
    /// A person's decision.
    Decided(Decision),
    /// The turn ended before a person decided.
    Postponed,
    /// A postponed turn continued.
    Resumed {
        /// How many messages of the chat were unchanged.
        kept: usize,
        /// The message that continued the turn.
        new: Option<Message>,
    },
    /// A call was handed over to run elsewhere.
    HandOver,
    /// A tool's answer.
    Ran(ToolAnswer),
}

/// What a conversation waits for ([`Need`]), as far as a replay compares it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordedNeed {
    /// A message of the model, from a view with this many hidden regions.
    Complete(usize),
    /// An answer of the screener.
    Screen,
    /// The text of a slot.
    Fill,
    /// A decision on the call with this digest.
    Approve(String),
    /// A tool's answer to this call.
    Run {
        /// The tool.
        tool: String,
        /// The arguments as JSON, printed from what was judged.
        arguments: String,
    },
    /// The user's next message.
    User,
}

impl RecordedNeed {
    /// Returns the record of a need, with which a replay compares its own need. A view is represented by the number of
    /// its hidden regions alone: its text follows from the inputs before it.
    pub(crate) fn of(need: &Need) -> Self {
        match need {
            Need::Complete(view) => Self::Complete(view.names.all().len()),
            Need::Screen(_) => Self::Screen,
            Need::Fill(_) => Self::Fill,
            Need::Approve(request) => Self::Approve(request.digest.clone()),
            Need::Run(call) => {
                Self::Run { tool: call.call().tool.to_string(), arguments: call.arguments_json() }
            }
            Need::User(_) => Self::User,
        }
    }
}

/// Serialization of the identity of a tool: its server, if it has one, and its name.
pub(crate) mod tool {
    use flowgate::trace::Tool;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Writes a tool as a pair of its server, which is null for a tool without one, and its name.
    pub(crate) fn serialize<S: Serializer>(tool: &Tool, serializer: S) -> Result<S::Ok, S::Error> {
        (tool.server.as_deref(), &*tool.name).serialize(serializer)
    }

    /// Reads a tool from the pair that [`serialize`] writes.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Tool, D::Error> {
        let (server, name) = <(Option<String>, String)>::deserialize(deserializer)?;
        Ok(server.map_or_else(|| Tool::local(&name), |server| Tool::of(&server, &name)))
    }
}

/// Deserializes an optional field in which `null` is a value: a field with `null` becomes `Some(Value::Null)`, and only
/// a missing field becomes `None`.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Returns whether a count is zero. The stored form leaves out `certain` if it is.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
