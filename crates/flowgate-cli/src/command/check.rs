//! Runs `flowgate check`: judges every call of recorded runs by a policy, and prints the verdicts and the matches of
//! rules. Without runs, checks the policy itself.

use std::io::{IsTerminal as _, stdout};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate::monitor::{Outcome, Reason};
use flowgate::policy::{Action, Policy};
use flowgate_guard::influence::everything::EverythingMethod;
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::{ReplayInputs, ReplayedRun, replay_with};
use serde_json::{Value, json};

use crate::args::CheckFormat;
use crate::input::{self, InputError};
use crate::output::{Console, plural, statement_line};
use crate::parameter_args::{MissingParameters, ParameterArgs};
use crate::policy_file::load_policy;
use crate::predicate_args::PredicateArgs;
use crate::progress::{INTERRUPTED, Progress};
use crate::warnings::{TraceOccurrences, Warnings};
use crate::{escaping, report, tool_files};

/// The options of `flowgate check`.
pub(crate) struct CheckOptions<'a> {
    pub(crate) policy: &'a Path,
    pub(crate) traces: &'a [PathBuf],
    pub(crate) influence: &'a str,
    pub(crate) format: CheckFormat,
    pub(crate) content: bool,
    pub(crate) objections: bool,
    pub(crate) deny_warnings: bool,
    /// Files that describe tools, each `FILE` or `SERVER=FILE`.
    pub(crate) tools: &'a [String],
    pub(crate) parameters: ParameterArgs,
    pub(crate) answering: PredicateArgs,
}

/// The numbers of runs, of calls by verdict, and of findings: matches of rules, and events that the monitor refused.
#[derive(Debug, Default)]
struct CheckTotals {
    runs: usize,
    permitted: usize,
    /// Calls that a person must confirm.
    asked: usize,
    denied: usize,
    findings: usize,
}

/// Runs `flowgate check`: judges every run of the traces, prints the verdicts in the requested format, and then the
/// warnings. Without traces, prints one line about the policy in the text format; the other formats then have only the
/// comparison with the files of `--tools`, and print nothing without this option. Returns 0 if nothing is found; 1 if a
/// call is not permitted, or if there is a finding or a warning that `--deny-warnings` forbids; 2 if a run could not be
/// read; and [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &CheckOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let policy = Arc::new(load_policy(options.policy, output)?);
    let name = options.policy.display().to_string();
    let comparison = match options.tools {
        [] => None,
        files => Some(tool_files::compare(files, &name, &policy, output)?),
    };
    // A comparison with tools is a result that programs read, also without traces.
    if options.traces.is_empty() && (comparison.is_none() || options.format == CheckFormat::Text) {
        if options.format == CheckFormat::Text {
            let (rules, dimensions) = (
                if policy.is_rules_only() { "rules only" } else { "with labels" },
                policy.space().dimensions().len(),
            );
            output.line(&format!("{name} is a policy ({rules}, {})", plural(dimensions, "dimension")));
        }
        let warnings = Warnings::default().with_comparison(comparison).len() + policy.warnings().len();
        return Ok(u8::from(options.deny_warnings && warnings > 0));
    }
    let inputs = ReplayInputs {
        predicates: options.answering.predicates(&policy, &name)?,
        parameters: options.parameters.values(),
    };
    // The parser of `--influence` accepts only known names, so the fallback is never used.
    let method = MethodRegistry::builtin().find_influence(options.influence).unwrap_or(&EverythingMethod);
    let (mut totals, mut errors, mut results) = (CheckTotals::default(), Vec::new(), Vec::new());
    let mut occurrences = TraceOccurrences::default();
    let mut missing = MissingParameters::default();
    // On a terminal, the lines of results show the progress already, so no progress line is wanted.
    let is_wanted =
        !matches!(options.format, CheckFormat::Text | CheckFormat::Jsonl) || !stdout().is_terminal();
    let progress = Progress::over_files(options.traces, "run", is_wanted, output);
    // Judges the runs. Lines of text and of `jsonl` are printed at once, the results of the other formats at the end.
    for trace in options.traces {
        if progress.is_interrupted() {
            break;
        }
        let trace_name = trace.display().to_string();
        let mut is_empty = true;
        let read = input::for_each_run(trace, &progress, &mut |item| {
            is_empty = false;
            match item {
                Ok((line, run)) => {
                    missing.add(&name, &policy, &inputs.parameters, &run);
                    let replayed = replay_with(&policy, &inputs, method, &run);
                    occurrences.add(&format!("{trace_name}:{line}"), replayed.monitor.trace());
                    progress.step();
                    totals.add(&replayed);
                    match options.format {
                        CheckFormat::Text => print_text(&replayed, &name, &trace_name, line, options, output),
                        CheckFormat::Jsonl => {
                            json_lines(&replayed, &policy, &trace_name, line)
                                .iter()
                                .for_each(|v| output.line(&v.to_string()));
                        }
                        CheckFormat::Json => {
                            results.extend(json_lines(&replayed, &policy, &trace_name, line))
                        }
                        CheckFormat::Sarif => {
                            results.extend(sarif_results(&replayed, &policy, &name, &trace_name, line))
                        }
                    }
                }
                Err(error) => errors.push(error),
            }
            // Continues with the next run, also after an error.
            true
        });
        if is_empty && read.is_ok() {
            occurrences.add_empty(&trace_name);
        }
        errors.extend(read.err());
    }
    let is_interrupted = progress.finish(output);
    // After an interrupt, there are no warnings about names that do not occur: they may occur in the remaining traces.
    let warnings = if is_interrupted { Warnings::default() } else { occurrences.warnings(&policy) };
    let warnings = warnings.with_comparison(comparison);
    match options.format {
        CheckFormat::Text => output.line(&totals.sentence()),
        CheckFormat::Jsonl => {
            let lines =
                warnings.json(&name, &policy).into_iter().chain(warnings.notes_json().unwrap_or_default());
            lines.for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "runs": totals.runs}).to_string());
            }
        }
        CheckFormat::Json => {
            let mut document = json!({
                "policy": name,
                "influence": method.name(),
                "permitted": totals.permitted,
                "confirm": totals.asked,
                "denied": totals.denied,
                "findings": totals.findings,
                "warnings": warnings.json(&name, &policy),
                "results": results,
            });
            if let (Some(notes), Some(document)) = (warnings.notes_json(), document.as_object_mut()) {
                document.insert("notes".to_owned(), notes.into());
            }
            if let (true, Some(document)) = (is_interrupted, document.as_object_mut()) {
                document.insert("interrupted".to_owned(), true.into());
            }
            output.line(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
        CheckFormat::Sarif => {
            results.extend(warnings.sarif(&name, &policy));
            output.line(&serde_json::to_string_pretty(&sarif(&results, is_interrupted)).unwrap_or_default());
        }
    }
    warnings.print(&name, &policy, output);
    missing.print(output);
    for error in &errors {
        output.error(&error.0);
    }
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    let denied_warnings = match options.deny_warnings {
        true => warnings.len() + policy.warnings().len() + missing.len(),
        false => 0,
    };
    // A run that could not be read outweighs what was found.
    Ok(match (errors.is_empty(), totals.asked + totals.denied + totals.findings + denied_warnings) {
        (false, _) => 2,
        (true, 0) => 0,
        (true, _) => 1,
    })
}

impl CheckTotals {
    /// Adds the verdicts and findings of a run; an event that the monitor rejected counts as a finding.
    fn add(&mut self, run: &ReplayedRun) {
        let count = |outcome| run.calls.iter().filter(|call| call.outcome == outcome).count();
        self.runs += 1;
        self.permitted += count(Outcome::Permit);
        self.asked += count(Outcome::Confirm);
        self.denied += count(Outcome::Deny);
        self.findings += run.findings.len() + run.refused.len();
    }

    /// Returns the last line of the text format, such as `2 runs: 3 calls permitted, 1 to be confirmed, 0 denied; 0
    /// findings`.
    fn sentence(&self) -> String {
        format!(
            "{}: {} permitted, {} to be confirmed, {} denied; {}",
            plural(self.runs, "run"),
            plural(self.permitted, "call"),
            self.asked,
            self.denied,
            plural(self.findings, "finding")
        )
    }
}

/// Prints the verdicts of the calls and the findings of one run. With `options.objections`, leaves out permitted calls.
/// Prints nothing for a run without anything to show. `policy` is the name of the policy's file; the run begins at
/// `line` of the file `trace`.
fn print_text(
    run: &ReplayedRun,
    policy: &str,
    trace: &str,
    line: usize,
    options: &CheckOptions<'_>,
    output: &mut Console,
) {
    let shown: Vec<_> =
        run.calls.iter().filter(|call| !options.objections || call.outcome != Outcome::Permit).collect();
    if shown.is_empty() && run.findings.is_empty() && run.refused.is_empty() {
        return;
    }
    let title = output.paint("1", &format!("{trace}:{line}"));
    output.line(&title);
    for call in shown {
        let event = call.event.map_or_else(|| "-".to_owned(), |event| event.to_string());
        let mark = report::outcome_mark(call.outcome, output);
        let title = escaping::line(&format!("{} ({})", call.tool, call.id));
        output.line(&format!("  {mark}  {event} {title}"));
        // `notes` are matches of rules that only log, and what a standing consent covers.
        for reason in report::group_reasons(&call.judgement.reasons).iter().chain(&call.judgement.notes) {
            report::print_reason(reason, &run.monitor, policy, options.content, "      ", output);
        }
    }
    for finding in &run.findings {
        let color = if finding.reason.action == Action::Deny { "31" } else { "36" };
        let word = output.paint(color, "! found  ");
        output.line(&format!("  {word}  {}", finding.event));
        report::print_reason(&finding.reason, &run.monitor, policy, options.content, "      ", output);
    }
    for (entry, error) in &run.refused {
        output.line(&format!("  {}  message {entry}: {error}", output.paint("31", "! refused")));
    }
    output.line("");
}

/// Returns the verdicts and the findings of one run, as one JSON value for each line of the output. The run begins at
/// `line` of the file `trace`.
fn json_lines(run: &ReplayedRun, policy: &Policy, trace: &str, line: usize) -> Vec<Value> {
    let calls = run.calls.iter().map(|call| report::call_json(call, policy, trace, line));
    calls.chain(report::findings_json(run, policy, trace, line)).collect()
}

/// Returns the whole document in SARIF, the format of code scanning services. An interrupted run is marked as
/// unsuccessful, because results are missing.
fn sarif(results: &[Value], is_interrupted: bool) -> Value {
    let mut run = json!({
        "tool": {"driver": {"name": "flowgate", "version": env!("CARGO_PKG_VERSION")}},
        "results": results,
    });
    if let (true, Some(run)) = (is_interrupted, run.as_object_mut()) {
        run.insert("invocations".to_owned(), json!([{"executionSuccessful": false}]));
    }
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [run],
    })
}

/// Returns the reasons against calls and the findings of one run as results of SARIF, the format of code scanning
/// services. Their levels: `error` for what the policy denies, and for an event that the monitor refused; `warning` for
/// a call that a person must confirm; `note` for any other finding. `policy_name` is the file of the policy; the run
/// begins at `line` of the file `trace`.
fn sarif_results(
    run: &ReplayedRun,
    policy: &Policy,
    policy_name: &str,
    trace: &str,
    line: usize,
) -> Vec<Value> {
    // `subject` names the call, the event or the message that the result is about; `kind` is `call`, `event` or
    // `message`. `related` are the statements of the policy that caused the result.
    let result = |rule: &str, level: &str, subject: &str, kind: &str, message: &str, related: Vec<Value>| {
        json!({
            "ruleId": rule,
            "level": level,
            "message": {"text": format!("{subject}: {message}")},
            "locations": [{
                "physicalLocation": {"artifactLocation": {"uri": trace}, "region": {"startLine": line}},
                "logicalLocations": [{"name": subject, "kind": kind}],
            }],
            "relatedLocations": related,
        })
    };
    let of_reason = |reason: &Reason, level: &str, subject: &str, kind: &str| {
        let related = reason.statement.iter().map(|span| {
            let (file, line) = statement_line(policy_name, policy, span);
            json!({
                "physicalLocation": {
                    "artifactLocation": {"uri": file},
                    "region": {"startLine": line},
                },
                "message": {"text": policy.excerpt(span)},
            })
        });
        result(reason.kind.name(), level, subject, kind, &reason.message, related.collect())
    };
    let mut results = Vec::new();
    for call in &run.calls {
        let subject = format!("{} ({})", call.tool, call.id);
        for reason in &call.judgement.reasons {
            let level = if reason.action == Action::Deny { "error" } else { "warning" };
            results.push(of_reason(reason, level, &subject, "call"));
        }
    }
    for finding in &run.findings {
        let level = if finding.reason.action == Action::Deny { "error" } else { "note" };
        results.push(of_reason(&finding.reason, level, &finding.event.to_string(), "event"));
    }
    for (entry, error) in &run.refused {
        let subject = format!("message {entry}");
        results.push(result("refused", "error", &subject, "message", &error.to_string(), Vec::new()));
    }
    results
}
