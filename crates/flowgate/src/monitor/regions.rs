//! The nodes of an event that a statement of the policy refers to.

use crate::eval::{Frame, Value};
use crate::policy::plan::{CompiledExpr, CompiledQuery, LabelStatement, TargetPath, TargetStep};
use crate::trace::{Document, EventId, NodeContent, NodeId, PathStep, Trace};

/// Returns the texts where the statement expects structure, such as a declared list that cannot be read as
/// one. It is unknown which part of the text the statement refers to, so it applies to all of it.
pub(super) fn unstructured_texts(document: &Document, statement: &LabelStatement) -> Vec<NodeId> {
    let variables = &statement.query.variables;
    // From the event down: the paths to the rows, and from there to the region.
    let mut steps: Vec<TargetStep> = Vec::new();
    let mut root = statement.target.root;
    let mut ways: Vec<Vec<TargetStep>> = vec![statement.target.steps.clone()];
    while root != 0 {
        let domain = variables.iter().find(|variable| variable.slot == root).and_then(|v| v.domain.as_ref());
        let Some((next, way)) = domain.and_then(domain_path) else { return vec![0] };
        ways.push(vec![TargetStep::Each]);
        ways.push(way);
        root = next;
    }
    ways.into_iter().rev().for_each(|way| steps.extend(way));
    let is_text = |node: NodeId| {
        document
            .node(node)
            .is_some_and(|node| matches!(&node.content, NodeContent::Scalar(value) if !value.is_null()))
    };
    let (mut nodes, mut found) = (vec![0], Vec::new());
    for step in &steps {
        found.extend(nodes.iter().copied().filter(|node| is_text(*node)));
        nodes = nodes.iter().flat_map(|node| child_nodes(document, *node, step)).collect();
    }
    // An output whose text and structured form differ, or that is too large, was not divided either.
    if steps.len() > 1 && (document.twins_differ || document.is_oversize) {
        found.push(0);
    }
    found
}

/// Returns the slot and the path of `row.a.b`.
fn domain_path(domain: &CompiledExpr) -> Option<(usize, Vec<TargetStep>)> {
    match domain {
        CompiledExpr::Slot(slot) => Some((*slot, Vec::new())),
        CompiledExpr::Member(object, name) => {
            let (slot, mut steps) = domain_path(object)?;
            steps.push(TargetStep::Key(name.clone()));
            Some((slot, steps))
        }
        _ => None,
    }
}

/// Returns the nodes that a step of a target leads to.
fn child_nodes(document: &Document, node: NodeId, step: &TargetStep) -> Vec<NodeId> {
    match step {
        TargetStep::Key(key) => document.key(node, key).into_iter().collect(),
        TargetStep::Index(index) => document.child(node, &PathStep::Index(*index)).into_iter().collect(),
        TargetStep::Each => document.children(node).collect(),
    }
}

/// Returns a frame with the event in slot 0.
pub(super) fn event_frame(query: &CompiledQuery, id: EventId) -> Frame {
    let mut frame = vec![Value::Absent; query.slots.max(1)];
    if let Some(first) = frame.first_mut() {
        *first = Value::Event(id);
    }
    frame
}

/// Returns the nodes of the event `of` that a target refers to.
pub(super) fn region_nodes(trace: &Trace, target: &TargetPath, frame: &Frame, of: EventId) -> Vec<NodeId> {
    let (event, root) = match frame.get(target.root) {
        Some(Value::Event(event)) => (*event, 0),
        Some(Value::Node(event, node)) => (*event, *node),
        _ => return Vec::new(),
    };
    if event != of {
        return Vec::new();
    }
    let Some(document) = trace.event(event).map(|event| &event.document) else { return Vec::new() };
    let mut nodes = vec![root];
    for step in &target.steps {
        nodes = nodes.iter().flat_map(|node| child_nodes(document, *node, step)).collect();
    }
    nodes
}
