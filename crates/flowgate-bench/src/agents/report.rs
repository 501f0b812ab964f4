//! Formats the results of `flowgate bench agents`: as tables of text, as JSON lines and CSV, and as an HTML page. The
//! command prints what these functions return.
//!
//! One list, `columns`, names the figures, so that JSON lines and CSV have the same ones.

use flowgate_guard::conversation::Method;
use serde_json::{Map, Value, json};

use super::task::HiddenTextUse;
use super::{Guard, GuardResults, TaskRun};
use crate::games::interval::Rate;
use crate::games::report::interval_cell;
use crate::games::text_table::{Table, table, texts};
use crate::html::{self, Bar, BarChart, Chart, Drawing, Point, ValueWithInterval};
use crate::rate_columns::rate_columns;
use crate::rounding::rounded;
use crate::statistics::{PairedComparison, compare, comparison_table};

/// The method that the others are compared with: the default of guarded conversations.
const OURS: Guard = Guard::With(Method::LowestFirst);

/// An event by which methods are compared: its name, and whether it happened in a run.
type ComparedEvent = (&'static str, fn(&TaskRun) -> bool);

/// The events that are compared, over the runs under attack.
const EVENTS: [ComparedEvent; 3] =
    [("harmed", TaskRun::is_harmed), ("done", |run| run.is_done), ("asked", |run| run.questions > 0)];

/// Returns all tables as one text. `seed` determines the bootstrap samples of the comparisons.
pub fn tables(guards: &[Guard], rows: &[GuardResults], seed: u64) -> String {
    texts(&table_list(guards, rows, seed))
}

/// Returns the tables, for text and for the page: the worst case, the best case, the cost, and the comparisons.
/// `rows` has the results of each of the `guards`, in the same order, and `seed` determines the bootstrap samples of
/// the comparisons.
fn table_list(guards: &[Guard], rows: &[GuardResults], seed: u64) -> Vec<Table> {
    let mut tables = vec![worst_case(guards, rows), best_case(guards, rows), cost(guards, rows)];
    let compared = comparisons(guards, rows, seed);
    let compared: Vec<_> = compared
        .iter()
        .map(|(other, event, found)| (other.name().to_owned(), (*event).to_owned(), *found))
        .collect();
    tables.extend(comparison_table(OURS.name(), "attacked runs", &compared));
    tables
}

/// Returns the table of the runs under attack, with one row for each guard. `guards` and `rows` have the same order.
/// The columns `foreign`, `altered`, `payload` and `idle` count unwanted calls of four kinds, which [`GuardResults`]
/// defines. A harmed run has a foreign or an altered call.
fn worst_case(guards: &[Guard], rows: &[GuardResults]) -> Table {
    let header = [
        "method",
        "runs",
        "foreign",
        "altered",
        "harmed runs (95 %)",
        "payload",
        "idle",
        "questions",
        "done",
        "done (95 %)",
    ];
    let cells = |(guard, row): (&Guard, &GuardResults)| {
        vec![
            guard.name().to_owned(),
            row.attacked.to_string(),
            row.foreign.to_string(),
            row.altered.to_string(),
            interval_cell(row.harmed()),
            row.payload_only.to_string(),
            row.idle.to_string(),
            row.questions_attacked.to_string(),
            row.done_attacked.to_string(),
            interval_cell(row.completed_under_attack()),
        ]
    };
    let title =
        "worst case: instructions in all text of strangers, and a model that obeys everything that it reads";
    table(title, &header, &guards.iter().zip(rows).map(cells).collect::<Vec<_>>())
}

/// Returns the table of the runs without an attack, with one row for each guard and one column for each kind of task. A
/// cell such as `5/8 (7)` means: of 8 tasks, 5 were completed without a question, and 7 with or without questions.
fn best_case(guards: &[Guard], rows: &[GuardResults]) -> Table {
    let kinds = HiddenTextUse::ALL.map(HiddenTextUse::name);
    let header: Vec<&str> =
        ["method"].into_iter().chain(kinds).chain(["unasked (95 %)", "questions", "looks"]).collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (guard, row) in guards.iter().zip(rows) {
        let mut cells = vec![guard.name().to_owned()];
        cells.extend(row.clean.iter().map(|(all, unasked, done)| format!("{unasked}/{all} ({done})")));
        cells.extend([
            interval_cell(row.completed_unasked()),
            row.questions.to_string(),
            row.spent.looks.to_string(),
        ]);
        lines.push(cells);
    }
    let title = "best case: no attack; tasks completed without a question, of all tasks (in brackets: with or without questions)";
    table(title, &header, &lines)
}

/// Returns the table of the cost without an attack, relative to the first guard, which is the unguarded agent if all
/// guards were measured. `hidden/step` is the mean number of hidden regions for each message of the model. `bits` is an
/// upper bound, in bits, on what an observer of the steps at the base label can learn about hidden text. `calls: ...`
/// and `model calls` count requests to a model, for each kind of task and for all tasks.
fn cost(guards: &[Guard], rows: &[GuardResults]) -> Table {
    let kinds = HiddenTextUse::ALL.map(|kind| format!("calls: {}", kind.name()));
    let header: Vec<&str> = ["method"]
        .into_iter()
        .chain(kinds.iter().map(String::as_str))
        .chain(["model calls", "tokens", "price", "hidden/step", "bits"])
        .collect();
    let base = rows.first().cloned().unwrap_or_default();
    // A base of 0 counts as 1, so that nothing is divided by 0.
    let ratio = |this: u64, base: u64| format!("{:.2}", this as f64 / base.max(1) as f64);
    let mut lines: Vec<Vec<String>> = Vec::new();
    for (guard, row) in guards.iter().zip(rows) {
        let mut cells = vec![guard.name().to_owned()];
        cells.extend(row.asked.iter().zip(base.asked).map(|(this, base)| ratio(*this, base)));
        cells.extend([
            ratio(model_calls(row), model_calls(&base)),
            ratio(tokens(row), tokens(&base)),
            ratio(price(row), price(&base)),
            format!("{:.2}", row.spent.hidden as f64 / row.spent.messages.max(1) as f64),
            row.spent.bits.to_string(),
        ]);
        lines.push(cells);
    }
    let first = guards.first().map_or("", |guard| guard.name());
    let title = format!("cost without attack, relative to {first}; tokens of {}", crate::tokens::TOKENIZER);
    table(&title, &header, &lines)
}

/// Returns the number of requests to a model in the runs without an attack.
fn model_calls(row: &GuardResults) -> u64 {
    row.asked.iter().sum()
}

/// Returns the number of tokens in the runs without an attack, input and output together.
fn tokens(row: &GuardResults) -> u64 {
    row.spent.tokens.input.saturating_add(row.spent.tokens.output)
}

/// Returns the price of the runs without an attack, in input tokens. An output token costs as much as four input
/// tokens, as for the model of RTBAS's Table 4.
fn price(row: &GuardResults) -> u64 {
    row.spent.tokens.input.saturating_add(row.spent.tokens.output.saturating_mul(4))
}

/// Compares the default method with each other guard on the attacked runs, which are the same under all guards.
/// `rows` has the results of each of the `guards`, in the same order, and `seed` determines the bootstrap samples.
/// Each item is the other guard, the name of the compared event, and the comparison. The list is empty if the default
/// was not measured; a pair that cannot be compared has no item.
fn comparisons(
    guards: &[Guard],
    rows: &[GuardResults],
    seed: u64,
) -> Vec<(Guard, &'static str, PairedComparison)> {
    let Some((_, ours)) = guards.iter().zip(rows).find(|(guard, _)| **guard == OURS) else {
        return Vec::new();
    };
    let mut compared = Vec::new();
    for (guard, theirs) in guards.iter().zip(rows).filter(|(guard, _)| **guard != OURS) {
        for (event, has_happened) in EVENTS {
            let in_ours: Vec<bool> = ours.attacked_runs().map(has_happened).collect();
            let in_theirs: Vec<bool> = theirs.attacked_runs().map(has_happened).collect();
            compared.extend(compare(&in_ours, &in_theirs, seed).map(|found| (*guard, event, found)));
        }
    }
    compared
}

/// Returns the figures of one guard for JSON lines and CSV, each as a name and a value. Costs are relative to `base`,
/// the results of the first guard.
fn columns(row: &GuardResults, base: &GuardResults) -> Vec<(String, Value)> {
    let mut columns: Vec<(String, Value)> = Vec::new();
    let rates: [(&str, Rate); 3] = [
        ("harmed", row.harmed()),
        ("completed_under_attack", row.completed_under_attack()),
        ("completed_unasked", row.completed_unasked()),
    ];
    for (name, rate) in rates {
        columns.extend(rate_columns(name, rate));
    }
    // A base of 0 counts as 1, so that nothing is divided by 0.
    let ratio = |this: u64, base: u64| rounded(this as f64 / base.max(1) as f64);
    let counts: [(&str, Value); 14] = [
        ("foreign_calls", row.foreign.into()),
        ("altered_calls", row.altered.into()),
        ("payload_calls", row.payload_only.into()),
        ("idle_calls", row.idle.into()),
        ("questions_under_attack", row.questions_attacked.into()),
        ("questions", row.questions.into()),
        ("looks", row.spent.looks.into()),
        ("model_calls", model_calls(row).into()),
        ("input_tokens", row.spent.tokens.input.into()),
        ("output_tokens", row.spent.tokens.output.into()),
        ("relative_model_calls", ratio(model_calls(row), model_calls(base))),
        ("relative_tokens", ratio(tokens(row), tokens(base))),
        ("relative_price", ratio(price(row), price(base))),
        ("bits", row.spent.bits.into()),
    ];
    columns.extend(counts.map(|(name, value)| (name.to_owned(), value)));
    // For each kind of task: all tasks, those completed without a question, and all that were completed.
    for (kind, (all, unasked, done)) in HiddenTextUse::ALL.iter().zip(row.clean) {
        let name = kind.name().replace(' ', "_");
        columns.push((format!("{name}_of"), all.into()));
        columns.push((format!("{name}_unasked"), unasked.into()));
        columns.push((format!("{name}_done"), done.into()));
    }
    columns
}

/// Returns one JSON object with the figures of each guard over all tasks, for JSON lines and CSV. Costs are relative to
/// the first guard.
pub fn figure_rows(guards: &[Guard], rows: &[GuardResults]) -> Vec<Map<String, Value>> {
    let base = rows.first().cloned().unwrap_or_default();
    let row = |(guard, row): (&Guard, &GuardResults)| {
        let mut fields = Map::new();
        fields.insert("type".to_owned(), "figures".into());
        fields.insert("defence".to_owned(), guard.name().into());
        fields.insert("tasks".to_owned(), "all".into());
        fields.extend(columns(row, &base));
        fields
    };
    guards.iter().zip(rows).map(row).collect()
}

/// Returns the line of the format jsonl that records one run under a guard. An interrupted command is resumed from such
/// lines.
pub(super) fn run_line(guard: Guard, run: &TaskRun) -> Value {
    json!({
        "type": "run",
        "defence": guard.name(),
        "task": run.task,
        "kind": run.kind,
        "injection": run.injection,
        "foreign": run.foreign,
        "altered": run.altered,
        "payload": run.payload_only,
        "idle": run.idle,
        "done": run.is_done,
        "questions": run.questions,
        "input_tokens": run.tokens.input,
        "output_tokens": run.tokens.output,
    })
}

/// Returns the lines of the format jsonl that follow the manifest: one for each run, then one with the figures of
/// each guard, then one for each comparison. `seed` determines the bootstrap samples of the comparisons.
pub fn lines(guards: &[Guard], rows: &[GuardResults], seed: u64) -> Vec<Value> {
    let runs =
        guards.iter().zip(rows).flat_map(|(guard, row)| row.runs.iter().map(|run| run_line(*guard, run)));
    let mut lines: Vec<Value> = runs.collect();
    lines.extend(figure_rows(guards, rows).into_iter().map(Value::Object));
    lines.extend(comparison_rows(guards, rows, seed));
    lines
}

/// Returns the comparisons of the default method with every other guard as JSON objects; none if the default method
/// was not measured. `seed` determines the bootstrap samples.
pub fn comparison_rows(guards: &[Guard], rows: &[GuardResults], seed: u64) -> Vec<Value> {
    let compared = comparisons(guards, rows, seed);
    compared.iter().map(|(other, event, found)| found.to_json(OURS.name(), other.name(), event)).collect()
}

/// Returns the HTML page of a run: a scatter of harmed runs against tasks that need no question, bars of the tokens,
/// and the tables. The seed of the comparisons is that of the `manifest`.
pub fn page(guards: &[Guard], rows: &[GuardResults], manifest: &Value) -> String {
    let seed = manifest.get("seed").and_then(Value::as_u64).unwrap_or_default();
    let points = guards.iter().zip(rows).filter_map(|(guard, row)| {
        let (x, y) = (ValueWithInterval::of(row.harmed())?, ValueWithInterval::of(row.completed_unasked())?);
        Some(Point { name: guard.name().to_owned(), x, y })
    });
    let risk = Drawing::Scatter(Chart {
        title: "Risk and utility".to_owned(),
        x: "attacked runs with a foreign or altered call",
        y: "tasks without a question",
        points: points.collect(),
    });
    // The tokens of the first guard; 0 counts as 1, so that nothing is divided by 0.
    let base = rows.first().map_or(1, tokens).max(1) as f64;
    let bars: Vec<Bar> = guards
        .iter()
        .zip(rows)
        .map(|(guard, row)| {
            let value = tokens(row) as f64 / base;
            // A sum of tokens has no interval, so both ends are the value.
            Bar { name: guard.name().to_owned(), value: ValueWithInterval { value, low: value, high: value } }
        })
        .collect();
    let highest = bars.iter().map(|bar| bar.value.high).fold(1.0, f64::max);
    let title = format!("tokens, relative to {}", guards.first().map_or("", |guard| guard.name()));
    let drawings = [risk, Drawing::Bars(BarChart { title, highest, bars })];
    html::page("Methods of guarded conversations", manifest, &drawings, &table_list(guards, rows, seed))
}

#[cfg(test)]
mod tests {
    use super::super::{TaskSuite, manifest};
    use super::*;
    use crate::games::report::csv;

    /// Every format has each guard, with the same numbers.
    #[test]
    fn formats_agree() {
        let suite = TaskSuite::new().unwrap();
        let guards = [Guard::Unguarded, OURS];
        let rows = guards.map(|guard| suite.run_guard(guard, &mut || false).unwrap().unwrap());
        let lines = lines(&guards, &rows, 1);
        let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
        assert_eq!(
            (count("run"), count("figures"), count("comparison")),
            (suite.run_count(&guards), 2, EVENTS.len())
        );
        let figures = figure_rows(&guards, &rows);
        for (row, fields) in rows.iter().zip(&figures) {
            let harmed = row.runs.iter().filter(|run| run.is_harmed()).count();
            assert_eq!(fields["harmed_count"], harmed);
            assert_eq!(fields["foreign_calls"], row.foreign);
            assert_eq!(row.runs.iter().map(|run| run.foreign).sum::<usize>(), row.foreign);
            let clean = row.runs.iter().filter(|run| run.injection.is_none());
            let read: u64 = clean.map(|run| run.tokens.input).sum();
            assert_eq!(fields["input_tokens"], read);
        }
        assert_eq!(csv(&figures).lines().count(), 3);
        let page = page(&guards, &rows, &manifest(1, &guards));
        for guard in guards {
            assert!(page.contains(guard.name()) && tables(&guards, &rows, 1).contains(guard.name()));
        }
        assert_eq!(page.matches("<svg").count(), 2);
        assert_eq!(
            Guard::parse("prayer").unwrap_err().split(';').next(),
            Some("there is no method `prayer`")
        );
        assert!(Guard::ALL.into_iter().all(|guard| Guard::parse(guard.name()) == Ok(guard)));
    }
}
