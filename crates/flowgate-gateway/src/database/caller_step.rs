//! Lets the caller of a database operation take one step between two of its statements, such as writing a record to the
//! audit log, so that the operation is committed only if the step succeeds. [`Database::run_with_step`] runs such
//! operations.

use std::pin::pin;

use tokio::sync::oneshot;

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction, OperationFuture};

/// A step that the caller of an operation takes on its own thread. The operation waits for it.
#[derive(Debug)]
pub(super) struct CallerStep<I, O> {
    input: oneshot::Sender<I>,
    output: oneshot::Receiver<Result<O, DatabaseError>>,
}

impl<I, O> CallerStep<I, O> {
    /// Sends the input of the step to the caller, and waits until the caller has taken the step.
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
    /// Runs `operation` in one transaction. When the operation takes its [`CallerStep`], runs `step` here with the
    /// input and returns the output to the operation, which may run on another thread. If the step fails, the operation
    /// can fail, and its transaction is rolled back.
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
            // An operation that has ended without the step is noticed first.
            biased;
            outcome = &mut operation => return outcome,
            // An operation that does not need the step drops it.
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
