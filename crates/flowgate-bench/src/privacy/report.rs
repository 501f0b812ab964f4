//! Formats the figures of a run of the privacy suite: as tables of text, as rows for JSON lines and CSV, and as an HTML
//! page.
//!
//! `flowgate bench privacy` prints what these functions return. One list, `rates`, names all measured numbers, so
//! that JSON lines and CSV have the same ones. References such as `Table 2`, `Figure 7` and `8.3.1` are to the RTBAS
//! paper.

use flowgate_lm::chat::Usage;
use serde_json::{Map, Value, json};

use super::check::Composition;
use super::defence::OURS;
use super::definitions::{definition_table, prose_rates};
use super::measure::{PrivacyFigures, TaskResult};
use super::reference::{PAPER, PAPER_TASKS};
use super::seeds::{spread_rows, spread_table};
use super::suite::{DefenceResults, TaskGroup};
use super::task::{LeakPattern, Suite};
use super::unmeasured::{Unmeasured, reason_table};
use super::world::WorldVariant;
use crate::games::interval::Rate;
use crate::games::report::interval_cell;
use crate::games::text_table::{Table, cell, table, texts};
use crate::html::{self, Bar, BarChart, Chart, Drawing, Point, ValueWithInterval};
use crate::rate_columns::rate_columns;
use crate::statistics::{PairedComparison, compare, comparison_table};

/// An event by which defences are compared: its name, and whether it happened in a task.
type ComparedEvent = (&'static str, fn(&TaskResult) -> bool);

/// The events that are compared.
const EVENTS: [ComparedEvent; 4] = [
    ("missed", |result| result.is_missed),
    ("over_asked", |result| result.is_over_asked),
    ("utility_allowed", |result| result.succeeds_if_allowed),
    ("utility_refused", |result| result.succeeds_if_refused),
];

/// Returns the rates of one row, each with the name of its column in JSON lines and CSV.
fn rates(figures: &PrivacyFigures) -> [(&'static str, Rate); 7] {
    [
        ("false_negatives", figures.missed),
        ("false_positives", figures.over_asked),
        ("utility_allowed", figures.utility_allowed),
        ("utility_refused", figures.utility_refused),
        ("exact_categories", figures.exact),
        ("exact_categories_private", figures.exact_private),
        ("disclosed", figures.disclosed),
    ]
}

/// Returns the figures of one defence as rows for JSON lines and CSV: one row for all tasks, one for each suite and
/// one for each pattern. Each rate has several columns: its counts, its value, and the ends of its Wilson interval at
/// 95 %. The value of a part without cases is null.
pub fn figure_rows(results: &DefenceResults) -> Vec<Map<String, Value>> {
    let row = |scope: TaskGroup| {
        let figures = results.figures(scope);
        let mut row = Map::new();
        row.insert("type".to_owned(), "figures".into());
        row.insert("defence".to_owned(), results.defence.name().into());
        row.insert("variant".to_owned(), results.defence.variant().name().into());
        row.insert("tasks".to_owned(), scope.name().into());
        row.insert("questions".to_owned(), figures.questions.into());
        row.insert("input_tokens".to_owned(), figures.tokens.map(|tokens| tokens.input).into());
        row.insert("output_tokens".to_owned(), figures.tokens.map(|tokens| tokens.output).into());
        for (name, rate) in rates(&figures).into_iter().chain(prose_rates(&figures)) {
            row.extend(rate_columns(name, rate));
        }
        row
    };
    TaskGroup::all().into_iter().map(row).collect()
}

/// Returns the result of each task of one defence as a JSON object, for JSON lines.
pub fn task_rows(results: &DefenceResults) -> Vec<Value> {
    let row = |result: &TaskResult| {
        json!({
            "type": "task",
            "defence": results.defence.name(),
            "variant": results.defence.variant().name(),
            "suite": result.suite.name(),
            "task": result.task,
            "pattern": result.pattern.name(),
            "missed": result.is_missed,
            "over_asked": result.is_over_asked,
            "utility_allowed": result.succeeds_if_allowed,
            "utility_refused": result.succeeds_if_refused,
            "disclosed": result.is_disclosed,
            "questions": result.questions,
            "input_tokens": result.tokens.map(|tokens| tokens.input),
            "output_tokens": result.tokens.map(|tokens| tokens.output),
            "exact": result.exact,
            "calls": result.calls,
            "exact_private": result.exact_private,
            "private_calls": result.private_calls,
        })
    };
    results.tasks.iter().map(row).collect()
}

/// Compares [`OURS`], the default defence, with each other defence on the same variant of the data, task by task, for
/// each event of [`EVENTS`]. Each item is the name of the other defence, the name of the event, and the comparison.
/// The list is empty if the default was not measured. `seed` determines the samples of the bootstrap intervals.
fn comparisons(all: &[DefenceResults], seed: u64) -> Vec<(&'static str, &'static str, PairedComparison)> {
    let Some(ours) = all.iter().find(|results| results.defence.name() == OURS) else { return Vec::new() };
    let is_comparable = |results: &&DefenceResults| {
        results.defence != ours.defence && results.defence.variant() == ours.defence.variant()
    };
    let mut compared = Vec::new();
    for other in all.iter().filter(is_comparable) {
        for (event, has_happened) in EVENTS {
            let in_ours: Vec<bool> = ours.tasks.iter().map(has_happened).collect();
            let in_other: Vec<bool> = other.tasks.iter().map(has_happened).collect();
            let found = compare(&in_ours, &in_other, seed);
            compared.extend(found.map(|found| (other.defence.name(), event, found)));
        }
    }
    compared
}

/// Returns the comparisons of [`OURS`] with every other defence as JSON objects; none if the default was not measured.
pub fn comparison_rows(all: &[DefenceResults], seed: u64) -> Vec<Value> {
    let row = |(other, event, found): (&str, &str, PairedComparison)| found.to_json(OURS, other, event);
    comparisons(all, seed).into_iter().map(row).collect()
}

/// Returns the lines of the format jsonl that follow the manifest: the result of each task, then the figures, then
/// the comparisons, then the figures over several seeds, then what was not measured. `seed` determines the samples of
/// the bootstrap.
pub fn lines(all: &[DefenceResults], seed: u64, unmeasured: &[Unmeasured]) -> Vec<Value> {
    let mut lines: Vec<Value> = all.iter().flat_map(task_rows).collect();
    lines.extend(all.iter().flat_map(figure_rows).map(Value::Object));
    lines.extend(comparison_rows(all, seed));
    lines.extend(spread_rows(all, seed).into_iter().map(Value::Object));
    lines.extend(unmeasured.iter().map(|one| one.to_json()));
    lines
}

/// Returns the JSON document of a run: the manifest, the figures, the comparisons, the figures over several seeds, and
/// what was not measured. `seed` determines the samples of the bootstrap, and `is_interrupted` says whether the user
/// stopped the run before its end.
pub fn document(
    all: &[DefenceResults],
    manifest: &Value,
    (seed, is_interrupted): (u64, bool),
    unmeasured: &[Unmeasured],
) -> Value {
    json!({
        "manifest": manifest,
        "figures": all.iter().flat_map(figure_rows).collect::<Vec<_>>(),
        "comparisons": comparison_rows(all, seed),
        "seeds": spread_rows(all, seed),
        "unmeasured": unmeasured.iter().map(|one| one.to_json()).collect::<Vec<_>>(),
        "interrupted": is_interrupted,
    })
}

/// Returns the tables as text, after a sentence with the composition of the tasks. `seed` determines the samples of
/// the bootstrap, and `unmeasured` has the defences that were left out.
pub fn tables(
    all: &[DefenceResults],
    composition: Composition,
    seed: u64,
    unmeasured: &[Unmeasured],
) -> String {
    format!("{}\n{}", composition_line(composition), texts(&table_list(all, seed, unmeasured)))
}

/// Returns the results of the defences that ran on the data of a variant.
fn of_variant(all: &[DefenceResults], variant: WorldVariant) -> Vec<DefenceResults> {
    all.iter().filter(|results| results.defence.variant() == variant).cloned().collect()
}

/// Returns the tables: those of the suite, then those of the variant with planted instructions, as far as they were
/// measured. If neither was measured, the tables of the suite are empty. RTBAS's figures come only with the tables of
/// the suite, since RTBAS has no planted instructions. A defence of the suite that was not measured (`unmeasured`)
/// has an empty row. `seed` determines the samples of the bootstrap.
fn table_list(all: &[DefenceResults], seed: u64, unmeasured: &[Unmeasured]) -> Vec<Table> {
    let (main, planted) = (of_variant(all, WorldVariant::Accidental), of_variant(all, WorldVariant::Planted));
    let mut tables = Vec::new();
    if !main.is_empty() || planted.is_empty() {
        let mut figures = main_table(&main, "");
        let columns = figures.header.len();
        figures.rows.extend(unmeasured.iter().map(|one| one.empty_row(columns)));
        tables.extend([
            figures,
            reference_table(),
            definition_table(&main, "", &name),
            utility_table(&main, ""),
            cost_table(&main, ""),
        ]);
        tables.push(suite_utility_table(&main));
        // The tasks are divided in two ways, by suite and by pattern; each division has two tables.
        for (scopes, title) in [
            (Suite::ALL.map(TaskGroup::Suite).to_vec(), "by suite"),
            (LeakPattern::ALL.map(TaskGroup::Pattern).to_vec(), "by pattern"),
        ] {
            tables.extend([part_table(&main, &scopes, title), interval_table(&main, &scopes, title)]);
        }
        tables.extend(comparisons_with_ours(&main, seed));
        tables.extend(spread_table(&main, seed));
        tables.extend(reason_table(unmeasured));
    }
    if !planted.is_empty() {
        let title = "variant planted, with instructions to assistants in the data: ";
        tables.extend([
            main_table(&planted, title),
            definition_table(&planted, title, &name),
            utility_table(&planted, title),
            cost_table(&planted, title),
        ]);
    }
    tables
}

/// Returns the HTML page of a run: three scatter charts, a bar chart of the tokens if they were counted, and the
/// tables. One scatter compares missed with needless questions; the others compare missed questions with completed
/// tasks, for a person who allows and for one who refuses. The charts show the defences on the data of the suite, or
/// those on the planted variant if only that was measured. `seed` determines the samples of the bootstrap.
pub fn page(all: &[DefenceResults], manifest: &Value, seed: u64, unmeasured: &[Unmeasured]) -> String {
    let main = of_variant(all, WorldVariant::Accidental);
    let shown = if main.is_empty() { all } else { main.as_slice() };
    // `x` and `y` are the titles of the axes; `rates` chooses the horizontal and the vertical rate of a point.
    let chart = |title: &str, x, y, rates: fn(&PrivacyFigures) -> [Rate; 2]| {
        let point = |results: &DefenceResults| {
            let [across, up] = rates(&results.figures(TaskGroup::All)).map(ValueWithInterval::of);
            Some(Point { name: name(results), x: across?, y: up? })
        };
        let points = shown.iter().filter_map(point).collect();
        Drawing::Scatter(Chart { title: title.to_owned(), x, y, points })
    };
    let mut charts = vec![
        chart("Questions", "false negatives", "false positives", |figures| {
            [figures.missed, figures.over_asked]
        }),
        chart("Risk and utility, the person allows", "false negatives", "completed tasks", |figures| {
            [figures.missed, figures.utility_allowed]
        }),
        chart("Risk and utility, the person refuses", "false negatives", "completed tasks", |figures| {
            [figures.missed, figures.utility_refused]
        }),
    ];
    charts.extend(cost_bars(shown));
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    html::page(&format!("Privacy suite, {model}"), manifest, &charts, &table_list(all, seed, unmeasured))
}

/// Returns the sentence about the composition of the tasks: what the oracle labels alone say about RTBAS's two
/// baselines.
fn composition_line(composition: Composition) -> String {
    let Composition { tasks, needing, over_asked } = composition;
    format!(
        "{tasks} tasks; by the oracle labels alone, {needing} need a confirmation (never asking misses them),\n\
         and {over_asked} make a call that needs none with private data in the context (asking then is too much)\n"
    )
}

/// Returns the name of a defence for tables, in which the default one is marked.
fn name(results: &DefenceResults) -> String {
    let name = results.defence.name();
    if name == OURS { format!("{name} (ours)") } else { name.to_owned() }
}

/// Returns a rate as two counts, such as `3/37`.
fn counted(rate: Rate) -> String {
    format!("{}/{}", rate.hits, rate.of)
}

/// Returns the main table, with the figures of RTBAS's Table 2 and section 8.3.1 for each defence. Three rates (false
/// negatives, false positives, exact categories) have columns for their counts, their value and their interval.
/// `private` counts the exact categories of the calls that disclose something; it has no interval. `variant` begins the
/// title: the name of a variant of the data, or an empty text for the data of the suite.
fn main_table(all: &[DefenceResults], variant: &str) -> Table {
    let header = [
        "defence",
        "FN",
        "rate",
        "95 %",
        "FP",
        "rate",
        "95 %",
        "exact",
        "rate",
        "95 %",
        "private",
        "rate",
        "questions",
        "disclosed",
    ];
    let row = |results: &DefenceResults| {
        let figures = results.figures(TaskGroup::All);
        let mut row = vec![name(results)];
        for rate in [figures.missed, figures.over_asked, figures.exact] {
            row.extend([counted(rate), cell(rate.value()), interval_cell(rate)]);
        }
        row.extend([counted(figures.exact_private), cell(figures.exact_private.value())]);
        row.extend([figures.questions.to_string(), figures.disclosed.hits.to_string()]);
        row
    };
    let title = "false negatives (missed tasks), false positives (needless questions), calls with exact categories (Table 2, 8.3.1)";
    table(&format!("{variant}{title}"), &header, &all.iter().map(row).collect::<Vec<_>>())
}

/// Returns a table of the figures that the paper on RTBAS reports. The paper reports rates; the counts, as shares of
/// its 37 tasks, are computed from them.
fn reference_table() -> Table {
    let header = ["the paper's figures", "FN", "rate", "FP", "rate", "exact", "utility: refuses", "allows"];
    let rows = PAPER.map(|paper| {
        let tasks = |rate: f64| format!("{:.0}/{PAPER_TASKS}", rate * PAPER_TASKS as f64);
        vec![
            paper.name.to_owned(),
            tasks(paper.missed),
            cell(Some(paper.missed)),
            tasks(paper.over_asked),
            cell(Some(paper.over_asked)),
            cell(paper.exact),
            cell(paper.utility_refused),
            cell(paper.utility_allowed),
        ]
    });
    table("for orientation only: another model, and 37 tasks that are not public", &header, &rows)
}

/// Returns a table with the figures of RTBAS's Figure 7: the tasks completed with a person who refuses and with one who
/// allows every call. `variant` begins the title.
fn utility_table(all: &[DefenceResults], variant: &str) -> Table {
    let header = ["defence", "person refuses", "rate", "95 %", "person allows", "rate", "95 %"];
    let row = |results: &DefenceResults| {
        let figures = results.figures(TaskGroup::All);
        let mut row = vec![name(results)];
        for rate in [figures.utility_refused, figures.utility_allowed] {
            row.extend([counted(rate), cell(rate.value()), interval_cell(rate)]);
        }
        row
    };
    let title = format!("{variant}utility: completed tasks (Figure 7)");
    table(&title, &header, &all.iter().map(row).collect::<Vec<_>>())
}

/// Returns a table with the figures of RTBAS's Figure 7 for each suite, as the paper draws them, with their intervals:
/// a row for each defence and suite.
fn suite_utility_table(all: &[DefenceResults]) -> Table {
    let header = ["defence", "suite", "person refuses", "rate", "95 %", "person allows", "rate", "95 %"];
    let row = |results: &DefenceResults, suite: Suite| {
        let figures = results.figures(TaskGroup::Suite(suite));
        let mut row = vec![name(results), suite.name().to_owned()];
        for rate in [figures.utility_refused, figures.utility_allowed] {
            row.extend([counted(rate), cell(rate.value()), interval_cell(rate)]);
        }
        row
    };
    let rows = all.iter().flat_map(|results| Suite::ALL.map(|suite| row(results, suite)));
    table("utility by suite: completed tasks (Figure 7)", &header, &rows.collect::<Vec<_>>())
}

/// Returns the table of costs: the tokens that the agent, the screener and the filler read and write in all tasks while
/// the person allows every call, their sum relative to the defence *everything* if it was measured, and the questions.
/// `variant` begins the title.
fn cost_table(all: &[DefenceResults], variant: &str) -> Table {
    let sum = |tokens: Usage| tokens.input.saturating_add(tokens.output) as f64;
    // The tokens of the defence that shows everything, to which the others are related.
    let base = all.iter().find(|results| results.defence.name() == "everything");
    let base = base.and_then(|results| results.figures(TaskGroup::All).tokens).map(sum);
    let row = |results: &DefenceResults| {
        let figures = results.figures(TaskGroup::All);
        let count = |count: fn(Usage) -> u64| {
            figures.tokens.map_or_else(|| "-".to_owned(), |tokens| count(tokens).to_string())
        };
        let relative = figures.tokens.map(sum).zip(base).map(|(tokens, base)| tokens / base);
        vec![
            name(results),
            count(|tokens| tokens.input),
            count(|tokens| tokens.output),
            cell(relative),
            figures.questions.to_string(),
        ]
    };
    let title =
        "cost of all tasks if the person allows; doubles count with the tokenizer of the shipped model";
    let header = ["defence", "tokens read", "written", "of everything's", "questions"];
    table(&format!("{variant}{title}"), &header, &all.iter().map(row).collect::<Vec<_>>())
}

/// Returns the bar chart of the tokens of each defence; `None` if no defence has tokens.
fn cost_bars(all: &[DefenceResults]) -> Option<Drawing> {
    let bar = |results: &DefenceResults| {
        let tokens = results.figures(TaskGroup::All).tokens?;
        let value = tokens.input.saturating_add(tokens.output) as f64;
        // The tokens are counted, not estimated, so the interval has no width.
        Some(Bar { name: name(results), value: ValueWithInterval { value, low: value, high: value } })
    };
    let bars: Vec<Bar> = all.iter().filter_map(bar).collect();
    let highest = bars.iter().map(|bar| bar.value.value).reduce(f64::max).filter(|highest| *highest > 0.0)?;
    let title = "tokens of all tasks, read and written, if the person allows".to_owned();
    Some(Drawing::Bars(BarChart { title, highest, bars }))
}

/// Returns a table with five counts for each part of the tasks (`scopes`): false negatives, false positives, exact
/// categories, and completed tasks if the person refuses and if the person allows. `title` says how the tasks are
/// divided into parts.
fn part_table(all: &[DefenceResults], scopes: &[TaskGroup], title: &str) -> Table {
    let mut header = vec!["defence".to_owned()];
    for scope in scopes {
        header.extend([
            format!("{}: FN", scope.name()),
            "FP".to_owned(),
            "exact".to_owned(),
            "refuses".to_owned(),
            "allows".to_owned(),
        ]);
    }
    let row = |results: &DefenceResults| {
        let mut row = vec![name(results)];
        for scope in scopes {
            let figures = results.figures(*scope);
            let rates = [
                figures.missed,
                figures.over_asked,
                figures.exact,
                figures.utility_refused,
                figures.utility_allowed,
            ];
            row.extend(rates.map(counted));
        }
        row
    };
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let title = format!(
        "{title}: false negatives, false positives, exact categories, utility if the person refuses and if the person allows"
    );
    table(&title, &header, &all.iter().map(row).collect::<Vec<_>>())
}

/// Returns a table with the intervals of the counts of [`part_table`]: a row for each defence and part of the tasks,
/// with the counts and Wilson's interval at 95 % of each rate. The last two columns are the completed tasks if the person
/// refuses, and if the person allows. A part has few tasks, so its intervals are wide.
fn interval_table(all: &[DefenceResults], scopes: &[TaskGroup], title: &str) -> Table {
    let header = ["defence", "tasks", "FN", "FP", "exact", "refuses", "allows"];
    let row = |results: &DefenceResults, scope: TaskGroup| {
        let figures = results.figures(scope);
        let rates = [
            figures.missed,
            figures.over_asked,
            figures.exact,
            figures.utility_refused,
            figures.utility_allowed,
        ];
        let cells = rates.map(|rate| format!("{} {}", counted(rate), interval_cell(rate)));
        [name(results), scope.name().to_owned()].into_iter().chain(cells).collect::<Vec<_>>()
    };
    let mut rows = Vec::with_capacity(all.len() * scopes.len());
    for results in all {
        rows.extend(scopes.iter().map(|scope| row(results, *scope)));
    }
    table(&format!("{title}: the same counts with intervals at 95 % (Wilson)"), &header, &rows)
}

/// Returns the table of the comparisons with [`OURS`]; `None` if `OURS` was not measured, or if it differs from no
/// other defence in any task.
fn comparisons_with_ours(all: &[DefenceResults], seed: u64) -> Option<Table> {
    let compared = comparisons(all, seed).into_iter();
    let named = compared.map(|(other, event, found)| (other.to_owned(), event.to_owned(), found));
    comparison_table(OURS, "tasks", &named.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::super::check::composition;
    use super::super::defence::PrivacyDefence;
    use super::super::suite::PrivacySuite;
    use super::*;

    #[test]
    fn every_format_has_every_defence_and_scope() {
        let suite = PrivacySuite::new().unwrap();
        let defences = ["everything", OURS].map(|name| PrivacyDefence::parse(name, 1).unwrap());
        let all: Vec<DefenceResults> =
            defences.map(|defence| suite.run_defence(defence, &mut || false).unwrap().unwrap()).to_vec();
        let rows: Vec<_> = all.iter().flat_map(figure_rows).collect();
        assert_eq!(rows.len(), 2 * (1 + Suite::ALL.len() + LeakPattern::ALL.len()));
        let keys = |row: &Map<String, Value>| row.keys().cloned().collect::<Vec<_>>();
        assert!(rows.iter().all(|row| keys(row) == keys(&rows[0])), "a CSV needs the same columns");
        for row in &rows {
            let rate = row["false_positives"].as_f64().unwrap();
            assert!(row["false_positives_low"].as_f64().unwrap() <= rate + 1e-6);
            assert!(rate <= row["false_positives_high"].as_f64().unwrap() + 1e-6);
        }
        assert_eq!(all.iter().flat_map(task_rows).count(), 2 * suite.tasks().len());
        assert_eq!(comparison_rows(&all, 1).len(), EVENTS.len());
        assert!(comparison_rows(&all[..1], 1).is_empty(), "ours was not measured");
        // The double reads the whole conversation again with each request, and the tokens are those of all requests.
        assert!(rows.iter().all(|row| row["input_tokens"].as_u64() > row["output_tokens"].as_u64()));
        assert!(task_rows(&all[0]).iter().all(|row| row["output_tokens"].as_u64() > Some(0)));
        let left_out = [Unmeasured { defence: "attention", reason: "no local model" }];
        let composition = composition(suite.tasks()).unwrap();
        let text = tables(&all, composition, 1, &left_out);
        for expected in [
            "everything",
            "lowest-first (ours)",
            "Confirm Every Time (GPTs)",
            "of everything's",
            "another model",
            "ambiguous: FN",
            "both definitions",
            "not measured",
            "no local model",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        // Both utilities of Figure 7 stand next to each other for each suite and pattern, and with intervals for each
        // suite.
        let heads = text.lines().filter(|line| line.contains(": FN") && line.contains("allows"));
        let heads: Vec<usize> = heads.map(|line| line.matches("refuses").count()).collect();
        assert_eq!(heads, [Suite::ALL.len(), LeakPattern::ALL.len()], "{text}");
        let listed = table_list(&all, 1, &[]);
        let by_suite = listed.iter().find(|table| table.title.starts_with("utility by suite")).unwrap();
        assert_eq!(by_suite.rows.len(), 2 * Suite::ALL.len());
        for (row, results) in by_suite.rows.iter().zip(all.iter().flat_map(|one| [one; 3])) {
            let suite = Suite::ALL.into_iter().find(|suite| suite.name() == row[1]).unwrap();
            let figures = results.figures(TaskGroup::Suite(suite));
            assert_eq!(
                [&row[2], &row[5]],
                [&counted(figures.utility_refused), &counted(figures.utility_allowed)]
            );
            assert_eq!(row[4], interval_cell(figures.utility_refused), "{row:?}");
        }
        // The intervals of each suite and of each pattern, in the text and on the page.
        let page_text = page(&all, &json!({"model": "m"}), 1, &[]);
        for (title, groups) in [
            ("by suite", Suite::ALL.map(TaskGroup::Suite).to_vec()),
            ("by pattern", LeakPattern::ALL.map(TaskGroup::Pattern).to_vec()),
        ] {
            let title = format!("{title}: the same counts with intervals");
            let table = listed.iter().find(|table| table.title.starts_with(&title)).unwrap();
            let expected: Vec<(&DefenceResults, TaskGroup)> =
                all.iter().flat_map(|results| groups.iter().map(move |group| (results, *group))).collect();
            assert_eq!(table.rows.len(), expected.len());
            for (row, (results, group)) in table.rows.iter().zip(expected) {
                let figures = results.figures(group);
                assert_eq!(row[..2], [name(results), group.name().to_owned()]);
                let shown = |rate: Rate| format!("{} {}", counted(rate), interval_cell(rate));
                let rates = [figures.missed, figures.utility_allowed];
                assert_eq!([&row[2], &row[6]], [&shown(rates[0]), &shown(rates[1])]);
                assert!(text.contains(&row[2]) && page_text.contains(&row[2]), "{row:?}");
            }
        }
        // The empty row of what was not measured, and the rows that swap the rates, in every format.
        let row = text.lines().find(|line| line.starts_with("attention ")).unwrap();
        assert_eq!(row.split_whitespace().filter(|cell| *cell == "-").count(), 13, "{row}");
        assert!(tables(&all, composition, 1, &[]).lines().all(|line| !line.starts_with("attention ")));
        let manifest = json!({"model": "m"});
        let page = page(&all, &manifest, 1, &left_out);
        assert!(page.contains("both definitions") && page.contains("no local model"), "{page}");
        for row in &rows {
            assert_eq!(row["prose_false_positives"], row["false_negatives"]);
            assert_eq!(row["prose_false_negatives"], row["false_positives"]);
        }
        let document = document(&all, &manifest, (1, false), &left_out);
        assert_eq!(document["figures"].as_array().unwrap().len(), rows.len());
        assert_eq!(document["comparisons"].as_array().unwrap().len(), EVENTS.len());
        assert_eq!(document["unmeasured"][0]["reason"], "no local model");
        let lines = lines(&all, 1, &left_out);
        assert!(lines.iter().any(|line| line["type"] == "unmeasured"));
        assert!(!text.contains("planted"), "{text}");
    }

    /// The rows of the variant are compared with nothing, and stand in tables of their own.
    #[test]
    fn planted_rows_are_reported_apart() {
        let suite = PrivacySuite::new().unwrap();
        let defences = [OURS, "planted/judge/obeying"].map(|name| PrivacyDefence::parse(name, 1).unwrap());
        let all: Vec<DefenceResults> =
            defences.map(|defence| suite.run_defence(defence, &mut || false).unwrap().unwrap()).to_vec();
        assert!(comparison_rows(&all, 1).is_empty());
        assert!(all.iter().flat_map(task_rows).any(|row| row["variant"] == "planted"));
        let composition = composition(suite.tasks()).unwrap();
        let both = tables(&all, composition, 1, &[]);
        let (main, planted) = both.split_once("variant planted").unwrap();
        assert!(
            main.contains(OURS) && !main.contains("planted/") && planted.contains("planted/judge/obeying")
        );
        let only = tables(&all[1..], composition, 1, &[]);
        assert!(only.contains("variant planted"), "{only}");
        assert!(!only.contains("another model"), "{only}");
    }
}
