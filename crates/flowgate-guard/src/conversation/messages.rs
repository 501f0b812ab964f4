//! Adds messages to the trace and to the chat of a conversation: messages of the operator, of the user, of another
//! agent that sets a task, or of a source of context such as a memory. [`super::apply`] calls this module. A message of
//! the user or of another agent begins a turn.
//!
//! Agents that call each other pass labels along. This module therefore also returns the label of the replies to a
//! task, and the label of a call whose tool is an agent.

use flowgate::monitor::{AuthorizedCall, PushError};
use flowgate::trace::{EventId, Message, TraceEntry};
use serde_json::Value;

use super::{Conversation, ConversationPhase, blocking_messages};
use crate::view::ConversationItem;

impl Conversation {
    /// Adds the user's next message and begins a turn.
    ///
    /// # Errors
    /// If the session has no room for the message.
    pub(super) fn begin_user_turn(&mut self, content: Value) -> Result<EventId, PushError> {
        let event = self.add_message("user", content)?;
        self.begin_turn();
        Ok(event)
    }

    /// Begins a turn at the base label, whatever the last one waits for. The caller may no longer run the handed-over
    /// calls of the last turn outside the chat.
    pub(super) fn begin_turn(&mut self) {
        self.handed.revoke();
        self.labels.begin_turn();
        self.turn.begin();
        self.start_generating();
    }

    /// Makes the next step due. A step in progress is dropped.
    pub(super) fn start_generating(&mut self) {
        self.phase = ConversationPhase::Generate;
        self.step.clear();
    }

    /// Adds a task from another agent, begins a turn, and returns the event of the task. The label of the task,
    /// `carries`, becomes a lower bound on the label of everything in this conversation. The labels of stores are
    /// raised to the new base label, because a reader who is not cleared for this label must not learn from a store
    /// whether a task was set.
    ///
    /// # Errors
    /// If the session has no room for the message.
    pub(super) fn begin_task(&mut self, content: Value, carries: &Value) -> Result<EventId, PushError> {
        let label = self.monitor.from_names(carries);
        let message = Message::new("user", content);
        let (event, _) = self.monitor.push_with_floors(TraceEntry::from(message), &label.into())?;
        self.items.push(ConversationItem::Message(event));
        let below = *self.labels.base();
        self.labels.raise_floor(&label);
        self.begin_turn();
        if *self.labels.base() != below {
            self.monitor.raise_stores_for_view(&below, self.labels.base());
        }
        Ok(event)
    }

    /// Returns the label of the replies of the last turn, by the names of its elements, for the agent that set the
    /// task. Every step that could have produced output counts, whether it did or not.
    pub fn reply_label_names(&self) -> Value {
        self.monitor.to_names(self.labels.output())
    }

    /// Returns the label of a call that is about to run, joined with the label of its verdict, for an agent that runs
    /// as a tool. The label is given by the names of its elements. The verdict counts because the fact that the agent
    /// runs reveals which rules permitted the call.
    pub fn call_label_names(&self, call: &AuthorizedCall) -> Value {
        let event = self.monitor.trace().event(call.event());
        let label =
            event.map_or(self.monitor.policy().space().top(), |event| event.label.join(&event.decided));
        self.monitor.to_names(&label)
    }

    /// Adds a message to the trace and to the chat. What rules say about it is reported with the turn.
    ///
    /// # Errors
    /// If the session has no room for the message.
    pub(super) fn add_message(&mut self, role: &str, content: Value) -> Result<EventId, PushError> {
        let (event, findings) = self.monitor.push(TraceEntry::from(Message::new(role, content)))?;
        self.turn.rule_messages.extend(blocking_messages(findings));
        self.items.push(ConversationItem::Message(event));
        Ok(event)
    }
}
