//! Trains the networks, chooses the thresholds of the screeners, and computes the figures of each screener
//! ([`measure`]). A [`Split`] has different cases for each of the three, so that nothing is fitted to the reported
//! cases. [`run`](super::run) and [`run_traces`](super::run_traces) create the splits.

use flowgate_lm::{Error, FeatureSet, RegionClassifier, RegionSummary};

use super::measure::{best_threshold, figures, roc_curve};
use super::score::ScoredCase;
use super::{ScreenerRow, ScreenerScore, TrainClassifier};

/// The networks of a split, which are trained on the same cases.
struct Networks {
    paper: Box<dyn RegionClassifier>,
    extended: Box<dyn RegionClassifier>,
}

impl Networks {
    /// Returns the scores of all regions of a case by a screener. `index` is the position of the screener in
    /// [`ScreenerScore::ALL`]. The case has the scores of all screeners but the last three, which need a network.
    ///
    /// # Errors
    /// If a network fails.
    fn scores(
        &self,
        case: &ScoredCase,
        (index, screener): (usize, ScreenerScore),
    ) -> Result<Vec<f64>, Error> {
        if let Some(scores) = case.scores.get(index) {
            return Ok(scores.clone());
        }
        if screener == ScreenerScore::Network {
            return self.paper.probabilities(&case.summaries);
        }
        let estimates = self.extended.probabilities(&case.summaries)?;
        if screener == ScreenerScore::NetworkExtended {
            return Ok(estimates);
        }
        // The first scores are those of the shared values. A region that shares a value gets a score above 1, and so
        // above every probability of the network.
        let shared = case.scores.first().into_iter().flatten();
        let combine = |(estimate, shared): (f64, &f64)| if *shared > 0.0 { 1.0 + shared } else { estimate };
        Ok(estimates.into_iter().zip(shared).map(combine).collect())
    }

    /// Returns the scores of all regions of `cases` by a screener, each with whether the output depends on the region.
    ///
    /// # Errors
    /// If a network fails.
    fn labelled_scores(
        &self,
        cases: &[&ScoredCase],
        screener: (usize, ScreenerScore),
    ) -> Result<Vec<(f64, bool)>, Error> {
        let mut labelled = Vec::new();
        for case in cases {
            let scores = self.scores(case, screener)?;
            labelled.extend(scores.into_iter().zip(case.depends.iter().copied()));
        }
        Ok(labelled)
    }
}

/// A division of cases. No case is in two parts.
pub(super) struct Split<'c> {
    /// The cases on which the networks are trained.
    pub(super) training: Vec<&'c ScoredCase>,
    /// The cases on which thresholds are chosen.
    pub(super) choosing: Vec<&'c ScoredCase>,
    /// The sets that are reported, by name.
    pub(super) reported: Vec<(String, Vec<&'c ScoredCase>)>,
}

/// Measures every screener on each set that is reported, and returns a row for each pair. `train` trains a network. A
/// set without dependencies, or without other regions, has no rows.
///
/// # Errors
/// If a network fails.
pub(super) fn measure(split: &Split<'_>, train: &mut TrainClassifier<'_>) -> Result<Vec<ScreenerRow>, Error> {
    // The regions of a case as a network is trained on them: each with whether the output depends on it.
    let prompt = |case: &&ScoredCase| -> Vec<(RegionSummary, bool)> {
        case.summaries.iter().copied().zip(case.depends.iter().copied()).collect()
    };
    let prompts: Vec<_> = split.training.iter().map(prompt).collect();
    let networks = Networks {
        paper: train(FeatureSet::Paper, &prompts)?,
        extended: train(FeatureSet::Extended, &prompts)?,
    };
    let thresholds = thresholds(&networks, &split.choosing)?;
    let mut rows = Vec::new();
    for (set, cases) in &split.reported {
        for ((index, screener), threshold) in
            ScreenerScore::ALL.into_iter().enumerate().zip(thresholds.iter().copied())
        {
            let scored = networks.labelled_scores(cases, (index, screener))?;
            let curve = roc_curve(&scored);
            rows.extend(figures(&scored, threshold).map(|figures| ScreenerRow {
                set: set.clone(),
                screener,
                threshold,
                figures,
                curve,
            }));
        }
    }
    Ok(rows)
}

/// Returns the threshold of each screener, in the order of [`ScreenerScore::ALL`]: the best one for `cases`, unless the
/// screener has a threshold of its own.
///
/// # Errors
/// If a network fails.
fn thresholds(networks: &Networks, cases: &[&ScoredCase]) -> Result<Vec<f64>, Error> {
    let mut thresholds: Vec<f64> = Vec::new();
    for (index, screener) in ScreenerScore::ALL.into_iter().enumerate() {
        let threshold = match screener {
            // The guard names a region that shares any value.
            ScreenerScore::SharedValues => f64::MIN_POSITIVE,
            // The screener of a conversation has the threshold of its network, which precedes it in `thresholds`, and
            // names every region that shares a value: such a region scores above 1 here.
            ScreenerScore::ValuesThenNetwork => {
                let network =
                    ScreenerScore::ALL.iter().position(|one| *one == ScreenerScore::NetworkExtended);
                // `ALL` has this network, so the fallback is never used.
                network.and_then(|network| thresholds.get(network).copied()).unwrap_or(1.0)
            }
            _ => best_threshold(&networks.labelled_scores(cases, (index, screener))?),
        };
        thresholds.push(threshold);
    }
    Ok(thresholds)
}
