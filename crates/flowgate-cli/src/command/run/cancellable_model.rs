//! A model whose answer can be cancelled while waiting for it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{ChatModel, Error, Listener, send_completion};

use super::terminal::ChatTerminal;

const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A model that runs on a thread of its own, so that Ctrl-C works before its first token.
pub(super) struct CancellableModel {
    pub(super) model: Arc<dyn ChatModel>,
    pub(super) shell: Arc<ChatTerminal>,
    /// The activity, for the terminal.
    pub(super) what: &'static str,
    /// The number of steps begun in this turn, if this model writes the steps.
    pub(super) steps: Option<AtomicUsize>,
}

impl CancellableModel {
    /// Resets the number of steps for a new turn.
    pub(super) fn begin_turn(&self) {
        if let Some(steps) = &self.steps {
            steps.store(0, Ordering::Relaxed);
        }
    }
}

impl ChatModel for CancellableModel {
    fn name(&self) -> &str {
        self.model.name()
    }

    fn complete(&self, request: &Request, listener: &mut Listener<'_>) -> Result<Completion, Error> {
        let (sender, receiver) = channel();
        let stopped = Arc::new(AtomicBool::new(false));
        let (model, request, is_stopped) = (Arc::clone(&self.model), request.clone(), Arc::clone(&stopped));
        std::thread::spawn(move || {
            let answer = model.complete(&request, &mut |_| {
                if is_stopped.load(Ordering::Relaxed) {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                }
            });
            // The caller may have stopped waiting.
            let _ = sender.send(answer);
        });
        let step = self.steps.as_ref().map(|steps| steps.fetch_add(1, Ordering::Relaxed) + 1);
        let working = self.shell.show_activity(match step {
            Some(step) => format!("step {step}: {}", self.what),
            None => self.what.to_owned(),
        });
        let completion = loop {
            match receiver.recv_timeout(POLL_INTERVAL) {
                Ok(answer) => break answer?,
                Err(RecvTimeoutError::Disconnected) => return Err(Error::Malformed("it broke down")),
                Err(RecvTimeoutError::Timeout) if self.shell.is_cancelled() => {
                    stopped.store(true, Ordering::Relaxed);
                    return Err(Error::Cancelled);
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        drop(working);
        send_completion(&completion, listener)?;
        Ok(completion)
    }
}
