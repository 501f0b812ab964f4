//! Messages added to a conversation: by the operator, the user, another agent, or a source of context such as a
//! memory.

use flowgate::monitor::{Authorized, PushError};
use flowgate::trace::{Body, Entry, EventId, Message};
use serde_json::Value;

use super::{Conversation, Level, Phase, Turn, stops};
use crate::journal::Input;
use crate::view::Item;

impl Conversation {
    /// Adds the operator's instructions.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn system(&mut self, content: Value) -> Result<EventId, PushError> {
        self.put(|| Input::Note("system".to_owned(), content.clone()));
        self.say("system", content)
    }

    /// Adds the user's next message and begins a turn. Unfinished work of the previous turn is dropped.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn user(&mut self, content: Value) -> Result<EventId, PushError> {
        self.put(|| Input::User(content.clone()));
        let event = self.say("user", content)?;
        self.begin();
        Ok(event)
    }

    pub(super) fn begin(&mut self) {
        self.delivered.clear();
        self.resumed = None;
        self.base = self.lowest.join(&self.floor);
        self.start();
        self.turn = Turn::default();
        self.said = self.base;
        self.roster = None;
    }

    pub(super) fn start(&mut self) {
        self.levels = vec![Level { label: self.base, then_return: false, steps: 0 }];
        self.phase = Phase::Generate;
        (self.view, self.drafted, self.is_draft) = (None, None, false);
    }

    /// Adds a task from another agent and begins a turn. `carries` is the label of that agent's call, in names; it
    /// becomes a lower bound on the label of everything in this conversation.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn task(&mut self, content: Value, carries: &Value) -> Result<EventId, PushError> {
        self.put(|| Input::Task { content: content.clone(), carries: carries.clone() });
        let label = self.monitor.from_names(carries);
        let message = Message { role: "user".to_owned(), content };
        let (event, _) = self.monitor.push_raised(Entry::from(Body::Message(message)), &label.into())?;
        self.items.push(Item::Said(event));
        let below = self.base;
        self.floor = self.floor.join(&label);
        self.begin();
        if self.base != below {
            self.monitor.enter(&below, &self.base.clone());
        }
        Ok(event)
    }

    /// Returns the label of the replies of the last turn, in names, for the agent that set the task. Every step that
    /// could have produced output counts, whether it did or not.
    pub fn carried(&self) -> Value {
        self.monitor.to_names(&self.said)
    }

    /// Returns the label of a call that is about to run, joined with the label of its verdict, in names, for an agent
    /// that runs as a tool. The verdict counts because the fact that the agent runs reveals which rules permitted the
    /// call.
    pub fn carried_by(&self, call: &Authorized) -> Value {
        let event = self.monitor.trace().event(call.event());
        let label =
            event.map_or(self.monitor.policy().space().top(), |event| event.label.join(&event.decided));
        self.monitor.to_names(&label)
    }

    /// Adds other context, such as retrieved memory. The policy labels it.
    ///
    /// # Errors
    /// If the session has no room.
    pub fn note(&mut self, role: &str, content: Value) -> Result<EventId, PushError> {
        self.put(|| Input::Note(role.to_owned(), content.clone()));
        self.say(role, content)
    }

    pub(super) fn say(&mut self, role: &str, content: Value) -> Result<EventId, PushError> {
        let message = Message { role: role.to_owned(), content };
        let (event, findings) = self.monitor.push(Entry::from(Body::Message(message)))?;
        self.found.extend(stops(findings));
        self.items.push(Item::Said(event));
        Ok(event)
    }
}
