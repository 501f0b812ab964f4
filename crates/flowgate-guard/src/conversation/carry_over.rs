//! Carries a conversation over to another policy: processes its chat again, turn by turn, under the policy of a new
//! conversation. The gateway does this after the policy of a client has changed.
//!
//! What the client and the tools wrote is labelled by the new policy. The journal does not say which labels the steps of
//! the model had been shown, and under the new policy other regions would have been hidden from them. A message of the
//! model therefore carries the join of the labels of everything before it. Its calls were permitted by the earlier policy
//! and count as run; no permit and no approval is carried over. What they wrote to external state keeps the labels that the
//! earlier policy gave it.
//!
//! The carried turns are recorded in the journal of the new conversation as [`Input::Carried`] and the inputs of its
//! client, so a replay needs the new policy alone.

use std::fmt;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, PushError};
use flowgate::trace::{Call, EventId, Tool, TraceEntry};
use flowgate_lm::chat::{Message, Sources};

use super::apply::{InputContext, InputOutcome};
use super::{Conversation, ConversationPhase};
use crate::history::lookup::QuotationLookup;
use crate::history::{ClientProfile, History, HistoryMessage};
use crate::journal::Input;
use crate::redact::HiddenRegions;
use crate::view::{CallOutcome, ConversationItem, ModelStep, StepCall};

/// The conversation cannot be carried over to another policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarryOverError {
    /// A turn has an input that is not part of a chat of its client, such as an answer of a tool that the guard ran.
    Unsupported,
    /// The chat and the journal disagree, so the journal is not that of this conversation.
    Inconsistent,
    /// The session has no room for the chat, or the labels of external state cannot be read.
    Rejected,
}

impl fmt::Display for CarryOverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "a turn has an input that is not part of a chat of the client",
            Self::Inconsistent => "the chat and the journal disagree",
            Self::Rejected => {
                "the session has no room for the chat, or the labels of external state cannot be read"
            }
        })
    }
}

impl std::error::Error for CarryOverError {}

impl From<PushError> for CarryOverError {
    fn from(_: PushError) -> Self {
        Self::Rejected
    }
}

impl Conversation {
    /// Processes the inputs of one turn of another conversation under the policy of this one, after those of the turns
    /// before. Queries no model, runs no tool and asks no person. The texts of the turn are added to the memory of `client`
    /// with their new labels.
    ///
    /// # Errors
    /// If the turn cannot be carried over. The conversation is then in an unspecified state and must be discarded.
    pub fn carry_over(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        turn: &[Input],
    ) -> Result<(), CarryOverError> {
        for input in turn {
            match input {
                Input::Sent { kept, rest, sources, .. } => {
                    self.carry_chat(client, history, *kept, rest, sources)?;
                }
                // The client continued a turn that waited for a person: its chat, and what it wrote to continue.
                Input::Resumed { kept, new } => {
                    self.carry_chat(client, history, *kept, new.as_slice(), &Sources::default())?;
                }
                Input::AnsweredTo(message) | Input::Carried(message) => {
                    let input = Input::Carried(message.clone());
                    self.submit_with(input, InputContext::History(history)).into_carried()?;
                    self.memorize(client, history);
                }
                Input::Offer(tools) => self.offer_tools(tools.clone())?,
                Input::Format { format, .. } => {
                    self.set_output_format(client, history, format.clone())?;
                }
                Input::Note(role, content) => drop(self.add_context(role, content.clone())?),
                Input::Recall(record) => {
                    self.join_external_state(record).map_err(|_| CarryOverError::Rejected)?;
                }
                Input::User(_) | Input::Task { .. } | Input::GoOn | Input::Ran(_) => {
                    return Err(CarryOverError::Unsupported);
                }
                // What the earlier policy decided, and what led to an answer, which carries the labels of everything.
                Input::Need(_)
                | Input::Choose(_)
                | Input::Sampling(_)
                | Input::Withdrawn(_)
                | Input::GrantsWithdrawn
                | Input::Stamped(_)
                | Input::Completed(_)
                | Input::Screened(_)
                | Input::Filled(_)
                | Input::Unfilled
                | Input::Failed
                | Input::Stop
                | Input::Decided(_)
                | Input::Postponed
                | Input::HandOver => {}
            }
        }
        Ok(())
    }

    /// Merges a chat whose first `kept` messages are those of the history.
    fn carry_chat(
        &mut self,
        client: &mut ClientProfile,
        history: &mut History,
        kept: usize,
        rest: &[Message],
        sources: &Sources,
    ) -> Result<(), CarryOverError> {
        let digests = history.digests_with(kept, rest);
        let found = self.align_chat(history, &digests, |count| rest.get(count.checked_sub(kept)?..));
        if digests.len() != kept + rest.len() || found.same < kept {
            return Err(CarryOverError::Inconsistent);
        }
        // The first messages of `rest` can be those of the history, too: then the input begins after them.
        let kept_now = found.same;
        let rest = rest.get(kept_now - kept..).ok_or(CarryOverError::Inconsistent)?.to_vec();
        let sources = sources.starting_at(kept_now - kept);
        let mut memory = QuotationLookup::live(client);
        let mut input = Input::Sent { kept: kept_now, rest, seen: Vec::new(), sources };
        let context = InputContext::Chat { history, memory: &mut memory, found };
        let InputOutcome::Merged(merged) = self.apply(&input, context) else {
            return Err(CarryOverError::Inconsistent);
        };
        if let Input::Sent { seen, .. } = &mut input {
            *seen = memory.into_answers();
        }
        self.journal.record(|| input);
        merged?;
        Ok(())
    }

    /// Adds a message that the model wrote under another policy, with its calls as handed over, and ends the turn.
    ///
    /// # Errors
    /// If the session has no room for a call.
    pub(super) fn take_carried_answer(
        &mut self,
        history: &mut History,
        message: &Message,
    ) -> Result<(), PushError> {
        let Message::Assistant { text, calls, thoughts } = message else { return Ok(()) };
        let label = self.label_of_everything();
        self.labels.record_carried_step(&label);
        let (mut step_calls, mut ids) = (Vec::with_capacity(calls.len()), Vec::with_capacity(calls.len()));
        for call in calls {
            let is_used = self.monitor.trace().calls_with_id(&call.id).next().is_some();
            let id = if is_used { self.next_id(&label) } else { call.id.clone() };
            let event = self.record_carried_call(&id, &call.name, &call.arguments)?;
            ids.push(id);
            step_calls.push(StepCall { call: call.clone(), answer: CallOutcome::HandedOver(event) });
        }
        self.items.push(ConversationItem::Step(ModelStep {
            label,
            bound: label,
            names: HiddenRegions::default(),
            text: text.clone(),
            calls: step_calls,
            thoughts: thoughts.clone(),
        }));
        history.push_message(HistoryMessage::new(message, label, self.items.len()).into_written());
        // The client may know the calls by other ids. They were permitted by another policy, so they may not run outside
        // the chat.
        self.handed.deliver(message, ids);
        self.handed.revoke();
        self.step.clear();
        self.labels.end_all();
        // The earlier conversation has reported what the turn produced.
        drop(self.turn.finish());
        self.phase = ConversationPhase::User;
        Ok(())
    }

    /// Records a call that the earlier policy permitted, as influenced by everything before it.
    fn record_carried_call(&mut self, id: &str, name: &str, arguments: &str) -> Result<EventId, PushError> {
        let top = self.monitor.policy().space().top();
        let entry = self.tools.catalogue().find(&self.monitor, &top, name);
        let tool = entry.map_or_else(|| Tool::local(name), |entry| entry.offered.tool.clone());
        let call = Call::from_json(id, tool, arguments);
        let recorded = self.monitor.record_earlier(TraceEntry::from(call), &Attribution::everything());
        recorded.event.ok_or(PushError::Full)
    }

    /// Returns the join of the labels of everything that this conversation contains, or contained before its client
    /// changed the chat.
    fn label_of_everything(&self) -> Label {
        let top = self.monitor.policy().space().top();
        let trace = self.monitor.trace();
        let events = trace.events().iter().enumerate().map(|(index, event)| {
            event.label.join(&event.decided).join(&trace.existence_label(EventId(index)))
        });
        let described = self.tools.catalogue().view_label(&self.monitor, &top);
        let format =
            self.format.as_ref().map_or(Label::BOTTOM, |format| format.view_label(&self.monitor, &top));
        events.fold(self.labels.least().join(&described).join(&format), |all, label| all.join(&label))
    }
}
