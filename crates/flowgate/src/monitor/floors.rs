//! What an event carries besides what the policy says of it.

use crate::label::Label;
use crate::trace::{Document, Step};

/// The least that an event carries, whatever the policy grants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Floors {
    /// What all of it carries.
    pub whole: Label,
    /// What single blocks of a content carry that is a list: the index of the block, and its label.
    pub blocks: Vec<(usize, Label)>,
}

impl Floors {
    /// Raises the blocks, before statements label what is left.
    pub(super) fn raise_blocks(&self, document: &mut Document) {
        let Some(content) = document.key(0, "content") else { return };
        for (index, label) in &self.blocks {
            let is_meant = |step: &Step| matches!(step, Step::Index(at) if at == index);
            let block =
                document.children(content).find(|id| document.node(*id).is_some_and(|n| is_meant(&n.step)));
            // A block that is not there was meant to be somewhere: then all of the content carries its label.
            document.raise_subtree(block.unwrap_or(content), label);
        }
    }
}

impl From<Label> for Floors {
    fn from(whole: Label) -> Self {
        Self { whole, ..Self::default() }
    }
}
