//! Defines the utility of a completion in a context, a measure of how probable the completion is there for a model
//! (Permissive Information-Flow Analysis, definition 1 and equation 2). Label searches compare the utility in a
//! subcontext (with some of the documents) with the utility in the whole context.

use flowgate_lm::Score;

/// A measure of how well a model would have written a completion.
pub trait Utility: Send + Sync {
    /// Returns the name for reports.
    fn name(&self) -> &'static str;

    /// Returns the utility of a whole score; higher is better.
    fn of(&self, score: &Score) -> f64;

    /// Returns a bound on the sum of the log-probabilities of `tokens` tokens: once the sum is below it, the utility is
    /// certain to be below `least`, and scoring may stop. `None` if there is no such bound.
    fn bound(&self, least: f64, tokens: usize) -> Option<f64>;
}

/// The negative perplexity (equation 2): from -∞ to -1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NegativePerplexity;

/// The mean log-probability of a token: the negative logarithm of the perplexity. A loss of λ multiplies the perplexity
/// by e to the power of λ, however sure the model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MeanLogProbability;

/// The tolerance of comparisons: a utility that is just sufficient must not become insufficient by rounding.
const SLACK: f64 = 1e-9;

impl Utility for NegativePerplexity {
    fn name(&self) -> &'static str {
        "negative-perplexity"
    }

    fn of(&self, score: &Score) -> f64 {
        -score.perplexity()
    }

    fn bound(&self, least: f64, tokens: usize) -> Option<f64> {
        // The perplexity is e to the power of the negative mean log-probability. For a `least` that is not negative,
        // the logarithm is not finite, so there is no bound.
        MeanLogProbability.bound(-(-least).ln(), tokens)
    }
}

impl Utility for MeanLogProbability {
    fn name(&self) -> &'static str {
        "mean-log-probability"
    }

    fn of(&self, score: &Score) -> f64 {
        -score.perplexity().ln()
    }

    #[expect(clippy::cast_precision_loss, reason = "a text has fewer than 2^52 tokens")]
    fn bound(&self, least: f64, tokens: usize) -> Option<f64> {
        let sum = least * tokens as f64;
        // Without the tolerance, rounding errors could stop the scoring of a text whose utility is just sufficient.
        sum.is_finite().then(|| sum - SLACK * (1.0 + sum.abs()))
    }
}

/// Returns whether a subcontext with this utility is λ-similar to the context (Permissive Information-Flow Analysis,
/// definition 1): the utility drops by at most `lambda`. If the loss is not a number, the subcontext is not similar.
#[must_use]
pub fn is_similar(context: f64, subcontext: f64, lambda: f64) -> bool {
    let loss = context - subcontext;
    // Scores that differ only by rounding count as equal.
    loss <= lambda + SLACK * (1.0 + context.abs())
}

#[cfg(test)]
mod tests {
    use flowgate_lm::ScoredToken;

    use super::*;

    fn score(logprobs: &[f64]) -> Score {
        let tokens = logprobs.iter().map(|&logprob| ScoredToken { text: "t".to_owned(), logprob });
        Score { tokens: tokens.collect(), is_stopped: false }
    }

    /// A sum at the bound has the least utility, and one below it has less.
    #[test]
    fn the_bound_is_where_the_utility_is_lost() {
        for utility in [&NegativePerplexity as &dyn Utility, &MeanLogProbability] {
            for context in [[-0.1, -0.3, -0.2], [-2.0, -0.01, -7.0], [0.0, 0.0, 0.0]] {
                for lambda in [0.0, 0.2, 3.0] {
                    let full = utility.of(&score(&context));
                    let bound = utility.bound(full - lambda, 3).unwrap();
                    let at = |sum: f64| utility.of(&score(&[sum / 3.0; 3]));
                    let name = utility.name();
                    assert!(is_similar(full, at(bound + 1e-6), lambda), "{name} {context:?} {lambda}");
                    assert!(!is_similar(full, at(bound - 1e-6), lambda), "{name} {context:?} {lambda}");
                    assert!(is_similar(full, full, lambda) && is_similar(full, full + 1.0, lambda));
                }
            }
        }
    }

    #[test]
    fn what_is_no_number_is_not_similar() {
        let never = score(&[f64::NEG_INFINITY]);
        let utility = NegativePerplexity.of(&never);
        assert_eq!(utility, f64::NEG_INFINITY);
        assert!(!is_similar(utility, utility, 1.0) && !is_similar(-1.0, utility, 1.0));
        assert_eq!(NegativePerplexity.bound(utility, 1), None);
        assert_eq!(NegativePerplexity.bound(1.0, 1), None, "no perplexity is negative");
    }
}
