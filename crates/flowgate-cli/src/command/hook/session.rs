//! Replays a transcript of Claude Code in a monitor ([`replay`]), so that [`super::judge`] judges the event of the hook
//! with the labels of all earlier events. Also adds an output or a prompt to a monitor and returns the policy's
//! objections to it ([`objections`]), and adds unknown text ([`push_unknown`]). [`super::logged`], which judges the
//! other agents without a transcript, calls these two functions as well.

use std::collections::HashSet;

use flowgate::monitor::{Attribution, Monitor, ReasonKind};
use flowgate::policy::Action;
use flowgate::trace::{EventBody, Message, TraceEntry};
use flowgate_audit::watch::describe_reasons;
use serde_json::Value;

use super::HookEvent;
use super::transcript::{PendingEvent, Transcript, TranscriptEvent};

/// Replays a transcript in a monitor. Leaves out the call or output of `pending`, the event that is judged: the caller
/// adds it. Also leaves out refused calls, which had no effect. Where the model must have read text that is missing in
/// the transcript, adds an event labelled top.
pub(super) fn replay(monitor: &mut Monitor, transcript: &Transcript, pending: &PendingEvent) {
    let refused: HashSet<&str> = transcript.refused().collect();
    let unanswered_calls = transcript.unanswered_calls(pending);
    for recorded in transcript.entries() {
        match &recorded.happened {
            TranscriptEvent::Event(entry) => match &entry.body {
                EventBody::Call(call) if refused.contains(call.id.as_str()) => {}
                EventBody::Call(call) if call.id == pending.id && pending.event == HookEvent::PreToolUse => {}
                EventBody::Output(output)
                    if output.call_id == pending.id && pending.event == HookEvent::PostToolUse => {}
                EventBody::Call(call) => {
                    monitor.record((**entry).clone(), &Attribution::everything());
                    if unanswered_calls.contains(call.id.as_str()) {
                        push_unknown(monitor);
                    }
                }
                _ => push(monitor, (**entry).clone()),
            },
            // The call did not run; the message about it has the labels of everything that the verdict may have
            // depended on.
            TranscriptEvent::Refused { says, .. } => push(monitor, message_entry("assistant", says.clone())),
            // The transcript has the entries of this sub-agent.
            TranscriptEvent::SubAgentStarted(agent) if transcript.has_agent(agent) => {}
            TranscriptEvent::SubAgentStarted(_) | TranscriptEvent::Unknown => push_unknown(monitor),
        }
    }
}

/// Returns a message as an entry of the trace.
fn message_entry(role: &str, content: Value) -> TraceEntry {
    TraceEntry::from(Message::new(role, content))
}

/// Adds an event labelled top, because the model read something that is not in the transcript. The event is an empty
/// message of the model: only its label matters.
pub(super) fn push_unknown(monitor: &mut Monitor) {
    let top = monitor.policy().space().top();
    let entry = message_entry("assistant", Value::String(String::new()));
    // Fails if the trace is full: the pending call is then denied for the same reason.
    let _ = monitor.push_generated(entry, top);
}

/// Adds an entry to the trace of the monitor, without its findings: only the pending event is judged.
fn push(monitor: &mut Monitor, entry: TraceEntry) {
    // Fails if the trace is full: the pending call is then denied for the same reason.
    let _ = monitor.push(entry);
}

/// Returns whether the monitor's trace has a call with this id.
pub(super) fn has_call(monitor: &Monitor, id: &str) -> bool {
    monitor.trace().calls_with_id(id).next().is_some()
}

/// Adds an output or a prompt (`entry`) to the trace. Returns the reason why the text must be withheld from the model;
/// `None` if the model may receive it. A text is withheld if a rule denies it, asks about it or cannot be evaluated, or
/// if its label exceeds the clearance of `model`.
///
/// # Errors
/// If the trace cannot take the entry.
pub(super) fn objections(monitor: &mut Monitor, entry: TraceEntry) -> Result<Option<String>, String> {
    let (event, findings) = monitor.push(entry).map_err(|error| error.to_string())?;
    // A rule matched, could not be evaluated, or reached a limit.
    let kinds = [ReasonKind::Rule, ReasonKind::RuleError, ReasonKind::Limit];
    let objects =
        |reason: &flowgate::monitor::Reason| kinds.contains(&reason.kind) && reason.action != Action::Log;
    let reasons: Vec<_> = findings.into_iter().map(|found| found.reason).filter(objects).collect();
    if !reasons.is_empty() {
        return Ok(Some(format!(
            "the policy withholds this text from the model: {}",
            describe_reasons(&reasons)
        )));
    }
    let label = monitor.trace().event(event).map(|event| event.label);
    // If the policy gives `model` no clearance, the model may receive every label.
    let is_cleared = monitor
        .clearance("model")
        .is_none_or(|clearance| label.is_some_and(|label| label.flows_to(&clearance)));
    Ok((!is_cleared).then(|| {
        "the policy withholds this text from the model: its label exceeds the clearance of `model`".to_owned()
    }))
}
