//! Counts what a run with a model would cost, without calling the model: the requests, and their input tokens.
//!
//! A double answers in place of the model and so determines the course of the conversations. A real model can look, ask and call differently, so the
//! counts are an estimate. The tokens of a request are those of the [shipped tokenizer](crate::tokens), which needs more tokens for a text than a model
//! with a large vocabulary. The command line wraps the double in a [`CountedModel`] for `--dry-run`.

use std::sync::atomic::{AtomicU64, Ordering};

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BlockedText, BlockingModel, BoxFuture, ChatModel, Error, Listener};

use crate::tokens::input_tokens;

/// Counts the requests of a run. Parallel parts of the run can share it.
#[derive(Debug, Default)]
pub struct RequestCounter {
    requests: AtomicU64,
    input_tokens: AtomicU64,
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

    /// Counts one request, and adds its input tokens to the sum.
    fn count(&self, request: &Request) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.input_tokens.fetch_add(input_tokens(request), Ordering::Relaxed);
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
    /// Counts the request like `complete`: a blocked text is read as well.
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

/// A double of the model that drives the attacker: its answers are empty, so that the search makes its own attacks. Only the
/// number of its requests matters, for an estimate of the cost.
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
    use super::*;
    use crate::games::{Defence, GameSuite, ModelDouble, Runner};

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
}
