//! Tries whether statements that are added to a policy permit a call of a recorded run, by a replay of the run.
//! Searches for the smallest sets of statements that do. `suggestions` and `flowgate suggest` call it.

use std::sync::Arc;

use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::replay::{ReplayInputs, replay_with};

use super::candidates::Candidate;

/// The maximum number of trials for one call.
const MAX_TRIALS: usize = 200;
/// The maximum number of statements that are suggested together.
const MAX_STATEMENTS: usize = 5;
/// The maximum number of sets that are suggested for one call.
const MAX_SUGGESTIONS: usize = 5;
/// The maximum number of sets that are considered for one call, whether or not they are tried.
const MAX_SETS: usize = 100_000;

/// The call for which statements are tried, and what each trial replays.
pub(in crate::command) struct Trial<'a> {
    pub(in crate::command) policy: &'a Policy,
    pub(in crate::command) inputs: &'a ReplayInputs,
    pub(in crate::command) method: &'a dyn InfluenceMethod,
    /// The run up to the call.
    pub(in crate::command) run_up_to_call: &'a RecordedRun,
    /// The index of the call, among the calls of the run.
    pub(in crate::command) index: usize,
}

impl Trial<'_> {
    /// Returns whether the policy with these statements permits the call. Also returns false if the policy does not
    /// compile with the statements, or if the compiler then gives a new warning, for example about a `payload` by which
    /// an untrusted party chooses a destination.
    fn permits(&self, statements: &[&Candidate]) -> bool {
        let Some(changed) = with_statements(self.policy, statements.iter().map(|one| one.statement.as_str()))
        else {
            return false;
        };
        if changed.warnings().len() > self.policy.warnings().len() {
            return false;
        }
        let replayed = replay_with(&Arc::new(changed), self.inputs, self.method, self.run_up_to_call);
        replayed.calls.get(self.index).is_some_and(|call| call.outcome == Outcome::Permit)
    }

    /// Returns the smallest sets of statements that permit the call, the least harmful first, and whether the search
    /// was complete: false if a limit on work ended it early. `parts` are the parts of the call against which there is
    /// a reason.
    pub(in crate::command) fn smallest_sets<'c>(
        &self,
        candidates: &'c [Candidate],
        parts: &[String],
    ) -> (Vec<Vec<&'c Candidate>>, bool) {
        let mut search =
            SetSearch { trial: self, candidates, parts, trials: 0, sets_considered: 0, found: Vec::new() };
        let is_complete = search.run();
        let found = search.found;
        let mut sets: Vec<Vec<&Candidate>> =
            found.iter().map(|set| set.iter().filter_map(|index| candidates.get(*index)).collect()).collect();
        // The harm of a set is that of its most harmful statement. Of equally harmful sets, the smallest one comes
        // first.
        sets.sort_by_key(|set| (set.iter().map(|one| one.harm.rank).max(), set.len()));
        (sets, is_complete)
    }
}

/// A search for the smallest sets that permit a call, by size.
struct SetSearch<'s, 'c> {
    trial: &'s Trial<'s>,
    candidates: &'c [Candidate],
    /// The parts of the call against which there is a reason.
    parts: &'s [String],
    /// The number of sets that were tried so far.
    trials: usize,
    /// The number of sets that were considered so far, whether or not they were tried.
    sets_considered: usize,
    /// The smallest sets that permit the call, as indices into `candidates`.
    found: Vec<Vec<usize>>,
}

impl SetSearch<'_, '_> {
    /// Searches for the smallest sets of candidate statements that permit the call when they are added to the policy:
    /// sets of one first, then of two, up to [`MAX_STATEMENTS`]. Each set is extended only by later candidates, so that
    /// no set occurs twice; a set that permits the call is reduced to its necessary statements and not extended. Stops
    /// when [`MAX_SUGGESTIONS`] sets are found. Returns false only if a limit on work ended the search.
    fn run(&mut self) -> bool {
        let mut sets: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..MAX_STATEMENTS {
            let mut larger_sets = Vec::new();
            for set in &sets {
                for index in set.last().map_or(0, |last| last + 1)..self.candidates.len() {
                    self.sets_considered += 1;
                    if self.sets_considered > MAX_SETS || self.trials >= MAX_TRIALS {
                        return false;
                    }
                    let larger: Vec<usize> = set.iter().copied().chain([index]).collect();
                    if self.contains_found(&larger) {
                        continue;
                    }
                    // `may_permit` needs no replay. It saves most of the replays by which `permits` tries a set.
                    if self.may_permit(&larger) && self.permits(&larger) {
                        let smallest = self.without_unneeded(larger);
                        if !self.contains_found(&smallest) {
                            self.found.push(smallest);
                        }
                        if self.found.len() == MAX_SUGGESTIONS {
                            return true;
                        }
                        continue;
                    }
                    larger_sets.push(larger);
                }
            }
            sets = larger_sets;
        }
        true
    }

    /// Returns whether a set contains one of the sets that were found already. Such a set is not among the smallest
    /// ones.
    fn contains_found(&self, set: &[usize]) -> bool {
        self.found.iter().any(|smaller| smaller.iter().all(|one| set.contains(one)))
    }

    /// Returns whether a set is worth a trial: it has a statement for each part of the call against which there is a
    /// reason. A set of one statement is always worth a trial, since one statement can lower the labels of several parts,
    /// through earlier calls.
    fn may_permit(&self, set: &[usize]) -> bool {
        let statements: Vec<&Candidate> =
            set.iter().filter_map(|index| self.candidates.get(*index)).collect();
        let covers = |part: &String| statements.iter().any(|statement| statement.parts.contains(part));
        set.len() == 1 || self.parts.iter().all(covers)
    }

    /// Tries whether a set, as indices into `candidates`, permits the call, and counts the trial.
    fn permits(&mut self, set: &[usize]) -> bool {
        self.trials += 1;
        let statements: Vec<&Candidate> =
            set.iter().filter_map(|index| self.candidates.get(*index)).collect();
        self.trial.permits(&statements)
    }

    /// Removes from `set`, which permits the call, each statement without which the rest still permits the call. Tries the
    /// most harmful statements first. Returns the rest.
    fn without_unneeded(&mut self, mut set: Vec<usize>) -> Vec<usize> {
        // Candidates are sorted by harm, so the last index is the most harmful statement.
        for at in (0..set.len()).rev() {
            let mut smaller = set.clone();
            smaller.remove(at);
            // The empty set is known not to permit the call.
            if !smaller.is_empty() && self.permits(&smaller) {
                set = smaller;
            }
        }
        set
    }
}

/// Returns the policy with statements added; `None` if it does not compile with them.
pub(in crate::command) fn with_statements<'s>(
    policy: &Policy,
    statements: impl Iterator<Item = &'s str>,
) -> Option<Policy> {
    let added: Vec<&str> = statements.collect();
    policy.with_statements(&added.join("\n")).ok()
}
