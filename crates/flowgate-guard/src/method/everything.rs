//! Implements the method *everything*: a step is shown everything, and what the model writes carries the join of all
//! labels.
//!
//! Under a policy without lattices, the method is the unguarded loop of agents (RTBAS, Algorithm 1), except that the
//! rules of the policy judge each call.

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
