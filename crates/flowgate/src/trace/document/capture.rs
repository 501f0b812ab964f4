//! Adds captured parts to a [`Document`]: pieces of a text that are named in a pattern of the policy, so that each
//! piece can have a label of its own. The monitor adds them while it applies the `label` statements that capture them.

use std::ops::Range;

use serde_json::Value;

use super::{Document, DocumentNode, NodeContent, NodeId, StatementSet};
use crate::label::DimensionSet;
use crate::trace::argument_set::ArgumentSet;
use crate::trace::path::PathStep;

impl Document {
    /// Adds captured regions, all with the name `name`. Each item of `parts` is a scalar node and a range of bytes in its
    /// text; these bytes become a region, which is a child of the node.
    ///
    /// `parts` is sorted by node, with at most one range for each node; a range outside the text is skipped. Returns
    /// the ids of the new nodes. Each new node directly follows its parent, so the ids of all later nodes increase.
    pub(crate) fn capture(&mut self, name: &str, parts: &[(NodeId, Range<usize>)]) -> Vec<NodeId> {
        let new_nodes: Vec<(NodeId, DocumentNode)> =
            parts.iter().filter_map(|(id, part)| Some((*id, self.captured_part(*id, name, part)?))).collect();
        // The number of new nodes before a node, by which its id increases.
        let shift = |id: NodeId| new_nodes.partition_point(|(parent, _)| *parent < id);
        let mut created = Vec::with_capacity(new_nodes.len());
        let mut nodes = Vec::with_capacity(self.nodes.len() + new_nodes.len());
        let old = std::mem::take(&mut self.nodes);
        for (id, mut node) in old.into_iter().enumerate() {
            node.parent += shift(node.parent);
            node.end += shift(node.end);
            nodes.push(node);
            if let Ok(index) = new_nodes.binary_search_by_key(&id, |(parent, _)| *parent)
                && let Some((_, new_node)) = new_nodes.get(index)
            {
                let new = nodes.len();
                nodes.push(DocumentNode { parent: new - 1, end: new + 1, ..new_node.clone() });
                created.push(new);
            }
        }
        self.nodes = nodes;
        created
    }

    /// Returns the node for a captured part of a scalar text. It has the label of the text, and its floor: the part of
    /// the label that no `label` statement can lower. `None` if the node is not a text or the part is not within it.
    fn captured_part(&self, id: NodeId, name: &str, part: &Range<usize>) -> Option<DocumentNode> {
        let node = self.nodes.get(id)?;
        let NodeContent::Scalar(Value::String(text)) = &node.content else { return None };
        let content = NodeContent::Scalar(Value::String(text.get(part.clone())?.to_owned()));
        let span = match &node.span {
            // A scalar without a span is not part of another text: it is the enclosing text itself.
            None => Some(part.clone()),
            Some(span) => self.span_within(id, span, text, part),
        };
        let step = PathStep::Capture(name.into());
        let (label, floor) = (node.label, node.floor);
        Some(DocumentNode {
            // `capture` sets the ids that hold after the insertion.
            parent: id,
            end: id,
            step,
            content,
            text: None,
            span,
            label,
            declared: DimensionSet::NONE,
            independent_of: ArgumentSet::NONE,
            // A statement that has read the text has read the part, whose label the text is going to carry.
            read: node.read,
            floor,
            relied_on: node.relied_on,
            labelled_by: StatementSet::default(),
        })
    }

    /// Returns the bytes of the enclosing text that spell a part of the scalar `id`. `span` are the bytes of that text
    /// which spell the whole scalar, `decoded` is the value of the scalar, and `part` are bytes of this value. `None`
    /// if the scalar is spelled with escapes before the end of the part, since bytes of the value and of the text then
    /// do not correspond.
    fn span_within(
        &self,
        id: NodeId,
        span: &Range<usize>,
        decoded: &str,
        part: &Range<usize>,
    ) -> Option<Range<usize>> {
        // The root is its own parent, so the number of steps is limited: to 200, which is more than the maximum depth.
        let mut above =
            std::iter::successors(Some(id), |id| self.nodes.get(*id).map(|node| node.parent)).take(200);
        let text = above.find_map(|id| self.nodes.get(id)?.text.as_ref())?;
        let spelled = text.get(span.clone())?;
        // The value up to the end of the part must be spelled without escapes, directly after a quote if there is one.
        let plain = decoded.get(..part.end)?;
        let quote = usize::from(spelled.starts_with(['"', '\'']));
        let body = spelled.get(quote..)?;
        let start = span.start + quote;
        body.starts_with(plain).then(|| start + part.start..start + part.end)
    }

    /// Joins the labels of captured parts into the text that contains them, since the text shows the parts. The
    /// nodes are visited from the last to the first, so that a part within a part is joined before the outer one.
    pub(crate) fn join_captures(&mut self) {
        for id in (0..self.nodes.len()).rev() {
            let Some(node) = self.nodes.get(id).filter(|node| matches!(node.step, PathStep::Capture(_)))
            else {
                continue;
            };
            let (parent, label) = (node.parent, node.label);
            if let Some(text) = self.nodes.get_mut(parent) {
                text.label = text.label.join(&label);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{find, output};

    #[test]
    fn a_captured_part_is_a_piece_of_its_own() {
        let text = "{'Hotel': 'Rating: 4.2\\nReviews: nice', 'Inn': 'x'}";
        let mut document = output(text, None);
        let hotel = find(&document, "content.Hotel");
        let new_node = document.capture("rating", &[(hotel, 8..11)])[0];
        assert_eq!(document.path(new_node).to_string(), "content.Hotel<rating>");
        assert_eq!(document.to_value(new_node), "4.2");
        assert_eq!(text.get(document.node(new_node).unwrap().span.clone().unwrap()), Some("4.2"));
        assert_eq!(document.to_value(find(&document, "content.Inn")), "x");
        let ends: Vec<_> = document.children(0).map(|id| document.path(id).to_string()).collect();
        assert_eq!(ends, ["content", "is_error"]);
    }
}
