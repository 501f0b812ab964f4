//! Appends messages, outputs of tools and tool descriptions to the trace of a session, labels them, and returns the
//! findings of the policy about them. The program that drives an agent pushes them in the order in which the agent saw
//! them. A call is not pushed but judged: see `permits`.

use super::input_record::{MonitorInput, PushedInput};
use super::{EventFinding, Floors, Monitor, PushError};
use crate::label::Label;
use crate::trace::{EventBody, EventId, TraceEntry};

/// # Events
///
/// Messages, outputs and tool descriptions are pushed in the order in which the agent saw them.
impl Monitor {
    /// Appends a message, a tool's output or a tool's description, and labels it. Returns the event and the findings of
    /// the policy about it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`](super::Limits::events).
    pub fn push(&mut self, entry: TraceEntry) -> Result<(EventId, Vec<EventFinding>), PushError> {
        self.push_with_view(entry, None, &Floors::default())
    }

    /// Appends an event that carries at least the given floors, in addition to the label that the policy
    /// gives it. Floors come from another session, from a server's statement about its own answers, or from
    /// quoted text that was labelled higher elsewhere. Returns the event and the findings of the policy about it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`](super::Limits::events).
    pub fn push_with_floors(
        &mut self,
        entry: TraceEntry,
        floors: &Floors,
    ) -> Result<(EventId, Vec<EventFinding>), PushError> {
        // `None`: the event is not a message that a model generated from a view.
        self.push_with_view(entry, None, floors)
    }

    /// Appends a message of a model that was shown what flows to `view` and nothing else; the caller vouches for that.
    /// Returns the event and the findings of the policy about it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`](super::Limits::events).
    pub fn push_generated(
        &mut self,
        entry: TraceEntry,
        view: Label,
    ) -> Result<(EventId, Vec<EventFinding>), PushError> {
        self.push_with_view(entry, Some(view), &Floors::default())
    }

    /// Allows one more output of the call that `output` answers. An intermediary needs this if it reports an output and
    /// then passes it on in other words, as a second output. Otherwise, a second output of a call is labelled top.
    pub fn allow_another_output(&mut self, output: EventId) {
        self.record_input(|| MonitorInput::AnotherOutput(output));
        if let Some(call) = self.trace.event(output).and_then(|event| event.call) {
            self.answered.remove(&call);
        }
    }

    /// Appends an event that is not the outcome of a failed call, as [`push_event`](Self::push_event) does. `view` is
    /// set for a message that a model generated from a view. Returns the event and the findings about it.
    fn push_with_view(
        &mut self,
        entry: TraceEntry,
        view: Option<Label>,
        floors: &Floors,
    ) -> Result<(EventId, Vec<EventFinding>), PushError> {
        let is_failure = false;
        self.push_event(entry, view, floors, is_failure)
    }

    /// Appends and labels an event, and matches the rules against it. Returns the event and the findings about it.
    /// Its label is at least `floors`. `view` is set for a message that a model generated from a view. With
    /// `is_failure`, the event is the outcome of a failed call: label statements do not apply to it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`](super::Limits::events).
    pub(super) fn push_event(
        &mut self,
        entry: TraceEntry,
        view: Option<Label>,
        floors: &Floors,
        is_failure: bool,
    ) -> Result<(EventId, Vec<EventFinding>), PushError> {
        self.withdraw_dropped_permits();
        if matches!(entry.body, EventBody::Call(_)) {
            return Err(PushError::IsCall);
        }
        if self.trace.len() >= self.limits.events {
            return Err(PushError::Full);
        }
        let position = self.trace.position_of(&entry).map_err(PushError::Position)?;
        self.version += 1;
        // What a record of the inputs needs of the state before the event is appended.
        let recorded =
            self.inputs.is_some().then(|| (entry.clone(), floors.clone(), self.rule_floor(&entry.body)));
        let mut fuel = self.limits.fuel;
        let (id, mut findings) = self.label_and_append(entry, position, view, floors, is_failure, &mut fuel);
        for reason in self.match_rules(id, &mut fuel) {
            findings.push(EventFinding { event: id, reason });
        }
        if let Some((entry, floors, rule_floor)) = recorded {
            self.record_input(|| {
                MonitorInput::Pushed(PushedInput { entry, view, floors, is_failure, event: id, rule_floor })
            });
        }
        Ok((id, findings))
    }
}
