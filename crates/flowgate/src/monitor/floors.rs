//! Defines [`Floors`], lower bounds on the label of an event. The program that drives an agent, such as the guard,
//! passes them when it pushes the event: for example, a message that quotes a text carries at least the label of that
//! text. No statement of the policy lowers a label below them.

use crate::label::Label;
use crate::trace::{Document, PathStep};

/// Lower bounds on the label of an event, whatever the policy grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floors {
    /// The lower bound for the whole event.
    pub whole: Label,
    /// The lower bounds for single blocks, if the content is a list: the index of the block, and its label.
    pub blocks: Vec<(usize, Label)>,
}

impl Floors {
    /// Raises the labels of single blocks of the event's content to their lower bounds. The caller does this before
    /// statements label the event, so that no statement lowers them.
    pub(super) fn raise_blocks(&self, document: &mut Document) {
        let Some(content) = document.key(0, "content") else { return };
        for (index, label) in &self.blocks {
            let is_meant = |step: &PathStep| matches!(step, PathStep::Index(at) if at == index);
            let block =
                document.children(content).find(|id| document.node(*id).is_some_and(|n| is_meant(&n.step)));
            // If the content has no block with this index, the text of the block is somewhere else in the content, so
            // all of the content carries the label of the block.
            document.raise_subtree(block.unwrap_or(content), label);
        }
    }
}

impl From<Label> for Floors {
    fn from(whole: Label) -> Self {
        Self { whole, ..Self::default() }
    }
}
