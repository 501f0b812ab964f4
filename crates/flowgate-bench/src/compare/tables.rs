//! Builds the tables of the page that compares runs: the figures of each suite with their intervals, and the attack
//! searches. [`page`](super::page) calls this module.

use serde_json::{Map, Value};

use super::{NamedRun, text};
use crate::games::text_table::{Table, cell, table};

/// The ends of the names of fields that belong to another figure of the line: its interval, its spread, its counts.
const PARTS_OF_FIGURES: [&str; 7] =
    ["_low", "_high", "_half_width", "_standard_error", "_sd", "_count", "_of"];

/// Returns one table for each suite, in the order of the runs, with a row for each line of figures.
pub(super) fn figure_tables(runs: &[NamedRun]) -> Vec<Table> {
    // Each suite once, in the order of its first run.
    let mut suites: Vec<&str> = Vec::new();
    for name in runs.iter().map(|(_, lines)| suite(lines)) {
        if !suites.contains(&name) {
            suites.push(name);
        }
    }
    suites.into_iter().map(|suite| figure_table(suite, runs)).collect()
}

/// Returns the suite that the manifest of a run names; empty if it names none.
fn suite(lines: &[Value]) -> &str {
    lines.first().map(|manifest| text(manifest, "suite")).unwrap_or_default()
}

/// Returns the table of one suite. `name` is the name of the suite, or empty for the runs whose manifests name none.
/// The columns are the fields of the suite's lines: first the texts, which name the row, then the numbers. Fields
/// that belong to another figure, such as the ends of its interval, get no column of their own. A cell whose line
/// does not have the field is a dash.
fn figure_table(name: &str, runs: &[NamedRun]) -> Table {
    // The name of the run, and the line, of each row.
    let mut rows: Vec<(&str, Map<String, Value>)> = Vec::new();
    for (run, lines) in runs.iter().filter(|(_, lines)| suite(lines) == name) {
        let figures = lines.iter().filter(|line| text(line, "type") == "figures");
        rows.extend(figures.flat_map(detector_lines).map(|line| (run.as_str(), line)));
    }
    // The columns of texts and of numbers, each in the order in which the lines first have them.
    let (mut names, mut numbers) = (Vec::<&str>::new(), Vec::<&str>::new());
    for (field, value) in rows.iter().flat_map(|(_, line)| line) {
        let is_part = PARTS_OF_FIGURES.iter().any(|end| field.ends_with(end));
        let columns = match value {
            Value::String(_) if field != "type" => &mut names,
            Value::Number(_) if !is_part => &mut numbers,
            _ => continue,
        };
        if !columns.contains(&field.as_str()) {
            columns.push(field);
        }
    }
    let header: Vec<&str> = std::iter::once("run").chain(names.clone()).chain(numbers.clone()).collect();
    let mut body: Vec<Vec<String>> = Vec::new();
    for (run, line) in &rows {
        let mut cells = vec![(*run).to_owned()];
        cells.extend(
            names.iter().map(|name| line.get(*name).and_then(Value::as_str).unwrap_or("-").to_owned()),
        );
        cells.extend(numbers.iter().map(|name| figure_cell(line, name)));
        body.push(cells);
    }
    let title = if name.is_empty() { "figures".to_owned() } else { format!("figures of {name}") };
    table(&title, &header, &body)
}

/// Returns the text of the cell for the figure in the field `name` of a line: a whole number as it is, another one
/// with three decimals, and a dash if the line does not have the figure. Its interval follows in brackets if the line
/// has one: from `NAME_low` to `NAME_high`, or `NAME_half_width` on both sides of the figure.
fn figure_cell(line: &Map<String, Value>, name: &str) -> String {
    let number = |name: String| line.get(&name).and_then(Value::as_f64);
    let (Some(figure), Some(value)) = (line.get(name), number(name.to_owned())) else { return cell(None) };
    let shown = if figure.is_u64() { figure.to_string() } else { cell(Some(value)) };
    let half = number(format!("{name}_half_width"));
    let low = number(format!("{name}_low")).or(half.map(|half| value - half));
    let high = number(format!("{name}_high")).or(half.map(|half| value + half));
    match (low, high) {
        (Some(low), Some(high)) => format!("{shown} [{}, {}]", cell(Some(low)), cell(Some(high))),
        _ => shown,
    }
}

/// Flattens a line of figures into lines whose fields are only texts and numbers. Only the line of the suite of
/// detectors changes: it has an object for each rate of the flow rule, and an object `detectors` with the rates of each
/// detector. It becomes one line for each detector, and a last one for the rule. A line of any other suite is returned
/// unchanged.
fn detector_lines(line: &Value) -> Vec<Map<String, Value>> {
    let line = line.as_object().cloned().unwrap_or_default();
    let Some(detectors) = line.get("detectors").and_then(Value::as_object) else { return vec![line] };
    // The flat line of one detector or of the rule: a rate, which is an object with `found`, `of`, `low` and `high`,
    // becomes a number and the ends of its interval. Other fields, and rates of nothing (`of` is 0), are left out.
    let with_rates = |name: &str, fields: &Map<String, Value>| {
        let mut flat = Map::new();
        flat.insert("defence".to_owned(), name.into());
        for (field, rate) in fields {
            let number = |name: &str| rate.get(name).and_then(Value::as_f64);
            if let (Some(found), Some(of)) = (number("found"), number("of").filter(|of| *of > 0.0)) {
                flat.insert(field.clone(), (found / of).into());
                flat.insert(format!("{field}_low"), number("low").into());
                flat.insert(format!("{field}_high"), number("high").into());
            }
        }
        flat
    };
    let each = detectors.iter().filter_map(|(name, rates)| Some(with_rates(name, rates.as_object()?)));
    // The rates of the rule are fields of the line itself.
    let rule = with_rates(text(&Value::Object(line.clone()), "defence"), &line);
    each.chain([rule]).collect()
}

/// Returns for each detector in a line of the suite of detectors its name, the share of honest rows that it flags, and
/// the share of attacks that it catches, both with their intervals. The flow rule, which flags no rows, is left out.
/// The result is empty for a line of another suite.
pub(super) fn detector_figures(line: &Value) -> Vec<Map<String, Value>> {
    let mut lines = detector_lines(line);
    lines.retain(|line| line.contains_key("attacks_caught"));
    lines
}

/// Returns the table of the attack searches; `None` if no run has a search. A row is about one run, defence and game.
/// It counts the tasks in which an attempt opened the channel, those in which an attempt was a violation, and those
/// in which one took effect. It also has the mean number of attempts until one took effect, and the questions to a
/// person in all attempts: a dash for a run of an earlier version, which did not record them.
pub(super) fn search_table(runs: &[NamedRun]) -> Option<Table> {
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (run, lines) in runs {
        let searches: Vec<&Value> = lines.iter().filter(|line| text(line, "type") == "search").collect();
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for line in &searches {
            let key = (text(line, "defence"), text(line, "game"));
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        for (defence, game) in keys {
            // The searches of this row.
            let found = || {
                let of_defence = searches.iter().filter(move |line| text(line, "defence") == defence);
                of_defence.filter(move |line| text(line, "game") == game)
            };
            // The number of tasks with an attempt of this kind. A field such as `opened_at` has the number of the
            // first such attempt, and is null if there was none.
            let reached = |field: &str| found().filter(|line| line[field].is_u64()).count().to_string();
            let until: Vec<f64> = found().filter_map(|line| line["executed_at"].as_f64()).collect();
            let mean = (!until.is_empty()).then(|| until.iter().sum::<f64>() / until.len() as f64);
            let questions: Option<u64> = found().map(|line| line["questions"].as_u64()).sum();
            rows.push(vec![
                run.clone(),
                defence.to_owned(),
                game.to_owned(),
                found().count().to_string(),
                reached("opened_at"),
                reached("violated_at"),
                reached("executed_at"),
                cell(mean),
                questions.map_or_else(|| cell(None), |questions| questions.to_string()),
            ]);
        }
    }
    let header = [
        "run",
        "defence",
        "game",
        "tasks",
        "opened",
        "violated",
        "took effect",
        "attempts until then, mean",
        "questions",
    ];
    (!rows.is_empty()).then(|| table("attack searches", &header, &rows))
}
