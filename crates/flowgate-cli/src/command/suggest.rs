//! Runs `flowgate suggest`: finds the least changes of a policy that would have let the useful runs of a recording
//! pass. A run is useful if it contains no attack.
//!
//! The search handles the questions about useful runs kind by kind, the most frequent kind first. For each kind, it
//! tries the changes that `flowgate explain` would suggest, under the policy with the changes accepted so far. It
//! accepts a change only after a replay of the runs: the call is then permitted, and no recorded attack does more than
//! before. At the end, it removes changes that are unnecessary, because as many calls pass without them.
//!
//! * `recorded` reads the runs.
//! * `search` searches for changes, and replays the runs under them.

mod recorded;
mod search;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate_guard::influence::everything::EverythingMethod;
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::ReplayInputs;

use crate::escaping;
use crate::input::{self, InputError};
use crate::output::{Console, plural};
use crate::parameter_args::{MissingParameters, ParameterArgs};
use crate::policy_file::load_policy;
use crate::predicate_args::PredicateArgs;
use crate::progress::{INTERRUPTED, Progress};
use recorded::RecordedRuns;
use search::{Change, ReplaySetup, SuggestedChanges, UnansweredQuestion};

/// The options of `flowgate suggest`.
pub(crate) struct SuggestOptions<'a> {
    pub(crate) policy: &'a Path,
    pub(crate) traces: &'a [PathBuf],
    pub(crate) influence: &'a str,
    /// Corpora with attacks that must not do more than before.
    pub(crate) against: &'a [PathBuf],
    pub(crate) parameters: ParameterArgs,
    pub(crate) answering: PredicateArgs,
}

/// Runs `flowgate suggest`: prints the least changes of the policy that let the calls of useful runs pass and no
/// recorded attack do more. Returns 0 if every call of the useful runs is permitted already, 1 if one is not, 2 if a
/// run could not be read, and [`INTERRUPTED`] after an interrupt.
///
/// # Errors
/// If the policy or a file cannot be used, a file is a watch log, or there is no useful run.
pub(crate) fn run(options: &SuggestOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let files = input::files_of(options.traces)?;
    let corpora = input::files_of(options.against)?;
    files.iter().try_for_each(|path| recorded::refuse_watch_log(path))?;
    // A corpus that cannot be opened is reported before the traces are read.
    corpora.iter().try_for_each(|corpus| input::open(corpus).map(|_| ()))?;
    let policy = Arc::new(load_policy(options.policy, output)?);
    // The parser of `--influence` accepts only known names, so the fallback is never used.
    let method = MethodRegistry::builtin().find_influence(options.influence).unwrap_or(&EverythingMethod);
    let name = options.policy.display().to_string();
    let inputs = ReplayInputs {
        predicates: options.answering.predicates(&policy, &name)?,
        parameters: options.parameters.values(),
    };
    let all: Vec<PathBuf> = files.iter().chain(&corpora).cloned().collect();
    // `true`: show a progress line, since the results are printed only at the end.
    let progress = Progress::over_files(&all, "run", true, output);
    let mut runs = RecordedRuns::default();
    let mut errors = Vec::new();
    // `true`: the useful runs of the traces count. `false`: of the corpora, only the attacks count.
    for path in &files {
        runs.read(path, true, &progress, &mut errors)?;
    }
    for path in &corpora {
        runs.read(path, false, &progress, &mut errors)?;
    }
    let is_interrupted = progress.finish(output);
    errors.iter().for_each(|error| output.error(&error.0));
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    if runs.useful.is_empty() {
        return Err(InputError(
            "the files have no useful run: each run is marked as an attack, or there is none; give the traces of ordinary work"
                .to_owned(),
        ));
    }
    let mut missing = MissingParameters::default();
    for run in runs.useful.iter().chain(&runs.attacks) {
        missing.add(&name, &policy, &inputs.parameters, run);
    }
    missing.print(output);
    let judge = ReplaySetup { inputs: &inputs, method, runs: &runs };
    let changes = judge.suggest(&policy);
    print(&changes, &runs, output);
    match errors.is_empty() {
        true => Ok(u8::from(changes.calls_before > 0)),
        false => Ok(2),
    }
}

/// Prints how many useful runs and calls are not permitted without a question, now and with the changes. Then prints
/// the changes, and the kinds of questions for which no change is suggested.
fn print(changes: &SuggestedChanges, runs: &RecordedRuns, output: &mut Console) {
    let SuggestedChanges { runs_before, runs_after, calls_before, calls_after, .. } = *changes;
    output.line(&format!(
        "{}, of which not permitted without a question: {runs_before} ({}); with the changes below, {runs_after} ({})",
        plural(runs.useful.len(), "useful run"),
        plural(calls_before, "call"),
        plural(calls_after, "call"),
    ));
    for (index, change) in changes.accepted.iter().enumerate() {
        output.line("");
        print_change(&format!("{}.", index + 1), change, output);
    }
    if changes.accepted.is_empty() && calls_before > 0 {
        output.line("No change is suggested.");
    }
    if !changes.accepted.is_empty() {
        output.line("");
        output.line(&match runs.attacks.len() {
            0 => "No recorded attack was given, so none was tried: give runs with attacks with `--against`."
                .to_owned(),
            count => format!(
                "None of {} does more with these changes than without.",
                plural(count, "recorded attack")
            ),
        });
    }
    if !changes.left.is_empty() {
        output.line("");
        output.line("Left as they are:");
        changes.left.iter().for_each(|left| print_left(left, output));
    }
}

/// Prints a change: each statement with what an attacker gains by it, and the number of calls that the whole change
/// lets pass. `mark` precedes the first statement; two spaces precede the others.
fn print_change(mark: &str, change: &Change, output: &mut Console) {
    for (index, statement) in change.statements.iter().enumerate() {
        let mark = if index == 0 { mark } else { "  " };
        let gain = format!("{}; what an attacker gains: {}", statement.form, statement.harm.gain);
        output.line(&format!("{mark} {}", escaping::line(&gain)));
        for line in statement.statement.lines() {
            let line = output.paint("36", &escaping::line(line));
            output.line(&format!("  {line}"));
        }
    }
    output.line(&format!("   lets {} pass", plural(change.calls, "further call")));
}

/// Prints a kind of question for which no change is suggested, and why.
fn print_left(left: &UnansweredQuestion, output: &mut Console) {
    let parts = if left.parts.is_empty() { String::new() } else { format!(" ({})", left.parts.join(", ")) };
    let line = format!("  {}{parts}, {}: {}", left.tool, plural(left.calls, "call"), left.why);
    output.line(&escaping::line(&line));
}
