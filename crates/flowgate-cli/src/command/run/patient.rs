//! A model for which one waits, and can stop waiting.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{Complete, Error, Listener, tell};

use super::shell::Shell;

const TICK: Duration = Duration::from_millis(50);

/// A model that is asked on a thread of its own, so that Ctrl-C need not wait for its first word.
pub(super) struct Patient {
    pub(super) model: Arc<dyn Complete>,
    pub(super) shell: Arc<Shell>,
    /// What one waits for.
    pub(super) what: &'static str,
}

impl Complete for Patient {
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
            // Nobody may be waiting any more.
            let _ = sender.send(answer);
        });
        let working = self.shell.working(self.what.to_owned());
        let completion = loop {
            match receiver.recv_timeout(TICK) {
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
        tell(&completion, listener)?;
        Ok(completion)
    }
}
