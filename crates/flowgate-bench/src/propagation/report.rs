//! Formats the figures of a run of the propagation suite: as tables of text, as rows for JSON lines and CSV, and as an
//! HTML page.
//!
//! `flowgate bench propagation` prints what these functions return. JSON lines and CSV have the same figures, since
//! [`figure_rows`] returns the rows of both. The numbers of tables, figures and sections are those of *Permissive
//! Information-Flow Analysis*.

use serde_json::{Map, Value, json};

use super::drawing::grid_drawings;
use super::measure::Spread;
use super::method::LabelMethod;
use super::model_run::ModelResults;
use super::regenerate::Alignment;
use super::suite::{DataSet, DoubleResults, LabelRow, LiteralCost};
use super::tune::{GridPoint, THRESHOLDS};
use crate::games::interval::Rate;
use crate::games::report::interval_cell;
use crate::games::text_table::{Table, cell, table, texts};
use crate::html;
use crate::rate_columns::rate_columns;
use crate::rounding::rounded;

/// Returns the figures of Tables 1 to 3 of *Permissive Information-Flow Analysis*, one row for each double, data set
/// and method; all with the same columns.
pub fn figure_rows(results: &DoubleResults) -> Vec<Map<String, Value>> {
    results.labels.iter().map(figure_row).collect()
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
    // A method without a search has the λ of the search over the prompt.
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
    ] {
        put(name, number(spread.map(|spread| spread.mean)));
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
/// double has the settings that were tried, the alignment of answers, the attacks and the endorsement. The last line is
/// the cost of the literal search, if it was computed.
pub fn lines(all: &[DoubleResults], literal: Option<LiteralCost>) -> Vec<Value> {
    let mut lines: Vec<Value> = all.iter().flat_map(figure_rows).map(Value::Object).collect();
    for results in all {
        let double = results.copying.name();
        lines.extend(grid_lines(double, &results.grids));
        lines.push(alignment_line(double, &results.alignment));
        lines.extend(results.degradation.iter().map(|row| {
            json!({
                "type": "attack", "double": double, "attackers": row.attackers, "conversations": row.in_context.of,
                "improved_in_context": row.in_context.hits, "improved_in_retrieval": row.in_retrieval.hits,
            })
        }));
        let [before, after] = results.endorsement;
        lines.push(json!({
            "type": "endorsement", "double": double, "conversations": before.of, "improved_before": before.hits,
            "improved_after": after.hits,
        }));
    }
    lines.extend(literal.map(|cost| {
        json!({
            "type": "literal", "set": DataSet::KeyValue.name(), "tests": rounded(cost.tests.mean),
            "tests_most": cost.most_tests, "tokens": cost.tokens,
        })
    }));
    lines
}

/// Returns the line of Table 4 for a double or a model with this name.
fn alignment_line(name: &str, alignment: &Alignment) -> Value {
    let mean = |spread: Option<Spread>| spread.map_or(Value::Null, |spread| rounded(spread.mean));
    json!({
        "type": "alignment", "double": name, "whole": mean(alignment.whole),
        "regenerated": mean(alignment.regenerated), "filtered": mean(alignment.filtered),
        "change_if_improvable": mean(alignment.change_if_improvable),
        "change_if_not": mean(alignment.change_if_not),
    })
}

/// Returns all tables as text, under a heading that says that the figures are those of doubles.
pub fn tables(all: &[DoubleResults], literal: Option<LiteralCost>) -> String {
    let heading = "doubles that copy from what is visible: bounds of the methods, not results of a model\n";
    format!("{heading}\n{}", texts(&table_list(all, literal)))
}

/// Returns the HTML page of a run: the tables, and charts of the settings that were tried in tuning.
pub fn page(all: &[DoubleResults], literal: Option<LiteralCost>, manifest: &Value) -> String {
    let drawings = grid_drawings(&grids(all));
    html::page("Permissive label propagation, test doubles", manifest, &drawings, &table_list(all, literal))
}

/// Returns the settings that were tried with each double, with its name.
fn grids(all: &[DoubleResults]) -> Vec<(&str, &[(DataSet, GridPoint)])> {
    all.iter().map(|results| (results.copying.name(), results.grids.as_slice())).collect()
}

/// Returns all tables of a run with doubles, in the order in which the text and the page show them.
fn table_list(all: &[DoubleResults], literal: Option<LiteralCost>) -> Vec<Table> {
    let labels: Vec<&LabelRow> = all.iter().flat_map(|results| &results.labels).collect();
    vec![
        key_value_table(&labels),
        news_table(&labels),
        agent_table(&labels),
        alignment_table(&all.iter().map(|one| (one.copying.name(), one.alignment)).collect::<Vec<_>>()),
        cost_table(&labels, literal),
        attack_table(all),
        grid_table(&grids(all)),
    ]
}

/// Returns the rows whose data set `is_in` accepts.
fn rows_of<'a>(
    labels: &[&'a LabelRow],
    is_in: impl Fn(DataSet) -> bool,
) -> impl Iterator<Item = &'a LabelRow> {
    labels.iter().copied().filter(move |row| is_in(row.set))
}

/// Returns the tables of a run with a model as text.
pub fn model_tables(results: &ModelResults) -> String {
    format!("{}: the labels that its scores give\n\n{}", results.name, texts(&model_table_list(results)))
}

/// Returns the HTML page of a run with a model.
pub fn model_page(results: &ModelResults, manifest: &Value) -> String {
    let drawings = grid_drawings(&[(results.name.as_str(), results.grids.as_slice())]);
    html::page("Permissive label propagation", manifest, &drawings, &model_table_list(results))
}

/// Returns the lines of the format jsonl of a run with a model that follow the manifest: the figures, and the settings
/// that were tried in tuning.
pub fn model_lines(results: &ModelResults) -> Vec<Value> {
    let figures = results.labels.iter().map(figure_row).map(Value::Object);
    let alignment = results.alignment.map(|alignment| alignment_line(&results.name, &alignment));
    figures.chain(grid_lines(&results.name, &results.grids)).chain(alignment).collect()
}

/// Returns the figures of a run with a model, one row for each data set and method.
pub fn model_rows(results: &ModelResults) -> Vec<Map<String, Value>> {
    results.labels.iter().map(figure_row).collect()
}

/// Returns the tables of a run with a real model. Such a run measures no attacks, and the alignment of answers only if
/// the model answers.
fn model_table_list(results: &ModelResults) -> Vec<Table> {
    let labels: Vec<&LabelRow> = results.labels.iter().collect();
    let mut tables = vec![key_value_table(&labels), news_table(&labels), agent_table(&labels)];
    if let Some(alignment) = results.alignment {
        tables.push(alignment_table(&[(&results.name, alignment)]));
    }
    // The cost of the literal search does not depend on a model, so only a run with doubles shows it.
    tables.push(cost_table(&labels, None));
    tables.push(grid_table(&[(results.name.as_str(), results.grids.as_slice())]));
    tables
}

/// Returns a line for each setting that was tried in tuning. `name` is the double or the model that was tuned.
fn grid_lines<'a>(name: &'a str, grid: &'a [(DataSet, GridPoint)]) -> impl Iterator<Item = Value> + 'a {
    grid.iter().map(move |(set, point)| {
        json!({
            "type": "tuning", "double": name, "set": set.name(), "method": point.method.name(),
            "lambda": point.lambda, "shapley": point.threshold, "exact": rounded(point.exact),
        })
    })
}

/// Returns a rate as two counts, such as `3/8`.
fn counted(rate: Rate) -> String {
    format!("{}/{}", rate.hits, rate.of)
}

/// Returns a mean with its standard deviation as the text of a cell; a dash if there were no values.
fn spread_cell(spread: Option<Spread>) -> String {
    let text = |spread: Spread| format!("{} ± {}", cell(Some(spread.mean)), cell(Some(spread.deviation)));
    spread.map_or_else(|| "-".to_owned(), text)
}

/// Returns the λ of a method as the text of a cell: the loss of utility that its search tolerates. A method without a
/// search has a dash.
fn lambda_cell(row: &LabelRow) -> String {
    row.parameters.lambda_of(row.method).map_or_else(|| "-".to_owned(), |lambda| lambda.to_string())
}

/// Returns Table 1 of *Permissive Information-Flow Analysis*, on the key-value questions, which can have several
/// minimal labels. It has how often a method finds exactly these labels, and the precision and recall of what it finds.
fn key_value_table(labels: &[&LabelRow]) -> Table {
    let header = ["double", "set", "method", "λ", "exact", "rate", "95 %", "precision", "recall"];
    let row = |row: &LabelRow| {
        vec![
            row.model.clone(),
            row.set.name().to_owned(),
            row.method.name().to_owned(),
            lambda_cell(row),
            counted(row.figures.exact),
            cell(row.figures.exact.value()),
            interval_cell(row.figures.exact),
            spread_cell(row.figures.precision),
            spread_cell(row.figures.recall),
        ]
    };
    let rows: Vec<_> = rows_of(labels, DataSet::is_key_value).map(row).collect();
    table(
        "key-value: sets of minimal labels; mean ± standard deviation over questions (Table 1)",
        &header,
        &rows,
    )
}

/// Returns Table 2 of *Permissive Information-Flow Analysis*: improved and missed (too low) labels on the news.
fn news_table(labels: &[&LabelRow]) -> Table {
    let rows: Vec<_> = rows_of(labels, |set| matches!(set, DataSet::News(_))).map(chain_row).collect();
    let title = "news: of the labels that can be lowered, the share that was; of the lowered labels, the share that is too low (Table 2)";
    table(title, &CHAIN_HEADER, &rows)
}

/// Returns Table 3 of *Permissive Information-Flow Analysis*: improved and missed (too low) labels on the agent conversations.
fn agent_table(labels: &[&LabelRow]) -> Table {
    let rows: Vec<_> = rows_of(labels, |set| matches!(set, DataSet::Agents { .. })).map(chain_row).collect();
    let title = "agents, with the answer of the data set (given) or of the double (generated) (Table 3)";
    table(title, &CHAIN_HEADER, &rows)
}

/// The columns of Tables 2 and 3 of *Permissive Information-Flow Analysis*.
const CHAIN_HEADER: [&str; 11] =
    ["double", "set", "method", "λ", "exact", "rate", "improved", "rate", "95 %", "missed", "rate"];

/// Returns a row of Table 2 or 3 of *Permissive Information-Flow Analysis*: exact, improved and missed labels. The two
/// labels of these tables, trusted and untrusted, are a chain, so each answer has one least label.
fn chain_row(row: &LabelRow) -> Vec<String> {
    let figures = &row.figures;
    vec![
        row.model.clone(),
        row.set.name().to_owned(),
        row.method.name().to_owned(),
        lambda_cell(row),
        counted(figures.exact),
        cell(figures.exact.value()),
        counted(figures.improvement),
        cell(figures.improvement.value()),
        interval_cell(figures.improvement),
        counted(figures.missed),
        cell(figures.missed.value()),
    ]
}

/// Returns Table 4 of *Permissive Information-Flow Analysis*: the mean alignment (ROUGE-L) of answers with those of the
/// data set. Three columns have the answers from the whole context, at the label that was found, and from trusted texts
/// only. Two columns have the change of the alignment: at the found label where a better one exists, and with trusted
/// texts only where none exists.
fn alignment_table(all: &[(&str, Alignment)]) -> Table {
    let header =
        ["double", "whole context", "at the label", "change if improvable", "if not", "trusted only"];
    let row = |(name, alignment): &(&str, Alignment)| {
        let mut row = vec![(*name).to_owned()];
        let spreads = [
            alignment.whole,
            alignment.regenerated,
            alignment.change_if_improvable,
            alignment.change_if_not,
            alignment.filtered,
        ];
        row.extend(spreads.map(|spread| cell(spread.map(|spread| spread.mean))));
        row
    };
    let title = "agents: ROUGE-L of the answers against the data set's own (Table 4); trusted only: untrusted documents are removed before retrieval (6.1)";
    table(title, &header, &all.iter().map(row).collect::<Vec<_>>())
}

/// Returns a table of the scored texts and the tokens for each question, for the methods that let the model score
/// texts. `literal` becomes the last row: what the literal search (Algorithm 1 of *Permissive Information-Flow
/// Analysis*) would cost on contexts that are too large to run it on, if the utility were lost exactly when a needed
/// fact is missing.
fn cost_table(labels: &[&LabelRow], literal: Option<LiteralCost>) -> Table {
    let header = [
        "double",
        "set",
        "method",
        "calls",
        "most",
        "cut off",
        "tokens",
        "tokens/forward",
        "tokens/unshared",
        "tokens/naive",
    ];
    let row = |row: &LabelRow| {
        vec![
            row.model.clone(),
            row.set.name().to_owned(),
            row.method.name().to_owned(),
            cell(row.figures.calls.map(|calls| calls.mean)),
            row.figures.most_calls.to_string(),
            row.figures.cut_off.to_string(),
            row.figures.tokens.map_or_else(|| "-".to_owned(), |tokens| format!("{:.0}", tokens.mean)),
            cell(row.figures.forward_ratio),
            cell(row.figures.sharing_ratio),
            ratio_cell(row.figures.naive_ratio),
        ]
    };
    let has_cost = |row: &&LabelRow| row.figures.most_calls > 0;
    let mut rows: Vec<_> = rows_of(labels, |_| true).filter(has_cost).map(row).collect();
    rows.extend(literal.map(|cost| {
        // This is the naive algorithm itself. No model was called, so the ratios to one pass and to its calls are missing.
        let [none, tests, naive] = ["-".to_owned(), cell(Some(cost.tests.mean)), ratio_cell(Some(1.0))];
        let tokens = format!("{:.0}", cost.tokens as f64 / cost.questions.max(1) as f64);
        let (set, method) = (DataSet::KeyValue.name().to_owned(), LabelMethod::Literal.name().to_owned());
        let name = "if utility followed the facts".to_owned();
        let [most, cut_off] = [cost.most_tests.to_string(), "0".to_owned()];
        vec![name, set, method, tests, most, cut_off, tokens, none.clone(), none, naive]
    }));
    let title = "cost for each question: scored texts; processed tokens, and these divided by those of one pass, by those of the same calls without a shared prefix, and by those of Algorithm 1 without one (naive)";
    table(title, &header, &rows)
}

/// Returns a ratio of tokens that can be far below 1 as the text of a cell, with five digits after the point; a dash if
/// there is none.
fn ratio_cell(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.5}"))
}

/// Returns a table for sections 6.1 and 6.2 of *Permissive Information-Flow Analysis*: how many labels are improved
/// with each number of attacker documents. The two columns about quotations do not depend on this number, so only the
/// first row of each double has them.
fn attack_table(all: &[DoubleResults]) -> Table {
    let header = ["double", "attackers", "improved in context", "in retrieval", "quoted: before", "after"];
    let row = |results: &DoubleResults| {
        let [before, after] = results.endorsement;
        let row = |(index, attack): (usize, &super::regenerate::Degradation)| {
            let [quoted_before, quoted_after] =
                if index == 0 { [counted(before), counted(after)] } else { Default::default() };
            vec![
                results.copying.name().to_owned(),
                attack.attackers.to_string(),
                counted(attack.in_context),
                counted(attack.in_retrieval),
                quoted_before,
                quoted_after,
            ]
        };
        results.degradation.iter().enumerate().map(row).collect::<Vec<_>>()
    };
    let title = "agents: labels improved with attacker documents and a suggestible double (6.2), and after a trusted quotation (6.1)";
    table(title, &header, &all.iter().flat_map(row).collect::<Vec<_>>())
}

/// Returns a table of the settings that were tried in tuning, each with the share of questions for which it finds
/// exactly the true labels. Each item of `grids` is the name of a double or a model, and its settings. *Permissive
/// Information-Flow Analysis* draws its Figures 7 to 10 from such figures.
fn grid_table(grids: &[(&str, &[(DataSet, GridPoint)])]) -> Table {
    let thresholds = THRESHOLDS.map(|threshold| threshold.to_string());
    let header: Vec<&str> = ["double", "set", "method", "λ", "not pruned"]
        .into_iter()
        .chain(thresholds.iter().map(String::as_str))
        .collect();
    let mut rows: Vec<Vec<String>> = Vec::new();
    for (name, grid) in grids {
        for (set, point) in *grid {
            let lambda = point.lambda.to_string();
            let first = [*name, set.name(), point.method.name(), &lambda].map(str::to_owned);
            // The column of a threshold, after the one without pruning. Settings that differ in it alone are one row.
            let tried = |threshold: f64| THRESHOLDS.iter().position(|other| *other == threshold);
            let column = first.len() + point.threshold.and_then(tried).map_or(0, |place| place + 1);
            if rows.last().is_none_or(|row| row.get(..first.len()) != Some(first.as_slice())) {
                let mut row = first.to_vec();
                row.resize(header.len(), "-".to_owned());
                rows.push(row);
            }
            if let Some(place) = rows.last_mut().and_then(|row| row.get_mut(column)) {
                *place = cell(Some(point.exact));
            }
        }
    }
    let title = "exact matches on tuning questions, which no other table reports: without pruning, and with each Shapley threshold (Figures 7 to 10)";
    table(title, &header, &rows)
}

#[cfg(test)]
mod tests {
    use super::super::double::CopyingErrors;
    use super::super::news::Retriever;
    use super::super::suite::{DataSet, PropagationSuite, Size, plan};
    use super::*;

    /// One row for each λ: the settings that differ in the threshold alone stand next to each other.
    #[test]
    fn the_grid_is_a_table_of_both_parameters() {
        let point = |method, lambda, threshold, exact| {
            (DataSet::KeyValue, GridPoint { method, lambda, threshold, exact })
        };
        let mut grid = vec![
            point(LabelMethod::HittingSet, 0.1, None, 0.5),
            point(LabelMethod::HittingSet, 0.2, None, 0.25),
        ];
        for (lambda, exact) in [(0.1, 0.0), (0.2, 0.5)] {
            let at = |(place, threshold): (usize, &f64)| {
                point(LabelMethod::Shapley, lambda, Some(*threshold), exact + 0.125 * place as f64)
            };
            grid.extend(THRESHOLDS.iter().enumerate().map(at));
        }
        let rows: Vec<String> = grid_table(&[("a", &grid)]).rows.iter().map(|row| row.join(" ")).collect();
        assert_eq!(
            rows,
            [
                "a key-value/14 prompt 0.1 0.500 - - - -",
                "a key-value/14 prompt 0.2 0.250 - - - -",
                "a key-value/14 prompt/shapley 0.1 - 0.000 0.125 0.250 0.375",
                "a key-value/14 prompt/shapley 0.2 - 0.500 0.625 0.750 0.875",
            ]
        );
    }

    #[test]
    fn every_format_has_every_row() {
        let suite = PropagationSuite::new(1, Size { questions: 2, pairs: 2 }).unwrap();
        let all: Vec<DoubleResults> = [CopyingErrors::Exact, CopyingErrors::Distracted]
            .map(|double| suite.run(double, &mut || false).unwrap().unwrap())
            .to_vec();
        let rows: Vec<_> = all.iter().flat_map(figure_rows).collect();
        // Without embeddings, the rows that need them are left out.
        let needs_none = |set: &DataSet| *set != DataSet::News(Retriever::Embeddings);
        assert_eq!(rows.len(), 2 * plan().iter().filter(|(set, _)| needs_none(set)).count());
        let keys = |row: &Map<String, Value>| row.keys().cloned().collect::<Vec<_>>();
        assert!(rows.iter().all(|row| keys(row) == keys(&rows[0])), "a CSV needs the same columns");
        let literal = suite.literal_cost();
        let text = tables(&all, literal);
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
        ] {
            assert!(text.contains(expected), "{expected}:\n{text}");
        }
        let lines = lines(&all, literal);
        for (kind, count) in
            [("figures", rows.len()), ("alignment", 2), ("attack", 10), ("endorsement", 2), ("literal", 1)]
        {
            assert_eq!(lines.iter().filter(|line| line["type"] == kind).count(), count, "{kind}");
        }
        let page = page(&all, literal, &json!({"seed": 1}));
        assert!(page.contains("<h2>manifest</h2>"));
        // The charts of tuning on the key-value questions and on the news.
        for figures in ["(Figures 7, 8)", "(Figures 9, 10)"] {
            for set in ["key-value/14", "news/perfect", "news/tf-idf"] {
                let found = page.lines().any(|line| line.contains(figures) && line.contains(set));
                assert!(found, "{set} {figures}");
            }
        }
    }
}
