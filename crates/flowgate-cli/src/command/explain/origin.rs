//! Explains where the value of an argument comes from, for `flowgate explain`: finds the region of the trace in which
//! the value occurs first, if there is one, and the `endorse` statements that name the argument and did not apply.
//! `tree` prints the result below the argument.

use flowgate::monitor::CallDependency;
use flowgate::trace::{EventBody, EventId, NodeContent, NodeId, PathStep};
use flowgate_guard::replay::{JudgedCall, ReplayedRun};
use serde_json::Value;

use crate::output::plural;
use crate::report;

/// The maximum number of texts of one argument that are searched for.
const MAX_TEXTS: usize = 5;
/// The least length, in characters, of a text that is searched for within other texts. A shorter text would be found
/// there by chance.
const SHORTEST: usize = 3;

/// Returns the lines that explain an argument that a reason of the verdict names. One line states where the value of
/// the argument occurs first. One line for each `endorse` statement about the argument states that the statement did
/// not apply. `traced` is the same call in a second replay, with the influence method `provenance`, which shows where the
/// values of arguments come from; `None` if that replay has no such call. `policy` is the name of the policy's file.
pub(super) fn origin_lines(
    call: &JudgedCall,
    run: &ReplayedRun,
    traced: Option<&JudgedCall>,
    argument: &str,
    policy: &str,
) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(line) = value_line(call, run, traced, argument) {
        lines.push(line);
    }
    let compiled = run.monitor.policy();
    for span in compiled.endorsements(&call.tool, argument) {
        lines.push(format!(
            "an `endorse` for this argument, in {policy}:{}, did not apply: its conditions do not hold for the value, or they \
             read text that is not trusted",
            compiled.line(span)
        ));
    }
    lines
}

/// Returns the line that states where the value of an argument occurs first, spelled as in the call. For a list or an
/// object, it states where any of its texts and numbers occurs first. If the value occurs nowhere in this spelling, the
/// line names the region in which the method `provenance` (`traced`) found it in another spelling, or states that the
/// value was found nowhere. Returns `None` if the call is not in the trace, or if `provenance` reports neither.
fn value_line(
    call: &JudgedCall,
    run: &ReplayedRun,
    traced: Option<&JudgedCall>,
    argument: &str,
) -> Option<String> {
    let texts = argument_texts(call, run, argument);
    let call_event = call.event?;
    let mut found: Vec<(EventId, NodeId)> =
        texts.iter().flat_map(|text| occurrences(run, text, call_event)).collect();
    found.sort_unstable();
    found.dedup();
    if let Some((first, more)) = found.split_first() {
        let label = run.monitor.trace().event(first.0)?.document.label_of(first.1);
        let others = match more.len() {
            0 => String::new(),
            count => format!(", and later in {}", plural(count, "further region")),
        };
        return Some(format!(
            "its value occurs first in {}: {}{others}",
            describe_region(first.0, first.1, run),
            run.monitor.describe(&label).join(", ")
        ));
    }
    match traced?.attribution.argument(argument) {
        CallDependency::Regions(regions) => {
            let (event, node) = regions.first()?;
            // A short text was not searched for within other texts, so it may be spelled there as in the call.
            let is_short = texts.iter().any(|text| text.chars().count() < SHORTEST);
            let spelling = if is_short { "" } else { "in another spelling " };
            Some(format!("its value occurs {spelling}in {}", describe_region(*event, *node, run)))
        }
        // `provenance` returns this for a value that no region contains.
        CallDependency::Everything => {
            Some("its value was found nowhere in the trace: the model computed it, or made it up".to_owned())
        }
        _ => None,
    }
}

/// Returns a phrase for a region: its path, and the event that it is in.
fn describe_region(event: EventId, node: NodeId, run: &ReplayedRun) -> String {
    let region = run.monitor.trace().region(event, node);
    let source = report::region_source(&region, &run.monitor);
    let is_message =
        run.monitor.trace().event(event).is_some_and(|e| matches!(e.body, EventBody::Message(_)));
    format!("{} in the {source}{}", region.path, if is_message { " message" } else { "" })
}

/// Returns the names of the arguments of a call; none if the call is not an event of the trace.
pub(super) fn argument_names(call: &JudgedCall, run: &ReplayedRun) -> Vec<String> {
    let body = call.event.and_then(|event| run.monitor.trace().event(event)).map(|event| &event.body);
    match body {
        Some(EventBody::Call(call)) => {
            call.arguments.iter().flat_map(|arguments| arguments.keys().cloned()).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the texts and numbers in the value of an argument, in order, at most [`MAX_TEXTS`]; for a scalar, its value
/// alone. Empty if the call has no such argument, or is not an event of the trace.
pub(super) fn argument_texts(call: &JudgedCall, run: &ReplayedRun, argument: &str) -> Vec<String> {
    let Some(document) = call.event.and_then(|event| run.monitor.trace().event(event)).map(|e| &e.document)
    else {
        return Vec::new();
    };
    let Some(root) = document.key(0, "arguments").and_then(|arguments| document.key(arguments, argument))
    else {
        return Vec::new();
    };
    // The nodes from `root` to `end` are the value and everything in it.
    let end = document.node(root).map_or(root, |node| node.end);
    let scalars = (root..end).filter_map(|node| match &document.node(node)?.content {
        NodeContent::Scalar(Value::String(text)) => Some(text.trim().to_owned()),
        NodeContent::Scalar(value @ Value::Number(_)) => Some(value.to_string()),
        _ => None,
    });
    scalars.filter(|text| !text.is_empty()).take(MAX_TEXTS).collect()
}

/// Returns the scalars of the events before `before` that contain a text, in order. Captures are left out: each
/// repeats a part of a scalar.
fn occurrences(run: &ReplayedRun, text: &str, before: EventId) -> Vec<(EventId, NodeId)> {
    let mut found = Vec::new();
    for (index, event) in run.monitor.trace().events().iter().enumerate().take(before.0) {
        let document = &event.document;
        for (id, node) in document.nodes().iter().enumerate() {
            let is_captured = matches!(node.step, PathStep::Capture(_));
            if let (NodeContent::Scalar(value), false) = (&node.content, is_captured)
                && contains(value, text)
            {
                found.push((EventId(index), id));
            }
        }
    }
    found
}

/// Returns whether the scalar `value` is equal to `text`, or contains `text` as whole words. White space around the
/// scalar is ignored. A number must be equal to `text`, and so must any scalar if `text` is shorter than [`SHORTEST`]:
/// a short text occurs in other texts by chance. Returns false for a Boolean value or null.
pub(super) fn contains(value: &Value, text: &str) -> bool {
    let whole = match value {
        Value::String(whole) => whole.trim(),
        Value::Number(number) => return number.to_string() == text,
        _ => return false,
    };
    let is_word = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    whole == text
        || (text.chars().count() >= SHORTEST
            && whole.match_indices(text).any(|(at, _)| {
                let before = whole.get(..at).and_then(|before| before.chars().next_back());
                let after = whole.get(at + text.len()..).and_then(|after| after.chars().next());
                !is_word(before) && !is_word(after)
            }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_as_whole_words() {
        for (value, text, expected) in [
            (Value::from("Your code is 481516."), "481516", true),
            (Value::from("Your code is 4815162."), "481516", false),
            (Value::from(100), "100", true),
            (Value::from(1000), "100", false),
            (Value::from("7"), "7", true),
            (Value::from("room 7"), "7", false),
            (Value::from("to ann@x.org, please"), "ann@x.org", true),
        ] {
            assert_eq!(contains(&value, text), expected, "{value} {text}");
        }
    }
}
