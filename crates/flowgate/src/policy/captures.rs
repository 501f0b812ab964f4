//! Finds the `label` statements that capture a part of the whole content of an event (`out.content`), and warns about
//! labels of fields of the same content, which then apply to all of it.
//!
//! If a statement may capture a part of a content, the content is not parsed as YAML or JSON, so it has no fields. The
//! author of any part of a text can choose whether the text parses, and must not decide by that whether a part is captured.
//! So whether a content is parsed depends on the policy and the tool, not on the text or the conditions of the statement.

use super::diagnostic::Diagnostic;
use super::plan::{CompiledQuery, LabelStatement, Plan, TargetStep};
use super::source::PolicySource;

impl LabelStatement {
    /// Returns whether it captures a part of the text that is the content of the event.
    pub(crate) fn captures_content(&self) -> bool {
        self.target.capture.is_some() && self.targets(|steps| steps.is_empty())
    }

    /// Returns whether it labels a part of the content.
    fn labels_within_content(&self) -> bool {
        self.target.root != 0 || self.targets(|steps| !steps.is_empty())
    }

    /// Returns whether the target is a path from the content of the event, and its further steps satisfy `fits`.
    fn targets(&self, fits: impl Fn(&[TargetStep]) -> bool) -> bool {
        let [TargetStep::Key(first), rest @ ..] = self.target.steps.as_slice() else { return false };
        self.target.root == 0 && **first == *"content" && fits(rest)
    }
}

/// Returns a warning for each label of a field of a content from which another statement captures a part.
pub(super) fn warnings(plan: &Plan, source: &PolicySource) -> Vec<Diagnostic> {
    let capturing: Vec<&LabelStatement> =
        plan.labels.iter().filter(|statement| statement.captures_content()).collect();
    let within = plan.labels.iter().filter(|statement| statement.labels_within_content());
    let found = within.filter_map(|fields| {
        let capture = capturing.iter().find(|capture| may_share_tool(plan, &capture.query, &fields.query))?;
        let message = "the statement labels a field of a text that is not parsed into fields, so the label \
            applies to the whole text";
        let line = source.locate(capture.span.start).line_name();
        let help = format!(
            "the text is not parsed, since {line} captures from the whole text: capture from a field, \
            or remove one of the two statements"
        );
        Some(Diagnostic::warning("capture-and-fields", fields.span.clone(), message).help(help))
    });
    found.collect()
}

/// Returns whether two statements may be about the same tool, as far as their patterns are comparable.
fn may_share_tool(plan: &Plan, first: &CompiledQuery, second: &CompiledQuery) -> bool {
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
