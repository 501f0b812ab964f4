//! Prints the changes of the policy that would permit a call, for `flowgate explain`. `candidates` lists statements,
//! `trial` finds the sets of statements that permit the call, and `against` measures each set over a corpus. Each
//! change is printed with what an attacker gains by it, the least harmful first. Only changes that were tried on a
//! recorded attack on the tool are ranked.

use std::sync::Arc;

use flowgate::monitor::ReasonKind;
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::replay::ReplayedRun;

use super::ExplanationContext;
use super::against::{CorpusEffect, Measurement};
use super::candidates::{Candidate, candidates};
use super::trial::{Trial, with_statements};
use crate::corpus::RunMarks;
use crate::escaping;
use crate::input::InputError;
use crate::output::Console;
use crate::progress::Progress;

/// One change of the policy: statements to add, with their effect on the corpora if any are given.
struct Suggestion<'c> {
    statements: Vec<&'c Candidate>,
    /// `None` if no corpus is given.
    effect: Option<CorpusEffect>,
}

/// The forms of statements that are tried if they fit the call.
const FORMS: &str = "typed `endorse` of an argument or of its items, `payload` of a text, `consent`, `label` of a field or of messages, `require`";

/// Prints the changes that would permit the call with the index `index` in `run`, the replay of `recorded`. With a corpus
/// that has attacks on the tool: first, with numbers, those that let no recorded attack pass, and then, as not
/// recommended, those that do. Without such a corpus no change has a number, because none was tried on an attack, and a
/// change that needs evidence is only mentioned. If no statement can remove one of the reasons against the call,
/// prints only advice about this reason. Runs of a corpus that cannot be read are added to `errors`.
///
/// # Errors
/// If a corpus cannot be read, or has no run to replay.
pub(super) fn print(
    index: usize,
    run: &ReplayedRun,
    recorded: &RecordedRun,
    explained: &ExplanationContext<'_>,
    progress: &Progress,
    errors: &mut Vec<InputError>,
    output: &mut Console,
) -> Result<(), InputError> {
    let Some(call) = run.calls.get(index) else { return Ok(()) };
    // Whether a statement of the policy can remove a reason of this kind.
    let can_be_lifted = |kind: ReasonKind| matches!(kind, ReasonKind::Requirement | ReasonKind::Undeclared);
    if let Some(reason) = call.judgement.reasons.iter().find(|reason| !can_be_lifted(reason.kind)) {
        let advice = match reason.kind {
            ReasonKind::Rule => "a rule stops the call: only a change of the rule would permit it",
            ReasonKind::AmbiguousTool => "name the server in the pattern: `tool:SERVER/NAME`",
            ReasonKind::Hidden => "the influence method hides what the call needs: try another method",
            _ => "no further statement can permit this call: remove the cause that its reason above names",
        };
        output.line(&format!("  {advice}"));
        return Ok(());
    }
    let mut candidates_of_call = candidates(call, run);
    // For each change that is not suggested for lack of evidence, why it needs evidence.
    let mut held_back: Vec<String> = Vec::new();
    if explained.corpora.is_empty() {
        held_back
            .extend(candidates_of_call.all.iter().filter_map(|candidate| candidate.needs_evidence.clone()));
        candidates_of_call.all.retain(|candidate| candidate.needs_evidence.is_none());
    }
    // The parts of the call that the reasons are about.
    let mut parts: Vec<String> =
        call.judgement.reasons.iter().filter_map(|reason| reason.part.clone()).collect();
    parts.sort();
    parts.dedup();
    // Searches for the smallest sets of statements that permit the call. The run is cut after the call, because what
    // follows does not affect the verdict.
    let mut run_up_to_call = recorded.clone();
    run_up_to_call.entries.truncate(call.entry + 1);
    let ExplanationContext { policy, inputs, method, corpora } = *explained;
    let trial = Trial { policy, inputs, method, run_up_to_call: &run_up_to_call, index };
    let (sets, is_complete) = trial.smallest_sets(&candidates_of_call.all, &parts);
    let mut suggestions: Vec<Suggestion<'_>> =
        sets.into_iter().map(|statements| Suggestion { statements, effect: None }).collect();
    if !corpora.is_empty() && !suggestions.is_empty() {
        let suite = RunMarks::of(recorded).suite;
        let measurement = Measurement { explained, corpora, suite, tool: &call.tool, progress };
        measure(&mut suggestions, &measurement, policy, errors)?;
    }
    let (harmful, others): (Vec<Suggestion<'_>>, Vec<Suggestion<'_>>) = suggestions
        .into_iter()
        .partition(|suggestion| suggestion.effect.as_ref().is_some_and(CorpusEffect::lets_attack_pass));
    // A corpus without an attack on the tool is no evidence about the tool.
    let (harmless, unproven): (Vec<Suggestion<'_>>, Vec<Suggestion<'_>>) =
        others.into_iter().partition(|suggestion| suggestion.missing_evidence().is_none());
    held_back.extend(unproven.iter().filter_map(Suggestion::missing_evidence));
    if harmless.is_empty() {
        print_none(&harmful, is_complete, output);
        for refused in &candidates_of_call.refused {
            output.line(&format!("  Not tried: `label` of {}", escaping::line(refused)));
        }
    }
    held_back.sort();
    held_back.dedup();
    for why in &held_back {
        let needed = "only with `--against` a corpus that has attacks on the tool";
        output.line(&format!("  Suggested {needed}: {}", escaping::line(why)));
    }
    print_changes(harmless, &harmful, &call.tool, output);
    Ok(())
}

/// Measures on the corpora what each change frees, and which attacks it lets pass. Runs that cannot be read are added to
/// `errors`.
///
/// # Errors
/// If a corpus cannot be read, or has no run to replay.
fn measure(
    suggestions: &mut [Suggestion<'_>],
    measurement: &Measurement<'_>,
    policy: &Policy,
    errors: &mut Vec<InputError>,
) -> Result<(), InputError> {
    // Each set of statements has compiled in its trial, so `filter_map` drops none, and the effects are in the order of
    // the suggestions.
    let changed: Vec<Arc<Policy>> = suggestions
        .iter()
        .filter_map(|suggestion| {
            with_statements(policy, suggestion.statements.iter().map(|s| s.statement.as_str()))
        })
        .map(Arc::new)
        .collect();
    let effects = measurement.measure(&changed, errors)?;
    suggestions.iter_mut().zip(effects).for_each(|(suggestion, effect)| suggestion.effect = Some(effect));
    Ok(())
}

/// Prints the changes that permit a call of `tool`: those that were tried on a recorded attack on the tool, with numbers;
/// those that were not; and, as not recommended, those that let a recorded attack pass (`harmful`).
fn print_changes(
    harmless: Vec<Suggestion<'_>>,
    harmful: &[Suggestion<'_>],
    tool: &Tool,
    output: &mut Console,
) {
    // The effects of all changes are of the same corpora, so either all of them were tried on an attack or none.
    let (tried, untried): (Vec<Suggestion<'_>>, Vec<Suggestion<'_>>) =
        harmless.into_iter().partition(Suggestion::was_attacked);
    if !tried.is_empty() {
        output.line(
            "  If this call should be permitted, any one of these changes of the policy permits it (the least harmful first):",
        );
    }
    for (number, suggestion) in tried.iter().enumerate() {
        print_suggestion(&format!("{}.", number + 1), suggestion, output);
    }
    if !untried.is_empty() {
        let tool = escaping::line(&tool.to_string());
        output.line(&format!(
            "  Not tried on an attack: each of these changes of the policy permits the call (the least harmful first). Before you \
            add one, replay recorded attacks on {tool} with `--against RUNS`:"
        ));
    }
    untried.iter().for_each(|suggestion| print_suggestion("-", suggestion, output));
    if !harmful.is_empty() {
        output.line("  Not recommended: with these changes a recorded attack does more than without:");
        harmful.iter().for_each(|suggestion| print_suggestion("✗", suggestion, output));
    }
}

impl Suggestion<'_> {
    /// Returns whether the change was tried on a recorded attack on the tool of the call.
    fn was_attacked(&self) -> bool {
        self.effect.as_ref().is_some_and(CorpusEffect::has_attack_on_tool)
    }

    /// Returns why the change must not be suggested: one of its statements needs evidence, and the corpora have no
    /// attack on the tool of the call. Returns `None` if the change may be suggested.
    fn missing_evidence(&self) -> Option<String> {
        self.statements.iter().find_map(|one| one.needs_evidence.clone()).filter(|_| !self.was_attacked())
    }
}

/// Prints that nothing is suggested, why, and which forms of statements were tried. `harmful` are the changes that
/// would permit the call and let a recorded attack do more; `is_complete` says that all combinations were tried.
fn print_none(harmful: &[Suggestion<'_>], is_complete: bool, output: &mut Console) {
    output.line(match (harmful, is_complete) {
        ([_, ..], _) => {
            "  No change is suggested: each that would permit the call lets a recorded attack do more."
        }
        ([], true) => "  None of the forms tried would permit it.",
        ([], false) => {
            "  None of the forms tried would permit it; there are too many combinations to try all."
        }
    });
    output.line(&format!("  Tried, where they fit the call: {FORMS}."));
}

/// Prints a suggestion: each statement with what an attacker gains by it, and the effect on the corpora. `mark`
/// precedes the first statement; two spaces precede the others.
fn print_suggestion(mark: &str, suggestion: &Suggestion<'_>, output: &mut Console) {
    for (index, candidate) in suggestion.statements.iter().enumerate() {
        let mark = if index == 0 { mark } else { "  " };
        let gain = format!("{}; what an attacker gains: {}", candidate.form, candidate.harm.gain);
        output.line(&format!("  {mark} {}", escaping::line(&gain)));
        for line in candidate.statement.lines() {
            let line = output.paint("36", &escaping::line(line));
            output.line(&format!("    {line}"));
        }
    }
    for line in suggestion.effect.iter().flat_map(CorpusEffect::lines) {
        output.line(&format!("     {line}"));
    }
}
