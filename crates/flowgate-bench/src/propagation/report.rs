//! Formats the figures of a run of the propagation suite: as tables of text, as rows for JSON lines and CSV, and as an
//! HTML page.
//!
//! `flowgate bench propagation` prints what these functions return; `tables.rs` builds the tables. JSON lines and CSV
//! have the same figures, since [`figure_rows`] returns the rows of both. With several seeds, each line names its seed,
//! and the tables have means and ranges over the seeds.

use serde_json::{Map, Value, json};

use super::drawing::grid_drawings;
use super::measure::Spread;
use super::model_run::ModelResults;
use super::regenerate::{Alignment, Degradation};
use super::seed_results::{FigureRange, SeedResults, mean, mean_grid, ranges};
use super::suite::{DataSet, DoubleResults, LabelRow, LiteralCost};
use super::tables::{
    Runs, agent_table, alignment_table, attack_table, cost_table, grid_table, key_value_table, news_table,
};
use crate::games::text_table::{Table, texts};
use crate::html;
use crate::rate_columns::rate_columns;
use crate::rounding::rounded;

/// Returns the results of each double with each seed in the form that the report reads.
fn double_runs(all: &[Vec<DoubleResults>]) -> Vec<Vec<SeedResults<'_>>> {
    all.iter().map(|seeds| seeds.iter().map(SeedResults::from).collect()).collect()
}

/// Returns the results of a model with each seed in the form that the report reads.
fn model_runs(seeds: &[ModelResults]) -> Vec<Vec<SeedResults<'_>>> {
    vec![seeds.iter().map(SeedResults::from).collect()]
}

/// Returns whether there are results of several seeds.
fn has_seeds(runs: &Runs<'_>) -> bool {
    runs.iter().any(|seeds| seeds.len() > 1)
}

/// Returns the figures of Tables 1 to 3 of *Permissive Information-Flow Analysis*, one row for each double, seed, data
/// set and method; all with the same columns. Each item of `all` has the results of one double with each seed.
pub fn figure_rows(all: &[Vec<DoubleResults>]) -> Vec<Map<String, Value>> {
    rows_of_runs(&double_runs(all))
}

/// Returns the figures of a run with a model, one row for each seed, data set and method.
pub fn model_rows(seeds: &[ModelResults]) -> Vec<Map<String, Value>> {
    rows_of_runs(&model_runs(seeds))
}

/// Returns a row of figures for each double or model, seed, data set and method. If there are several seeds, each row
/// has the column `seed`.
fn rows_of_runs(runs: &Runs<'_>) -> Vec<Map<String, Value>> {
    let has_seeds = has_seeds(runs);
    let row = |seed: u64, row: &LabelRow| {
        let mut fields = figure_row(row);
        if has_seeds {
            fields.insert("seed".to_owned(), seed.into());
        }
        fields
    };
    runs.iter()
        .flatten()
        .flat_map(|results| results.labels.iter().map(|label| row(results.seed, label)).collect::<Vec<_>>())
        .collect()
}

/// Returns the figures of one row with their names in JSON lines and CSV. Intervals are Wilson's at 95 %. A figure is
/// null if it has no cases.
fn figure_row(row: &LabelRow) -> Map<String, Value> {
    let number = |value: Option<f64>| value.map_or(Value::Null, rounded);
    let mut fields = Map::new();
    let mut put = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    let figures = &row.figures;
    put("type", "figures".into());
    put("double", row.model.clone().into());
    put("set", row.set.name().into());
    put("method", row.method.name().into());
    // A method without a search has no λ of its own: its column has that of the search over the prompt.
    put("lambda", row.parameters.lambda_of(row.method).unwrap_or(row.parameters.lambda).into());
    put("shapley", row.parameters.shapley.into());
    let rates = [("exact", figures.exact), ("improvement", figures.improvement), ("missed", figures.missed)];
    // A rate has several columns: the share and its interval. A spread has a mean and a standard deviation.
    for (name, rate) in rates {
        for (name, value) in rate_columns(name, rate) {
            put(&name, value);
        }
    }
    for (name, spread) in [
        ("precision", figures.precision),
        ("recall", figures.recall),
        ("calls", figures.calls),
        ("tokens", figures.tokens),
        ("shapley_error", figures.shapley_error),
    ] {
        put(name, number(mean(spread)));
        put(&format!("{name}_sd"), number(spread.map(|spread| spread.deviation)));
    }
    put("calls_most", figures.most_calls.into());
    put("cut_off", figures.cut_off.into());
    put("tokens_per_forward_token", number(figures.forward_ratio));
    put("tokens_per_unshared_token", number(figures.sharing_ratio));
    put("tokens_per_naive_token", number(figures.naive_ratio));
    fields
}

/// Returns the lines of the format jsonl that follow the manifest. The figures of all doubles come first. Then each
/// double has for each seed the settings that were tried, the alignment of answers, the attacks and the endorsement.
/// After several seeds, a line for each figure has its mean and range. The last lines have the cost of the literal
/// search, one for each seed, if it was computed.
pub fn lines(all: &[Vec<DoubleResults>], literal: &[LiteralCost]) -> Vec<Value> {
    let mut lines = lines_of_runs(&double_runs(all));
    lines.extend(literal.iter().map(|cost| {
        let mut line = json!({
            "type": "literal", "set": DataSet::KeyValue.name(), "tests": rounded(cost.tests.mean),
            "tests_most": cost.most_tests, "tokens": cost.tokens,
        });
        add_seed(&mut line, (literal.len() > 1).then_some(cost.seed));
        line
    }));
    lines
}

/// Returns the lines of the format jsonl of a run with a model that follow the manifest, as [`lines`] does.
pub fn model_lines(seeds: &[ModelResults]) -> Vec<Value> {
    lines_of_runs(&model_runs(seeds))
}

/// Returns the lines of all results: the figures of all doubles or of the model, then the further lines of each double
/// and seed, and then the ranges over several seeds.
fn lines_of_runs(runs: &Runs<'_>) -> Vec<Value> {
    let has_seeds = has_seeds(runs);
    let mut lines: Vec<Value> = rows_of_runs(runs).into_iter().map(Value::Object).collect();
    for results in runs.iter().flatten() {
        let name = results.name;
        let of_seed = grid_lines(results)
            .chain(results.alignment.map(|alignment| alignment_line(name, &alignment)))
            .chain(attack_lines(results));
        lines.extend(of_seed.map(|mut line| {
            add_seed(&mut line, has_seeds.then_some(results.seed));
            line
        }));
    }
    lines.extend(runs.iter().flat_map(|seeds| ranges(seeds)).map(range_line));
    lines
}

/// Adds the seed to a line, if it is given.
fn add_seed(line: &mut Value, seed: Option<u64>) {
    if let (Some(fields), Some(seed)) = (line.as_object_mut(), seed) {
        fields.insert("seed".to_owned(), seed.into());
    }
}

/// Returns the line of a figure over several seeds.
fn range_line(range: FigureRange<'_>) -> Value {
    let FigureRange { row, figure, seeds, mean, lowest, highest } = range;
    json!({
        "type": "seeds", "double": row.model, "set": row.set.name(), "method": row.method.name(),
        "figure": figure, "seeds": seeds, "mean": rounded(mean), "lowest": rounded(lowest),
        "highest": rounded(highest),
    })
}

/// Returns a line for each setting that was tried in tuning.
fn grid_lines<'a>(results: &SeedResults<'a>) -> impl Iterator<Item = Value> + 'a {
    let name = results.name;
    results.grids.iter().map(move |(set, point)| {
        json!({
            "type": "tuning", "double": name, "set": set.name(), "method": point.method.name(),
            "lambda": point.lambda, "shapley": point.threshold, "exact": rounded(point.exact),
        })
    })
}

/// Returns the line of Table 4 for a double or a model with this name.
fn alignment_line(name: &str, alignment: &Alignment) -> Value {
    let mean = |spread: Option<Spread>| mean(spread).map_or(Value::Null, rounded);
    json!({
        "type": "alignment", "double": name, "whole": mean(alignment.whole),
        "regenerated": mean(alignment.regenerated), "filtered": mean(alignment.filtered),
        "change_if_improvable": mean(alignment.change_if_improvable),
        "change_if_not": mean(alignment.change_if_not),
    })
}

/// Returns a line for each number of attacker documents, and a line for endorsement by trusted quotations.
fn attack_lines(results: &SeedResults<'_>) -> Vec<Value> {
    let attack = |row: &Degradation| {
        json!({
            "type": "attack", "double": results.name, "attackers": row.attackers,
            "conversations": row.in_context.of, "improved_in_context": row.in_context.hits,
            "improved_in_retrieval": row.in_retrieval.hits,
        })
    };
    let [before, after] = results.endorsement;
    let endorsement = json!({
        "type": "endorsement", "double": results.name, "conversations": before.of,
        "improved_before": before.hits, "improved_after": after.hits,
    });
    results.degradation.iter().map(attack).chain([endorsement]).collect()
}

/// Returns what a heading says about several seeds; an empty text for one seed.
fn seeds_note(runs: &Runs<'_>) -> String {
    let seeds = runs.iter().map(Vec::len).max().unwrap_or(0);
    match seeds {
        0 | 1 => String::new(),
        seeds => format!("; {seeds} seeds: means, with the least and the greatest; counts are summed"),
    }
}

/// Returns all tables as text, under a heading that says that the figures are those of doubles. Each item of `all` has
/// the results of one double with each seed.
pub fn tables(all: &[Vec<DoubleResults>], literal: &[LiteralCost]) -> String {
    let runs = double_runs(all);
    let heading = "doubles that copy from what is visible: bounds of the methods, not results of a model";
    format!("{heading}{}\n\n{}", seeds_note(&runs), texts(&table_list(&runs, literal)))
}

/// Returns the HTML page of a run: the tables, and charts of the settings that were tried in tuning.
pub fn page(all: &[Vec<DoubleResults>], literal: &[LiteralCost], manifest: &Value) -> String {
    let runs = double_runs(all);
    let title = format!("Permissive label propagation, test doubles{}", seeds_note(&runs));
    page_of(&title, &runs, manifest, &table_list(&runs, literal))
}

/// Returns all tables of a run with doubles, in the order in which the text and the page show them.
fn table_list(runs: &Runs<'_>, literal: &[LiteralCost]) -> Vec<Table> {
    vec![
        key_value_table(runs),
        news_table(runs),
        agent_table(runs),
        alignment_table(runs),
        cost_table(runs, literal),
        attack_table(runs, " and a suggestible double"),
        grid_table(runs),
    ]
}

/// Returns the tables of a run with a model as text. The results are those of each seed.
pub fn model_tables(seeds: &[ModelResults]) -> String {
    let runs = model_runs(seeds);
    let name = seeds.first().map_or("", |results| results.name.as_str());
    let heading = format!("{name}: the labels that its scores give{}", seeds_note(&runs));
    format!("{heading}\n\n{}", texts(&model_table_list(&runs)))
}

/// Returns the HTML page of a run with a model.
pub fn model_page(seeds: &[ModelResults], manifest: &Value) -> String {
    let runs = model_runs(seeds);
    let title = format!("Permissive label propagation{}", seeds_note(&runs));
    page_of(&title, &runs, manifest, &model_table_list(&runs))
}

/// Returns the tables of a run with a real model. Such a run measures attacks and the alignment of answers only if the
/// model answers. The cost of the literal search does not depend on a model, so only a run with doubles shows it.
fn model_table_list(runs: &Runs<'_>) -> Vec<Table> {
    let mut tables = vec![key_value_table(runs), news_table(runs), agent_table(runs)];
    if runs.iter().flatten().any(|results| results.alignment.is_some()) {
        tables.push(alignment_table(runs));
    }
    tables.extend([cost_table(runs, &[]), attack_table(runs, ""), grid_table(runs)]);
    tables
}

/// Returns a page with these tables, and charts of the settings that were tried in tuning: of their means over the
/// seeds.
fn page_of(title: &str, runs: &Runs<'_>, manifest: &Value, tables: &[Table]) -> String {
    let grids: Vec<_> = runs.iter().map(|seeds| mean_grid(seeds)).collect();
    let named =
        runs.iter().zip(&grids).filter_map(|(seeds, grid)| Some((seeds.first()?.name, grid.as_slice())));
    html::page(title, manifest, &grid_drawings(&named.collect::<Vec<_>>()), tables)
}

#[cfg(test)]
mod tests {
    use super::super::double::CopyingErrors;
    use super::super::news::Retriever;
    use super::super::suite::{DataSet, PropagationSuite, Size, plan};
    use super::*;

    #[test]
    fn every_format_has_every_row() {
        let suite = PropagationSuite::new(1, Size { questions: 2, pairs: 2 }).unwrap();
        let all = [CopyingErrors::Exact, CopyingErrors::Distracted]
            .map(|double| vec![suite.run(double, &mut || false).unwrap().unwrap()]);
        let rows = figure_rows(&all);
        // Without embeddings, the rows that need them are left out.
        let needs_none = |set: &DataSet| *set != DataSet::News(Retriever::Embeddings);
        assert_eq!(rows.len(), 2 * plan().iter().filter(|(set, _)| needs_none(set)).count());
        // Only pruning computes Shapley values, which are sampled for 14 labels.
        for row in rows.iter().filter(|row| row["set"] == "key-value/14") {
            let has_error = row["shapley_error"].as_f64().is_some_and(|error| error > 0.0);
            assert_eq!(has_error, row["method"] == "prompt/shapley", "{row:?}");
        }
        let keys = |row: &Map<String, Value>| row.keys().cloned().collect::<Vec<_>>();
        assert!(rows.iter().all(|row| keys(row) == keys(&rows[0])), "a CSV needs the same columns");
        let literal: Vec<LiteralCost> = suite.literal_cost().into_iter().collect();
        let text = tables(&all, &literal);
        for expected in [
            "bounds of the methods",
            "(Table 1)",
            "(Table 2)",
            "(Table 3)",
            "(Table 4)",
            "key-value/8",
            "prompt/literal",
            "news/tf-idf",
            "copy/distracted",
            "if utility followed the facts",
            "tokens/naive",
            "Shapley error",
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        let lines = lines(&all, &literal);
        for (kind, count) in
            [("figures", rows.len()), ("alignment", 2), ("attack", 10), ("endorsement", 2), ("literal", 1)]
        {
            assert_eq!(lines.iter().filter(|line| line["type"] == kind).count(), count, "{kind}");
        }
        let page = page(&all, &literal, &json!({"seed": 1}));
        assert!(page.contains("<h2>manifest</h2>"));
        // The charts of tuning on the key-value questions and on the news.
        for figures in ["(Figures 7, 8)", "(Figures 9, 10)"] {
            for set in ["key-value/14", "news/perfect", "news/tf-idf"] {
                let found = page.lines().any(|line| line.contains(figures) && line.contains(set));
                assert!(found, "{set} {figures}");
            }
        }
    }

    /// With several seeds, each line has its seed, each figure its mean and range, and the tables have the rows of one.
    #[test]
    fn several_seeds_have_means_and_ranges() {
        let suites = [1, 2].map(|seed| PropagationSuite::new(seed, Size { questions: 3, pairs: 3 }).unwrap());
        let runs: Vec<DoubleResults> = suites
            .iter()
            .map(|suite| suite.run(CopyingErrors::Noisy, &mut || false).unwrap().unwrap())
            .collect();
        let literal: Vec<LiteralCost> = suites.iter().filter_map(PropagationSuite::literal_cost).collect();
        let (alone, both) = ([runs[..1].to_vec()], [runs]);
        let rows = figure_rows(&both);
        assert_eq!(rows.len(), 2 * figure_rows(&alone).len());
        assert_eq!([&rows[0]["seed"], &rows[rows.len() - 1]["seed"]], [&json!(1), &json!(2)]);
        assert!(!figure_rows(&alone)[0].contains_key("seed"));
        let (single, several) = (lines(&alone, &literal[..1]), lines(&both, &literal));
        assert!(single.iter().all(|line| line["type"] != "seeds" && line.get("seed").is_none()));
        let (ranges, others): (Vec<Value>, Vec<Value>) =
            several.into_iter().partition(|line| line["type"] == "seeds");
        assert_eq!(others.len(), 2 * single.len());
        assert!(others.iter().all(|line| line["seed"].is_u64()), "{others:?}");
        let exact = ranges.iter().filter(|line| line["figure"] == "exact");
        assert_eq!(exact.count(), figure_rows(&alone).len());
        // The tables have as many lines, and a range where the seeds differ.
        let (single, several) = (tables(&alone, &literal[..1]), tables(&both, &literal));
        assert_eq!(single.lines().count(), several.lines().count());
        assert!(several.contains("; 2 seeds: means, with the least and the greatest"), "{several}");
        assert!(!single.contains('–') && several.contains('–'), "{several}");
        assert!(page(&both, &literal, &json!({})).contains("2 seeds"));
    }
}
