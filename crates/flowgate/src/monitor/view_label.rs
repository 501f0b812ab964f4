//! The least label that a view of an event must carry.
//!
//! A view at a bound shows the regions whose labels flow to the bound. A step that was shown the view may carry less than
//! the bound: the join of what it was shown. That join must not reveal *why* a region is hidden. An observer who may not
//! read the region could otherwise learn from the label of the step whether the label of the region flows to the bound.
//! So a hidden region contributes what decided its label:
//!
//! * what statements have read in order to label it, and what was joined into it: the labels of the call and of stores;
//! * the bound, if that does not flow to the bound, or if the label depends on the form of a hidden text;
//! * for a whole answer, the greatest label that another answer could have had in its place: whether a tool returned an
//!   error is hidden with the answer.
//!
//! A label that the policy states without a condition contributes nothing. `docs/guard.md` ("Labels that float") has the
//! proof.

use super::Monitor;
use super::applicable_statements::{statements_for_kind, statements_for_tool};
use super::frame_bounds::greatest_frame_label;
use super::regions::labels_parts_of;
use crate::label::Label;
use crate::policy::plan::{LabelStatement, Type};
use crate::trace::{Document, Event, EventBody, EventId, NodeId, Path, PathStep};

impl Monitor {
    /// Returns the least label of a step that is shown a view of this event at `bound`: the join over the regions of its
    /// content, shown and hidden. The result flows to `bound`.
    pub fn view_label(&self, id: EventId, bound: &Label) -> Label {
        let Some(event) = self.trace.event(id) else { return Label::BOTTOM };
        let document = &event.document;
        if !document.frame_label().flows_to(bound) {
            return self.hidden_label(event, 0, bound);
        }
        let mut carried = document.frame_label();
        for child in document.children(0) {
            // A view shows the text of an answer, not its structured form.
            let is_twin = matches!(event.body, EventBody::Output(_))
                && document.node(child).is_some_and(|node| node.step == PathStep::Key("structured".into()));
            if is_twin {
                continue;
            }
            let end = document.node(child).map_or(child, |node| node.end);
            let mut next = child;
            while next < end
                && let Some(node) = document.node(next)
            {
                if node.label.flows_to(bound) {
                    carried = carried.join(&node.label);
                    next += 1;
                    continue;
                }
                carried = carried
                    .join(&self.hidden_label(event, next, bound))
                    .join(&captured_label(document, next, bound));
                next = node.end;
            }
        }
        carried
    }

    /// Returns what a hidden region contributes to the label of a view at `bound`.
    fn hidden_label(&self, event: &Event, node: NodeId, bound: &Label) -> Label {
        let plan = &self.policy.plan;
        let document = &event.document;
        if document.origin.is_irregular {
            return *bound;
        }
        let up_to_bound = |label: Label| if label.flows_to(bound) { label } else { *bound };
        let indices = match &event.body {
            EventBody::Message(_) => statements_for_kind(plan, Type::Message).labels,
            EventBody::Tool(_) => statements_for_kind(plan, Type::Tool).labels,
            EventBody::Output(_) | EventBody::Call(_) => {
                let call = event.call.and_then(|call| self.trace.event(call));
                let Some(tool) = call.and_then(|call| call.tool()) else { return *bound };
                statements_for_tool(plan, tool).labels
            }
        };
        let statements = indices.iter().filter_map(|index| plan.labels.get(*index));
        let path = document.path(node);
        let content = Path(vec![PathStep::Key("content".into())]);
        let is_answer = matches!(event.body, EventBody::Output(_)) && (node == 0 || path == content);
        if is_answer {
            let depends_on_content =
                |statement: &LabelStatement| statement.reads || labels_parts_of(statement, &content);
            if statements.clone().any(depends_on_content) {
                return *bound;
            }
            return greatest_frame_label(plan, &indices, bound).join(&up_to_bound(document.origin.raised));
        }
        if statements.clone().any(|statement| labels_parts_of(statement, &path)) {
            return *bound;
        }
        up_to_bound(document.floor_of(node).join(&document.origin.raised))
    }
}

/// Returns the label of the captured parts of a hidden text, which a view shows if they flow to the bound.
fn captured_label(document: &Document, text: NodeId, bound: &Label) -> Label {
    let parts = document.children(text).filter_map(|child| document.node(child));
    let shown = parts.filter(|part| matches!(part.step, PathStep::Capture(_)) && part.label.flows_to(bound));
    shown.fold(Label::BOTTOM, |joined, part| joined.join(&part.label))
}
