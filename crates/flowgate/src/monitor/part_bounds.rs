//! Computes an upper bound on the label of what a view could show in the place of a hidden region. `view_label` calls
//! this module.
//!
//! What a view shows in the place of a hidden region can depend on the content of the region: a statement may label a
//! part that a pattern captures, or a field that exists only if the value is a map. If only the parts that are shown
//! added their labels to the label of the step, that label would be lower whenever the region has no such part, and an
//! observer of the label would learn this about hidden text. So a hidden region adds the join of all labels that the
//! view could show in its place, whatever the region contains (`docs/guard.md`, "Labels that float").

use super::regions::{labels_around, statement_path};
use crate::label::{DimensionSet, Label, PartialLabel, Space};
use crate::policy::plan::{LabelStatement, Plan};
use crate::trace::Path;

/// The label that a statement, or the default of the policy, gives to regions at one depth.
struct PossibleGrant {
    /// How deep in the event the labelled region is: 0 for the default of the policy, 1 for the whole event, 2 for one
    /// of its fields. `None` if this is unknown.
    depth: Option<usize>,
    /// Whether the labelled region is the hidden one or contains it. Otherwise it is a part of the hidden region.
    covers: bool,
    /// The label, in the dimensions that the statement names. A computed element is the bound.
    label: Label,
    dims: DimensionSet,
    /// The dimensions in which the label does not flow to the bound.
    exceeded: DimensionSet,
}

impl PossibleGrant {
    /// Returns the grant of the default of the policy, which holds where no statement does.
    fn of_default(plan: &Plan, bound: &Label) -> Self {
        let (space, label) = (&plan.space, plan.default.unwrap_or_else(|| plan.space.top()));
        let exceeded = space.exceeded_dimensions(&label, bound, space.all());
        Self { depth: Some(0), covers: true, label, dims: space.all(), exceeded }
    }

    /// Returns the grant of a statement that labels the hidden region at `path`, a region around it, or a part of it.
    /// In the dimensions of computed elements, the label of the grant is `bound`.
    fn of_statement(space: &Space, statement: &LabelStatement, path: &Path, bound: &Label) -> Self {
        let fixed = statement.label.fixed.unwrap_or(PartialLabel::NONE);
        let computed = space.restrict(bound, statement.label.dims.without(fixed.dims));
        let steps = statement_path(statement).map(|steps| steps.len());
        // A captured part lies in the text to which the steps lead.
        let captures = statement.target.capture.is_some();
        Self {
            // The default has the depth 0, so a statement about the whole event has the depth 1.
            depth: steps.map(|steps| 1 + steps + usize::from(captures)),
            covers: !captures && steps.is_some_and(|steps| steps <= path.0.len()),
            label: fixed.label.join(&computed),
            dims: statement.label.dims,
            exceeded: space.exceeded_dimensions(&fixed.label, bound, fixed.dims),
        }
    }

    /// Returns whether the grant holds for regions below those of `outer`. True if a depth is unknown: more statements
    /// then count as ones that can replace an exceeded label, so the bound is too great rather than too low.
    fn is_below(&self, outer: &Self) -> bool {
        self.depth.zip(outer.depth).is_none_or(|(own, outer)| own > outer)
    }
}

/// Returns an upper bound on the label of what a view at `bound` shows in the place of the region at `path`, whatever
/// the region contains. `statements` are the indices of the `label` statements for the kind of the event; none of them
/// has a condition. The result flows to `bound`, and depends on nothing but the policy.
///
/// A region has in each dimension the label of the innermost statement that names the dimension. So the label that a
/// statement grants in a dimension counts only if a region can have this label and be shown. There are two conditions.
/// First, no statement for a region further inside names the dimension and covers the hidden region: its label would
/// always replace the granted one. Second, wherever the granted label exceeds the bound in another dimension, a
/// statement further inside can replace it there: otherwise no region with the granted label is shown.
pub(super) fn greatest_part_label(plan: &Plan, statements: &[usize], path: &Path, bound: &Label) -> Label {
    let space = &plan.space;
    let around = statements.iter().filter_map(|index| plan.labels.get(*index));
    let around = around.filter(|statement| labels_around(statement, path));
    let mut grants = vec![PossibleGrant::of_default(plan, bound)];
    grants.extend(around.map(|statement| PossibleGrant::of_statement(space, statement, path, bound)));
    let dimensions = || 0..space.dimensions().len();
    // Whether the label of `grant` counts in the dimension `kept`: the two conditions of the documentation.
    let counts = |grant: &PossibleGrant, kept: usize| {
        let is_named_inside = |inner: &PossibleGrant| {
            let is_known = inner.depth.is_some() && grant.depth.is_some();
            is_known && inner.covers && inner.is_below(grant) && inner.dims.has(kept)
        };
        let is_replaceable = |dimension: usize| {
            let replaces = |inner: &PossibleGrant| {
                inner.is_below(grant)
                    && inner.dims.has(dimension)
                    && !inner.exceeded.has(dimension)
                    && !inner.dims.has(kept)
            };
            grants.iter().any(replaces)
        };
        let mut exceeded = dimensions().filter(|dimension| grant.exceeded.has(*dimension));
        !grants.iter().any(is_named_inside) && exceeded.all(is_replaceable)
    };
    grants.iter().fold(Label::BOTTOM, |joined, grant| {
        let is_kept =
            |index: &usize| grant.dims.has(*index) && !grant.exceeded.has(*index) && counts(grant, *index);
        let kept = dimensions().filter(is_kept).map(DimensionSet::single);
        let kept = kept.fold(DimensionSet::NONE, DimensionSet::union);
        joined.join(&space.restrict(&grant.label, kept))
    })
}
