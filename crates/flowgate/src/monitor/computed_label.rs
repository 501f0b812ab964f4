//! Computes labels whose elements come from values of the event, such as the names of readers or an instant.
//!
//! [`super::labelling`] calls it for the labels of data, and [`super::requirement`] for upper bounds.

use crate::eval::{EvalError, Evaluator, Frame, Value};
use crate::label::{ComputedLabelUse, DimensionKind, Label, NameTable, PartialLabel, Space};
use crate::policy::plan::LabelPlan;

/// Returns the greatest label that a statement can grant.
pub(super) fn greatest_label(space: &Space, label: &LabelPlan) -> Label {
    let fixed = label.fixed.unwrap_or(PartialLabel::NONE);
    let computed = space.restrict(&space.top(), label.dims.without(fixed.dims));
    fixed.label.join(&computed)
}

/// Evaluates a label plan; `bound` decides how an unknown value is rounded.
pub(super) fn compute_label(
    evaluator: &mut Evaluator<'_>,
    space: &Space,
    roster: &mut NameTable,
    plan: &LabelPlan,
    frame: &Frame,
    bound: ComputedLabelUse,
) -> Result<PartialLabel, EvalError> {
    let mut label = plan.fixed.unwrap_or(PartialLabel::NONE);
    for (dimension, arguments) in &plan.computed {
        let Some(index) = space.index(dimension) else { continue };
        let unknown = match bound {
            ComputedLabelUse::Data => space.dimension_top(index),
            ComputedLabelUse::Requirement => space.dimension_bottom(index),
        };
        let mut frame = frame.clone();
        let mut names = Vec::new();
        let mut is_known = true;
        for argument in arguments {
            let value = match evaluator.evaluate(argument, &mut frame) {
                Err(EvalError::Missing) => Value::Absent,
                value => value?,
            };
            match evaluator.resolve_structure(&value)? {
                Value::Str(name) => names.push(name.to_string()),
                Value::List(items) => {
                    for item in items.iter() {
                        match item.as_text() {
                            Some(name) => names.push(name.to_owned()),
                            None => is_known = false,
                        }
                    }
                }
                _ => is_known = false,
            }
        }
        let is_time =
            space.dimensions().get(index).is_some_and(|dimension| dimension.kind == DimensionKind::Time);
        let computed = if is_time {
            is_known &= !names.is_empty() && (bound == ComputedLabelUse::Data || names.len() == 1);
            let instants = names.iter().map(|text| space.instant(dimension, crate::builtin::seconds(text)?));
            let instants: Option<Vec<PartialLabel>> = instants.collect();
            instants.map(|all| all.iter().fold(PartialLabel::NONE, |joined, instant| joined.join(instant)))
        } else {
            roster.set(space, dimension, &names, bound)
        };
        label = label.join(&computed.filter(|_| is_known).unwrap_or(unknown));
    }
    Ok(label)
}
