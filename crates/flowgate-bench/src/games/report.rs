//! Prints the figures of a run as tables for people, and as JSON and CSV for programs.
//!
//! `flowgate bench games` calls this module. One list names the figures, for JSON and CSV alike.

use serde_json::{Map, Value};

use super::adaptive::{AttackSearch, search_rates};
use super::defence::Defence;
use super::figures::{DefenceFigures, Figures};
use super::interval::Rate;
use super::measure::{risk_reduction, utility_loss};
use super::task::Game;
use super::text_table::{cell, table};

/// Returns the figures of one defence by name: of each game, then of all games. Shares are from 0 to 1; a figure that does not
/// exist is null. `undefended` are the figures of the defence *none*, if it was measured.
pub fn figure_rows(
    figures: &DefenceFigures,
    undefended: Option<&DefenceFigures>,
    model: &str,
) -> Vec<Map<String, Value>> {
    let base = |index: usize| undefended.and_then(|base| base.games.get(index));
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
    let mut rows: Vec<Map<String, Value>> = Game::ALL
        .iter()
        .zip(&figures.games)
        .enumerate()
        .map(|(index, (game, of_game))| row(game.name(), of_game, base(index), *game == Game::Retrieval))
        .collect();
    rows.push(row("all", &figures.overall, undefended.map(|base| &base.overall), true));
    rows
}

/// The figures of one row by name.
fn columns(
    figures: &Figures,
    base: Option<&Figures>,
    leakage: Option<(f64, f64)>,
) -> Vec<(&'static str, Option<f64>)> {
    let interval = |rate: Rate| (rate.wilson_95().map(|ends| ends.0), rate.wilson_95().map(|ends| ends.1));
    let (success_low, success_high) = interval(figures.attack_success);
    let (closure_low, closure_high) = interval(figures.closure);
    let reduction = base
        .and_then(|base| Some(risk_reduction(base.attack_success.value()?, figures.attack_success.value()?)));
    let loss = base.and_then(|base| Some(utility_loss(base.benign_utility?, figures.benign_utility?)));
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
        ("attacked_utility", figures.attacked_utility),
        ("open_channel_risk", figures.open_risk.value()),
        ("closed_channel_risk", figures.closed_risk.value()),
        ("executed_risk", figures.executed.value()),
        ("validator_false_negatives", figures.validator_misses.value()),
        ("executed_risk_bound", figures.executed_bound()),
        ("risk_reduction", reduction),
        ("utility_loss", loss),
        ("real_ideal_gap", figures.real_ideal_gap),
        ("response_gap", figures.response_gap.value()),
        ("canary_bits", leakage.map(|leakage| leakage.0)),
        ("canary_advantage", leakage.map(|leakage| leakage.1)),
    ]
}

/// Rounds to six digits, so that no platform's last bit shows.
fn rounded(value: f64) -> Value {
    // Adding 0 turns a negative zero into a positive one.
    Value::from((value * 1e6).round() / 1e6 + 0.0)
}

/// Prints rows as CSV, with a header of their keys.
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

/// Quotes a cell if it needs it (RFC 4180).
fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

fn interval_cell(rate: Rate) -> String {
    rate.wilson_95().map_or_else(|| "-".to_owned(), |(low, high)| format!("[{low:.2}, {high:.2}]"))
}

/// Prints the tables: the paper's Tables 4 to 6, then what the paper does not tabulate.
pub fn tables(all: &[DefenceFigures], model: &str) -> String {
    let base = all.iter().find(|figures| figures.defence == Defence::None);
    let tables = [
        summary_table(all, model),
        game_table(all),
        decomposition_table(all),
        effect_table(all, base),
        interval_table(all),
    ];
    tables.join("\n")
}

fn rows(all: &[DefenceFigures], cells: impl Fn(&DefenceFigures) -> Vec<String>) -> Vec<Vec<String>> {
    let row = |figures: &DefenceFigures| {
        let mut row = vec![figures.defence.name()];
        row.extend(cells(figures));
        row
    };
    all.iter().map(row).collect()
}

/// Table 4: macro averages over the games.
fn summary_table(all: &[DefenceFigures], model: &str) -> String {
    let pairs = all.first().map_or(0, |figures| figures.overall.pairs);
    let title = format!("advantage and closure, {pairs} pairs for each defence, model {model} (Table 4)");
    let header = ["defence", "enforcement", "ASR", "advantage", "RAG leak", "closed", "benign utility"];
    let cells = |figures: &DefenceFigures| {
        vec![
            figures.defence.enforcement().name().to_owned(),
            cell(figures.macro_average(|figures| figures.attack_success.value())),
            cell(figures.macro_average(|figures| figures.advantage)),
            cell(figures.overall.leakage.value()),
            cell(figures.macro_average(|figures| figures.closure.value())),
            cell(figures.macro_average(|figures| figures.benign_utility)),
        ]
    };
    table(&title, &header, &rows(all, cells))
}

/// Formats Table 5: for each game the paired advantage and the closure rate, and the benign utility.
fn game_table(all: &[DefenceFigures]) -> String {
    let header = [
        "defence",
        "instruction: adv.",
        "closed",
        "utility",
        "retrieval: leak",
        "closed",
        "utility",
        "capability: adv.",
        "closed",
        "utility",
    ];
    let cells = |figures: &DefenceFigures| {
        let events = Game::ALL.iter().zip(&figures.games).flat_map(|(game, figures)| {
            let event = match game {
                Game::Retrieval => figures.leakage.value(),
                Game::Instruction | Game::Capability => figures.advantage,
            };
            [cell(event), cell(figures.closure.value()), cell(figures.benign_utility)]
        });
        events.collect()
    };
    table("each game (Table 5)", &header, &rows(all, cells))
}

/// Table 6: the decomposition of Theorem 1.
fn decomposition_table(all: &[DefenceFigures]) -> String {
    let header =
        ["defence", "closed", "risk if open", "risk if closed", "validator misses", "executed", "bound"];
    let cells = |figures: &DefenceFigures| {
        let overall = &figures.overall;
        vec![
            cell(overall.closure.value()),
            cell(overall.open_risk.value()),
            cell(overall.closed_risk.value()),
            cell(overall.validator_misses.value()),
            cell(overall.executed.value()),
            cell(overall.executed_bound()),
        ]
    };
    table("decomposition and executed risk (Table 6, Theorem 1)", &header, &rows(all, cells))
}

/// What a defence gains and costs, and the gaps to ideal executions.
fn effect_table(all: &[DefenceFigures], base: Option<&DefenceFigures>) -> String {
    let header = [
        "defence",
        "risk reduction",
        "utility loss",
        "utility attacked",
        "real/ideal gap",
        "response gap",
        "canary bits",
        "canary adv.",
    ];
    let cells = |figures: &DefenceFigures| {
        let overall = &figures.overall;
        let reduction = base.and_then(|base| {
            Some(risk_reduction(base.overall.attack_success.value()?, overall.attack_success.value()?))
        });
        let loss =
            base.and_then(|base| Some(utility_loss(base.overall.benign_utility?, overall.benign_utility?)));
        let leakage = figures.worst_canary_leakage();
        vec![
            cell(reduction),
            cell(loss),
            cell(overall.attacked_utility),
            cell(overall.real_ideal_gap),
            cell(overall.response_gap.value()),
            cell(leakage.map(|leakage| leakage.0)),
            cell(leakage.map(|leakage| leakage.1)),
        ]
    };
    table("cost, and distance from ideal executions (4.5, 3.6, Definition 3)", &header, &rows(all, cells))
}

/// Prints the results of attack searches: for each defence, the shares of tasks, and the mean number of queries until the first
/// effect, over the tasks that have one.
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
    table(&title, &header, &defences.iter().map(row).collect::<Vec<_>>())
}

/// The intervals at 95 %: Wilson for rates, Proposition 4 for the advantage.
fn interval_table(all: &[DefenceFigures]) -> String {
    let header = ["defence", "ASR", "closed", "executed", "advantage"];
    let cells = |figures: &DefenceFigures| {
        let overall = &figures.overall;
        let advantage = overall.advantage.zip(overall.advantage_half_width()).map_or_else(
            || "-".to_owned(),
            |(advantage, half)| {
                format!("[{:.2}, {:.2}]", (advantage - half).max(-1.0), (advantage + half).min(1.0))
            },
        );
        let rates = [overall.attack_success, overall.closure, overall.executed];
        rates.map(interval_cell).into_iter().chain([advantage]).collect()
    };
    table("intervals at 95 % (Wilson; advantage: Proposition 4)", &header, &rows(all, cells))
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::super::runner::Runner;
    use super::super::suite::GameSuite;
    use super::*;

    fn figures() -> Vec<DefenceFigures> {
        let suite = GameSuite::generate(2, 3);
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let measure = |defence: Defence| {
            let executions = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
            DefenceFigures::of(defence, &executions, suite.enumerate_leakage(&runner, defence).unwrap())
        };
        Defence::standard().into_iter().map(measure).collect()
    }

    /// The same numbers in each format, and the same text in each run.
    #[test]
    fn formats_agree_and_repeat() {
        let (all, again) = (figures(), figures());
        let rows = |all: &[DefenceFigures]| -> Vec<Map<String, Value>> {
            all.iter().flat_map(|figures| figure_rows(figures, all.first(), "gullible")).collect()
        };
        assert_eq!(csv(&rows(&all)), csv(&rows(&again)));
        assert_eq!(tables(&all, "gullible"), tables(&again, "gullible"));
        let text = csv(&rows(&all));
        let mut lines = text.lines();
        let names: Vec<&str> = lines.next().unwrap().split(',').collect();
        for (row, line) in rows(&all).iter().zip(lines) {
            let cells: Vec<&str> = line.split(',').collect();
            assert_eq!(cells.len(), names.len(), "{line}");
            for (name, cell) in names.iter().zip(cells) {
                let expected = match &row[*name] {
                    Value::Null => String::new(),
                    Value::String(text) => text.clone(),
                    value => value.to_string(),
                };
                assert_eq!(cell, expected, "{name}");
            }
        }
    }

    #[test]
    fn cells_of_csv_are_quoted_if_necessary() {
        let check = |text: &str, expected: &str| assert_eq!(csv_cell(text), expected);
        check("plain", "plain");
        check("a,b", "\"a,b\"");
        check("say \"x\"", "\"say \"\"x\"\"\"");
        check("two\nlines", "\"two\nlines\"");
        assert_eq!(csv(&[]), "");
    }

    #[test]
    fn rounded_numbers_have_no_negative_zero() {
        assert_eq!(rounded(-0.0).to_string(), "0.0");
    }
}
