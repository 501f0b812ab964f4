//! Calls that the caller runs itself, such as a client of a gateway: it receives the calls that may run, and sends
//! back the answers of their tools.
//!
//! All calls of a message are judged, one after the other, before any is handed over. A handed-over call is answered
//! once; anything else that claims to be an answer is labelled top.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{AuthorizedCall, PushError};
use flowgate::trace::{EventBody, EventId, Output, Tool, TraceEntry};
use flowgate_lm::chat::Part;
use serde_json::Value;

use super::{Conversation, ConversationPhase, HandedOverCall, VoidedCall, blocking_messages};
use crate::catalogue::{DescriptionAuthor, OfferedTool};
use crate::journal::Input;
use crate::view::{CallOutcome, ConversationItem};

impl Conversation {
    /// Hands the call that is about [to run](super::Need::Run) to the caller. The turn [ends](super::Turn::calls) when
    /// all calls of the message are processed, and continues when the answers are
    /// [sent](Conversation::accept_messages).
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the evidence is used up: nobody else can run the call"
    )]
    pub fn hand_over(&mut self, call: AuthorizedCall) {
        self.record_input(|| Input::HandOver);
        let ConversationPhase::Running { index, event } = self.phase else { return };
        self.output_label = self.output_label.join(&self.last_step().map_or(self.base, |step| step.label));
        let approved = self.approved.take().map(|(_, digest)| digest);
        self.turn.calls.push(HandedOverCall { approved, ..HandedOverCall::from(&call) });
        self.set_outcome(index, CallOutcome::HandedOver(event));
    }

    /// Records why an approved call that was about [to run](super::Need::Run) does not run.
    pub fn record_voided_call(&mut self, cause: &str) {
        if let Some((tool, digest)) = self.approved.take() {
            self.turn.void.push(VoidedCall { tool, digest, reasons: Vec::new(), cause: cause.to_owned() });
        }
    }

    /// Takes the approved calls of an unfinished turn, which will not run because `cause` has ended the turn.
    pub fn void_approved_calls(&mut self, cause: &str) -> Vec<VoidedCall> {
        self.record_voided_call(cause);
        let mut void = std::mem::take(&mut self.turn.void);
        for call in &mut self.turn.calls {
            let Some(digest) = call.approved.take() else { continue };
            let (tool, reasons) = (call.tool.clone(), Vec::new());
            void.push(VoidedCall { tool, digest, reasons, cause: cause.to_owned() });
        }
        void
    }

    /// Whether calls of the last message run elsewhere and are not answered yet.
    pub(super) fn waits_for_answers(&self) -> bool {
        let is_handed = |answer: &CallOutcome| matches!(answer, CallOutcome::HandedOver(_));
        self.last_step().is_some_and(|step| step.calls.iter().any(|made| is_handed(&made.answer)))
    }

    /// Whether exactly these tools are on offer already: each with its description and the schema of its arguments,
    /// as described by a server.
    pub fn has_offered<'a>(&self, tools: impl ExactSizeIterator<Item = (Tool, &'a str, &'a Value)>) -> bool {
        let Some(offered) = &self.offered else { return false };
        offered.len() == tools.len()
            && offered.iter().zip(tools).all(|(known, (tool, description, parameters))| {
                (&known.tool, known.description.as_str(), &known.parameters)
                    == (&tool, description, parameters)
                    && known.output.is_none()
                    && known.words == DescriptionAuthor::Server
            })
    }

    /// Offers these tools from the next turn on. A changed description is a new event, and labelled again.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn offer_tools(&mut self, tools: Vec<OfferedTool>) -> Result<(), PushError> {
        // Agents repeat their tools with every message.
        let is_same = |offered: &Vec<Arc<OfferedTool>>| offered.iter().map(Arc::as_ref).eq(&tools);
        if self.offered.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.record_input(|| Input::Offer(tools.clone()));
        self.offered = None;
        self.items.drop_cached_view();
        let tools: Vec<Arc<OfferedTool>> = tools.into_iter().map(Arc::new).collect();
        self.catalogue.update(&mut self.monitor, tools.clone())?;
        self.offered = Some(tools);
        let strictest = self.monitor.strictest_requirement(self.catalogue.tools());
        self.lowest = self.clamp_to_clearance(strictest);
        Ok(())
    }

    /// Records the answer of a tool that ran elsewhere. Returns its label, or `None` if no call with this id was
    /// handed over or it is answered already.
    pub(super) fn record_external_answer(
        &mut self,
        id: &str,
        content: &[Part],
        is_error: Option<bool>,
        floor: Label,
    ) -> Result<Option<Label>, PushError> {
        let Some((item, index, event)) = self.find_handed_over_call(id) else { return Ok(None) };
        if let Some((ran, label)) = self.find_outside_answer(id, content)
            && floor.flows_to(&label)
            // Otherwise it would depend on the labels of both answers, which hidden text may have chosen, how much of
            // this one is hidden.
            && !self.has_equal_answer(id)
        {
            self.set_outcome_at(item, index, CallOutcome::Output(ran));
            return Ok(Some(label));
        }
        // The call was observed when it ran: whatever the caller reports about it carries at least that label.
        let floor = self.outside_label(id).map_or(floor, |label| floor.join(&label));
        let content = match content {
            [Part::Text(text)] => Value::String(text.clone()),
            parts => parts.iter().map(super::merge::to_content_block).collect(),
        };
        let tool = self.monitor.trace().event(event).and_then(|call| call.tool());
        let floor = tool.map_or(floor, |tool| floor.join(&self.monitor.output_floor(tool)));
        let output = Output { call_id: id.to_owned(), tool: None, content, structured: None, is_error };
        let (event, findings) =
            self.monitor.push_with_floors(TraceEntry::from(EventBody::Output(output)), &floor.into())?;
        let label = self.monitor.trace().event(event).map_or(Label::BOTTOM, |event| event.label);
        let found = blocking_messages(findings);
        let answer =
            if found.is_empty() { CallOutcome::Output(event) } else { self.stopped_outcome(event, found) };
        self.set_outcome_at(item, index, answer);
        Ok(Some(label))
    }

    /// Replaces the answer of an answered call by this text, which carries the label of the previous answer. Returns
    /// the label.
    pub(super) fn rewrite_answer(&mut self, id: &str, text: &str, floor: &Label) -> Option<Label> {
        let answer = |answer: &CallOutcome| match answer {
            CallOutcome::Output(event) => Some(*event),
            // Otherwise the history would show whether a rule stopped the answer.
            CallOutcome::Refused { stopped, .. } => *stopped,
            _ => None,
        };
        let (item, index, event) = self.find_call(answer, id)?;
        let before = self.monitor.trace().event(event).map(|event| event.label);
        let label = floor.join(&before.unwrap_or_else(|| self.monitor.policy().space().top()));
        // The call may have run outside the chat since it was answered.
        let label = self.outside_label(id).map_or(label, |outside| label.join(&outside));
        self.set_outcome_at(item, index, CallOutcome::Rewritten { text: text.to_owned(), label });
        Some(label)
    }

    fn find_handed_over_call(&self, id: &str) -> Option<(usize, usize, EventId)> {
        self.find_call(
            |answer| match answer {
                CallOutcome::HandedOver(event) => Some(*event),
                _ => None,
            },
            id,
        )
    }

    /// Finds the call with this id whose answer `kind` selects: the item, the call in it, and the event.
    fn find_call(
        &self,
        kind: impl Fn(&CallOutcome) -> Option<EventId>,
        id: &str,
    ) -> Option<(usize, usize, EventId)> {
        let has_id = |event: &EventId| {
            let event = self.monitor.trace().event(*event);
            // The event of an answer refers to its call.
            let call = event.and_then(|event| event.call).and_then(|call| self.monitor.trace().event(call));
            matches!(call.or(event).map(|call| &call.body), Some(EventBody::Call(call)) if call.id == id)
        };
        self.items.steps().find_map(|(at, step)| {
            let found = step.calls.iter().enumerate();
            found
                .filter_map(|(index, made)| Some((at, index, kind(&made.answer)?)))
                .find(|(_, _, event)| has_id(event))
        })
    }

    fn set_outcome_at(&mut self, item: usize, index: usize, answer: CallOutcome) {
        if let Some(ConversationItem::Step(step)) = self.items.get_mut(item)
            && let Some(made) = step.calls.get_mut(index)
        {
            made.answer = answer;
        }
    }
}
