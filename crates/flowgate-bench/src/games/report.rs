//! Formats the figures of a run of the games as tables of text; `flowgate bench games` prints them. The numbers of tables,
//! figures and sections, such as Table 4, are those of AgentSecBench.
//!
//! The module `rows` formats the figures as JSON lines and CSV, and `page` as an HTML page. `comparison` compares the
//! default method with the other defences, `search` reports the attack searches, and `paper` puts the figures next to those
//! of AgentSecBench. `experiment` has the reports of `flowgate bench paper`, and `extended` those of the games beyond
//! AgentSecBench.

mod comparison;
mod experiment;
pub mod extended;
mod page;
mod paper;
mod rows;
mod search;

use super::defence::Defence;
use super::figures::DefenceFigures;
use super::interval::Rate;
use super::measure::{risk_reduction, utility_loss};
use super::task::Game;
use super::text_table::{Table, cell, table, texts};

pub use comparison::{comparison_rows, comparison_text};
pub use experiment::{experiment_csv, experiment_json, experiment_page, experiment_text};
pub use page::{PageContent, page};
pub use paper::{ModelFigures, paper_rows, paper_tables};
pub use rows::{csv, csv_tables, figure_rows, object_rows};
pub use search::{attempt_rows, search_text};

/// Returns the Wilson interval of a rate at 95 % as the text of a cell, such as `[0.10, 0.25]`; a dash if nothing was
/// counted.
pub(crate) fn interval_cell(rate: Rate) -> String {
    rate.wilson_95().map_or_else(|| "-".to_owned(), |(low, high)| format!("[{low:.2}, {high:.2}]"))
}

/// Returns all tables as one text, each with a row for each defence: AgentSecBench's Tables 4 to 6, then figures for
/// which it has no table. `model` is the name of the model.
pub fn tables(all: &[DefenceFigures], model: &str) -> String {
    texts(&table_list(all, model))
}

/// Returns the tables, for text and for the page. The table of the effect of each defence compares it with the defence
/// *none*, if that was measured.
fn table_list(all: &[DefenceFigures], model: &str) -> Vec<Table> {
    let base = all.iter().find(|figures| figures.defence == Defence::None);
    vec![
        summary_table(all, model),
        game_table(all),
        decomposition_table(all),
        effect_table(all, base),
        interval_table(all),
    ]
}

/// Returns a row for each defence: its name, then the cells that `cells` returns for its figures.
fn defence_rows(all: &[DefenceFigures], cells: impl Fn(&DefenceFigures) -> Vec<String>) -> Vec<Vec<String>> {
    let row = |figures: &DefenceFigures| {
        let mut row = vec![figures.defence.name()];
        row.extend(cells(figures));
        row
    };
    all.iter().map(row).collect()
}

/// Returns AgentSecBench's Table 4: macro averages, which are means of the games' values with equal weights. `ASR` is
/// the rate of attack success. The leak is that of the retrieval game alone.
fn summary_table(all: &[DefenceFigures], model: &str) -> Table {
    // All defences have run on the same pairs.
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
    table(&title, &header, &defence_rows(all, cells))
}

/// Returns AgentSecBench's Table 5: for each game the rate of the protected event, the closure rate and the benign
/// utility. The event of the retrieval game is the disclosure of a canary. The event of the other games is a violation,
/// measured by the paired advantage.
fn game_table(all: &[DefenceFigures]) -> Table {
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
    table("each game (Table 5)", &header, &defence_rows(all, cells))
}

/// Returns AgentSecBench's Table 6: the decomposition of the risk by its Theorem 1, over all games. The last column is
/// the upper bound that the theorem gives for the column `executed`.
fn decomposition_table(all: &[DefenceFigures]) -> Table {
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
    table("decomposition and executed risk (Table 6, Theorem 1)", &header, &defence_rows(all, cells))
}

/// Returns the table of what a defence gains and costs. The first two columns compare it with `base`, the figures
/// without a defence; they are dashes if these were not measured. Then come the utility under attack, and the gaps to
/// ideal executions, which are not attacked. The last two columns are the worst leakage of a canary, if canaries were
/// enumerated.
fn effect_table(all: &[DefenceFigures], base: Option<&DefenceFigures>) -> Table {
    let header = [
        "defence",
        "risk reduction",
        "utility loss",
        "utility attacked",
        "real/ideal gap",
        "ideal gap",
        "response gap",
        "canary bits",
        "canary adv.",
    ];
    let cells = |figures: &DefenceFigures| {
        let overall = &figures.overall;
        // These two are missing without the figures of the runs without a defence, or if a figure does not exist.
        let reduction = base.and_then(|base| {
            Some(risk_reduction(base.overall.attack_success.value()?, overall.attack_success.value()?))
        });
        let loss =
            base.and_then(|base| Some(utility_loss(base.overall.benign_utility?, overall.benign_utility?)));
        let (canary_bits, canary_advantage) = figures.worst_canary_leakage().unzip();
        vec![
            cell(reduction),
            cell(loss),
            cell(overall.attacked_utility),
            cell(overall.real_ideal_gap),
            cell(overall.ideal_deviation.value()),
            cell(overall.response_gap.value()),
            cell(canary_bits),
            cell(canary_advantage),
        ]
    };
    table(
        "cost, and distance from ideal executions (4.5, 3.6, Definition 3)",
        &header,
        &defence_rows(all, cells),
    )
}

/// Returns the table of the intervals at 95 %. Rates have Wilson's interval. The advantage is not a rate; its interval is
/// that of AgentSecBench's Proposition 4, cut off at -1 and 1.
fn interval_table(all: &[DefenceFigures]) -> Table {
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
    table("intervals at 95 % (Wilson; advantage: Proposition 4)", &header, &defence_rows(all, cells))
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::super::runner::Runner;
    use serde_json::{Map, Value};

    use super::super::suite::GameSuite;
    use super::*;

    /// Returns the figures of all standard defences with the gullible double.
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
}
