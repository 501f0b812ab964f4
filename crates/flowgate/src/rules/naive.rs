//! Evaluates rules by exhaustive search: tries every assignment of events to variables and evaluates every condition.
//!
//! This is the test oracle for the incremental evaluator ([`super::RuleMatcher`]): it has no indexes, no order of
//! conditions and no state between events. Its cost is the number of events to the power of the number of variables.
//! Tests call it by [`analyze_naively`](crate::analysis::analyze_naively) and
//! [`analyze_steps_naively`](crate::analysis::analyze_steps_naively).

use super::{MatchReceiver, RuleContext, event_kind, reads_kind};
use crate::eval::{EvalError, Evaluator, Frame, Value, set};
use crate::policy::plan::{CompiledExpr, QueryItem, Rule, Type, Variable};
use crate::trace::EventId;

/// Reports all matches of all rules over the whole trace.
pub(crate) fn analyze(context: RuleContext<'_>, fuel: &mut u64, report: &mut impl MatchReceiver) {
    // `None`: the matches need not contain a new event.
    report_matches(context, None, fuel, report);
}

/// Reports the matches that the event `id`, the last one of the trace, completes: matches that bind it to a variable,
/// and all matches of the rules with a block that may count it. Tests compare them with the matches that
/// [`RuleMatcher`](super::RuleMatcher) reports.
pub(crate) fn match_event(
    context: RuleContext<'_>,
    id: EventId,
    fuel: &mut u64,
    report: &mut impl MatchReceiver,
) {
    report_matches(context, Some(id), fuel, report);
}

/// Reports all matches of all rules. If `new` is an event, reports only the matches that bind it to a variable, and all
/// matches of rules whose other matches it may change. A failure of a rule, such as spent fuel, is reported, and the
/// next rule is tried. All rules share `fuel`.
fn report_matches(
    context: RuleContext<'_>,
    new: Option<EventId>,
    fuel: &mut u64,
    report: &mut impl MatchReceiver,
) {
    for (index, rule) in context.plan.rules.iter().enumerate() {
        let mut evaluator = context.evaluator(fuel);
        let changes_other_matches = new.is_some_and(|id| may_change_other_matches(&mut evaluator, rule, id));
        let mut frame = vec![Value::Absent; rule.query.slots];
        let variables: Vec<&Variable> = rule.query.variables.iter().collect();
        // The slots of the event variables outside of blocks: only these belong to a match.
        let outer: Vec<usize> = rule.events.iter().filter(|v| v.is_outer).map(|v| v.slot).collect();
        // The search begins with 0, the empty set of variables that have a value.
        let result =
            assign(&mut evaluator, &variables, &rule.query.items, 0, &mut frame, &mut |evaluator, frame| {
                let is_of_match =
                    |id: EventId| outer.iter().any(|slot| frame.get(*slot) == Some(&Value::Event(id)));
                // Matches of earlier events alone were reported before, unless the new event may change them.
                let is_excluded = new.is_some_and(|id| !changes_other_matches && !is_of_match(id));
                if is_excluded {
                    return Ok(());
                }
                match satisfies(evaluator, &rule.query.items, frame) {
                    // Whether the receiver would end the search is ignored: the oracle tries every assignment.
                    Ok(true) => report.receive_match(evaluator, index, frame).map(|_| ()),
                    Ok(false) => Ok(()),
                    Err(EvalError::Fuel) => Err(EvalError::Fuel),
                    Err(error) => {
                        report.receive_failure(index, error);
                        Ok(())
                    }
                }
            });
        if let Err(error) = result {
            report.receive_failure(index, error);
        }
    }
}

/// Returns whether the event `id` may change which matches the rule has among other events, so that all matches of the
/// rule must be reported again. This is so if a block of the rule (`count` or `forall`, which has variables of its own)
/// may count the event, or if [`reads_kind`] holds for the rule and the kind of the event. A condition of the block that
/// cannot be evaluated counts as satisfied.
fn may_change_other_matches(evaluator: &mut Evaluator<'_>, rule: &Rule, id: EventId) -> bool {
    let Some(kind) = event_kind(evaluator.trace, id) else { return false };
    reads_kind(rule, kind)
        // The variables of blocks whose events can be counted after the match.
        || rule.events.iter().filter(|v| !v.is_outer && v.matters_later).any(|variable| {
            let mut frame = vec![Value::Absent; rule.query.slots];
            set(&mut frame, variable.slot, Value::Event(id));
            // `alone` are the conditions on this variable alone. `Ok(true)` ends the search: one match suffices.
            let fits = variable.ty == kind || variable.ty == Type::Event;
            fits && evaluator.solve(&variable.alone, &mut frame, &mut |_, _| Ok(true)).unwrap_or(true)
        })
}

/// The callback for each assignment of values to all variables of a rule.
type AssignmentCallback<'f> = dyn FnMut(&mut Evaluator<'_>, &mut Frame) -> Result<(), EvalError> + 'f;

/// Calls `found` with every assignment of values to `variables`. Each level of the recursion binds one variable: the
/// first one whose domain needs no variable without a value. It is bound to each value of its domain in turn. `frame`
/// contains the values of the variables, by slot; `bound` is the set of slots with a value, as bits. If the evaluation
/// of a domain fails, the domain counts as the one value `Value::Failed`, with which [`satisfies`] fails.
fn assign(
    evaluator: &mut Evaluator<'_>,
    variables: &[&Variable],
    items: &[QueryItem],
    bound: u64,
    frame: &mut Frame,
    found: &mut AssignmentCallback<'_>,
) -> Result<(), EvalError> {
    evaluator.spend(1)?;
    let bound = bind_definitions(evaluator, items, bound, frame)?;
    // The first variable whose domain can be evaluated. If there is none, all variables have a value.
    let next =
        variables.iter().position(|v| v.domain.as_ref().is_none_or(|ex| ex.required_slots() & !bound == 0));
    let Some(index) = next else { return found(evaluator, frame) };
    let Some(variable) = variables.get(index) else { return Ok(()) };
    let rest: Vec<&Variable> =
        variables.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, v)| *v).collect();
    let values = match &variable.domain {
        None => (0..evaluator.trace.len()).map(|id| Value::Event(EventId(id))).collect(),
        Some(domain) => match evaluator.domain_values(domain, variable.ty, frame) {
            Ok(values) => values,
            Err(EvalError::Fuel) => return Err(EvalError::Fuel),
            Err(error) => vec![Value::Failed(error.into())],
        },
    };
    // Binds the variable to each value in turn, and the remaining variables by recursion.
    for value in values {
        if evaluator.has_type(&value, variable.ty) {
            let mut frame = frame.clone();
            set(&mut frame, variable.slot, value);
            assign(
                evaluator,
                &rest,
                items,
                bound | CompiledExpr::Slot(variable.slot).required_slots(),
                &mut frame,
                found,
            )?;
        }
    }
    Ok(())
}

/// Evaluates the definitions in `items` (`NAME := VALUE`) that need only bound variables, and binds their names.
/// Returns the set of slots that have a value afterwards.
fn bind_definitions(
    evaluator: &mut Evaluator<'_>,
    items: &[QueryItem],
    mut bound: u64,
    frame: &mut Frame,
) -> Result<u64, EvalError> {
    for item in items {
        if let QueryItem::Let(slot, ex) = item
            && ex.required_slots() & !bound == 0
        {
            // An error becomes the value, since it does not matter if a condition excludes the assignment.
            let value = match evaluator.evaluate(ex, frame) {
                Ok(value) => value,
                Err(EvalError::Fuel) => return Err(EvalError::Fuel),
                Err(error) => Value::Failed(error.into()),
            };
            set(frame, *slot, value);
            bound |= CompiledExpr::Slot(*slot).required_slots();
        }
    }
    Ok(bound)
}

/// Returns whether all conditions hold for the values in `frame`. A value or a condition whose evaluation fails is an
/// error only if no condition is false.
fn satisfies(
    evaluator: &mut Evaluator<'_>,
    items: &[QueryItem],
    frame: &mut Frame,
) -> Result<bool, EvalError> {
    // The first failure: of a value in the frame, or else of a condition.
    let mut failure = frame.iter().find_map(|value| match value {
        Value::Failed(error) => Some((**error).clone()),
        _ => None,
    });
    for item in items {
        let QueryItem::Test(ex) = item else { continue };
        match evaluator.holds(ex, frame) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(EvalError::Fuel) => return Err(EvalError::Fuel),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(true), Err)
}
