//! Searches for the smallest and least harmful statements that let the calls of useful runs (runs without an attack)
//! pass, for `flowgate suggest`. The search takes one call at a time. It tries a change by a replay of the run up to
//! the call and of the recorded attacks, and rejects the change if an attack does more. After an accepted change, it
//! replays all useful runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgate::monitor::{Outcome, ReasonKind};
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_guard::influence::InfluenceMethod;
use flowgate_guard::replay::{JudgedCall, ReplayInputs, ReplayedRun, replay_with};

use super::recorded::RecordedRuns;
use crate::command::explain::candidates::{Candidate, candidates};
use crate::command::explain::trial::{Trial, with_statements};
use crate::corpus::{AttackCalls, is_question_free};
use crate::output::plural;

/// The maximum number of changes that are suggested.
const MAX_CHANGES: usize = 20;
/// The maximum number of calls of one kind for which the search finds no change before it gives up the kind.
const MAX_ATTEMPTS: usize = 3;

/// The runs that are replayed, and the settings of a replay.
#[derive(Clone, Copy)]
pub(super) struct ReplaySetup<'a> {
    pub(super) inputs: &'a ReplayInputs,
    pub(super) method: &'a dyn InfluenceMethod,
    pub(super) runs: &'a RecordedRuns,
}

/// One change: statements that answer one kind of question.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) statements: Vec<Candidate>,
    /// The number of further calls of useful runs that pass with it.
    pub(super) calls: usize,
}

/// A kind of question for which no change is suggested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct UnansweredQuestion {
    pub(super) tool: String,
    /// The parts of the call against which there is a reason.
    pub(super) parts: Vec<String>,
    /// The number of calls of this kind that are not permitted.
    pub(super) calls: usize,
    /// Why no change is suggested.
    pub(super) why: String,
}

/// The result of a search.
#[derive(Debug, Default)]
pub(super) struct SuggestedChanges {
    /// The changes, the least harmful first.
    pub(super) accepted: Vec<Change>,
    /// The kinds of questions for which no change is suggested.
    pub(super) left: Vec<UnansweredQuestion>,
    /// The number of useful runs with a call that is not permitted under the present policy.
    pub(super) runs_before: usize,
    /// The number of useful runs with a call that is not permitted under the policy with the changes.
    pub(super) runs_after: usize,
    /// The number of calls of useful runs that are not permitted under the present policy.
    pub(super) calls_before: usize,
    /// The number of calls of useful runs that are not permitted under the policy with the changes.
    pub(super) calls_after: usize,
}

/// A kind of question: the tool, and the parts of the call against which there is a reason.
type QuestionKind = (String, Vec<String>);
/// A call: the index of its run among the useful runs, and the index of the call in the run.
type CallIndices = (usize, usize);

impl ReplaySetup<'_> {
    /// Searches for changes of the policy, and returns them with the numbers of calls that are not permitted before and
    /// after. Answers the most frequent kind of question (a tool, and the parts of its call with a reason against them)
    /// first, and replays the useful runs after each accepted change.
    pub(super) fn suggest(self, policy: &Arc<Policy>) -> SuggestedChanges {
        let mut found = SuggestedChanges::default();
        // The state before any change.
        let attacks_before: Vec<ReplayedRun> =
            self.runs.attacks.iter().map(|run| self.replay(policy, run)).collect();
        let mut changed = Arc::clone(policy);
        let mut replayed = self.replay_useful(&changed);
        (found.runs_before, found.calls_before) = count(&replayed);
        // The number of calls of each kind that were examined without a result, and why the first of them had none.
        let (mut attempts, mut reasons) = (BTreeMap::<QuestionKind, usize>::new(), BTreeMap::new());
        while found.accepted.len() < MAX_CHANGES {
            let is_open = |kind: &QuestionKind| attempts.get(kind).is_none_or(|count| *count < MAX_ATTEMPTS);
            let Some((kind, calls_of_kind)) = most_frequent(&replayed, is_open) else { break };
            let attempt = attempts.entry(kind.clone()).or_default();
            let call = calls_of_kind.get(*attempt).copied();
            let Some(call) = call else {
                // All calls of this kind were examined.
                *attempt = MAX_ATTEMPTS;
                continue;
            };
            match self.answer(&changed, &replayed, call, &attacks_before) {
                Ok((statements, new_policy)) => {
                    let (_, stopped_before) = count(&replayed);
                    (changed, replayed) = (Arc::clone(&new_policy), self.replay_useful(&new_policy));
                    let (_, stopped_now) = count(&replayed);
                    let calls = stopped_before.saturating_sub(stopped_now);
                    found.accepted.push(Change { statements, calls });
                    // Calls of this kind that are left may need another change.
                    *attempt = 0;
                }
                Err(why) => {
                    *attempt += 1;
                    reasons.entry(kind).or_insert(why);
                }
            }
        }
        // A later change can make an earlier one unneeded.
        let (_, stopped_calls) = count(&replayed);
        self.leave_out_unneeded(policy, &mut found.accepted, stopped_calls);
        // The least harmful change first; of equally harmful ones, the one that lets the most calls pass.
        found.accepted.sort_by_key(|change| {
            (change.statements.iter().map(|one| one.harm.rank).max(), usize::MAX - change.calls)
        });
        (found.runs_after, found.calls_after) = count(&replayed);
        for (kind, calls) in questions(&replayed) {
            let why = reasons.remove(&kind).unwrap_or_else(|| {
                format!(
                    "not tried: the search ends after {}; add these to the policy, and run the command again",
                    plural(MAX_CHANGES, "change")
                )
            });
            let (tool, parts) = kind;
            found.left.push(UnansweredQuestion { tool, parts, calls: calls.len(), why });
        }
        found
    }

    /// Replays a run under a policy, with the inputs and the influence method of the command.
    fn replay(self, policy: &Arc<Policy>, run: &flowgate::trace::read::RecordedRun) -> ReplayedRun {
        replay_with(policy, self.inputs, self.method, run)
    }

    /// Replays all useful runs under a policy, in order.
    fn replay_useful(self, policy: &Arc<Policy>) -> Vec<ReplayedRun> {
        self.runs.useful.iter().map(|run| self.replay(policy, run)).collect()
    }

    /// Finds the least harmful statements that permit the call with the indices `of_call`, and returns them with the
    /// changed policy. `policy` is the policy with the changes so far, and `replayed` are the useful runs under it.
    /// `attacks_before` are the attacks under the policy without any change; under the returned policy, none of them
    /// does more.
    ///
    /// # Errors
    /// The reason why there are no such statements, in words.
    fn answer(
        self,
        policy: &Arc<Policy>,
        replayed: &[ReplayedRun],
        of_call: CallIndices,
        attacks_before: &[ReplayedRun],
    ) -> Result<(Vec<Candidate>, Arc<Policy>), String> {
        let (run, index) = of_call;
        // The indices come from `replayed`, so this error does not occur.
        let gone = || "the call is not in the run any more".to_owned();
        let (replayed, recorded) =
            (replayed.get(run).ok_or_else(gone)?, self.runs.useful.get(run).ok_or_else(gone)?);
        let call = replayed.calls.get(index).ok_or_else(gone)?;
        if let Some(why) = why_not_permittable(call) {
            return Err(why.to_owned());
        }
        let mut candidates = candidates(call, replayed);
        // Candidates that need evidence are tried only if there are attacks on the tool. Otherwise, `held_back` says
        // why the first of them needs evidence.
        let (has_evidence, mut held_back) = (self.has_attack_on(&call.tool, attacks_before), None);
        candidates.all.retain(|candidate| match &candidate.needs_evidence {
            Some(why) if !has_evidence => {
                held_back.get_or_insert_with(|| why.clone());
                false
            }
            _ => true,
        });
        // Searches for the smallest sets of statements that permit the call. The run is cut after the call, because
        // what follows does not affect the verdict.
        let mut run_up_to_call = recorded.clone();
        run_up_to_call.entries.truncate(call.entry + 1);
        let trial = Trial {
            policy,
            inputs: self.inputs,
            method: self.method,
            run_up_to_call: &run_up_to_call,
            index,
        };
        // The second result, whether the search was complete, is not needed: the first harmless set is used.
        let (sets, _) = trial.smallest_sets(&candidates.all, &parts_of(call));
        let mut is_harmful = false;
        for set in sets {
            let Some(changed) = with_statements(policy, set.iter().map(|one| one.statement.as_str())) else {
                continue;
            };
            let changed = Arc::new(changed);
            if self.lets_attack_pass(&changed, attacks_before) {
                is_harmful = true;
                continue;
            }
            return Ok((set.into_iter().cloned().collect(), changed));
        }
        Err(match (is_harmful, held_back, candidates.refused.first()) {
            (true, ..) => "each change that would permit the call lets a recorded attack do more".to_owned(),
            (false, Some(why), _) => format!(
                "one possible change is suggested only if recorded attacks on this tool show that the change lets none of them \
                 pass: give some with `--against FILE`. The change is {why}"
            ),
            (false, None, Some(refused)) => format!(
                "no statement that Flowgate suggests would permit the call. It does not suggest a `label` of {refused}; add one \
                 yourself only if no stranger can write this field"
            ),
            (false, None, None) => {
                "no statement that Flowgate suggests would permit the call; `flowgate explain` shows the reasons against it"
                    .to_owned()
            }
        })
    }

    /// Returns whether one of the replayed attacks asked for a call of this tool. If a run does not say which calls its
    /// attack asked for, all its calls count, except harmless ones.
    fn has_attack_on(self, tool: &Tool, attacks: &[ReplayedRun]) -> bool {
        attacks.iter().any(|run| {
            AttackCalls::of(run)
                .indices
                .iter()
                .filter_map(|index| run.calls.get(*index))
                .any(|call| call.tool == *tool)
        })
    }

    /// Returns whether the policy `changed` permits a call that a recorded attack asked for and that the policy without
    /// any change does not permit. `before` has the replays of the attacks under the unchanged policy.
    fn lets_attack_pass(self, changed: &Arc<Policy>, before: &[ReplayedRun]) -> bool {
        self.runs.attacks.iter().zip(before).any(|(run, before)| {
            let then = self.replay(changed, run);
            let is_permitted = |run: &ReplayedRun, index: usize| {
                run.calls.get(index).is_some_and(|call| call.outcome == Outcome::Permit)
            };
            let indices = AttackCalls::of(before).indices;
            indices.into_iter().any(|index| !is_permitted(before, index) && is_permitted(&then, index))
        })
    }

    /// Removes unnecessary changes from `accepted`, beginning with the most harmful one. A change is unnecessary if
    /// just as many calls are stopped without it, for example because a later change permits the same calls. A change
    /// without which the others do not compile is necessary. `policy` is the policy without any change, and
    /// `stopped_with_all` is the number of calls that are stopped with all changes.
    fn leave_out_unneeded(self, policy: &Policy, accepted: &mut Vec<Change>, stopped_with_all: usize) {
        let harm = |change: &Change| change.statements.iter().map(|one| one.harm.rank).max();
        accepted.sort_by_key(|change| std::cmp::Reverse(harm(change)));
        // A single change is never left out: it lets at least the call pass for which it was found.
        let mut at = 0;
        while at < accepted.len() && accepted.len() > 1 {
            let others = accepted.iter().enumerate().filter(|(index, _)| *index != at);
            let statements =
                others.flat_map(|(_, change)| &change.statements).map(|one| one.statement.as_str());
            let is_unneeded = with_statements(policy, statements).is_some_and(|without| {
                let (_, stopped_calls) = count(&self.replay_useful(&Arc::new(without)));
                stopped_calls == stopped_with_all
            });
            match is_unneeded {
                true => drop(accepted.remove(at)),
                false => at += 1,
            }
        }
    }
}

/// Returns why no statement of a policy can permit a call; `None` if statements can remove all reasons against it.
fn why_not_permittable(call: &JudgedCall) -> Option<&'static str> {
    let can_be_removed = |kind: ReasonKind| matches!(kind, ReasonKind::Requirement | ReasonKind::Undeclared);
    let reason = call.judgement.reasons.iter().find(|reason| !can_be_removed(reason.kind))?;
    Some(match reason.kind {
        ReasonKind::Rule => "a rule stops the call: only a change of the rule would permit it",
        ReasonKind::AmbiguousTool => "the tool's pattern names no server: write `tool:SERVER/NAME`",
        _ => "no statement of a policy can permit this call",
    })
}

/// Returns the number of runs with a call that is not permitted without a question, and the number of such calls.
fn count(replayed: &[ReplayedRun]) -> (usize, usize) {
    let runs = replayed.iter().filter(|run| !is_question_free(run)).count();
    (runs, questions(replayed).values().map(Vec::len).sum())
}

/// Returns the calls that are not permitted, by their kind of question: the tool, and the parts of the call against
/// which there is a reason. A call is given by the index of its run and its index in the run.
fn questions(replayed: &[ReplayedRun]) -> BTreeMap<QuestionKind, Vec<CallIndices>> {
    let mut found = BTreeMap::<QuestionKind, Vec<CallIndices>>::new();
    for (run, replayed) in replayed.iter().enumerate() {
        for (index, call) in replayed.calls.iter().enumerate() {
            if call.outcome != Outcome::Permit {
                found.entry((call.tool.to_string(), parts_of(call))).or_default().push((run, index));
            }
        }
    }
    found
}

/// Returns the most frequent kind of question for which `is_open` returns true, with its calls; `None` if there is
/// none.
fn most_frequent(
    replayed: &[ReplayedRun],
    is_open: impl Fn(&QuestionKind) -> bool,
) -> Option<(QuestionKind, Vec<CallIndices>)> {
    let open = questions(replayed).into_iter().filter(|(kind, _)| is_open(kind));
    // Of equally frequent kinds the first one, so that the result does not depend on chance.
    open.min_by_key(|(kind, calls)| (std::cmp::Reverse(calls.len()), kind.clone()))
}

/// Returns the parts of a call against which there is a reason, sorted and each once.
fn parts_of(call: &JudgedCall) -> Vec<String> {
    let mut parts: Vec<String> =
        call.judgement.reasons.iter().filter_map(|reason| reason.part.clone()).collect();
    parts.sort();
    parts.dedup();
    parts
}
