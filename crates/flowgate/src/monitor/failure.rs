//! Records calls that fail: the server does not answer, reports a failure, or sends an answer that cannot be read in
//! exactly one way. The program that runs the tools calls [`Monitor::push_failure`] for such a call.
//!
//! Whether a call fails depends on what its answer would have contained, so the failure is an event as well.
//! Its text is a constant of the caller; its label is the greatest that any answer of the tool may carry,
//! since the answer itself is unknown.

use serde_json::Value;

use super::{EventFinding, Floors, Monitor, PushError};
use crate::label::Label;
use crate::trace::{EventId, Status, TraceEntry};

/// # Failed calls
///
/// A call that ran without an answer of its tool, and the label that its outcome may carry.
impl Monitor {
    /// Appends the outcome of a call without a usable answer, and returns its event and the findings about it. `text`
    /// replaces the answer; it is a constant, so that it reveals nothing of the answer.
    ///
    /// The event carries [`failure_label`](Self::failure_label). No statement of the policy can lower this label, since
    /// there is no answer to which a statement could apply.
    ///
    /// # Errors
    /// If the session has reached its limit of agents, or of events ([`Limits::events`](super::Limits::events)).
    pub fn push_failure(
        &mut self,
        call_id: &str,
        text: &'static str,
    ) -> Result<(EventId, Vec<EventFinding>), PushError> {
        let floors = Floors::from(self.failure_label(call_id));
        let (call_id, content) = (call_id.to_owned(), Value::from(text));
        // The event has no view, since no model wrote it.
        let (view, is_failure) = (None, true);
        self.push_event(TraceEntry::tool_error(call_id, content), view, &floors, is_failure)
    }

    /// Returns the label of the event that reports the failure of a call. Whether a call fails may depend on anything
    /// that its answer could contain, so this is the greatest label that any answer of the call may carry: the join of
    ///
    /// * the labels of the call, of its verdict and of the stores that it reads,
    /// * the greatest label that the policy allows for an answer of the tool: top in each dimension for which no
    ///   statement labels the whole answer,
    /// * the labels of the events by which a rule may stop the answer ([`output_floor`](Self::output_floor)).
    ///
    /// Top if not exactly one call has this id, or if that call has not run.
    pub fn failure_label(&self, call_id: &str) -> Label {
        let top = self.policy.space().top();
        let mut calls = self.trace.calls_with_id(call_id);
        let (Some(id), None) = (calls.next(), calls.next()) else { return top };
        let Some(call) = self.trace.event(id).filter(|call| call.status == Status::Done) else { return top };
        let Some(tool) = call.tool() else { return top };
        let stores = self.accesses.get(&id).map_or(Label::BOTTOM, |access| self.stores.label(&access.reads));
        let label = call.label.join(&call.decided).join(&stores);
        label.join(&self.greatest_output_label(tool, top)).join(&self.output_floor(tool))
    }
}
