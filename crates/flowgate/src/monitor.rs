//! Labels the events of one session and judges calls before they run.
//!
//! A [`Monitor`] owns the trace, the labels of stores and the names that labels use. Only a monitor creates a
//! [`Permit`]. The program that drives an agent calls the monitor for every event. The monitor reads no clock and no
//! file and draws no random number: the same policy and events give the same verdicts, live or in a replay.
//!
//! This file defines the state of a session and the settings before its first call. The main submodules are:
//!
//! * `pushed_events` appends events, `labelling` and `label_statements` label them, `floors` defines lower bounds on
//!   their labels, and `failure` records failed calls.
//! * `permits` judges, approves and redeems calls. For each call, `call_examination` computes the judgement, with
//!   `call_labels`, `endorsement`, `requirement`, `reasons` (of rules) and `grants`. `verdict` defines the result, and
//!   `attribution` defines what a call depends on.
//! * `question_summary` and `question_evidence` write the texts for the person who is asked about a call, and
//!   `approvers` determines who must approve.
//! * `stores`, `external_state` and `referenced_state` keep the labels of external state.
//! * `tool_bounds` computes what the policy says about a tool before any call, and `view_label` the label of a step
//!   that is shown a view.
//! * `fork` judges hypothetical calls, `recorded_calls` judges calls that ran already, and `rejudge` judges a whole
//!   session again under another policy, from the record that `input_record` keeps.

mod ambiguous_patterns;
mod applicable_statements;
mod approvers;
mod argument_path;
mod attribution;
mod call_examination;
mod call_labels;
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
mod label_statements;
mod labelling;
mod part_bounds;
mod permits;
mod person_decision;
mod push_error;
mod pushed_events;
mod question_evidence;
mod question_summary;
mod reasons;
mod recorded_calls;
mod referenced_state;
mod regions;
mod rejudge;
mod requirement;
mod stores;
mod tool_bounds;
mod verdict;
mod view_label;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Map;

pub use attribution::{Attribution, CallDependency};
pub(crate) use endorsement::MAX_ENDORSED_ITEMS;
pub use external_state::ExternalStateError;
pub use floors::Floors;
pub use grants::Grant;
pub use person_decision::PersonDecision;
pub use push_error::PushError;
pub use recorded_calls::RecordedCall;
pub use rejudge::{RejudgedCall, RejudgedSession};
pub use verdict::{
    AuthorizedCall, Denial, EventFinding, Judgement, Outcome, Permit, Question, Reason, ReasonKind,
    ValueClass, Verdict,
};

use crate::eval::Parameters;
use crate::label::{Label, NameTable};
use crate::policy::Policy;
use crate::policy::pattern::MatchedServers;
use crate::policy::plan::Type;
use crate::predicates::{PredicateAnswer, PredicateAnswers, Predicates};
use crate::rules::RuleMatcher;
use crate::trace::{EventId, Region, Tool, Trace};
use applicable_statements::ApplicableStatements;
use input_record::MonitorInput;
use stores::{StoreAccess, StoreLabels};
use verdict::PermitDropFlag;

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
    /// For each pattern that names no server, the servers whose tools it has matched. A pattern that has matched tools
    /// of two servers grants nothing.
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

/// # Sessions
///
/// A monitor holds one session. What the embedding program knows in addition to the events is set before the first
/// call.
impl Monitor {
    /// Creates a monitor for one session, with default limits.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self::with_limits(policy, Limits::default())
    }

    /// Creates a monitor for one session, with the given limits.
    pub fn with_limits(policy: Arc<Policy>, limits: Limits) -> Self {
        let mut name_table = NameTable::new(policy.space());
        // The names in the policy are interned first, so that names in data cannot fill the name table before them.
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
        // Earlier verdicts may no longer be valid. Because of the new version, the monitor judges a permitted call
        // again before it runs. The other setters do the same.
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

    /// Returns the parameters of the policy: the values of `input.NAME`.
    pub fn parameters(&self) -> Map<String, serde_json::Value> {
        self.parameters.to_json()
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

    /// Returns the label that another session represents by these names. If this session cannot represent it exactly,
    /// returns the next greater label that it can.
    pub fn from_names(&mut self, names: &serde_json::Value) -> Label {
        self.policy.space().from_names(names, &mut self.name_table)
    }
}

impl Monitor {
    /// Records that a tool exists. A new tool can make a pattern ambiguous, so cached accesses and earlier verdicts are
    /// no longer valid.
    fn register_tool(&mut self, tool: &Tool) {
        if self.known_tools.insert(tool.clone()) {
            self.servers.register_tool(&self.policy.plan.patterns, tool);
            self.known_accesses.clear();
            self.version += 1;
        }
    }

    /// Returns the stores that a call of the tool accesses, from the cache if possible. A tool that no `store`
    /// statement mentions accesses a store that the undeclared tools of its server share. A harmless call (one that the
    /// policy permits at every label) reads this store, but does not write to it.
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
