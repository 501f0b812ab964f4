//! Rules over a finished trace: everything that they find, with the places that it was found in.
//!
//! This is the first of the analyzer paper's two uses, over logged traces; the [`monitor`](crate::monitor) is the
//! other, before a call runs.

mod violations;

use std::fmt;

use serde_json::{Map, Value};

use crate::eval::{EvalError, Parameters};
use crate::label::Label;
use crate::policy::{Action, Policy, Span};
use crate::predicates::{Answers, Predicates};
use crate::rules::{Context, Rules, Which, naive};
use crate::trace::{Body, Document, Entry, EventId, Influence, PlaceError, Status, Trace};
use violations::Violations;

/// What the rules of a policy find in a trace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analysis {
    /// Every match of every rule that could be evaluated.
    pub violations: Vec<Violation>,
    /// Rules that could not be evaluated for some of the events. They do not silence the others.
    pub failures: Vec<Failure>,
}

/// One match of one rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// The index of the rule among the rules of the policy.
    pub rule: usize,
    /// The rule's first line.
    pub statement: Span,
    /// What the rule asks for.
    pub action: Action,
    /// What it says: the arguments of its `Violation(...)`, or its text.
    pub args: Vec<Value>,
    /// The named arguments of its `Violation(...)`.
    pub kwargs: Map<String, Value>,
    /// What it speaks of, as addresses in the list of messages: `messages.1.content:5-10`, in characters.
    pub ranges: Vec<String>,
    /// What tells this match from all others, the same in a longer trace.
    pub key: String,
}

/// A rule that could not be evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The index of the rule among the rules of the policy.
    pub rule: usize,
    /// The rule's first line.
    pub statement: Span,
    /// What kind of trouble.
    pub kind: FailureKind,
    /// What is wrong, on one line.
    pub message: String,
}

/// Why a rule could not be evaluated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// It asks for a parameter (`input.NAME`) that was not given; the message is its name.
    MissingParameter,
    /// It took too long.
    Fuel,
    /// It matches more often than can be listed.
    TooMany,
    /// It asks a value for a method or a field that nobody may have.
    Unavailable,
    /// It asks an event for a field that events of its kind do not have.
    Attribute,
    /// It does something that its values do not allow.
    Type,
}

impl From<&EvalError> for FailureKind {
    fn from(error: &EvalError) -> Self {
        match error {
            EvalError::Fuel => Self::Fuel,
            EvalError::Type(_) | EvalError::Missing => Self::Type,
            EvalError::MissingParameter(_) => Self::MissingParameter,
            EvalError::Unavailable(_) => Self::Unavailable,
            EvalError::Attribute(_) => Self::Attribute,
        }
    }
}

/// What an analysis may use besides the policy and the trace.
#[derive(Debug, Clone)]
pub struct Options {
    /// The policy's parameters: `input.NAME`.
    pub parameters: Map<String, Value>,
    /// Steps of evaluation, for all events together.
    pub fuel: u64,
    /// What the program answers: `extern` in the policy.
    pub predicates: Predicates,
    /// How many violations are listed. A rule that has more is a failure as well.
    pub violations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { parameters: Map::new(), fuel: 500_000_000, predicates: Predicates::new(), violations: 100_000 }
    }
}

/// Why a trace could not be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceError {
    /// The event that has no place, from 0.
    pub event: usize,
    /// Why.
    pub problem: PlaceError,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}: {}", self.event, self.problem)
    }
}

impl std::error::Error for TraceError {}

/// A finished trace. Nothing in it is labelled: rules do not look at labels.
///
/// # Errors
/// If an event names a parent that is not there, or bears a name that is taken.
pub fn trace(entries: impl IntoIterator<Item = Entry>) -> Result<Trace, TraceError> {
    let mut trace = Trace::new();
    entries.into_iter().try_for_each(|entry| append(&mut trace, entry))?;
    Ok(trace)
}

fn append(trace: &mut Trace, entry: Entry) -> Result<(), TraceError> {
    let event = trace.len();
    let place = trace.place(&entry).map_err(|problem| TraceError { event, problem })?;
    let document = Document::new(&entry.body, Label::BOTTOM);
    let call = match &entry.body {
        Body::Output(output) => trace.calls_with_id(&output.call_id).next(),
        _ => None,
    };
    trace.append(entry, place, document, Status::Done, call, Influence::All);
    Ok(())
}

/// Finds what the rules of a policy say of a trace.
///
/// # Errors
/// As [`trace`].
pub fn analyze(policy: &Policy, entries: Vec<Entry>, options: &Options) -> Result<Analysis, TraceError> {
    Ok(analyze_trace(policy, &trace(entries)?, options))
}

/// Finds what the rules of a policy say of a trace.
pub fn analyze_trace(policy: &Policy, trace: &Trace, options: &Options) -> Analysis {
    let parameters = Parameters::new(&options.parameters);
    let answers = Answers::new(options.predicates.clone(), []);
    let context = Context { plan: &policy.plan, trace, parameters: &parameters, answers: &answers };
    let mut fuel = options.fuel;
    let mut report = Violations::new(&policy.plan, trace, options.violations);
    let mut rules = Rules::new(&policy.plan);
    for id in 0..trace.len() {
        rules.meet(context, EventId(id), Which::Settled, &mut fuel, &mut report);
    }
    rules.finish(context, &mut fuel, &mut report);
    report.finish()
}

/// The same by the evaluator that tries everything: the oracle of [`analyze`]. Its time is the number of events to the
/// power of the number of variables.
///
/// # Errors
/// As [`trace`].
pub fn analyze_naively(
    policy: &Policy,
    entries: Vec<Entry>,
    options: &Options,
) -> Result<Analysis, TraceError> {
    let trace = trace(entries)?;
    let parameters = Parameters::new(&options.parameters);
    let answers = Answers::new(options.predicates.clone(), []);
    let context = Context { plan: &policy.plan, trace: &trace, parameters: &parameters, answers: &answers };
    let mut fuel = options.fuel;
    let mut report = Violations::new(&policy.plan, &trace, options.violations);
    naive::analyze(context, &mut fuel, &mut report);
    Ok(report.finish())
}

/// What each event of a trace completes, as a monitor reports it while the trace grows: a match that ends with the event,
/// or a block that counts it.
///
/// # Errors
/// As [`trace`].
pub fn analyze_steps(
    policy: &Policy,
    entries: Vec<Entry>,
    options: &Options,
) -> Result<Vec<Analysis>, TraceError> {
    let mut rules = Rules::new(&policy.plan);
    steps(policy, entries, options, &mut |context, id, fuel, report| {
        rules.meet(context, id, Which::All, fuel, report);
    })
}

/// The same by the evaluator that tries everything: the oracle of [`analyze_steps`].
///
/// # Errors
/// As [`trace`].
pub fn analyze_steps_naively(
    policy: &Policy,
    entries: Vec<Entry>,
    options: &Options,
) -> Result<Vec<Analysis>, TraceError> {
    steps(policy, entries, options, &mut |context, id, fuel, report| naive::step(context, id, fuel, report))
}

/// Evaluates one event.
type Step<'s> = dyn FnMut(Context<'_>, EventId, &mut u64, &mut Violations<'_>) + 's;

fn steps(
    policy: &Policy,
    entries: Vec<Entry>,
    options: &Options,
    step: &mut Step<'_>,
) -> Result<Vec<Analysis>, TraceError> {
    let parameters = Parameters::new(&options.parameters);
    let answers = Answers::new(options.predicates.clone(), []);
    let mut fuel = options.fuel;
    let mut trace = Trace::new();
    let mut analyses = Vec::with_capacity(entries.len());
    for entry in entries {
        append(&mut trace, entry)?;
        let context =
            Context { plan: &policy.plan, trace: &trace, parameters: &parameters, answers: &answers };
        let mut report = Violations::new(&policy.plan, &trace, options.violations);
        step(context, EventId(trace.len() - 1), &mut fuel, &mut report);
        analyses.push(report.finish());
    }
    Ok(analyses)
}
