//! Summarises the figures over several seeds of a defence that draws random numbers, for `flowgate bench privacy
//! --seeds`: the mean over the seeds, the lowest and the highest value, and a bootstrap interval.
//! [`report`](super::report) prints them.
//!
//! The 37 tasks are the same with every seed. The results of the seeds are therefore not pooled, since an interval over
//! the pooled results would count each task once for each seed. The bootstrap draws seeds, and then tasks of each seed.

use serde_json::{Map, Value};

use super::measure::TaskResult;
use super::suite::DefenceResults;
use crate::games::text_table::{Table, cell, table};
use crate::rounding::rounded;
use crate::statistics::bootstrap_mean;

/// A figure that is a mean over tasks: its name, and the value of one task, from 0 to 1. The value is `None` for a task
/// that the figure does not concern.
type TaskFigure = (&'static str, fn(&TaskResult) -> Option<f64>);

/// The figures. For exact categories, the value of a task is the share of its calls that have them; the main table
/// counts the calls of all tasks instead.
const FIGURES: [TaskFigure; 5] = [
    ("false_negatives", |result| Some(f64::from(u8::from(result.is_missed)))),
    ("false_positives", |result| Some(f64::from(u8::from(result.is_over_asked)))),
    ("utility_allowed", |result| Some(f64::from(u8::from(result.succeeds_if_allowed)))),
    ("utility_refused", |result| Some(f64::from(u8::from(result.succeeds_if_refused)))),
    ("exact_categories_of_tasks", |result| {
        (result.calls > 0).then(|| result.exact as f64 / result.calls as f64)
    }),
];

/// One figure of one defence over several seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeedSpread {
    /// The name of the defence.
    pub defence: &'static str,
    /// The name of the figure.
    pub figure: &'static str,
    /// The number of seeds.
    pub seeds: usize,
    /// The mean over the seeds.
    pub mean: f64,
    /// The lowest value over the seeds.
    pub lowest: f64,
    /// The highest value over the seeds.
    pub highest: f64,
    /// The bootstrap interval at 95 % of the mean: it draws seeds, and tasks of each.
    pub interval: (f64, f64),
}

/// Returns the figures of each defence that ran with several seeds. `seed` determines the samples of the bootstrap.
pub fn spreads(all: &[DefenceResults], seed: u64) -> Vec<SeedSpread> {
    let repeated = all.iter().filter(|results| !results.further_seeds.is_empty());
    repeated
        .flat_map(|results| FIGURES.into_iter().filter_map(move |figure| spread(results, figure, seed)))
        .collect()
}

/// Returns one figure of one defence over its seeds; `None` if the figure concerns no task. `of_task` computes the
/// value of a task, and the value of a seed is the mean over its tasks. `seed` determines the samples of the
/// bootstrap.
fn spread(results: &DefenceResults, (figure, of_task): TaskFigure, seed: u64) -> Option<SeedSpread> {
    let further = results.further_seeds.iter().map(|of| of.tasks.as_slice());
    let runs: Vec<&[TaskResult]> = std::iter::once(results.tasks.as_slice()).chain(further).collect();
    // The bootstrap draws groups of values by their names. Each run is a group, with its number as the name.
    let names: Vec<String> = (0..runs.len()).map(|number| number.to_string()).collect();
    let (mut values, mut means) = (Vec::new(), Vec::new());
    for (name, tasks) in names.iter().zip(&runs) {
        let of_run: Vec<f64> = tasks.iter().filter_map(of_task).collect();
        means.push(of_run.iter().sum::<f64>() / of_run.len().max(1) as f64);
        values.extend(of_run.into_iter().map(|value| (name.as_str(), value)));
    }
    Some(SeedSpread {
        defence: results.defence.name(),
        figure,
        seeds: runs.len(),
        mean: means.iter().sum::<f64>() / means.len() as f64,
        lowest: means.iter().copied().reduce(f64::min)?,
        highest: means.iter().copied().reduce(f64::max)?,
        interval: bootstrap_mean(&values, seed)?,
    })
}

/// Returns the figures of the defences that ran with several seeds as rows for JSON lines and CSV. `lowest` and
/// `highest` are values of single seeds, and `low` and `high` the ends of the interval of the mean. `seed` determines
/// the samples of the bootstrap.
pub fn spread_rows(all: &[DefenceResults], seed: u64) -> Vec<Map<String, Value>> {
    let row = |spread: SeedSpread| {
        let mut row = Map::new();
        row.insert("type".to_owned(), "seeds".into());
        row.insert("defence".to_owned(), spread.defence.into());
        row.insert("figure".to_owned(), spread.figure.into());
        row.insert("seeds".to_owned(), spread.seeds.into());
        let numbers = [
            ("mean", spread.mean),
            ("lowest", spread.lowest),
            ("highest", spread.highest),
            ("low", spread.interval.0),
            ("high", spread.interval.1),
        ];
        row.extend(numbers.map(|(name, value)| (name.to_owned(), rounded(value))));
        row
    };
    spreads(all, seed).into_iter().map(row).collect()
}

/// Returns the figures of the defences that ran with several seeds, as a table with the mean, the lowest and the
/// highest value and the interval of each; `None` if no defence did. `seed` determines the samples of the bootstrap.
pub(super) fn spread_table(all: &[DefenceResults], seed: u64) -> Option<Table> {
    let header = ["defence", "figure", "seeds", "mean", "lowest", "highest", "95 %"];
    let row = |spread: SeedSpread| {
        let (low, high) = spread.interval;
        let numbers = [spread.mean, spread.lowest, spread.highest].map(|value| cell(Some(value)));
        let names = [spread.defence.to_owned(), spread.figure.to_owned(), spread.seeds.to_string()];
        names.into_iter().chain(numbers).chain([format!("[{low:.2}, {high:.2}]")]).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = spreads(all, seed).into_iter().map(row).collect();
    let title = "defences that draw random numbers, over all seeds; the interval draws seeds and then tasks";
    (!rows.is_empty()).then(|| table(title, &header, &rows))
}

#[cfg(test)]
mod tests {
    use super::super::defence::PrivacyDefence;
    use super::super::run::AnswerSource;
    use super::super::suite::PrivacySuite;
    use super::*;

    #[test]
    fn seeds_repeat_only_what_draws_random_numbers() {
        let suite = PrivacySuite::new().unwrap();
        let run = |name: &str, first: u64, seeds: u64| {
            let defence = PrivacyDefence::parse(name, first).unwrap();
            let mut steps = 0;
            let step = &mut || {
                steps += 1;
                false
            };
            let found = suite.run_defence_seeds(defence, (first, seeds), AnswerSource::Double, step);
            assert_eq!(steps, suite.runs_with_seeds(defence, seeds), "{name}");
            found.unwrap().unwrap()
        };
        let (noisy, fixed) = (run("judge/noisy", 1, 3), run("lowest-first", 1, 3));
        assert_eq!((noisy.further_seeds.len(), fixed.further_seeds.len()), (2, 0));
        // Each seed is the run of that seed alone.
        for further in &noisy.further_seeds {
            assert_eq!(further.tasks, run("judge/noisy", further.seed, 1).tasks);
        }
        let all = [noisy, fixed];
        let found = spreads(&all, 1);
        assert_eq!(found.len(), FIGURES.len());
        for spread in &found {
            assert_eq!((spread.defence, spread.seeds), ("judge/noisy", 3));
            assert!(spread.lowest <= spread.mean && spread.mean <= spread.highest, "{spread:?}");
            assert!(spread.interval.0 <= spread.mean && spread.mean <= spread.interval.1, "{spread:?}");
        }
        assert!(found.iter().any(|spread| spread.lowest < spread.highest), "{found:?}");
        assert_eq!(spread_rows(&all, 1).len(), FIGURES.len());
        assert!(spread_table(&all, 1).is_some() && spread_table(&all[1..], 1).is_none());
    }
}
