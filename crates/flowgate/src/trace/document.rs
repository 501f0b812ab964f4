//! Represents an event's value as a tree of labelled regions.
//!
//! Each field has a node. Each list, map and text that encodes a list or a map has a node, too, with the label of its
//! structure: of the keys, the number of rows, and the bytes between the fields. So the nodes of an event are disjoint
//! labelled regions that together cover the whole event. The monitor labels documents; rules and redaction read them.
//!
//! `build` builds the document of an event, and `undivided` makes a content that was divided into fields one node again.
//! `statement_rounds` applies `label` statements, and `capture` adds the parts of texts that patterns capture.

mod build;
mod capture;
mod statement_rounds;
mod undivided;

pub(crate) use build::sole_text;

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::argument_set::ArgumentSet;
use super::located_text::LocateError;
use super::path::{Path, PathStep};
use crate::label::{DimensionSet, Label, PartialLabel, Space};

/// The index of a node in its document; the root is 0, and children follow their parent.
pub type NodeId = usize;

/// Maximum number of nodes of one event; a larger event stays one opaque region.
const MAX_NODES: usize = 200_000;

/// The content of a node without its children.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeContent {
    /// A value without parts.
    Scalar(Value),
    /// A list of children.
    List,
    /// Children by key.
    Map,
}

/// One labelled region of an event.
#[derive(Debug, Clone)]
pub struct DocumentNode {
    /// The node above; the root is its own parent.
    pub parent: NodeId,
    /// One past the last node below this one.
    pub end: NodeId,
    /// The step from the parent to this node.
    pub step: PathStep,
    /// The content.
    pub content: NodeContent,
    /// The text, where a list or a map is encoded as text.
    pub text: Option<Arc<str>>,
    /// The bytes of the nearest enclosing text that spell this node, if it is part of a text.
    pub span: Option<Range<usize>>,
    /// Its label: for a list or a map, the label of its structure.
    pub label: Label,
    /// The dimensions in which a declaration names this node itself.
    declared: DimensionSet,
    /// Whether a `label` statement that was applied has read the node.
    read: bool,
    /// The arguments of the call on which the region does not depend, as the policy declares.
    independent_of: ArgumentSet,
    /// The part of the label that no `label` statement can lower, and that parts captured from the node carry as well.
    floor: Label,
    /// The label that a statement has read here in an earlier round. A statement that reads the node reads at least this
    /// label. The node itself does not carry it, since whether there was such a round can depend on other text.
    relied_on: Label,
    /// The first statements that labelled this node itself.
    labelled_by: StatementSet,
}

/// The indices of the first `label` statements that labelled a node, at most three, in the order of labelling. Every
/// node of every event has such a set, so it needs no allocation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StatementSet {
    /// Each index plus one; 0 is none.
    indices: [u16; 3],
}

impl StatementSet {
    /// Adds a statement, unless the set contains it, is full, or cannot represent its index: the set only names the
    /// statements in explanations, so a missing one does no harm.
    pub(crate) fn insert(&mut self, index: usize) {
        // Each index is stored plus one, since 0 is a free place.
        let Some(number) = u16::try_from(index).ok().and_then(|index| index.checked_add(1)) else { return };
        if !self.indices.contains(&number)
            && let Some(free) = self.indices.iter_mut().find(|taken| **taken == 0)
        {
            *free = number;
        }
    }

    /// Returns the indices of the statements in the set.
    pub(crate) fn iter(self) -> impl Iterator<Item = usize> {
        self.indices.into_iter().filter_map(|number| number.checked_sub(1)).map(usize::from)
    }
}

/// The labelled tree of one event.
#[derive(Debug, Clone)]
pub struct Document {
    nodes: Vec<DocumentNode>,
    /// The reason why a text was not decomposed although it resembles a list or a map.
    pub defect: Option<LocateError>,
    /// Whether a tool returned its output in two forms (*twins*), as text and as a JSON value, and the two differ.
    pub twins_differ: bool,
    /// Whether the event has too many parts, or is nested too deep, to be decomposed.
    pub is_oversize: bool,
    /// Influences on the labels that are not statements about the event.
    pub(crate) origin: LabelOrigin,
}

/// Influences on the labels of an event that are not statements about it.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelOrigin {
    /// The join of the labels that were joined into every node: those of the call and of the stores that the call
    /// reads, and the caller's lower bound on the label. For the outcome of a failed call, only the part of the
    /// caller's lower bound that follows from rules is included.
    pub(crate) raised: Label,
    /// The dimensions in which a statement about such events is ambiguous: what it labels is raised to the top there.
    pub(crate) ambiguous: DimensionSet,
    /// Whether the caller gave lower bounds for single blocks of the content.
    pub(crate) has_block_floors: bool,
    /// Whether the labels do not follow from the statements about such events: an output that answers no call, for
    /// example, is top whatever the statements say.
    pub(crate) is_irregular: bool,
}

impl Document {
    /// Returns all nodes in pre-order, the root first.
    pub fn nodes(&self) -> &[DocumentNode] {
        &self.nodes
    }

    /// Returns the node with this id.
    pub fn node(&self, id: NodeId) -> Option<&DocumentNode> {
        self.nodes.get(id)
    }

    /// Returns the ids of the direct children of `id`. In pre-order, the first child follows its parent, and each other
    /// child follows the subtree of the one before it.
    pub fn children(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        let end = self.nodes.get(id).map_or(0, |node| node.end);
        let first = Some(id + 1).filter(|child| *child < end);
        std::iter::successors(first, move |child| {
            self.nodes.get(*child).map(|node| node.end).filter(|next| *next < end)
        })
    }

    /// Returns the id of a node and those of the lists and maps around it, from the node up to the root.
    pub fn enclosing(&self, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
        // The root is its own parent.
        std::iter::successors(Some(id), move |id| {
            self.nodes.get(*id).map(|node| node.parent).filter(|parent| parent != id)
        })
    }

    /// Returns the child of `id` that `step` leads to.
    pub fn child(&self, id: NodeId, step: &PathStep) -> Option<NodeId> {
        self.children(id).find(|child| self.nodes.get(*child).is_some_and(|node| node.step == *step))
    }

    /// Returns the child of `id` with this key.
    pub fn key(&self, id: NodeId, key: &str) -> Option<NodeId> {
        self.children(id).find(|child| {
            self.nodes.get(*child).is_some_and(|node| matches!(&node.step, PathStep::Key(k) if &**k == key))
        })
    }

    /// Returns the path from the root to a node; empty for the root.
    pub fn path(&self, id: NodeId) -> Path {
        // The node and the nodes above it, without the root, to which no step leads.
        let up = std::iter::successors(Some(id).filter(|id| *id != 0), |id| {
            self.nodes.get(*id).map(|node| node.parent).filter(|parent| *parent != 0)
        });
        let mut steps: Vec<PathStep> = up.filter_map(|id| Some(self.nodes.get(id)?.step.clone())).collect();
        steps.reverse();
        Path(steps)
    }

    /// Returns the value of a node with its subtree as JSON; null if there is no such node.
    pub fn to_value(&self, id: NodeId) -> Value {
        let Some(node) = self.nodes.get(id) else { return Value::Null };
        match &node.content {
            NodeContent::Scalar(value) => value.clone(),
            NodeContent::List => self.children(id).map(|child| self.to_value(child)).collect(),
            NodeContent::Map => {
                let entries = self.children(id).filter_map(|child| match &self.nodes.get(child)?.step {
                    PathStep::Key(key) => Some((key.to_string(), self.to_value(child))),
                    // Unreachable: a map has only children with keys.
                    _ => None,
                });
                Value::Object(entries.collect())
            }
        }
    }

    /// Returns whether this node or one of its ancestors has a declaration: a `label` statement names it and was
    /// applied.
    pub fn is_declared(&self, id: NodeId) -> bool {
        self.enclosing(id).filter_map(|id| self.nodes.get(id)).any(|node| !node.declared.is_empty())
    }

    /// Records that a `label` statement, by its index in the policy, has labelled a node.
    pub(crate) fn mark_labelled_by(&mut self, id: NodeId, statement: usize) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.labelled_by.insert(statement);
        }
    }

    /// Returns the indices of the `label` statements that gave a node its label: in each dimension, those that labelled
    /// the node or the nearest region around it, and those that raised such a region. The indices are in ascending
    /// order, each once.
    pub(crate) fn labelled_by(&self, id: NodeId) -> Vec<usize> {
        // `covered` are the dimensions that a nearer region has declared. A node that has statements but declares no
        // dimension was only raised by them.
        let (mut covered, mut statements) = (DimensionSet::NONE, Vec::new());
        for node in self.enclosing(id).filter_map(|id| self.nodes.get(id)) {
            if node.declared.is_empty() || !node.declared.without(covered).is_empty() {
                statements.extend(node.labelled_by.iter());
            }
            covered = covered.union(node.declared);
        }
        statements.sort_unstable();
        statements.dedup();
        statements
    }

    /// Returns the join of the labels of a node and its subtree.
    pub fn label_of(&self, id: NodeId) -> Label {
        let end = self.nodes.get(id).map_or(id, |node| node.end);
        let below = self.nodes.get(id..end).unwrap_or_default();
        below.iter().fold(Label::BOTTOM, |label, node| label.join(&node.label))
    }

    /// Returns the label of the root node, that is, of the fact that the event exists.
    pub fn frame_label(&self) -> Label {
        self.label_at(0)
    }

    /// Returns the label of a node without its subtree.
    fn label_at(&self, id: NodeId) -> Label {
        self.nodes.get(id).map_or(Label::BOTTOM, |node| node.label)
    }

    /// Raises every node to the greatest label in the dimensions `dims`, whatever `label` statements have granted.
    pub(crate) fn raise_dims_to_top(&mut self, space: &Space, dims: DimensionSet) {
        let top = space.restrict(&space.top(), dims);
        self.raise(&top);
    }

    /// Sets the label of the frame to the label of the content, except in the dimensions in which a `label` statement
    /// names the frame itself. The frame is the existence of the event and its error flag. So a statement that gives
    /// the content of an output a low label gives the existence of the output the same label.
    pub(crate) fn label_frame_by_content(&mut self, space: &Space) {
        let Some(content) = self.key(0, "content") else { return };
        let label = self.label_at(content);
        // The nodes of the frame: the root, for the existence of the event, and the error flag.
        let around = [Some(0), self.key(0, "is_error")];
        for id in around.into_iter().flatten() {
            let Some(node) = self.nodes.get_mut(id) else { continue };
            let undeclared = space.all().without(node.declared);
            node.label = space.replace(
                &node.label,
                &PartialLabel { dims: undeclared, label: space.restrict(&label, undeclared) },
            );
        }
    }

    /// Joins the label of an output's text into the structured form of the output, if the two forms differ: the
    /// structured form may repeat the content of the text, and no statement labels it.
    pub(crate) fn join_twins(&mut self) {
        let twins = self.key(0, "content").zip(self.key(0, "structured")).filter(|_| self.twins_differ);
        let Some((content, structured)) = twins else { return };
        let label = self.label_of(content);
        self.raise_subtree(structured, &label);
    }

    /// Joins `floor` into every label. It does not raise the floors of the nodes, so it must follow all `label`
    /// statements, which could lower the labels again.
    pub(crate) fn raise(&mut self, floor: &Label) {
        for node in &mut self.nodes {
            node.label = node.label.join(floor);
        }
    }

    /// Joins the floor of every region into its label. `floor_without` returns the floor of a region, given the
    /// arguments of the call on which the region does not depend. Must be called after all `label` statements were
    /// applied, since a later one could lower the labels again.
    pub(crate) fn raise_outcome(&mut self, floor_without: impl Fn(ArgumentSet) -> Label) {
        // Most neighbouring regions are independent of the same arguments, so their floor is computed once.
        let mut arguments = ArgumentSet::NONE;
        let mut floor = floor_without(arguments);
        for node in &mut self.nodes {
            if node.independent_of != arguments {
                arguments = node.independent_of;
                floor = floor_without(arguments);
            }
            node.label = node.label.join(&floor);
        }
    }

    /// Marks a region and what it contains as not depending on these arguments of the call.
    pub(crate) fn mark_independent(&mut self, id: NodeId, arguments: ArgumentSet) {
        let end = self.nodes.get(id).map_or(id, |node| node.end);
        for node in self.nodes.get_mut(id..end).into_iter().flatten() {
            node.independent_of = node.independent_of.union(arguments);
        }
    }

    /// Returns the label of a call without the labels of the arguments for whose names `is_left_out` holds: the join
    /// over all other regions.
    pub(crate) fn label_without_arguments(&self, is_left_out: impl Fn(&str) -> bool) -> Label {
        let arguments = self.key(0, "arguments");
        let (mut label, mut id) = (Label::BOTTOM, 0);
        while let Some(node) = self.nodes.get(id) {
            match &node.step {
                PathStep::Key(name) if Some(node.parent) == arguments && is_left_out(name) => id = node.end,
                _ => {
                    label = label.join(&node.label);
                    id += 1;
                }
            }
        }
        label
    }

    /// Sets the label of one node to `part` in the dimensions of `part`, for an endorsement. The result may be below
    /// the floor of the node, the label below which no `label` statement sets it. Does nothing if there is no such
    /// node.
    pub(crate) fn lower(&mut self, space: &Space, id: NodeId, part: &PartialLabel) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.label = space.replace(&node.label, part);
        }
    }

    /// Sets every label of the subtree to `label`, even below the floors of its nodes.
    pub(crate) fn set_subtree(&mut self, id: NodeId, label: Label) {
        let end = self.nodes.get(id).map_or(id, |node| node.end);
        for node in self.nodes.get_mut(id..end).into_iter().flatten() {
            node.label = label;
        }
    }

    /// Replaces the value of a scalar. An endorsed argument gets its canonical form in this way.
    pub(crate) fn set_scalar(&mut self, id: NodeId, value: Value) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.content = NodeContent::Scalar(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{Dimension, DimensionKind, Lattice, Purpose};
    use crate::trace::event::{EventBody, Output};

    /// The labels of these tests: one dimension, `trusted` below `untrusted`.
    pub(super) fn space() -> Space {
        let chain = DimensionKind::Order(Lattice::chain(&["trusted", "untrusted"]).unwrap());
        Space::new(vec![Dimension::new("integrity", Purpose::Integrity, chain)]).unwrap()
    }

    /// The document of an output with these two forms, all of it with the greatest label.
    pub(super) fn output(text: &str, structured: Option<Value>) -> Document {
        let content = Value::String(text.to_owned());
        let (call_id, tool, is_error) = ("c".to_owned(), None, Some(false));
        Document::new(
            &EventBody::Output(Output { call_id, tool, content, structured, is_error }),
            space().top(),
        )
    }

    /// Returns the node with this path.
    pub(super) fn find(document: &Document, path: &str) -> NodeId {
        (0..document.nodes().len()).find(|id| document.path(*id).to_string() == path).unwrap()
    }

    #[test]
    fn fields_of_a_text_have_their_place_in_it() {
        let text = "- id: 1\n  note: 'a: b'\n- id: 22\n";
        let document = output(text, None);
        let spelled = |path: &str| {
            text.get(document.node(find(&document, path)).unwrap().span.clone().unwrap()).unwrap()
        };
        assert_eq!(spelled("content[0].id"), "1");
        assert_eq!(spelled("content[0].note"), "'a: b'");
        assert_eq!(spelled("content[1].id"), "22");
    }

    #[test]
    fn twins_that_disagree_stay_whole() {
        let agreed = output("{\"a\": 1}", Some(serde_json::json!({"a": 1})));
        let differ = output("{\"a\": 1}", Some(serde_json::json!({"a": 2})));
        assert!(agreed.key(agreed.key(0, "content").unwrap(), "a").is_some());
        assert!(differ.key(differ.key(0, "content").unwrap(), "a").is_none());
        assert!(output("{\"a\": 1, \"a\": 2}", None).defect.is_some());
        for (text, value, differ) in [
            ("null", Value::Null, false),
            ("4.5", serde_json::json!(4.5), false),
            ("yes", serde_json::json!("yes"), false),
            ("yes", serde_json::json!("no"), true),
            ("4", serde_json::json!([4]), true),
        ] {
            assert_eq!(output(text, Some(value)).twins_differ, differ, "{text}");
        }
    }

    /// The structured form may repeat the same content where no statement labels it.
    #[test]
    fn a_structured_form_that_differs_carries_what_the_text_carries() {
        let space = space();
        let untrusted = PartialLabel { dims: space.all(), label: space.top() };
        for (structured, expected) in
            [(serde_json::json!(["the page"]), space.top()), (Value::from("the page"), Label::BOTTOM)]
        {
            let mut document = output("the page", Some(structured));
            let content = document.key(0, "content").unwrap();
            document.declare(&space, content, &untrusted);
            document.join_twins();
            let twin = document.key(0, "structured").map_or(Label::BOTTOM, |twin| document.label_of(twin));
            assert_eq!(twin, expected);
        }
    }

    /// Values that a program passes in need not come from a parsed text, whose depth is limited.
    #[test]
    fn deeply_nested_values_stay_whole() {
        let nest = |depth: usize| (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let document = |depth| {
            let (call_id, tool, is_error) = ("c".to_owned(), None, Some(false));
            let (content, structured) = (nest(depth), Some(nest(depth)));
            Document::new(
                &EventBody::Output(Output { call_id, tool, content, structured, is_error }),
                Label::BOTTOM,
            )
        };
        assert!(!document(60).is_oversize);
        for depth in [70, 500] {
            let document = document(depth);
            assert!(document.is_oversize && document.nodes().len() == 3, "{depth}");
        }
    }

    /// An output that is too large is shown as the tool wrote it, and as a smaller one would be.
    #[test]
    fn an_output_that_is_too_large_keeps_its_text() {
        let deep = (0..70).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let block = |text: &str| serde_json::json!([{"type": "text", "text": text}]);
        let spelled = deep.to_string();
        let check = |content: Value, structured: Option<Value>, expected: &str| {
            let (call_id, tool, is_error) = ("c".to_owned(), None, Some(false));
            let output = Output { call_id, tool, content, structured, is_error };
            let document = Document::new(&EventBody::Output(output), Label::BOTTOM);
            assert!(document.is_oversize);
            let content = document.key(0, "content").unwrap();
            assert_eq!(document.to_value(content), expected);
        };
        for page in [Value::from("the \"page\""), block("the \"page\"")] {
            check(page, Some(deep.clone()), &format!("the \"page\"\n{spelled}"));
        }
        // The text spells the structured form.
        check(Value::from(spelled.as_str()), Some(deep.clone()), &spelled);
        check(block(&spelled), Some(deep.clone()), &spelled);
        check(deep.clone(), None, &spelled);
        check(deep.clone(), Some(deep), &spelled);
    }
}
