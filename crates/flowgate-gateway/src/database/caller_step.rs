//! Lets the caller of a database operation do something in the middle of the operation's transaction, such as write a
//! record to the audit log. This is the *step* of the caller; if it fails, the transaction is rolled back. The methods
//! of [`Database`] for questions and lasting grants call [`Database::run_with_step`].

use std::pin::pin;

use tokio::sync::oneshot;

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction, OperationFuture};

/// The operation's end of the channels to its caller: it sends the input of the step, `I`, and receives the output,
/// `O`. The caller takes the step on its own thread, since the operation may run on another one, and the step need not
/// be `Send`.
#[derive(Debug)]
pub(super) struct CallerStep<I, O> {
    input: oneshot::Sender<I>,
    output: oneshot::Receiver<Result<O, DatabaseError>>,
}

impl<I, O> CallerStep<I, O> {
    /// Has the caller of the operation run its `step` ([`Database::run_with_step`]) with this input, waits until the
    /// step is done, and returns its output.
    ///
    /// # Errors
    /// If the step fails, or the caller does not wait any more.
    pub(super) async fn take(self, input: I) -> Result<O, DatabaseError> {
        // Fails if the caller does not wait any more; then the output cannot arrive either.
        let _ = self.input.send(input);
        self.output.await.unwrap_or(Err(DatabaseError::Timeout))
    }
}

impl Database {
    /// Runs `operation` in one transaction. When the operation calls [`CallerStep::take`], runs `step` on this thread
    /// with the given input, and hands its result to the operation. If the operation returns the error of a failed
    /// step, its transaction is rolled back.
    pub(super) async fn run_with_step<T, I, O>(
        &self,
        operation: impl for<'t> FnOnce(&'t mut DynTransaction<'t>, CallerStep<I, O>) -> OperationFuture<'t, T>
        + Send
        + 'static,
        step: impl FnOnce(I) -> Result<O, DatabaseError>,
    ) -> Result<T, DatabaseError>
    where
        T: Send + 'static,
        I: Send + 'static,
        O: Send + 'static,
    {
        let (input_sender, received_input) = oneshot::channel();
        let (output_sender, output) = oneshot::channel();
        let step_of_caller = CallerStep { input: input_sender, output };
        let mut operation = pin!(self.run(Access::Transaction, move |tx| operation(tx, step_of_caller)));
        tokio::select! {
            // Polls the operation first, to notice one that has ended without the step.
            biased;
            outcome = &mut operation => return outcome,
            // An error if the operation drops its `CallerStep`, since it does not need the step.
            received = received_input => {
                if let Ok(input) = received {
                    // Fails if the operation has ended in the meantime; its outcome is awaited below.
                    let _ = output_sender.send(step(input));
                }
            }
        }
        operation.await
    }
}
