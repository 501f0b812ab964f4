//! Converts the results of a double or a model with one seed into the form that `report.rs` and `tables.rs` read
//! ([`SeedResults`]), and computes means and ranges over several seeds ([`ranges`], [`mean_grid`]).

use super::measure::Spread;
use super::model_run::ModelResults;
use super::regenerate::{Alignment, Degradation};
use super::suite::{DataSet, DoubleResults, LabelRow};
use super::tune::GridPoint;
use crate::games::interval::Rate;

/// The results of a double or a model with one seed.
#[derive(Debug, Clone, Copy)]
pub(super) struct SeedResults<'a> {
    /// The name of the double or the model.
    pub(super) name: &'a str,
    /// The seed of the questions.
    pub(super) seed: u64,
    /// The rows of Tables 1 to 3 of *Permissive Information-Flow Analysis*.
    pub(super) labels: &'a [LabelRow],
    /// The settings that were tried on the tuning questions, each with its data set.
    pub(super) grids: &'a [(DataSet, GridPoint)],
    /// The figures of Table 4; `None` if the model only scores texts.
    pub(super) alignment: Option<Alignment>,
    /// The degradation attack: a row for each number of attacker documents, or none if the model only scores texts.
    pub(super) degradation: &'a [Degradation],
    /// The share of conversations whose label is improved, without and with a trusted quotation.
    pub(super) endorsement: [Rate; 2],
}

impl<'a> From<&'a DoubleResults> for SeedResults<'a> {
    fn from(results: &'a DoubleResults) -> Self {
        Self {
            name: results.copying.name(),
            seed: results.seed,
            labels: &results.labels,
            grids: &results.grids,
            alignment: Some(results.alignment),
            degradation: &results.degradation,
            endorsement: results.endorsement,
        }
    }
}

impl<'a> From<&'a ModelResults> for SeedResults<'a> {
    fn from(results: &'a ModelResults) -> Self {
        Self {
            name: &results.name,
            seed: results.seed,
            labels: &results.labels,
            grids: &results.grids,
            alignment: results.alignment,
            degradation: &results.degradation,
            endorsement: results.endorsement,
        }
    }
}

/// A figure of a row: its name, and its value; `None` if it has no cases.
pub(super) type LabelFigure = (&'static str, fn(&LabelRow) -> Option<f64>);

/// The figures that have a mean over seeds in JSON lines.
const FIGURES: [LabelFigure; 7] = [
    ("exact", |row| row.figures.exact.value()),
    ("improvement", |row| row.figures.improvement.value()),
    ("missed", |row| row.figures.missed.value()),
    ("precision", |row| mean(row.figures.precision)),
    ("recall", |row| mean(row.figures.recall)),
    ("calls", |row| mean(row.figures.calls)),
    ("tokens", |row| mean(row.figures.tokens)),
];

/// Returns the mean of a spread.
pub(super) fn mean(spread: Option<Spread>) -> Option<f64> {
    spread.map(|spread| spread.mean)
}

/// One figure of a double or a model over several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct FigureRange<'a> {
    /// The row of the first seed, which names the double, the data set and the method.
    pub(super) row: &'a LabelRow,
    /// The name of the figure.
    pub(super) figure: &'static str,
    /// The number of seeds whose questions have the figure.
    pub(super) seeds: usize,
    /// The mean over these seeds.
    pub(super) mean: f64,
    /// The lowest value over these seeds.
    pub(super) lowest: f64,
    /// The highest value over these seeds.
    pub(super) highest: f64,
}

/// Returns the figures of one double or model over its seeds; none with a single seed. A figure that has no cases with
/// any seed is left out.
pub(super) fn ranges<'a>(seeds: &[SeedResults<'a>]) -> Vec<FigureRange<'a>> {
    let [first, _, ..] = seeds else { return Vec::new() };
    let rows = first.labels.iter().enumerate();
    let range = |(index, row): (usize, &'a LabelRow), (figure, value): LabelFigure| {
        // The rows of all seeds have the same order, so `index` is the same row in each.
        let values: Vec<f64> = seeds.iter().filter_map(|seed| value(seed.labels.get(index)?)).collect();
        Some(FigureRange {
            row,
            figure,
            seeds: values.len(),
            mean: Spread::of(&values)?.mean,
            lowest: values.iter().copied().reduce(f64::min)?,
            highest: values.iter().copied().reduce(f64::max)?,
        })
    };
    rows.flat_map(|row| FIGURES.into_iter().filter_map(move |figure| range(row, figure))).collect()
}

/// Returns the settings that were tried, each with the mean over the seeds of its share of exact labels. All seeds
/// tried the same settings in the same order.
pub(super) fn mean_grid(seeds: &[SeedResults<'_>]) -> Vec<(DataSet, GridPoint)> {
    let Some(first) = seeds.first() else { return Vec::new() };
    let averaged = |(index, (set, point)): (usize, &(DataSet, GridPoint))| {
        let exact = seeds.iter().filter_map(|seed| seed.grids.get(index)).map(|(_, point)| point.exact);
        let exact: Vec<f64> = exact.collect();
        let mean = Spread::of(&exact).map_or(point.exact, |spread| spread.mean);
        (*set, GridPoint { exact: mean, ..*point })
    };
    first.grids.iter().enumerate().map(averaged).collect()
}

#[cfg(test)]
mod tests {
    use super::super::double::CopyingErrors;
    use super::super::suite::{PropagationSuite, Size};
    use super::*;

    /// Several seeds have the mean, the lowest and the highest of what each seed gives alone.
    #[test]
    fn figures_have_a_range_over_seeds() {
        let run = |seed| {
            let suite = PropagationSuite::new(seed, Size { questions: 3, pairs: 3 }).unwrap();
            suite.run(CopyingErrors::Noisy, &mut || false).unwrap().unwrap()
        };
        let runs = [1, 2].map(run);
        let seeds: Vec<SeedResults<'_>> = runs.iter().map(SeedResults::from).collect();
        assert_eq!([seeds[0].seed, seeds[1].seed], [1, 2]);
        assert!(ranges(&seeds[..1]).is_empty() && ranges(&[]).is_empty());
        let found = ranges(&seeds);
        let of_figure = |name: &str| found.iter().filter(|range| range.figure == name).collect::<Vec<_>>();
        assert_eq!(of_figure("exact").len(), runs[0].labels.len());
        for (range, rows) in of_figure("exact").into_iter().zip(runs[0].labels.iter().zip(&runs[1].labels)) {
            let [a, b] = [rows.0, rows.1].map(|row| row.figures.exact.value().unwrap());
            assert_eq!((range.mean, range.lowest, range.highest), ((a + b) / 2.0, a.min(b), a.max(b)));
            assert_eq!((range.seeds, range.row), (2, rows.0));
        }
        assert!(found.iter().any(|range| range.lowest < range.highest), "{found:?}");
        let grid = mean_grid(&seeds);
        assert_eq!(grid.len(), runs[0].grids.len());
        for (index, (set, point)) in grid.iter().enumerate() {
            let [a, b] = [&runs[0], &runs[1]].map(|run| run.grids[index]);
            assert_eq!((*set, point.exact), (a.0, (a.1.exact + b.1.exact) / 2.0));
        }
    }
}
