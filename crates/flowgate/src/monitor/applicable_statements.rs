//! Selects the statements of a policy that apply to a tool or to a kind of event. The monitor caches the selection for
//! each tool, so that judging a call does not match all patterns again.

use std::sync::Arc;

use super::Monitor;
use crate::policy::plan::{CompiledQuery, LabelStatement, Plan, Type};
use crate::trace::Tool;

/// The statements that apply to a tool or to a kind of event, each by its index in the plan. They are computed once for
/// each tool and kind.
#[derive(Debug, Default)]
pub(super) struct ApplicableStatements {
    pub(super) labels: Vec<usize>,
    pub(super) requirements: Vec<usize>,
    pub(super) payloads: Vec<usize>,
    pub(super) consents: Vec<usize>,
    pub(super) endorsements: Vec<usize>,
    /// Whether one of the label statements may capture a part of the content.
    pub(super) captures_content: bool,
}

impl Monitor {
    /// Returns the statements that apply to a tool, from the cache if possible.
    pub(super) fn applicable(&mut self, tool: &Tool) -> Arc<ApplicableStatements> {
        if let Some(cached) = self.applicable.get(tool) {
            return Arc::clone(cached);
        }
        let statements = Arc::new(statements_for_tool(&self.policy.plan, tool));
        self.applicable.insert(tool.clone(), Arc::clone(&statements));
        statements
    }
}

/// Returns the statements that apply to a tool. A statement applies if all its patterns for the tool of its event (a
/// call or an output) match the tool. Of the `label` statements, only those about outputs are returned.
pub(super) fn statements_for_tool(plan: &Plan, tool: &Tool) -> ApplicableStatements {
    let matches = |query: &CompiledQuery| {
        query.tools.iter().all(|id| plan.patterns.get(id.0).is_some_and(|pattern| pattern.matches(tool)))
    };
    // The indices of the statements of one kind that apply; `count` is the number of statements of this kind.
    let indices = |applies: &dyn Fn(usize) -> bool, count: usize| {
        (0..count).filter(|i| applies(*i)).collect::<Vec<_>>()
    };
    let label_applies = |i: usize| {
        plan.labels.get(i).is_some_and(|s| first_type(&s.query) == Type::ToolOutput && matches(&s.query))
    };
    let requirement_applies = |i: usize| plan.requirements.get(i).is_some_and(|s| matches(&s.query));
    let payload_applies = |i: usize| plan.payloads.get(i).is_some_and(|s| matches(&s.query));
    let consent_applies = |i: usize| plan.consents.get(i).is_some_and(|s| matches(&s.query));
    let endorsement_applies = |i: usize| plan.endorsements.get(i).is_some_and(|s| matches(&s.query));
    let labels = indices(&label_applies, plan.labels.len());
    let mut label_statements = labels.iter().filter_map(|index| plan.labels.get(*index));
    ApplicableStatements {
        captures_content: label_statements.any(LabelStatement::captures_content),
        labels,
        requirements: indices(&requirement_applies, plan.requirements.len()),
        payloads: indices(&payload_applies, plan.payloads.len()),
        consents: indices(&consent_applies, plan.consents.len()),
        endorsements: indices(&endorsement_applies, plan.endorsements.len()),
    }
}

/// Returns the statements that can label events of a kind: messages, or descriptions of tools. The tool patterns of the
/// statements are not compared with any tool. So of the statements about descriptions, the result contains those about
/// every tool.
pub(super) fn statements_for_kind(plan: &Plan, kind: Type) -> ApplicableStatements {
    let fits = |statement: &LabelStatement| first_type(&statement.query) == kind;
    let labels = plan.labels.iter().enumerate().filter(|(_, s)| fits(s)).map(|(i, _)| i).collect();
    ApplicableStatements { labels, ..ApplicableStatements::default() }
}

/// Returns the type of the event that a statement is about: the type of the first variable of its query, which is in
/// slot 0. [`Type::Any`] if the query has no variable.
fn first_type(query: &CompiledQuery) -> Type {
    query.variables.iter().find(|variable| variable.slot == 0).map_or(Type::Any, |variable| variable.ty)
}
