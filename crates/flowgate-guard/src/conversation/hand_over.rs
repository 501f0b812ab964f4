//! Hands calls over to a caller that runs tools itself, such as a client of the gateway. The caller receives the calls
//! that may run, and sends back the answers of their tools, which this module records.
//!
//! [`super::apply`] hands calls over, and [`super::merge`] records the answers. All calls of a message are judged, one
//! after the other, before any of them is handed over. A handed-over call is answered once. Any other message that
//! claims to be an answer is labelled top.

use flowgate::label::Label;
use flowgate::monitor::{AuthorizedCall, PushError};
use flowgate::trace::{EventBody, EventId, Output, Tool, TraceEntry};
use flowgate_lm::chat::Part;
use serde_json::Value;

use super::{Conversation, ConversationPhase, HandedOverCall, blocking_messages};
use crate::catalogue::OfferedTool;
use crate::view::{CallOutcome, ConversationItem};

impl Conversation {
    /// Hands the call that is about [to run](super::Need::Run) to the caller. The outcome of the call stays open until
    /// the caller reports it. Does nothing if no call is about to run.
    pub(super) fn hand_over_call(&mut self, call: &AuthorizedCall) {
        let ConversationPhase::Running { index, event } = self.phase else { return };
        // The caller receives the call, so the answer to the caller carries the label of its step.
        self.labels.add_output(&self.last_step().map_or(*self.labels.base(), |step| step.label));
        self.turn.hand_over(HandedOverCall::from(call));
        self.set_outcome(index, CallOutcome::HandedOver(event));
    }

    /// Returns the [digest](crate::approve::ApprovalRequest::digest) of the call that a person has approved and that is
    /// about [to run](super::Need::Run); `None` if no person approved it.
    pub fn approved_call(&self) -> Option<&str> {
        self.turn.approved_digest()
    }

    /// Records that an approved call that was about [to run](super::Need::Run) begins to run: its approval is used,
    /// whatever becomes of the turn.
    pub fn record_begun_call(&mut self) {
        self.turn.spend_approval();
    }

    /// Records that an approved call that was about [to run](super::Need::Run) does not run, because of `cause`.
    pub fn record_voided_call(&mut self, cause: &str) {
        self.turn.void_approval(cause);
    }

    /// Returns whether calls of the last message run elsewhere and are not answered yet.
    pub(super) fn waits_for_answers(&self) -> bool {
        let is_handed = |answer: &CallOutcome| matches!(answer, CallOutcome::HandedOver(_));
        self.last_step().is_some_and(|step| step.calls.iter().any(|step_call| is_handed(&step_call.answer)))
    }

    /// Returns whether exactly these tools are on offer already: each with this description and this schema of its
    /// arguments, both written by a server.
    pub fn has_offered<'a>(&self, tools: impl ExactSizeIterator<Item = (Tool, &'a str, &'a Value)>) -> bool {
        self.tools.is_described(tools)
    }

    /// Returns the tool with this identity as it is on offer; `None` if it is not.
    pub fn offered_tool(&self, tool: &Tool) -> Option<&OfferedTool> {
        self.tools.offered(tool)
    }

    /// Replaces the tools on offer. The base label, at which each turn starts, is the strictest requirement of the
    /// tools on offer, limited to the clearance of the model. This function therefore computes the base label of the
    /// following turns again.
    ///
    /// # Errors
    /// If the session has no room for the descriptions of the tools.
    pub(super) fn replace_tools(&mut self, tools: Vec<OfferedTool>) -> Result<(), PushError> {
        self.items.drop_cached_view();
        self.tools.replace(&mut self.monitor, tools)?;
        let lowest = self.clamp_to_clearance(self.tools.strictest_requirement(&self.monitor));
        self.labels.set_lowest(lowest);
        Ok(())
    }

    /// Records the answer (`content`) that the caller reports for the handed-over call with this id. The answer carries
    /// at least the label `floor`. If the same answer was observed outside the chat, its event becomes the outcome of
    /// the call, and no second event is added. Returns the label of the answer. Returns `None` if no call with this id
    /// was handed over, or if the call is answered already.
    ///
    /// # Errors
    /// If the session has no room for the answer.
    pub(super) fn record_external_answer(
        &mut self,
        id: &str,
        content: &[Part],
        is_error: Option<bool>,
        floor: Label,
    ) -> Result<Option<Label>, PushError> {
        let id = self.handed.id_in_trace(id).to_owned();
        let id = id.as_str();
        let Some((item, index, event)) = self.find_handed_over_call(id) else { return Ok(None) };
        if let Some((observed, label)) = self.find_outside_answer(id, content)
            // The recorded event can be the answer only if its label is at or above `floor`.
            && floor.flows_to(&label)
            // If another answer may be the one that is reported, which of the two labels applies could depend on hidden
            // text; the code after this `if` then applies the join of both.
            && !self.handed.has_other_answer(event, self.monitor.trace())
        {
            self.set_outcome_at(item, index, CallOutcome::Output(observed));
            return Ok(Some(label));
        }
        // Answers of the call, or of calls that it may be confused with, may have been observed outside the chat. What
        // the caller reports carries at least the labels of these answers.
        let floor = self
            .handed
            .label_of_answers(event, self.monitor.trace())
            .map_or(floor, |label| floor.join(&label));
        let content = match content {
            [Part::Text(text)] => Value::String(text.clone()),
            parts => parts.iter().map(super::merge::to_content_block).collect(),
        };
        // Whether a rule stops the answer depends on what the rule reads, so the answer carries the label of that
        // text as well.
        let tool = self.monitor.trace().event(event).and_then(|call| call.tool());
        let floor = tool.map_or(floor, |tool| floor.join(&self.monitor.output_floor(tool)));
        let output = Output { call_id: id.to_owned(), tool: None, content, structured: None, is_error };
        let (event, findings) = self.monitor.push_with_floors(TraceEntry::from(output), &floor.into())?;
        let label = self.monitor.trace().event(event).map_or(Label::BOTTOM, |event| event.label);
        let objections = blocking_messages(findings);
        let answer = match objections.is_empty() {
            true => CallOutcome::Output(event),
            false => self.stopped_outcome(event, objections),
        };
        self.set_outcome_at(item, index, answer);
        Ok(Some(label))
    }

    /// Replaces the answer of an answered call by a text that the caller wrote in its place. The text carries the join
    /// of `floor`, of the label of the previous answer, and of the labels of answers that were recorded outside the
    /// chat. Returns this join; `None` if no answered call has this id. An answer that a rule stopped counts as an
    /// answer, other refusals do not.
    pub(super) fn rewrite_answer(&mut self, id: &str, text: &str, floor: &Label) -> Option<Label> {
        let answer_event = |outcome: &CallOutcome| match outcome {
            CallOutcome::Output(event) => Some(*event),
            // A stopped answer counts as well: otherwise the history would show whether a rule stopped the answer.
            CallOutcome::Refused { stopped, .. } => *stopped,
            _ => None,
        };
        let (item, index, event) = self.find_call(answer_event, self.handed.id_in_trace(id))?;
        let previous_label = self.monitor.trace().event(event).map(|event| event.label);
        let label = floor.join(&previous_label.unwrap_or_else(|| self.monitor.policy().space().top()));
        // The call may have run outside the chat since it was answered.
        let trace = self.monitor.trace();
        let outside = trace.event(event).and_then(|answer| self.handed.label_of_answers(answer.call?, trace));
        let label = outside.map_or(label, |outside| label.join(&outside));
        self.set_outcome_at(item, index, CallOutcome::Rewritten { text: text.to_owned(), label });
        Some(label)
    }

    /// Finds the handed-over call that has this id in the trace and that the caller has not answered yet. Returns the
    /// index of its step among the items of the chat, its index in the step, and the event of the call. `None` if there
    /// is no such call.
    fn find_handed_over_call(&self, id: &str) -> Option<(usize, usize, EventId)> {
        self.find_call(
            |answer| match answer {
                CallOutcome::HandedOver(event) => Some(*event),
                _ => None,
            },
            id,
        )
    }

    /// Finds the call with this id among the calls that `event_of` selects by their outcomes: for the outcome of a
    /// selected call, `event_of` returns the event of the call or of its answer, and for any other outcome, `None`.
    /// Returns the index of the call's step among the items of the chat, the index of the call in the step, and the
    /// event that `event_of` returned. `None` if there is no such call.
    fn find_call(
        &self,
        event_of: impl Fn(&CallOutcome) -> Option<EventId>,
        id: &str,
    ) -> Option<(usize, usize, EventId)> {
        let has_id = |event: EventId| {
            let event = self.monitor.trace().event(event);
            // The event of an answer refers to its call.
            let call = event.and_then(|event| event.call).and_then(|call| self.monitor.trace().event(call));
            matches!(call.or(event).map(|call| &call.body), Some(EventBody::Call(call)) if call.id == id)
        };
        for (at, step) in self.items.steps() {
            for (index, step_call) in step.calls.iter().enumerate() {
                let Some(event) = event_of(&step_call.answer) else { continue };
                if has_id(event) {
                    return Some((at, index, event));
                }
            }
        }
        None
    }

    /// Sets the outcome of a call of any step, without an effect on the phase. `item` is the index of the step among
    /// the items of the chat, and `index` is the index of the call in the step.
    fn set_outcome_at(&mut self, item: usize, index: usize, outcome: CallOutcome) {
        if let Some(ConversationItem::Step(step)) = self.items.get_mut(item)
            && let Some(step_call) = step.calls.get_mut(index)
        {
            step_call.answer = outcome;
        }
    }
}
