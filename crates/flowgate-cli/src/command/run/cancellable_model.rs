//! Wraps a model so that Ctrl-C cancels the wait for its answer. While the model works, the terminal shows this
//! activity. `run` wraps every model of a chat, and `delegation` every model of an agent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{BoxFuture, ChatModel, Error, Listener};

use super::terminal::ChatTerminal;

/// The interval at which the model checks whether Ctrl-C was pressed.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A model whose requests Ctrl-C stops, also before the first token.
pub(super) struct CancellableModel {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) terminal: Arc<ChatTerminal>,
    /// What the terminal shows while the model works, such as `the model writes`.
    pub(super) what: &'static str,
    /// The number of steps begun in this turn, if this model writes the steps.
    pub(super) steps: Option<AtomicUsize>,
}

impl CancellableModel {
    /// Resets the number of steps for a new turn; does nothing if the requests of this model are not counted as steps.
    pub(super) fn begin_turn(&self) {
        if let Some(steps) = &self.steps {
            steps.store(0, Ordering::Relaxed);
        }
    }

    /// Waits until the person has cancelled the turn.
    async fn cancelled(&self) {
        while !self.terminal.is_cancelled() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

impl ChatModel for CancellableModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Asks the model while the terminal shows the step, with its number if this model writes the steps. If Ctrl-C
    /// cancels the turn, returns [`Error::Cancelled`] without waiting for the answer.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        let step = self.steps.as_ref().map(|steps| steps.fetch_add(1, Ordering::Relaxed) + 1);
        let working = self.terminal.show_activity(match step {
            Some(step) => format!("step {step}: {}", self.what),
            None => self.what.to_owned(),
        });
        Box::pin(async move {
            // The terminal shows the activity until the end of this block.
            let _working = working;
            tokio::select! {
                done = self.model.complete(request, listener) => done,
                () = self.cancelled() => Err(Error::Cancelled),
            }
        })
    }
}
