//! Formats the figures of the games for programs, as JSON lines and CSV; `flowgate bench games` prints them. One list,
//! `columns`, names the figures, so that both formats have the same ones.

use serde_json::{Map, Value};

use super::super::figures::{DefenceFigures, Figures};
use super::super::interval::Rate;
use super::super::measure::{risk_reduction, utility_loss};
use super::super::task::Game;
use crate::rounding::rounded;

/// Returns the figures of one defence as rows for JSON lines and CSV, one for each game and then one for all games. The
/// keys of a row are the names of the figures. Shares are from 0 to 1; a figure that does not exist is null.
/// `undefended` has the figures of the defence *none*, if it was measured; risk reduction and utility loss are relative
/// to these.
pub fn figure_rows(
    figures: &DefenceFigures,
    undefended: Option<&DefenceFigures>,
    model: &str,
) -> Vec<Map<String, Value>> {
    let leakage = figures.worst_canary_leakage();
    let row = |game: &str, of_game: &Figures, base: Option<&Figures>, has_leakage: bool| {
        let mut row = Map::new();
        row.insert("type".to_owned(), "figures".into());
        row.insert("model".to_owned(), model.into());
        row.insert("defence".to_owned(), figures.defence.name().into());
        row.insert("enforcement".to_owned(), figures.defence.enforcement().name().into());
        row.insert("game".to_owned(), game.into());
        row.insert("pairs".to_owned(), of_game.pairs.into());
        row.insert("questions".to_owned(), of_game.questions.into());
        for (name, value) in columns(of_game, base, leakage.filter(|_| has_leakage)) {
            row.insert(name.to_owned(), value.map_or(Value::Null, rounded));
        }
        row
    };
    let mut rows: Vec<Map<String, Value>> = Vec::new();
    for (index, (game, of_game)) in Game::ALL.iter().zip(&figures.games).enumerate() {
        // The figures of the same game without a defence.
        let base = undefended.and_then(|base| base.games.get(index));
        // Canaries are enumerated for the retrieval game alone.
        let has_leakage = *game == Game::Retrieval;
        rows.push(row(game.name(), of_game, base, has_leakage));
    }
    // The row of all games has the leakage of the retrieval game, too.
    rows.push(row("all", &figures.overall, undefended.map(|base| &base.overall), true));
    rows
}

/// Returns the figures of one row in order, each with its name. `base` has the figures of the same game without a
/// defence, if it was measured. `leakage` is the worst leakage of a canary, as bits and as the advantage of a
/// distinguisher; it is `None` in the rows of the games that have no canaries.
fn columns(
    figures: &Figures,
    base: Option<&Figures>,
    leakage: Option<(f64, f64)>,
) -> Vec<(&'static str, Option<f64>)> {
    // The lower and the upper end of the interval of a rate.
    let interval = |rate: Rate| rate.wilson_95().unzip();
    let (success_low, success_high) = interval(figures.attack_success);
    let (closure_low, closure_high) = interval(figures.closure);
    let (executed_low, executed_high) = interval(figures.executed);
    let (ideal_low, ideal_high) = interval(figures.ideal_deviation);
    // These two figures compare the defence with runs without a defence.
    let reduction = base
        .and_then(|base| Some(risk_reduction(base.attack_success.value()?, figures.attack_success.value()?)));
    let loss = base.and_then(|base| Some(utility_loss(base.benign_utility?, figures.benign_utility?)));
    let (utility_low, utility_high) = figures.benign_utility_interval.unzip();
    let (input_tokens, output_tokens) = figures.tokens.unzip();
    let (canary_bits, canary_advantage) = leakage.unzip();
    vec![
        ("attack_success", figures.attack_success.value()),
        ("attack_success_standard_error", figures.attack_success.standard_error()),
        ("attack_success_low", success_low),
        ("attack_success_high", success_high),
        ("advantage", figures.advantage),
        ("advantage_half_width", figures.advantage_half_width()),
        ("leakage", figures.leakage.value()),
        ("closure", figures.closure.value()),
        ("closure_low", closure_low),
        ("closure_high", closure_high),
        ("benign_utility", figures.benign_utility),
        ("benign_utility_low", utility_low),
        ("benign_utility_high", utility_high),
        ("attacked_utility", figures.attacked_utility),
        ("open_channel_risk", figures.open_risk.value()),
        ("closed_channel_risk", figures.closed_risk.value()),
        ("executed_risk", figures.executed.value()),
        ("validator_false_negatives", figures.validator_misses.value()),
        ("executed_risk_bound", figures.executed_bound()),
        ("risk_reduction", reduction),
        ("utility_loss", loss),
        ("real_ideal_gap", figures.real_ideal_gap),
        ("ideal_gap", figures.ideal_deviation.value()),
        ("ideal_gap_low", ideal_low),
        ("ideal_gap_high", ideal_high),
        ("response_gap", figures.response_gap.value()),
        ("latency_ms", figures.latency_ms),
        ("input_tokens", input_tokens),
        ("output_tokens", output_tokens),
        ("executed_risk_low", executed_low),
        ("executed_risk_high", executed_high),
        ("canary_bits", canary_bits),
        ("canary_advantage", canary_advantage),
    ]
}

/// Returns rows as CSV, with a header of the keys of the first row, which all rows share; empty without rows. A null
/// becomes an empty cell.
pub fn csv(rows: &[Map<String, Value>]) -> String {
    let mut text = String::new();
    let Some(first) = rows.first() else { return text };
    let line = |cells: Vec<String>| format!("{}\n", cells.join(","));
    text.push_str(&line(first.keys().map(|key| csv_cell(key)).collect()));
    for row in rows {
        let cell = |value: &Value| match value {
            Value::Null => String::new(),
            Value::String(value) => csv_cell(value),
            value => csv_cell(&value.to_string()),
        };
        text.push_str(&line(row.values().map(cell).collect()));
    }
    text
}

/// Returns several tables as CSV, each with its own header, and an empty line between two tables. A table without rows is left
/// out.
pub fn csv_tables(tables: &[&[Map<String, Value>]]) -> String {
    let tables = tables.iter().map(|rows| csv(rows)).filter(|table| !table.is_empty());
    tables.collect::<Vec<_>>().join("\n")
}

/// Returns JSON objects, such as the comparisons of a run, as the rows of a table of CSV.
pub fn object_rows(values: Vec<Value>) -> Vec<Map<String, Value>> {
    let rows = values.into_iter().filter_map(|value| match value {
        Value::Object(row) => Some(row),
        // This does not occur, because every row is an object.
        _ => None,
    });
    rows.collect()
}

/// Returns a cell of CSV. A text that contains a comma, a quotation mark or a line break is quoted (RFC 4180).
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_of_csv_are_quoted_if_necessary() {
        let check = |text: &str, expected: &str| assert_eq!(csv_cell(text), expected);
        check("plain", "plain");
        check("a,b", "\"a,b\"");
        check("say \"x\"", "\"say \"\"x\"\"\"");
        check("two\nlines", "\"two\nlines\"");
        assert_eq!(csv(&[]), "");
    }

    /// An empty line separates tables, and a table without rows has no header.
    #[test]
    fn tables_of_csv_are_separated() {
        let (one, other) =
            (object_rows(vec![json!({"a": 1})]), object_rows(vec![json!({"b": "x", "c": null})]));
        assert_eq!(csv_tables(&[&one, &[], &other]), "a\n1\n\nb,c\nx,\n");
        assert_eq!(csv_tables(&[&[], &one]), "a\n1\n");
        assert_eq!(csv_tables(&[&[]]), "");
    }
}
