//! Finds the nodes of an event's value that a statement of the policy refers to, such as `out.content[*].note`.

use crate::eval::{Frame, Value};
use crate::policy::plan::{CompiledExpr, CompiledQuery, LabelStatement, TargetPath, TargetStep};
use crate::trace::{Document, EventId, NodeContent, NodeId, Path, PathStep, Trace};

/// Returns the path from the event to the region that a statement labels: to the rows, and from there to the region.
/// `None` if the rows are computed.
pub(super) fn statement_path(statement: &LabelStatement) -> Option<Vec<TargetStep>> {
    let variables = &statement.query.variables;
    let mut root = statement.target.root;
    let mut ways: Vec<Vec<TargetStep>> = vec![statement.target.steps.clone()];
    while root != 0 {
        let domain = variables.iter().find(|variable| variable.slot == root).and_then(|v| v.domain.as_ref());
        let (next, way) = domain.and_then(domain_path)?;
        ways.push(vec![TargetStep::Each]);
        ways.push(way);
        root = next;
    }
    Some(ways.into_iter().rev().flatten().collect())
}

/// Whether a statement labels a part of the region at `path`, so that it matters in which form the region is.
pub(super) fn labels_parts_of(statement: &LabelStatement, path: &Path) -> bool {
    let Some(steps) = statement_path(statement) else { return true };
    let matches = |(step, at): (&TargetStep, &PathStep)| match (step, at) {
        (TargetStep::Key(key), PathStep::Key(name)) => key == name,
        (TargetStep::Index(index), PathStep::Index(at)) => index == at,
        (TargetStep::Each, _) => true,
        _ => false,
    };
    let goes_below = steps.len() > path.0.len() || statement.target.capture.is_some();
    goes_below && steps.iter().zip(&path.0).all(matches)
}

/// Returns the texts where the statement expects structure, such as a declared list that cannot be read as
/// one. It is unknown which part of the text the statement refers to, so it applies to all of it.
pub(super) fn unstructured_texts(document: &Document, statement: &LabelStatement) -> Vec<NodeId> {
    let Some(steps) = statement_path(statement) else { return vec![0] };
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
