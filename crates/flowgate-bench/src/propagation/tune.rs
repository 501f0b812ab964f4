//! Chooses the parameters of the searches on questions that are not reported (Permissive Information-Flow Analysis,
//! Figures 7 to 10), and records the grid of settings that were tried. λ is the loss of utility that a search
//! tolerates. The Shapley value of a label is the average contribution of its documents to the utility; labels whose
//! value is below the Shapley threshold are pruned. The suite calls [`tune`] before it measures.

use flowgate_lm::Error;

use super::known_scores::KnownScores;
use super::measure::{LabelFigures, LabelOutcome};
use super::method::{LabelMethod, Models, SearchParameters, apply};
use super::question::DocumentQuestion;

/// The values of λ that are tried.
pub const LAMBDAS: [f64; 8] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0];
/// The Shapley thresholds that are tried.
pub const THRESHOLDS: [f64; 4] = [0.0, 0.002, 0.01, 0.05];
/// The parameters where nothing is tuned: λ is that of the agent data set of *Permissive Information-Flow Analysis*.
pub const FIXED: SearchParameters =
    SearchParameters { lambda: 0.2, knn_lambda: 0.2, pruned_lambda: 0.2, shapley: 0.0 };

/// One setting that was tried, and what it achieves on the tuning questions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GridPoint {
    /// The method.
    pub method: LabelMethod,
    /// λ, the loss of utility that the search tolerates.
    pub lambda: f64,
    /// The Shapley threshold, for the method that prunes by it.
    pub threshold: Option<f64>,
    /// The share of questions on which the method finds exactly the true labels.
    pub exact: f64,
}

/// Returns the number of settings that [`tune`] tries. `has_states` says whether the model has hidden states, which the
/// kNN-LM needs.
pub(super) fn setting_count(has_states: bool) -> usize {
    let methods = if has_states { 2 } else { 1 };
    methods * LAMBDAS.len() + LAMBDAS.len() * THRESHOLDS.len()
}

/// Chooses the parameters that give the most exact labels on the tuning questions, and returns them with all settings
/// that were tried. Every λ is tried for the methods that have one, and every pair of λ and a threshold for Shapley
/// pruning. A text that several settings score is scored once. `step` is called after each setting; if it returns true
/// (the user has interrupted the command), the result is `None`.
///
/// # Errors
/// If a model fails.
pub fn tune(
    models: Models<'_>,
    questions: &[DocumentQuestion],
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(SearchParameters, Vec<GridPoint>)>, Error> {
    let known = KnownScores::new(models.scores);
    let models = Models { scores: &known, ..models };
    // Only a model that provides hidden states can run the kNN-LM.
    let mut methods = vec![LabelMethod::HittingSet];
    methods.extend(models.states.map(|_| LabelMethod::Knn));
    let unpruned = methods.into_iter().flat_map(|method| LAMBDAS.map(|lambda| (method, lambda, None)));
    let pruned = LAMBDAS
        .into_iter()
        .flat_map(|lambda| THRESHOLDS.map(|threshold| (LabelMethod::Shapley, lambda, Some(threshold))));
    let mut grid = Vec::new();
    for (method, lambda, threshold) in unpruned.chain(pruned) {
        let parameters = SearchParameters {
            lambda,
            knn_lambda: lambda,
            pruned_lambda: lambda,
            shapley: threshold.unwrap_or(FIXED.shapley),
        };
        let exact = exact_share(models, method, parameters, questions)?;
        grid.push(GridPoint { method, lambda, threshold, exact });
        if step() {
            return Ok(None);
        }
    }
    let (pruned_lambda, shapley) = best_pair(&grid);
    let parameters = SearchParameters {
        lambda: best_lambda(&grid, LabelMethod::HittingSet),
        knn_lambda: best_lambda(&grid, LabelMethod::Knn),
        pruned_lambda,
        shapley,
    };
    Ok(Some((parameters, grid)))
}

/// Returns the share of questions on which a method finds exactly the true labels; 0 without questions.
fn exact_share(
    models: Models<'_>,
    method: LabelMethod,
    parameters: SearchParameters,
    questions: &[DocumentQuestion],
) -> Result<f64, Error> {
    // Introspection is not tuned, so no example for it is given.
    let outcome =
        |question: &DocumentQuestion| apply(method, models, parameters, question, &question.answer, None);
    let outcomes: Vec<LabelOutcome> = questions.iter().map(outcome).collect::<Result<_, _>>()?;
    Ok(LabelFigures::of(&outcomes).exact.value().unwrap_or(0.0))
}

/// Returns the λ of a method with the greatest share of exact labels in the grid. If several are equally good, it is
/// the middle one, since at the edge of a plateau a small change matters. If none was tried, it is the λ of
/// [`FIXED`].
fn best_lambda(grid: &[GridPoint], method: LabelMethod) -> f64 {
    let tried: Vec<&GridPoint> = grid.iter().filter(|point| point.method == method).collect();
    let best = tried.iter().map(|point| point.exact).fold(0.0, f64::max);
    let at_best: Vec<f64> =
        tried.iter().filter(|point| point.exact >= best).map(|point| point.lambda).collect();
    at_best.get(at_best.len() / 2).copied().unwrap_or(FIXED.lambda)
}

/// Returns the pair of λ and a Shapley threshold with the greatest share of exact labels in the grid. If several pairs
/// are equally good, those with the least threshold, which prunes least, are preferred; of these, it is the pair with
/// the middle λ, as in [`best_lambda`]. If no pair was tried, it is the pair of [`FIXED`].
fn best_pair(grid: &[GridPoint]) -> (f64, f64) {
    let pairs = grid.iter().filter_map(|point| Some((point, point.threshold?)));
    let best = pairs.clone().map(|(point, _)| point.exact).fold(0.0, f64::max);
    let at_best = pairs.filter(|(point, _)| point.exact >= best);
    let threshold = at_best.clone().map(|(_, threshold)| threshold).fold(f64::INFINITY, f64::min);
    // No threshold is below the least one, so `<=` selects the pairs that have it.
    let lambdas: Vec<f64> =
        at_best.filter(|(_, tried)| *tried <= threshold).map(|(point, _)| point.lambda).collect();
    match lambdas.get(lambdas.len() / 2) {
        Some(lambda) => (*lambda, threshold),
        None => (FIXED.pruned_lambda, FIXED.shapley),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flowgate_lm::{BoxFuture, Score, ScoreRequest, ScoringModel};

    use super::super::double::{CopyModel, CopyingErrors};
    use super::super::suite::{PropagationSuite, Size};
    use super::*;
    use crate::tokens::count_lines;

    const DISTRACTED: CopyModel = CopyModel { copying: CopyingErrors::Distracted, seed: 1 };

    /// The distracted double, which counts the texts that it scores.
    struct CountingScores(AtomicUsize);

    impl ScoringModel for CountingScores {
        fn score_batch<'a>(
            &'a self,
            requests: &'a [ScoreRequest<'a>],
        ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
            self.0.fetch_add(requests.len(), Ordering::Relaxed);
            DISTRACTED.score_batch(requests)
        }
    }

    /// Figures 9 and 10 have a value for each pair. The pairs need few texts beyond those of one of them.
    #[test]
    fn every_pair_of_lambda_and_threshold_is_tried() {
        let suite = PropagationSuite::new(1, Size { questions: 2, pairs: 3 }).unwrap();
        let questions = &suite.tuning.0;
        let model = CountingScores(AtomicUsize::new(0));
        let models = Models::scoring(&model, &count_lines);
        let (parameters, grid) = tune(models, questions, &mut || false).unwrap().unwrap();
        let asked = model.0.swap(0, Ordering::Relaxed);
        for lambda in LAMBDAS {
            for threshold in THRESHOLDS {
                let of_pair = grid.iter().filter(|p| p.lambda == lambda && p.threshold == Some(threshold));
                assert_eq!(of_pair.count(), 1, "{lambda} {threshold}");
            }
        }
        assert_eq!(grid.len(), setting_count(false));
        let chosen = (parameters.pruned_lambda, parameters.shapley);
        assert_eq!(chosen, best_pair(&grid));
        // Each setting finds the same without the scores of the others, which are far more texts.
        let mut alone = 0;
        for point in &grid {
            // A method that took λ of another one would find no label.
            let own = |method| if point.method == method { point.lambda } else { 1e9 };
            let tried = SearchParameters {
                lambda: own(LabelMethod::HittingSet),
                knn_lambda: own(LabelMethod::Knn),
                pruned_lambda: own(LabelMethod::Shapley),
                shapley: point.threshold.unwrap_or(0.0),
            };
            assert_eq!(
                exact_share(models, point.method, tried, questions).unwrap(),
                point.exact,
                "{point:?}"
            );
            alone += model.0.swap(0, Ordering::Relaxed);
        }
        assert!(asked * 10 < alone, "{asked} of {alone}");
    }

    /// λ is chosen with the threshold, not before it: the best pair can have a λ that is worse without pruning.
    #[test]
    fn the_best_pair_is_chosen_together() {
        let point = |lambda, threshold, exact| {
            let threshold = Some(threshold);
            GridPoint { method: LabelMethod::Shapley, lambda, threshold, exact }
        };
        let mut grid = vec![
            GridPoint { method: LabelMethod::HittingSet, lambda: 0.1, threshold: None, exact: 0.9 },
            point(0.1, 0.0, 0.6),
            point(0.1, 0.01, 0.6),
            point(0.5, 0.0, 0.5),
            point(0.5, 0.01, 0.8),
        ];
        assert_eq!(best_pair(&grid), (0.5, 0.01));
        grid.extend([point(1.0, 0.0, 0.8), point(2.0, 0.0, 0.8), point(0.2, 0.0, 0.8)]);
        assert_eq!(best_pair(&grid), (2.0, 0.0), "the middle of the tried ones, with the least threshold");
        assert_eq!(best_pair(&[]), (FIXED.pruned_lambda, FIXED.shapley));
    }

    #[test]
    fn the_middle_of_the_best_is_chosen() {
        let point =
            |lambda, exact| GridPoint { method: LabelMethod::HittingSet, lambda, threshold: None, exact };
        let grid = [point(0.1, 0.5), point(0.2, 0.9), point(0.3, 0.9), point(0.4, 0.9), point(0.5, 0.1)];
        assert_eq!(best_lambda(&grid, LabelMethod::HittingSet), 0.3);
        assert_eq!(best_lambda(&grid, LabelMethod::Knn), FIXED.lambda);
    }
}
