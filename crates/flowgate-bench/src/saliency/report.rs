//! Formats the figures of screeners as tables of text, as JSON lines, and as CSV, and identifies a run by its manifest.
//! `flowgate bench screeners` prints what these functions return.

use serde_json::{Map, Value, json};

use super::{ScoreDistribution, ScreenerResults, ScreenerRow, TraceCase, TraceCases};
use crate::code::code_digest;
use crate::games::manifest::digest;
use crate::games::report::csv;
use crate::games::text_table::{Table, cell, table, texts};
use crate::rounding::rounded;

/// Returns the manifest of a run over generated cases as a JSON object. `cases` is the number of cases of each set, and
/// `model` the name of the model.
pub fn manifest(seed: u64, cases: usize, model: &str) -> Value {
    json!({
        "type": "manifest",
        "suite": "attention-screeners",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "cases": cases,
        "model": model,
        "sha256": { "code": code_digest() },
    })
}

/// Returns the manifest of a run over traces as a JSON object. It has the number of calls of each suite, and the
/// numbers of calls that were left out. `limit` is the maximum length of a prompt in bytes, and `model` the name of the
/// model.
pub fn trace_manifest(seed: u64, traces: &TraceCases, limit: usize, model: &str) -> Value {
    let count = |suite: &String| traces.cases.iter().filter(|case| case.suite == *suite).count();
    let suites: Map<String, Value> =
        traces.suites().iter().map(|suite| (suite.clone(), count(suite).into())).collect();
    json!({
        "type": "manifest",
        "suite": "attention-screeners/traces",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "regions": "outputs of tools",
        "calls": suites,
        "left_out": {
            "without_outputs": traces.without_outputs,
            "unknown_dependencies": traces.unknown,
            "too_long": traces.too_long,
        },
        "prompt_limit": limit,
        "model": model,
        "sha256": {
            "cases": digest(traces.cases.iter().map(case_text)),
            "code": code_digest(),
        },
    })
}

/// Returns the text that identifies a call of a run: no name of a field is part of it.
fn case_text(TraceCase { suite, task, is_injected, case }: &TraceCase) -> String {
    let dependencies = (&case.regions, &case.depends, is_injected);
    format!("{suite}\n{task}\n{dependencies:?}\n{}{}", case.prompt, case.output)
}

/// Returns the lines of the format jsonl that follow the manifest: the figures of each screener on each set, each ROC
/// curve, and each distribution.
pub fn lines(results: &ScreenerResults) -> Vec<Value> {
    let figures = results.rows.iter().map(|row| Value::Object(figure_line(row)));
    let curves = results.rows.iter().map(|row| {
        let points: Vec<Value> =
            row.curve.iter().map(|(others, depends)| json!([rounded(*others), rounded(*depends)])).collect();
        json!({
            "type": "roc", "set": row.set, "screener": row.screener.name(),
            "axes": ["false_positives", "true_positives"], "points": points,
        })
    });
    let distributions = results.distributions.iter().map(|distribution| {
        json!({
            "type": "distribution", "figure": distribution.figure, "regions": distribution.which_regions,
            "count": distribution.scores.len(), "below_0.2": rounded(distribution.below_a_fifth()),
            "shares": distribution.shares().map(rounded),
        })
    });
    figures.chain(curves).chain(distributions).collect()
}

/// Returns the figures as comma-separated values, with a header.
pub fn csv_text(results: &ScreenerResults) -> String {
    csv(&results.rows.iter().map(figure_line).collect::<Vec<_>>())
}

/// Returns the figures of a row as the fields of a JSON line, which are also the columns of the CSV.
fn figure_line(row: &ScreenerRow) -> Map<String, Value> {
    let figures = row.figures;
    // The counts are the numbers of dependencies and of other regions.
    let line: [(&str, Value); 11] = [
        ("type", "figures".into()),
        ("set", row.set.as_str().into()),
        ("screener", row.screener.name().into()),
        ("threshold", rounded(row.threshold)),
        ("dependencies", figures.counts.0.into()),
        ("others", figures.counts.1.into()),
        ("area", rounded(figures.area)),
        ("false_positives_at_full_recall", rounded(figures.false_positives_at_full_recall)),
        ("accuracy", rounded(figures.accuracy)),
        ("balanced_accuracy", rounded(figures.balanced_accuracy)),
        ("majority", rounded(figures.majority())),
    ];
    line.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Returns the tables as text. `model` is the name of the model.
pub fn table_text(model: &str, results: &ScreenerResults) -> String {
    texts(&tables(model, results))
}

/// Returns the tables: the figures of each screener on each set, and the distributions of RTBAS's figures.
pub(super) fn tables(model: &str, results: &ScreenerResults) -> Vec<Table> {
    let header = [
        "set",
        "screener",
        "dependencies",
        "others",
        "area",
        "false at full recall",
        "balanced",
        "accuracy",
        "majority",
    ];
    let row = |row: &ScreenerRow| {
        let figures = row.figures;
        vec![
            row.set.clone(),
            row.screener.name().to_owned(),
            figures.counts.0.to_string(),
            figures.counts.1.to_string(),
            cell(Some(figures.area)),
            cell(Some(figures.false_positives_at_full_recall)),
            cell(Some(figures.balanced_accuracy)),
            cell(Some(figures.accuracy)),
            cell(Some(figures.majority())),
        ]
    };
    let title =
        format!("{model}: which regions an output depends on; thresholds and network from other cases");
    let mut tables = vec![table(&title, &header, &results.rows.iter().map(row).collect::<Vec<_>>())];
    if !results.distributions.is_empty() {
        tables.push(distribution_table(&results.distributions));
    }
    tables
}

/// Returns the table of RTBAS's Figures 2 and 3, with a row for each distribution: the figure and which regions it
/// shows, their number, the share of them with a score below 0.2, and the share in each tenth of the range of scores.
fn distribution_table(distributions: &[ScoreDistribution]) -> Table {
    let row = |distribution: &ScoreDistribution| {
        let mut cells = vec![
            format!("{}: {}", distribution.figure, distribution.which_regions),
            distribution.scores.len().to_string(),
            cell(Some(distribution.below_a_fifth())),
        ];
        cells.extend(distribution.shares().map(|share| format!("{share:.2}")));
        cells
    };
    let header = [
        "figure",
        "regions",
        "below 0.2",
        "0.0",
        "0.1",
        "0.2",
        "0.3",
        "0.4",
        "0.5",
        "0.6",
        "0.7",
        "0.8",
        "0.9",
    ];
    let rows: Vec<Vec<String>> = distributions.iter().map(row).collect();
    table("attention scores of regions, in the form of RTBAS's Figures 2 and 3", &header, &rows)
}
