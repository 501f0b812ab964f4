//! Finds the `label` statements whose capture is applied to the whole content of an event (`out.content`), not to a
//! field of the content. The monitor does not parse content that such a statement may apply to, and
//! [`Policy::load`](super::Policy::load) warns about other statements that label a field of such content.
//!
//! If a `capture` may apply to a content, the content is not parsed as YAML or JSON, so it has no fields, and the label
//! of a field applies to all of it. Otherwise the author of any part of the text could choose whether the text parses,
//! and decide by that whether the part is captured. So whether a content is parsed depends on the policy and the tool,
//! not on the text or the conditions of the statement.

use super::diagnostic::Diagnostic;
use super::plan::{CompiledQuery, LabelStatement, Plan, TargetStep};
use super::source::PolicySource;

impl LabelStatement {
    /// Returns whether the statement captures a part of the text that is the content of the event.
    pub(crate) fn captures_content(&self) -> bool {
        self.target.capture.is_some() && self.has_path_in_content(|steps| steps.is_empty())
    }

    /// Returns whether the statement labels a part of the content. A target that begins at another variable than the
    /// event (slot 0) counts as one, since such a variable ranges over parts of the event; this is an approximation.
    fn labels_within_content(&self) -> bool {
        self.target.root != 0 || self.has_path_in_content(|steps| !steps.is_empty())
    }

    /// Returns whether the target is a path that begins at the content of the event (the variable in slot 0), and the
    /// further steps satisfy `fits`.
    fn has_path_in_content(&self, fits: impl Fn(&[TargetStep]) -> bool) -> bool {
        let [TargetStep::Key(first), rest @ ..] = self.target.steps.as_slice() else { return false };
        self.target.root == 0 && **first == *"content" && fits(rest)
    }
}

/// Warns about statements that label a field of an event's content (such as `out.content.body`) although another
/// statement on the same tool captures a part of the whole content. Content that a statement captures from is not
/// parsed into fields, so the label of the field applies to all of it.
pub(super) fn warnings(plan: &Plan, source: &PolicySource) -> Vec<Diagnostic> {
    let capturing: Vec<&LabelStatement> =
        plan.labels.iter().filter(|statement| statement.captures_content()).collect();
    let field_statements = plan.labels.iter().filter(|statement| statement.labels_within_content());
    let found = field_statements.filter_map(|field_statement| {
        let capture =
            capturing.iter().find(|capture| may_share_tool(plan, &capture.query, &field_statement.query))?;
        let message = "the statement labels a field of a text that is not parsed into fields, so the label \
            applies to the whole text";
        let line = source.locate(capture.span.start).line_name();
        let help = format!(
            "the text is not parsed, since {line} captures from the whole text: capture from a field, \
            or remove one of the two statements"
        );
        Some(Diagnostic::warning("capture-and-fields", field_statement.span.clone(), message).help(help))
    });
    found.collect()
}

/// Returns whether two statements may apply to the same tool, as an approximation: one statement must cover the other.
/// A statement covers another one if each of its tool patterns is also a pattern of the other statement, or matches an
/// example tool of one of those patterns. A regular expression has no example tool, so two statements with different
/// regular expressions count as not sharing a tool, and a warning may be missing.
fn may_share_tool(plan: &Plan, first: &CompiledQuery, second: &CompiledQuery) -> bool {
    // Whether `all` covers `one`. A statement without patterns applies to every tool, so it covers each statement.
    let covers = |all: &CompiledQuery, one: &CompiledQuery| {
        all.tools.iter().all(|id| {
            let pattern = plan.patterns.get(id.0);
            one.tools.iter().any(|other| {
                let example = plan.patterns.get(other.0).and_then(|other| other.example());
                other == id || pattern.zip(example).is_some_and(|(pattern, tool)| pattern.matches(&tool))
            })
        })
    };
    covers(first, second) || covers(second, first)
}
