//! Determines the evaluation order of the variables and conditions of a query.

use super::{Ex, Item, Op, Slot, Variable};
use crate::value::Value;

/// Orders conditions: binds missing variables in order of declaration, and tests as early as possible.
///
/// `bound` are the slots that already have a value.
pub(crate) fn order(variables: &[Variable], items: &[Item], bound: u64) -> Vec<Op> {
    let mut bound = bound;
    let bit = |slot: Slot| Ex::Slot(slot).needs();
    let mut items: Vec<&Item> = items.iter().collect();
    let mut variables: Vec<&Variable> = variables.iter().filter(|v| bound & bit(v.slot) == 0).collect();
    let mut ops = Vec::new();
    loop {
        let ready = |needs: u64| needs & !bound == 0;
        if let Some(index) = items.iter().position(|item| ready(item.ex().needs())) {
            match items.remove(index) {
                Item::Test(ex) => ops.push(Op::Test(ex.clone())),
                Item::Let(slot, ex) => {
                    bound |= bit(*slot);
                    ops.push(Op::Let(*slot, ex.clone()));
                }
            }
            continue;
        }
        let next =
            variables.iter().position(|v| v.domain.as_ref().is_none_or(|domain| ready(domain.needs())));
        let Some(index) = next else {
            if !items.is_empty() || !variables.is_empty() {
                // Unreachable, since names are resolved in order; a lost condition must not hold.
                ops.push(Op::Test(Ex::Constant(Value::Bool(false))));
            }
            return ops;
        };
        let variable = variables.remove(index);
        bound |= bit(variable.slot);
        ops.push(match &variable.domain {
            Some(domain) => Op::Each(variable.slot, variable.ty, domain.clone()),
            None => Op::Events(variable.slot, variable.ty),
        });
    }
}

/// Returns the conditions on one variable alone, whose result never changes.
///
/// A predicate that reads the trace may come to hold later; `looks_around` lists such predicates.
pub(crate) fn alone(items: &[Item], slot: Slot, looks_around: &[bool]) -> Vec<Op> {
    let only = Ex::Slot(slot).needs();
    let is_settled = |ex: &Ex| {
        let mut settled = true;
        ex.walk(&mut |ex| match ex {
            Ex::Predicate(index, _) => settled &= looks_around.get(*index) == Some(&false),
            Ex::Quantified(_) => settled = false,
            ex if ex.may_ask_for_calls() => settled = false,
            _ => {}
        });
        settled
    };
    let tests = items.iter().filter_map(|item| match item {
        Item::Test(ex) if ex.needs() == only && is_settled(ex) => Some(Op::Test(ex.clone())),
        _ => None,
    });
    tests.collect()
}
