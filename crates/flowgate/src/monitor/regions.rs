//! Finds the nodes of an event's value that a statement of the policy refers to, such as `out.content[*].note`. The
//! modules that label events and judge calls use it to apply a statement to these nodes.

use crate::eval::{Frame, Value};
use crate::policy::plan::{CompiledExpr, CompiledQuery, LabelStatement, TargetPath, TargetStep};
use crate::trace::{Document, EventId, NodeContent, NodeId, Path, PathStep, Trace};

/// Returns the path from the event to the region that a statement labels. If the statement iterates over rows (the
/// items of a list in the event), the path leads to the list, to each row, and on to the region. `None` if the list is
/// a computed value.
pub(super) fn statement_path(statement: &LabelStatement) -> Option<Vec<TargetStep>> {
    let variables = &statement.query.variables;
    // Slot 0 of a query is the event; any other root is a variable that ranges over rows. The loop goes from the region
    // outwards to the event, so the collected paths are in reverse order.
    let mut root = statement.target.root;
    let mut partial_paths: Vec<Vec<TargetStep>> = vec![statement.target.steps.clone()];
    while root != 0 {
        let domain = variables.iter().find(|variable| variable.slot == root).and_then(|v| v.domain.as_ref());
        let (next, path_to_rows) = domain.and_then(domain_path)?;
        partial_paths.push(vec![TargetStep::Each]);
        partial_paths.push(path_to_rows);
        root = next;
    }
    Some(partial_paths.into_iter().rev().flatten().collect())
}

/// Returns whether a statement labels a part of the region at `path`; then its effect depends on how the region is
/// divided. True if the path of the statement is unknown.
pub(super) fn labels_parts_of(statement: &LabelStatement, path: &Path) -> bool {
    let Some(steps) = statement_path(statement) else { return true };
    // A capture is a part of a text, so it is a part of the region even if no step leads below it.
    let goes_below = steps.len() > path.0.len() || statement.target.capture.is_some();
    goes_below && agrees_with(&steps, path)
}

/// Returns whether a statement labels the region at `path`, a part of it, or a region that contains it. True if the path
/// of the statement is unknown.
pub(super) fn labels_around(statement: &LabelStatement, path: &Path) -> bool {
    statement_path(statement).is_none_or(|steps| agrees_with(&steps, path))
}

/// Returns whether a statement labels its region in every event in which the region exists: it reads nothing, and has no
/// line besides the one that names the tool of the event. Any other line can be a test, which may fail, or a loop over a
/// list, which may be empty.
pub(super) fn is_unconditional(statement: &LabelStatement) -> bool {
    !statement.reads && statement.query.items.len() <= statement.query.tools.len()
}

/// Returns whether `steps` can lead along `path`, as far as the shorter of them goes.
fn agrees_with(steps: &[TargetStep], path: &Path) -> bool {
    let matches = |(step, at): (&TargetStep, &PathStep)| match (step, at) {
        (TargetStep::Key(key), PathStep::Key(name)) => key == name,
        (TargetStep::Index(index), PathStep::Index(at)) => index == at,
        (TargetStep::Each, _) => true,
        _ => false,
    };
    steps.iter().zip(&path.0).all(matches)
}

/// Returns the texts of an event that are at a place where the statement expects a list or a map. A number and a
/// Boolean count as texts here. It is unknown to which part of such a text the statement refers, so the caller applies
/// the statement to the whole text. The result contains the whole event (node 0) if the event was not divided into its
/// fields although the statement names a part of a field, or if the path of the statement is unknown.
pub(super) fn unstructured_texts(document: &Document, statement: &LabelStatement) -> Vec<NodeId> {
    let Some(steps) = statement_path(statement) else { return vec![0] };
    let is_text = |node: NodeId| {
        document
            .node(node)
            .is_some_and(|node| matches!(&node.content, NodeContent::Scalar(value) if !value.is_null()))
    };
    let (mut nodes, mut texts) = (vec![0], Vec::new());
    for step in &steps {
        texts.extend(nodes.iter().copied().filter(|node| is_text(*node)));
        nodes = nodes.iter().flat_map(|node| child_nodes(document, *node, step)).collect();
    }
    // An event that is too large, or an output whose text and structured form differ, was not divided. A path of one
    // step names a whole field, such as `content`, which exists nevertheless.
    if steps.len() > 1 && (document.twins_differ || document.is_oversize) {
        texts.push(0);
    }
    texts
}

/// Splits a domain (the list that a variable ranges over) such as `row.a.b` into the slot of the variable at its start,
/// here `row`, and the path from there, here `a.b`. `None` if the domain is another kind of expression.
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

/// Returns a frame for a query about one event: the event is in slot 0, and all other variables are unset.
pub(super) fn event_frame(query: &CompiledQuery, id: EventId) -> Frame {
    // `max(1)`: the event has its slot even if the query has no variables.
    let mut frame = vec![Value::Absent; query.slots.max(1)];
    if let Some(first) = frame.first_mut() {
        *first = Value::Event(id);
    }
    frame
}

/// Returns the nodes of the event `of` that a target refers to, under the assignment `frame` of values to variables.
/// Empty if the target is in another event, or if its variable has no region as its value. For a target with a capture,
/// returns the texts that contain the captured parts.
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
