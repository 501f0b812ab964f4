//! Evaluates `VALUE in tool:NAME`, a condition of `endorse` statements: it holds if the value is in a list that a tool
//! has answered with, and that only trusted principals could extend. The author of the value then chooses one of the
//! listed values, and nothing else.
//!
//! Invariant: the result depends only on regions that are trusted and no more confidential than the call, so that the
//! verdict about the call, which carries the label of the call, reveals nothing else.

use super::{Evaluator, Frame, Result, Value};
use crate::label::{DimensionSet, Label, Space};
use crate::policy::pattern::PatternId;
use crate::trace::{Document, EventBody, EventId, NodeContent, NodeId, Status};

/// The most values that are compared: the author of a value chooses at most so many, which are 16 bits.
const MAX_LISTED: usize = 1 << 16;

impl Evaluator<'_> {
    /// Returns whether an answer of a tool that the pattern matches, seen by the agent before the call in slot 0, contains the
    /// value as a whole text or integer, with the lists and maps around it trusted.
    pub(super) fn is_answered(&mut self, value: &Value, pattern: PatternId, frame: &Frame) -> Result<bool> {
        let Some(Value::Event(call)) = frame.first() else { return Ok(false) };
        let value = self.resolve(value)?;
        // Numbers with a fraction are left out: two that differ could be equal as they are read.
        if !matches!(value, Value::Str(_) | Value::Int(_)) {
            return Ok(false);
        }
        let (plan, trace) = (self.plan, self.trace);
        let (Some(pattern), Some(judged)) = (plan.patterns.get(pattern.0), trace.event(*call)) else {
            return Ok(false);
        };
        let may_decide = |label: &Label| {
            plan.space.restrict(label, plan.space.integrity()) == Label::BOTTOM
                && plan.space.exceeded_dimensions(label, &judged.label, secrecy(&plan.space)).is_empty()
        };
        let mut room = MAX_LISTED;
        for (index, event) in trace.events().iter().enumerate() {
            self.spend(1)?;
            let is_answer = matches!(event.body, EventBody::Output(_))
                && event.status == Status::Done
                && !event.document.origin.is_irregular;
            let tool = event.call.and_then(|call| trace.event(call)).and_then(|call| call.tool());
            if !is_answer
                || !tool.is_some_and(|tool| pattern.matches(tool))
                || !trace.sees(*call, EventId(index))
            {
                continue;
            }
            let (listed, visited) = listed_nodes(&event.document, &may_decide);
            self.spend(visited)?;
            if listed.len() > room {
                return Ok(false);
            }
            room -= listed.len();
            for node in listed {
                let found = self.resolve(&Value::Node(EventId(index), node))?;
                if std::mem::discriminant(&found) == std::mem::discriminant(&value) && found.equals(&value) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// Returns the scalars of a document whose labels, and the labels of everything around them, satisfy the condition; and
/// how many nodes were visited. The subtree of a node that does not satisfy it is skipped and costs no fuel, so that
/// the fuel reveals nothing about it.
fn listed_nodes(document: &Document, may_decide: &impl Fn(&Label) -> bool) -> (Vec<NodeId>, usize) {
    let (mut listed, mut next, mut visited) = (Vec::new(), 0, 0);
    while let Some(node) = document.node(next) {
        visited += 1;
        if !may_decide(&node.label) {
            next = node.end;
            continue;
        }
        if matches!(node.content, NodeContent::Scalar(_)) {
            listed.push(next);
        }
        next += 1;
    }
    (listed, visited)
}

fn secrecy(space: &Space) -> DimensionSet {
    space.all().without(space.integrity())
}
