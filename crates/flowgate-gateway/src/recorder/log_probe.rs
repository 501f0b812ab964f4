//! Checks whether the audit log can be written now, for the health route, which reports the result. The recorder owns
//! the probe.
//!
//! The check runs on a separate thread, and waits there for the thread that writes the log. If the disk does not answer,
//! both threads hang; the health route does not wait for them, but reports after a time limit that the log fails.

use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};

/// The time for which an outcome is reused. The test of the [database](crate::database::Database::is_writable) has an
/// equal time.
const FRESH: Duration = Duration::from_secs(1);
/// The time limit of a test.
pub(super) const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The last test of a log.
#[derive(Debug, Default)]
pub(super) struct LogProbe(Mutex<ProbeState>);

/// The outcome of the last test, and the test that still runs.
#[derive(Debug, Default)]
struct ProbeState {
    /// The last outcome, and its time.
    last: Option<(Instant, bool)>,
    /// The test that has not ended in time. No other test begins until it has ended, since each occupies a thread.
    pending: Option<JoinHandle<bool>>,
}

impl LogProbe {
    /// Returns whether the audit log can be written, as of at most a second ago. Runs `test`, unless the outcome of an
    /// earlier test is recent enough ([`FRESH`]), or an earlier test still runs, whose outcome is then awaited. Returns
    /// false if the test does not end within `limit`, or panics.
    pub(super) async fn is_writable(
        &self,
        limit: Duration,
        test: impl FnOnce() -> bool + Send + 'static,
    ) -> bool {
        // Locked until the test has ended or `limit` is over, so that concurrent requests share one test.
        let mut state = self.0.lock().await;
        if let Some((_, is_writable)) = state.last.filter(|(at, _)| at.elapsed() < FRESH) {
            return is_writable;
        }
        let pending = state.pending.get_or_insert_with(|| spawn_blocking(test));
        let ended = tokio::time::timeout(limit, pending).await;
        if ended.is_ok() {
            state.pending = None;
        }
        let is_writable = matches!(ended, Ok(Ok(true)));
        state.last = Some((Instant::now(), is_writable));
        is_writable
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(300);

    /// A test that hangs is reported, takes one thread, and its outcome counts when it ends.
    #[tokio::test]
    async fn a_test_that_hangs_is_a_failure() {
        let (probe, tests) = (LogProbe::default(), Arc::new(AtomicUsize::new(0)));
        let (end, is_ended) = channel::<()>();
        let counted = Arc::clone(&tests);
        let hangs = move || {
            counted.fetch_add(1, Ordering::SeqCst);
            is_ended.recv().is_ok()
        };
        assert!(!probe.is_writable(SHORT, hangs).await);
        // The outcome is reused, and no other test begins while the first one hangs.
        assert!(!probe.is_writable(LONG, || true).await);
        tokio::time::sleep(FRESH).await;
        assert!(!probe.is_writable(SHORT, || true).await);
        tokio::time::sleep(FRESH).await;
        end.send(()).unwrap();
        assert!(probe.is_writable(LONG, || false).await);
        assert_eq!(tests.load(Ordering::SeqCst), 1);
        tokio::time::sleep(FRESH).await;
        assert!(!probe.is_writable(LONG, || false).await);
    }
}
