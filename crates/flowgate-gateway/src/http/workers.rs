//! Runs long evaluations on threads of their own, so that they delay no connection: evaluations for the policy API, and
//! evaluations of stored conversations for people (the page, the review of policies). `http::service` calls it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

/// The time for which an idle thread waits before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a job has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkError {
    /// The queue is full.
    Busy,
    /// The job panicked, or no thread could be started.
    Broken,
}

/// A bounded number of workers, and a bounded queue before them.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// One permit for each job that may run at the same time.
    workers: Arc<Semaphore>,
    /// One permit for each job that may run or wait.
    places: Arc<Semaphore>,
    threads: Arc<ThreadPool>,
}

impl WorkerPool {
    /// Allows `workers` jobs (from 1 to 1024) to run at the same time, and `queue` more to wait. A job holds a permit
    /// of `places` from its arrival to its end, and one of `workers` while it runs.
    pub(crate) fn new(workers: usize, queue: usize) -> Self {
        let workers = workers.clamp(1, 1024);
        let most = workers.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        let (workers, places) = (Arc::new(Semaphore::new(workers)), Arc::new(Semaphore::new(most)));
        Self { workers, places, threads: Arc::default() }
    }

    /// Runs `work` when a worker is free.
    ///
    /// A cancelled request releases its place in the queue, but not a worker: a started job keeps its worker until it
    /// ends. The fuel of its evaluation bounds how long that takes.
    ///
    /// # Errors
    /// `Busy` if the queue is full; `Broken` if the work panics, or the system cannot start a thread.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, WorkError> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| WorkError::Busy)?;
        let worker = Arc::clone(&self.workers).acquire_owned().await.map_err(|_| WorkError::Broken)?;
        let (result_sender, result) = oneshot::channel();
        let job = move || {
            let result = catch_unwind(AssertUnwindSafe(work));
            // Released before the result is sent: its receiver may ask for more at once.
            drop((worker, place));
            // After a panic, the sender is dropped, which the receiver sees as an error.
            if let Ok(result) = result {
                // Fails only if the caller no longer waits.
                let _ = result_sender.send(result);
            }
        };
        self.threads.run(Box::new(job)).map_err(|_| WorkError::Broken)?;
        result.await.map_err(|_| WorkError::Broken)
    }
}

/// A job that does not panic.
type WorkerJob = Box<dyn FnOnce() + Send>;

/// Idle threads. The one that worked last is used first: its caches are warm.
#[derive(Debug, Default)]
struct ThreadPool(Mutex<IdleThreads>);

/// The list of idle threads, behind the lock of [`ThreadPool`].
#[derive(Debug, Default)]
struct IdleThreads {
    /// The number of each idle thread, and the channel by which it receives its next job.
    threads: Vec<(u64, Sender<WorkerJob>)>,
    /// The number of threads started so far.
    count: u64,
}

impl ThreadPool {
    /// Locks the list of idle threads.
    fn idle(&self) -> MutexGuard<'_, IdleThreads> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Passes a job to the thread that became idle last or, if none is idle, to a new thread. The callers bound the
    /// number of jobs, and thus the number of threads.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    fn run(self: &Arc<Self>, mut job: WorkerJob) -> std::io::Result<()> {
        let number = loop {
            let mut idle = self.idle();
            let Some((_, thread)) = idle.threads.pop() else {
                // Each new thread has a number, by which it finds itself in the list of idle threads.
                idle.count += 1;
                break idle.count;
            };
            drop(idle);
            match thread.send(job) {
                Ok(()) => return Ok(()),
                // The thread has ended: the next one is tried.
                Err(refused) => job = refused.0,
            }
        };
        let (threads, runtime) = (Arc::clone(self), Handle::current());
        let thread = std::thread::Builder::new().name("evaluation".to_owned());
        thread.spawn(move || threads.work(number, &runtime, job)).map(drop)
    }

    /// Runs the thread `number`, starting with its first job. Between jobs the thread is in the list of idle threads;
    /// it ends after [`IDLE_TIMEOUT`] without a job. `runtime` is the asynchronous runtime of the server.
    fn work(&self, number: u64, runtime: &Handle, mut job: WorkerJob) {
        // Until the thread ends, jobs can use the asynchronous runtime.
        let _runtime = runtime.enter();
        let (job_sender, jobs) = channel();
        loop {
            job();
            self.idle().threads.push((number, job_sender.clone()));
            job = match jobs.recv_timeout(IDLE_TIMEOUT) {
                Ok(job) => job,
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    let mut idle = self.idle();
                    let position = idle.threads.iter().position(|(other, _)| *other == number);
                    // No job is on its way to a thread that is still in the list.
                    if let Some(position) = position {
                        idle.threads.remove(position);
                        return;
                    }
                    drop(idle);
                    // The thread was taken from the list: a job is about to arrive.
                    match jobs.recv() {
                        Ok(job) => job,
                        // Cannot happen, since this thread holds a sender of its own.
                        Err(_) => return,
                    }
                }
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_broken_job_frees_its_place() {
        let workers = Arc::new(WorkerPool::new(1, 0));
        let (release, held) = mpsc::channel::<()>();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let first = Arc::clone(&workers);
        let running = tokio::spawn(async move {
            let work = move || {
                let _ = begun.send(());
                held.recv().is_ok()
            };
            first.run(work).await
        });
        has_begun.await.unwrap();
        assert_eq!(workers.run(|| 1).await, Err(WorkError::Busy));
        release.send(()).unwrap();
        assert_eq!(running.await.unwrap(), Ok(true));
        assert_eq!(workers.run(|| panic!("a bug")).await, Err::<(), _>(WorkError::Broken));
        assert_eq!(workers.run(|| 2).await, Ok(2));
    }
}
