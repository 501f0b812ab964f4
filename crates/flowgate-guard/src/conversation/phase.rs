//! Where a conversation stands: what comes next, and at which label.

use flowgate::label::Label;
use flowgate::monitor::{Permit, Question, Source};
use flowgate::trace::{EventId, Tool};
use serde_json::{Map, Value};

use crate::redact::Names;
use crate::slot::Slot;

/// The label of what happens, until the model has said its last word there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Level {
    pub(super) label: Label,
    /// Whether the level below goes on when this one ends.
    pub(super) then_return: bool,
    pub(super) steps: usize,
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Phase {
    User,
    Generate,
    Screening(Names),
    Filtering,
    Showing(Label),
    /// The calls of the last step from this one on are to be dealt with.
    Calls(usize),
    Filling(Box<Filling>),
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
pub(super) struct Filling {
    pub(super) index: usize,
    pub(super) tool: Tool,
    /// The arguments as the model wrote them.
    pub(super) written: Map<String, Value>,
    /// The same with slots filled.
    pub(super) arguments: Map<String, Value>,
    /// What is left to do: the argument, and the slot in it.
    pub(super) open: Vec<(String, Slot)>,
    /// What was filled: where from, and what that carries.
    pub(super) sources: Vec<(String, Source, Label)>,
    /// Why the call does not run, whatever is judged: that is not known to who may not see what the slots hold.
    pub(super) failed: Option<&'static str>,
}
