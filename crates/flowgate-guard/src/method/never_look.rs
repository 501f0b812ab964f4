//! Implements the method *never look*: a step is shown what flows to the strictest requirement of the tools on offer,
//! and never more.
//!
//! RTBAS's baseline *Redact All* (section 8.1.1) hides more: every region that is not both trusted and public.

use super::StepMethod;

/// The method *never-look*.
#[derive(Debug, Clone, Copy)]
pub struct NeverLook;

impl StepMethod for NeverLook {
    fn name(&self) -> &'static str {
        "never-look"
    }

    fn doc(&self) -> &'static str {
        "what flows to the strictest requirement on offer, and never more"
    }
}
