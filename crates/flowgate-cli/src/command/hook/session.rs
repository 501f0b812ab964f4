//! Replays a transcript in a monitor.

use std::collections::HashSet;

use flowgate::monitor::{Attribution, Monitor, ReasonKind};
use flowgate::policy::Action;
use flowgate::trace::{Body, Entry, Message};
use serde_json::Value;

use super::Event;
use super::answer::told;
use super::transcript::{Happened, Transcript};

/// The call or output that is judged.
#[derive(Debug)]
pub(super) struct Pending {
    /// The id of the call.
    pub(super) id: String,
    /// The sub-agent of the call.
    pub(super) agent: Option<String>,
    pub(super) event: Event,
}

/// Replays a transcript in a monitor, except the call or the answer that is judged.
pub(super) fn replay(monitor: &mut Monitor, transcript: &Transcript, pending: &Pending) {
    let refused: HashSet<&str> = transcript.refused().collect();
    let unanswered = transcript.unanswered(pending);
    for step in transcript.steps() {
        match &step.happened {
            Happened::Event(entry) => match &entry.body {
                Body::Call(call) if refused.contains(call.id.as_str()) => {}
                Body::Call(call) if call.id == pending.id && pending.event == Event::Before => {}
                Body::Output(output) if output.call_id == pending.id && pending.event == Event::After => {}
                Body::Call(call) => {
                    monitor.record((**entry).clone(), &Attribution::everything());
                    if unanswered.contains(call.id.as_str()) {
                        unknown(monitor);
                    }
                }
                _ => push(monitor, (**entry).clone()),
            },
            // The call did not run; the message about it has the labels of everything that the verdict may have
            // depended on.
            Happened::Refused { says, .. } => push(monitor, said("assistant", says.clone())),
            Happened::Began(agent) if transcript.knows(agent) => {}
            Happened::Began(_) | Happened::Unknown => unknown(monitor),
        }
    }
}

fn said(role: &str, content: Value) -> Entry {
    Entry::from(Body::Message(Message { role: role.to_owned(), content }))
}

/// Notes that the model read something that is not in the transcript; its label is top.
fn unknown(monitor: &mut Monitor) {
    let top = monitor.policy().space().top();
    let entry = said("assistant", Value::String(String::new()));
    // If the trace is full, the call is refused as well.
    let _ = monitor.push_generated(entry, top);
}

fn push(monitor: &mut Monitor, entry: Entry) {
    // A full session refuses the call as well.
    let _ = monitor.push(entry);
}

/// Returns whether there is a call with this id.
pub(super) fn has(monitor: &Monitor, id: &str) -> bool {
    monitor.trace().calls_with_id(id).next().is_some()
}

/// Returns why an output or a prompt is withheld from the model.
pub(super) fn objections(monitor: &mut Monitor, entry: Entry) -> Result<Option<String>, String> {
    let (event, findings) = monitor.push(entry).map_err(|error| error.to_string())?;
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let objects =
        |reason: &flowgate::monitor::Reason| kinds.contains(&reason.kind) && reason.action != Action::Log;
    let reasons: Vec<_> = findings.into_iter().map(|found| found.reason).filter(objects).collect();
    if !reasons.is_empty() {
        return Ok(Some(format!("the policy withholds this: {}", told(&reasons))));
    }
    let label = monitor.trace().event(event).map(|event| event.label);
    let is_cleared = monitor
        .clearance("model")
        .is_none_or(|clearance| label.is_some_and(|label| label.flows_to(&clearance)));
    Ok((!is_cleared).then(|| "the policy withholds this: the model may not read it".to_owned()))
}
