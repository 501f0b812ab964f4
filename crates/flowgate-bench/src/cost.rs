//! Estimates what a run with a model would cost, without calling the model: counts the requests and their input tokens.
//!
//! A double answers in place of the model and so determines the course of the conversations. A real model can look, ask and call differently, so the
//! counts are an estimate. The tokens of a request are those of the [shipped tokenizer](crate::tokens), which needs more tokens for a text than a model
//! with a large vocabulary. The command line wraps the double in a [`CountedModel`] for `--dry-run`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{
    BlockedText, BlockingModel, BoxFuture, ChatModel, Error, Listener, Score, ScoreRequest, ScoringModel,
};

use crate::tokens::{count_lines, input_tokens};

/// Counts the requests of a run. Parallel parts of the run can share it.
#[derive(Debug, Default)]
pub struct RequestCounter {
    requests: AtomicU64,
    input_tokens: AtomicU64,
    /// The number of requests with each limit of the answer's tokens. A request without a limit is in none of them.
    answer_limits: Mutex<BTreeMap<u32, u64>>,
}

impl RequestCounter {
    /// Returns the number of requests.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Returns the sum of the input tokens of all requests.
    pub fn input_tokens(&self) -> u64 {
        self.input_tokens.load(Ordering::Relaxed)
    }

    /// Returns the limits of the answers' tokens in ascending order, each with the number of requests that have it. A suite
    /// can have several: a call that repeats a text needs more tokens than a reply.
    pub fn answer_limits(&self) -> Vec<(u32, u64)> {
        let limits = self.answer_limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.iter().map(|(limit, requests)| (*limit, *requests)).collect()
    }

    /// Counts one request, and adds its input tokens to the sum.
    fn count(&self, request: &Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.input_tokens.fetch_add(input_tokens(request), Ordering::Relaxed);
        if let Some(limit) = request.sampling.max_tokens {
            let mut limits = self.answer_limits.lock().unwrap_or_else(PoisonError::into_inner);
            *limits.entry(limit).or_default() += 1;
        }
    }

    /// Counts one request that has only a text, and adds its tokens to the sum.
    fn count_text(&self, text: &str) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let tokens = u64::try_from(count_lines(text)).unwrap_or(u64::MAX);
        self.input_tokens.fetch_add(tokens, Ordering::Relaxed);
    }
}

/// A double whose requests are counted.
#[derive(Debug)]
pub struct CountedModel<'m, M: ?Sized> {
    /// The double that answers.
    pub model: &'m M,
    /// Counts each request before the double answers it.
    pub counter: &'m RequestCounter,
}

impl<M: ChatModel + ?Sized> ChatModel for CountedModel<'_, M> {
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Counts the request and its tokens, and lets the counted model answer it.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        self.counter.count(request);
        self.model.complete(request, listener)
    }
}

impl<M: BlockingModel + ?Sized> BlockingModel for CountedModel<'_, M> {
    /// Counts the request like `complete`, with the tokens of the blocked texts, which a model reads as well.
    fn complete_blocking<'a>(
        &'a self,
        request: &'a Request,
        blocked: &'a [BlockedText],
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        self.counter.count(request);
        self.model.complete_blocking(request, blocked, listener)
    }
}

/// A double that scores texts, whose requests are counted.
pub struct CountedScores<'m> {
    /// The double that scores.
    pub model: &'m dyn ScoringModel,
    /// Counts each text before the double scores it.
    pub counter: &'m RequestCounter,
}

impl std::fmt::Debug for CountedScores<'_> {
    /// Writes the counter; the model need not have `Debug`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CountedScores").field("counter", self.counter).finish_non_exhaustive()
    }
}

impl ScoringModel for CountedScores<'_> {
    /// Counts each text as a request, with the tokens of its prompt and its continuation, and lets the double score them.
    fn score_batch<'a>(
        &'a self,
        requests: &'a [ScoreRequest<'a>],
    ) -> BoxFuture<'a, Result<Vec<Score>, Error>> {
        for request in requests {
            self.counter.count_text(&(request.whole_prompt() + request.continuation));
        }
        self.model.score_batch(requests)
    }
}

/// A double of the model that writes attacks for an attack search. Its answers are empty, so the search composes the
/// attacks itself. The double serves to count the requests, for an estimate of the cost.
#[derive(Debug, Clone, Copy)]
pub struct SilentModel;

impl ChatModel for SilentModel {
    fn name(&self) -> &str {
        "silent"
    }

    /// Returns an empty answer.
    fn complete<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(std::future::ready(Ok(Completion::default())))
    }
}

#[cfg(test)]
mod tests {
    use flowgate_guard::conversation::Method;
    use flowgate_lm::block_on;

    use super::*;
    use crate::games::extended::{ExtendedGame, ExtendedSuite};
    use crate::games::{Defence, GameSuite, ModelDouble, Runner};
    use crate::propagation::{CopyModel, CopyingErrors};

    /// Each execution of the paper's defences is one request.
    #[test]
    fn requests_are_counted() {
        let counter = RequestCounter::default();
        let model = CountedModel { model: &ModelDouble::Gullible, counter: &counter };
        let suite = GameSuite::generate(1, 2);
        let runner = Runner::new(&model, None).unwrap();
        let executions = suite.run_defence(&runner, Defence::None, &mut || false).unwrap().unwrap();
        assert_eq!(counter.requests(), executions.len() as u64);
        assert!(counter.input_tokens() > counter.requests());
    }

    /// The games of one step ask for short answers, those of several steps for answers with room for a call.
    #[test]
    fn the_limits_of_answers_are_counted() {
        let counter = RequestCounter::default();
        let model = CountedModel { model: &ModelDouble::Gullible, counter: &counter };
        let runner = Runner::new(&model, None).unwrap();
        let suite = ExtendedSuite { seed: 1, seeds: 1, instances: 1 };
        for defence in [Defence::None, Defence::Labels(Method::LowestFirst)] {
            for name in ["base64/retrieval", "memory"] {
                suite.run(&runner, ExtendedGame::parse(name).unwrap(), defence, &mut || false).unwrap();
            }
        }
        let limits = counter.answer_limits();
        assert_eq!(limits.iter().map(|(limit, _)| *limit).collect::<Vec<_>>(), [64, 512]);
        assert_eq!(limits.iter().map(|(_, requests)| requests).sum::<u64>(), counter.requests());
    }

    /// Each text that is scored is a request, also in a batch.
    #[test]
    fn scored_texts_are_counted() {
        let counter = RequestCounter::default();
        let double = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let scores = CountedScores { model: &double, counter: &counter };
        let request = ScoreRequest { prompt: "one two", continuation: " two", ..ScoreRequest::default() };
        let found = block_on(scores.score_batch(&[request, request])).unwrap();
        assert_eq!(found, block_on(double.score_batch(&[request, request])).unwrap());
        assert_eq!(counter.requests(), 2);
        assert!(counter.input_tokens() >= 6, "{}", counter.input_tokens());
    }
}
