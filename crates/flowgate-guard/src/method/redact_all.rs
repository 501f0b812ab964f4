//! Redact all: a step is shown what flows to the strictest requirement on offer, and never more.

use super::StepMethod;

/// The method *redact-all*.
#[derive(Debug, Clone, Copy)]
pub struct RedactAll;

impl StepMethod for RedactAll {
    fn name(&self) -> &'static str {
        "redact-all"
    }

    fn doc(&self) -> &'static str {
        "what flows into the strictest tool on offer, and never more"
    }
}
