//! Formats the figures of screeners as tables of text, as JSON lines, and as CSV, and identifies a run by its manifest.
//! `flowgate bench screeners` prints what these functions return.

use serde_json::{Map, Value, json};

use super::instruction::{self, InstructionCase};
use super::{
    CaseSet, DependencyCase, ScoreDistribution, ScreenerResults, ScreenerRow, ScreenerScore, THRESHOLDS,
    TRAINING, TraceCase, TraceCases,
};
use crate::code::code_digest;
use crate::games::manifest::digest;
use crate::games::report::csv;
use crate::games::text_table::{Table, cell, table, texts};
use crate::rounding::rounded;

/// Returns the manifest of a run over generated cases as a JSON object. `cases` is the number of cases of each set, and
/// `model` the name of the model. The manifest has a digest of all cases that the seed gives: those that train, those
/// that choose the thresholds, those that are reported, and those of RTBAS's Figure 3.
pub fn manifest(seed: u64, cases: usize, model: &str) -> Value {
    json!({
        "type": "manifest",
        "suite": "attention-screeners",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "cases": cases,
        "model": model,
        "screeners": screener_names(),
        "sha256": { "cases": digest(generated_texts(seed, cases)), "code": code_digest() },
    })
}

/// Returns the names of the screeners, all of which every run measures.
fn screener_names() -> [&'static str; ScreenerScore::ALL.len()] {
    ScreenerScore::ALL.map(ScreenerScore::name)
}

/// Returns the texts of all cases that [`run`](super::run) generates with this seed and this number of cases in each
/// set. A set that cannot be generated from the seed has none; such a run ends with an error and has no manifest.
fn generated_texts(seed: u64, cases: usize) -> Vec<String> {
    let mut texts = Vec::new();
    for seed in [seed ^ TRAINING, seed ^ THRESHOLDS, seed] {
        for set in CaseSet::ALL {
            texts.extend(set.generate(seed, cases).iter().flatten().flat_map(DependencyCase::texts));
        }
    }
    texts.extend(instruction::generate(seed, cases).iter().flat_map(InstructionCase::texts));
    texts
}

/// Returns the manifest of a run over traces as a JSON object. It has the number of calls of each suite, and the
/// numbers of calls that were left out. `cases` is the maximum number of calls drawn from each suite, `limit` the
/// maximum length of a prompt in bytes, and `model` the name of the model.
pub fn trace_manifest(seed: u64, cases: usize, traces: &TraceCases, limit: usize, model: &str) -> Value {
    let count = |suite: &String| traces.cases.iter().filter(|case| case.suite == *suite).count();
    let suites: Map<String, Value> =
        traces.suites().iter().map(|suite| (suite.clone(), count(suite).into())).collect();
    json!({
        "type": "manifest",
        "suite": "attention-screeners/traces",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "cases": cases,
        "regions": "outputs of tools",
        "calls": suites,
        "left_out": {
            "without_outputs": traces.without_outputs,
            "unknown_dependencies": traces.unknown,
            "too_long": traces.too_long,
        },
        "prompt_limit": limit,
        "model": model,
        "screeners": screener_names(),
        "sha256": {
            "cases": digest(traces.cases.iter().flat_map(TraceCase::texts)),
            "code": code_digest(),
        },
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The manifest of a run over generated cases depends on the seed, on the number of cases and on the model, and its
    /// digest is of what a model reads: a renamed field of the sources changes nothing.
    #[test]
    fn a_manifest_identifies_the_cases() {
        let cases_of = |seed, cases| manifest(seed, cases, "a model")["sha256"]["cases"].clone();
        assert_eq!(manifest(1, 2, "a model"), manifest(1, 2, "a model"));
        assert_ne!(cases_of(1, 2), cases_of(2, 2));
        assert_ne!(cases_of(1, 2), cases_of(1, 3));
        assert_eq!(manifest(1, 2, "a model")["screeners"].as_array().unwrap().len(), 14);
        let texts = generated_texts(1, 2);
        // Three times two cases of eight sets, and four of Figure 3; each has a prompt.
        let prompts = texts.iter().filter(|text| text.contains('\n')).count();
        assert_eq!(prompts, 3 * 2 * 8 + 4);
        for name in ["DependencyCase", "InstructionCase", "prompt:", "regions:", "Some("] {
            assert!(!texts.iter().any(|text| text.contains(name)), "{name}");
        }
    }

    /// Whether a call depends on an output is part of what identifies a recorded call.
    #[test]
    fn a_manifest_identifies_recorded_calls() {
        let case = CaseSet::Calls.generate(1, 1).unwrap().remove(0);
        let call = TraceCase { suite: "slack".into(), task: "user_task_1".into(), is_injected: false, case };
        let digest_of = |call: &TraceCase| {
            let traces = TraceCases { cases: vec![call.clone()], ..TraceCases::default() };
            trace_manifest(1, 40, &traces, 1000, "a model")["sha256"]["cases"].clone()
        };
        let mut changed = call.clone();
        assert_eq!(digest_of(&changed), digest_of(&call));
        changed.case.depends[0] = !changed.case.depends[0];
        assert_ne!(digest_of(&changed), digest_of(&call));
        changed = TraceCase { is_injected: true, ..call.clone() };
        assert_ne!(digest_of(&changed), digest_of(&call));
        assert!(!call.texts().iter().any(|text| text.contains("TraceCase") || text.contains("suite:")));
    }
}
