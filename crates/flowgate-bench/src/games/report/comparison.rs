//! Compares the defence with Flowgate's default method to each other defence on the same tasks, and computes whether a difference can be chance.
//! `flowgate bench games` prints the comparisons with the figures.

use flowgate_guard::conversation::Method;
use serde_json::Value;

use super::super::defence::Defence;
use super::super::execution::Execution;
use super::super::task::Side;
use crate::statistics::compare;

/// An event by which defences are compared: its name, and whether it happened in an execution.
type ComparedEvent = (&'static str, fn(&Execution) -> bool);

/// Compares the label defence with the default method of guarded conversations to each other defence, on the same adversarial tasks. Returns a row
/// for each other defence and each of two events: a violation, and a violation that took effect. Returns no rows if the default was not measured.
/// `seed` determines the bootstrap samples of the intervals.
pub fn comparison_rows(executions: &[Execution], seed: u64) -> Vec<Value> {
    let ours = Defence::Labels(Method::LowestFirst);
    let events: [ComparedEvent; 2] =
        [("violated", |execution| execution.is_violated), ("executed", |execution| execution.is_executed)];
    let happened = |defence: Defence, event: fn(&Execution) -> bool| -> Vec<bool> {
        let attacked = executions.iter().filter(|execution| execution.side == Side::Adversarial);
        attacked.filter(|execution| execution.defence == defence).map(event).collect()
    };
    let mut others: Vec<Defence> = Vec::new();
    for execution in executions {
        if execution.defence != ours && !others.contains(&execution.defence) {
            others.push(execution.defence);
        }
    }
    let compared = others.into_iter().flat_map(|other| {
        events.into_iter().filter_map(move |(name, event)| {
            let found = compare(&happened(ours, event), &happened(other, event), seed)?;
            Some(found.to_json(&ours.name(), &other.name(), name))
        })
    });
    compared.collect()
}
