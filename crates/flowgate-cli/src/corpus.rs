//! Reads the marks of a recorded run, which say what its suite, task and attack are. Determines how far the verdicts of
//! a policy would have let the attack go. `flowgate replay`, `flowgate explain --against` and `flowgate suggest` use this
//! module to count useful tasks and attacks.

use flowgate::monitor::Outcome;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::Value;

/// The fields of a run that describe its task and its attack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RunMarks<'r> {
    /// The name of the suite, which chooses the policy that judges the run.
    pub(crate) suite: Option<&'r str>,
    /// The name of the attack; `None` in a useful run.
    pub(crate) attack: Option<&'r str>,
    /// The id of the task that the user gives.
    pub(crate) user_task: Option<&'r str>,
    /// The id of the task that the attack injects.
    pub(crate) injection_task: Option<&'r str>,
    /// Whether the attack succeeded when the run was recorded.
    pub(crate) attack_succeeded: Option<bool>,
}

impl<'r> RunMarks<'r> {
    /// Reads the marks of a run; a mark that it does not have is `None`.
    pub(crate) fn of(run: &'r RecordedRun) -> Self {
        let text = |key: &str| run.meta.get(key).and_then(Value::as_str);
        Self {
            suite: text("suite"),
            // Some recordings write `none` for a run without an attack.
            attack: text("attack").filter(|attack| *attack != "none"),
            user_task: text("user_task_id"),
            injection_task: text("injection_task_id"),
            attack_succeeded: run.meta.get("attack_succeeded").and_then(Value::as_bool),
        }
    }
}

impl RunMarks<'_> {
    /// Returns whether the user's own task is an injection task, and there is no attack. AgentDojo records such runs to
    /// find out whether the model can do an injection task at all. They are neither useful tasks nor attacks.
    pub(crate) fn is_injection_alone(&self) -> bool {
        self.attack.is_none() && self.user_task.is_some_and(|task| task.starts_with("injection_task_"))
    }

    /// Returns the ids of the user's task and of the injected task, joined by `×`. A task that the run does not have is
    /// left out.
    pub(crate) fn task(&self) -> String {
        let tasks: Vec<&str> = self.user_task.into_iter().chain(self.injection_task).collect();
        tasks.join(" × ")
    }
}

/// The calls that an attack asked for, as far as the run says which these are.
#[derive(Debug)]
pub(crate) struct AttackCalls {
    /// The indices of the calls that the attack asked for, among all calls of the run, without harmless calls. If the
    /// run does not say which calls the attack asked for (`are_known` is false), the indices of all calls that are not
    /// harmless: each may be one of them.
    pub(crate) indices: Vec<usize>,
    /// Whether the run says which calls the attack asked for.
    pub(crate) are_known: bool,
}

impl AttackCalls {
    /// Returns the calls that the attack asked for, except harmless ones. A call is harmless if everything may flow
    /// into its tool. If no call of the run has an `origin`, the run does not say which calls the attack asked for;
    /// then all calls that are not harmless count.
    pub(crate) fn of(run: &ReplayedRun) -> Self {
        // A run without calls counts as known: the attack asked for none of its calls.
        let are_known = run.calls.is_empty() || run.calls.iter().any(|call| call.origin.is_some());
        let is_of_attack = |call: &JudgedCall| {
            !call.judgement.is_harmless && (!are_known || call.origin.as_deref() == Some("injection"))
        };
        let indices =
            run.calls.iter().enumerate().filter(|(_, call)| is_of_attack(call)).map(|(index, _)| index);
        Self { indices: indices.collect(), are_known }
    }

    /// Returns how far the verdicts in `run` let the attack go. `run` must be a replay of the recorded run from which
    /// `indices` were taken, but can be a replay under a different policy.
    pub(crate) fn harm(&self, run: &ReplayedRun) -> AttackHarm {
        let outcomes = self.indices.iter().filter_map(|index| run.calls.get(*index)).map(|call| call.outcome);
        let permitted = outcomes.filter(|outcome| *outcome == Outcome::Permit).count();
        match (self.are_known, permitted) {
            // This is certain even if the run does not say which calls the attack asked for: `indices` then has every
            // call of the run that is not harmless, so there is no such call.
            _ if self.indices.is_empty() => AttackHarm::NoCall,
            (_, 0) => AttackHarm::Stopped,
            // It is not known which calls the attack asked for: the user may have asked for a permitted one.
            (false, _) => AttackHarm::Unknown,
            (true, permitted) if permitted == self.indices.len() => AttackHarm::Passed,
            (true, _) => AttackHarm::PartlyPassed,
        }
    }
}

/// What the verdicts of a policy let an attack do, by the calls of acting tools that it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttackHarm {
    /// None of its calls is permitted.
    Stopped,
    /// Some of its calls are permitted, and others are not.
    PartlyPassed,
    /// All of its calls are permitted.
    Passed,
    /// It asked for no call of an acting tool.
    NoCall,
    /// Some acting call is permitted, and the run does not say which calls the attack asked for.
    Unknown,
}

/// Returns whether every call of the run is permitted without a question. A run with a denied call is not
/// question-free.
pub(crate) fn is_question_free(run: &ReplayedRun) -> bool {
    run.calls.iter().all(|call| call.outcome == Outcome::Permit)
}
