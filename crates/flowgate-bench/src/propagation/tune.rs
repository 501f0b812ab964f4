//! Chooses the parameters of the searches on questions that are not reported (Permissive Information-Flow Analysis,
//! Figures 7 to 10), and records the grid of settings that were tried. λ is the loss of utility that a search
//! tolerates. The Shapley value of a label is the average contribution of its documents to the utility; labels whose
//! value is below the Shapley threshold are pruned. The suite calls [`tune`] before it measures.

use flowgate_lm::Error;

use super::measure::{LabelFigures, LabelOutcome};
use super::method::{LabelMethod, Models, SearchParameters, apply};
use super::question::DocumentQuestion;

/// The values of λ that are tried.
pub const LAMBDAS: [f64; 8] = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0];
/// The Shapley thresholds that are tried.
pub const THRESHOLDS: [f64; 4] = [0.0, 0.002, 0.01, 0.05];
/// The parameters where nothing is tuned: λ is that of the agent data set of *Permissive Information-Flow Analysis*.
pub const FIXED: SearchParameters = SearchParameters { lambda: 0.2, knn_lambda: 0.2, shapley: 0.0 };

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

/// Chooses the parameters that give the most exact labels on the tuning questions, and returns them with all settings
/// that were tried. Every λ is tried for the methods that have one. Then every Shapley threshold is tried at the best
/// λ. `step` is called after each setting; if it returns true (the user has interrupted the
/// command), the result is `None`.
///
/// # Errors
/// If a model fails.
pub fn tune(
    models: Models<'_>,
    questions: &[DocumentQuestion],
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(SearchParameters, Vec<GridPoint>)>, Error> {
    let mut grid = Vec::new();
    // Only a model that provides hidden states can run the kNN-LM.
    let mut methods = vec![LabelMethod::HittingSet];
    methods.extend(models.states.map(|_| LabelMethod::Knn));
    for method in methods {
        for lambda in LAMBDAS {
            let parameters = SearchParameters { lambda, knn_lambda: lambda, ..FIXED };
            let exact = exact_share(models, method, parameters, questions)?;
            grid.push(GridPoint { method, lambda, threshold: None, exact });
            if step() {
                return Ok(None);
            }
        }
    }
    // With the best λ of each method, try the thresholds of Shapley pruning.
    let mut parameters = SearchParameters {
        lambda: best_lambda(&grid, LabelMethod::HittingSet),
        knn_lambda: best_lambda(&grid, LabelMethod::Knn),
        ..FIXED
    };
    for threshold in THRESHOLDS {
        let tried = SearchParameters { shapley: threshold, ..parameters };
        let method = LabelMethod::Shapley;
        let exact = exact_share(models, method, tried, questions)?;
        grid.push(GridPoint { method, lambda: parameters.lambda, threshold: Some(threshold), exact });
        if step() {
            return Ok(None);
        }
    }
    let pruned: Vec<&GridPoint> = grid.iter().filter(|point| point.threshold.is_some()).collect();
    let best = pruned.iter().map(|point| point.exact).fold(0.0, f64::max);
    // Of equally good thresholds the least is chosen, since it prunes least.
    let first = pruned.iter().find(|point| point.exact >= best).and_then(|point| point.threshold);
    parameters.shapley = first.unwrap_or(0.0);
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
/// the middle one, since at the edge of a plateau a small change matters. It is that of [`FIXED`] if none was tried.
fn best_lambda(grid: &[GridPoint], method: LabelMethod) -> f64 {
    let tried: Vec<&GridPoint> = grid.iter().filter(|point| point.method == method).collect();
    let best = tried.iter().map(|point| point.exact).fold(0.0, f64::max);
    let at_best: Vec<f64> =
        tried.iter().filter(|point| point.exact >= best).map(|point| point.lambda).collect();
    at_best.get(at_best.len() / 2).copied().unwrap_or(FIXED.lambda)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_the_best_is_chosen() {
        let point =
            |lambda, exact| GridPoint { method: LabelMethod::HittingSet, lambda, threshold: None, exact };
        let grid = [point(0.1, 0.5), point(0.2, 0.9), point(0.3, 0.9), point(0.4, 0.9), point(0.5, 0.1)];
        assert_eq!(best_lambda(&grid, LabelMethod::HittingSet), 0.3);
        assert_eq!(best_lambda(&grid, LabelMethod::Knn), FIXED.lambda);
    }
}
