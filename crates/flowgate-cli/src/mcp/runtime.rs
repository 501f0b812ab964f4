//! Runs the asynchronous MCP code of `flowgate run`, `flowgate init`, `flowgate scan` and `flowgate mcp login` on a thread
//! of its own. The commands are synchronous: they wait for the result of each task until a time limit, or until Ctrl-C
//! cancels the wait.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::CancelCheck;

/// The interval at which a waiting thread checks whether to stop.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Runs asynchronous code on a separate thread.
pub(crate) struct AsyncRuntime {
    handle: Handle,
    /// The thread ends when this sender is dropped.
    _stop: oneshot::Sender<()>,
}

/// The reason why a task has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TaskError {
    /// It took too long and was abandoned.
    TimedOut,
    /// The caller's check said to stop waiting, for example after Ctrl-C; the task was aborted.
    Cancelled,
    /// It panicked.
    Panicked,
}

/// A running task.
pub(crate) struct RunningTask<T> {
    result: Receiver<T>,
    abort: AbortHandle,
}

impl AsyncRuntime {
    /// Starts the thread that runs the tasks. The thread ends when the returned value is dropped.
    ///
    /// # Errors
    /// If the system cannot start the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new().name("mcp".to_owned()).spawn(move || {
            // Ends when the sender is dropped, which is an error of the channel.
            let _ = runtime.block_on(stopped);
            // A task that still waits for a server must not keep the program from ending.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _stop: stop })
    }

    /// Starts a task on the thread. The task runs to its end even if the returned value is dropped, unless this runtime
    /// is dropped before.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> RunningTask<T> {
        let (sender, result) = channel();
        let task = self.handle.spawn(async move {
            // Fails if the caller has dropped the returned value, and so does not want the result.
            let _ = sender.send(future.await);
        });
        RunningTask { result, abort: task.abort_handle() }
    }

    /// Calls `interrupted` at each Ctrl-C from now on. Ctrl-C then no longer ends the program.
    pub(crate) fn on_interrupt(&self, interrupted: impl Fn() + Send + 'static) {
        self.handle.spawn(async move {
            while tokio::signal::ctrl_c().await.is_ok() {
                interrupted();
            }
        });
    }
}

impl<T> RunningTask<T> {
    /// Waits for the result of the task, and returns the result. If the task takes longer than `limit`, or `cancelled`
    /// returns true, aborts the task and returns the reason as an error.
    pub(crate) fn wait(self, limit: Duration, cancelled: &CancelCheck<'_>) -> Result<T, TaskError> {
        let begun = Instant::now();
        let why = loop {
            match self.result.recv_timeout(POLL_INTERVAL) {
                Ok(result) => return Ok(result),
                // Only a task that panics drops its sender without a result.
                Err(RecvTimeoutError::Disconnected) => break TaskError::Panicked,
                Err(RecvTimeoutError::Timeout) if cancelled() => break TaskError::Cancelled,
                Err(RecvTimeoutError::Timeout) if begun.elapsed() >= limit => break TaskError::TimedOut,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        self.abort.abort();
        Err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_and_gives_up() {
        let runtime = AsyncRuntime::start().unwrap();
        let long = Duration::from_secs(60);
        let check = |sleep: Duration, limit: Duration, stop: bool, expected: Result<u8, TaskError>| {
            let task = runtime.spawn(async move {
                tokio::time::sleep(sleep).await;
                7
            });
            assert_eq!(task.wait(limit, &move || stop), expected);
        };
        check(Duration::ZERO, long, false, Ok(7));
        check(long, Duration::from_millis(1), false, Err(TaskError::TimedOut));
        check(long, long, true, Err(TaskError::Cancelled));
        let broken = runtime.spawn(async { panic!("on purpose") });
        let broken: Result<(), TaskError> = broken.wait(long, &|| false);
        assert_eq!(broken, Err(TaskError::Panicked));
    }
}
