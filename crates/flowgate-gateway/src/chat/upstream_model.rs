//! Measures how long a model's server takes to answer, and stops waiting when the client has disconnected. `turn` puts
//! an [`UpstreamModel`] around every model that it calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener};

use crate::http::client_presence::ClientPresence;

/// A model whose time is measured, and whose answer is awaited only while the client waits.
pub(super) struct UpstreamModel<'a> {
    model: &'a dyn ChatModel,
    /// Reports whether the client still waits.
    client: &'a ClientPresence,
    /// The time that all models of the turn have taken, in microseconds.
    micros: &'a AtomicU64,
}

impl<'a> UpstreamModel<'a> {
    /// Wraps `model`. `client` says whether the client still waits, and the time that the model takes is added to
    /// `micros`.
    pub(super) fn new(model: &'a dyn ChatModel, client: &'a ClientPresence, micros: &'a AtomicU64) -> Self {
        Self { model, client, micros }
    }
}

impl ChatModel for UpstreamModel<'_> {
    /// Returns the name of the wrapped model.
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Queries the model, adds the time that it takes to the total of the turn, and fails with [`Error::Cancelled`]
    /// when the client disconnects.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let begun = Instant::now();
            let outcome = tokio::select! {
                // A completion that has arrived is returned even if the client has disconnected.
                biased;
                outcome = self.model.complete(request, listener) => outcome,
                () = self.client.disconnected() => Err(Error::Cancelled),
            };
            let took = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.micros.fetch_add(took, Ordering::Relaxed);
            outcome
        })
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::ignore_deltas;

    use super::*;

    /// A model whose answer never begins.
    struct SilentModel;

    impl ChatModel for SilentModel {
        fn name(&self) -> &'static str {
            "silent"
        }

        fn complete<'a>(
            &'a self,
            _: &'a Request,
            _: &'a mut dyn Listener,
        ) -> BoxFuture<'a, Result<Completion, Error>> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn a_disconnected_client_ends_the_wait_for_its_model() {
        let (client, micros) = (ClientPresence::default(), AtomicU64::new(0));
        let disconnect_guard = client.disconnect_on_drop();
        let model = UpstreamModel::new(&SilentModel, &client, &micros);
        let request = Request::default();
        let mut listener = ignore_deltas;
        let (answer, ()) =
            tokio::join!(model.complete(&request, &mut listener), async { drop(disconnect_guard) });
        assert_eq!(answer, Err(Error::Cancelled));
    }
}
