//! Prints a judged call as a tree, for `flowgate explain`: the parts of the call (the decision to call, and each
//! argument) with their labels, the reasons against each part, and where the values come from (`origin`).

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

/// Prints the call with its verdict; then each part with its label and, below the part, the reasons against it; and at
/// the end the reasons that concern no part. `traced` is the same call in a second replay, with the influence method
/// `provenance`, which shows where the values of arguments come from; `None` if that replay has no such call.
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
    let (parts, names) = (parts(call, run), origin::argument_names(call, run));
    let reasons_without_part: Vec<&Reason> =
        call.judgement.reasons.iter().filter(|reason| reason.part.is_none()).collect();
    let count = parts.len() + reasons_without_part.len();
    for (index, (part, label)) in parts.iter().enumerate() {
        let is_last = index + 1 == count;
        let against: Vec<&Reason> =
            call.judgement.reasons.iter().filter(|reason| reason.part.as_deref() == Some(part)).collect();
        let sign = if against.is_empty() { output.paint("32", "✓") } else { output.paint("33", "✗") };
        let (branch, indent) = branch(is_last);
        output.line(&format!("{branch} {sign} {}: {label}", escaping::line(part)));
        for reason in &against {
            print_reason(reason, run, style, indent, output);
        }
        // Below an argument that a reason objects to, prints where its value comes from.
        let argument = names.iter().find(|name| against.iter().any(|reason| reason.is_about_argument(name)));
        if let Some(argument) = argument {
            for line in origin::origin_lines(call, run, traced, argument, style.policy) {
                output.line(&format!("{indent}{}", escaping::line(&line)));
            }
        }
    }
    for (index, reason) in reasons_without_part.iter().enumerate() {
        let is_last = parts.len() + index + 1 == count;
        let (branch, indent) = branch(is_last);
        output.line(&format!("{branch} {} {}", output.paint("31", "✗"), reason.kind.name()));
        print_reason(reason, run, style, indent, output);
    }
}

/// Returns the mark before an entry of the tree, and the indent of the lines below it.
fn branch(is_last: bool) -> (&'static str, &'static str) {
    if is_last { ("└─", "     ") } else { ("├─", "│    ") }
}

/// Prints a reason and, below it, why the regions that it names have their labels, each cause once. Every line begins
/// with `indent`.
fn print_reason(
    reason: &Reason,
    run: &ReplayedRun,
    style: &TreeStyle<'_>,
    indent: &str,
    output: &mut Console,
) {
    report::print_reason(reason, &run.monitor, style.policy, style.content, indent, output);
    let mut lines: Vec<String> = Vec::new();
    // `report::print_reason` has printed the labels of the regions.
    for (region, _) in &reason.regions {
        let why = why_labelled(region.event, region, run);
        if !lines.contains(&why) {
            output.line(&format!("{indent}      {why}"));
            lines.push(why);
        }
    }
}

/// Returns why the region in `event` has its label: the model wrote it, a statement of the policy labels it, or no
/// statement does.
fn why_labelled(event: EventId, region: &Region, run: &ReplayedRun) -> String {
    let trace = run.monitor.trace();
    let Some(event_of_region) = trace.event(event) else { return String::new() };
    // A region names its path; the node with this path says whether a statement labels it.
    let node = (0..event_of_region.document.nodes().len())
        .find(|node| event_of_region.document.path(*node) == region.path);
    let is_declared = node.is_some_and(|node| event_of_region.document.is_declared(node));
    let call = event_of_region.call.and_then(|call| trace.event(call));
    match &event_of_region.body {
        EventBody::Message(message) if message.role == "assistant" => {
            "the model wrote it, so it carries the labels of everything that the model had read".to_owned()
        }
        EventBody::Output(_) if is_declared => {
            "a statement labels it; the labels of the call that it answers, and of the stores that this call reads, \
             are joined to this label"
                .to_owned()
        }
        _ if is_declared => "a statement labels it".to_owned(),
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

/// Returns the names of the parts of a call (the decision and each argument) with their labels in words; nothing
/// for a call that is not in the trace.
fn parts(call: &JudgedCall, run: &ReplayedRun) -> Vec<(String, String)> {
    let Some(event) = call.event.and_then(|id| run.monitor.trace().event(id)) else { return Vec::new() };
    let document = &event.document;
    let words = |label| run.monitor.describe(&label).join(", ");
    // The root of a call's document has the label of the decision to call, without the labels of the arguments.
    let mut parts =
        vec![("decision".to_owned(), document.node(0).map_or(String::new(), |node| words(node.label)))];
    for child in document.key(0, "arguments").into_iter().flat_map(|arguments| document.children(arguments)) {
        // An argument has the join of the labels of everything in it.
        parts.push((document.path(child).to_string(), words(document.label_of(child))));
    }
    parts
}
