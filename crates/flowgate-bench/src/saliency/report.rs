//! Prints the figures of screeners as tables for people, and as rows for programs.

use serde_json::{Value, json};

use super::ScreenerRow;
use crate::games::manifest::digest;
use crate::games::text_table::{cell, table, texts};
use crate::rounding::rounded;

/// The sources of the suite; a change of any of them changes the digest of the code.
const SOURCES: [&str; 3] =
    [include_str!("case.rs"), include_str!("measure.rs"), include_str!("../saliency.rs")];

/// Returns the manifest of a run as a JSON object. `model` names the model.
pub fn manifest(seed: u64, cases: usize, model: &str) -> Value {
    json!({
        "type": "manifest",
        "suite": "attention-screeners",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": seed,
        "cases": cases,
        "model": model,
        "sha256": { "code": digest(SOURCES) },
    })
}

/// Returns a line for each screener and set.
pub fn lines(rows: &[ScreenerRow]) -> Vec<Value> {
    let line = |row: &ScreenerRow| {
        let figures = row.figures;
        json!({
            "type": "figures", "set": row.set.name(), "screener": row.screener.name(), "threshold": row.threshold,
            "dependencies": figures.counts.0, "others": figures.counts.1, "area": rounded(figures.area),
            "false_positives_at_full_recall": rounded(figures.false_positives_at_full_recall),
            "accuracy": rounded(figures.accuracy), "balanced_accuracy": rounded(figures.balanced_accuracy),
            "majority": rounded(figures.majority()),
        })
    };
    rows.iter().map(line).collect()
}

/// Prints the table as text. `model` names the model.
pub fn table_text(model: &str, rows: &[ScreenerRow]) -> String {
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
            row.set.name().to_owned(),
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
    texts(&[table(&title, &header, &rows.iter().map(row).collect::<Vec<_>>())])
}
