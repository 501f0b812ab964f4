//! The model of a turn: measures the time that its server takes, and stops waiting when the client has disconnected.
//!
//! `turn` wraps each model that a turn may ask.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener};

use crate::client_presence::ClientPresence;

/// A model that is asked on behalf of a client.
pub(super) struct UpstreamModel<'a> {
    model: &'a dyn ChatModel,
    client: &'a ClientPresence,
    /// The time that all models of the turn have taken, in microseconds.
    micros: &'a AtomicU64,
}

impl<'a> UpstreamModel<'a> {
    pub(super) fn new(model: &'a dyn ChatModel, client: &'a ClientPresence, micros: &'a AtomicU64) -> Self {
        Self { model, client, micros }
    }
}

impl ChatModel for UpstreamModel<'_> {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let begun = Instant::now();
            let done = tokio::select! {
                biased;
                done = self.model.complete(request, listener) => done,
                () = self.client.gone() => Err(Error::Cancelled),
            };
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.micros.fetch_add(took, Ordering::Relaxed);
            done
        })
    }
}
