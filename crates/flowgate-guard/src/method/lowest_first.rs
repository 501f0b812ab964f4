//! Lowest first: a step is shown what flows to the strictest requirement on offer, and more where the model requests it.
//!
//! No hidden text influences a low step. A question above the lowest label can change the label of a store, so it counts
//! as one bit. [`crate::conversation`] implements looks and levels.

use super::StepMethod;

/// The method *lowest-first*.
#[derive(Debug, Clone, Copy)]
pub struct LowestFirst;

impl StepMethod for LowestFirst {
    fn name(&self) -> &'static str {
        "lowest-first"
    }

    fn doc(&self) -> &'static str {
        "what flows into the strictest tool on offer, and more where the model asks to look"
    }

    fn has_look(&self) -> bool {
        true
    }

    fn has_slots(&self) -> bool {
        true
    }

    fn question_bits(&self) -> usize {
        1
    }
}
