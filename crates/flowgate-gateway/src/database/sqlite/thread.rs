//! Defines [`SqliteThread`], a thread that owns a connection to SQLite and executes operations in the order in which
//! they arrive. A call of SQLite blocks its thread, so the calls must not run on the threads that serve requests. The
//! backend in `sqlite` starts one such thread for writes and one for reads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::checkpoints::CheckpointThread;
use super::connection::SqliteConnection;
use crate::database::error::DatabaseError;
use crate::database::transaction::{Access, Operation};

/// The most operations in the queue of the thread; a caller waits while the queue is full.
const MAX_WAITING: usize = 1024;
/// The time for which [`SqliteThread::close`] waits for the operations that were sent before.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// An operation for the thread.
struct ThreadRequest {
    access: Access,
    operation: Operation,
    /// Receives the outcome; closed if the caller no longer waits.
    outcome: oneshot::Sender<Result<(), DatabaseError>>,
}

/// An operation that was sent to the thread. If this value is dropped before the commit, the operation has no effect.
#[derive(Debug)]
pub(super) struct SentOperation(oneshot::Receiver<Result<(), DatabaseError>>);

impl SentOperation {
    /// Waits for the outcome.
    pub(super) async fn outcome(self) -> Result<(), DatabaseError> {
        self.0.await.unwrap_or(Err(DatabaseError::Closed))
    }
}

/// A thread with a connection.
#[derive(Debug)]
pub(super) struct SqliteThread {
    /// The queue; `None` once the thread has to end.
    requests: Mutex<Option<mpsc::Sender<ThreadRequest>>>,
    /// The handle that is joined on drop; `None` if [`SqliteThread::close`] has given up waiting for the thread.
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Resolves when the thread has closed its connection.
    end: Mutex<Option<oneshot::Receiver<()>>>,
}

impl SqliteThread {
    /// Starts the thread, which runs one request after the other until the sender of requests is dropped. It reports
    /// each write to `checkpoints`, which requests a checkpoint after some of them.
    pub(super) fn start(
        name: &str,
        mut connection: SqliteConnection,
        mut checkpoints: Option<CheckpointThread>,
    ) -> Result<Self, DatabaseError> {
        let (requests, mut received) = mpsc::channel::<ThreadRequest>(MAX_WAITING);
        let (ended, end) = oneshot::channel::<()>();
        let work = move || {
            while let Some(request) = received.blocking_recv() {
                run(&mut connection, request);
                if let Some(checkpoints) = &mut checkpoints {
                    checkpoints.count_write();
                }
            }
            // The connections are closed before `close` learns that the thread has ended: `close` waits until `ended`
            // is dropped.
            drop((checkpoints, connection));
            drop(ended);
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
        Ok(Self {
            requests: Mutex::new(Some(requests)),
            thread: Mutex::new(Some(thread.map_err(DatabaseError::Runtime)?)),
            end: Mutex::new(Some(end)),
        })
    }

    /// Queues an operation; waits while the queue is full. The outcome arrives in the returned [`SentOperation`]. Fails
    /// with `Closed` after [`Self::close`].
    pub(super) async fn send(
        &self,
        access: Access,
        operation: Operation,
    ) -> Result<SentOperation, DatabaseError> {
        let requests = lock(&self.requests).clone().ok_or(DatabaseError::Closed)?;
        let (outcome, result) = oneshot::channel();
        requests
            .send(ThreadRequest { access, operation, outcome })
            .await
            .map_err(|_| DatabaseError::Closed)?;
        Ok(SentOperation(result))
    }

    /// Ends the thread after the operations that were sent before, and waits for its end, at most for
    /// [`CLOSE_TIMEOUT`]. If the thread has not ended then, its connection stays open until the process ends; the next
    /// start recovers what was committed.
    pub(super) async fn close(&self) {
        lock(&self.requests).take();
        let end = lock(&self.end).take();
        if let Some(end) = end
            && tokio::time::timeout(CLOSE_TIMEOUT, end).await.is_err()
        {
            // Without the handle, nothing waits for the thread when this value is dropped.
            lock(&self.thread).take();
        }
    }
}

impl Drop for SqliteThread {
    /// Ends the thread after the operations that it still has to run, and waits for its end.
    fn drop(&mut self) {
        lock(&self.requests).take();
        // The wait is short: the thread skips the queued operations whose caller no longer waits.
        if let Some(thread) = lock(&self.thread).take() {
            let _ = thread.join();
        }
    }
}

/// Runs an operation and sends the outcome to its caller; skips it if the caller no longer waits.
fn run(connection: &mut SqliteConnection, request: ThreadRequest) {
    let ThreadRequest { access, operation, outcome } = request;
    if outcome.is_closed() {
        return;
    }
    // After a panic, the caller receives no outcome and fails with `Closed`; the next operation rolls back.
    let result =
        catch_unwind(AssertUnwindSafe(|| connection.run(access, operation, &|| outcome.is_closed())));
    if let Ok(result) = result {
        let _ = outcome.send(result);
    }
}

/// Locks a mutex, also after a panic of a thread that held it: no value here is left half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
