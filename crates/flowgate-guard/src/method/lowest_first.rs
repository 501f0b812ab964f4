//! Implements the method *lowest first*: a step is shown what flows to the strictest requirement of the tools on offer,
//! and more where the model requests it with the tool `look`.
//!
//! Hidden text does not influence a step whose bound is this requirement, with three exceptions;
//! [`TurnUsage`](crate::conversation::TurnUsage) counts their bits:
//!
//! * The value of an endorsed slot is taken from hidden text.
//! * The answer to a call can reveal whether the slots of the call could be filled.
//! * A question about a call of a step above that bound can change the label of a store (external state). An observer
//!   of the store learns at most one bit from this.
//!
//! [`crate::conversation`] implements looks, and raises the bound of the steps after a look.

use super::StepMethod;

/// The method *lowest-first*.
#[derive(Debug, Clone, Copy)]
pub struct LowestFirst;

impl StepMethod for LowestFirst {
    fn name(&self) -> &'static str {
        "lowest-first"
    }

    fn doc(&self) -> &'static str {
        "what flows to the strictest requirement on offer, and more when the model looks at hidden regions"
    }

    fn has_look(&self) -> bool {
        true
    }

    fn has_slots(&self) -> bool {
        true
    }

    fn question_bits(&self) -> usize {
        // Whether the question is asked can change the label of a store.
        1
    }
}
