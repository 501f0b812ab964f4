//! Caches the scores that a model gives to texts: [`KnownScores`]. `tune.rs` uses it, because it tries many settings on
//! the same questions, and most settings score the same texts.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use flowgate_lm::{BoxFuture, Error, Score, ScoreRequest, ScoringModel};

/// The maximum number of scores in the cache. When it is reached, the cache is emptied.
const MAX_KNOWN: usize = 1 << 16;

/// A model with a cache of its scores, so that no text is scored twice to its end.
///
/// It prepares no shared prefixes of prompts. A text in the cache needs none, and any other text is evaluated from its
/// beginning.
pub(super) struct KnownScores<'m> {
    model: &'m dyn ScoringModel,
    /// The scores of a prompt and a continuation.
    known: Mutex<HashMap<(String, String), Score>>,
}

impl<'m> KnownScores<'m> {
    /// Creates an empty cache for the scores of `model`.
    pub(super) fn new(model: &'m dyn ScoringModel) -> Self {
        Self { model, known: Mutex::default() }
    }

    /// Returns the cached score of a request, if there is one that suffices. A score that was stopped early, because it
    /// fell below the bound of its request, suffices only if it is also below the bound of this request.
    fn find(&self, request: &ScoreRequest<'_>) -> Option<Score> {
        let key = (request.whole_prompt(), request.continuation.to_owned());
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let suffices =
            |score: &&Score| !score.is_stopped || request.bound.is_some_and(|bound| score.logprob() < bound);
        known.get(&key).filter(suffices).cloned()
    }

    /// Adds the score of a request to the cache.
    fn keep(&self, request: &ScoreRequest<'_>, score: &Score) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert((request.whole_prompt(), request.continuation.to_owned()), score.clone());
    }
}

impl ScoringModel for KnownScores<'_> {
    /// Returns the scores of all requests. The model scores those that are not in the cache, in one batch.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        Box::pin(async move {
            let mut scores: Vec<Option<Score>> = requests.iter().map(|request| self.find(request)).collect();
            let unknown: Vec<ScoreRequest<'_>> = requests
                .iter()
                .zip(&scores)
                .filter(|(_, score)| score.is_none())
                .map(|(request, _)| *request)
                .collect();
            let mut found = match unknown.as_slice() {
                [] => Vec::new(),
                unknown => self.model.score_batch(unknown).await?,
            }
            .into_iter();
            // The scores of the model have the order of the requests that are not in the cache.
            for (request, score) in requests.iter().zip(&mut scores).filter(|(_, score)| score.is_none()) {
                *score = found.next();
                if let Some(score) = score {
                    self.keep(request, score);
                }
            }
            // If the model returned too few scores, so does this function, and the caller reports it.
            Ok(scores.into_iter().flatten().collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use flowgate_lm::block_on;

    use super::super::double::{CopyModel, CopyingErrors};
    use super::*;

    /// The copying double, which counts the texts that it scores.
    struct CountingScores(CopyModel, AtomicUsize);

    impl ScoringModel for CountingScores {
        fn score_batch<'a>(
            &'a self,
            requests: &'a [ScoreRequest<'a>],
        ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
            self.1.fetch_add(requests.len(), Ordering::Relaxed);
            self.0.score_batch(requests)
        }
    }

    /// Each request has the score that the model gives it, and only texts that are not known are scored.
    #[test]
    fn known_texts_are_not_scored_again() {
        let double = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let model = CountingScores(double, AtomicUsize::new(0));
        let known = KnownScores::new(&model);
        let mut scored = 0;
        let mut check = |prompts: &[&'static str], bound: Option<f64>, asked: usize| {
            let request = |prompt: &&'static str| ScoreRequest {
                prompt,
                continuation: "one two three",
                bound,
                ..ScoreRequest::default()
            };
            let requests: Vec<ScoreRequest<'_>> = prompts.iter().map(request).collect();
            let found = block_on(known.score_batch(&requests)).unwrap();
            let expected = block_on(double.score_batch(&requests)).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                // Both are exact, or both are below the bound.
                match bound {
                    Some(bound) if expected.is_stopped => assert!(found.logprob() < bound),
                    _ => assert_eq!(found, expected),
                }
            }
            assert_eq!(found.len(), expected.len());
            scored += asked;
            assert_eq!(model.1.load(Ordering::Relaxed), scored, "{prompts:?} {bound:?}");
        };
        // Stopped after the first word; a higher bound needs no more of it, a lower one does.
        check(&["three"], Some(-1.0), 1);
        check(&["three"], Some(-0.5), 0);
        check(&["three"], Some(-5.0), 1);
        // A part of a batch is known.
        check(&["one two", "three"], None, 2);
        check(&["three", "one two", ""], None, 1);
        check(&["three", "one two", ""], Some(-0.1), 0);
    }
}
