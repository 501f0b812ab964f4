//! Prints a call as a tree: its parts with their labels, the reasons against each part, and where the values come from.

use flowgate::monitor::Reason;
use flowgate::trace::{EventBody, EventId, Region};
use flowgate_guard::replay::{JudgedCall, ReplayedRun};

use super::{origin, tool_pattern};
use crate::output::Console;
use crate::{escaping, report};

/// The options by which a tree is printed.
pub(super) struct TreeStyle<'a> {
    /// The name of the policy's file.
    pub(super) policy: &'a str,
    /// Whether the text of regions is shown.
    pub(super) content: bool,
}

/// Prints the call, its parts with their labels, and below each part the reasons against it. `traced` is the same run
/// with the calls attributed by their values.
pub(super) fn print(
    call: &JudgedCall,
    run: &ReplayedRun,
    traced: Option<&JudgedCall>,
    style: &TreeStyle<'_>,
    output: &mut Console,
) {
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
        output.line(&format!("{} {sign} {}: {label}", if last { "└─" } else { "├─" }, escaping::line(part)));
        let indent = if last { "     " } else { "│    " };
        for reason in &against {
            print_reason(reason, run, style, indent, output);
        }
        if let (false, Some(argument)) = (against.is_empty(), part.strip_prefix("arguments")) {
            let argument = argument.trim_start_matches('.');
            for line in origin::lines(call, run, traced, argument, style.policy) {
                output.line(&format!("{indent}{}", escaping::line(&line)));
            }
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
        print_reason(reason, run, style, if last { "     " } else { "│    " }, output);
    }
}

fn print_reason(
    reason: &Reason,
    run: &ReplayedRun,
    style: &TreeStyle<'_>,
    indent: &str,
    output: &mut Console,
) {
    report::print_reason(reason, &run.monitor, style.policy, style.content, indent, output);
    let mut lines: Vec<String> = Vec::new();
    for (region, _) in &reason.regions {
        let why = why_labelled(region.event, region, run);
        if !lines.contains(&why) {
            output.line(&format!("{indent}      {why}"));
            lines.push(why);
        }
    }
}

/// Returns why a region has its label: the model wrote it, a statement labels it, or no statement does.
fn why_labelled(event: EventId, region: &Region, run: &ReplayedRun) -> String {
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
                    tool_pattern(tool)
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
