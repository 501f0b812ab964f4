//! Formats the figures of a run of `flowgate bench corpus`: as a table of text, as JSON objects, and as an HTML page.
//! The command prints what these functions return.

use serde_json::{Map, Value, json};

use super::case::CallPurpose;
use super::figures::{CaseRow, CorpusFigures, FateCounts, figures};
use crate::games::interval::Rate;
use crate::games::text_table::{Table, table};
use crate::html::{self, Chart, Drawing, Point, ValueWithInterval};

/// Returns the figures of a benchmark's cases as a table of text.
pub fn text(benchmark: &str, rows: &[CaseRow]) -> String {
    figure_table(benchmark, rows).to_text()
}

/// Returns the HTML page of a run: a scatter chart and the table. Each point of the chart is one kind of cases under
/// one method; it compares the share of attacks that ran with the share of the tasks' calls that were permitted. A kind
/// without attacks, or without calls of tasks, has no point.
pub fn page(benchmark: &str, rows: &[CaseRow], manifest: &Value) -> String {
    let rate = |counts: FateCounts| ValueWithInterval::of(Rate { hits: counts.permitted, of: counts.all() });
    let points = figures(rows).into_iter().filter_map(|row| {
        let name = format!("{}: {}", row.group, row.method);
        Some(Point { name, x: rate(row.attacks)?, y: rate(row.actions)? })
    });
    let chart = Drawing::Scatter(Chart {
        title: "Attacks and tasks".to_owned(),
        x: "attacks that ran without a question",
        y: "calls of tasks that ran without a question",
        points: points.collect(),
    });
    html::page(&format!("Benchmark {benchmark}"), manifest, &[chart], &[figure_table(benchmark, rows)])
}

/// Returns the table of the figures, for the table of text ([`text`]) and for the HTML page ([`page`]). `benchmark` is
/// the name of the benchmark. The columns after `attacks` count the attacks by their fates, and those after `actions`
/// the calls of the users' tasks. A call is *unmade* if the double did not make it, because an answer that it needs
/// stayed hidden, or an earlier call did not run. An attack has the fate of its first call that did not run without a
/// question, so it is *unmade* if that call is.
fn figure_table(benchmark: &str, rows: &[CaseRow]) -> Table {
    let header = [
        "cases of",
        "method",
        "cases",
        "attacks",
        "ran",
        "asked",
        "denied",
        "unmade",
        "actions",
        "permitted",
        "asked",
        "denied",
        "unmade",
    ];
    let cells: Vec<Vec<String>> = figures(rows).iter().map(cells).collect();
    let title = format!(
        "{benchmark}: what a drafted policy decides. The double does what the injected text asks; these are not figures of a model."
    );
    table(&title, &header, &cells)
}

/// Returns one row of the table: the kind of the cases, the method, the number of cases, the counts of attacks, and the
/// counts of the tasks' calls. The counts are the number of all, and the numbers of those with each fate.
fn cells(row: &CorpusFigures) -> Vec<String> {
    let counts = |counts: FateCounts| {
        [counts.all(), counts.permitted, counts.asked, counts.denied, counts.unmade]
            .map(|count| count.to_string())
    };
    let mut cells = vec![row.group.clone(), row.method.to_owned(), row.cases.to_string()];
    cells.extend(counts(row.attacks));
    cells.extend(counts(row.actions));
    cells
}

/// Returns the figures of a benchmark as JSON objects: one for each kind of cases and method, with the names of the
/// figures.
pub fn figure_rows(benchmark: &str, rows: &[CaseRow]) -> Vec<Map<String, Value>> {
    figures(rows).iter().map(|row| figure_row(benchmark, row)).collect()
}

/// Returns the figures of one kind of cases under one method as a JSON object.
fn figure_row(benchmark: &str, row: &CorpusFigures) -> Map<String, Value> {
    let (attacks, actions) = (row.attacks, row.actions);
    let row = json!({
        "type": "figures",
        "benchmark": benchmark,
        "group": row.group,
        "method": row.method,
        "cases": row.cases,
        "attacks": attacks.all(),
        "attacks_ran": attacks.permitted,
        "attacks_asked": attacks.asked,
        "attacks_denied": attacks.denied,
        "attacks_unmade": attacks.unmade,
        "actions_permitted": actions.permitted,
        "actions_asked": actions.asked,
        "actions_denied": actions.denied,
        "actions_unmade": actions.unmade,
    });
    row.as_object().cloned().unwrap_or_default()
}

/// Returns each case as an object: its calls, and the fate of each. The objects have the benchmark's names, but none of its texts.
pub fn case_rows(rows: &[CaseRow]) -> Vec<Value> {
    rows.iter().map(case_row).collect()
}

/// Returns the result of one case as a JSON object. `attack` is the fate of the attack as a whole; null without an
/// attack.
fn case_row(row: &CaseRow) -> Value {
    let calls = row.calls.iter().map(|(tool, purpose, fate)| {
        let purpose = if *purpose == CallPurpose::Attack { "attack" } else { "task" };
        json!({"tool": tool, "purpose": purpose, "fate": fate.name()})
    });
    json!({
        "type": "case",
        "case": row.name,
        "group": row.group,
        "method": row.method,
        "attack": row.attack().map(super::run::CallFate::name),
        "calls": calls.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::case::CallPurpose;
    use super::super::run::CallFate;
    use super::*;

    #[test]
    fn a_page_has_a_point_for_each_kind_and_method() {
        let row = |group: &str, method, attack| CaseRow {
            name: "1".to_owned(),
            group: group.to_owned(),
            method,
            calls: vec![
                ("a".to_owned(), CallPurpose::Attack, attack),
                ("b".to_owned(), CallPurpose::Task, CallFate::Permitted),
            ],
        };
        let rows = [row("x", "m", CallFate::Asked), row("<y>", "m", CallFate::Permitted)];
        let page = page("bench", &rows, &json!({"type": "manifest"}));
        for expected in ["x: m", "&lt;y&gt;: m", "Benchmark bench", "<svg"] {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<y>"));
        assert!(text("bench", &rows).contains("<y>"));
    }
}
