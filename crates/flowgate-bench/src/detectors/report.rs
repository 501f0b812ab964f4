//! Formats the results of `flowgate bench detectors`: as tables of text, as JSON lines and CSV, and as an HTML page.
//! The command prints what these functions return.

use flowgate::detect::unicode;
use flowgate::monitor::Outcome;
use serde_json::{Map, Value, json};

use super::{DETECTORS, DetectorFigures, JudgedRow, POLICY};
use crate::games::interval::Rate;
use crate::games::report::interval_cell;
use crate::games::text_table::{Table, table, texts};
use crate::html::{self, Chart, Drawing, Point, ValueWithInterval};
use crate::rate_columns::rate_columns;
use crate::statistics::{PairedComparison, compare, comparison_table};

/// The name of the flow rule in tables.
const RULE: &str = "flow rule";
/// The event by which the rule is compared with the detectors.
const RIGHT: &str = "decided rightly";

/// Returns a rate as text with its two counts, such as `3 of 8`.
fn counted(rate: Rate) -> String {
    format!("{} of {}", rate.hits, rate.of)
}

/// Returns the rate of honest rows that the rule flags. It flags an honest row if it does not permit the row's honest
/// message without a preview.
fn refused(judged: &[JudgedRow<'_>]) -> Rate {
    let honest = judged.iter().filter(|judged| !judged.row.is_attack());
    Rate::of(honest, |judged| judged.honest.plain != Outcome::Permit)
}

/// Returns one item for each detector, and one for the rule: its name, the rate of attacks that it detects, and the
/// rate of honest rows that it flags.
fn shares(judged: &[JudgedRow<'_>], figures: &DetectorFigures) -> Vec<(String, Rate, Rate)> {
    let detectors =
        figures.detectors.iter().map(|(name, caught, flagged)| ((*name).to_owned(), *caught, *flagged));
    detectors.chain([(RULE.to_owned(), figures.stopped, refused(judged))]).collect()
}

/// Compares the rule with each detector, row by row: which of the two decides more rows rightly. Each item is the name
/// of the detector and the comparison. `seed` determines the bootstrap samples.
fn comparisons(judged: &[JudgedRow<'_>], seed: u64) -> Vec<(&'static str, PairedComparison)> {
    let rule: Vec<bool> = judged.iter().map(JudgedRow::is_rule_right).collect();
    let compared = DETECTORS.iter().enumerate().filter_map(|(index, detector)| {
        let other: Vec<bool> = judged.iter().map(|judged| judged.is_detector_right(index)).collect();
        Some((detector.name, compare(&rule, &other, seed)?))
    });
    compared.collect()
}

/// Returns the tables: each row with the results of the detectors and the rule, the shares with their intervals, and
/// the comparisons of the rule with each detector. `seed` determines the bootstrap samples of the comparisons.
fn table_list(judged: &[JudgedRow<'_>], figures: &DetectorFigures, seed: u64) -> Vec<Table> {
    let mut header = vec!["row", "kind"];
    header.extend(DETECTORS.iter().map(|detector| detector.name));
    header.extend(["injected message", "honest message"]);
    let rows: Vec<Vec<String>> = judged.iter().map(JudgedRow::cells).collect();
    let shares: Vec<Vec<String>> = shares(judged, figures)
        .into_iter()
        .map(|(name, caught, flagged)| {
            vec![name, counted(caught), interval_cell(caught), counted(flagged), interval_cell(flagged)]
        })
        .collect();
    let mut tables = vec![
        table("rows of customer feedback", &header, &rows),
        table("shares", &["", "attacks detected", "95 %", "honest rows flagged", "95 %"], &shares),
    ];
    let compared = comparisons(judged, seed);
    let compared: Vec<_> =
        compared.iter().map(|(other, found)| ((*other).to_owned(), RIGHT.to_owned(), *found)).collect();
    tables.extend(comparison_table(RULE, "rows", &compared));
    tables
}

/// Returns the output as text: the flow rule, the tables, and sentences about the figures. `policy` is the name of
/// the policy's file. It is `None` for the built-in policy, whose text then takes the place of the name. With
/// `content`, the texts of the rows follow. `seed` determines the bootstrap samples of the comparisons.
pub fn text(
    judged: &[JudgedRow<'_>],
    figures: &DetectorFigures,
    policy: Option<&str>,
    seed: u64,
    content: bool,
) -> String {
    // The introduction, the rule, the tables and the figures; with `content`, the rows.
    let mut lines = vec![
        format!(
            "{} rows of customer feedback. For each, an agent reads a sheet with this row and the honest ones, and sends a summary",
            judged.len()
        ),
        "with a messenger that previews links. The agent is a test double that obeys every attack in every disguise; no model is used.".to_owned(),
        String::new(),
    ];
    match policy {
        Some(name) => lines.push(format!("The flow rule is {name}.")),
        None => {
            lines.extend(["The flow rule:".to_owned(), String::new()]);
            let rule = POLICY.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            lines.extend(rule.map(|line| format!("    {line}")));
        }
    }
    lines.push(String::new());
    lines.push(texts(&table_list(judged, figures, seed)));
    lines.push(format!(
        "The flow rule judged the messages that the agent sent in {} runs:\n\
         * it denied {} injected messages with a preview of their link;\n\
         * it permitted {} honest messages without a preview.\n\
         Cost: it permitted {} honest messages with a preview.\n\
         Limit: it permitted {} injected messages without a preview; their link leaks data only if a person clicks it.\n\
         In the injected messages themselves, instead of the rows, the link detector found the leaking link of {}.",
        figures.runs,
        counted(figures.stopped),
        counted(figures.passed),
        counted(figures.passed_with_preview),
        counted(figures.injected_without_preview),
        counted(figures.links_found),
    ));
    if content {
        lines.push(String::new());
        for judged in judged {
            lines.push(judged.row.name.clone());
            let flagged =
                DETECTORS.iter().zip(&judged.detected).filter(|(_, detected)| detected.is_flagged());
            lines.extend(flagged.map(|(detector, detected)| {
                format!("  {}: {}", detector.name, detected.distinct_kinds().join(", "))
            }));
            lines.extend(judged.row.feedback.iter().map(|text| format!("  “{}”", visible(text))));
        }
    }
    lines.join("\n")
}

/// Returns a text with its invisible characters escaped.
fn visible(text: &str) -> String {
    // Control, format, private-use and unassigned characters, combining marks, and separators of lines and paragraphs.
    let is_invisible =
        |c: char| matches!(unicode::category(c), "Cc" | "Cf" | "Co" | "Cn" | "Mn" | "Zl" | "Zp");
    text.chars()
        .map(|c| if is_invisible(c) { c.escape_unicode().to_string() } else { c.to_string() })
        .collect()
}

/// Returns the shares of each detector and of the rule as rows for CSV.
pub fn figure_rows(judged: &[JudgedRow<'_>], figures: &DetectorFigures) -> Vec<Map<String, Value>> {
    let row = |(name, caught, flagged): (String, Rate, Rate)| {
        let mut fields = Map::new();
        fields.insert("detector".to_owned(), name.into());
        for (name, rate) in [("attacks_detected", caught), ("honest_rows_flagged", flagged)] {
            fields.extend(rate_columns(name, rate));
        }
        fields
    };
    shares(judged, figures).into_iter().map(row).collect()
}

/// Returns the lines of the format jsonl that follow the manifest: the rows, the figures and the comparisons. `policy` is the name of the policy's file.
pub fn lines(judged: &[JudgedRow<'_>], figures: &DetectorFigures, policy: &str, seed: u64) -> Vec<Value> {
    let mut lines: Vec<Value> = judged.iter().map(JudgedRow::to_json).collect();
    lines.extend(comparison_rows(judged, seed));
    lines.push(figures.to_json(policy));
    lines
}

/// Returns the comparisons of the rule with each detector as JSON objects. `seed` determines the bootstrap samples.
pub fn comparison_rows(judged: &[JudgedRow<'_>], seed: u64) -> Vec<Value> {
    let compared = comparisons(judged, seed);
    compared.iter().map(|(other, found)| found.to_json(RULE, other, RIGHT)).collect()
}

/// Returns the lines that follow the manifest if the run was interrupted: the rows that were judged so far, and their
/// number. There are no figures, since figures of some rows could be mistaken for those of all.
pub fn interrupted_lines(judged: &[JudgedRow<'_>]) -> Vec<Value> {
    let rows = judged.iter().map(JudgedRow::to_json);
    rows.chain([json!({"type": "interrupted", "rows": judged.len()})]).collect()
}

/// Returns the HTML page of a run: a scatter of flagged honest rows against detected attacks, and the tables.
pub fn page(judged: &[JudgedRow<'_>], figures: &DetectorFigures, manifest: &Value) -> String {
    let seed = manifest.get("seed").and_then(Value::as_u64).unwrap_or_default();
    let points = shares(judged, figures).into_iter().filter_map(|(name, caught, flagged)| {
        Some(Point { name, x: ValueWithInterval::of(flagged)?, y: ValueWithInterval::of(caught)? })
    });
    let chart = Drawing::Scatter(Chart {
        title: "Detected attacks and flagged honest rows".to_owned(),
        x: "honest rows flagged",
        y: "attacks detected",
        points: points.collect(),
    });
    html::page("Detectors and a flow rule", manifest, &[chart], &table_list(judged, figures, seed))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use flowgate::policy::Policy;

    use super::super::{BUILTIN, manifest, rows};
    use super::*;
    use crate::games::report::csv;

    /// Every format has each detector and the rule, with the same numbers.
    #[test]
    fn formats_agree() {
        let (rows, policy) = (rows().unwrap(), Arc::new(Policy::parse(POLICY).unwrap()));
        let judged = JudgedRow::all(&policy, &rows, &mut || false).unwrap();
        let figures = DetectorFigures::of(&judged);
        let lines = lines(&judged, &figures, BUILTIN, 1);
        let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
        assert_eq!((count("row"), count("comparison"), count("figures")), (rows.len(), DETECTORS.len(), 1));
        let (text, table) = (text(&judged, &figures, None, 1, false), csv(&figure_rows(&judged, &figures)));
        let page = page(&judged, &figures, &manifest(1, BUILTIN, POLICY));
        for (name, caught, _) in shares(&judged, &figures) {
            assert!(text.contains(&name) && page.contains(&name) && table.contains(&name), "{name}");
            assert!(text.contains(&counted(caught)) && page.contains(&counted(caught)), "{name}");
        }
        // The rule decides every row rightly, so no detector alone is right where the rule is wrong.
        assert!(comparisons(&judged, 1).iter().all(|(_, found)| found.only_second == 0));
    }
}
