//! Judge: a step is shown what a [judge](crate::screener::judge) declares necessary for the step.

use super::StepMethod;
use crate::screener::Screener;
use crate::screener::judge::JudgeScreener;

/// The method *judge*.
#[derive(Debug, Clone, Copy)]
pub struct Judge;

impl StepMethod for Judge {
    fn name(&self) -> &'static str {
        JudgeScreener.name()
    }

    fn doc(&self) -> &'static str {
        JudgeScreener.doc()
    }

    fn screener(&self) -> Option<&dyn Screener> {
        Some(&JudgeScreener)
    }
}
