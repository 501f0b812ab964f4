//! Records the inputs of a monitor: declared tools, events with their [`Floors`], calls with their attributions, which
//! calls ran, and records of the external state. From these inputs,
//! [`Monitor::rejudge`](super::Monitor::rejudge) judges the same session under another policy.
//!
//! Nothing is recorded unless the program, such as the gateway, calls
//! [`Monitor::record_inputs`](super::Monitor::record_inputs) before the first event, since the record holds a copy of
//! each event.

use serde_json::Value;

use super::{Attribution, Floors, Monitor};
use crate::label::Label;
use crate::trace::{EventBody, EventId, Tool, TraceEntry};

/// One input of a monitor. The record has the inputs in the order in which the monitor received them.
#[derive(Debug, Clone)]
pub(super) enum MonitorInput {
    /// A tool that was declared.
    Declared(Tool),
    /// A message, an output or a description.
    Pushed(PushedInput),
    /// A call that was judged. `events_before` is the number of events of the trace before it.
    Judged { entry: TraceEntry, attribution: Attribution, events_before: usize },
    /// The call with this id ran, as this event.
    Ran { call: String, event: EventId },
    /// The record of the external state, from other sessions.
    ExternalState(Value),
    /// An output after which another output of the same call was allowed.
    AnotherOutput(EventId),
}

/// An event that was pushed.
#[derive(Debug, Clone)]
pub(super) struct PushedInput {
    pub(super) entry: TraceEntry,
    /// The label of what a model was shown before it wrote the event.
    pub(super) view: Option<Label>,
    pub(super) floors: Floors,
    /// Whether the event is the outcome of a failed call.
    pub(super) is_failure: bool,
    pub(super) event: EventId,
    /// For an output, the floor that follows from the rules of the policy ([`Monitor::output_floor`]); bottom for any
    /// other event. If `floors` exceeds this label, the caller knew another reason for it, such as a quotation.
    pub(super) rule_floor: Label,
}

/// # Records of inputs
///
/// A session that is to be judged again under another policy records its inputs.
impl Monitor {
    /// Records all further inputs, for [`rejudge`](Self::rejudge). The record holds a copy of each event. Inputs before
    /// this call are missing in the record, so a program calls it before the first event.
    pub fn record_inputs(&mut self) {
        self.inputs.get_or_insert_default();
    }

    /// Adds an input to the record, if there is one.
    pub(super) fn record_input(&mut self, input: impl FnOnce() -> MonitorInput) {
        if let Some(inputs) = &mut self.inputs {
            inputs.push(input());
        }
    }

    /// Records a call that is judged, if inputs are recorded.
    pub(super) fn record_judged(&mut self, entry: &TraceEntry, attribution: &Attribution) {
        let events_before = self.trace.len();
        self.record_input(|| MonitorInput::Judged {
            entry: entry.clone(),
            attribution: attribution.clone(),
            events_before,
        });
    }

    /// Returns the least label that an output carries because rules of the policy can stop it: the
    /// [`output_floor`](Self::output_floor) of the tool of its call. Bottom for any other event, and for an output
    /// without exactly one call.
    pub(super) fn rule_floor(&self, body: &EventBody) -> Label {
        let EventBody::Output(output) = body else { return Label::BOTTOM };
        let mut calls = self.trace.calls_with_id(&output.call_id);
        let (Some(call), None) = (calls.next(), calls.next()) else { return Label::BOTTOM };
        let tool = self.trace.event(call).and_then(|call| call.tool());
        tool.map_or(Label::BOTTOM, |tool| self.output_floor(tool))
    }
}

/// Returns the id of a call; empty for another event.
pub(super) fn call_id(entry: &TraceEntry) -> String {
    match &entry.body {
        EventBody::Call(call) => call.id.clone(),
        _ => String::new(),
    }
}
