//! Formats the experiment of AgentSecBench with several models, for `flowgate bench paper`: tables, one JSON document, CSV, and an HTML page with the
//! means of the models next to the figures of the paper.

use serde_json::{Map, Value, json};

use super::super::experiment::ModelRun;
use super::super::figures::DefenceFigures;
use super::super::reference::CompositeFigures;
use super::page::figure_drawings;
use super::paper::{ModelFigures, compared, paper_rows, paper_table_list};
use super::rows::csv;
use super::{table_list, tables};
use crate::html::{self, Chart, Drawing, Point, ValueWithInterval};

/// Returns the name and the figures of each model.
fn figures_of(runs: &[ModelRun]) -> Vec<ModelFigures<'_>> {
    runs.iter().map(|run| (run.name.as_str(), run.figures.as_slice())).collect()
}

/// Returns the tables of each model, and then Tables 4 to 6 with the means of the models next to the figures of the paper.
pub fn experiment_text(runs: &[ModelRun]) -> String {
    let models = figures_of(runs);
    let mut texts: Vec<String> = models.iter().map(|(name, figures)| tables(figures, name)).collect();
    texts.push(super::paper_tables(&models));
    texts.join("\n")
}

/// Returns one JSON document: the manifest, the figures of each model, and the means next to the figures of the paper.
/// `is_interrupted` says that models are missing.
pub fn experiment_json(runs: &[ModelRun], manifest: &Value, is_interrupted: bool) -> Value {
    json!({
        "manifest": manifest,
        "figures": runs.iter().flat_map(ModelRun::figure_rows).collect::<Vec<_>>(),
        "paper": paper_rows(&figures_of(runs)),
        "interrupted": is_interrupted,
    })
}

/// Returns two tables of comma-separated values, each with a header: the figures of each model, and after an empty line
/// the means of the models, each followed by the figure of the paper.
pub fn experiment_csv(runs: &[ModelRun]) -> String {
    let figures: Vec<Map<String, Value>> = runs
        .iter()
        .flat_map(ModelRun::figure_rows)
        .filter_map(|row| match row {
            Value::Object(row) => Some(row),
            // This does not occur, because every row is an object.
            _ => None,
        })
        .collect();
    let beside: Vec<Map<String, Value>> = paper_rows(&figures_of(runs)).iter().map(flat_row).collect();
    format!("{}\n{}", csv(&figures), csv(&beside))
}

/// Returns a line of [`paper_rows`] as a row for CSV, whose cells are not objects. The fields of the line's object
/// `run` become columns, and those of its object `paper` become columns with the prefix `paper_`. A figure of one game
/// has the name of the game before its own, such as `instruction_event` and `paper_instruction_event`. The names of the
/// models become one text.
fn flat_row(line: &Value) -> Map<String, Value> {
    let models = line.get("models").and_then(Value::as_array).into_iter().flatten();
    let models: Vec<&str> = models.filter_map(Value::as_str).collect();
    let mut row = Map::new();
    row.insert("models".to_owned(), models.join(" ").into());
    for name in ["same_models", "defence"] {
        row.insert(name.to_owned(), line.get(name).cloned().unwrap_or_default());
    }
    for (source, prefix) in [("run", ""), ("paper", "paper_")] {
        for (name, value) in line.get(source).and_then(Value::as_object).into_iter().flatten() {
            // The figures of a game are an object, and become one column each.
            match value.as_object() {
                Some(of_game) => {
                    for (figure, value) in of_game {
                        row.insert(format!("{prefix}{name}_{figure}"), value.clone());
                    }
                }
                None => drop(row.insert(format!("{prefix}{name}"), value.clone())),
            }
        }
    }
    row
}

/// Returns the HTML page: scatters and the tables of the means next to the paper's figures, then the charts and the tables of each model.
pub fn experiment_page(runs: &[ModelRun], manifest: &Value) -> String {
    let models = figures_of(runs);
    let mut drawings = beside_paper(&models);
    let mut tables = paper_table_list(&models);
    for (name, figures) in &models {
        drawings.extend(figure_drawings(figures, &format!(", {name}")));
        tables.extend(model_tables(name, figures));
    }
    html::page("The experiment of AgentSecBench", manifest, &drawings, &tables)
}

/// Returns the tables of the model `name`. A title that does not contain the name of the model gets it at its end,
/// since the page has the tables of several models.
fn model_tables(name: &str, figures: &[DefenceFigures]) -> Vec<crate::games::text_table::Table> {
    let mut tables = table_list(figures, name);
    for table in &mut tables {
        if !table.title.contains(name) {
            table.title = format!("{}, model {name}", table.title);
        }
    }
    tables
}

/// Returns two scatters of means without intervals, with the runs and the paper as points of their own: closure against
/// advantage, and attack success against benign utility.
fn beside_paper(models: &[ModelFigures<'_>]) -> Vec<Drawing> {
    let compared = compared(models);
    // Builds a chart with a point for each defence and source. `axes` chooses the horizontal and the vertical figure of
    // a point; a point that lacks one of them is left out.
    let chart = |title: &str,
                 x: &'static str,
                 y: &'static str,
                 axes: fn(&CompositeFigures) -> (Option<f64>, Option<f64>)| {
        let without_interval = |value: f64| ValueWithInterval { value, low: value, high: value };
        let mut points = Vec::new();
        for (defence, ours, paper) in &compared {
            for (source, figures) in [("runs", ours), ("paper", paper)] {
                let (Some(x), Some(y)) = axes(figures) else { continue };
                let name = format!("{source}: {}", defence.name());
                points.push(Point { name, x: without_interval(x), y: without_interval(y) });
            }
        }
        Chart { title: title.to_owned(), x, y, points }
    };
    let charts = [
        chart(
            "Closure and advantage, means beside the paper (no intervals)",
            "closed channels",
            "adversarial advantage",
            |figures| (figures.closure, figures.advantage),
        ),
        chart(
            "Risk and utility, means beside the paper (no intervals)",
            "attack success",
            "benign utility",
            |figures| (figures.attack_success, figures.benign_utility),
        ),
    ];
    charts.into_iter().filter(|chart| !chart.points.is_empty()).map(Drawing::Scatter).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::double::ModelDouble;
    use super::super::super::suite::GameSuite;
    use super::*;

    /// Returns the runs of two doubles under the names of models, one of which has to be escaped in HTML.
    fn runs() -> Vec<ModelRun> {
        let suite = GameSuite::generate(1, 2);
        let run = |double: ModelDouble, name: &str| {
            let run = ModelRun::complete(&suite, &double, None, &mut || false).unwrap().unwrap();
            ModelRun { name: name.to_owned(), ..run }
        };
        vec![run(ModelDouble::Gullible, "Qwen3-0.6B"), run(ModelDouble::Immune, "<Qwen3-1.7B>")]
    }

    #[test]
    fn each_format_has_the_figures_of_the_paper() {
        let runs = runs();
        let manifest = json!({"type": "manifest", "seed": 1});
        let text = experiment_text(&runs);
        for table in [4, 5, 6] {
            assert_eq!(text.matches(&format!("Table {table} of the paper beside")).count(), 1, "{text}");
        }
        let document = experiment_json(&runs, &manifest, false);
        assert_eq!(document["figures"].as_array().unwrap().len(), 2 * 6 * 4);
        assert_eq!(document["paper"].as_array().unwrap().len(), 6);
        let csv = experiment_csv(&runs);
        let (figures, beside) = csv.split_once("\n\n").unwrap();
        assert_eq!((figures.lines().count(), beside.lines().count()), (1 + 2 * 6 * 4, 1 + 6));
        let header: Vec<&str> = beside.lines().next().unwrap().split(',').collect();
        let none: Vec<&str> =
            beside.lines().find(|line| line.contains(",none,")).unwrap().split(',').collect();
        let column = |name: &str| none[header.iter().position(|column| *column == name).unwrap()];
        assert_eq!(header.len(), none.len());
        assert_eq!((column("attack_success"), column("paper_attack_success")), ("0.5", "0.375"));
        assert_eq!(column("paper_capability_event"), "0.938");
        let page = experiment_page(&runs, &manifest);
        // Two next to the paper; for each model two scatters, three bars and a panel for each game.
        assert_eq!(page.matches("<svg").count(), 2 + 2 * 8, "{page}");
        for expected in ["paper: filter", "runs: filter", "Table 6 of the paper", "model &lt;Qwen3-1.7B&gt;"]
        {
            assert!(page.contains(expected), "{expected}");
        }
        assert!(!page.contains("<Qwen3"));
    }
}
