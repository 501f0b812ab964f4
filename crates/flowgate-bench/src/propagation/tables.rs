//! Builds the tables of a run of the propagation suite, which `report.rs` prints and puts on a page. The numbers of
//! tables, figures and sections are those of *Permissive Information-Flow Analysis*. With several seeds, the cells have
//! means and ranges ([`merged`]).

use super::cells::{Cell, merged};
use super::method::LabelMethod;
use super::regenerate::Degradation;
use super::seed_results::{SeedResults, mean};
use super::suite::{DataSet, LabelRow, LiteralCost};
use super::tune::THRESHOLDS;
use crate::games::text_table::{Table, table};

/// The results of each double or model with each seed.
pub(super) type Runs<'a> = [Vec<SeedResults<'a>>];

/// Returns a table with the rows of each double or model. `rows` returns the rows of one seed; the rows of several
/// seeds are merged into rows with means and ranges.
fn table_of(
    title: &str,
    header: &[&str],
    runs: &Runs<'_>,
    rows: impl Fn(&SeedResults<'_>) -> Vec<Vec<Cell>>,
) -> Table {
    let merged_rows = |seeds: &Vec<SeedResults<'_>>| merged(&seeds.iter().map(&rows).collect::<Vec<_>>());
    table(title, header, &runs.iter().flat_map(merged_rows).collect::<Vec<_>>())
}

/// Returns the cells of the rows of the data sets that `is_in` accepts.
fn rows_of(
    seed: &SeedResults<'_>,
    is_in: impl Fn(DataSet) -> bool,
    cells: impl Fn(&LabelRow) -> Vec<Cell>,
) -> Vec<Vec<Cell>> {
    seed.labels.iter().filter(|row| is_in(row.set)).map(cells).collect()
}

/// Returns the first cells of a row: the double or the model, the data set and the method.
fn names(row: &LabelRow) -> [Cell; 3] {
    [Cell::name(&row.model), Cell::name(row.set.name()), Cell::name(row.method.name())]
}

/// Returns the λ of a method: the loss of utility that its search tolerates. A method without a search has a dash.
fn lambda(row: &LabelRow) -> Cell {
    Cell::Setting(row.parameters.lambda_of(row.method))
}

/// Returns Table 1, on the key-value questions, which can have several minimal labels. It has how often a method finds
/// exactly these labels, the precision and recall of what it finds, and the mean over questions of the largest standard
/// error of the Shapley values by which it pruned.
pub(super) fn key_value_table(runs: &Runs<'_>) -> Table {
    let header =
        ["double", "set", "method", "λ", "exact", "rate", "95 %", "precision", "recall", "Shapley error"];
    let cells = |row: &LabelRow| {
        let figures = &row.figures;
        let cells = [
            lambda(row),
            Cell::Count(figures.exact),
            Cell::figure(figures.exact.value()),
            Cell::Interval(figures.exact),
            Cell::Mean(figures.precision),
            Cell::Mean(figures.recall),
            Cell::figure(mean(figures.shapley_error)),
        ];
        names(row).into_iter().chain(cells).collect::<Vec<_>>()
    };
    let title = "key-value: sets of minimal labels; mean ± standard deviation over questions (Table 1)";
    table_of(title, &header, runs, |seed| rows_of(seed, DataSet::is_key_value, cells))
}

/// Returns Table 2: improved and missed (too low) labels on the news.
pub(super) fn news_table(runs: &Runs<'_>) -> Table {
    let title = "news: of the labels that can be lowered, the share that was; of the lowered labels, the share that is too low (Table 2)";
    let is_news = |set| matches!(set, DataSet::News(_));
    table_of(title, &CHAIN_HEADER, runs, |seed| rows_of(seed, is_news, chain_row))
}

/// Returns Table 3: improved and missed (too low) labels on the agent conversations.
pub(super) fn agent_table(runs: &Runs<'_>) -> Table {
    let title = "agents, with the answer of the data set (given) or of the double (generated) (Table 3)";
    let is_agents = |set| matches!(set, DataSet::Agents { .. });
    table_of(title, &CHAIN_HEADER, runs, |seed| rows_of(seed, is_agents, chain_row))
}

/// The columns of Tables 2 and 3.
const CHAIN_HEADER: [&str; 11] =
    ["double", "set", "method", "λ", "exact", "rate", "improved", "rate", "95 %", "missed", "rate"];

/// Returns a row of Table 2 or 3: exact, improved and missed labels. The two labels of these tables, trusted and
/// untrusted, are a chain, so each answer has one least label.
fn chain_row(row: &LabelRow) -> Vec<Cell> {
    let figures = &row.figures;
    let cells = [
        lambda(row),
        Cell::Count(figures.exact),
        Cell::figure(figures.exact.value()),
        Cell::Count(figures.improvement),
        Cell::figure(figures.improvement.value()),
        Cell::Interval(figures.improvement),
        Cell::Count(figures.missed),
        Cell::figure(figures.missed.value()),
    ];
    names(row).into_iter().chain(cells).collect()
}

/// Returns Table 4: the mean alignment (ROUGE-L) of answers with those of the data set. Three columns have the answers
/// from the whole context, at the label that was found, and from trusted texts only. Two columns have the change of the
/// alignment: at the found label where a better one exists, and with trusted texts only where none exists. A model that
/// only scores texts has no row.
pub(super) fn alignment_table(runs: &Runs<'_>) -> Table {
    let header =
        ["double", "whole context", "at the label", "change if improvable", "if not", "trusted only"];
    let title = "agents: ROUGE-L of the answers against the data set's own (Table 4); trusted only: untrusted documents are removed before retrieval (6.1)";
    table_of(title, &header, runs, |seed| {
        let row = |alignment: super::regenerate::Alignment| {
            let spreads = [
                alignment.whole,
                alignment.regenerated,
                alignment.change_if_improvable,
                alignment.change_if_not,
                alignment.filtered,
            ];
            let figures = spreads.map(|spread| Cell::figure(mean(spread)));
            [Cell::name(seed.name)].into_iter().chain(figures).collect()
        };
        seed.alignment.map(row).into_iter().collect()
    })
}

/// Returns a table of the scored texts and the tokens for each question, for the methods that let the model score
/// texts. The last row has, from `literal`, the cost that the literal search (Algorithm 1) would have for each seed.
/// It cannot be run on contexts that large, so this cost assumes that an answer loses its utility exactly when a
/// needed fact is missing.
pub(super) fn cost_table(runs: &Runs<'_>, literal: &[LiteralCost]) -> Table {
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
    let cells = |row: &LabelRow| {
        let figures = &row.figures;
        let cells = [
            Cell::figure(mean(figures.calls)),
            Cell::whole(figures.most_calls),
            Cell::whole(figures.cut_off),
            Cell::Figure(mean(figures.tokens), 0),
            Cell::figure(figures.forward_ratio),
            Cell::figure(figures.sharing_ratio),
            // This ratio can be far below 1.
            Cell::Figure(figures.naive_ratio, 5),
        ];
        names(row).into_iter().chain(cells).collect::<Vec<_>>()
    };
    let title = "cost for each question: scored texts; processed tokens, and these divided by those of one pass, by those of the same calls without a shared prefix, and by those of Algorithm 1 without one (naive)";
    let mut table = table_of(title, &header, runs, |seed| {
        seed.labels.iter().filter(|row| row.figures.most_calls > 0).map(cells).collect()
    });
    // The row of one seed, as a table of its own, since `merged` merges tables.
    let literal_row = |cost: &LiteralCost| {
        // This is the naive algorithm itself, so the ratio to it is 1. No model was called, so the ratios to one pass
        // and to its calls are missing.
        vec![vec![
            Cell::name("if utility followed the facts"),
            Cell::name(DataSet::KeyValue.name()),
            Cell::name(LabelMethod::Literal.name()),
            Cell::figure(Some(cost.tests.mean)),
            Cell::whole(cost.most_tests),
            Cell::whole(0),
            Cell::Figure(Some(cost.tokens as f64 / cost.questions.max(1) as f64), 0),
            Cell::figure(None),
            Cell::figure(None),
            Cell::Figure(Some(1.0), 5),
        ]]
    };
    table.rows.extend(merged(&literal.iter().map(literal_row).collect::<Vec<_>>()));
    table
}

/// Returns a table for sections 6.1 and 6.2: how many labels are improved with each number of attacker documents. The
/// two columns about quotations do not depend on this number, so only the first row of each double or model has them. A
/// model that only scores texts is not attacked. `who` is added to the title.
pub(super) fn attack_table(runs: &Runs<'_>, who: &str) -> Table {
    let header = ["double", "attackers", "improved in context", "in retrieval", "quoted: before", "after"];
    let title = format!(
        "agents: labels improved with attacker documents{who} (6.2), and after a trusted quotation (6.1)"
    );
    table_of(&title, &header, runs, |seed| {
        let cells = |attack: &Degradation| {
            let attackers = Cell::name(attack.attackers.to_string());
            [attackers, Cell::Count(attack.in_context), Cell::Count(attack.in_retrieval)]
        };
        let mut attacks: Vec<[Cell; 3]> = seed.degradation.iter().map(cells).collect();
        // Without an attack, one row still shows the quotations.
        if attacks.is_empty() {
            attacks.push([Cell::name("-"), Cell::name("-"), Cell::name("-")]);
        }
        let row = |(index, attack): (usize, [Cell; 3])| {
            let quoted = match index {
                0 => seed.endorsement.map(Cell::Count),
                _ => [Cell::name(""), Cell::name("")],
            };
            [Cell::name(seed.name)].into_iter().chain(attack).chain(quoted).collect()
        };
        attacks.into_iter().enumerate().map(row).collect()
    })
}

/// Returns a table of the settings that were tried in tuning, each with the share of questions for which it finds
/// exactly the true labels. Figures 7 to 10 show such shares.
pub(super) fn grid_table(runs: &Runs<'_>) -> Table {
    let thresholds = THRESHOLDS.map(|threshold| threshold.to_string());
    let header: Vec<&str> = ["double", "set", "method", "λ", "not pruned"]
        .into_iter()
        .chain(thresholds.iter().map(String::as_str))
        .collect();
    let title = "exact matches on tuning questions, which no other table reports: without pruning, and with each Shapley threshold (Figures 7 to 10)";
    table_of(title, &header, runs, |seed| {
        let mut rows: Vec<Vec<Cell>> = Vec::new();
        for (set, point) in seed.grids {
            let lambda = point.lambda.to_string();
            let first = [seed.name, set.name(), point.method.name(), &lambda].map(Cell::name);
            // The column of the setting: after the names, one column without pruning, and then one for each threshold.
            // Settings that differ only in the threshold share a row.
            let tried = |threshold: f64| THRESHOLDS.iter().position(|other| *other == threshold);
            let column = first.len() + point.threshold.and_then(tried).map_or(0, |place| place + 1);
            if rows.last().is_none_or(|row| row.get(..first.len()) != Some(first.as_slice())) {
                let mut row = first.to_vec();
                row.resize(header.len(), Cell::figure(None));
                rows.push(row);
            }
            if let Some(place) = rows.last_mut().and_then(|row| row.get_mut(column)) {
                *place = Cell::figure(Some(point.exact));
            }
        }
        rows
    })
}

#[cfg(test)]
mod tests {
    use super::super::tune::GridPoint;
    use super::*;
    use crate::games::interval::Rate;

    /// One row for each λ: the settings that differ in the threshold alone stand next to each other. Several seeds
    /// share the rows.
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
        let mut other = grid.clone();
        other[0].1.exact = 1.0;
        let none = Rate { hits: 0, of: 0 };
        let seed = |grids| SeedResults {
            name: "a",
            seed: 1,
            labels: &[],
            grids,
            alignment: None,
            degradation: &[],
            endorsement: [none, none],
        };
        let check = |seeds: Vec<SeedResults<'_>>, first: &str| {
            let rows: Vec<String> = grid_table(&[seeds]).rows.iter().map(|row| row.join(" ")).collect();
            assert_eq!(
                rows,
                [
                    first,
                    "a key-value/14 prompt 0.2 0.250 - - - -",
                    "a key-value/14 prompt/shapley 0.1 - 0.000 0.125 0.250 0.375",
                    "a key-value/14 prompt/shapley 0.2 - 0.500 0.625 0.750 0.875",
                ]
            );
        };
        check(vec![seed(&grid)], "a key-value/14 prompt 0.1 0.500 - - - -");
        check(vec![seed(&grid), seed(&other)], "a key-value/14 prompt 0.1 0.750 (0.500–1.000) - - - -");
    }
}
