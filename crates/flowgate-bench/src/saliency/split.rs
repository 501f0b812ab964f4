//! Trains the network of RTBAS, chooses the thresholds of screeners, and computes the figures of each ([`measure`]).
//! Each of the three has cases of its own, so that nothing is fitted to the reported cases. [`run`](super::run) and
//! [`run_traces`](super::run_traces) call it.

use flowgate_lm::{Error, RegionFeatures};

use super::measure::{best_threshold, figures, roc_curve};
use super::score::ScoredCase;
use super::{ScreenerRow, ScreenerScore, TrainClassifier};

/// A division of cases. No case is in two parts.
pub(super) struct Split<'c> {
    /// The cases on which the network is trained.
    pub(super) training: Vec<&'c ScoredCase>,
    /// The cases on which thresholds are chosen.
    pub(super) choosing: Vec<&'c ScoredCase>,
    /// The sets that are reported, by name.
    pub(super) reported: Vec<(String, Vec<&'c ScoredCase>)>,
}

/// Measures every screener on each set that is reported, and returns a row for each pair. `train` trains the network. A
/// set without dependencies, or without other regions, has no rows.
///
/// # Errors
/// If the network fails.
pub(super) fn measure(split: &Split<'_>, train: &mut TrainClassifier<'_>) -> Result<Vec<ScreenerRow>, Error> {
    // The regions of one prompt: the features of each, and whether the output depends on it.
    let prompt = |case: &&ScoredCase| -> Vec<(RegionFeatures, bool)> {
        case.features.iter().copied().zip(case.depends.iter().copied()).collect()
    };
    let prompts: Vec<_> = split.training.iter().map(prompt).collect();
    let network = train(&prompts)?;
    // The scores of all regions of some cases by one screener, each with whether the output depends on the region. The network is the last screener.
    let pairs = |cases: &[&ScoredCase], index: usize| -> Result<Vec<(f64, bool)>, Error> {
        let mut pairs = Vec::new();
        for case in cases {
            let scores = match case.scores.get(index) {
                Some(scores) => scores.clone(),
                None => network.probabilities(&case.features)?,
            };
            pairs.extend(scores.into_iter().zip(case.depends.iter().copied()));
        }
        Ok(pairs)
    };
    let mut rows = Vec::new();
    for (set, cases) in &split.reported {
        for (index, screener) in ScreenerScore::ALL.into_iter().enumerate() {
            // The threshold comes from other cases than those that are reported.
            let threshold = best_threshold(&pairs(&split.choosing, index)?);
            let scored = pairs(cases, index)?;
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
