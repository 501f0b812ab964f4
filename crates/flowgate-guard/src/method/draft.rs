//! Defines drafts. A *draft* is a message that the model writes with everything in view; the method then accepts it, or
//! has the step rewritten from a view at a lower label. The methods [`cheapest_first`](super::cheapest_first) and
//! [`provenance`](super::provenance) work in this way.
//!
//! A conversation asks the [`DraftJudge`] of its method about each draft, before any call of the draft is judged or
//! runs. A draft that is rewritten has one effect only: it determines the label of the view for the rewrite. This
//! choice can reveal bits of hidden text, which are counted. Methods with drafts therefore give the same guarantee as
//! [screeners](crate::screener).

use std::fmt::Debug;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::Tool;

/// Chooses the labels at which drafts of one conversation are rewritten.
pub trait DraftJudge: Debug + Send {
    /// Returns the label at which the step has to be generated, with the bits that this choice reveals. If this is the
    /// label of the draft, the draft is accepted.
    fn judge(&mut self, draft: &Draft<'_>) -> DraftVerdict;

    /// Returns whether the draft is accepted if it makes calls and its rewrite makes none.
    fn keeps_drafts(&self) -> bool {
        false
    }
}

/// A draft: a message of a model that was shown everything.
#[derive(Debug)]
pub struct Draft<'a> {
    /// The labels and the trace so far.
    pub monitor: &'a Monitor,
    /// The label of the view that the draft was generated from.
    pub label: Label,
    /// The label of the current level of the turn (see [`crate::conversation`]).
    pub level: Label,
    /// The base label: the lowest bound of a step of this turn.
    pub base: Label,
    /// Whether the message makes any calls.
    pub has_calls: bool,
    /// The calls of tools on offer.
    pub calls: Vec<DraftCall>,
}

/// A call in a draft.
#[derive(Debug, Clone)]
pub struct DraftCall {
    /// The position among all calls of the message.
    pub index: usize,
    /// The tool.
    pub tool: Tool,
    /// The arguments that can be left to a slot.
    pub slots: Vec<String>,
    /// Of these, the arguments whose slots only an endorsement permits, so that a value of another form is refused.
    pub endorsed: Vec<String>,
    /// The arguments, as the model wrote them.
    pub arguments: String,
}

/// The decision on a draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DraftVerdict {
    /// The label at which the step has to be generated.
    pub label: Label,
    /// The most bits of hidden text that the choice of the label reveals.
    pub bits: usize,
}
