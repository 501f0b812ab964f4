//! The monitor: labels the events of one session and judges calls before they run.
//!
//! It owns the trace, the labels of stores and the roster of names. This is the only module that creates a
//! [`Permit`]. It reads no clock and no file and draws no random number: the same policy and the same events
//! give the same verdicts, live or over a log.

mod attribution;
mod examine;
mod failure;
mod floors;
mod fork;
mod labelling;
mod memory;
mod offer;
mod reasons;
mod references;
mod regions;
mod requirement;
mod stores;
mod verdict;
mod withdraw;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Map;

pub use attribution::{Attribution, Source};
pub use floors::Floors;
pub use verdict::{
    Authorized, Denial, Finding, Judgement, Outcome, Permit, Question, Reason, ReasonKind, Verdict,
};

use crate::eval::Parameters;
use crate::label::{Label, Roster};
use crate::policy::pattern::Servers;
use crate::policy::plan::Type;
use crate::policy::{Action, Policy};
use crate::predicates::{Answered, Answers, Predicates};
use crate::rules::Rules;
use crate::trace::{Body, Call, Entry, EventId, Influence, PlaceError, Region, Status, Tool, Trace};
use examine::Examined;
pub use memory::MemoryError;
use references::Versions;
use stores::{Access, Stores};
use verdict::{Approval, Ticket};

/// Bounds on one session. What exceeds them is not permitted.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The evaluation steps (fuel) for one event or one call.
    pub fuel: u64,
    /// The number of events in a session. No event is ever discarded, so a session that reaches the bound is
    /// closed.
    pub events: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { fuel: 5_000_000, events: 1_000_000 }
    }
}

/// The greatest number of arguments of a call.
const MAX_ARGUMENTS: usize = 1_000;

/// The statements that apply to a tool, by index; computed once per tool.
#[derive(Debug, Default)]
struct Applicable {
    labels: Vec<usize>,
    requirements: Vec<usize>,
    payloads: Vec<usize>,
    consents: Vec<usize>,
    endorsements: Vec<usize>,
}

/// The state of one session under one policy.
#[derive(Debug)]
pub struct Monitor {
    policy: Arc<Policy>,
    limits: Limits,
    trace: Trace,
    roster: Roster,
    servers: Servers,
    /// The tools that were declared or have run.
    met: std::collections::HashSet<Tool>,
    /// The identity of this monitor: permits and questions are valid only in the monitor that created them.
    home: Arc<()>,
    stores: Stores,
    rules: Rules,
    applicable: HashMap<Tool, Arc<Applicable>>,
    messages: Arc<Applicable>,
    tools: Arc<Applicable>,
    parameters: Parameters,
    answers: Answers,
    /// The stores that a tool accesses, by tool and by whether the call is harmless.
    known_accesses: HashMap<(Tool, bool), Access>,
    accesses: HashMap<EventId, Access>,
    /// Calls of a log that were denied but ran.
    unpermitted: std::collections::HashSet<EventId>,
    answered: std::collections::HashSet<EventId>,
    /// The withdrawn consents, by the start of their spans.
    withdrawn: std::collections::BTreeSet<usize>,
    reserved: Vec<(EventId, Arc<Ticket>)>,
    version: u64,
}

/// The reason why an event cannot be pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PushError {
    /// The event has no place in the trace.
    Place(PlaceError),
    /// The event is a call; calls are judged, not pushed.
    IsCall,
    /// The session has reached [`Limits::events`].
    Full,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Place(error) => error.fmt(f),
            Self::IsCall => f.write_str("a call is judged, not pushed"),
            Self::Full => f.write_str("the session has as many events as it may have"),
        }
    }
}

impl std::error::Error for PushError {}

/// A call of a log, judged after the fact.
#[derive(Debug)]
pub struct Recorded {
    /// The outcome that the verdict would have had.
    pub outcome: Outcome,
    /// The judgement of the call.
    pub judgement: Judgement,
    /// The place of the call in the trace; `None` if it has none.
    pub event: Option<EventId>,
}

impl Monitor {
    /// Creates a monitor for one session, with default limits.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self::with_limits(policy, Limits::default())
    }

    /// Creates a monitor for one session, with the given limits.
    pub fn with_limits(policy: Arc<Policy>, limits: Limits) -> Self {
        let mut roster = Roster::new(policy.space());
        // The names in the policy take their slots first, so that names in data cannot exhaust the roster
        // before.
        policy.plan.intern(&mut roster);
        let messages = Arc::new(labelling::for_kind(&policy.plan, Type::Message));
        let tools = Arc::new(labelling::for_kind(&policy.plan, Type::Tool));
        let rules = Rules::new(&policy.plan);
        Self {
            policy,
            limits,
            trace: Trace::new(),
            roster,
            servers: Servers::default(),
            met: std::collections::HashSet::new(),
            home: Arc::new(()),
            stores: Stores::default(),
            rules,
            applicable: HashMap::new(),
            messages,
            tools,
            parameters: Parameters::default(),
            answers: Answers::default(),
            known_accesses: HashMap::new(),
            accesses: HashMap::new(),
            unpermitted: std::collections::HashSet::new(),
            answered: std::collections::HashSet::new(),
            withdrawn: std::collections::BTreeSet::new(),
            reserved: Vec::new(),
            version: 0,
        }
    }

    /// Returns the policy that is enforced.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns a shared reference to the policy, for another session.
    pub fn shared_policy(&self) -> Arc<Policy> {
        Arc::clone(&self.policy)
    }

    /// Returns the trace so far.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Describes a label in the words of the policy, one phrase for each dimension.
    pub fn describe(&self, label: &Label) -> Vec<String> {
        self.policy.space().describe(label, self.policy.space().all(), &self.roster)
    }

    /// Sets the parameters of the policy: the values of `input.NAME`.
    pub fn set_parameters(&mut self, parameters: &Map<String, serde_json::Value>) {
        self.parameters = Parameters::new(parameters);
        self.version += 1;
    }

    /// Allows one more output for the call that an output answers: an intermediary saw that output, and may
    /// pass it on in other words.
    pub fn reopen(&mut self, output: EventId) {
        if let Some(call) = self.trace.event(output).and_then(|event| event.call) {
            self.answered.remove(&call);
        }
    }

    /// Sets the functions that answer the `extern` predicates of the policy, and the answers that were
    /// recorded before.
    ///
    /// An answer holds for the whole session. A replay that is given the record of another run reaches the
    /// same verdicts.
    pub fn set_predicates(&mut self, predicates: Predicates, recorded: Vec<Answered>) {
        self.answers = Answers::new(predicates, recorded);
        self.version += 1;
    }

    /// Returns all recorded answers, sorted by question.
    pub fn answers(&self) -> Vec<Answered> {
        self.answers.recorded()
    }

    /// Declares tools that exist, so that a name that two servers offer is ambiguous from the start.
    pub fn declare_tools<'t>(&mut self, tools: impl IntoIterator<Item = &'t Tool>) {
        for tool in tools {
            self.meet(tool);
        }
    }

    /// Appends a message, a tool's output or a tool's description, labels it, and returns the findings about
    /// it.
    ///
    /// # Errors
    /// If the event is a call, has no place in the trace, or exceeds [`Limits::events`].
    pub fn push(&mut self, entry: Entry) -> Result<(EventId, Vec<Finding>), PushError> {
        self.push_seen(entry, None, &Floors::default())
    }

    /// Appends an event that carries at least the given floors, in addition to the label that the policy
    /// gives it. Floors come from another session, from a server's statement about its own answers, or from
    /// quoted text that was labelled higher elsewhere.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_raised(
        &mut self,
        entry: Entry,
        floors: &Floors,
    ) -> Result<(EventId, Vec<Finding>), PushError> {
        self.push_seen(entry, None, floors)
    }

    /// Returns a label as names, for another session: see [`from_names`](Self::from_names).
    pub fn to_names(&self, label: &Label) -> serde_json::Value {
        self.policy.space().to_names(label, &self.roster)
    }

    /// Returns the label that another session represents by these names, or the next greater label of this
    /// session.
    pub fn from_names(&mut self, names: &serde_json::Value) -> Label {
        self.policy.space().from_names(names, &mut self.roster)
    }

    /// Appends a message of a model that was shown what flows to `view` and nothing else. The caller vouches
    /// for that.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_generated(
        &mut self,
        entry: Entry,
        view: Label,
    ) -> Result<(EventId, Vec<Finding>), PushError> {
        self.push_seen(entry, Some(view), &Floors::default())
    }

    fn push_seen(
        &mut self,
        entry: Entry,
        view: Option<Label>,
        floors: &Floors,
    ) -> Result<(EventId, Vec<Finding>), PushError> {
        self.push_labelled(entry, view, floors, false)
    }

    /// Appends an event. The outcome of a failed call carries its floors; label statements do not apply to
    /// it.
    fn push_labelled(
        &mut self,
        entry: Entry,
        view: Option<Label>,
        floors: &Floors,
        is_failure: bool,
    ) -> Result<(EventId, Vec<Finding>), PushError> {
        self.sweep();
        if matches!(entry.body, Body::Call(_)) {
            return Err(PushError::IsCall);
        }
        if self.trace.len() >= self.limits.events {
            return Err(PushError::Full);
        }
        let place = self.trace.place(&entry).map_err(PushError::Place)?;
        self.version += 1;
        let mut fuel = self.limits.fuel;
        let (id, mut findings) = self.label_and_append(entry, place, view, floors, is_failure, &mut fuel);
        for reason in self.meet_rules(id, &mut fuel) {
            findings.push(Finding { event: id, reason });
        }
        Ok((id, findings))
    }

    /// Judges a call as if everything had influenced it.
    pub fn judge(&mut self, call: Call) -> Verdict {
        self.judge_entry(Entry::from(Body::Call(call)), Attribution::everything())
    }

    /// Judges a call of one agent, given what the call depends on.
    ///
    /// Never fails: a call that cannot be decided is denied, with the reason.
    pub fn judge_entry(&mut self, entry: Entry, attribution: Attribution) -> Verdict {
        self.sweep();
        self.judge_with(entry, attribution, None)
    }

    fn judge_with(&mut self, entry: Entry, attribution: Attribution, approval: Option<Approval>) -> Verdict {
        let original = entry.clone();
        let examined = self.examine(entry, &attribution, approval.as_ref());
        let Examined { judgement, event, entry, access, seen } = examined;
        match (judgement.outcome(), event) {
            (Outcome::Permit, Some(event)) => {
                let ticket = Arc::new(Ticket::default());
                self.reserved.push((event, Arc::clone(&ticket)));
                self.accesses.insert(event, access);
                // A reservation alone changes no verdict that was given before it, so the version stays the
                // same: calls of one message are judged in order, and may run in that order.
                let version = self.version;
                let home = Arc::clone(&self.home);
                Verdict::Permit(Permit {
                    entry,
                    attribution,
                    judgement,
                    event,
                    version,
                    approval,
                    home,
                    ticket,
                })
            }
            (Outcome::Confirm, Some(event)) => {
                self.take_back(event, &seen);
                let (stores, referred) = self.touched(&original, &access);
                let home = Arc::clone(&self.home);
                let entry = original;
                Verdict::Confirm(Question { entry, attribution, judgement, event, stores, referred, home })
            }
            (_, event) => {
                event.into_iter().for_each(|event| self.take_back(event, &seen));
                Verdict::Deny(Denial { judgement: Box::new(judgement) })
            }
        }
    }

    /// Turns a person's approval into a permit for exactly the call that was asked about.
    ///
    /// The call is judged again in the current state: a denial wins, and so does a reason that the question
    /// did not list. The approval is void once this session has written to a store that the call touches, or
    /// another session to a store whose state the call refers to.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn approve(&mut self, question: Question) -> Result<Permit, Denial> {
        self.sweep();
        if !Arc::ptr_eq(&self.home, &question.home) {
            return Err(self.void(question.judgement, "the question was asked in another session"));
        }
        if !self.stores.unchanged(&question.stores) || !self.stores.unchanged_by_others(&question.referred) {
            let message = "state that the call refers to has changed since the question was asked";
            return Err(self.void(question.judgement, message));
        }
        let approval = Approval { reasons: question.judgement.reasons, event: question.event };
        match self.judge_with(question.entry, question.attribution, Some(approval)) {
            Verdict::Permit(permit) => Ok(permit),
            Verdict::Confirm(again) => {
                Err(self.void(again.judgement, "there is a reason that the approval does not cover"))
            }
            Verdict::Deny(denial) => Err(denial),
        }
    }

    /// Turns a permit into a question, so that a person decides on a call that is permitted. The permit is
    /// given up.
    pub fn ask_anyway(&mut self, permit: Permit) -> Question {
        let (event, judgement) = (permit.event, permit.judgement.clone());
        let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
        let access = self.accesses.get(&event).cloned().unwrap_or_default();
        let (stores, referred) = self.touched(&entry, &access);
        let home = Arc::clone(&permit.home);
        drop(permit);
        self.sweep();
        Question { entry, attribution, judgement, event, stores, referred, home }
    }

    /// Returns the versions of the stores that a call touches, which count this session's writes, and of the
    /// stores to whose state it refers, which count the writes of other sessions.
    fn touched(&self, entry: &Entry, access: &Access) -> (Versions, Versions) {
        let referred = match &entry.body {
            Body::Call(call) => self.referred(call, access),
            _ => Versions::new(),
        };
        (self.stores.versions(access), referred)
    }

    fn void(&self, mut judgement: Judgement, message: &str) -> Denial {
        judgement.reasons.push(Reason::new(ReasonKind::Stale, Action::Deny, message));
        Denial { judgement: Box::new(judgement) }
    }

    /// Redeems a permit: the call runs now. It is judged again first if the state has changed since the
    /// permit was given.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn redeem(&mut self, permit: Permit) -> Result<Authorized, Denial> {
        self.sweep();
        let mut permit = permit;
        if !Arc::ptr_eq(&self.home, &permit.home) {
            return Err(self.void(permit.judgement.clone(), "the permit was made in another session"));
        }
        if permit.version != self.version {
            self.withdraw(permit.event);
            let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
            permit = match self.judge_with(entry, attribution, permit.approval.clone()) {
                Verdict::Permit(again) => again,
                Verdict::Confirm(question) => {
                    return Err(
                        self.void(question.judgement, "a question has come up since the call was judged")
                    );
                }
                Verdict::Deny(denial) => return Err(denial),
            };
        }
        let event = permit.event;
        self.reserved.retain(|(reserved, _)| *reserved != event);
        self.run(event);
        let Body::Call(call) = permit.entry.body.clone() else {
            return Err(self.void(permit.judgement.clone(), "only calls run"));
        };
        Ok(Authorized { call, event })
    }

    /// Judges a call of a log, and records that it ran whatever the verdict is.
    pub fn record(&mut self, entry: Entry, attribution: &Attribution) -> Recorded {
        self.sweep();
        let examined = self.examine(entry, attribution, None);
        let outcome = examined.judgement.outcome();
        if let Some(event) = examined.event {
            self.accesses.insert(event, examined.access);
            self.version += 1;
            self.run(event);
            if outcome == Outcome::Deny {
                self.unpermitted.insert(event);
            }
        } else {
            // The call ran but has no place in the trace, so it may have written to any store.
            self.stores.raise_all(&self.policy.space().top());
            self.version += 1;
        }
        Recorded { outcome, judgement: examined.judgement, event: examined.event }
    }

    /// Marks a call as done and applies its writes to the stores.
    fn run(&mut self, event: EventId) {
        self.version += 1;
        let mut tool = None;
        if let Some(call) = self.trace.event_mut(event) {
            call.status = Status::Done;
            tool = call.tool().cloned();
        }
        let (label, is_view) = self.trace.event(event).map_or((Label::BOTTOM, false), |call| {
            (call.label, matches!(call.influence, Influence::View(..)))
        });
        if let Some(tool) = tool {
            self.meet(&tool);
            if !is_view {
                // Whether this call is harmless may depend on its arguments, so the stores that any call of the tool could
                // write to carry its label either way. For views, judging and entering have raised them.
                let harmless = offer::is_harmless(&self.policy.plan, &tool);
                let possible = self.access(tool, harmless);
                self.stores.raise(&possible.writes, &label);
            }
        }
        if let Some(access) = self.accesses.get(&event) {
            self.stores.write(&access.writes, &label);
            self.trace.wrote(event, &access.writes);
        }
    }

    /// Records that a tool exists. It can make a pattern ambiguous that earlier verdicts relied on.
    fn meet(&mut self, tool: &Tool) {
        if self.met.insert(tool.clone()) {
            self.servers.meet(&self.policy.plan.patterns, tool);
            self.known_accesses.clear();
            self.version += 1;
        }
    }

    fn access(&mut self, tool: Tool, is_harmless: bool) -> Access {
        let key = (tool, is_harmless);
        if let Some(known) = self.known_accesses.get(&key) {
            return known.clone();
        }
        let plan = &self.policy.plan;
        let access = self.stores.access(plan, &self.servers, &key.0, is_harmless);
        self.known_accesses.insert(key, access.clone());
        access
    }

    fn applicable(&mut self, tool: &Tool) -> Arc<Applicable> {
        if let Some(known) = self.applicable.get(tool) {
            return Arc::clone(known);
        }
        let found = Arc::new(labelling::for_tool(&self.policy.plan, tool));
        self.applicable.insert(tool.clone(), Arc::clone(&found));
        found
    }

    /// Withdraws the calls whose permits were dropped.
    fn sweep(&mut self) {
        if self.reserved.iter().all(|(_, ticket)| !ticket.is_given_up()) {
            return;
        }
        let given_up: Vec<EventId> = self
            .reserved
            .iter()
            .filter(|(_, ticket)| ticket.is_given_up())
            .map(|(event, _)| *event)
            .collect();
        for event in given_up {
            self.withdraw(event);
        }
        self.version += 1;
    }

    fn withdraw(&mut self, event: EventId) {
        self.reserved.retain(|(reserved, _)| *reserved != event);
        self.accesses.remove(&event);
        self.trace.forget_name(event);
        if let Some(call) = self.trace.event_mut(event) {
            call.status = Status::Withdrawn;
        }
    }

    fn take_back(&mut self, event: EventId, seen: &Label) {
        self.trace.retract(event, seen);
        self.rules.forget(&self.policy.plan, event);
    }

    fn region(&self, event: EventId, node: usize) -> Region {
        self.trace.region(event, node)
    }
}

/// Converts a call to an entry without unrecognised fields.
impl From<Call> for Entry {
    fn from(call: Call) -> Self {
        Self::from(Body::Call(call))
    }
}
