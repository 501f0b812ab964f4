//! Applies `label` statements to a [`Document`] in rounds.
//!
//! A statement declares the label of a region. Its condition can read labels that another statement sets, so the
//! monitor applies all statements again until no statement has read a label that a later one raised. The methods in
//! this file set the declared labels and record which nodes statements have read. Each round begins with the unlabelled
//! document again, so the methods also tell the next round which labels the earlier rounds have read.

use super::{Document, NodeId};
use crate::label::{DimensionSet, Label, PartialLabel, Space};
use crate::trace::path::PathStep;

impl Document {
    /// Sets the label of a node and of its subtree in the dimensions of `partial`. The other dimensions stay. A
    /// descendant with a declaration of its own keeps its label, and so does its subtree. No label falls below the
    /// floor of its node. A second declaration for the same node is joined with the first.
    ///
    /// A declaration is the effect of a `label` statement. The conditions of a statement can read labels that another
    /// statement sets, so all statements are applied in rounds; the `relied_on` of a node is the label that a statement
    /// has read there in an earlier round. Returns whether another round is needed, because this call raised a label
    /// that was read already.
    pub(crate) fn declare(&mut self, space: &Space, id: NodeId, partial: &PartialLabel) -> bool {
        let Some(node) = self.nodes.get(id) else { return false };
        let (end, declared_before) = (node.end, node.declared);
        let mut raised = false;
        // One dimension after the other, since a descendant may have a declaration in some of them only.
        for dimension in 0..space.dimensions().len() {
            let one = DimensionSet::single(dimension);
            if !partial.dims.has(dimension) {
                continue;
            }
            let mut part = PartialLabel { dims: one, label: space.restrict(&partial.label, one) };
            if declared_before.has(dimension) {
                part.label = part.label.join(&space.restrict(&self.label_at(id), one));
            }
            let mut next = id;
            while next < end {
                let Some(node) = self.nodes.get_mut(next) else { break };
                if next != id && node.declared.has(dimension) {
                    next = node.end;
                    continue;
                }
                let label = space.replace(&node.label, &part).join(&node.floor);
                // A statement has read the node with a label to which the new one does not flow.
                raised |= node.read && !label.flows_to(&node.label.join(&node.relied_on));
                node.label = label;
                next += 1;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.declared = node.declared.union(partial.dims);
        }
        raised
    }

    /// Returns the lower bound on the label of a node: the join of the labels of the regions that statements have read
    /// in order to label it, and of other floors.
    pub(crate) fn floor_of(&self, id: NodeId) -> Label {
        self.nodes.get(id).map_or(Label::BOTTOM, |node| node.floor)
    }

    /// Returns the label of what a statement reads in a node, or with `deep` in the node and its subtree: the present
    /// labels, joined with those that statements of an earlier round have read there.
    pub(crate) fn label_read(&self, id: NodeId, deep: bool) -> Label {
        let end = self.nodes.get(id).map_or(id, |node| if deep { node.end } else { id + 1 });
        let read = self.nodes.get(id..end).unwrap_or_default();
        read.iter().fold(Label::BOTTOM, |label, node| label.join(&node.label).join(&node.relied_on))
    }

    /// Records that an applied `label` statement has read the node; with `deep`, also its subtree. If a later statement
    /// raises the label of such a node, [`declare`](Self::declare) asks for another round of statements.
    pub(crate) fn mark_read(&mut self, id: NodeId, deep: bool) {
        let end = self.nodes.get(id).map_or(id, |node| if deep { node.end } else { id + 1 });
        for node in self.nodes.get_mut(id..end).into_iter().flatten() {
            node.read = true;
        }
    }

    /// Joins `floor` permanently into every label of the subtree: no `label` statement lowers it. Returns whether this
    /// raised the label of a node that a statement has read.
    pub(crate) fn raise_subtree(&mut self, id: NodeId, floor: &Label) -> bool {
        let end = self.nodes.get(id).map_or(id, |node| node.end);
        let mut raised = false;
        for node in self.nodes.get_mut(id..end).into_iter().flatten() {
            raised |= node.read && !floor.flows_to(&node.label.join(&node.relied_on));
            node.label = node.label.join(floor);
            node.floor = node.floor.join(floor);
        }
        raised
    }

    /// Returns for each node the label with which `label` statements have read it, or bottom if none has. Captured
    /// regions are left out, since the next round of statements begins without them.
    pub(crate) fn relied_on_labels(&self) -> Vec<Label> {
        let nodes = self.nodes.iter().filter(|node| !matches!(node.step, PathStep::Capture(_)));
        nodes.map(|node| if node.read { node.label.join(&node.relied_on) } else { Label::BOTTOM }).collect()
    }

    /// Records the labels with which statements of earlier rounds have read nodes: `labels`, from
    /// [`relied_on_labels`](Self::relied_on_labels), has one for each node, in the order of the nodes. Each round of
    /// statements after the first begins with this call. The document must not have captured regions yet.
    pub(crate) fn record_relied_on(&mut self, labels: &[Label]) {
        for (node, label) in self.nodes.iter_mut().zip(labels) {
            node.relied_on = node.relied_on.join(label);
        }
    }

    /// Forgets the labels with which earlier rounds of statements have read nodes. The caller does this after the last
    /// round, when the labels are final.
    pub(crate) fn forget_rounds(&mut self) {
        for node in &mut self.nodes {
            node.relied_on = Label::BOTTOM;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{find, output, space};

    #[test]
    fn a_declaration_covers_parts_without_their_own() {
        let (space, mut document) = (space(), output("[{\"to\": \"a\", \"note\": \"b\"}]", None));
        let trusted = space.element("integrity", "trusted").unwrap();
        let untrusted = space.element("integrity", "untrusted").unwrap();
        let (row, note) = (find(&document, "content[0]"), find(&document, "content[0].note"));
        document.declare(&space, note, &untrusted);
        document.declare(&space, row, &trusted);
        let label = |path| document.node(find(&document, path)).unwrap().label;
        assert_eq!(label("content[0].to"), trusted.label);
        assert_eq!(label("content[0].note"), untrusted.label, "the narrower declaration stays");
        assert_eq!(label("content"), space.top(), "the structure around it stays");
    }

    #[test]
    fn a_second_declaration_for_a_node_joins() {
        let (space, mut document) = (space(), output("{\"a\": 1}", None));
        let trusted = space.element("integrity", "trusted").unwrap();
        let untrusted = space.element("integrity", "untrusted").unwrap();
        let node = find(&document, "content.a");
        assert!(!document.declare(&space, node, &trusted));
        document.mark_read(node, false);
        assert!(document.declare(&space, node, &untrusted), "somebody relied on the lower label");
        assert_eq!(document.node(node).unwrap().label, untrusted.label);
    }
}
