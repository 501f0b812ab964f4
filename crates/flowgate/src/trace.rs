//! Defines the trace of a session: the append-only record of its events.
//!
//! Events of several agents form a directed acyclic graph. `a` precedes `b` if the agent of `b` had *seen* `a` when `b`
//! happened. Each event carries a vector clock (the number of seen events of each agent), so one comparison decides
//! whether it precedes another event. The events of a single agent are in the order of the list. The monitor appends to
//! a trace; rules and influence methods read it.
//!
//! Of the submodules, `event` defines the events as a client reports them, `document` the labelled tree of an event,
//! `origin` the position of an event in a client's list of messages, `path` the path of a region in an event, and
//! `argument_set` sets of arguments of a call. `located_text` reads the data in a text with the location of each part,
//! `reachability` decides which events may have influenced another event, and `read` reads recorded runs.

mod argument_set;
pub mod document;
pub mod event;
pub mod located_text;
mod origin;
mod path;
mod reachability;
pub mod read;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use argument_set::ArgumentSet;
pub(crate) use document::sole_text;
pub use document::{Document, DocumentNode, NodeContent, NodeId};
pub use event::{ArgumentsError, Call, EventBody, Message, Output, Tool, ToolDescription, TraceEntry};
pub(crate) use origin::characters;
pub use origin::{Origin, OriginPart, ToolDescriptionFormat};
pub use path::{Path, PathStep};

use crate::label::Label;

/// The position of an event in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub usize);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A region of an event: the event, a path in its value, and a span of bytes there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The event.
    pub event: EventId,
    /// The path from the event's root.
    pub path: Path,
    /// The bytes of the enclosing text that spell the region, if it is part of a text.
    pub span: Option<std::ops::Range<usize>>,
}

impl fmt::Display for Region {
    /// Writes the event, the path and, for a part of a text, its range of bytes: `#3 content.note:10-15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.event, self.path)?;
        match &self.span {
            Some(span) => write!(f, ":{}-{}", span.start, span.end),
            None => Ok(()),
        }
    }
}

/// The progress of a call. Messages and outputs are [`Status::Done`] at once.
///
/// The enum is exhaustive on purpose: a program that matches on it must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Judged and reserved, not run yet.
    Pending,
    /// Happened: a call that was redeemed, whose tool runs or has run, or any other event.
    Done,
    /// Abandoned before it ran; rules do not see it.
    Withdrawn,
}

/// The earlier events that an event may depend on, as far as known.
///
/// The enum is exhaustive on purpose: a program that matches on it must be changed when a variant is added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PossibleInfluence {
    /// All events that its agent had seen.
    All,
    /// These events and their dependencies.
    Of(Vec<EventId>),
    /// The events that its agent had seen and that flow to this label; also the given events and their dependencies.
    View(Label, Vec<EventId>),
}

/// One event with its labels.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub body: EventBody,
    /// Its tree of labelled regions.
    pub document: Document,
    /// The join of the labels of all its regions.
    pub label: Label,
    /// The join of the labels of everything that its agent had seen, this event included.
    pub context: Label,
    /// The index of its agent.
    pub agent: usize,
    /// Its progress.
    pub status: Status,
    /// For an output, the call that it answers.
    pub call: Option<EventId>,
    /// For an output, the call whose id it reports, even if another output answered that call first. Grants nothing.
    pub claimed: Option<EventId>,
    /// For a call, the message that proposes it.
    pub message: Option<EventId>,
    /// Its position in the list of messages that it was read from.
    pub origin: Option<Origin>,
    /// The events that it depends on.
    pub influence: PossibleInfluence,
    /// For a call, the number of regions that were hidden from the model that proposed it.
    pub hidden: usize,
    /// For a call, the label of its verdict: the label of the call joined with everything that rules could read when
    /// they permitted it. The label of its output is at least this label.
    pub decided: Label,
    /// For a call, the label of what rules could read of other events when they permitted it. With the label of the
    /// decision to call, it is the least label of a part of the output that depends on no argument.
    pub observed: Label,
    /// The stores that it was read from, each with the number of calls that had written to the store at that time.
    pub(crate) read_from: Vec<(usize, usize)>,
    /// Fields that the reader does not know, unchanged.
    pub extra: Map<String, Value>,
    /// The number of earlier events of the same agent.
    sequence: usize,
    /// The number of seen events of each agent. The entry of the event's own agent is not updated: `sequence` replaces
    /// it.
    clock: Arc<[usize]>,
    /// The preceding event of the same agent.
    previous: Option<EventId>,
}

impl Event {
    /// Returns the tool of a call; `None` for any other event, also for an output.
    pub fn tool(&self) -> Option<&Tool> {
        match &self.body {
            EventBody::Call(call) => Some(&call.tool),
            _ => None,
        }
    }
}

/// The record of what the agents of one session saw and did.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    events: Vec<Event>,
    agents: Vec<String>,
    /// The state of each agent.
    heads: Vec<AgentState>,
    /// The events that have a name, by which other events refer to them as parents.
    named: HashMap<String, EventId>,
    /// The calls with each call id.
    calls: HashMap<String, Vec<EventId>>,
    /// The last call of the trace, withdrawn or not.
    last_call: Option<EventId>,
    /// The calls that wrote to each store.
    writers: Vec<Vec<EventId>>,
    /// The events whose label did not flow to what their agent had seen before, and so raised the agent's context: for
    /// each agent at most as many as the height of the lattice.
    raising: Vec<EventId>,
    /// The join of the labels of all calls, outputs and messages of models.
    calls_context: Label,
}

/// The state of an agent. Events that it has seen stay seen, even if the call that introduced them was withdrawn.
#[derive(Debug, Clone, Default)]
struct AgentState {
    last: Option<EventId>,
    clock: Arc<[usize]>,
    context: Label,
}

/// The position of a new event: its agent and the events that this agent has seen.
#[derive(Debug, Clone)]
pub struct EventPosition {
    /// The index of the agent. A new agent's index is the number of agents before it.
    agent: usize,
    /// The preceding event of the agent.
    previous: Option<EventId>,
    /// The number of earlier events of the agent.
    sequence: usize,
    /// The number of seen events of each agent.
    clock: Arc<[usize]>,
    /// The join of the labels of everything seen before.
    pub context: Label,
}

/// The reason why an entry has no position in the trace.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventPositionError {
    /// The entry names a parent that is not in the trace.
    UnknownParent,
    /// Another event has the same name.
    DuplicateName,
    /// The session has reached the maximum number of agents.
    TooManyAgents,
}

/// Maximum number of agents of one session.
const MAX_AGENTS: usize = 256;

impl fmt::Display for EventPositionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownParent => {
                "a parent that the event names is not in the trace; append the parent first"
            }
            Self::DuplicateName => "another event has the same name; give each event its own name",
            Self::TooManyAgents => "the session has reached its limit of agents; begin a new session",
        })
    }
}

impl std::error::Error for EventPositionError {}

impl Trace {
    /// Creates an empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns all events, in order of arrival.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the event with this id.
    pub fn event(&self, id: EventId) -> Option<&Event> {
        self.events.get(id.0)
    }

    /// Returns the number of events.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether the trace has no events.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the calls with this id, without withdrawn ones. More than one means a defective or malicious client.
    pub fn calls_with_id(&self, call_id: &str) -> impl Iterator<Item = EventId> + '_ {
        let ids = self.calls.get(call_id).map_or(&[] as &[EventId], Vec::as_slice);
        ids.iter()
            .copied()
            .filter(|id| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn))
    }

    /// Returns the name of an agent. The main agent has an empty name.
    pub fn agent_name(&self, agent: usize) -> &str {
        self.agents.get(agent).map_or("", String::as_str)
    }

    /// Returns the preceding event of the same agent, skipping withdrawn calls.
    pub fn previous(&self, id: EventId) -> Option<EventId> {
        let step = |id: &EventId| self.event(*id).and_then(|event| event.previous);
        std::iter::successors(step(&id), step)
            .find(|id| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn))
    }

    /// Returns the label of the fact that the event exists, the label of its root node. For an output whose call is
    /// known, this is the label of the fact that the call exists. A principal whose clearance is lower must not learn
    /// that the event exists. Bottom if there is no event with this id.
    pub fn existence_label(&self, id: EventId) -> Label {
        let Some(event) = self.event(id) else { return Label::BOTTOM };
        match (&event.body, event.call.and_then(|call| self.event(call))) {
            (EventBody::Output(_), Some(call)) => call.document.frame_label(),
            _ => event.document.frame_label(),
        }
    }

    /// Returns whether the agent of a new event at `position` has seen the event `id`, that is, whether the vector
    /// clock of the position counts it. False if the trace has no such event.
    pub fn has_seen(&self, position: &EventPosition, id: EventId) -> bool {
        self.event(id).is_some_and(|event| {
            if event.agent == position.agent {
                event.sequence < position.sequence
            } else {
                position.clock.get(event.agent).is_some_and(|seen| event.sequence < *seen)
            }
        })
    }

    /// Determines the position of an entry: its agent, and the events that this agent has seen. These are its own
    /// earlier events, the parents that the entry names, and what was seen before them. A new agent whose first event
    /// names no parent counts as having seen all events. The result has them as a vector clock: for each agent, how
    /// many of its events the entry's agent has seen.
    ///
    /// # Errors
    /// If the entry names a parent that is not in the trace, has a name that is taken, or exceeds the maximum number of
    /// agents.
    pub fn position_of(&self, entry: &TraceEntry) -> Result<EventPosition, EventPositionError> {
        let name = entry.agent.as_deref().unwrap_or("");
        let agent = self.agents.iter().position(|a| a == name).unwrap_or(self.agents.len());
        if entry.name.as_ref().is_some_and(|name| self.named.contains_key(name)) {
            return Err(EventPositionError::DuplicateName);
        }
        if agent >= MAX_AGENTS {
            return Err(EventPositionError::TooManyAgents);
        }
        // `None` for a new agent, whose index is the next free one.
        let state = self.heads.get(agent);
        let previous = state.and_then(|head| head.last);
        let mut parents: Vec<EventId> = Vec::new();
        for parent in &entry.parents {
            parents.push(*self.named.get(parent).ok_or(EventPositionError::UnknownParent)?);
        }
        if state.is_none() && parents.is_empty() {
            // A new agent without declared parents may have received anything.
            parents.extend(self.heads.iter().filter_map(|head| head.last));
        }
        // The index of the entry among the events of its agent.
        let sequence = previous.and_then(|id| self.event(id)).map_or(0, |event| event.sequence + 1);
        // The join of the labels that the agent has seen.
        let mut context = state.map_or(Label::BOTTOM, |head| head.context);
        for event in parents.iter().filter_map(|id| self.event(*id)) {
            context = context.join(&event.context);
        }
        let clock = match state {
            Some(head) if parents.is_empty() => Arc::clone(&head.clock),
            _ => self.merged_clock(agent, state, &parents),
        };
        Ok(EventPosition { agent, previous, sequence, clock, context })
    }

    /// Returns the vector clock of the agent with the index `agent` after it has received `parents`: the agent has seen
    /// what it saw before (`state`; `None` for a new agent), each parent, and what the parent's agent had seen by then.
    fn merged_clock(&self, agent: usize, state: Option<&AgentState>, parents: &[EventId]) -> Arc<[usize]> {
        let mut clock = vec![0; self.agents.len().max(agent + 1)];
        let mut merge = |index: usize, seen: usize| {
            if let Some(entry) = clock.get_mut(index) {
                *entry = (*entry).max(seen);
            }
        };
        if let Some(state) = state {
            state.clock.iter().enumerate().for_each(|(index, seen)| merge(index, *seen));
        }
        for event in parents.iter().filter_map(|id| self.event(*id)) {
            event.clock.iter().enumerate().for_each(|(index, seen)| merge(index, *seen));
            merge(event.agent, event.sequence + 1);
        }
        clock.into()
    }

    /// Appends an event at `position`, the result of [`position_of`](Self::position_of) for the entry, and returns its
    /// id. Updates the state of its agent by the labels of `document`; if these change afterwards, the caller must call
    /// [`update_labels`](Self::update_labels). `call` is the call that an output answers, and `influence` the earlier
    /// events that the event may depend on.
    pub(crate) fn append(
        &mut self,
        entry: TraceEntry,
        position: EventPosition,
        document: Document,
        status: Status,
        call: Option<EventId>,
        influence: PossibleInfluence,
    ) -> EventId {
        let id = EventId(self.events.len());
        if position.agent == self.agents.len() {
            self.agents.push(entry.agent.clone().unwrap_or_default());
            self.heads.push(AgentState::default());
        }
        if let Some(head) = self.heads.get_mut(position.agent) {
            let context = position.context.join(&document.label_of(0));
            *head = AgentState { last: Some(id), clock: Arc::clone(&position.clock), context };
        }
        if let Some(name) = &entry.name {
            self.named.insert(name.clone(), id);
        }
        if let EventBody::Call(call) = &entry.body {
            self.calls.entry(call.id.clone()).or_default().push(id);
            self.last_call = Some(id);
        }
        // The call that an output claims to answer, and the message that proposes a call; `None` for other events.
        let claimed = self.claimed_call(&entry.body);
        let message = self.proposing_message(&entry, position.previous);
        let label = document.label_of(0);
        let context = position.context.join(&label);
        let EventPosition { agent, previous, sequence, clock, .. } = position;
        let (body, extra, origin) = (entry.body, entry.extra, entry.origin);
        // The monitor sets `hidden`, `decided` and `observed` of a call when it judges the call, and
        // `record_store_read` sets `read_from` of an output.
        self.events.push(Event {
            body,
            document,
            label,
            context,
            agent,
            status,
            call,
            claimed,
            message,
            origin,
            influence,
            hidden: 0,
            decided: Label::BOTTOM,
            observed: Label::BOTTOM,
            extra,
            sequence,
            clock,
            previous,
            read_from: Vec::new(),
        });
        id
    }

    /// Returns the call that an output claims to answer: the last call with the id that the output reports, apart from
    /// withdrawn calls (abandoned before they ran). An output without an id claims to answer the last call of the
    /// trace, unless that is withdrawn. `None` if there is no such call, and for an event that is not an output.
    fn claimed_call(&self, body: &EventBody) -> Option<EventId> {
        let EventBody::Output(output) = body else { return None };
        let is_live = |id: &EventId| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn);
        if output.call_id.is_empty() {
            return self.last_call.filter(is_live);
        }
        self.calls.get(&output.call_id)?.iter().rev().copied().find(is_live)
    }

    /// Returns the event of the message that proposes the call `entry`. One message of the client's list becomes
    /// several events: that of its text, and then one for each call. So the message is `previous`, the event before the
    /// call, if that is a text from the same message; if it is a call from the same message, its message is the result.
    /// `None` if `entry` is not a call, if its message had no text, or if it was not read from a list of messages
    /// (`origin`).
    fn proposing_message(&self, entry: &TraceEntry, previous: Option<EventId>) -> Option<EventId> {
        let EventBody::Call(_) = &entry.body else { return None };
        let previous = previous?;
        let before = self.event(previous)?;
        if before.origin?.message != entry.origin?.message {
            return None;
        }
        match &before.body {
            EventBody::Message(_) => Some(previous),
            EventBody::Call(_) => before.message,
            EventBody::Output(_) | EventBody::Tool(_) => None,
        }
    }

    /// Removes the event `id` and returns it, if it is the last event of the trace: no other event can have seen it.
    /// For an earlier event, does nothing and returns `None`. `seen` is the join of the labels that the event's agent
    /// had seen before the event. What the agent saw through the event's parents stays seen.
    pub(crate) fn retract(&mut self, id: EventId, seen: &Label) -> Option<Event> {
        if id.0 + 1 != self.events.len() {
            return None;
        }
        let event = self.events.pop()?;
        if let Some(head) = self.heads.get_mut(event.agent) {
            head.last = event.previous;
            head.context = *seen;
        }
        if let EventBody::Call(call) = &event.body
            && let Some(ids) = self.calls.get_mut(&call.id)
        {
            ids.retain(|known| *known != id);
        }
        // No other event can name this one as its parent, and it no longer counts as one that raised its agent's
        // context.
        self.named.retain(|_, known| *known != id);
        self.raising.retain(|known| *known != id);
        if self.last_call == Some(id) {
            self.last_call =
                self.events.iter().rposition(|event| matches!(event.body, EventBody::Call(_))).map(EventId);
        }
        Some(event)
    }

    /// Records that a call wrote to stores (external state, by their indices in the policy), so that a later read of a
    /// store depends on the call.
    pub(crate) fn record_write(&mut self, id: EventId, stores: &[usize]) {
        for store in stores {
            if self.writers.len() <= *store {
                self.writers.resize(store + 1, Vec::new());
            }
            if let Some(writers) = self.writers.get_mut(*store) {
                writers.push(id);
            }
        }
    }

    /// Records that an event was read from the current state of stores: the number of calls that have written to each
    /// so far, on which the event therefore depends.
    pub(crate) fn record_store_read(&mut self, id: EventId, stores: &[usize]) {
        let counts =
            stores.iter().map(|store| (*store, self.writers.get(*store).map_or(0, Vec::len))).collect();
        if let Some(event) = self.event_mut(id) {
            event.read_from = counts;
        }
    }

    /// Updates the labels of an event, of its agent and of the trace after the document of the event was labelled.
    /// `seen` is the join of the labels that its agent had seen before the event; an event that does not flow to it is
    /// recorded as one that raised what its agent has seen.
    pub(crate) fn update_labels(&mut self, id: EventId, seen: &Label) {
        let Some(event) = self.event_mut(id) else { return };
        event.label = event.document.label_of(0);
        event.context = seen.join(&event.label);
        let (agent, context) = (event.agent, event.context);
        // Whether the event is text that the client provides. Its label is not part of `calls_context`, the join of the
        // labels of calls, their outputs and messages of models.
        let is_client_text = match &event.body {
            EventBody::Message(message) => !matches!(message.role.as_str(), "assistant" | "model"),
            EventBody::Tool(_) => true,
            EventBody::Call(_) | EventBody::Output(_) => false,
        };
        let label = event.label;
        if !is_client_text {
            self.calls_context = self.calls_context.join(&label);
        }
        if let Some(head) = self.heads.get_mut(agent) {
            head.context = context;
        }
        if !label.flows_to(seen) {
            self.raising.push(id);
        }
    }

    /// Releases the name of a call that will not run, so that another event can use it.
    pub(crate) fn forget_name(&mut self, id: EventId) {
        self.named.retain(|_, known| *known != id);
    }

    /// Records that a model may propose calls after it was shown what flows to `view`: raises
    /// [`calls_context`](Self::calls_context).
    pub(crate) fn record_view(&mut self, view: &Label) {
        self.calls_context = self.calls_context.join(view);
    }

    /// Returns an upper bound on the labels of all calls that were judged or could have been proposed, of their
    /// outputs, and of messages of models.
    pub(crate) fn calls_context(&self) -> Label {
        self.calls_context
    }

    /// Returns the events that raised the context of their agent, in order. The context is the join of the labels of
    /// everything that the agent had seen.
    pub(crate) fn context_raising_events(&self) -> &[EventId] {
        &self.raising
    }

    /// Returns the event with this id, for the monitor to change its labels or its status.
    pub(crate) fn event_mut(&mut self, id: EventId) -> Option<&mut Event> {
        self.events.get_mut(id.0)
    }

    /// Returns the region of a node: its path, and its span if it is a part of a text.
    pub fn region(&self, event: EventId, node: NodeId) -> Region {
        let document = self.event(event).map(|e| &e.document);
        let path = document.map(|d| d.path(node)).unwrap_or_default();
        let span = document.and_then(|d| d.node(node)).and_then(|n| n.span.clone());
        Region { event, path, span }
    }
}
