//! Defines the phase of a conversation: the work that it does next, or the input that it waits for. The files of this
//! module change the phase after each input.

use flowgate::label::Label;
use flowgate::monitor::{CallDependency, Permit, Question};
use flowgate::trace::{EventId, Tool};
use serde_json::{Map, Value};

use crate::redact::HiddenRegions;
use crate::slot::Slot;

/// The next action.
#[derive(Debug)]
pub(super) enum ConversationPhase {
    User,
    Generate,
    Screening(HiddenRegions),
    Filtering,
    Showing(Label),
    /// Process the calls of the last step, from this index on.
    Calls(usize),
    Filling(Box<SlotFillState>),
    Redeeming {
        index: usize,
        permit: Box<Permit>,
    },
    Asking {
        index: usize,
        question: Box<Question>,
    },
    Running {
        index: usize,
        event: EventId,
    },
}

/// A call whose slots are being filled.
#[derive(Debug)]
pub(super) struct SlotFillState {
    pub(super) index: usize,
    pub(super) tool: Tool,
    /// The arguments as the model wrote them.
    pub(super) written: Map<String, Value>,
    /// The same arguments with filled slots.
    pub(super) arguments: Map<String, Value>,
    /// The slots that are not filled yet: the argument, and the slot in it.
    pub(super) open: Vec<(String, Slot)>,
    /// The slots that are filled: the argument, the source of its value, and the label of that.
    pub(super) sources: Vec<(String, CallDependency, Label)>,
    /// Why the call does not run, whatever the verdict; not to be revealed below the labels of the slots.
    pub(super) failed: Option<&'static str>,
}
