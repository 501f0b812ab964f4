//! Labels the events of one session and judges calls before they run.
//!
//! A [`Monitor`] owns the trace, the labels of stores and the names that labels use, and alone creates a [`Permit`].
//! The program that drives an agent calls the monitor for every event. The monitor reads no clock and no file and draws
//! no random number: the same policy and events give the same verdicts, live or in a replay. Of the submodules,
//! `labelling` labels events, `call_examination` judges a call, and `verdict` defines the result.

mod applicable_statements;
mod approvers;
mod argument_path;
mod attribution;
mod call_examination;
mod call_withdrawal;
mod computed_label;
mod consent_limits;
mod consent_withdrawal;
mod endorsement;
mod exceeding_regions;
mod external_state;
mod failure;
mod floors;
mod fork;
mod frame_bounds;
mod grants;
mod input_record;
mod label_sources;
mod labelling;
mod part_bounds;
mod person_decision;
mod push_error;
mod question_evidence;
mod question_summary;
mod reasons;
mod recorded_calls;
mod referenced_state;
mod regions;
mod rejudge;
pub(crate) use endorsement::MAX_ENDORSED_ITEMS;
mod requirement;
mod stores;
mod tool_bounds;
mod verdict;
mod view_label;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Map;

pub use attribution::{Attribution, CallDependency};
pub use floors::Floors;
pub use grants::Grant;
pub use person_decision::PersonDecision;
pub use push_error::PushError;
pub use rejudge::{RejudgedCall, RejudgedSession};
pub use verdict::{
    AuthorizedCall, Denial, EventFinding, Judgement, Outcome, Permit, Question, Reason, ReasonKind,
    ValueClass, Verdict,
};

use crate::eval::Parameters;
use crate::label::{Label, NameTable};
use crate::policy::pattern::MatchedServers;
use crate::policy::plan::Type;
use crate::policy::{Action, Policy};
use crate::predicates::{PredicateAnswer, PredicateAnswers, Predicates};
use crate::rules::RuleMatcher;
use crate::trace::{Call, EventBody, EventId, PossibleInfluence, Region, Status, Tool, Trace, TraceEntry};
use applicable_statements::ApplicableStatements;
use call_examination::ExaminedCall;
pub use external_state::ExternalStateError;
use input_record::{MonitorInput, PushedInput};
use referenced_state::StoreVersions;
use stores::{StoreAccess, StoreLabels};
use verdict::{Approval, PermitDropFlag};

/// Bounds on one session. An event or a call that exceeds one of them is refused or denied.
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

/// The maximum number of arguments of a call.
const MAX_ARGUMENTS: usize = 1_000;

/// The state of one session under one policy.
///
/// The methods are grouped by purpose: sessions; events; calls and approvals; labels; failed calls; forks of a
/// session; what tools require and offer; consents; external state. Most programs need [`new`](Self::new),
/// [`push`](Self::push), [`judge`](Self::judge), [`approve`](Self::approve) and [`redeem`](Self::redeem) alone.
#[derive(Debug)]
pub struct Monitor {
    policy: Arc<Policy>,
    limits: Limits,
    trace: Trace,
    /// The names in open dimensions, such as readers, that the bits of labels represent.
    name_table: NameTable,
    /// The servers whose tools each pattern without a server has matched: with two of them, the pattern grants nothing.
    servers: MatchedServers,
    /// The tools that were declared or have run.
    known_tools: std::collections::HashSet<Tool>,
    /// The identity of this monitor: permits and questions are valid only in the monitor that created them.
    session_identity: Arc<()>,
    stores: StoreLabels,
    /// The rules, with the events that fit their variables.
    rules: RuleMatcher,
    /// The statements that apply to each tool, as far as they have been selected.
    applicable: HashMap<Tool, Arc<ApplicableStatements>>,
    /// The statements that label messages.
    messages: Arc<ApplicableStatements>,
    /// The statements that label descriptions of tools.
    tools: Arc<ApplicableStatements>,
    parameters: Parameters,
    /// The extern predicates, and their answers so far.
    answers: PredicateAnswers,
    /// A cache of the stores that a tool accesses, by tool and by whether the call is harmless.
    known_accesses: HashMap<(Tool, bool), StoreAccess>,
    /// The stores that each permitted or recorded call accesses.
    accesses: HashMap<EventId, StoreAccess>,
    /// The calls that ran although they were denied: calls of a log, which are recorded whatever the verdict is.
    unpermitted: std::collections::HashSet<EventId>,
    /// The calls that have an output.
    answered: std::collections::HashSet<EventId>,
    /// The withdrawn consents, by the start of their spans.
    withdrawn: std::collections::BTreeSet<usize>,
    /// The calls that a person has approved for the rest of the session.
    grants: Vec<Grant>,
    /// The calls with a permit that was not redeemed, each with the flag that reports whether the permit was dropped.
    reserved: Vec<(EventId, Arc<PermitDropFlag>)>,
    /// Increases with each change of the state that can change a verdict.
    version: u64,
    /// The inputs so far, if they are recorded.
    inputs: Option<Vec<MonitorInput>>,
}

/// A call of a log, judged after the fact.
#[derive(Debug)]
pub struct RecordedCall {
    /// The outcome that the verdict would have had.
    pub outcome: Outcome,
    /// The judgement of the call.
    pub judgement: Judgement,
    /// The event of the call in the trace; `None` if the call could not be appended.
    pub event: Option<EventId>,
}

/// # Sessions
///
/// A monitor holds one session. What the embedding program knows beside the events is set before the first call.
impl Monitor {
    /// Creates a monitor for one session, with default limits.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self::with_limits(policy, Limits::default())
    }

    /// Creates a monitor for one session, with the given limits.
    pub fn with_limits(policy: Arc<Policy>, limits: Limits) -> Self {
        let mut name_table = NameTable::new(policy.space());
        // The names in the policy are interned first, so that names in data cannot exhaust the name table before.
        policy.plan.intern(&mut name_table);
        let messages = Arc::new(applicable_statements::statements_for_kind(&policy.plan, Type::Message));
        let tools = Arc::new(applicable_statements::statements_for_kind(&policy.plan, Type::Tool));
        let rules = RuleMatcher::new(&policy.plan);
        Self {
            policy,
            limits,
            trace: Trace::new(),
            name_table,
            servers: MatchedServers::default(),
            known_tools: std::collections::HashSet::new(),
            // Its address identifies the session.
            session_identity: Arc::new(()),
            stores: StoreLabels::default(),
            rules,
            applicable: HashMap::new(),
            messages,
            tools,
            parameters: Parameters::default(),
            answers: PredicateAnswers::default(),
            known_accesses: HashMap::new(),
            accesses: HashMap::new(),
            unpermitted: std::collections::HashSet::new(),
            answered: std::collections::HashSet::new(),
            withdrawn: std::collections::BTreeSet::new(),
            grants: Vec::new(),
            reserved: Vec::new(),
            version: 0,
            inputs: None,
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

    /// Returns the table of the names in open dimensions, such as readers, to which the labels of this session refer.
    pub fn name_table(&self) -> &NameTable {
        &self.name_table
    }

    /// Adds parameters of the policy (values of `input.NAME`), but keeps the value of a parameter that is set already.
    /// Returns whether a parameter was added.
    pub fn add_parameters(&mut self, parameters: &Map<String, serde_json::Value>) -> bool {
        // Earlier verdicts may be no longer valid, here and in the functions below.
        self.version += 1;
        self.parameters.add(parameters)
    }

    /// Sets the parameters of the policy to the parameters of another session.
    pub fn copy_parameters(&mut self, other: &Self) {
        self.parameters = other.parameters.clone();
        self.version += 1;
    }

    /// Sets the parameters of the policy: the values of `input.NAME`.
    pub fn set_parameters(&mut self, parameters: &Map<String, serde_json::Value>) {
        self.parameters = Parameters::new(parameters);
        self.version += 1;
    }

    /// Sets the functions that answer the `extern` predicates of the policy, and the answers that were
    /// recorded before.
    ///
    /// An answer holds for the whole session. A replay that is given the record of another run reaches the
    /// same verdicts.
    pub fn set_predicates(&mut self, predicates: Predicates, recorded: Vec<PredicateAnswer>) {
        self.answers = PredicateAnswers::new(predicates, recorded);
        self.version += 1;
    }

    /// Returns all recorded answers, sorted by question.
    pub fn predicate_answers(&self) -> Vec<PredicateAnswer> {
        self.answers.recorded()
    }

    /// Declares tools that exist, so that a name that two servers offer is ambiguous from the start. Also adds each
    /// declaration to the record of inputs, if there is one.
    pub fn declare_tools<'t>(&mut self, tools: impl IntoIterator<Item = &'t Tool>) {
        for tool in tools {
            self.record_input(|| MonitorInput::Declared(tool.clone()));
            self.register_tool(tool);
        }
    }
}

/// # Events
///
/// Messages, outputs and tool descriptions are pushed in the order in which the agent saw them.
impl Monitor {
    /// Appends a message, a tool's output or a tool's description, and labels it. Returns the event and the findings of
    /// the policy about it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`].
    pub fn push(&mut self, entry: TraceEntry) -> Result<(EventId, Vec<EventFinding>), PushError> {
        self.push_with_view(entry, None, &Floors::default())
    }

    /// Appends an event that carries at least the given floors, in addition to the label that the policy
    /// gives it. Floors come from another session, from a server's statement about its own answers, or from
    /// quoted text that was labelled higher elsewhere. Returns the event and the findings of the policy about it.
    ///
    /// # Errors
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`].
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
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`].
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
}

/// # Calls and approvals
///
/// A call is judged, approved by a person if the verdict asks for it, and redeemed when it runs.
/// [`record`](Self::record) is for logs of calls that ran already.
impl Monitor {
    /// Judges a call as if everything that its agent has seen had influenced it.
    pub fn judge(&mut self, call: Call) -> Verdict {
        self.judge_entry(TraceEntry::from(call), Attribution::everything())
    }

    /// Judges a call of one agent, given what the call depends on.
    ///
    /// Never fails: a call that cannot be decided is denied, with the reason.
    pub fn judge_entry(&mut self, entry: TraceEntry, attribution: Attribution) -> Verdict {
        self.withdraw_dropped_permits();
        self.record_judged(&entry, &attribution);
        self.judge_with(entry, attribution, None)
    }

    /// Turns a person's approval into a permit for exactly the call that was asked about.
    ///
    /// The call is judged again in the current state. It is denied if a reason denies it, or if a reason asks that the
    /// question did not list. The approval is void if, since the question, this session has written to a store that the
    /// call touches, or another session to a store whose state the call refers to. The approval counts for nobody in
    /// particular, so it does not suffice if [certain people](Question::approvers) must approve.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn approve(&mut self, question: Question) -> Result<Permit, Denial> {
        self.approve_by(question, &[])
    }

    /// Turns an approval into a permit, as [`approve`](Self::approve) does. The caller has checked that everybody who
    /// must approve has.
    fn approve_counted(&mut self, question: Question) -> Result<Permit, Denial> {
        self.withdraw_dropped_permits();
        if !Arc::ptr_eq(&self.session_identity, &question.session_identity) {
            return Err(self.stale_denial(
                question.judgement,
                "the question belongs to another session; approve it in the session that asked it",
            ));
        }
        if !self.stores.is_unchanged(&question.stores)
            || !self.stores.is_unchanged_by_others(&question.referred)
        {
            let message = "the external state that the call refers to has changed since the question was \
                asked; propose the call again";
            return Err(self.stale_denial(question.judgement, message));
        }
        // Judged in the current state; the reasons that the person was shown are left out.
        let approval = Approval { reasons: question.judgement.reasons, event: question.event };
        match self.judge_with(question.entry, question.attribution, Some(approval)) {
            Verdict::Permit(permit) => Ok(permit),
            Verdict::Confirm(again) => Err(self.stale_denial(
                again.judgement,
                "the call now needs an approval for another reason than the one that was approved; propose \
                the call again",
            )),
            Verdict::Deny(denial) => Err(denial),
        }
    }

    /// Turns a permit into a question, so that a person decides on a call that the policy permits: the caller may ask
    /// about more calls than the policy does. Drops the permit, which withdraws the call from the trace.
    pub fn require_approval(&mut self, permit: Permit) -> Question {
        let (event, judgement) = (permit.event, permit.judgement.clone());
        let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
        let access = self.accesses.get(&event).cloned().unwrap_or_default();
        let (stores, referred) = self.touched_versions(&entry, &access);
        let reads_state = !access.reads.is_empty();
        let session_identity = Arc::clone(&permit.session_identity);
        drop(permit);
        self.withdraw_dropped_permits();
        Question { entry, attribution, judgement, event, stores, referred, reads_state, session_identity }
    }

    /// Redeems a permit: marks the call as run, applies its writes to the stores, and returns the call for the tool to
    /// execute. Judges the call again first if the state has changed since the permit was created.
    ///
    /// # Errors
    /// Returns the denial if the call must not run after all.
    pub fn redeem(&mut self, permit: Permit) -> Result<AuthorizedCall, Denial> {
        self.withdraw_dropped_permits();
        let mut permit = permit;
        if !Arc::ptr_eq(&self.session_identity, &permit.session_identity) {
            return Err(self.stale_denial(
                permit.judgement.clone(),
                "the permit belongs to another session; redeem it in the session that judged the call",
            ));
        }
        if permit.version != self.version {
            // Judging appends the call again, so the event that the permit reserved is withdrawn.
            self.withdraw(permit.event);
            let (entry, attribution) = (permit.entry.clone(), permit.attribution.clone());
            permit = match self.judge_with(entry, attribution, permit.approval.clone()) {
                Verdict::Permit(again) => again,
                Verdict::Confirm(question) => {
                    return Err(self.stale_denial(
                        question.judgement,
                        "the session has changed since the call was judged, and the call now needs an \
                        approval; propose the call again",
                    ));
                }
                Verdict::Deny(denial) => return Err(denial),
            };
        }
        let event = permit.event;
        // The call is no longer reserved, so dropping the permit does not withdraw it.
        self.reserved.retain(|(reserved, _)| *reserved != event);
        self.run(event);
        // Always a call, since only calls get permits.
        let EventBody::Call(call) = permit.entry.body.clone() else {
            return Err(self.stale_denial(permit.judgement.clone(), "the permitted event is not a call"));
        };
        self.record_input(|| MonitorInput::Ran { call: call.id.clone(), event });
        Ok(AuthorizedCall { call, event })
    }
}

/// # Labels
///
/// Labels of this session as text, and as names that another session of the same policy reads.
impl Monitor {
    /// Describes a label in the words of the policy, one phrase for each dimension.
    pub fn describe(&self, label: &Label) -> Vec<String> {
        self.policy.space().describe(label, self.policy.space().all(), &self.name_table)
    }

    /// Returns a label as names, for another session: see [`from_names`](Self::from_names).
    pub fn to_names(&self, label: &Label) -> serde_json::Value {
        self.policy.space().to_names(label, &self.name_table)
    }

    /// Returns the label that another session represents by these names, or the next greater label of this
    /// session.
    pub fn from_names(&mut self, names: &serde_json::Value) -> Label {
        self.policy.space().from_names(names, &mut self.name_table)
    }
}

impl Monitor {
    /// Appends an event that is not the outcome of a failed call. `view` is set for a message that a model generated
    /// from a view. Returns the event and the findings of rules about it.
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
    /// If the event is a call, cannot have a position in the trace, or exceeds [`Limits::events`].
    fn push_event(
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

    /// Judges a call; the reasons that `approval` covers do not count. Only a permitted call remains in the trace: any
    /// other call is removed again, so the next event takes its index.
    fn judge_with(
        &mut self,
        entry: TraceEntry,
        attribution: Attribution,
        approval: Option<Approval>,
    ) -> Verdict {
        // A question contains the call as it was proposed, since approving it judges the call again; a permit
        // contains the call as the tool receives it, with endorsed arguments in their canonical form.
        let original = entry.clone();
        let examined = self.examine(entry, &attribution, approval.as_ref());
        let ExaminedCall { judgement, event, entry, access, seen } = examined;
        match (judgement.outcome(), event) {
            (Outcome::Permit, Some(event)) => {
                // The flag reports to the monitor that the permit was dropped without being redeemed.
                let drop_flag = Arc::new(PermitDropFlag::default());
                self.reserved.push((event, Arc::clone(&drop_flag)));
                self.accesses.insert(event, access);
                // A reservation alone changes no verdict that was given before it, so the version stays the
                // same: calls of one message are judged in order, and may run in that order.
                let version = self.version;
                let session_identity = Arc::clone(&self.session_identity);
                Verdict::Permit(Permit {
                    entry,
                    attribution,
                    judgement,
                    event,
                    version,
                    approval,
                    session_identity,
                    drop_flag,
                })
            }
            (Outcome::Confirm, Some(event)) => {
                self.retract(event, &seen);
                // The numbers of writes to stores so far: of this session to those that the call touches, and of other
                // sessions to those whose state it refers to. The approval is void if they have changed.
                let (stores, referred) = self.touched_versions(&original, &access);
                let reads_state = !access.reads.is_empty();
                let session_identity = Arc::clone(&self.session_identity);
                let entry = original;
                Verdict::Confirm(Question {
                    entry,
                    attribution,
                    judgement,
                    event,
                    stores,
                    referred,
                    reads_state,
                    session_identity,
                })
            }
            (_, event) => {
                event.into_iter().for_each(|event| self.retract(event, &seen));
                Verdict::Deny(Denial { judgement: Box::new(judgement) })
            }
        }
    }

    /// Returns two lists of stores, by which a later write is noticed. The first contains the stores that a call reads
    /// or writes, each with the number of writes of this session. The second contains the stores to whose state the
    /// call refers, each with the number of writes of other sessions.
    fn touched_versions(&self, entry: &TraceEntry, access: &StoreAccess) -> (StoreVersions, StoreVersions) {
        let referred = match &entry.body {
            EventBody::Call(call) => self.referenced_versions(call, access),
            _ => StoreVersions::new(),
        };
        (self.stores.versions(access), referred)
    }

    /// Adds to a judgement the reason that its permit or question is no longer valid, and returns it as a denial.
    fn stale_denial(&self, mut judgement: Judgement, message: &str) -> Denial {
        judgement.reasons.push(Reason::new(ReasonKind::Stale, Action::Deny, message));
        Denial { judgement: Box::new(judgement) }
    }

    /// Marks a call as done, registers its tool, and raises the labels of the stores that it writes to. If no view hid
    /// anything from the decision to call, every store that any call of the tool could write to is raised.
    fn run(&mut self, event: EventId) {
        self.version += 1;
        let mut tool = None;
        if let Some(call) = self.trace.event_mut(event) {
            call.status = Status::Done;
            tool = call.tool().cloned();
        }
        let (label, is_view) = self.trace.event(event).map_or((Label::BOTTOM, false), |call| {
            (call.label, matches!(call.influence, PossibleInfluence::View(..)))
        });
        if let Some(tool) = tool {
            self.register_tool(&tool);
            if !is_view {
                // Whether this call is harmless may depend on its arguments, so the stores that any call of the tool
                // could write to carry its label either way. If the model was shown a view, `examine` and
                // `raise_stores_for_view` have raised them already.
                let harmless = tool_bounds::is_harmless(&self.policy.plan, &tool);
                let possible = self.access(tool, harmless);
                self.stores.raise(&possible.writes, &label);
            }
        }
        if let Some(access) = self.accesses.get(&event) {
            self.stores.write(&access.writes, &label);
            self.trace.record_write(event, &access.writes);
        }
    }

    /// Records that a tool exists. A new tool can make a pattern ambiguous, so cached accesses and earlier verdicts are
    /// no longer valid.
    fn register_tool(&mut self, tool: &Tool) {
        if self.known_tools.insert(tool.clone()) {
            self.servers.register_tool(&self.policy.plan.patterns, tool);
            self.known_accesses.clear();
            self.version += 1;
        }
    }

    /// Returns the stores that a call of the tool accesses, from the cache if possible. A harmless call, one that the
    /// policy permits at every label, does not write to a store that no `store` statement declares.
    fn access(&mut self, tool: Tool, is_harmless: bool) -> StoreAccess {
        let key = (tool, is_harmless);
        if let Some(known) = self.known_accesses.get(&key) {
            return known.clone();
        }
        let plan = &self.policy.plan;
        let access = self.stores.access(plan, &self.servers, &key.0, is_harmless);
        self.known_accesses.insert(key, access.clone());
        access
    }

    /// Returns the region at a node of an event's document, with its path and span, for a reason that names it.
    fn region(&self, event: EventId, node: usize) -> Region {
        self.trace.region(event, node)
    }
}
