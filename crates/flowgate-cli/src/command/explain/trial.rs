//! Trials: whether statements, added to the policy, permit the call, and the smallest sets of statements that do.

use std::sync::Arc;

use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::replay::replay_with;

use super::candidates::Candidate;

/// The number of sets of statements that are tried for one call.
const MAX_TRIALS: usize = 200;
/// The most statements that are suggested together.
const MAX_STATEMENTS: usize = 5;
/// The most sets that are suggested for one call.
const MAX_SUGGESTIONS: usize = 5;
/// The number of sets that are looked at, tried or not.
const MAX_SETS: usize = 100_000;

/// Everything that a trial repeats.
pub(super) struct Trial<'a> {
    pub(super) policy: &'a Policy,
    pub(super) predicates: &'a Predicates,
    pub(super) method: &'a dyn InfluenceMethod,
    /// The run up to the call.
    pub(super) until: &'a RecordedRun,
    /// The index of the call, among the calls of the run.
    pub(super) index: usize,
}

impl Trial<'_> {
    /// Returns whether the statements permit the call, without a warning that the policy does not have now: a payload
    /// that lets a stranger choose a destination is never suggested.
    fn permits(&self, statements: &[&Candidate]) -> bool {
        let Some(changed) = with_statements(self.policy, statements.iter().map(|one| one.statement.as_str()))
        else {
            return false;
        };
        if changed.warnings().len() > self.policy.warnings().len() {
            return false;
        }
        let again = replay_with(&Arc::new(changed), self.predicates, self.method, self.until);
        again.calls.get(self.index).is_some_and(|call| call.outcome == Outcome::Permit)
    }

    /// Returns the smallest sets of statements that permit the call, the least harmful first, and whether all sets were
    /// tried that could.
    pub(super) fn smallest_sets<'c>(
        &self,
        candidates: &'c [Candidate],
        parts: &[String],
    ) -> (Vec<Vec<&'c Candidate>>, bool) {
        let (mut trials, mut looked_at) = (0, 0);
        let mut found: Vec<Vec<usize>> = Vec::new();
        let mut layer: Vec<Vec<usize>> = vec![Vec::new()];
        let mut is_complete = true;
        'search: for _ in 0..MAX_STATEMENTS {
            let mut next = Vec::new();
            for set in &layer {
                for index in set.last().map_or(0, |last| last + 1)..candidates.len() {
                    looked_at += 1;
                    if looked_at > MAX_SETS {
                        is_complete = false;
                        break 'search;
                    }
                    let larger: Vec<usize> = set.iter().copied().chain([index]).collect();
                    if found.iter().any(|smaller| smaller.iter().all(|one| larger.contains(one))) {
                        continue;
                    }
                    let statements: Vec<&Candidate> =
                        larger.iter().filter_map(|index| candidates.get(*index)).collect();
                    let covers =
                        |part: &String| statements.iter().any(|statement| statement.parts.contains(part));
                    if parts.iter().all(covers) {
                        if trials == MAX_TRIALS || found.len() == MAX_SUGGESTIONS {
                            is_complete = trials < MAX_TRIALS;
                            break 'search;
                        }
                        trials += 1;
                        if self.permits(&statements) {
                            found.push(larger);
                            continue;
                        }
                    }
                    next.push(larger);
                }
            }
            layer = next;
        }
        let mut sets: Vec<Vec<&Candidate>> =
            found.iter().map(|set| set.iter().filter_map(|index| candidates.get(*index)).collect()).collect();
        sets.sort_by_key(|set| (set.iter().map(|one| one.harm.rank).max(), set.len()));
        (sets, is_complete)
    }
}

/// Returns the policy with statements added; `None` if they do not compile there.
pub(super) fn with_statements<'s>(
    policy: &Policy,
    statements: impl Iterator<Item = &'s str>,
) -> Option<Policy> {
    let added: Vec<&str> = statements.collect();
    Policy::parse(&format!("{}\n{}\n", policy.source(), added.join("\n"))).ok()
}
