//! Compares the labels that a method finds with the ground truth (Permissive Information-Flow Analysis, section 4.2).
//! The suite computes its figures with this module.
//!
//! The *naive* label of an answer is the join of the labels of all documents. A method improves a label if it finds a
//! label below the naive one. The rate *improvement* is the share of exact labels among the questions whose true
//! labels are below the naive one. The rate *missed* is the share of labels that are too low, because the answer
//! needs a document above them, among the questions whose label the method improved. Precision and recall are means
//! over the questions.

use flowgate::label::LabelSpan;
use flowgate::label::span::SpanElement;
use flowgate_guard::propagation::Cost;

use crate::games::interval::Rate;

/// What a method found for one question.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelOutcome {
    /// Whether the method found exactly the true labels.
    pub is_exact: bool,
    /// The share of the found labels that are true; 0 if none was found.
    pub precision: f64,
    /// The share of the true labels that were found.
    pub recall: f64,
    /// Whether a better label than the naive one exists.
    pub is_improvable: bool,
    /// Whether the method found a better label than the naive one.
    pub is_improved: bool,
    /// Whether a found label is too low: no true label flows to it, so its documents do not suffice for the answer.
    pub is_missed: bool,
    /// The calls of the model, and their tokens.
    pub cost: Cost,
    /// Whether the search ended within its budget.
    pub is_complete: bool,
    /// The largest standard error of the Shapley values by which labels were pruned; `None` if none were computed.
    pub shapley_error: Option<f64>,
}

impl LabelOutcome {
    /// Compares the labels that a method found with the true ones. Both are sorted elements of `span`, the lattice of
    /// the documents' labels, whose top is the naive label. The search counts as complete; [`apply`](super::apply)
    /// changes this for a search that its budget cut off.
    pub fn new(span: &LabelSpan, found: &[SpanElement], truth: &[SpanElement], cost: Cost) -> Self {
        let both = found.iter().filter(|element| truth.contains(element)).count() as f64;
        let share = |of: usize| if of == 0 { 0.0 } else { both / of as f64 };
        // A label that was found is not too low if a true one flows to it.
        let is_sufficient = |element: &SpanElement| truth.iter().any(|least| least.flows_to(*element));
        Self {
            is_exact: found == truth,
            precision: share(found.len()),
            recall: share(truth.len()),
            is_improvable: truth != [span.top()],
            is_improved: found != [span.top()],
            is_missed: !found.iter().all(is_sufficient),
            cost,
            is_complete: true,
            shapley_error: None,
        }
    }
}

/// A mean with its standard deviation over questions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of the sample; 0 for fewer than two values.
    pub deviation: f64,
}

impl Spread {
    /// Computes the mean and the sample standard deviation, which is 0 for one value; `None` without values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let count = values.len() as f64;
        // Without values, the divisions give NaN, which is not returned.
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 };
        (!values.is_empty()).then_some(Self { mean, deviation })
    }
}

/// The figures of a method over the questions of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct LabelFigures {
    /// The questions with exactly the true labels.
    pub exact: Rate,
    /// The precision; `None` without questions.
    pub precision: Option<Spread>,
    /// The recall; `None` without questions.
    pub recall: Option<Spread>,
    /// Of the questions for which a better label than the naive one exists, those with exactly the true labels.
    pub improvement: Rate,
    /// Of the questions whose label was improved, those with a label that is too low.
    pub missed: Rate,
    /// The number of searches that the budget cut off.
    pub cut_off: usize,
    /// The largest standard error of the Shapley values of each question; `None` if no method computed any.
    pub shapley_error: Option<Spread>,
    /// The number of scored texts for each question.
    pub calls: Option<Spread>,
    /// The largest number of texts scored for one question.
    pub most_calls: usize,
    /// The processed tokens for each question.
    pub tokens: Option<Spread>,
    /// The processed tokens of all questions, divided by those of one forward pass for each.
    pub forward_ratio: Option<f64>,
    /// The processed tokens of all questions, divided by those of the same calls without shared prefixes and early
    /// stops.
    pub sharing_ratio: Option<f64>,
    /// The processed tokens of all questions, divided by those that Algorithm 1 of *Permissive Information-Flow
    /// Analysis* processes for the same questions if nothing is shared. `compare_with_naive` sets it.
    pub naive_ratio: Option<f64>,
}

impl LabelFigures {
    /// Computes the figures over the questions of a data set. A ratio is `None` if no model was called.
    pub fn of(outcomes: &[LabelOutcome]) -> Self {
        let values =
            |value: fn(&LabelOutcome) -> f64| Spread::of(&outcomes.iter().map(value).collect::<Vec<_>>());
        // The improvement is measured where a better label than the naive one exists, and missed labels where the
        // method found a better label than the naive one.
        let improvable = outcomes.iter().filter(|outcome| outcome.is_improvable);
        let improved = outcomes.iter().filter(|outcome| outcome.is_improved);
        let total =
            |tokens: fn(&Cost) -> usize| outcomes.iter().map(|o| tokens(&o.cost)).sum::<usize>() as f64;
        let processed = total(|cost| cost.processed_tokens);
        let ratio = |base: f64| (base > 0.0).then(|| processed / base);
        Self {
            exact: Rate::of(outcomes, |outcome| outcome.is_exact),
            precision: values(|outcome| outcome.precision),
            recall: values(|outcome| outcome.recall),
            improvement: Rate::of(improvable, |outcome| outcome.is_exact),
            missed: Rate::of(improved, |outcome| outcome.is_missed),
            shapley_error: Spread::of(&outcomes.iter().filter_map(|o| o.shapley_error).collect::<Vec<_>>()),
            cut_off: outcomes.iter().filter(|outcome| !outcome.is_complete).count(),
            calls: values(|outcome| outcome.cost.calls as f64),
            tokens: values(|outcome| outcome.cost.processed_tokens as f64),
            most_calls: outcomes.iter().map(|outcome| outcome.cost.calls).max().unwrap_or(0),
            forward_ratio: ratio(total(|cost| cost.forward_tokens)),
            sharing_ratio: ratio(total(|cost| cost.unshared_tokens)),
            // `compare_with_naive` sets it, if the tokens of the naive algorithm are known.
            naive_ratio: None,
        }
    }

    /// Sets the ratio of the processed tokens to `tokens`, those of the naive algorithm for one question on average.
    /// The ratio stays `None` if no model was called or `tokens` is 0.
    pub(super) fn compare_with_naive(&mut self, tokens: f64) {
        let processed = self.tokens.filter(|_| self.most_calls > 0 && tokens > 0.0);
        self.naive_ratio = processed.map(|processed| processed.mean / tokens);
    }
}

#[cfg(test)]
mod tests {
    use super::super::question::{flat_labels, integrity_labels};
    use super::*;

    #[test]
    fn found_labels_are_compared_with_the_truth() {
        let span = LabelSpan::new(&flat_labels(4).unwrap()).unwrap();
        let set = |labels: &[usize]| span.join_of(labels.iter().copied());
        let truth = [set(&[0, 3]), set(&[0, 1, 2])];
        let check = |found: &[SpanElement], precision: f64, recall: f64, improved: bool, missed: bool| {
            let outcome = LabelOutcome::new(&span, found, &truth, Cost::default());
            assert_eq!((outcome.precision, outcome.recall), (precision, recall), "{found:?}");
            assert_eq!((outcome.is_improved, outcome.is_missed), (improved, missed), "{found:?}");
            assert_eq!(outcome.is_exact, found == truth);
        };
        check(&truth, 1.0, 1.0, true, false);
        check(&truth[..1], 1.0, 0.5, true, false);
        check(&[span.top()], 0.0, 0.0, false, false);
        check(&[set(&[0])], 0.0, 0.0, true, true);
        check(&[set(&[0, 3]), set(&[0, 2, 3])], 0.5, 0.5, true, false);
    }

    /// Denominators: improvement of the improvable ones, missed labels of the improved ones.
    #[test]
    fn rates_have_the_paper_s_denominators() {
        let span = LabelSpan::new(&integrity_labels().unwrap()).unwrap();
        let (low, top) = (span.bottom(), span.top());
        let outcome = |found, truth| LabelOutcome::new(&span, &[found], &[truth], Cost::default());
        let outcomes = [outcome(low, low), outcome(top, low), outcome(low, top), outcome(top, top)];
        let figures = LabelFigures::of(&outcomes);
        assert_eq!(figures.improvement, Rate { hits: 1, of: 2 });
        assert_eq!(figures.missed, Rate { hits: 1, of: 2 });
        assert_eq!(figures.exact, Rate { hits: 2, of: 4 });
        assert_eq!(LabelFigures::of(&[]).calls, None);
        // The questions without Shapley values do not count.
        assert_eq!(figures.shapley_error, None);
        let with_error = |error| LabelOutcome { shapley_error: error, ..outcome(low, low) };
        let pruned = LabelFigures::of(&[None, Some(0.5), Some(0.0)].map(with_error));
        assert_eq!(pruned.shapley_error.map(|spread| spread.mean), Some(0.25));
        // Nothing was scored, so there is nothing to compare.
        let mut figures = figures;
        figures.compare_with_naive(50.0);
        assert_eq!(figures.naive_ratio, None);
        let cost = Cost { calls: 2, processed_tokens: 5, ..Cost::default() };
        let mut scored = LabelFigures::of(&[LabelOutcome { cost, ..outcome(low, low) }]);
        scored.compare_with_naive(50.0);
        assert_eq!(scored.naive_ratio, Some(0.1));
        let spread = Spread::of(&[1.0, 3.0]).unwrap();
        assert_eq!((spread.mean, spread.deviation), (2.0, 2.0_f64.sqrt()));
    }
}
