//! Computes the greatest label, up to a bound, that the frame of an event can have under a policy. The *frame* of an
//! event is the fact that the event exists, as opposed to its content. `view_label` calls this module.
//!
//! The label of a step must not reveal what is hidden from the step. Suppose that a policy hides the errors of a tool
//! and shows its other answers, which raise the label of the step. If a hidden answer left the label unchanged, the low
//! label would reveal that the answer was an error. So a hidden answer raises the label of the step as much as any
//! answer of the tool could have raised it and still be shown (`docs/guard.md`, "Labels that float").

use crate::label::{DimensionSet, Label, PartialLabel};
use crate::policy::plan::{LabelStatement, Plan, TargetStep};

/// Returns the greatest frame label that an event of one kind can have and still be shown. The frame label is the label
/// of the event's existence and of its error flag; an event is shown if this label flows to `bound`. `statements` are
/// the indices, in `plan.labels`, of the statements that can label events of this kind. The result is an upper bound
/// that flows to `bound`, and depends on nothing but the policy. It is bottom if no such event can be shown.
pub(super) fn greatest_frame_label(plan: &Plan, statements: &[usize], bound: &Label) -> Label {
    let space = &plan.space;
    let default = plan.default.unwrap_or_else(|| space.top());
    let flows_to_bound =
        |label: &Label, dims: DimensionSet| space.exceeded_dimensions(label, bound, dims).is_empty();
    // The statements that can label the frame.
    let covering = || {
        let statements = statements.iter().filter_map(|index| plan.labels.get(*index));
        statements.filter(|statement| covers_frame(statement))
    };
    // In each dimension, the frame has the label of a statement about the event itself, or of one about the content if
    // there is none. With statements of both kinds, the frame can have the labels of both, in different dimensions.
    let is_mixed = covering().any(|statement| statement.target.steps.is_empty())
        && covering().any(|statement| !statement.target.steps.is_empty());
    // The label that each of these statements grants the frame of an event that is shown.
    let mut grants: Vec<PartialLabel> = Vec::new();
    for statement in covering() {
        // A computed element can be anything up to the bound.
        let fixed = statement.label.fixed.unwrap_or(PartialLabel::NONE);
        let computed = space.restrict(bound, statement.label.dims.without(fixed.dims));
        let mut grant = PartialLabel { dims: statement.label.dims, label: fixed.label.join(&computed) };
        if is_mixed {
            // In a dimension in which this label exceeds the bound, the frame can have the label of another statement.
            let dims = grant.dims.without(space.exceeded_dimensions(&grant.label, bound, grant.dims));
            grant = PartialLabel { dims, label: space.restrict(&grant.label, dims) };
        }
        // An event with a label above the bound is not shown.
        if flows_to_bound(&grant.label, grant.dims) {
            grants.push(grant);
        }
    }
    // The dimensions in which the default exceeds the bound: an event is shown only if a statement labels it in each of
    // them.
    let single = |index: usize| DimensionSet::single(index);
    let is_needed = |index: &usize| !flows_to_bound(&default, single(*index));
    let needed: Vec<usize> = (0..space.dimensions().len()).filter(is_needed).collect();
    let is_granted = |dimension: &usize| grants.iter().any(|grant| grant.dims.has(*dimension));
    if !needed.iter().all(is_granted) {
        // No statement can lower the default to the bound.
        return Label::BOTTOM;
    }
    // In each needed dimension, some statement labels every event that is shown. If each statement that can do so also
    // labels the dimension `index`, no event that is shown has the default in `index`.
    let is_default_possible = |index: usize| {
        let is_granted_without_index =
            |other: &usize| grants.iter().any(|grant| grant.dims.has(*other) && !grant.dims.has(index));
        needed.iter().all(is_granted_without_index)
    };
    let granted = grants.iter().fold(Label::BOTTOM, |joined, grant| joined.join(&grant.label));
    (0..space.dimensions().len())
        .filter(|index| !needed.contains(index) && is_default_possible(*index))
        .fold(granted, |joined, index| joined.join(&space.restrict(&default, single(index))))
}

/// Returns whether a statement labels an event as a whole, and with that its existence: its target is the event (the
/// variable in slot 0) or all of its content, and not a part that a pattern captures there.
fn covers_frame(statement: &LabelStatement) -> bool {
    let is_whole = match statement.target.steps.as_slice() {
        // `out[*]` is each field of the event, and so also the content.
        [] | [TargetStep::Each] => true,
        [TargetStep::Key(name)] => **name == *"content",
        _ => false,
    };
    statement.target.capture.is_none() && statement.target.root == 0 && is_whole
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::monitor::Monitor;
    use crate::monitor::applicable_statements::statements_for_kind;
    use crate::policy::Policy;
    use crate::policy::plan::Type;

    const DIMENSIONS: &str =
        "lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < private\n";

    #[test]
    fn an_event_that_is_shown_has_a_label_that_some_statement_grants() {
        let check = |statements: &str, (integrity, secrecy): (&str, &str), expected: &str| {
            let policy = Policy::parse(&format!("{DIMENSIONS}{statements}")).unwrap();
            let monitor = Monitor::new(Arc::new(policy));
            let element = |dimension, name| monitor.policy().space().element(dimension, name).unwrap().label;
            let bound = element("integrity", integrity).join(&element("secrecy", secrecy));
            let plan = &monitor.policy.plan;
            let found = greatest_frame_label(plan, &statements_for_kind(plan, Type::Message).labels, &bound);
            assert!(found.flows_to(&bound), "{statements}");
            assert_eq!(monitor.describe(&found).join(", "), expected, "{statements}");
        };
        let by_role = |role: &str, label: &str| {
            format!("label m as {label} if:\n    (m: Message)\n    m.role == \"{role}\"\n")
        };
        let public = by_role("user", "trusted, public");
        let strict = ("trusted", "private");
        // Without a statement, no message is shown.
        check("", strict, "trusted, public");
        // All messages that are shown are covered by the statement, so none has the default.
        check(&public, strict, "trusted, public");
        check(&format!("{public}{}", by_role("memory", "trusted, internal")), strict, "trusted, internal");
        // A message above the bound is not shown.
        check(&format!("{public}{}", by_role("memory", "untrusted, internal")), strict, "trusted, public");
        check(
            &format!("{public}{}", by_role("memory", "trusted, private")),
            ("trusted", "internal"),
            "trusted, public",
        );
        // The statement leaves the default in the other dimension.
        check(&by_role("user", "trusted"), strict, "trusted, private");
        // The default is below the bound, so it is the label of any message that no statement covers.
        check(&format!("default trusted, internal\n{public}"), strict, "trusted, internal");
        check(&public, ("untrusted", "private"), "untrusted, private");
        // A computed element can be anything that is shown.
        let computed =
            "lattice sources: set\nlabel m as trusted, public, sources(m.role) if:\n    (m: Message)\n";
        let policy = Policy::parse(&format!("{DIMENSIONS}{computed}")).unwrap();
        let monitor = Monitor::new(Arc::new(policy));
        let (plan, top) = (&monitor.policy.plan, monitor.policy().space().top());
        let sources = |label: &Label| plan.space.restrict(label, DimensionSet::single(2));
        // An untrusted message is not shown, so the statement covers all that are.
        let bound = plan.space.restrict(&top, DimensionSet::single(1)).join(&sources(&top));
        let found = greatest_frame_label(plan, &statements_for_kind(plan, Type::Message).labels, &bound);
        assert_eq!(sources(&found), sources(&top));
        // The frame takes integrity from the one, and secrecy from the other.
        let mixed = format!(
            "label m as trusted if:\n    (m: Message)\n{}",
            "label m.content as untrusted, internal if:\n    (m: Message)\n"
        );
        check(&mixed, ("trusted", "internal"), "trusted, internal");
        // Parts of messages say nothing about their existence.
        check("label m.content[*] as trusted, public if:\n    (m: Message)\n", strict, "trusted, public");
    }
}
