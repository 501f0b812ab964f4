//! Defines [`Value`], the values that expressions of the policy language compute with: their conversions, their texts,
//! and when they are true or equal. The evaluator and the built-in functions compute with them, and the compiler
//! represents constants by them. `error` defines the error of an evaluation.

mod error;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value as Json;

pub(crate) use error::{EvalError, Result};

use crate::trace::{EventId, NodeId};

/// A value of the policy language.
///
/// Parts of events are references, so that the evaluator can record which regions a condition has read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// A missing value: a missing key, or the result of an access to one.
    Absent,
    /// `None`.
    None,
    /// The content of an empty message or output: both `None` and an empty text.
    Silent,
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// Any other number.
    Float(f64),
    /// Text.
    Str(Arc<str>),
    /// A list.
    List(Arc<[Self]>),
    /// A map, in order of its keys' appearance.
    Dict(Arc<[(Arc<str>, Self)]>),
    /// An event.
    Event(EventId),
    /// The `function` of a call: its name and its arguments.
    Function(EventId),
    /// The tool name of a call.
    ToolName(EventId),
    /// A region of an event.
    Node(EventId, NodeId),
    /// A region of an event: a block of its content, or a parameter of a described tool.
    Part(RegionKind, EventId, NodeId),
    /// Several texts: a substring of any of them is contained in the value.
    Texts(Arc<[Self]>),
    /// The truth values of a test on each item of a list, such as `list in names`; true if any of them is.
    Answers(Arc<[bool]>),
    /// A value whose evaluation failed.
    Failed(Arc<EvalError>),
}

/// The kind of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RegionKind {
    /// A block of text.
    Text,
    /// An image.
    Image,
    /// A parameter of a tool.
    Parameter,
}

impl Value {
    /// Creates a text.
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::Str(text.as_ref().into())
    }

    /// Creates a list.
    pub(crate) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// Converts a JSON value. A number that is not a signed 64-bit integer becomes a floating-point number.
    pub(crate) fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::None,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => {
                // `as_f64` always returns a number here: it can fail only with the feature `arbitrary_precision` of
                // serde_json, which Flowgate does not enable.
                n.as_i64().map_or_else(|| Self::Float(n.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            Json::String(s) => Self::text(s),
            Json::Array(items) => Self::list(items.iter().map(Self::from_json)),
            Json::Object(entries) => {
                Self::Dict(entries.iter().map(|(k, v)| (k.as_str().into(), Self::from_json(v))).collect())
            }
        }
    }

    /// Returns the number, if the value is one.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// Returns the text, if the value is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the text, or several texts joined into one by line ends; `None` for another value.
    pub(crate) fn to_text(&self) -> Option<Arc<str>> {
        match self {
            Self::Str(text) => Some(Arc::clone(text)),
            Self::Texts(texts) => {
                let texts: Option<Vec<Arc<str>>> = texts.iter().map(Self::to_text).collect();
                texts.map(|texts| texts.join("\n").into())
            }
            _ => None,
        }
    }

    /// Writes the value as text, for messages and `f"..."`: a text unchanged, `None` and truth values as in Python, a
    /// list or a map as JSON. A missing value, and the content of an empty event (`Silent`), are written as `None`.
    pub(crate) fn print(&self, out: &mut String) {
        match self {
            Self::Str(text) => out.push_str(text),
            Self::Absent | Self::None | Self::Silent => out.push_str("None"),
            Self::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
            Self::Int(n) => out.push_str(&n.to_string()),
            Self::Float(x) => out.push_str(&x.to_string()),
            other => out.push_str(&other.to_json().to_string()),
        }
    }

    /// Converts a value to JSON. The caller must have replaced references to parts of events by the values of these
    /// parts. A missing value, the content of an empty event (`Silent`), and a float that is infinite or not a number
    /// become `null`. Any other value that JSON cannot represent, such as an event, becomes the name of its type in
    /// angle brackets.
    pub(crate) fn to_json(&self) -> Json {
        match self {
            Self::Absent | Self::None | Self::Silent => Json::Null,
            Self::Bool(b) => Json::Bool(*b),
            Self::Int(n) => (*n).into(),
            Self::Float(x) => serde_json::Number::from_f64(*x).map_or(Json::Null, Json::Number),
            Self::Str(text) => Json::String(text.to_string()),
            Self::List(items) | Self::Texts(items) => items.iter().map(Self::to_json).collect(),
            Self::Answers(answers) => answers.iter().copied().map(Json::Bool).collect(),
            Self::Dict(entries) => {
                Json::Object(entries.iter().map(|(key, value)| (key.to_string(), value.to_json())).collect())
            }
            other => Json::String(format!("<{}>", other.type_name())),
        }
    }

    /// Returns whether the value is missing or null.
    pub(crate) fn is_absent_or_none(&self) -> bool {
        matches!(self, Self::Absent | Self::None)
    }

    /// Returns the name of the type in the policy language, such as `str`. For a value without such a type, returns a
    /// phrase for messages, such as `an event`.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Absent => "a missing value",
            Self::None | Self::Silent => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Dict(_) => "dict",
            Self::Event(_) => "an event",
            Self::Function(_) => "a function",
            Self::ToolName(_) => "str",
            Self::Node(..) | Self::Part(..) => "a part of an event",
            Self::Texts(_) => "a list of texts",
            Self::Answers(_) => "a list of answers",
            Self::Failed(_) => "an error",
        }
    }

    /// Returns whether the value counts as true, by the rules of Python. The caller must have replaced references to
    /// parts of events by the values of these parts, since a reference counts as true. Several texts or answers are
    /// true if one of them is. The content of an empty event (`Silent`) and the result of a failed evaluation
    /// (`Failed`) are false.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Absent | Self::None | Self::Silent => false,
            Self::Bool(b) => *b,
            Self::Int(n) => *n != 0,
            Self::Float(x) => *x != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Dict(entries) => !entries.is_empty(),
            Self::Texts(texts) => texts.iter().any(Self::is_true),
            Self::Answers(answers) => answers.contains(&true),
            Self::Event(_) | Self::Function(_) | Self::ToolName(_) | Self::Node(..) | Self::Part(..) => true,
            Self::Failed(_) => false,
        }
    }

    /// Returns whether two values are equal; `1` equals `1.0`. The caller must have replaced references to parts of
    /// events by the values of these parts, since two references are equal only if they refer to the same part. A
    /// missing value, and the content of an empty event (`Silent`), equal `None`. The order of the keys of a map does
    /// not matter.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent | Self::None | Self::Silent, Self::Absent | Self::None | Self::Silent) => true,
            // As floating-point numbers, neighbouring large integers would be equal.
            (Self::Int(a), Self::Int(b)) => a == b,
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equals(b))
            }
            (Self::Dict(a), Self::Dict(b)) => {
                if a.len() != b.len() {
                    return false;
                }
                // The usual case, without a table of keys: both maps have the same keys in the same order.
                let has_same_keys = a.iter().zip(b.iter()).all(|((a, _), (b, _))| a == b);
                if has_same_keys {
                    return a.iter().zip(b.iter()).all(|((_, a), (_, b))| a.equals(b));
                }
                let by_key: HashMap<&str, &Self> = b.iter().map(|(key, value)| (&**key, value)).collect();
                a.iter().all(|(key, value)| by_key.get(&**key).is_some_and(|other| value.equals(other)))
            }
            _ => match (self.as_number(), other.as_number()) {
                (Some(a), Some(b)) => a == b,
                _ => self == other,
            },
        }
    }
}
