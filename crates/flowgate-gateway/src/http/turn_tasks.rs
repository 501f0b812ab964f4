//! Runs turns of agents and messages to MCP servers as tasks, on a fixed number of threads of their own; other threads
//! serve sockets. `http::service` starts the tasks.
//!
//! A turn that waits for a model, a server, a person or the database occupies no thread. A turn that evaluates a policy
//! for long can delay other turns, but no socket. There are more threads than cores, so that the system shares the
//! cores between several such turns.
//!
//! The number of turns is bounded, and clients share the bound fairly. The share of a client is the bound divided by
//! the number of clients with turns. Once half of the bound is taken, a client that has its share is refused further
//! turns. Messages to servers and listening streams have separate bounds, on the same threads.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Builder, Runtime};
use tokio_util::task::TaskTracker;

use crate::http::workers::WorkError;

/// The threads for each core.
const THREADS_OF_CORE: usize = 4;

/// Runs tasks of one kind, such as turns, up to a bound on their number.
#[derive(Debug)]
pub(crate) struct TurnTasks {
    threads: Arc<TurnThreads>,
    tasks: TaskTracker,
    admitted: Arc<AdmittedTurns>,
}

/// The threads that run the tasks; the runtime is present until this is dropped.
#[derive(Debug)]
struct TurnThreads(Option<Runtime>);

impl Drop for TurnThreads {
    /// Stops the threads in the background. Tasks that still run are dropped when they next wait.
    fn drop(&mut self) {
        // Waiting for the threads would block the caller, which may be asynchronous.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl TurnTasks {
    /// Starts the threads: several for each core, so that turns that evaluate policies for long do not occupy all of
    /// them. At most `most` turns run at the same time.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn new(most: usize) -> io::Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores.saturating_mul(THREADS_OF_CORE))
            .thread_name("turn")
            .enable_all()
            .build()?;
        Ok(Self::on_threads(Arc::new(TurnThreads(Some(runtime))), most))
    }

    /// Returns the runner of tasks of another kind. They run on the same threads, but under a bound of their own: at
    /// most `most` at the same time.
    pub(crate) fn with_own_bound(&self, most: usize) -> Self {
        Self::on_threads(Arc::clone(&self.threads), most)
    }

    /// Returns the runner of tasks of one kind on `threads`, at most `most` at the same time.
    fn on_threads(threads: Arc<TurnThreads>, most: usize) -> Self {
        // With a bound of 0, no turn could ever run.
        let admitted = Arc::new(AdmittedTurns { most: most.max(1), state: Mutex::default() });
        Self { threads, tasks: TaskTracker::new(), admitted }
    }

    /// Runs a turn of the client with this name. If the returned future is dropped, the turn continues: it ends by
    /// itself when its client has disconnected, and stores what it did.
    ///
    /// # Errors
    /// `Busy` if too many turns are running, or the server stops; `Broken` if the turn panics.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        client: &str,
        turn: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, WorkError> {
        if self.tasks.is_closed() {
            return Err(WorkError::Busy);
        }
        let admitted = self.admitted.admit(client).ok_or(WorkError::Busy)?;
        // The runtime is absent only while the threads are dropped.
        let runtime = self.threads.0.as_ref().ok_or(WorkError::Broken)?;
        let turn = async move {
            // Counts the turn until it ends.
            let _admitted = admitted;
            turn.await
        };
        self.tasks.spawn_on(turn, runtime.handle()).await.map_err(|_| WorkError::Broken)
    }

    /// Begins no further turn, and waits until the running ones have ended.
    pub(crate) async fn close_when_idle(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// The number of running turns, in total and by client.
#[derive(Debug)]
struct AdmittedTurns {
    /// The most turns that may run at the same time.
    most: usize,
    state: Mutex<TurnCounts>,
}

/// The numbers of running turns, behind the lock of [`AdmittedTurns`].
#[derive(Debug, Default)]
struct TurnCounts {
    total: usize,
    /// The number of turns of each client that has any.
    by_client: HashMap<String, usize>,
}

impl AdmittedTurns {
    /// Admits a turn of a client until the result is dropped. Returns `None` if all places are taken; or if half of the
    /// places are taken, and the client has its share of them already. The share is the bound divided by the number of
    /// clients with turns, including this one.
    fn admit(self: &Arc<Self>, client: &str) -> Option<AdmittedTurn> {
        let mut counts = self.counts();
        let own = counts.by_client.get(client).copied().unwrap_or(0);
        let clients = counts.by_client.len() + usize::from(own == 0);
        let is_half_taken = counts.total >= self.most / 2;
        if counts.total >= self.most || is_half_taken && own >= self.most.div_ceil(clients) {
            return None;
        }
        counts.total += 1;
        counts.by_client.insert(client.to_owned(), own + 1);
        Some(AdmittedTurn { turns: Arc::clone(self), client: client.to_owned() })
    }

    /// Locks the numbers of running turns.
    fn counts(&self) -> MutexGuard<'_, TurnCounts> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A running turn, which is counted until this is dropped.
#[derive(Debug)]
struct AdmittedTurn {
    turns: Arc<AdmittedTurns>,
    client: String,
}

impl Drop for AdmittedTurn {
    /// Releases the place of the turn. A client without turns is removed, so that it no longer takes a share.
    fn drop(&mut self) {
        let mut counts = self.turns.counts();
        counts.total = counts.total.saturating_sub(1);
        if let Some(own) = counts.by_client.get_mut(&self.client) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                counts.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn a_turn_ends_by_itself_and_is_awaited() {
        let turns = TurnTasks::new(1).unwrap();
        let (release, held) = oneshot::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        {
            let turn = async move {
                let _ = begun.send(());
                held.await.is_ok()
            };
            let mut running = std::pin::pin!(turns.run("a", turn));
            tokio::select! {
                _ = running.as_mut() => panic!("the turn waits"),
                begun = has_begun => begun.unwrap(),
            }
            // The caller stops waiting for the turn here.
        }
        assert_eq!(turns.run("a", async {}).await, Err(WorkError::Busy));
        let mut idle = std::pin::pin!(turns.close_when_idle());
        tokio::select! {
            biased;
            () = idle.as_mut() => panic!("a turn runs"),
            () = std::future::ready(()) => {}
        }
        release.send(()).unwrap();
        idle.await;
        assert_eq!(turns.run("a", async {}).await, Err(WorkError::Busy));
    }

    #[tokio::test]
    async fn a_turn_that_panics_frees_its_place() {
        let turns = TurnTasks::new(1).unwrap();
        assert_eq!(turns.run("a", async { panic!("a bug") }).await, Err::<(), _>(WorkError::Broken));
        assert_eq!(turns.run("a", async { 2 }).await, Ok(2));
    }

    #[tokio::test]
    async fn bounds_on_the_same_threads_are_separate() {
        let turns = TurnTasks::new(1).unwrap();
        let others = turns.with_own_bound(1);
        let (release, held) = oneshot::channel::<()>();
        let mut waiting = std::pin::pin!(turns.run("a", async { held.await.is_ok() }));
        tokio::select! {
            biased;
            _ = waiting.as_mut() => panic!("the turn waits"),
            () = std::future::ready(()) => {}
        }
        assert_eq!(turns.run("a", async {}).await, Err(WorkError::Busy));
        assert_eq!(others.run("a", async { 2 }).await, Ok(2));
        others.close_when_idle().await;
        // The threads remain while any of their users does.
        drop(others);
        release.send(()).unwrap();
        assert_eq!(waiting.await, Ok(true));
    }

    /// A turn that does not yield delays other turns only if there are as many of them as threads.
    #[tokio::test]
    async fn a_long_evaluation_does_not_delay_other_turns() {
        let turns = Arc::new(TurnTasks::new(8).unwrap());
        let (release, held) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let other = Arc::clone(&turns);
        let long = tokio::spawn(async move {
            let evaluate = async move {
                let _ = begun.send(());
                held.recv().is_ok()
            };
            other.run("a", evaluate).await
        });
        has_begun.await.unwrap();
        for _ in 0..100 {
            assert_eq!(turns.run("b", tokio::task::yield_now()).await, Ok(()));
        }
        release.send(()).unwrap();
        assert_eq!(long.await.unwrap(), Ok(true));
        drop(turns.run("a", pending::<()>()));
    }

    #[test]
    fn clients_share_the_turns() {
        let admitted = Arc::new(AdmittedTurns { most: 8, state: Mutex::default() });
        let take = |client: &str, count: usize| -> Vec<AdmittedTurn> {
            std::iter::from_fn(|| admitted.admit(client)).take(count).collect()
        };
        // A client that is alone has all of them.
        let a = take("a", 100);
        assert_eq!(a.len(), 8);
        assert_eq!(take("b", 1).len(), 0);
        drop(a);
        assert!(admitted.counts().by_client.is_empty());
        // One that has its share waits for the others, and the others do not wait for it.
        let mut a = take("a", 5);
        let b = take("b", 1);
        assert_eq!((a.len(), b.len()), (5, 1));
        assert_eq!(take("a", 1).len(), 0);
        let more = take("b", 100);
        assert_eq!(more.len(), 2);
        a.pop();
        assert_eq!(take("a", 1).len(), 0);
        assert_eq!(take("b", 100).len(), 1);
        assert_eq!(take("c", 100).len(), 1);
    }
}
