//! Asks another upstream if the first one cannot answer. `turn_models` creates a [`FallbackModel`] for each model of a
//! turn.
//!
//! Each upstream receives the same view, so a failure changes which model answers, but not what is shown. The operator
//! lists the upstreams, because each of them may read everything that the first one may read. The next upstream is
//! asked only if no part of an answer has arrived yet: an answer must not consist of parts from two models.

use std::ops::ControlFlow;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BoxFuture, ChatModel, Delta, Error, Listener, RemoteModel};

use super::budgets::{PendingUse, TurnSpending};
use super::turn_trace::ModelCalls;
use crate::config::UpstreamConfig;

/// A model on the client's upstream, and the same or other models on further upstreams.
pub(super) struct FallbackModel<'a> {
    /// The model on the client's upstream, which is asked first.
    first: UpstreamChoice<'a>,
    /// The models on further upstreams, in the order in which they are asked.
    others: Vec<UpstreamChoice<'a>>,
    /// Is called with the name of a model that failed, and its error, before the next model is asked.
    on_failure: &'a (dyn Fn(&str, &Error) + Sync),
    /// Receives the tokens that each request to a model uses.
    spending: &'a TurnSpending,
    /// Records each request to a model.
    calls: &'a ModelCalls<'a>,
}

/// A model, and the upstream that has it.
pub(super) struct UpstreamChoice<'a> {
    pub(super) remote: RemoteModel,
    pub(super) upstream: &'a UpstreamConfig,
}

impl<'a> FallbackModel<'a> {
    /// Creates a model that asks `first`, and then each of `others` until one answers. Before the next one is asked,
    /// `on_failure` is called with the name and the error of the one that failed. `spending` receives the tokens that
    /// each request uses, and `calls` records each request.
    pub(super) fn new(
        first: UpstreamChoice<'a>,
        others: Vec<UpstreamChoice<'a>>,
        on_failure: &'a (dyn Fn(&str, &Error) + Sync),
        spending: &'a TurnSpending,
        calls: &'a ModelCalls<'a>,
    ) -> Self {
        Self { first, others, on_failure, spending, calls }
    }

    /// Asks the model `choice`, and records the request as a span. `place` is the index of the model in the order in
    /// which they are asked; 0 is the model on the client's own upstream.
    async fn ask(
        &self,
        (choice, place): (&UpstreamChoice<'_>, usize),
        request: &Request,
        listener: &mut dyn Listener,
    ) -> Result<Completion, Error> {
        let call = self.calls.begin(choice.upstream, choice.remote.model(), place);
        // A copy of the model that notes retries in the span and sends the header `traceparent`; `None` if neither is
        // needed.
        let traced = call.traced(&choice.remote);
        let outcome = self.ask_counted(traced.as_ref().unwrap_or(&choice.remote), request, listener).await;
        // Ends the span with the tokens and the reason for the stop, or with the error.
        call.settle(outcome.as_ref().map(|completion| (completion.usage, Some(completion.stop))));
        outcome
    }

    /// Asks a model, and counts the tokens that it uses. If the future is dropped because the client has disconnected,
    /// the estimate of the tokens so far counts: the variable `pending` has it, and adds it when it is dropped.
    async fn ask_counted(
        &self,
        model: &RemoteModel,
        request: &Request,
        listener: &mut dyn Listener,
    ) -> Result<Completion, Error> {
        // Without a budget, nothing is counted.
        let Some(mut pending) = self.spending.begin(model.model(), request) else {
            return model.complete(request, listener).await;
        };
        let outcome =
            model.complete(request, &mut CountingListener { listener, pending: &mut pending }).await;
        match &outcome {
            Ok(completion) => pending.settle(request, completion),
            Err(_) => pending.fail(),
        }
        outcome
    }
}

impl ChatModel for FallbackModel<'_> {
    /// Returns the name of the model that is asked first, even if another model answers.
    fn name(&self) -> &str {
        self.first.remote.name()
    }

    /// Asks the models one after the other, until one of them answers or begins to answer. An error whose cause is not
    /// the server of the model is final as well ([`another_may_answer`]).
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let mut listener = FirstDelta { listener, has_begun: false };
            let mut choice = &self.first;
            // Asks all models but the last. `place` is the index of the asked model, `choice`; `next` is the model
            // after it.
            for (place, next) in self.others.iter().enumerate() {
                match self.ask((choice, place), request, &mut listener).await {
                    Err(error) if another_may_answer(&error) && !listener.has_begun => {
                        (self.on_failure)(choice.remote.name(), &error);
                        choice = next;
                    }
                    done => return done,
                }
            }
            // After the last model there is no other, so its outcome is final.
            self.ask((choice, self.others.len()), request, &mut listener).await
        })
    }
}

/// Returns whether another server may answer a request that failed with this error, because the cause is the server and
/// not the request.
fn another_may_answer(error: &Error) -> bool {
    error.is_temporary() || matches!(error, Error::Timeout | Error::Unreachable(_))
}

/// A listener that notes whether it has received anything.
struct FirstDelta<'a> {
    listener: &'a mut dyn Listener,
    has_begun: bool,
}

impl Listener for FirstDelta<'_> {
    /// Notes that a part of an answer has arrived, and passes it on.
    fn on_delta(&mut self, delta: Delta<'_>) -> ControlFlow<()> {
        self.has_begun = true;
        self.listener.on_delta(delta)
    }

    /// Waits until the listener can take more of the answer.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        self.listener.ready()
    }
}

/// A listener that adds the sizes of the parts that it receives to the estimate of used tokens.
struct CountingListener<'a, 's> {
    listener: &'a mut dyn Listener,
    pending: &'a mut PendingUse<'s>,
}

impl Listener for CountingListener<'_, '_> {
    /// Counts the bytes of a part of the answer, and passes the part on. A restart means that the answer failed and is
    /// requested again; the parts that arrived before it still count, since the model has generated them.
    fn on_delta(&mut self, delta: Delta<'_>) -> ControlFlow<()> {
        self.pending.add_received(match delta {
            Delta::Text(text) | Delta::Reasoning(text) | Delta::Arguments { json: text, .. } => text.len(),
            Delta::Call { name, .. } => name.len(),
            Delta::Restart => 0,
        });
        self.listener.on_delta(delta)
    }

    /// Waits until the listener can take more of the answer.
    fn ready(&mut self) -> BoxFuture<'_, ()> {
        self.listener.ready()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_is_asked_after_failures_of_the_server_alone() {
        let rejected = |status| Error::Rejected { status, message: String::new() };
        for error in [Error::Timeout, Error::Unreachable(String::new()), Error::Busy { retry_after: None }] {
            assert!(another_may_answer(&error), "{error}");
        }
        for (status, expected) in
            [(400, false), (401, false), (404, false), (408, true), (429, true), (503, true)]
        {
            assert_eq!(another_may_answer(&rejected(status)), expected, "{status}");
        }
        for error in [Error::Cancelled, Error::OverBudget("tokens"), Error::Unsupported("images")] {
            assert!(!another_may_answer(&error), "{error}");
        }
    }
}
