//! Lets each person run one evaluation of stored conversations at a time, and stops the evaluation when its request
//! ends: the browser has disconnected, or the time for an answer is over. `policy_view` and `dry_run` begin the
//! evaluations.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The people whose evaluations run now, by name. Clones share the set.
#[derive(Debug, Default, Clone)]
pub(crate) struct ReviewRuns(Arc<Mutex<BTreeSet<String>>>);

impl ReviewRuns {
    /// Begins an evaluation for a person; `None` if the person has another one running. The worker thread that
    /// evaluates owns the [`ReviewRun`]; the task that serves the request owns the [`EndOnDrop`], which stops the
    /// evaluation.
    pub(crate) fn begin(&self, person: &str) -> Option<(ReviewRun, EndOnDrop)> {
        if !self.names().insert(person.to_owned()) {
            return None;
        }
        let has_ended = Arc::new(AtomicBool::new(false));
        let run =
            ReviewRun { runs: self.clone(), person: person.to_owned(), has_ended: Arc::clone(&has_ended) };
        Some((run, EndOnDrop(has_ended)))
    }

    /// Locks the set of people whose evaluations run, also after a panic.
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An evaluation that runs. Another one of the same person can begin when this value is dropped.
#[derive(Debug)]
pub(crate) struct ReviewRun {
    runs: ReviewRuns,
    person: String,
    has_ended: Arc<AtomicBool>,
}

impl ReviewRun {
    /// Returns whether the request still waits for the result.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.has_ended.load(Ordering::Relaxed)
    }
}

impl Drop for ReviewRun {
    /// Removes the person from those whose evaluations run, so that the person can begin another one.
    fn drop(&mut self) {
        self.runs.names().remove(&self.person);
    }
}

/// Stops an evaluation when it is dropped. The task of the request owns it, and so drops it when the request ends.
#[derive(Debug)]
pub(crate) struct EndOnDrop(Arc<AtomicBool>);

impl Drop for EndOnDrop {
    /// Sets the flag that the evaluation reads by [`ReviewRun::is_awaited`].
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_evaluation_of_a_person_runs_at_a_time() {
        let runs = ReviewRuns::default();
        let (run, request) = runs.begin("ann").unwrap();
        assert!(runs.begin("ann").is_none() && runs.begin("bob").is_some() && run.is_awaited());
        // The request ends: the worker stops, and only then another one may begin.
        drop(request);
        assert!(!run.is_awaited() && runs.begin("ann").is_none());
        drop(run);
        assert!(runs.begin("ann").is_some());
    }
}
