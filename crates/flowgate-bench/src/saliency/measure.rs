//! Compares the scores of regions with the known dependencies of the output, and computes [`ScreenerFigures`] and ROC
//! curves. [`detection`](crate::detection) computes the same figures for detectors: its texts take the place of
//! regions, and injections that of dependencies.

/// How well scores separate regions on which an output depends from the others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScreenerFigures {
    /// The number of regions on which an output depends, and the number of the others.
    pub counts: (usize, usize),
    /// The area under the curve of true positives over false positives: the probability that a region on which the
    /// output depends scores higher than another one.
    pub area: f64,
    /// The share of the other regions that are named if the threshold is so low that no dependency is missed.
    pub false_positives_at_full_recall: f64,
    /// The share of regions that are decided rightly at the threshold.
    pub accuracy: f64,
    /// The mean of two shares: of the dependencies that are named, and of the other regions that are not.
    pub balanced_accuracy: f64,
}

impl ScreenerFigures {
    /// Returns the accuracy of a screener that gives every region the more frequent answer. A screener is of use only
    /// if its accuracy is higher.
    pub fn majority(&self) -> f64 {
        let (positive, negative) = self.counts;
        share(positive.max(negative), positive + negative)
    }
}

/// Returns the share of `part` in `of`; 0 if `of` is 0.
fn share(part: usize, of: usize) -> f64 {
    part as f64 / of.max(1) as f64
}

/// Measures how well scores separate the regions on which the output depends from the others. `scored` has the score of
/// each region, with whether the output depends on it. A region counts as named if its score is at least `threshold`.
/// `None` if there is no dependency, or no other region.
pub(crate) fn figures(scored: &[(f64, bool)], threshold: f64) -> Option<ScreenerFigures> {
    // The scores of the dependencies or of the other regions, in ascending order.
    let of = |depends: bool| -> Vec<f64> {
        let mut scores: Vec<f64> =
            scored.iter().filter(|(_, is)| *is == depends).map(|(score, _)| *score).collect();
        scores.sort_by(f64::total_cmp);
        scores
    };
    let (positive, negative) = (of(true), of(false));
    // With this score as the threshold, every dependency is named (full recall).
    let lowest = *positive.first()?;
    negative.first()?;
    // For each dependency, the number of other regions with a lower score. An equal score counts as one half. The share
    // of this sum in all pairs of a dependency and another region is the area under the ROC curve.
    let wins: f64 = positive
        .iter()
        .map(|score| {
            let below = negative.partition_point(|other| other < score);
            let equal = negative.partition_point(|other| other <= score) - below;
            below as f64 + equal as f64 / 2.0
        })
        .sum();
    // The number of scores that are at least the threshold.
    let named =
        |scores: &[f64], threshold: f64| scores.len() - scores.partition_point(|score| *score < threshold);
    let (hits, alarms) = (named(&positive, threshold), named(&negative, threshold));
    let rejected = negative.len() - alarms;
    Some(ScreenerFigures {
        counts: (positive.len(), negative.len()),
        area: wins / (positive.len() * negative.len()) as f64,
        false_positives_at_full_recall: share(named(&negative, lowest), negative.len()),
        accuracy: share(hits + rejected, scored.len()),
        balanced_accuracy: f64::midpoint(share(hits, positive.len()), share(rejected, negative.len())),
    })
}

/// Returns the ROC curve of scores, each with whether the output depends on the region. The curve begins at (0, 0).
/// Then it has a point for each threshold from the highest to the lowest score: the share of the other regions that are
/// named, and the share of the dependencies that are named. It ends at (1, 1). Regions with equal scores are named
/// together, so the area under the lines between the points is [`ScreenerFigures::area`]. The curve is empty if there
/// is no dependency, or no other region.
pub(crate) fn roc_curve(scored: &[(f64, bool)]) -> Vec<(f64, f64)> {
    let positive = scored.iter().filter(|(_, depends)| *depends).count();
    let negative = scored.len() - positive;
    if positive == 0 || negative == 0 {
        return Vec::new();
    }
    let mut sorted = scored.to_vec();
    sorted.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut curve = vec![(0.0, 0.0)];
    let (mut hits, mut alarms) = (0, 0);
    // Each round lowers the threshold to the next score, which names all regions with this score.
    for tied in sorted.chunk_by(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        let found = tied.iter().filter(|(_, depends)| *depends).count();
        hits += found;
        alarms += tied.len() - found;
        curve.push((share(alarms, negative), share(hits, positive)));
    }
    curve
}

/// Returns the threshold with the highest balanced accuracy on these scores; if several are equally good, the lowest;
/// without scores, 0. The caller passes scores of cases that are not reported, so that the threshold is not fitted to
/// the reported ones.
pub(super) fn best_threshold(scored: &[(f64, bool)]) -> f64 {
    // The best balanced accuracy so far, and its threshold.
    let mut best = (f64::NEG_INFINITY, 0.0);
    let mut candidates: Vec<f64> = scored.iter().map(|(score, _)| *score).collect();
    candidates.sort_by(f64::total_cmp);
    candidates.dedup();
    for threshold in candidates {
        let accuracy = figures(scored, threshold).map_or(0.0, |figures| figures.balanced_accuracy);
        if accuracy > best.0 {
            best = (accuracy, threshold);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_follow_their_definition() {
        let scored = [(0.9, true), (0.4, true), (0.5, false), (0.4, false), (0.1, false)];
        let found = figures(&scored, 0.45).unwrap();
        assert_eq!(found.counts, (2, 3));
        // The first dependency beats three others, the second one and a half.
        assert!((found.area - 4.5 / 6.0).abs() < 1e-9);
        assert!((found.false_positives_at_full_recall - 2.0 / 3.0).abs() < 1e-9);
        assert!((found.accuracy - 3.0 / 5.0).abs() < 1e-9);
        assert!((found.balanced_accuracy - (0.5 + 2.0 / 3.0) / 2.0).abs() < 1e-9);
        assert!((found.majority() - 0.6).abs() < 1e-9);
        assert_eq!(best_threshold(&scored), 0.9);
        assert_eq!(figures(&scored[..2], 0.5), None);
        assert_eq!(figures(&[], 0.5), None);
        let curve = roc_curve(&scored);
        let third = 1.0 / 3.0;
        assert_eq!(curve, [(0.0, 0.0), (0.0, 0.5), (third, 0.5), (2.0 * third, 1.0), (1.0, 1.0)]);
        assert_eq!(roc_curve(&scored[..2]), []);
    }

    /// The area under the curve is the probability that a dependency scores higher.
    #[test]
    fn the_curve_has_the_area_of_the_figures() {
        let mut random = crate::games::random::SeededRandom::new(1, 1);
        for size in 2..40 {
            let scored: Vec<(f64, bool)> =
                (0..size).map(|_| (random.below(12) as f64, random.below(2) == 0)).collect();
            let curve = roc_curve(&scored);
            let Some(figures) = figures(&scored, 3.0) else {
                assert!(curve.is_empty());
                continue;
            };
            let trapezoid =
                |pair: &[(f64, f64)]| (pair[1].0 - pair[0].0) * f64::midpoint(pair[0].1, pair[1].1);
            let area: f64 = curve.windows(2).map(trapezoid).sum();
            assert!((area - figures.area).abs() < 1e-9, "{scored:?}");
            // The share of the others at the first point with all dependencies.
            let full = curve.iter().find(|(_, hits)| *hits == 1.0).unwrap().0;
            assert!((full - figures.false_positives_at_full_recall).abs() < 1e-9);
        }
    }
}
