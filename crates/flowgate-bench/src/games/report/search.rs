//! Prints the results of attack searches, which [`adaptive`](crate::games::adaptive) makes for `flowgate bench games --queries`.

use super::super::adaptive::{AttackSearch, search_rates};
use super::super::defence::Defence;
use super::super::text_table::{cell, table};
use super::interval_cell;

/// Prints a table of attack searches with a row for each defence: the shares of tasks in which the search opened the channel, reached a violation,
/// and reached one that took effect, and the mean number of queries until the first effect, over the tasks that have one. `queries` is the limit.
pub fn search_table(searches: &[AttackSearch], queries: usize) -> String {
    let mut defences: Vec<Defence> = Vec::new();
    for search in searches {
        if !defences.contains(&search.defence) {
            defences.push(search.defence);
        }
    }
    let header =
        ["defence", "tasks", "opened", "violated", "executed", "executed (95 %)", "queries to effect"];
    let row = |defence: &Defence| {
        let of_defence = searches.iter().filter(|search| search.defence == *defence);
        let of_defence: Vec<AttackSearch> = of_defence.cloned().collect();
        let [opened, violated, executed] = search_rates(&of_defence);
        let needed: Vec<f64> =
            of_defence.iter().filter_map(|search| search.executed_at).map(|at| at as f64).collect();
        let mean = (!needed.is_empty()).then(|| needed.iter().sum::<f64>() / needed.len() as f64);
        vec![
            defence.name(),
            of_defence.len().to_string(),
            cell(opened.value()),
            cell(violated.value()),
            cell(executed.value()),
            interval_cell(executed),
            mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.1}")),
        ]
    };
    let title = format!("attack search, at most {queries} queries for each task (beyond the paper)");
    table(&title, &header, &defences.iter().map(row).collect::<Vec<_>>()).to_text()
}
