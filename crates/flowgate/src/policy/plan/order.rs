//! Orders the variables and conditions of a query for its evaluation ([`order_conditions`]): a condition is tested as
//! soon as its variables have values, so that the search ends early. Also selects the conditions on one variable alone
//! whose result never changes ([`single_variable_conditions`]), so that `rules` evaluates them only once for each
//! event. The compiler calls both functions.

use super::{CompiledExpr, QueryItem, SearchOp, Variable, VariableSlot};
use crate::value::Value;

/// Returns the steps of a search for assignments that satisfy all conditions. `items` are the conditions and the
/// definitions (`NAME := VALUE`), and `bound` is the set of variables that have a value before the search, as bits.
///
/// The next step is always a condition or definition whose variables have values. If there is none, the next step gives
/// a value to a variable: to the first one, in order of declaration, whose domain (the list that it ranges over) can be
/// evaluated.
pub(crate) fn order_conditions(variables: &[Variable], items: &[QueryItem], bound: u64) -> Vec<SearchOp> {
    let mut bound = bound;
    let bit = |slot: VariableSlot| CompiledExpr::Slot(slot).required_slots();
    let mut items: Vec<&QueryItem> = items.iter().collect();
    let mut variables: Vec<&Variable> = variables.iter().filter(|v| bound & bit(v.slot) == 0).collect();
    let mut ops = Vec::new();
    loop {
        // First a condition or definition whose variables all have values.
        let can_evaluate = |needs: u64| needs & !bound == 0;
        if let Some(index) = items.iter().position(|item| can_evaluate(item.expression().required_slots())) {
            match items.remove(index) {
                QueryItem::Test(ex) => ops.push(SearchOp::Test(ex.clone())),
                QueryItem::Let(slot, ex) => {
                    bound |= bit(*slot);
                    ops.push(SearchOp::Let(*slot, ex.clone()));
                }
            }
            continue;
        }
        // If there is none, the next variable gets a value.
        let next = variables
            .iter()
            .position(|v| v.domain.as_ref().is_none_or(|domain| can_evaluate(domain.required_slots())));
        let Some(index) = next else {
            if !items.is_empty() || !variables.is_empty() {
                // Unreachable, since names are resolved in order. If it happened, a false condition would ensure that
                // nothing matches without the conditions that are left.
                ops.push(SearchOp::Test(CompiledExpr::Constant(Value::Bool(false))));
            }
            return ops;
        };
        let variable = variables.remove(index);
        bound |= bit(variable.slot);
        ops.push(match &variable.domain {
            Some(domain) => SearchOp::Each(variable.slot, variable.ty, domain.clone()),
            None => SearchOp::Events(variable.slot, variable.ty),
        });
    }
}

/// Returns the conditions that use only the variable `slot` and whose result for an event never changes, so that
/// `rules` evaluates them once, when the event arrives.
///
/// The result of a condition that reads other events may change later, so such a condition is left out: one that calls
/// a predicate which reads other events, contains a block such as `forall:`, or reads the calls that a message
/// proposes. `looks_around` says for each predicate, by its index, whether it reads other events.
pub(crate) fn single_variable_conditions(
    items: &[QueryItem],
    slot: VariableSlot,
    looks_around: &[bool],
) -> Vec<SearchOp> {
    let only = CompiledExpr::Slot(slot).required_slots();
    // Whether the result of an expression for an event never changes.
    let is_settled = |ex: &CompiledExpr| {
        let mut settled = true;
        ex.walk(&mut |ex| match ex {
            CompiledExpr::Predicate(index, _) => settled &= looks_around.get(*index) == Some(&false),
            CompiledExpr::Quantified(_) => settled = false,
            ex if ex.may_read_calls() => settled = false,
            _ => {}
        });
        settled
    };
    let tests = items.iter().filter_map(|item| match item {
        QueryItem::Test(ex) if ex.required_slots() == only && is_settled(ex) => {
            Some(SearchOp::Test(ex.clone()))
        }
        _ => None,
    });
    tests.collect()
}
