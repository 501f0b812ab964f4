//! Defines the reasons why an expression of a policy has no value. The caller of the evaluator decides what each
//! reason means. If a rule fails, the monitor denies the call, unless the rule only logs and fuel is left. If a
//! statement that grants something fails, it grants nothing.

use std::fmt;

/// The reason why an expression has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EvalError {
    /// The fuel is spent.
    Fuel,
    /// The types of its values do not allow the operation.
    Type(String),
    /// It reads a parameter of the policy that was not given.
    MissingParameter(String),
    /// It calls a method that values do not have, in the dialect of invariant-ai.
    Unavailable(String),
    /// It reads a field that an event does not have, in the dialect of invariant-ai.
    Attribute(String),
    /// It reads a missing value in a statement that grants something. The statement does not hold.
    Missing,
}

impl fmt::Display for EvalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fuel => f.write_str("the evaluation exceeded its fuel, the limit of its steps; simplify the rules, or begin a new session"),
            Self::Missing => f.write_str("a value that the expression needs is missing"),
            Self::MissingParameter(name) => {
                write!(f, "the parameter `input.{name}` has no value; give it one where the policy is evaluated")
            }
            Self::Type(message) | Self::Unavailable(message) | Self::Attribute(message) => {
                f.write_str(message)
            }
        }
    }
}

impl std::error::Error for EvalError {}

pub(crate) type Result<T> = std::result::Result<T, EvalError>;
