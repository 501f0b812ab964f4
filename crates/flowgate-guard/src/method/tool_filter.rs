//! Implements the method *tool filter*: a step is shown everything, but of the tools on offer only those that a model
//! [selects](crate::screener::tool_filter) for the user's request.

use super::StepMethod;
use crate::screener::ToolSelector;
use crate::screener::tool_filter::ToolFilterSelector;

/// The method *tool-filter*.
#[derive(Debug, Clone, Copy)]
pub struct ToolFilter;

impl StepMethod for ToolFilter {
    fn name(&self) -> &'static str {
        "tool-filter"
    }

    fn doc(&self) -> &'static str {
        "everything, with only the tools that a model selects for the user's request"
    }

    fn shows_everything(&self) -> bool {
        true
    }

    fn tool_selector(&self) -> Option<&dyn ToolSelector> {
        Some(&ToolFilterSelector)
    }
}
