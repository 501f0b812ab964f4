//! Measures how well a model copies values of texts that it was not trained on ([`copy_accuracy`]). Copying values is
//! the only task of Flowgate's small models, so this is the measure of their quality. `flowgate lm` calls this function
//! and reports the result, a [`CopyAccuracy`] for each kind of example.

use std::collections::BTreeMap;

use super::corpus::VALUE;
use super::{Corpus, ExampleKind};
use crate::{Error, ScoreRequest, ScoringModel};

/// The examples with numbers from here on are for tests: no training reaches them.
pub const HELD_OUT: usize = 1_000_000_000;

/// How well a model copies the values of examples of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CopyAccuracy {
    /// The number of values.
    pub values: usize,
    /// The number of values that were copied: each of their tokens had a probability above one half, given the tokens
    /// before it.
    pub copied: usize,
    /// The number of tokens of the values.
    pub tokens: usize,
    /// The number of tokens with a probability above one half.
    pub likely_tokens: usize,
    /// The sum of the negative log-probabilities of the tokens.
    pub loss: f64,
}

impl CopyAccuracy {
    /// Returns the share of values that were copied; 0 without values.
    #[must_use]
    pub fn copied_share(&self) -> f64 {
        share(self.copied, self.values)
    }

    /// Returns the share of tokens with a probability above one half; 0 without tokens.
    #[must_use]
    pub fn likely_share(&self) -> f64 {
        share(self.likely_tokens, self.tokens)
    }
}

/// Returns `part` divided by `of`; 0 if both are 0.
#[expect(clippy::cast_precision_loss, reason = "examples are few")]
fn share(part: usize, of: usize) -> f64 {
    part as f64 / of.max(1) as f64
}

/// Scores the values of `count` examples of the corpus, from number [`HELD_OUT`] on. Each value, a part with the weight
/// `VALUE`, is scored as the continuation of the text before it. Returns the accuracy for each kind of example. `step`
/// is called after each example. If `step` returns true, the measurement ends early, and the result covers the examples
/// so far.
///
/// # Errors
/// If the model fails.
pub async fn copy_accuracy(
    model: &dyn ScoringModel,
    corpus: &Corpus,
    count: usize,
    step: &mut (dyn FnMut() -> bool + Send),
) -> Result<BTreeMap<ExampleKind, CopyAccuracy>, Error> {
    // The logarithm of one half. A token with a higher log-probability is more probable than all others together, so
    // the model would generate it.
    let half = 0.5_f64.ln();
    let mut found: BTreeMap<ExampleKind, CopyAccuracy> = BTreeMap::new();
    for example in (HELD_OUT..HELD_OUT + count).map(|number| corpus.example(number)) {
        let accuracy = found.entry(example.kind()).or_default();
        let mut before = String::new();
        for (text, weight) in example.parts() {
            if *weight == VALUE {
                let request = ScoreRequest { prefix: None, prompt: &before, continuation: text, bound: None };
                let scores = model.score_batch(&[request]).await?;
                let logprobs: Vec<f64> =
                    scores.iter().flat_map(|score| &score.tokens).map(|token| token.logprob).collect();
                let likely = logprobs.iter().filter(|logprob| **logprob > half).count();
                // The model copies a value if it would generate each of its tokens.
                let is_copied = likely == logprobs.len();
                accuracy.values += 1;
                accuracy.copied += usize::from(is_copied);
                accuracy.tokens += logprobs.len();
                accuracy.likely_tokens += likely;
                accuracy.loss -= logprobs.iter().sum::<f64>();
            }
            before.push_str(text);
        }
        if step() {
            break;
        }
    }
    Ok(found)
}
