//! Implements the method *confirm acting*: a step is shown everything, and a person is asked about every call that the
//! policy does not declare harmless.
//!
//! RTBAS's baseline *Confirm Every Time* (section 8.2) asks about harmless calls, too.

use flowgate::monitor::Judgement;

use super::StepMethod;

/// The method *confirm-acting*.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmActing;

impl StepMethod for ConfirmActing {
    fn name(&self) -> &'static str {
        "confirm-acting"
    }

    fn doc(&self) -> &'static str {
        "the model sees everything; a person is asked about every call of a tool that acts"
    }

    fn shows_everything(&self) -> bool {
        true
    }

    fn confirms(&self, permitted: &Judgement) -> bool {
        !permitted.is_harmless
    }
}
