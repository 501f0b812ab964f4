//! Computes labels whose elements come from values of the event, such as the names of readers or the time at which a
//! text was written.
//!
//! [`super::labelling`] uses this module for the labels of data, and [`super::requirement`] for upper bounds.

use crate::eval::{EvalError, Evaluator, Frame, Value};
use crate::label::{ComputedLabelUse, DimensionKind, Label, NameTable, PartialLabel, Space};
use crate::policy::plan::{CompiledExpr, LabelPlan};

/// Returns the greatest label that a statement can grant: its fixed part, and top in the computed dimensions.
pub(super) fn greatest_label(space: &Space, label: &LabelPlan) -> Label {
    let fixed = label.fixed.unwrap_or(PartialLabel::NONE);
    let computed = space.restrict(&space.top(), label.dims.without(fixed.dims));
    fixed.label.join(&computed)
}

/// Computes the label of a statement, `plan`: its fixed part, joined with elements that are computed from values. If
/// the values of an element are missing or of a wrong type, the element is the safe one for the use of the label
/// (`label_use`): the top of its dimension in a label of data, and the bottom in a requirement. `frame` contains the
/// values of the statement's variables.
///
/// # Errors
/// If the evaluation of a value fails for a reason such as spent fuel. A missing value is no error.
pub(super) fn compute_label(
    evaluator: &mut Evaluator<'_>,
    space: &Space,
    name_table: &mut NameTable,
    plan: &LabelPlan,
    frame: &Frame,
    label_use: ComputedLabelUse,
) -> Result<PartialLabel, EvalError> {
    let mut label = plan.fixed.unwrap_or(PartialLabel::NONE);
    for (dimension, arguments) in &plan.computed {
        let Some(index) = space.index(dimension) else { continue };
        let unknown = match label_use {
            ComputedLabelUse::Data => space.dimension_top(index),
            ComputedLabelUse::Requirement => space.dimension_bottom(index),
        };
        let (names, mut is_known) = argument_names(evaluator, arguments, frame)?;
        let is_time =
            space.dimensions().get(index).is_some_and(|dimension| dimension.kind == DimensionKind::Time);
        let computed = if is_time {
            // The join of several times is the oldest one. As a requirement, it would permit more than the other times
            // do, so a requirement must name exactly one time.
            is_known &= !names.is_empty() && (label_use == ComputedLabelUse::Data || names.len() == 1);
            let instants = names.iter().map(|text| space.instant(dimension, crate::builtin::seconds(text)?));
            let instants: Option<Vec<PartialLabel>> = instants.collect();
            instants.map(|all| all.iter().fold(PartialLabel::NONE, |joined, instant| joined.join(instant)))
        } else {
            name_table.set(space, dimension, &names, label_use)
        };
        label = label.join(&computed.filter(|_| is_known).unwrap_or(unknown));
    }
    Ok(label)
}

/// Evaluates the arguments of a computed element. Returns the texts that they contain, and whether every argument is a
/// text or a list of texts.
fn argument_names(
    evaluator: &mut Evaluator<'_>,
    arguments: &[CompiledExpr],
    frame: &Frame,
) -> Result<(Vec<String>, bool), EvalError> {
    // The evaluation of an argument may overwrite variables, which must not change the match.
    let mut frame = frame.clone();
    let mut names = Vec::new();
    let mut are_texts = true;
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
                        None => are_texts = false,
                    }
                }
            }
            _ => are_texts = false,
        }
    }
    Ok((names, are_texts))
}
