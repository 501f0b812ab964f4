//! Confirm always: a step is shown everything, and a person is asked about every call that the policy does not declare
//! harmless.

use flowgate::monitor::Judgement;

use super::StepMethod;

/// The method *confirm-always*.
#[derive(Debug, Clone, Copy)]
pub struct ConfirmAlways;

impl StepMethod for ConfirmAlways {
    fn name(&self) -> &'static str {
        "confirm-always"
    }

    fn doc(&self) -> &'static str {
        "everything, and a person is asked about every call that acts"
    }

    fn shows_everything(&self) -> bool {
        true
    }

    fn confirms(&self, permitted: &Judgement) -> bool {
        !permitted.is_harmless
    }
}
