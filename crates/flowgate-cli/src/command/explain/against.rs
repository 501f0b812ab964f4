//! Measures what suggested changes of a policy do to a corpus of recorded runs, for `flowgate explain --against`: how
//! many useful runs no longer need a question, and how many recorded attacks pass. `suggestions` calls it.

use std::path::PathBuf;
use std::sync::Arc;

use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::replay::{ReplayedRun, replay_with};

use super::ExplanationContext;
use crate::corpus::{AttackCalls, AttackHarm, RunMarks, is_question_free};
use crate::input::{self, InputError};
use crate::output::plural;
use crate::progress::Progress;

/// The effect of one suggestion on a corpus.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct CorpusEffect {
    /// Runs without an attack.
    useful: usize,
    /// Useful runs that need a question under the present policy.
    questioned: usize,
    /// Useful runs that need a question under the present policy, and need none with the suggestion.
    freed: usize,
    /// Runs with an attack.
    attacks: usize,
    /// Attacks of which the suggestion permits a call that the present policy does not permit.
    passing: usize,
    /// Passing attacks of which all calls are permitted with the suggestion.
    passing_whole: usize,
    /// Runs with an attack that called, or may have called, the explained tool.
    on_tool: usize,
    /// Runs with an attack that do not say which calls the attack asked for. Each call that is not harmless counts as
    /// one of these calls.
    unmarked: usize,
}

impl CorpusEffect {
    /// Returns whether a recorded attack does more with the suggestion than without.
    pub(super) fn lets_attack_pass(&self) -> bool {
        self.passing > 0
    }

    /// Returns whether a recorded attack asked for a call of the explained tool.
    pub(super) fn has_attack_on_tool(&self) -> bool {
        self.on_tool > 0
    }

    /// Adds one run to the figures: `now` is its replay under the present policy, `then` its replay under the changed
    /// policy. `tool` is the tool of the explained call.
    fn add(&mut self, run: &RecordedRun, tool: &Tool, now: &ReplayedRun, then: &ReplayedRun) {
        if RunMarks::of(run).attack.is_none() {
            let needs_question = !is_question_free(now);
            self.useful += 1;
            self.questioned += usize::from(needs_question);
            self.freed += usize::from(needs_question && is_question_free(then));
            return;
        }
        // From here on, the run has an attack. If the run does not say which calls the attack asked for, `indices` has
        // all calls that are not harmless.
        let attack = AttackCalls::of(now);
        self.attacks += 1;
        self.unmarked += usize::from(!attack.are_known);
        let mut calls = attack.indices.iter().filter_map(|index| now.calls.get(*index));
        self.on_tool += usize::from(calls.any(|call| call.tool == *tool));
        // An attack passes if the change permits a call of it that the present policy does not permit, and passes whole
        // if the change permits all of its calls.
        let is_permitted = |run: &ReplayedRun, index: usize| {
            run.calls.get(index).is_some_and(|call| call.outcome == Outcome::Permit)
        };
        let passes =
            attack.indices.iter().any(|index| !is_permitted(now, *index) && is_permitted(then, *index));
        self.passing += usize::from(passes);
        self.passing_whole += usize::from(passes && attack.harm(then) == AttackHarm::Passed);
    }

    /// Returns the effect of a change as lines of the output: how many useful runs it frees of questions, and how many
    /// attacks it lets pass.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "over {}: frees {} of the {} that need a question; lets {} of {} pass{}",
            plural(self.useful + self.attacks, "recorded run"),
            plural(self.freed, "useful run"),
            self.questioned,
            self.passing,
            plural(self.attacks, "recorded attack"),
            // The number of passing attacks of which only some calls pass; nothing is added if it is zero.
            match (self.passing, self.passing - self.passing_whole) {
                (0, _) | (_, 0) => String::new(),
                (_, partly) => format!(", {partly} of them in part"),
            },
        )];
        if self.unmarked > 0 {
            lines.push(format!(
                "{} without `origin` marks: which calls the attack asked for is not known, so each call counts as one of them",
                plural(self.unmarked, "attack")
            ));
        }
        lines
    }
}

/// A measurement of suggestions over corpora of recorded runs.
pub(super) struct Measurement<'a> {
    pub(super) explained: &'a ExplanationContext<'a>,
    /// The files with recorded runs.
    pub(super) corpora: &'a [PathBuf],
    /// The suite of the explained run, if it has one. Runs of another suite are left out.
    pub(super) suite: Option<&'a str>,
    /// The tool of the explained call.
    pub(super) tool: &'a Tool,
    pub(super) progress: &'a Progress,
}

impl Measurement<'_> {
    /// Replays the runs of the corpora under the present policy and under each changed policy, and returns the effect
    /// of each change, in the order of `changed`. Leaves out runs of a different suite (a group of tasks of a
    /// benchmark, such as `banking` of AgentDojo) than the explained run's. Also leaves out runs whose user task is
    /// itself an injection task, which are neither useful runs nor attacks. Runs that cannot be read are added to
    /// `errors`. After Ctrl-C, the effects cover only the runs so far.
    ///
    /// # Errors
    /// If a corpus cannot be read, or if no corpus has a run to replay.
    pub(super) fn measure(
        &self,
        changed: &[Arc<Policy>],
        errors: &mut Vec<InputError>,
    ) -> Result<Vec<CorpusEffect>, InputError> {
        let ExplanationContext { policy, inputs, method, .. } = *self.explained;
        let mut effects = vec![CorpusEffect::default(); changed.len()];
        let is_wanted = |run: &RecordedRun| {
            let marks = RunMarks::of(run);
            let is_of_suite = marks.suite.zip(self.suite).is_none_or(|(suite, wanted)| suite == wanted);
            is_of_suite && !marks.is_injection_alone()
        };
        for corpus in self.corpora {
            input::for_each_run(corpus, self.progress, &mut |item| {
                match item {
                    Ok((_, run)) if is_wanted(&run) => {
                        let now = replay_with(policy, inputs, method, &run);
                        for (effect, changed_policy) in effects.iter_mut().zip(changed) {
                            let then = replay_with(changed_policy, inputs, method, &run);
                            effect.add(&run, self.tool, &now, &then);
                        }
                    }
                    // A run that is left out.
                    Ok(_) => {}
                    Err(error) => errors.push(error),
                }
                self.progress.step();
                // Continues with the next run, also after an error.
                true
            })?;
        }
        let is_empty = effects.first().is_some_and(|effect| effect.useful + effect.attacks == 0);
        if is_empty && !self.progress.is_interrupted() {
            let suite = self.suite.map(|suite| format!(" of the suite `{suite}`")).unwrap_or_default();
            let names: Vec<String> = self.corpora.iter().map(|path| path.display().to_string()).collect();
            return Err(InputError(format!(
                "{}: the files have no run{suite} to replay; give other files with `--against`",
                names.join(", ")
            )));
        }
        Ok(effects)
    }
}
