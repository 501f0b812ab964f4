//! `flowgate explain`: why a call got its verdict, as a tree, and the smallest change of the policy that would permit
//! it.
//!
//! A change is suggested only after a trial: with the statement added to the policy, the run is judged again and the
//! call is permitted. The author of the policy decides whether the change is appropriate.

use std::io::{IsTerminal as _, stdout};
use std::path::Path;
use std::sync::Arc;

use flowgate::monitor::{Outcome, Reason, ReasonKind};
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::read::RecordedRun;
use flowgate::trace::{EventBody, EventId, PathStep, Tool};
use flowgate_guard::influence::{InfluenceMethod, everything::EverythingMethod};
use flowgate_guard::method::MethodRegistry;
use flowgate_guard::replay::{JudgedCall, ReplayedRun, replay_with};

use crate::input::{self, InputError};
use crate::output::Console;
use crate::policy_file::load_policy;
use crate::predicate_args::PredicateArgs;
use crate::progress::{INTERRUPTED, Progress};
use crate::{escaping, report};

/// The number of changes that are tried for one call.
const MAX_TRIALS: usize = 200;

/// The options of `flowgate explain`.
pub(crate) struct ExplainOptions<'a> {
    pub(crate) policy: &'a Path,
    pub(crate) trace: &'a Path,
    pub(crate) call: Option<&'a str>,
    pub(crate) influence: &'a str,
    pub(crate) content: bool,
    pub(crate) answering: PredicateArgs,
}

/// Runs the command; returns the exit code.
pub(crate) fn run(options: &ExplainOptions<'_>, output: &mut Console) -> Result<u8, InputError> {
    let policy = Arc::new(load_policy(options.policy, output)?);
    let method = MethodRegistry::builtin().find_influence(options.influence).unwrap_or(&EverythingMethod);
    let name = options.policy.display().to_string();
    let predicates = options.answering.predicates(&policy, &name)?;
    let (mut shown, mut objections, mut errors) = (0, false, Vec::new());
    let is_wanted = !stdout().is_terminal();
    let progress = Progress::over_files(&[options.trace.to_owned()], "run", is_wanted, output);
    input::for_each_run(options.trace, &progress, &mut |item| {
        match item {
            Ok((_, run)) => {
                let replayed = replay_with(&policy, &predicates, method, &run);
                for (index, call) in replayed.calls.iter().enumerate() {
                    if progress.is_interrupted() {
                        break;
                    }
                    if options.call.is_some_and(|wanted| wanted != call.id) {
                        continue;
                    }
                    shown += 1;
                    objections |= call.outcome != Outcome::Permit;
                    print_tree(call, &replayed, &name, options.content, output);
                    if call.outcome != Outcome::Permit {
                        changes(index, &replayed, &policy, &predicates, method, &run, output);
                    }
                    output.line("");
                }
            }
            Err(error) => errors.push(error),
        }
        progress.step();
        true
    })?;
    let is_interrupted = progress.finish(output);
    for error in &errors {
        output.error(&error.0);
    }
    if is_interrupted {
        return Ok(INTERRUPTED);
    }
    match (shown, options.call) {
        (0, Some(wanted)) => {
            Err(InputError(format!("{}: no call has the id `{wanted}`", options.trace.display())))
        }
        (0, None) => Err(InputError(format!("{}: there is no call to explain", options.trace.display()))),
        _ if !errors.is_empty() => Ok(2),
        _ => Ok(u8::from(objections)),
    }
}

/// Prints the call, its parts with their labels, and below each part the reasons against it.
fn print_tree(call: &JudgedCall, run: &ReplayedRun, policy: &str, content: bool, output: &mut Console) {
    let mark = report::outcome_mark(call.outcome, output);
    let title = escaping::line(&format!("{} ({})", call.tool, call.id));
    let title = output.paint("1", &title);
    output.line(&format!("{} {title}", mark.trim_end()));
    let parts = parts(call, run);
    let general: Vec<&Reason> =
        call.judgement.reasons.iter().filter(|reason| reason.part.is_none()).collect();
    let count = parts.len() + general.len();
    for (index, (part, label)) in parts.iter().enumerate() {
        let last = index + 1 == count;
        let against: Vec<&Reason> =
            call.judgement.reasons.iter().filter(|reason| reason.part.as_deref() == Some(part)).collect();
        let sign = if against.is_empty() { output.paint("32", "✓") } else { output.paint("33", "✗") };
        output.line(&format!("{} {sign} {part}: {label}", if last { "└─" } else { "├─" }));
        let indent = if last { "     " } else { "│    " };
        for reason in against {
            explain_reason(reason, run, policy, content, indent, output);
        }
    }
    for (index, reason) in general.iter().enumerate() {
        let last = parts.len() + index + 1 == count;
        output.line(&format!(
            "{} {} {}",
            if last { "└─" } else { "├─" },
            output.paint("31", "✗"),
            reason.kind.name()
        ));
        let indent = if last { "     " } else { "│    " };
        explain_reason(reason, run, policy, content, indent, output);
    }
}

fn explain_reason(
    reason: &Reason,
    run: &ReplayedRun,
    policy: &str,
    content: bool,
    indent: &str,
    output: &mut Console,
) {
    report::print_reason(reason, &run.monitor, policy, content, indent, output);
    let mut lines: Vec<String> = Vec::new();
    for (region, _) in &reason.regions {
        let why = why_labelled(region.event, region, run);
        if !lines.contains(&why) {
            output.line(&format!("{indent}      {why}"));
            lines.push(why);
        }
    }
}

/// Returns why a region has its label.
fn why_labelled(event: EventId, region: &flowgate::trace::Region, run: &ReplayedRun) -> String {
    let trace = run.monitor.trace();
    let Some(found) = trace.event(event) else { return String::new() };
    let node = (0..found.document.nodes().len()).find(|node| found.document.path(*node) == region.path);
    let declared = node.is_some_and(|node| found.document.is_declared(node));
    let call = found.call.and_then(|call| trace.event(call));
    match &found.body {
        EventBody::Message(message) if message.role == "assistant" => {
            "the model wrote it, so it carries the labels of everything that the model had read".to_owned()
        }
        _ if declared => {
            "a statement labels it; the labels of the call and of its store are joined to that".to_owned()
        }
        EventBody::Output(_) => match call.and_then(|call| call.tool()) {
            Some(tool) => {
                format!(
                    "no statement labels this part of the answers of {}, so its label is top",
                    pattern(tool)
                )
            }
            None => "it answers no permitted call, so its label is top".to_owned(),
        },
        _ => "no statement labels it, so its label is top".to_owned(),
    }
}

/// Returns the decision and the arguments of a call with their labels in words.
fn parts(call: &JudgedCall, run: &ReplayedRun) -> Vec<(String, String)> {
    let Some(event) = call.event.and_then(|id| run.monitor.trace().event(id)) else { return Vec::new() };
    let document = &event.document;
    let words = |label| run.monitor.describe(&label).join(", ");
    let mut parts =
        vec![("decision".to_owned(), document.node(0).map_or(String::new(), |node| words(node.label)))];
    for child in document.key(0, "arguments").into_iter().flat_map(|arguments| document.children(arguments)) {
        parts.push((document.path(child).to_string(), words(document.label_of(child))));
    }
    parts
}

/// Prints the fewest statements that, added to the policy, permit the call.
fn changes(
    index: usize,
    run: &ReplayedRun,
    policy: &Policy,
    predicates: &Predicates,
    method: &dyn InfluenceMethod,
    recorded: &RecordedRun,
    output: &mut Console,
) {
    let Some(call) = run.calls.get(index) else { return };
    let unchangeable = call
        .judgement
        .reasons
        .iter()
        .find(|reason| !matches!(reason.kind, ReasonKind::Requirement | ReasonKind::Undeclared));
    if let Some(reason) = unchangeable {
        let advice = match reason.kind {
            ReasonKind::Rule => "a rule denies the call: only a change of the rule would permit it",
            ReasonKind::AmbiguousTool => "name the server in the pattern: `tool:SERVER/NAME`",
            ReasonKind::Hidden => "the influence method hides what the call needs: try another method",
            _ => "no statement of a policy can permit this call",
        };
        output.line(&format!("  {advice}"));
        return;
    }
    let candidates = candidates(call, run);
    let mut until = recorded.clone();
    until.entries.truncate(call.entry + 1);
    let permits = |statements: &[&String]| {
        let added: Vec<&str> = statements.iter().map(|statement| statement.as_str()).collect();
        let source = format!("{}\n{}\n", policy.source(), added.join("\n"));
        let Ok(changed) = Policy::parse(&source) else { return false };
        let again = replay_with(&Arc::new(changed), predicates, method, &until);
        again.calls.get(index).is_some_and(|call| call.outcome == Outcome::Permit)
    };
    match smallest(&candidates, permits) {
        Some(statements) => {
            output
                .line("  The smallest change of the policy that would permit it, if that is what you want:");
            for line in statements.iter().flat_map(|statement| statement.lines()) {
                let line = output.paint("36", line);
                output.line(&format!("    {line}"));
            }
        }
        None => output.line("  No small addition to the policy would permit it."),
    }
}

/// Returns the first of the smallest sets of statements that permits the call.
fn smallest(candidates: &[String], permits: impl Fn(&[&String]) -> bool) -> Option<Vec<&String>> {
    let mut trials = 0;
    let mut layer: Vec<Vec<usize>> = vec![Vec::new()];
    for _ in 0..4 {
        let mut next = Vec::new();
        for set in &layer {
            let from = set.last().map_or(0, |last| last + 1);
            for index in from..candidates.len() {
                let larger: Vec<usize> = set.iter().copied().chain([index]).collect();
                let statements: Vec<&String> =
                    larger.iter().filter_map(|index| candidates.get(*index)).collect();
                trials += 1;
                if permits(&statements) {
                    return Some(statements);
                }
                if trials >= MAX_TRIALS {
                    return None;
                }
                next.push(larger);
            }
        }
        layer = next;
    }
    None
}

/// Returns statements that could permit the call, the narrowest first.
fn candidates(call: &JudgedCall, run: &ReplayedRun) -> Vec<String> {
    let tool = pattern(&call.tool);
    let on_call = |head: String, condition: Option<String>| {
        let condition = condition.map(|condition| format!("\n    {condition}")).unwrap_or_default();
        format!("{head} if:\n    (call: ToolCall) is {tool}{condition}")
    };
    let (mut narrow, mut labels, mut wide) = (Vec::new(), Vec::new(), Vec::new());
    for reason in &call.judgement.reasons {
        let elements = reason.required.join(", ");
        if let Some(argument) = reason.part.as_deref().and_then(|part| part.strip_prefix("arguments.")) {
            let path = format!("call.arguments.{argument}");
            for kind in ["is_date", "is_datetime", "is_time", "is_bool", "is_integer", "is_number"] {
                narrow
                    .push(on_call(format!("endorse {path} as {elements}"), Some(format!("{kind}({path})"))));
            }
            narrow.push(on_call(format!("payload {path}"), None));
        }
        for (region, _) in &reason.regions {
            labels.extend(label_statement(region, run, &elements));
            let whole = flowgate::trace::Region {
                path: flowgate::trace::Path(region.path.0.iter().take(1).cloned().collect()),
                ..region.clone()
            };
            wide.extend(label_statement(&whole, run, &elements));
        }
        wide.push(on_call(format!("require {}", reason.label.join(", ")), None));
    }
    let mut all: Vec<String> = Vec::new();
    for statement in narrow.into_iter().chain(labels).chain(wide) {
        if !all.contains(&statement) {
            all.push(statement);
        }
    }
    all
}

/// Returns a statement that labels the field, in every row.
fn label_statement(region: &flowgate::trace::Region, run: &ReplayedRun, elements: &str) -> Option<String> {
    let event = run.monitor.trace().event(region.event)?;
    match &event.body {
        EventBody::Message(message) if message.role != "assistant" => Some(format!(
            "label message as {elements} if:\n    (message: Message)\n    message.role == {:?}",
            message.role
        )),
        EventBody::Output(_) => {
            let tool = run.monitor.trace().event(event.call?)?.tool()?;
            let mut path = "out".to_owned();
            for step in &region.path.0 {
                match step {
                    PathStep::Index(_) => path.push_str("[*]"),
                    PathStep::Key(key)
                        if key.chars().all(|c| c.is_alphanumeric() || c == '_') && !key.is_empty() =>
                    {
                        path.push('.');
                        path.push_str(key);
                    }
                    PathStep::Key(_) => path.push_str("[*]"),
                    PathStep::Capture(_) => return None,
                }
            }
            Some(format!("label {path} as {elements} if:\n    (out: ToolOutput) is {}", pattern(tool)))
        }
        _ => None,
    }
}

/// Returns the pattern that matches exactly this tool.
fn pattern(tool: &Tool) -> String {
    let is_word = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    match &tool.server {
        Some(server) if is_word(server) && is_word(&tool.name) => format!("tool:{server}/{}", tool.name),
        None if is_word(&tool.name) => format!("tool:{}", tool.name),
        _ => format!("tool:{:?}", &*tool.name),
    }
}
