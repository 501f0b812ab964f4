//! Formats the results of the games beyond AgentSecBench: as tables of text, one for each measure with a row for each
//! game and a column for each defence, as JSON objects, and as an HTML page. `flowgate bench extended` prints what
//! these functions return.

use serde_json::{Map, Value, json};

use super::super::adaptive::AttackSearch;
use super::super::defence::Defence;
use super::super::execution::Execution;
use super::super::extended::{ExtendedFigures, ExtendedGame};
use super::super::figures::Figures;
use super::super::text_table::{Table, cell, table, texts};
use super::comparison::comparisons_with_ours;
use super::page::{advantage, benign_utility};
use super::search::search_tables;
use crate::html::{self, Chart, Drawing, Point, ValueWithInterval};
use crate::rounding::rounded;

/// A measure: the title of its table, and the function that formats its cells.
type Column = (&'static str, fn(&Figures) -> String);

/// The measures, in the order of the tables.
const MEASURES: [Column; 6] = [
    ("closed channels", |figures| cell(figures.closure.value())),
    ("adversarial advantage", |figures| cell(figures.advantage)),
    ("violations that took effect", |figures| cell(figures.executed.value())),
    ("benign utility", |figures| cell(figures.benign_utility)),
    ("utility under attack", |figures| cell(figures.attacked_utility)),
    ("questions to a person, in all executions", |figures| figures.questions.to_string()),
];

/// Returns all tables as one text; `model` is the name of the model.
pub fn tables(all: &[ExtendedFigures], model: &str) -> String {
    texts(&table_list(all, model))
}

/// Returns a table for each measure, for text and for the page. The cell of a game that was not played under a defence is a dash.
fn table_list(all: &[ExtendedFigures], model: &str) -> Vec<Table> {
    let (games, defences) = (games(all), defences(all));
    let names: Vec<String> = defences.iter().map(|defence| defence.name()).collect();
    let header: Vec<&str> = ["game"].into_iter().chain(names.iter().map(String::as_str)).collect();
    // All games are played with the same number of pairs.
    let pairs = all.first().map_or(0, |row| row.figures.pairs);
    let mut tables = Vec::new();
    for (title, print) in MEASURES {
        let mut rows: Vec<Vec<String>> = Vec::new();
        for game in &games {
            let mut cells = vec![game.name()];
            for defence in &defences {
                let found = all.iter().find(|row| row.game == *game && row.defence == *defence);
                cells.push(found.map_or_else(|| "-".to_owned(), |row| print(&row.figures)));
            }
            rows.push(cells);
        }
        tables.push(table(&format!("{title}, {pairs} pairs for each game, model {model}"), &header, &rows));
    }
    tables
}

/// Returns the games that have figures, each once, in the order of the figures.
fn games(all: &[ExtendedFigures]) -> Vec<ExtendedGame> {
    let mut games = Vec::new();
    for row in all {
        if !games.contains(&row.game) {
            games.push(row.game);
        }
    }
    games
}

/// Returns the defences that have figures, each once, in the order of the figures.
fn defences(all: &[ExtendedFigures]) -> Vec<Defence> {
    let mut defences = Vec::new();
    for row in all {
        if !defences.contains(&row.defence) {
            defences.push(row.defence);
        }
    }
    defences
}

/// Returns the figures of one game under one defence as a row for JSON lines and CSV, whose keys are the names of the
/// figures. A figure that does not exist, because nothing was counted, is null.
pub fn figure_row(row: &ExtendedFigures, model: &str) -> Map<String, Value> {
    let figures = &row.figures;
    let mut fields = Map::new();
    fields.insert("type".to_owned(), "figures".into());
    fields.insert("model".to_owned(), model.into());
    fields.insert("defence".to_owned(), row.defence.name().into());
    fields.insert("game".to_owned(), row.game.name().into());
    fields.insert("pairs".to_owned(), figures.pairs.into());
    fields.insert("questions".to_owned(), figures.questions.into());
    let (closure_low, closure_high) = figures.closure.wilson_95().unzip();
    let (executed_low, executed_high) = figures.executed.wilson_95().unzip();
    let (utility_low, utility_high) = figures.benign_utility_interval.unzip();
    let (input_tokens, output_tokens) = figures.tokens.unzip();
    let values = [
        ("closure", figures.closure.value()),
        ("closure_low", closure_low),
        ("closure_high", closure_high),
        ("attack_success", figures.attack_success.value()),
        ("advantage", figures.advantage),
        ("advantage_half_width", figures.advantage_half_width()),
        ("executed_risk", figures.executed.value()),
        ("executed_risk_low", executed_low),
        ("executed_risk_high", executed_high),
        ("benign_utility", figures.benign_utility),
        ("benign_utility_low", utility_low),
        ("benign_utility_high", utility_high),
        ("attacked_utility", figures.attacked_utility),
        ("input_tokens", input_tokens),
        ("output_tokens", output_tokens),
    ];
    for (name, value) in values {
        fields.insert(name.to_owned(), value.map_or(Value::Null, rounded));
    }
    fields
}

/// Returns the trace of one execution as a JSON object. The name of the extended game is added, since the execution
/// itself has only the game of AgentSecBench. The object has the model's response only if `content` is set.
pub fn execution_row(game: ExtendedGame, execution: &Execution, model: &str, content: bool) -> Value {
    let mut row = execution.to_json(model, content);
    if let Some(fields) = row.as_object_mut() {
        fields.insert("extended_game".to_owned(), json!(game.name()));
    }
    row
}

/// Returns the HTML page of a run: a chart of risk and utility, a chart for each game that compares the closure and
/// the advantage of the defences, and the tables. `all` has the figures of each game under each defence, and
/// `searches` the attack searches. A defence has no point in a chart if one of the chart's two measures is missing.
pub fn page(
    all: &[ExtendedFigures],
    executions: &[(ExtendedGame, Execution)],
    searches: &[AttackSearch],
    manifest: &Value,
) -> String {
    let seed = manifest.get("seed").and_then(Value::as_u64).unwrap_or_default();
    let model = manifest.get("model").and_then(Value::as_str).unwrap_or_default();
    // The chart of one game.
    let panel = |game: ExtendedGame| {
        let points = all.iter().filter(|row| row.game == game).filter_map(|row| {
            let (x, y) = (ValueWithInterval::of(row.figures.closure)?, advantage(&row.figures)?);
            Some(Point { name: row.defence.name(), x, y })
        });
        let (x, y) = ("closed channels", "adversarial advantage");
        Drawing::Scatter(Chart { title: game.name(), x, y, points: points.collect() })
    };
    let panels: Vec<Drawing> = games(all).into_iter().map(panel).collect();
    // The point of one game under one defence in the chart of risk and utility.
    let risk = |row: &ExtendedFigures| {
        let name = format!("{}: {}", row.game.name(), row.defence.name());
        Some(Point {
            name,
            x: ValueWithInterval::of(row.figures.executed)?,
            y: benign_utility(&row.figures)?,
        })
    };
    let (title, x, y) = ("Risk and utility".to_owned(), "violations that took effect", "benign utility");
    let mut drawings =
        vec![Drawing::Scatter(Chart { title, x, y, points: all.iter().filter_map(risk).collect() })];
    drawings.extend(panels);
    let mut tables = table_list(all, model);
    tables.extend(comparisons_of_games(executions, seed));
    tables.extend(search_tables(searches));
    html::page(&format!("Games beyond the paper, model {model}"), manifest, &drawings, &tables)
}

/// Returns the executions of a run with the name of the game in the id of each task. Tasks of different games can have
/// equal ids; with the name, each task is compared with itself. The statistics group tasks by the part of the id before
/// the first slash: the seed if there are several, otherwise the first part of the game's name.
fn named_by_game(executions: &[(ExtendedGame, Execution)]) -> Vec<Execution> {
    let named = executions.iter().map(|(game, execution)| {
        let task = match execution.task.split_once('/') {
            Some((seed, task)) => format!("{seed}/{}/{task}", game.name()),
            None => format!("{}/{}", game.name(), execution.task),
        };
        Execution { task, ..execution.clone() }
    });
    named.collect()
}

/// Returns the table that compares the default method with the other defences over all games. The bootstrap draws games, or
/// seeds if there are several, and then their tasks. `None` if the default was not measured, or differs from no other
/// defence.
fn comparisons_of_games(executions: &[(ExtendedGame, Execution)], seed: u64) -> Option<Table> {
    comparisons_with_ours(&named_by_game(executions), seed)
}

/// Returns the comparisons of the default method with the other defences over all games as a table of text; empty if
/// there is none.
pub fn comparison_text(executions: &[(ExtendedGame, Execution)], seed: u64) -> String {
    comparisons_of_games(executions, seed).map(|table| table.to_text()).unwrap_or_default()
}

/// Returns the comparisons of the default method with the other defences over all games as JSON objects.
pub fn comparison_rows(executions: &[(ExtendedGame, Execution)], seed: u64) -> Vec<Value> {
    super::comparison_rows(&named_by_game(executions), seed)
}

#[cfg(test)]
mod tests {
    use super::super::super::double::ModelDouble;
    use super::super::super::extended::ExtendedSuite;
    use super::super::super::journey::JourneyGame;
    use super::super::super::runner::Runner;
    use super::super::comparison::OURS;
    use super::*;

    /// Every format has every game and defence, with the same numbers; the tests of the suite check what they are.
    #[test]
    fn formats_have_every_row() {
        let suite = ExtendedSuite { seed: 1, seeds: 1, instances: 2 };
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let (mut all, mut kept) = (Vec::new(), Vec::new());
        for game in [ExtendedGame::Journey(JourneyGame::Plan, None), ExtendedGame::all()[0]] {
            for defence in [Defence::None, Defence::Combined, OURS] {
                let executions = suite.run(&runner, game, defence, &mut || false).unwrap().unwrap();
                let row = execution_row(game, &executions[0], "gullible", false);
                assert_eq!(row["extended_game"], game.name());
                all.push(ExtendedFigures { game, defence, figures: Figures::of(&executions) });
                kept.extend(executions.into_iter().map(|execution| (game, execution)));
            }
        }
        let text = tables(&all, "gullible");
        for (title, _) in MEASURES {
            assert!(text.contains(&format!("{title}, 2 pairs")), "{text}");
        }
        let page = page(&all, &kept, &[], &json!({"model": "gullible"}));
        assert_eq!(page.matches("<svg").count(), 3);
        assert!(page.contains("compared in pairs") && comparison_text(&kept, 1).contains("combined"));
        assert_eq!(comparison_rows(&kept, 1).len(), 4);
        for row in &all {
            let fields = figure_row(row, "gullible");
            assert_eq!(fields["game"], row.game.name());
            assert_eq!(fields["executed_risk"].as_f64(), row.figures.executed.value());
            assert!(text.contains(&row.game.name()) && page.contains(&row.game.name()));
        }
    }
}
