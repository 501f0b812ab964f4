//! Evaluates rules in the simplest way: tries every assignment of events to variables and evaluates every condition.
//!
//! It is the test oracle for the incremental evaluator: no indexes, no order of conditions, no state between events.
//! Tests call it by [`analyze_naively`](crate::analysis::analyze_naively) and
//! [`analyze_steps_naively`](crate::analysis::analyze_steps_naively).
//! Its cost is the number of events to the power of the number of variables.

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
/// matches of rules with a block that may count it. A failure, also spent fuel, is reported for its rule, and the next
/// rule is tried. All rules share `fuel`.
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
                if new.is_some_and(|id| !changes_other_matches && !is_of_match(id)) {
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

/// Returns whether the event may change matches in which no variable of the rule itself is bound to it: a block of the
/// rule may count the event, the rule reads events of this kind apart from its variables, or it reads no events and so
/// can hold at any time. A condition that cannot be evaluated counts as satisfied.
fn may_change_other_matches(evaluator: &mut Evaluator<'_>, rule: &Rule, id: EventId) -> bool {
    let Some(kind) = event_kind(evaluator.trace, id) else { return false };
    reads_kind(rule, kind)
        || rule.events.iter().filter(|v| !v.is_outer && v.matters_later).any(|variable| {
            let mut frame = vec![Value::Absent; rule.query.slots];
            set(&mut frame, variable.slot, Value::Event(id));
            // `alone` are the conditions on this variable alone.
            let fits = variable.ty == kind || variable.ty == Type::Event;
            fits && evaluator.solve(&variable.alone, &mut frame, &mut |_, _| Ok(true)).unwrap_or(true)
        })
}

/// The callback for each assignment of values to all variables of a rule.
type AssignmentCallback<'f> = dyn FnMut(&mut Evaluator<'_>, &mut Frame) -> Result<(), EvalError> + 'f;

/// Calls `found` with every assignment of values to `variables`, recursively: binds the first variable whose domain can
/// be evaluated to each value there. `frame` contains the values of the variables, by slot; `bound` is the set of slots
/// with a value, as bits. A domain that cannot be evaluated has one value, `Value::Failed`, with which [`satisfies`]
/// fails.
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
    // The first variable whose domain needs no variable without a value. If there is none, all have one.
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
    // Binds it to each value in turn, and then the remaining variables.
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
            // An error becomes the value: it matters only if no condition rules the assignment out.
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

/// Returns whether all conditions hold. A condition that cannot be evaluated is an error only if no other one
/// rules the assignment out.
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
