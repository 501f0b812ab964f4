//! Runs `flowgate analyze`: lists the matches of a policy's rules in recorded runs, with their positions. No call is
//! judged, and labels are not enforced.
//!
//! `flowgate::analysis` evaluates the rules. This module reads the runs, prints the matches and determines the exit
//! code.

use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};

use flowgate::analysis::{self, Analysis};
use flowgate::policy::{Action, Dialect, Policy};
use serde_json::{Map, Value, json};

use crate::args::AnalyzeFormat;
use crate::input::{self, InputError};
use crate::output::{Console, plural, statement_line};
use crate::policy_file::load_policy_as;
use crate::predicate_args::PredicateArgs;
use crate::progress::{INTERRUPTED, Progress};
use crate::report::with_file;

/// The options of `flowgate analyze`.
pub(crate) struct AnalyzeOptions<'a> {
    pub(crate) policy: &'a Path,
    pub(crate) traces: &'a [PathBuf],
    pub(crate) parameters: Map<String, Value>,
    pub(crate) answering: PredicateArgs,
    pub(crate) compat: bool,
    pub(crate) format: AnalyzeFormat,
}

/// Runs `flowgate analyze`: prints the matches in each run of each trace, and their number. Returns 0 if no rule
/// matched, 1 if one matched, 2 if a run could not be read or a rule could not be evaluated, and [`INTERRUPTED`] after
/// an interrupt.
pub(crate) fn run(options: &AnalyzeOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let dialect = if options.compat { Dialect::Compat } else { Dialect::Flowgate };
    let policy = load_policy_as(options.policy, dialect, output)?;
    let name = options.policy.display().to_string();
    let predicates = options.answering.predicates(&policy, &name)?;
    let analysis_options = analysis::AnalysisOptions {
        parameters: options.parameters.clone(),
        predicates,
        ..analysis::AnalysisOptions::default()
    };
    let (mut runs, mut matches, mut failed_rules) = (0, 0, 0);
    let (mut errors, mut results) = (Vec::new(), Vec::new());
    // On a terminal, the lines of results show the progress already, so no progress line is wanted.
    let is_wanted = options.format != AnalyzeFormat::Text || !stdout().is_terminal();
    let progress = Progress::over_files(options.traces, "run", is_wanted, output);
    // Analyzes the runs. Text is printed at once, JSON at the end.
    for trace in options.traces {
        if progress.is_interrupted() {
            break;
        }
        let trace_name = trace.display().to_string();
        let read = input::for_each_run(trace, &progress, &mut |item| {
            let analyzed = item.and_then(|(line, run)| {
                let analyzed = analysis::analyze(&policy, run.entries, &analysis_options);
                let problem = |error| InputError(format!("{trace_name}: line {line}: {error}"));
                analyzed.map(|analysis| (line, analysis)).map_err(problem)
            });
            match analyzed {
                Ok((line, analysis)) => {
                    runs += 1;
                    matches += analysis.violations.len();
                    failed_rules += analysis.failures.len();
                    match options.format {
                        AnalyzeFormat::Text => {
                            print_text(&analysis, &policy, &name, &trace_name, line, output)
                        }
                        AnalyzeFormat::Json => {
                            results.push(json_document(&analysis, &policy, &trace_name, line))
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
            progress.step();
            // Continues with the next run, also after an error.
            true
        });
        errors.extend(read.err());
    }
    let is_interrupted = progress.finish(output);
    match options.format {
        AnalyzeFormat::Text => {
            let failures = match failed_rules {
                0 => String::new(),
                n => format!(", {} that could not be evaluated", plural(n, "rule")),
            };
            output.line(&format!("{}: {}{failures}", plural(runs, "run"), plural(matches, "match")));
        }
        AnalyzeFormat::Json => {
            let mut document = json!({"policy": name, "runs": results});
            if is_interrupted && let Some(document) = document.as_object_mut() {
                document.insert("interrupted".to_owned(), true.into());
            }
            output.line(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
    }
    errors.iter().for_each(|error| output.error(&error.0));
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    // An error, or a rule that cannot be evaluated, outweighs matches.
    if !errors.is_empty() || failed_rules > 0 {
        return Ok(2);
    }
    Ok(u8::from(matches > 0))
}

/// Returns the keyword of the policy language for the action of a rule: a rule that denies an event is written with
/// `raise`.
fn action_verb(action: Action) -> &'static str {
    match action {
        Action::Deny => "raise",
        Action::Ask => "ask",
        Action::Log => "log",
    }
}

/// Prints each match of a rule in one run: the message of the rule, the lines of the rule and of the run, and the places
/// in the run that match. Prints an error for each rule that cannot be evaluated. `name` is the file of the policy; the
/// run begins at `line` of the file `trace`.
fn print_text(
    analysis: &Analysis,
    policy: &Policy,
    name: &str,
    trace: &str,
    line: usize,
    output: &mut Console,
) {
    for violation in &analysis.violations {
        let arguments: Vec<String> = violation.args.iter().map(one_line).collect();
        // The verb is the keyword of the rule; `raise` is red, since only such a rule denies.
        let verb = match violation.action {
            Action::Deny => output.paint("31", "raise"),
            action => output.paint("33", action_verb(action)),
        };
        output.line(&format!("{verb} {}", arguments.join(" ")));
        violation
            .kwargs
            .iter()
            .for_each(|(key, value)| output.line(&format!("    {key} = {}", one_line(value))));
        let (file, rule) = statement_line(name, policy, &violation.statement);
        output.line(&format!("    {file}:{rule} in {trace}:{line}"));
        violation.ranges.iter().for_each(|range| output.line(&format!("    {range}")));
    }
    for failure in &analysis.failures {
        let (file, rule) = statement_line(name, policy, &failure.statement);
        let message = match failure.kind {
            // For this kind of failure, `message` is the name of the parameter.
            analysis::EvaluationFailureKind::MissingParameter => {
                format!("the parameter `input.{0}` is not given; add --param {0}=VALUE", failure.message)
            }
            _ => failure.message.clone(),
        };
        output.error(&format!("{file}:{rule}: {trace}:{line}: the rule cannot be evaluated: {message}"));
    }
}

/// Returns a value on one line: a string without quotation marks, any other value as JSON. Control characters become
/// spaces, and the line is cut after 200 characters.
fn one_line(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let plain: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    if plain.chars().count() < text.chars().count() { format!("{plain}…") } else { plain }
}

/// Returns the matches of rules in one run, and the rules that cannot be evaluated, as a JSON document. The run
/// begins at `line` of the file `trace`. For a rule of an imported file, `with_file` adds the name of that file. The
/// `key` of a match identifies it, and stays the same in a longer trace.
fn json_document(analysis: &Analysis, policy: &Policy, trace: &str, line: usize) -> Value {
    let violations = analysis.violations.iter().map(|violation| {
        let value = json!({
            "rule": policy.locate(&violation.statement).line,
            "action": action_verb(violation.action),
            "args": violation.args,
            "kwargs": violation.kwargs,
            "ranges": violation.ranges,
            "key": violation.key,
        });
        with_file(policy, &violation.statement, value)
    });
    let failures = analysis.failures.iter().map(|failure| {
        let position = policy.locate(&failure.statement);
        with_file(policy, &failure.statement, json!({"rule": position.line, "message": failure.message}))
    });
    let (violations, failures) = (violations.collect::<Vec<_>>(), failures.collect::<Vec<_>>());
    json!({"trace": trace, "line": line, "violations": violations, "failures": failures})
}
