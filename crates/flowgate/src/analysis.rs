//! Evaluates the rules of a policy over a finished trace, and returns all matches with the locations that they concern.
//!
//! This is the offline use of a policy, over logged traces, as in *AI Agents with Formal Security Guarantees*. The
//! policy API of the gateway, the command `flowgate analyze` and the Python package call [`analyze`] or
//! [`analyze_trace`]. The [`monitor`](crate::monitor) is the online use: it evaluates rules before a call runs. The
//! submodule `violations` converts matches to [`Violation`]s.

mod violations;

use std::fmt;

use serde_json::{Map, Value};

use crate::eval::{EvalError, Parameters};
use crate::label::Label;
use crate::policy::{Action, Policy, Span};
use crate::predicates::{PredicateAnswers, Predicates};
use crate::rules::{RuleContext, RuleMatcher, RuleSelection, naive};
use crate::trace::{
    Document, EventBody, EventId, EventPositionError, PossibleInfluence, Status, Trace, TraceEntry,
};
use violations::ViolationCollector;

/// The findings of the rules of a policy in a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// Every match of every rule that could be evaluated.
    pub violations: Vec<Violation>,
    /// Rules that could not be evaluated for some events; the other rules are still reported.
    pub failures: Vec<EvaluationFailure>,
}

/// One match of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The index of the rule among the rules of the policy.
    pub rule: usize,
    /// The rule's first line.
    pub statement: Span,
    /// The action of the rule.
    pub action: Action,
    /// The message of the rule: the positional arguments of its `Violation(...)`, or its text as the only item.
    pub args: Vec<Value>,
    /// The named arguments of the rule's `Violation(...)`.
    pub kwargs: Map<String, Value>,
    /// The locations that the match concerns, as addresses in the list of messages: `messages.1.content:5-10`, in
    /// characters.
    pub ranges: Vec<String>,
    /// A key that identifies this match among all others. The key stays the same if the trace grows.
    pub key: String,
}

/// A rule that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvaluationFailure {
    /// The index of the rule among the rules of the policy.
    pub rule: usize,
    /// The rule's first line.
    pub statement: Span,
    /// The kind of failure.
    pub kind: EvaluationFailureKind,
    /// The error, on one line.
    pub message: String,
}

/// The reason why a rule could not be evaluated.
///
/// The enum is exhaustive on purpose: a program that matches on it must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationFailureKind {
    /// The rule reads a parameter (`input.NAME`) that was not given. The message is the name of the parameter.
    MissingParameter,
    /// The fuel of the analysis is spent.
    Fuel,
    /// The rule has matches beyond the maximum number of listed violations.
    TooMany,
    /// The rule accesses a method or a field that is never available.
    Unavailable,
    /// The rule reads a field that events of this kind do not have.
    Attribute,
    /// An operation of the rule cannot be applied to values of these types, or a value that it needs is missing.
    Type,
}

impl From<&EvalError> for EvaluationFailureKind {
    /// Returns the kind under which the failure of a rule is reported.
    fn from(error: &EvalError) -> Self {
        match error {
            EvalError::Fuel => Self::Fuel,
            // A rule reports a missing value as a type error; `Missing` is for statements that grant something.
            EvalError::Type(_) | EvalError::Missing => Self::Type,
            EvalError::MissingParameter(_) => Self::MissingParameter,
            EvalError::Unavailable(_) => Self::Unavailable,
            EvalError::Attribute(_) => Self::Attribute,
        }
    }
}

/// The inputs of an analysis in addition to the policy and the trace.
#[derive(Debug, Clone)]
pub struct AnalysisOptions {
    /// The policy's parameters: `input.NAME`.
    pub parameters: Map<String, Value>,
    /// The evaluation steps that the analysis may spend, for all events together.
    pub fuel: u64,
    /// The embedding program's answers to the `extern` predicates of the policy.
    pub predicates: Predicates,
    /// The maximum number of violations that are listed. A rule with a match beyond this number is reported as a
    /// failure.
    pub violations: usize,
}

impl Default for AnalysisOptions {
    fn default() -> Self {
        Self { parameters: Map::new(), fuel: 500_000_000, predicates: Predicates::new(), violations: 100_000 }
    }
}

/// The reason why a trace could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// The index of the event that has no position, from 0.
    pub event: usize,
    /// The reason.
    pub problem: EventPositionError,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.problem)
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.problem)
    }
}

/// Builds a trace of `entries`, in their order. All events count as completed. The trace is not labelled, since rules
/// do not read labels.
///
/// # Errors
/// If an event names a parent that is not in the trace, has the name of another event, or exceeds the maximum number of
/// agents.
pub fn build_trace(entries: impl IntoIterator<Item = TraceEntry>) -> Result<Trace, TraceError> {
    let mut trace = Trace::new();
    entries.into_iter().try_for_each(|entry| append_event(&mut trace, entry))?;
    Ok(trace)
}

/// Appends an entry to a trace as a completed event. All labels of the event are bottom, since rules do not read
/// labels. An output counts as the answer to the first call in the trace that has the output's call id.
///
/// # Errors
/// If the event cannot have a position in the trace; see [`EventPositionError`].
fn append_event(trace: &mut Trace, entry: TraceEntry) -> Result<(), TraceError> {
    let event = trace.len();
    let position = trace.position_of(&entry).map_err(|problem| TraceError { event, problem })?;
    let document = Document::new(&entry.body, Label::BOTTOM);
    let call = match &entry.body {
        EventBody::Output(output) => trace.calls_with_id(&output.call_id).next(),
        _ => None,
    };
    // Nothing is known about influence, so the event may depend on all that its agent had seen.
    trace.append(entry, position, document, Status::Done, call, PossibleInfluence::All);
    Ok(())
}

/// Evaluates the rules of a policy over a list of events.
///
/// # Errors
/// If an event cannot have a position in the trace; see [`EventPositionError`].
pub fn analyze(
    policy: &Policy,
    entries: Vec<TraceEntry>,
    options: &AnalysisOptions,
) -> Result<Analysis, TraceError> {
    Ok(analyze_trace(policy, &build_trace(entries)?, options))
}

/// Evaluates the rules of a policy over a trace, and returns all matches. Most rules are matched with each event in
/// turn. A rule whose matches a later event could change, such as one with `count` or `forall` over other events, is
/// matched once at the end. All rules share the fuel of `options`.
pub fn analyze_trace(policy: &Policy, trace: &Trace, options: &AnalysisOptions) -> Analysis {
    let parameters = Parameters::new(&options.parameters);
    // `[]`: no answers of predicates are recorded yet.
    let answers = PredicateAnswers::new(options.predicates.clone(), []);
    let context = RuleContext { plan: &policy.plan, trace, parameters: &parameters, answers: &answers };
    let mut fuel = options.fuel;
    let mut report = ViolationCollector::new(&policy.plan, trace, options.violations);
    let mut rules = RuleMatcher::new(&policy.plan);
    for id in 0..trace.len() {
        rules.match_event(context, EventId(id), RuleSelection::Settled, &mut fuel, &mut report);
    }
    rules.finish(context, &mut fuel, &mut report);
    report.finish()
}

/// Evaluates like [`analyze`], but by exhaustive search: tests compare the two. The time that this takes is
/// proportional to the number of events to the power of the number of variables.
///
/// # Errors
/// If an event cannot have a position in the trace; see [`EventPositionError`].
pub fn analyze_naively(
    policy: &Policy,
    entries: Vec<TraceEntry>,
    options: &AnalysisOptions,
) -> Result<Analysis, TraceError> {
    let trace = build_trace(entries)?;
    let parameters = Parameters::new(&options.parameters);
    // `[]`: no answers of predicates are recorded yet.
    let answers = PredicateAnswers::new(options.predicates.clone(), []);
    let context =
        RuleContext { plan: &policy.plan, trace: &trace, parameters: &parameters, answers: &answers };
    let mut fuel = options.fuel;
    let mut report = ViolationCollector::new(&policy.plan, &trace, options.violations);
    naive::analyze(context, &mut fuel, &mut report);
    Ok(report.finish())
}

/// Evaluates the rules after each event of a growing trace, as a monitor does. Returns one analysis for each event: the
/// matches that the event completes, and those that arise because a `count` or `forall` counts the event. Tests compare
/// the result with that of [`analyze_steps_naively`].
///
/// # Errors
/// If an event cannot have a position in the trace; see [`EventPositionError`].
pub fn analyze_steps(
    policy: &Policy,
    entries: Vec<TraceEntry>,
    options: &AnalysisOptions,
) -> Result<Vec<Analysis>, TraceError> {
    let mut rules = RuleMatcher::new(&policy.plan);
    analyze_each_event(policy, entries, options, &mut |context, id, fuel, report| {
        rules.match_event(context, id, RuleSelection::All, fuel, report);
    })
}

/// Evaluates like [`analyze_steps`], but by exhaustive search: tests compare the two.
///
/// # Errors
/// If an event cannot have a position in the trace; see [`EventPositionError`].
pub fn analyze_steps_naively(
    policy: &Policy,
    entries: Vec<TraceEntry>,
    options: &AnalysisOptions,
) -> Result<Vec<Analysis>, TraceError> {
    analyze_each_event(policy, entries, options, &mut |context, id, fuel, report| {
        naive::match_event(context, id, fuel, report)
    })
}

/// A function that evaluates the rules for one new event. It spends the given fuel and reports its findings to the
/// collector.
type EventEvaluation<'s> = dyn FnMut(RuleContext<'_>, EventId, &mut u64, &mut ViolationCollector<'_>) + 's;

/// Appends the entries to a trace one by one, and lets `step` evaluate the rules on each new event. Returns one
/// analysis for each entry. The fuel of `options` is for all entries together.
///
/// # Errors
/// If an event cannot have a position in the trace; see [`EventPositionError`].
fn analyze_each_event(
    policy: &Policy,
    entries: Vec<TraceEntry>,
    options: &AnalysisOptions,
    step: &mut EventEvaluation<'_>,
) -> Result<Vec<Analysis>, TraceError> {
    let parameters = Parameters::new(&options.parameters);
    let answers = PredicateAnswers::new(options.predicates.clone(), []);
    let mut fuel = options.fuel;
    let mut trace = Trace::new();
    let mut analyses = Vec::with_capacity(entries.len());
    for entry in entries {
        append_event(&mut trace, entry)?;
        let context =
            RuleContext { plan: &policy.plan, trace: &trace, parameters: &parameters, answers: &answers };
        let mut report = ViolationCollector::new(&policy.plan, &trace, options.violations);
        // The last event is the one that was just appended.
        step(context, EventId(trace.len() - 1), &mut fuel, &mut report);
        analyses.push(report.finish());
    }
    Ok(analyses)
}
