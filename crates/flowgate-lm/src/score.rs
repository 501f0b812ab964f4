//! Defines [`ScoringModel`], the trait of models that return the probability of a given text, with its requests and its
//! answers. Label propagation and the influence methods of `flowgate-guard`, and the benchmarks, call such models.
//!
//! A search over contexts scores the same continuation after many prompts that begin alike. A [`Prefix`] stores what a
//! model has computed for such a beginning. Requests are answered in batches, and a model may stop scoring a request as
//! soon as the score is below the request's bound.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::{BoxFuture, Error};

/// A model that returns the probability of a given text.
pub trait ScoringModel: Send + Sync {
    /// Scores each request. The scores are in the order of the requests.
    ///
    /// # Errors
    /// If the model gives no answer, or a request cannot be scored: the model does not return log-probabilities, a text
    /// is too long, or a token spans the end of the prompt.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>>;

    /// Prepares a text that many prompts begin with: the text of `parent`, if there is one, followed by `text`.
    ///
    /// This default implementation only stores the text. A model that can evaluate the text in advance, so that each
    /// prompt that begins with it costs less, overrides the method.
    ///
    /// # Errors
    /// If the text is too long for the model.
    fn prefix<'a>(
        &'a self,
        parent: Option<&'a Prefix>,
        text: &'a str,
    ) -> BoxFuture<'a, Result<Prefix, Error>> {
        Box::pin(std::future::ready(Ok(Prefix::new(parent, text, None))))
    }

    /// Scores one continuation: returns its tokens, each with its natural log-probability after `prompt` and the tokens
    /// before it.
    ///
    /// # Errors
    /// In the same cases as [`ScoringModel::score_batch`].
    fn score<'a>(
        &'a self,
        prompt: &'a str,
        continuation: &'a str,
    ) -> BoxFuture<'a, Result<Vec<ScoredToken>, Error>> {
        Box::pin(async move {
            // The request has no prefix before the prompt, and no bound at which the model could stop.
            let request = ScoreRequest { prompt, continuation, ..ScoreRequest::default() };
            let scores = self.score_batch(std::slice::from_ref(&request)).await?;
            Ok(scores.into_iter().next().map(|score| score.tokens).unwrap_or_default())
        })
    }
}

/// A continuation to score, and the prompt that precedes it.
#[derive(Debug, Clone, Copy, Default)]
pub struct ScoreRequest<'a> {
    /// The beginning of the prompt, as [`ScoringModel::prefix`] returned it.
    pub prefix: Option<&'a Prefix>,
    /// The rest of the prompt, after the prefix.
    pub prompt: &'a str,
    /// The text to score.
    pub continuation: &'a str,
    /// The sum of log-probabilities below which the caller does not need the exact score: the model may stop as soon as
    /// the sum over the tokens so far is smaller. `None` requests the whole score.
    pub bound: Option<f64>,
}

impl ScoreRequest<'_> {
    /// Returns the whole prompt: the prefix and the prompt.
    #[must_use]
    pub fn whole_prompt(&self) -> String {
        let prefix = self.prefix.map_or("", Prefix::text);
        format!("{prefix}{}", self.prompt)
    }
}

/// The score of a continuation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Score {
    /// The tokens of the continuation with their log-probabilities; if scoring stopped early, only those that were
    /// scored.
    pub tokens: Vec<ScoredToken>,
    /// Whether scoring stopped early because the sum is below the bound of the request.
    pub is_stopped: bool,
}

impl Score {
    /// Returns the natural log-probability of all scored tokens together: the sum of their log-probabilities.
    #[must_use]
    pub fn logprob(&self) -> f64 {
        self.tokens.iter().map(|token| token.logprob).sum()
    }

    /// Returns the perplexity: the exponential of the mean negative log-probability of the tokens; 1 without tokens.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a text has fewer than 2^52 tokens")]
    pub fn perplexity(&self) -> f64 {
        match self.tokens.len() {
            0 => 1.0,
            count => (-self.logprob() / count as f64).exp(),
        }
    }
}

/// A token with its log-probability.
#[derive(Debug, Clone, PartialEq)]
pub struct ScoredToken {
    /// The text of the token.
    pub text: String,
    /// The natural logarithm of its probability.
    pub logprob: f64,
}

/// A text with which prompts begin, and the state that a model has computed for it.
///
/// Clones share the state. Only the model that computed the state can use it; any other model uses the text alone.
#[derive(Clone)]
pub struct Prefix {
    text: Arc<str>,
    /// The state of the model that created the prefix, in a type of that model; `None` if it computed nothing.
    state: Option<Arc<dyn Any + Send + Sync>>,
}

impl Prefix {
    /// Creates a prefix: the text of `parent`, followed by `text`. `state` is what the model has computed for the whole
    /// text; [`Prefix::state`] returns it.
    #[must_use]
    pub fn new(parent: Option<&Self>, text: &str, state: Option<Arc<dyn Any + Send + Sync>>) -> Self {
        let before = parent.map_or("", Self::text);
        Self { text: Arc::from(format!("{before}{text}")), state }
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the state that the model has computed, if there is one and it is of type `T`.
    #[must_use]
    pub fn state<T: Any + Send + Sync>(&self) -> Option<&T> {
        self.state.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prefix").field("bytes", &self.text.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_extend_each_other() {
        let first = Prefix::new(None, "ab", Some(Arc::new(7_u8)));
        let second = Prefix::new(Some(&first), "cd", None);
        assert_eq!((first.text(), second.text()), ("ab", "abcd"));
        assert_eq!((first.state::<u8>(), first.state::<u16>(), second.state::<u8>()), (Some(&7), None, None));
        let request = ScoreRequest { prefix: Some(&second), prompt: "ef", ..ScoreRequest::default() };
        assert_eq!(request.whole_prompt(), "abcdef");
    }

    #[test]
    fn sums_and_perplexity() {
        let check = |logprobs: &[f64], sum: f64, perplexity: f64| {
            let tokens =
                logprobs.iter().map(|&logprob| ScoredToken { text: String::new(), logprob }).collect();
            let score = Score { tokens, is_stopped: false };
            assert!((score.logprob() - sum).abs() < 1e-12, "{logprobs:?}");
            assert!((score.perplexity() - perplexity).abs() < 1e-12, "{logprobs:?}");
        };
        check(&[], 0.0, 1.0);
        check(&[-0.5_f64.ln().abs(); 3], 3.0 * 0.5_f64.ln(), 2.0);
        check(&[0.25_f64.ln(), 0.0], 0.25_f64.ln(), 2.0);
    }
}
