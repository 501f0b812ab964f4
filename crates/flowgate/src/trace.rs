//! Traces: the append-only record of what an agent saw and did.
//!
//! Events of several agents form a directed acyclic graph. `a` comes before `b` if the agent of `b` had
//! *seen* `a` by then; each event carries a clock (how many events of each agent had been seen), so that
//! this is one comparison. For a single agent it is the order of the list.

pub mod document;
pub mod event;
pub mod located;
mod origin;
mod path;
mod reach;
pub mod read;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

pub(crate) use document::sole_text;
pub use document::{Content, Document, Node, NodeId};
pub use event::{ArgumentsError, Body, Call, Entry, Message, Output, Tool, ToolDescription};
pub(crate) use origin::characters;
pub use origin::{Described, Origin, Part};
pub use path::{Path, Step};

use crate::label::Label;

/// The place of an event in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub usize);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}

/// A piece of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region {
    /// The event.
    pub event: EventId,
    /// The path from the event's root.
    pub path: Path,
    /// Which bytes of the enclosing text spell the piece, if it is part of a text.
    pub span: Option<std::ops::Range<usize>>,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.event, self.path)?;
        match &self.span {
            Some(span) => write!(f, ":{}-{}", span.start, span.end),
            None => Ok(()),
        }
    }
}

/// How far a call has come. Messages and outputs are [`Status::Done`] at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// Judged and reserved, not run yet.
    Pending,
    /// It happened.
    Done,
    /// Given up before it ran; rules do not see it.
    Withdrawn,
}

/// Which earlier events an event may depend on, as far as that is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Influence {
    /// Everything that its agent had seen.
    All,
    /// These, and what they depend on.
    Of(Vec<EventId>),
    /// What its agent had seen and may be shown to somebody at this label; and these, and what they depend on.
    View(Label, Vec<EventId>),
}

/// One event with its labels.
#[derive(Debug, Clone)]
pub struct Event {
    /// What happened.
    pub body: Body,
    /// Its labelled pieces.
    pub document: Document,
    /// The join of all its labels.
    pub label: Label,
    /// The join of everything its agent had seen, itself included.
    pub context: Label,
    /// The index of its agent.
    pub agent: usize,
    /// How far it has come.
    pub status: Status,
    /// For an output, the call that it answers.
    pub call: Option<EventId>,
    /// For an output, the call that it says it answers, though another may have answered first. Grants nothing.
    pub claimed: Option<EventId>,
    /// For a call, the message that proposes it.
    pub message: Option<EventId>,
    /// Where it stood in the list of messages that it was read from.
    pub origin: Option<Origin>,
    /// What it depends on.
    pub influence: Influence,
    /// For a call, how many regions were hidden from the model that decided on it.
    pub hidden: usize,
    /// For a call, the label of its verdict: what the call carries, joined with everything that rules could read
    /// when they let it pass. Its output carries no less.
    pub decided: Label,
    /// The stores it was read from, and how many calls had written to each by then.
    pub(crate) read_from: Vec<(usize, usize)>,
    /// Fields that were not understood, as they stood.
    pub extra: Map<String, Value>,
    /// How many events of its own agent came before.
    sequence: usize,
    /// How many events of each agent had been seen; its own agent's entry is not kept up to date.
    clock: Arc<[usize]>,
    /// The event of the same agent before this one.
    previous: Option<EventId>,
}

impl Event {
    /// The tool of a call.
    pub fn tool(&self) -> Option<&Tool> {
        match &self.body {
            Body::Call(call) => Some(&call.tool),
            _ => None,
        }
    }
}

/// The record of what the agents of one session saw and did.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    events: Vec<Event>,
    agents: Vec<String>,
    /// Where each agent stands.
    heads: Vec<Head>,
    named: HashMap<String, EventId>,
    calls: HashMap<String, Vec<EventId>>,
    last_call: Option<EventId>,
    /// The calls that wrote to each store.
    writers: Vec<Vec<EventId>>,
    /// The events that raised what their agent had seen: as few as the lattice is high.
    raising: Vec<EventId>,
    /// The join of all calls, outputs and messages of models.
    calls_context: Label,
}

/// Where an agent stands. What it has seen stays seen, even if the call that said so was taken back.
#[derive(Debug, Clone, Default)]
struct Head {
    last: Option<EventId>,
    clock: Arc<[usize]>,
    context: Label,
}

/// Where a new event stands: whose it is and what that agent has seen.
#[derive(Debug, Clone)]
pub struct Place {
    agent: usize,
    previous: Option<EventId>,
    sequence: usize,
    clock: Arc<[usize]>,
    /// The join of everything seen before.
    pub context: Label,
}

/// An entry that cannot be placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlaceError {
    /// It names a parent that is not in the trace.
    UnknownParent,
    /// Another event has the same name.
    DuplicateName,
    /// The session has as many agents as it may have.
    TooManyAgents,
}

/// How many agents one session may have.
const MAX_AGENTS: usize = 256;

impl fmt::Display for PlaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UnknownParent => "the event names a parent that is not in the trace",
            Self::DuplicateName => "another event has the same name",
            Self::TooManyAgents => "the session has as many agents as it may have",
        })
    }
}

impl std::error::Error for PlaceError {}

impl Trace {
    /// An empty trace.
    pub fn new() -> Self {
        Self::default()
    }

    /// All events, in order of arrival.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The event with this id.
    pub fn event(&self, id: EventId) -> Option<&Event> {
        self.events.get(id.0)
    }

    /// How many events there are.
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether nothing has happened yet.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The calls with this id, withdrawn ones left out. More than one is a client's mistake, or worse.
    pub fn calls_with_id(&self, call_id: &str) -> impl Iterator<Item = EventId> + '_ {
        let ids = self.calls.get(call_id).map_or(&[] as &[EventId], Vec::as_slice);
        ids.iter()
            .copied()
            .filter(|id| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn))
    }

    /// The name of an agent; the main agent's is empty.
    pub fn agent_name(&self, agent: usize) -> &str {
        self.agents.get(agent).map_or("", String::as_str)
    }

    /// The event of the same agent right before, withdrawn calls left out.
    pub fn previous(&self, id: EventId) -> Option<EventId> {
        let step = |id: &EventId| self.event(*id).and_then(|event| event.previous);
        std::iter::successors(step(&id), step)
            .find(|id| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn))
    }

    /// The label of the fact that the event happened: for an output, that of its call. Nobody who may see less may
    /// know of the event at all.
    pub fn existence(&self, id: EventId) -> Label {
        let Some(event) = self.event(id) else { return Label::BOTTOM };
        match (&event.body, event.call.and_then(|call| self.event(call))) {
            (Body::Output(_), Some(call)) => call.document.frame_label(),
            _ => event.document.frame_label(),
        }
    }

    /// Whether whoever stands at `place` has seen the event.
    pub fn has_seen(&self, place: &Place, id: EventId) -> bool {
        self.event(id).is_some_and(|event| {
            if event.agent == place.agent {
                event.sequence < place.sequence
            } else {
                place.clock.get(event.agent).is_some_and(|seen| event.sequence < *seen)
            }
        })
    }

    /// Finds where an entry stands. The first event of a new agent that names no parent has seen all.
    ///
    /// # Errors
    /// If it names a parent that is not there, or bears a name that is taken.
    pub fn place(&self, entry: &Entry) -> Result<Place, PlaceError> {
        let name = entry.agent.as_deref().unwrap_or("");
        let agent = self.agents.iter().position(|a| a == name).unwrap_or(self.agents.len());
        if entry.name.as_ref().is_some_and(|name| self.named.contains_key(name)) {
            return Err(PlaceError::DuplicateName);
        }
        if agent >= MAX_AGENTS {
            return Err(PlaceError::TooManyAgents);
        }
        let known = self.heads.get(agent);
        let head = known.and_then(|head| head.last);
        let mut parents: Vec<EventId> = Vec::new();
        for parent in &entry.parents {
            parents.push(*self.named.get(parent).ok_or(PlaceError::UnknownParent)?);
        }
        if known.is_none() && parents.is_empty() {
            // Whoever starts without saying from where may have been told anything.
            parents.extend(self.heads.iter().filter_map(|head| head.last));
        }
        let sequence = head.and_then(|id| self.event(id)).map_or(0, |event| event.sequence + 1);
        let before = |id: &EventId| self.event(*id);
        let mut context = known.map_or(Label::BOTTOM, |head| head.context);
        for event in parents.iter().filter_map(before) {
            context = context.join(&event.context);
        }
        let inherited = known.map(|head| Arc::clone(&head.clock));
        let clock = match inherited {
            Some(clock) if parents.is_empty() => clock,
            inherited => {
                let mut clock = vec![0; self.agents.len().max(agent + 1)];
                let mut merge = |index: usize, seen: usize| {
                    if let Some(entry) = clock.get_mut(index) {
                        *entry = (*entry).max(seen);
                    }
                };
                inherited
                    .iter()
                    .flat_map(|c| c.iter().enumerate())
                    .for_each(|(index, seen)| merge(index, *seen));
                for event in parents.iter().filter_map(before) {
                    event.clock.iter().enumerate().for_each(|(index, seen)| merge(index, *seen));
                    merge(event.agent, event.sequence + 1);
                }
                clock.into()
            }
        };
        Ok(Place { agent, previous: head, sequence, clock, context })
    }

    /// Appends an event whose labels are settled.
    pub(crate) fn append(
        &mut self,
        entry: Entry,
        place: Place,
        document: Document,
        status: Status,
        call: Option<EventId>,
        influence: Influence,
    ) -> EventId {
        let id = EventId(self.events.len());
        if place.agent == self.agents.len() {
            self.agents.push(entry.agent.clone().unwrap_or_default());
            self.heads.push(Head::default());
        }
        if let Some(head) = self.heads.get_mut(place.agent) {
            let context = place.context.join(&document.label_of(0));
            *head = Head { last: Some(id), clock: Arc::clone(&place.clock), context };
        }
        if let Some(name) = &entry.name {
            self.named.insert(name.clone(), id);
        }
        if let Body::Call(call) = &entry.body {
            self.calls.entry(call.id.clone()).or_default().push(id);
            self.last_call = Some(id);
        }
        let claimed = self.claimed(&entry.body);
        let message = self.proposing(&entry, place.previous);
        let label = document.label_of(0);
        let context = place.context.join(&label);
        let Place { agent, previous, sequence, clock, .. } = place;
        let (body, extra, origin) = (entry.body, entry.extra, entry.origin);
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
            extra,
            sequence,
            clock,
            previous,
            read_from: Vec::new(),
        });
        id
    }

    /// The call that an output says it answers; without an id, the last one.
    fn claimed(&self, body: &Body) -> Option<EventId> {
        let Body::Output(output) = body else { return None };
        let is_live = |id: &EventId| self.event(*id).is_some_and(|event| event.status != Status::Withdrawn);
        if output.call_id.is_empty() {
            return self.last_call.filter(is_live);
        }
        self.calls.get(&output.call_id)?.iter().rev().copied().find(is_live)
    }

    /// The message that proposes a call: the same message was read right before.
    fn proposing(&self, entry: &Entry, previous: Option<EventId>) -> Option<EventId> {
        let Body::Call(_) = &entry.body else { return None };
        let previous = previous?;
        let before = self.event(previous)?;
        if before.origin?.message != entry.origin?.message {
            return None;
        }
        match &before.body {
            Body::Message(_) => Some(previous),
            Body::Call(_) => before.message,
            Body::Output(_) | Body::Tool(_) => None,
        }
    }

    /// Takes back the last event, which nothing has seen yet.
    ///
    /// `seen` is what its agent had seen before it.
    pub(crate) fn retract(&mut self, id: EventId, seen: &Label) -> Option<Event> {
        if id.0 + 1 != self.events.len() {
            return None;
        }
        let event = self.events.pop()?;
        if let Some(head) = self.heads.get_mut(event.agent) {
            head.last = event.previous;
            head.context = *seen;
        }
        if let Body::Call(call) = &event.body
            && let Some(ids) = self.calls.get_mut(&call.id)
        {
            ids.retain(|known| *known != id);
        }
        self.named.retain(|_, known| *known != id);
        self.raising.retain(|known| *known != id);
        if self.last_call == Some(id) {
            self.last_call =
                self.events.iter().rposition(|event| matches!(event.body, Body::Call(_))).map(EventId);
        }
        Some(event)
    }

    /// Notes that a call wrote to stores.
    pub(crate) fn wrote(&mut self, id: EventId, stores: &[usize]) {
        for store in stores {
            if self.writers.len() <= *store {
                self.writers.resize(store + 1, Vec::new());
            }
            if let Some(writers) = self.writers.get_mut(*store) {
                writers.push(id);
            }
        }
    }

    /// Notes that an event was read from stores as they are now.
    pub(crate) fn read_from(&mut self, id: EventId, stores: &[usize]) {
        let counts =
            stores.iter().map(|store| (*store, self.writers.get(*store).map_or(0, Vec::len))).collect();
        if let Some(event) = self.event_mut(id) {
            event.read_from = counts;
        }
    }

    /// Settles the labels of an event after its document was labelled.
    pub(crate) fn settle(&mut self, id: EventId, seen: &Label) {
        let Some(event) = self.event_mut(id) else { return };
        event.label = event.document.label_of(0);
        event.context = seen.join(&event.label);
        let (agent, context) = (event.agent, event.context);
        let is_said = match &event.body {
            Body::Message(message) => !matches!(message.role.as_str(), "assistant" | "model"),
            Body::Tool(_) => true,
            Body::Call(_) | Body::Output(_) => false,
        };
        let label = event.label;
        if !is_said {
            self.calls_context = self.calls_context.join(&label);
        }
        if let Some(head) = self.heads.get_mut(agent) {
            head.context = context;
        }
        let Some(event) = self.event(id) else { return };
        if !event.label.flows_to(seen) {
            self.raising.push(id);
        }
    }

    /// Gives up the name of an event that does not happen.
    pub(crate) fn forget_name(&mut self, id: EventId) {
        self.named.retain(|_, known| *known != id);
    }

    /// Calls may be made from now on by somebody who was shown what flows to `view`.
    pub(crate) fn enter(&mut self, view: &Label) {
        self.calls_context = self.calls_context.join(view);
    }

    /// The join of all calls that were judged or could have been, their outputs, and what models said.
    pub(crate) fn calls_context(&self) -> Label {
        self.calls_context
    }

    /// The events that raised what their agent had seen, in order.
    pub(crate) fn raising(&self) -> &[EventId] {
        &self.raising
    }

    pub(crate) fn event_mut(&mut self, id: EventId) -> Option<&mut Event> {
        self.events.get_mut(id.0)
    }

    /// The region of a node.
    pub fn region(&self, event: EventId, node: NodeId) -> Region {
        let document = self.event(event).map(|e| &e.document);
        let path = document.map(|d| d.path(node)).unwrap_or_default();
        let span = document.and_then(|d| d.node(node)).and_then(|n| n.span.clone());
        Region { event, path, span }
    }
}
