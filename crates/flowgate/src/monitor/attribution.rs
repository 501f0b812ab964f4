//! Defines [`Attribution`]: what the decision and each argument of a call depend on. An influence method, which is an
//! algorithm outside the monitor, determines the attribution. The program that drives an agent passes it to the monitor
//! with each call to judge.
//!
//! The monitor does not compute attributions, since methods may ask models. If a method does not mention an argument,
//! the argument depends on the view that the decision was made from, or on everything that the agent has seen if there
//! was no view.

use crate::label::Label;
use crate::trace::{EventId, NodeId};

/// What one part of a call depends on.
///
/// The enum is exhaustive on purpose: an influence that is not handled would be lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallDependency {
    /// Everything that the agent had seen.
    Everything,
    /// These regions, each with everything in it.
    Regions(Vec<(EventId, NodeId)>),
    /// A view: the model was shown what flows to this label and nothing else.
    View(Label),
    /// The content of a slot: a model that saw `view` left the slot, and the regions filled it.
    Slot {
        /// The view of the model that left the slot.
        view: Label,
        /// The regions that filled the slot, each with everything in it.
        regions: Vec<(EventId, NodeId)>,
    },
    /// Something that the influence method hides from the model. The model cannot have written the call in this form, so
    /// the call is denied.
    Hidden,
}

/// What a call depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// The influence method.
    pub method: &'static str,
    /// What the choice of the tool, and the fact that it is called, depend on.
    pub decision: CallDependency,
    /// What each argument depends on, by name.
    pub arguments: Vec<(String, CallDependency)>,
    /// The number of regions that the method hides from the model in this step.
    pub hidden: usize,
}

impl Attribution {
    /// Attributes the decision and every argument to everything that the agent has seen, which is sound for every
    /// model. `arguments` is empty, since an argument that is not listed depends on everything. `hidden` is 0, since
    /// nothing is hidden from the model.
    pub fn everything() -> Self {
        Self { method: "everything", decision: CallDependency::Everything, arguments: Vec::new(), hidden: 0 }
    }

    /// Attributes a call to a model that was shown what flows to `view`, while `hidden` regions were hidden
    /// from it.
    pub fn view(method: &'static str, view: Label, hidden: usize) -> Self {
        Self { method, decision: CallDependency::View(view), arguments: Vec::new(), hidden }
    }

    /// Returns what the argument `name` depends on. An argument that the method does not mention depends on
    /// the view if the decision was made from one, since the model saw nothing else; otherwise on everything.
    pub fn argument(&self, name: &str) -> &CallDependency {
        self.arguments
            .iter()
            .find(|(listed, _)| listed == name)
            .map_or(self.default_dependency(), |(_, dependency)| dependency)
    }

    /// Returns what an argument that the influence method does not mention depends on: the view of the decision, if
    /// there is one, and otherwise everything.
    fn default_dependency(&self) -> &CallDependency {
        match &self.decision {
            view @ CallDependency::View(_) => view,
            _ => &CallDependency::Everything,
        }
    }

    /// Returns what each part of the call depends on: first the decision, then each listed argument.
    pub(super) fn dependencies(&self) -> impl Iterator<Item = &CallDependency> {
        std::iter::once(&self.decision).chain(self.arguments.iter().map(|(_, dependency)| dependency))
    }
}
