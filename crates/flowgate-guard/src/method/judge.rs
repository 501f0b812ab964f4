//! Implements the method *judge*: before a step, a model is asked which hidden regions the step needs, and the step is
//! shown those. [`crate::screener::judge`] formulates the question and reads the answer (RTBAS, section 7.1).

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
