//! Compares two defences on the same tasks: McNemar's exact test, and a bootstrap interval of the difference. Also
//! computes the bootstrap interval of a mean.
//!
//! The comparisons are paired, because all defences run the same tasks: the results of two defences are compared task
//! by task. The reports of the suites call [`compare`], and the games call [`compare_grouped`]. The games and the
//! privacy suite call [`bootstrap_mean`].

use serde_json::{Value, json};

use crate::games::random::SeededRandom;
use crate::games::text_table::{Table, cell, table};
use crate::rounding::rounded;

/// The number of samples that a bootstrap interval is computed from.
pub const RESAMPLES: usize = 2000;

/// How often an event, such as a violation, happened under two defences on the same tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PairedComparison {
    /// The number of tasks.
    pub tasks: usize,
    /// The number of tasks on which the event happened under the first defence alone.
    pub only_first: usize,
    /// The number of tasks on which the event happened under the second defence alone.
    pub only_second: usize,
    /// The share of tasks with the event under the first defence minus that under the second.
    pub difference: f64,
    /// The 95 % bootstrap percentile interval of the difference.
    pub interval: (f64, f64),
    /// The two-sided p-value of McNemar's exact test.
    pub p_value: f64,
}

impl PairedComparison {
    /// Returns the comparison as a JSON object, for JSON lines and CSV. `first`, `second` and `event` are the names of
    /// the two defences and of the event.
    pub fn to_json(&self, first: &str, second: &str, event: &str) -> Value {
        json!({
            "type": "comparison",
            "first": first,
            "second": second,
            "event": event,
            "tasks": self.tasks,
            "only_first": self.only_first,
            "only_second": self.only_second,
            "difference": rounded(self.difference),
            "low": rounded(self.interval.0),
            "high": rounded(self.interval.1),
            "mcnemar_p": rounded(self.p_value),
        })
    }
}

/// Returns a table of comparisons of the defence `first` with other defences, for text and for pages. Each item of
/// `compared` is the name of the other defence, the name of the event, and the comparison; it becomes a row. `cases`
/// names what is compared, such as `tasks`. A comparison in which both agree in every case is left out. `None` if no
/// comparison remains.
pub(crate) fn comparison_table(
    first: &str,
    cases: &str,
    compared: &[(String, String, PairedComparison)],
) -> Option<Table> {
    let header =
        ["compared with", "event", cases, "first only", "other only", "difference", "95 %", "p (McNemar)"];
    let row = |(other, event, found): &(String, String, PairedComparison)| {
        vec![
            other.clone(),
            event.clone(),
            found.tasks.to_string(),
            found.only_first.to_string(),
            found.only_second.to_string(),
            cell(Some(found.difference)),
            format!("[{:.2}, {:.2}]", found.interval.0, found.interval.1),
            // With three decimals, such a small value would be printed as 0.
            if found.p_value < 0.0005 { "<0.001".to_owned() } else { cell(Some(found.p_value)) },
        ]
    };
    let differs =
        |(.., found): &&(String, String, PairedComparison)| found.only_first + found.only_second > 0;
    let rows: Vec<Vec<String>> = compared.iter().filter(differs).map(row).collect();
    let title = format!(
        "{first} compared in pairs: its rate less that of the other, bootstrap interval, McNemar's exact test; where they differ"
    );
    (!rows.is_empty()).then(|| table(&title, &header, &rows))
}

/// Compares how often an event happened under two defences, like [`compare`], but for tasks in groups, such as seeds.
/// Tasks of one group resemble each other, so a sample of the bootstrap draws groups, and then tasks of each drawn
/// group. `groups` has the name of the group of each task. With one group, the result is that of [`compare`]. `None`
/// without tasks, or if `first` and `second` differ in length.
pub fn compare_grouped(
    first: &[bool],
    second: &[bool],
    groups: &[&str],
    seed: u64,
) -> Option<PairedComparison> {
    let found = compare(first, second, seed)?;
    let differences = first
        .iter()
        .zip(second)
        .map(|(first, second)| f64::from(u8::from(*first)) - f64::from(u8::from(*second)));
    let values: Vec<(&str, f64)> = groups.iter().copied().zip(differences).collect();
    // The interval of `compare` remains if there is one group, or if `groups` does not have a group for each task.
    let has_several_groups =
        values.len() == first.len() && groups.iter().any(|group| Some(group) != groups.first());
    match bootstrap_mean(&values, seed).filter(|_| has_several_groups) {
        Some(interval) => Some(PairedComparison { interval, ..found }),
        None => Some(found),
    }
}

/// Returns the ends of the bootstrap percentile interval at 95 % of the mean of values. `values` has each value with
/// its group, such as a seed. Each of [`RESAMPLES`] samples draws as many groups as there are, with replacement, and
/// from each drawn group as many values as it has. `seed` determines the samples. `None` without values.
pub fn bootstrap_mean(values: &[(&str, f64)], seed: u64) -> Option<(f64, f64)> {
    let mut groups: Vec<(&str, Vec<f64>)> = Vec::new();
    for (group, value) in values {
        match groups.iter_mut().find(|(known, _)| known == group) {
            Some((_, of_group)) => of_group.push(*value),
            None => groups.push((group, vec![*value])),
        }
    }
    // An arbitrary stream number, as for the comparisons.
    let mut random = SeededRandom::new(seed, 0x0b00_7574_7261_7001);
    let mut mean = || {
        let (mut sum, mut count) = (0.0, 0_usize);
        for _ in 0..groups.len() {
            let Some((_, drawn)) = groups.get(random.below(groups.len())) else { continue };
            for _ in 0..drawn.len() {
                sum += drawn.get(random.below(drawn.len())).copied().unwrap_or(0.0);
                count += 1;
            }
        }
        sum / count.max(1) as f64
    };
    (!values.is_empty()).then(|| percentiles((0..RESAMPLES).map(|_| mean()).collect()))
}

/// Returns the ends of the interval that leaves out 2.5 % of `means` at each end.
fn percentiles(mut means: Vec<f64>) -> (f64, f64) {
    means.sort_by(f64::total_cmp);
    let at =
        |share: f64| means.get((share * (means.len() - 1) as f64).round() as usize).copied().unwrap_or(0.0);
    (at(0.025), at(0.975))
}

/// Compares how often an event happened under two defences. `first` and `second` say for each task, in the same order,
/// whether the event happened. `None` without tasks, or if the lists differ in length. `seed` determines the samples of
/// the bootstrap.
pub fn compare(first: &[bool], second: &[bool], seed: u64) -> Option<PairedComparison> {
    if first.is_empty() || first.len() != second.len() {
        return None;
    }
    // For each task, 1 if the event happened under the first defence alone, -1 if under the second alone, else 0.
    let differences: Vec<i64> =
        first.iter().zip(second).map(|(first, second)| i64::from(*first) - i64::from(*second)).collect();
    let count = |wanted: i64| differences.iter().filter(|difference| **difference == wanted).count();
    let (only_first, only_second) = (count(1), count(-1));
    Some(PairedComparison {
        tasks: first.len(),
        only_first,
        only_second,
        difference: (only_first as f64 - only_second as f64) / first.len() as f64,
        interval: bootstrap(&differences, seed),
        p_value: mcnemar_exact(only_first, only_second),
    })
}

/// Returns the two-sided p-value of McNemar's exact test. A task is *discordant* if the event happened under one
/// defence alone: `only_first` tasks under the first, `only_second` under the second. The p-value is the probability
/// that the discordant tasks are divided at least as unevenly, if both defences are equally likely to have the event
/// on each of them. It is 1 without discordant tasks.
pub fn mcnemar_exact(only_first: usize, only_second: usize) -> f64 {
    let discordant = only_first + only_second;
    let least = only_first.min(only_second);
    // Each term of the binomial distribution with p = 1/2 is computed from its predecessor. The terms are logarithms,
    // because with more than a thousand discordant tasks the first term is smaller than every positive number that a
    // float represents.
    let (mut log_term, mut tail) = (discordant as f64 * 0.5_f64.ln(), 0.0);
    for k in 0..=least {
        tail += log_term.exp();
        log_term += ((discordant - k) as f64).ln() - ((k + 1) as f64).ln();
    }
    // Both tails of the distribution count; if the split is even, they overlap.
    (2.0 * tail).min(1.0)
}

/// Returns the bootstrap percentile interval at 95 % of the mean of the differences. Each of [`RESAMPLES`] samples
/// draws as many differences as there are, with replacement; `seed` determines the samples. The means of the samples
/// are sorted, and the interval leaves out 2.5 % of them on each side.
fn bootstrap(differences: &[i64], seed: u64) -> (f64, f64) {
    // The second argument is an arbitrary stream number: it makes these numbers differ from those that generate tasks
    // from the same seed.
    let mut random = SeededRandom::new(seed, 0x0b00_7574_7261_7000);
    let means: Vec<f64> = (0..RESAMPLES)
        .map(|_| {
            let drawn =
                (0..differences.len()).filter_map(|_| differences.get(random.below(differences.len())));
            drawn.sum::<i64>() as f64 / differences.len() as f64
        })
        .collect();
    percentiles(means)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reference values: R's `binom.test(b, b + c)$p.value`.
    #[test]
    fn the_exact_test_has_reference_values() {
        let check = |first, second, expected: f64| {
            assert!((mcnemar_exact(first, second) - expected).abs() < 1e-9, "{first} {second}");
        };
        check(0, 0, 1.0);
        check(1, 0, 1.0);
        check(5_000, 5_000, 1.0);
        check(3_000, 0, 0.0);
        check(5, 5, 1.0);
        check(0, 5, 0.0625);
        check(6, 0, 0.03125);
        check(2, 8, 0.109375);
        check(1, 9, 0.021484375);
    }

    #[test]
    fn lists_of_other_tasks_are_not_compared() {
        assert_eq!(compare(&[], &[], 1), None);
        assert_eq!(compare(&[true], &[true, false], 1), None);
    }

    /// Tasks of one seed that agree with each other say less than as many tasks of different seeds.
    #[test]
    fn groups_widen_an_interval() {
        let first: Vec<bool> = (0..40).map(|task| task < 20).collect();
        let second = vec![false; 40];
        let width = |found: PairedComparison| found.interval.1 - found.interval.0;
        let seeds: Vec<String> = (0..40).map(|task| (task / 10).to_string()).collect();
        let seeds: Vec<&str> = seeds.iter().map(String::as_str).collect();
        let alone = compare_grouped(&first, &second, &[""; 40], 1).unwrap();
        assert_eq!(Some(alone), compare(&first, &second, 1));
        let grouped = compare_grouped(&first, &second, &seeds, 1).unwrap();
        assert!(width(grouped) > 1.5 * width(alone), "{grouped:?} {alone:?}");
        assert_eq!((grouped.p_value, grouped.difference), (alone.p_value, alone.difference));
        // Without groups, the interval of a mean is that of its values.
        assert_eq!(bootstrap_mean(&[("", 1.0), ("", 1.0)], 1), Some((1.0, 1.0)));
        assert_eq!(bootstrap_mean(&[], 1), None);
        let (low, high) = bootstrap_mean(&[("a", 0.0), ("b", 1.0)], 1).unwrap();
        assert_eq!((low, high), (0.0, 1.0));
    }

    proptest! {
        /// Swapping the defences mirrors the result, and the interval contains the difference for equal lists.
        #[test]
        fn a_comparison_is_symmetric(pairs in proptest::collection::vec(any::<(bool, bool)>(), 1..40), seed: u64) {
            let (first, second): (Vec<bool>, Vec<bool>) = pairs.into_iter().unzip();
            let one = compare(&first, &second, seed).unwrap();
            let other = compare(&second, &first, seed).unwrap();
            prop_assert_eq!((one.only_first, one.only_second), (other.only_second, other.only_first));
            prop_assert!((one.difference + other.difference).abs() < 1e-12);
            prop_assert!((one.p_value - other.p_value).abs() < 1e-12 && (0.0..=1.0).contains(&one.p_value));
            prop_assert!(one.interval.0 <= one.interval.1);
            prop_assert!(-1.0 <= one.interval.0 && one.interval.1 <= 1.0);
            let same = compare(&first, &first, seed).unwrap();
            prop_assert_eq!((same.interval, same.p_value), ((0.0, 0.0), 1.0));
        }
    }
}
