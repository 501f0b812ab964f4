//! Formats the figures of runs next to those of AgentSecBench's Tables 4 to 6. `flowgate bench games` prints the tables
//! if a model answered, and `flowgate bench paper` prints them for several models together.

use serde_json::{Value, json};

use super::super::defence::Defence;
use super::super::figures::DefenceFigures;
use super::super::reference::{CompositeFigures, are_paper_models, composite, paper_figures};
use super::super::text_table::{Table, cell, table, texts};
use crate::rounding::rounded;

/// The figures of one model: its name, and a row for each defence.
pub type ModelFigures<'a> = (&'a str, &'a [DefenceFigures]);

/// Returns Tables 4 to 6 as text, with the figures of the runs next to those of the paper. They have a row for each
/// defence of the paper that all runs have; the text is empty if there is none. The figures of several models are
/// averaged with equal weights, as in the paper.
pub fn paper_tables(runs: &[ModelFigures<'_>]) -> String {
    texts(&paper_table_list(runs))
}

/// Returns AgentSecBench's Tables 4 to 6 with the figures of the runs next to those of the paper; none if no defence of the paper is in all runs.
pub(super) fn paper_table_list(runs: &[ModelFigures<'_>]) -> Vec<Table> {
    let compared = compared(runs);
    if compared.is_empty() {
        return Vec::new();
    }
    let models = model_phrase(runs);
    // Each figure has two columns: that of the runs, and that of the paper.
    let with_paper = |titles: &[&str]| -> Vec<String> {
        let pairs = titles.iter().flat_map(|title| [(*title).to_owned(), "paper".to_owned()]);
        std::iter::once("defence".to_owned()).chain(pairs).collect()
    };
    // Builds the table with this number in the paper; `figures` chooses the figures of a row, in the order of `titles`.
    let build = |number: u8, titles: &[&str], figures: &dyn Fn(&CompositeFigures) -> Vec<Option<f64>>| {
        let header = with_paper(titles);
        let header: Vec<&str> = header.iter().map(String::as_str).collect();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for (defence, ours, paper) in &compared {
            let mut cells = vec![defence.name()];
            for (of_runs, of_paper) in figures(ours).into_iter().zip(figures(paper)) {
                cells.extend([cell(of_runs), cell(of_paper)]);
            }
            rows.push(cells);
        }
        table(&format!("Table {number} of the paper beside {models}"), &header, &rows)
    };
    vec![
        build(4, &["ASR", "advantage", "RAG leak", "closed", "benign utility"], &|figures| {
            let CompositeFigures { attack_success, advantage, leakage, closure, benign_utility, .. } =
                *figures;
            vec![attack_success, advantage, leakage, closure, benign_utility]
        }),
        build(
            5,
            &["instruction: adv.", "closed", "retrieval: leak", "closed", "capability: adv.", "closed"],
            &|figures| figures.games.iter().flat_map(|(event, closure)| [*event, *closure]).collect(),
        ),
        build(6, &["closed", "risk if open", "risk if closed"], &|figures| {
            vec![figures.closure, figures.open_risk, figures.closed_risk]
        }),
    ]
}

/// Returns a JSON line for each defence of [`paper_tables`], with each figure of the runs and of the paper.
pub fn paper_rows(runs: &[ModelFigures<'_>]) -> Vec<Value> {
    let line = |(defence, ours, paper): &(Defence, CompositeFigures, CompositeFigures)| {
        json!({
            "type": "paper",
            "models": runs.iter().map(|(model, _)| *model).collect::<Vec<_>>(),
            "same_models": are_the_paper_models(runs),
            "defence": defence.name(),
            "run": values(ours),
            "paper": values(paper),
        })
    };
    compared(runs).iter().map(line).collect()
}

/// Returns the figures as a JSON object; a figure that does not exist is null.
fn values(figures: &CompositeFigures) -> Value {
    let value = |figure: Option<f64>| figure.map_or(Value::Null, rounded);
    let game = |(event, closure): (Option<f64>, Option<f64>)| json!({"event": value(event), "closure": value(closure)});
    let [instruction, retrieval, capability] = figures.games.map(game);
    json!({
        "attack_success": value(figures.attack_success),
        "advantage": value(figures.advantage),
        "leakage": value(figures.leakage),
        "closure": value(figures.closure),
        "benign_utility": value(figures.benign_utility),
        "instruction": instruction,
        "retrieval": retrieval,
        "capability": capability,
        "open_channel_risk": value(figures.open_risk),
        "closed_channel_risk": value(figures.closed_risk),
    })
}

/// Returns the defences of the paper that all runs have. Each item is the defence, the average of its figures over the
/// runs, and its figures in the paper.
pub(super) fn compared(runs: &[ModelFigures<'_>]) -> Vec<(Defence, CompositeFigures, CompositeFigures)> {
    let of = |defence: Defence| {
        let rows: Option<Vec<&DefenceFigures>> =
            runs.iter().map(|(_, all)| all.iter().find(|figures| figures.defence == defence)).collect();
        Some((defence, composite(&rows?)?, paper_figures(defence)?))
    };
    Defence::of_the_paper().into_iter().filter_map(of).collect()
}

/// Returns whether the runs are those of the two models of AgentSecBench, judged by the names of the models.
fn are_the_paper_models(runs: &[ModelFigures<'_>]) -> bool {
    are_paper_models(&runs.iter().map(|(model, _)| *model).collect::<Vec<_>>())
}

/// Returns the part of a table's title that names the models of the runs, and says whether the paper measured the
/// same models.
fn model_phrase(runs: &[ModelFigures<'_>]) -> String {
    let names: Vec<&str> = runs.iter().map(|(model, _)| *model).collect();
    let names = names.join(", ");
    if are_the_paper_models(runs) {
        format!("{names}: its two models, on other tasks of the same form")
    } else {
        format!(
            "{names}: the paper's figures are those of other models (Qwen3-0.6B and Qwen3-1.7B) on other tasks"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::double::ModelDouble;
    use super::super::super::runner::Runner;
    use super::super::super::suite::GameSuite;
    use super::*;

    /// Returns the figures of a double under each of the defences.
    fn figures(double: ModelDouble, defences: &[Defence]) -> Vec<DefenceFigures> {
        let suite = GameSuite::generate(1, 8);
        let runner = Runner::new(&double, None).unwrap();
        let of = |defence: &Defence| {
            let executions = suite.run_defence(&runner, *defence, &mut || false).unwrap().unwrap();
            DefenceFigures::of(*defence, &executions, Vec::new())
        };
        defences.iter().map(of).collect()
    }

    #[test]
    fn figures_stand_beside_those_of_the_paper() {
        let (all, some) = (Defence::of_the_paper(), [Defence::Filter, Defence::None]);
        let gullible = figures(ModelDouble::Gullible, &all);
        let immune = figures(ModelDouble::Immune, &some);
        let text = paper_tables(&[("gullible", &gullible)]);
        assert!(
            text.contains(
                "Table 4 of the paper beside gullible: the paper's figures are those of other models"
            )
        );
        let line = |text: &str, table: &str, defence: &str| {
            let table = text.split("Table ").find(|part| part.starts_with(table)).unwrap();
            let line = table.lines().find(|line| line.starts_with(defence)).unwrap();
            line.split_whitespace().skip(1).map(str::to_owned).collect::<Vec<_>>()
        };
        let filter =
            ["0.333", "0.042", "0.333", "0.042", "0.625", "0.125", "0.542", "0.542", "1.000", "0.361"];
        assert_eq!(line(&text, "4", "filter"), filter);
        let none = [
            "1.000", "0.000", "0.000", "0.000", "1.000", "0.188", "0.000", "0.000", "1.000", "0.938",
            "0.000", "0.000",
        ];
        assert_eq!(line(&text, "5", "none"), none);
        assert_eq!(line(&text, "6", "combined"), ["1.000", "1.000", "-", "-", "0.000", "0.000"]);
        // Only the defences of all runs, averaged.
        let both = [("Qwen3-0.6B", gullible.as_slice()), ("Qwen3-1.7B", immune.as_slice())];
        let text = paper_tables(&both);
        assert!(text.contains("its two models") && !text.contains("combined"), "{text}");
        assert_eq!(line(&text, "4", "none")[..2], ["0.500", "0.375"]);
        let rows = paper_rows(&both);
        assert_eq!((rows.len(), rows[0]["same_models"].as_bool()), (2, Some(true)));
        assert_eq!(rows[0]["defence"], "none");
        assert_eq!(rows[0]["paper"]["capability"]["event"], 0.938);
        assert_eq!(rows[0]["run"]["attack_success"], 0.5);
        assert_eq!(rows[0]["paper"]["closed_channel_risk"], Value::Null);
        assert_eq!((paper_tables(&[]), paper_rows(&[])), (String::new(), Vec::new()));
    }
}
