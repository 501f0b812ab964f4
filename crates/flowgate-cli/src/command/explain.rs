//! Runs `flowgate explain`: prints why a call got its verdict, as a tree, and the changes of the policy that would
//! permit the call.
//!
//! A change is suggested only after a trial: the run is judged again with the statements added to the policy, and the
//! call is then permitted. A careless suggestion would help attackers. So each suggestion says what an attacker gains,
//! the least harmful one comes first, one that lets a recorded attack pass is marked and comes last, and none is
//! recommended before it was tried on a recorded attack on the tool.
//!
//! * `tree` prints the verdict; `origin` finds where the values of arguments come from.
//! * `candidates` lists the statements to try; `endorse_forms` proposes some of them, and `harm` ranks them.
//! * `trial` tries statements, `against` measures them over a corpus, and `suggestions` prints the result.
//! * `question` explains a question of a running gateway (`--question`).

mod against;
pub(in crate::command) mod candidates;
mod endorse_forms;
pub(in crate::command) mod harm;
mod origin;
#[cfg(feature = "run")]
pub(in crate::command) mod question;
mod suggestions;
mod tree;
pub(in crate::command) mod trial;

use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate::monitor::Outcome;
use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate::trace::read::RecordedRun;
use flowgate_guard::influence::{
    InfluenceMethod, everything::EverythingMethod, provenance::ProvenanceMethod,
};
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::{ReplayInputs, ReplayedRun, replay_with};

use crate::input::{self, InputError};
use crate::output::Console;
use crate::parameter_args::{MissingParameters, ParameterArgs};
use crate::policy_file::load_policy;
use crate::predicate_args::PredicateArgs;
use crate::progress::{INTERRUPTED, Progress};

/// The options of `flowgate explain`.
pub(crate) struct ExplainOptions<'a> {
    pub(crate) policy: &'a Path,
    pub(crate) trace: &'a Path,
    pub(crate) call: Option<&'a str>,
    pub(crate) influence: &'a str,
    pub(crate) content: bool,
    /// Corpora over which suggestions are replayed.
    pub(crate) against: &'a [PathBuf],
    pub(crate) parameters: ParameterArgs,
    pub(crate) answering: PredicateArgs,
}

/// What all calls of the command are explained with: the policy and the influence method by which they are judged, and
/// the corpora over which suggestions are measured.
#[derive(Clone, Copy)]
struct ExplanationContext<'a> {
    policy: &'a Arc<Policy>,
    inputs: &'a ReplayInputs,
    method: &'a dyn InfluenceMethod,
    /// The files over which suggestions are replayed.
    corpora: &'a [PathBuf],
}

/// A call of a recorded run that is explained.
struct CallInRun<'a> {
    run: &'a RecordedRun,
    /// The run as the policy and the chosen influence method judge it.
    replayed: &'a ReplayedRun,
    /// The run as the influence method `provenance` judges it. This method finds where the values of arguments come
    /// from; the tree shows these origins even if another method judges the call.
    traced: &'a ReplayedRun,
    /// The index of the call, among the calls of the run.
    index: usize,
}

/// Runs `flowgate explain`: prints each call of the trace, or the one with the id of the options, with its reasons and
/// suggestions. Returns 0 if all printed calls are permitted, 1 if one is not, 2 if a run could not be read, and
/// [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &ExplainOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    if options.against.iter().any(|corpus| corpus == Path::new("-")) {
        return Err(InputError(
            "`--against` cannot read the standard input, since it reads a corpus more than once; write the \
            corpus to a file"
                .to_owned(),
        ));
    }
    let corpora = input::files_of(options.against)?;
    // A corpus that cannot be opened is reported before the first call.
    corpora.iter().try_for_each(|corpus| input::open(corpus).map(|_| ()))?;
    let policy = Arc::new(load_policy(options.policy, output)?);
    // The parser of `--influence` accepts only known names, so the fallback is never used.
    let method = MethodRegistry::builtin().find_influence(options.influence).unwrap_or(&EverythingMethod);
    let name = options.policy.display().to_string();
    let inputs = ReplayInputs {
        predicates: options.answering.predicates(&policy, &name)?,
        parameters: options.parameters.values(),
    };
    let explained = ExplanationContext { policy: &policy, inputs: &inputs, method, corpora: &corpora };
    let mut missing = MissingParameters::default();
    let style = tree::TreeStyle { policy: &name, content: options.content };
    let (mut shown, mut has_objection) = (0, false);
    // Runs that cannot be read are reported at the end; any other error ends the command.
    let (mut unreadable_runs, mut fatal_error) = (Vec::new(), None);
    // On a terminal, the printed calls already show the progress.
    let is_wanted = !stdout().is_terminal();
    let progress = Progress::over_files(&[options.trace.to_owned()], "run", is_wanted, output);
    input::for_each_run(options.trace, &progress, &mut |item| {
        match item {
            Ok((_, run)) => {
                missing.add(&name, &policy, &inputs.parameters, &run);
                let replayed = replay_with(&policy, &inputs, method, &run);
                let traced = replay_with(&policy, &inputs, &ProvenanceMethod, &run);
                for (index, call) in replayed.calls.iter().enumerate() {
                    if progress.is_interrupted() || fatal_error.is_some() {
                        break;
                    }
                    if options.call.is_some_and(|id| id != call.id) {
                        continue;
                    }
                    shown += 1;
                    has_objection |= call.outcome != Outcome::Permit;
                    let call = CallInRun { run: &run, replayed: &replayed, traced: &traced, index };
                    fatal_error =
                        explain_call(&call, &explained, &style, &progress, &mut unreadable_runs, output)
                            .err();
                }
            }
            Err(error) => unreadable_runs.push(error),
        }
        progress.step();
        // Continues with the next run.
        fatal_error.is_none()
    })?;
    let is_interrupted = progress.finish(output);
    missing.print(output);
    for error in &unreadable_runs {
        output.error(&error.0);
    }
    if let Some(error) = fatal_error {
        return Err(error);
    }
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    if shown == 0 {
        return Err(no_call_to_explain(options));
    }
    Ok(if unreadable_runs.is_empty() { u8::from(has_objection) } else { 2 })
}

/// Returns the error for a trace without a call or, if the options name a call, without this call.
fn no_call_to_explain(options: &ExplainOptions<'_>) -> InputError {
    let problem = match options.call {
        Some(id) => format!("no call has the id `{id}`; leave out --call to explain all calls"),
        None => "the trace has no call to explain; give a trace with calls of tools".to_owned(),
    };
    InputError(format!("{}: {problem}", options.trace.display()))
}

/// Prints one call as a tree and, unless it is permitted, the changes of the policy that would permit it. Runs of a
/// corpus that cannot be read are added to `unreadable_runs`, and the other runs still count.
///
/// # Errors
/// If a corpus cannot be read.
fn explain_call(
    call: &CallInRun<'_>,
    explained: &ExplanationContext<'_>,
    style: &tree::TreeStyle<'_>,
    progress: &Progress,
    unreadable_runs: &mut Vec<InputError>,
    output: &mut Console,
) -> Result<(), InputError> {
    let CallInRun { run, replayed, traced, index } = *call;
    let Some(judged) = replayed.calls.get(index) else { return Ok(()) };
    tree::print(judged, replayed, traced.calls.get(index), style, output);
    let printed = match judged.outcome {
        Outcome::Permit => Ok(()),
        _ => suggestions::print(index, replayed, run, explained, progress, unreadable_runs, output),
    };
    // An empty line ends the call, also after an error.
    output.line("");
    printed
}

/// Returns the pattern that names a tool in a suggested statement: `tool:SERVER/NAME` if both are words. If the tool
/// has no server, or a name must be quoted, the pattern is without the server; it then also matches tools of this name
/// on other servers.
fn tool_pattern(tool: &Tool) -> String {
    match &tool.server {
        Some(server) if is_word(server) && is_word(&tool.name) => format!("tool:{server}/{}", tool.name),
        None if is_word(&tool.name) => format!("tool:{}", tool.name),
        _ => format!("tool:{:?}", &*tool.name),
    }
}

/// Returns the expression by which a policy names an argument of the judged call, such as `call.arguments.to` or
/// `call.arguments["return-day"]`.
fn argument_path(argument: &str) -> String {
    match is_word(argument) {
        true => format!("call.arguments.{argument}"),
        false => format!("call.arguments[{argument:?}]"),
    }
}

/// Returns whether a policy can write a key without quotation marks.
fn is_word(key: &str) -> bool {
    key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}
