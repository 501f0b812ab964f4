//! What a call depends on, as an influence method says.
//!
//! The monitor does not find out by itself: methods may ask models, and their answers enter as data. What a
//! method does not mention depends on everything that the agent has seen.

use crate::label::Label;
use crate::trace::{EventId, NodeId};

/// What one part of a call depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Everything that the agent had seen.
    Everything,
    /// These regions: of a list or a map its structure, not what it contains.
    Regions(Vec<(EventId, NodeId)>),
    /// What flows to this label: the model was shown that and nothing else.
    View(Label),
    /// What a slot holds: it was left by a model that saw `view`, and filled from the regions.
    Slot {
        /// What the model was shown that left the slot.
        view: Label,
        /// What the slot was filled from: of a list or a map its structure, not what it contains.
        regions: Vec<(EventId, NodeId)>,
    },
    /// Something that the method hides from the model: the call could not have been written like this.
    Hidden,
}

/// What a call depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// The method that says so.
    pub method: &'static str,
    /// What the choice of the tool, and that it is called at all, depends on.
    pub decision: Source,
    /// What each argument depends on, by name.
    pub arguments: Vec<(String, Source)>,
    /// How many regions the method keeps from the model for this step.
    pub hidden: usize,
}

impl Attribution {
    /// Everything influences everything: right for every model.
    pub fn everything() -> Self {
        Self { method: "everything", decision: Source::Everything, arguments: Vec::new(), hidden: 0 }
    }

    /// A call by a model that was shown what flows to `view`, `hidden` regions being kept from it.
    pub fn view(method: &'static str, view: Label, hidden: usize) -> Self {
        Self { method, decision: Source::View(view), arguments: Vec::new(), hidden }
    }

    /// What the argument called `name` depends on: where the method does not say, a model that saw no more than a
    /// view can have used no more for it.
    pub fn argument(&self, name: &str) -> &Source {
        self.arguments
            .iter()
            .find(|(known, _)| known == name)
            .map_or(self.unmentioned(), |(_, source)| source)
    }

    fn unmentioned(&self) -> &Source {
        match &self.decision {
            view @ Source::View(_) => view,
            _ => &Source::Everything,
        }
    }

    /// All sources, the decision's first.
    pub(super) fn sources(&self) -> impl Iterator<Item = &Source> {
        std::iter::once(&self.decision).chain(self.arguments.iter().map(|(_, source)| source))
    }
}
