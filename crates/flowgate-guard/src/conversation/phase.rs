//! Defines the phase of a conversation ([`ConversationPhase`]): the work that the conversation does next, or the input
//! that it waits for. [`super`] acts on the phase, and the other files of `conversation` change it after each input.

use flowgate::label::Label;
use flowgate::monitor::{CallDependency, Permit, Question};
use flowgate::trace::{EventId, Tool};
use serde_json::{Map, Value};

use crate::redact::HiddenRegions;
use crate::slot::Slot;

/// What a conversation does or waits for next. The field `index` of a variant is the index of a call in the last step.
#[derive(Debug)]
pub(super) enum ConversationPhase {
    /// Wait for the user's next message, or for the answers of calls that were handed over.
    User,
    /// Begin the next step.
    Generate,
    /// Wait for a screener's answer on which of these regions the next step needs.
    Screening(HiddenRegions),
    /// Wait for a model's selection of the tools on offer in this turn.
    Filtering,
    /// Show the model a view at this label, which a screener or the verdict on a draft chose.
    Showing(Label),
    /// Process the calls of the last step, from this index on.
    Calls(usize),
    /// Fill the slots of a call, or wait for the text of one.
    Filling(Box<SlotFillState>),
    /// Redeem the permit of an approved call.
    Redeeming { index: usize, permit: Box<Permit> },
    /// Wait for a person's decision on a call.
    Asking { index: usize, question: Box<Question> },
    /// Wait for the answer of the tool; `event` is the call.
    Running { index: usize, event: EventId },
}

/// A call whose slots are being filled.
#[derive(Debug)]
pub(super) struct SlotFillState {
    /// The index of the call in the last step.
    pub(super) index: usize,
    pub(super) tool: Tool,
    /// The arguments as the model wrote them.
    pub(super) written: Map<String, Value>,
    /// The same arguments with filled slots.
    pub(super) arguments: Map<String, Value>,
    /// The slots that are not filled yet: the argument, and the slot in it.
    pub(super) open: Vec<(String, Slot)>,
    /// The slots that are filled or being filled: the argument, the source of its value, and the label of the source.
    pub(super) sources: Vec<(String, CallDependency, Label)>,
    /// Why the call does not run, whatever the verdict; not to be revealed below the labels of the slots.
    pub(super) failed: Option<&'static str>,
}
