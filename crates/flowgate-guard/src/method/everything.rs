//! Implements the method *everything*: nothing is hidden from a step, and everything taints what follows.
//!
//! Under a policy without lattices this is the unguarded loop (RTBAS, Algorithm 1) with rules on top.

use super::StepMethod;

/// The method *everything*.
#[derive(Debug, Clone, Copy)]
pub struct Everything;

impl StepMethod for Everything {
    fn name(&self) -> &'static str {
        "everything"
    }

    fn doc(&self) -> &'static str {
        "everything; all that follows carries the join of all labels"
    }

    fn shows_everything(&self) -> bool {
        true
    }
}
