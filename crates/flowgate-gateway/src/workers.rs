//! Evaluation beside the threads that read and write, so that a long one delays no connection.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Why work was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The queue is full.
    Busy,
    /// It ended unexpectedly.
    Broken,
}

/// A bounded number of evaluations, and a bounded queue before them.
#[derive(Debug)]
pub(crate) struct Workers {
    turns: Arc<Semaphore>,
    places: Arc<Semaphore>,
}

impl Workers {
    /// `workers` at the same time, and `queue` that wait.
    pub(crate) fn new(workers: usize, queue: usize) -> Self {
        let workers = workers.clamp(1, 1024);
        let places = workers.saturating_add(queue).min(Semaphore::MAX_PERMITS);
        Self { turns: Arc::new(Semaphore::new(workers)), places: Arc::new(Semaphore::new(places)) }
    }

    /// Does `work` when it is its turn.
    ///
    /// Whoever stops waiting gives up a place in the queue, but not a turn: work that has begun ends by its fuel,
    /// and until then nobody else has its turn.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Refused> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Refused::Busy)?;
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|_| Refused::Broken)?;
        let job = tokio::task::spawn_blocking(move || {
            let done = work();
            drop((turn, place));
            done
        });
        job.await.map_err(|_| Refused::Broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_full_queue_refuses_and_a_broken_job_frees_its_place() {
        let workers = Arc::new(Workers::new(1, 0));
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
        assert_eq!(workers.run(|| 1).await, Err(Refused::Busy));
        release.send(()).unwrap();
        assert_eq!(running.await.unwrap(), Ok(true));
        assert_eq!(workers.run(|| panic!("a bug")).await, Err::<(), _>(Refused::Broken));
        assert_eq!(workers.run(|| 2).await, Ok(2));
    }
}
