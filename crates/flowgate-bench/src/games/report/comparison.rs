//! Compares one defence, the label defence that uses Flowgate's default method, with each other defence on the same
//! tasks, and computes whether a difference can be chance. `flowgate bench games` and `extended` print the
//! comparisons with the figures.

use flowgate_guard::conversation::Method;
use serde_json::Value;

use super::super::defence::Defence;
use super::super::execution::Execution;
use super::super::task::{Side, seed_of};
use super::super::text_table::Table;
use crate::statistics::{PairedComparison, compare_grouped, comparison_table};

/// An event by which defences are compared: its name, and whether it happened in an execution.
type ComparedEvent = (&'static str, fn(&Execution) -> bool);

/// A comparison with the default method: the other defence, the event, and the result.
type Comparison = (Defence, &'static str, PairedComparison);

/// The defence that is compared with the others: the label defence with the default method of guarded conversations.
pub(super) const OURS: Defence = Defence::Labels(Method::LowestFirst);

/// Compares [`OURS`] with each other defence on the same adversarial tasks, by two events: a violation, and a violation
/// that took effect. The list is empty if `OURS` was not measured. `seed` determines the bootstrap samples of the
/// intervals. If the tasks have several seeds, a sample draws seeds and then tasks.
pub(super) fn comparisons(executions: &[Execution], seed: u64) -> Vec<Comparison> {
    let events: [ComparedEvent; 2] =
        [("violated", |execution| execution.is_violated), ("executed", |execution| execution.is_executed)];
    // The adversarial executions under a defence, in the order of the tasks.
    let attacked_under = |defence: Defence| {
        let attacked = executions.iter().filter(|execution| execution.side == Side::Adversarial);
        attacked.filter(move |execution| execution.defence == defence)
    };
    // The other defences, each once.
    let mut others: Vec<Defence> = Vec::new();
    for execution in executions {
        if execution.defence != OURS && !others.contains(&execution.defence) {
            others.push(execution.defence);
        }
    }
    // The seed of each task: tasks of one seed are drawn together.
    let groups: Vec<&str> = attacked_under(OURS).map(|execution| seed_of(&execution.task)).collect();
    let mut compared = Vec::new();
    for other in others {
        for (name, event) in events {
            // Whether the event happened in each task.
            let ours: Vec<bool> = attacked_under(OURS).map(event).collect();
            let theirs: Vec<bool> = attacked_under(other).map(event).collect();
            compared.extend(compare_grouped(&ours, &theirs, &groups, seed).map(|found| (other, name, found)));
        }
    }
    compared
}

/// Returns the comparisons of the default method with each other defence as JSON objects, for JSON lines. `seed`
/// determines the bootstrap samples.
pub fn comparison_rows(executions: &[Execution], seed: u64) -> Vec<Value> {
    let compared = comparisons(executions, seed);
    compared.iter().map(|(other, event, found)| found.to_json(&OURS.name(), &other.name(), event)).collect()
}

/// Returns the comparisons of the default method with each other defence as a table of text; empty if the default was
/// not measured, or if it differs from no other defence in any task.
pub fn comparison_text(executions: &[Execution], seed: u64) -> String {
    comparisons_with_ours(executions, seed).map(|table| table.to_text()).unwrap_or_default()
}

/// Returns the comparisons of the default method with each other defence as a table; `None` if the default was not
/// measured, or if it differs from no other defence in any task.
pub(super) fn comparisons_with_ours(executions: &[Execution], seed: u64) -> Option<Table> {
    let compared = comparisons(executions, seed).into_iter();
    let named = compared.map(|(other, event, found)| (other.name(), event.to_owned(), found));
    comparison_table(&OURS.name(), "tasks", &named.collect::<Vec<_>>())
}
