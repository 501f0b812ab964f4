//! Finds statements whose tool pattern is ambiguous: a pattern that names no server and matches tools of two servers.
//! The author of the policy may have meant only one of these tools, so such a statement grants nothing. The modules of
//! `monitor` that apply statements call this one before they apply a statement.

use super::{ApplicableStatements, Monitor, Reason, ReasonKind};
use crate::label::DimensionSet;
use crate::policy::Action;
use crate::policy::pattern::PatternId;
use crate::policy::plan::{CompiledQuery, LabelStatement, Plan};
use crate::trace::Tool;

impl Monitor {
    /// Checks whether one of the tool patterns of a statement is ambiguous, that is, matches tools of two servers. If
    /// so, returns the reason why the statement grants nothing; otherwise `None`. `query` is the query of the
    /// statement.
    ///
    /// `tool` is the tool of the event to which the statement is applied. A tool that has neither been declared nor run
    /// makes a pattern ambiguous for this event only: a name that the model invents does not show that a server offers
    /// the tool.
    pub(super) fn ambiguity_reason(
        &self,
        plan: &Plan,
        query: &CompiledQuery,
        tool: Option<&Tool>,
    ) -> Option<Reason> {
        let is_ambiguous = |id: &&PatternId| self.servers.is_ambiguous_for(&plan.patterns, **id, tool);
        let pattern: &PatternId = query.patterns.iter().find(is_ambiguous)?;
        let name = plan.patterns.get(pattern.0)?;
        let message = format!(
            "`{name}` matches tools of two servers, so the statement grants nothing; name the server in the pattern"
        );
        Some(Reason::new(ReasonKind::AmbiguousTool, Action::Deny, message))
    }

    /// Returns the dimensions that are named by the `label` statements with an ambiguous pattern. In these dimensions,
    /// an event of `tool` has the greatest label (top): such a statement is not applied, although it may exist to raise
    /// what another statement lowers. `applicable` are the statements that apply to the event.
    pub(super) fn ambiguous_dimensions(
        &self,
        plan: &Plan,
        applicable: &ApplicableStatements,
        tool: Option<&Tool>,
    ) -> DimensionSet {
        let statements = applicable.labels.iter().filter_map(|index| plan.labels.get(*index));
        let is_ambiguous =
            |statement: &&LabelStatement| self.ambiguity_reason(plan, &statement.query, tool).is_some();
        statements
            .filter(is_ambiguous)
            .fold(DimensionSet::NONE, |dims, statement| dims.union(statement.label.dims))
    }
}
