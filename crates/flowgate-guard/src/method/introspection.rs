//! Implements the method *introspection*: before a step, a model is asked which hidden regions the step needs, and the
//! step is shown those that it [cites](crate::screener::introspection).

use super::StepMethod;
use crate::screener::Screener;
use crate::screener::introspection::IntrospectionScreener;

/// The method *introspection*.
#[derive(Debug, Clone, Copy)]
pub struct Introspection;

impl StepMethod for Introspection {
    fn name(&self) -> &'static str {
        IntrospectionScreener.name()
    }

    fn doc(&self) -> &'static str {
        IntrospectionScreener.doc()
    }

    fn screener(&self) -> Option<&dyn Screener> {
        Some(&IntrospectionScreener)
    }
}
