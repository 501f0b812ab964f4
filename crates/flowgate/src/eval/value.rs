//! Values that a policy computes with.

use std::sync::Arc;

use serde_json::Value as Json;

use crate::trace::{EventId, NodeId};

/// A value of the policy language.
///
/// Parts of events are references, so that it is known which regions a condition has looked at.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// What is not there: a missing key, or the result of asking anything of it.
    Absent,
    /// `None`.
    None,
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
    /// A piece of an event.
    Node(EventId, NodeId),
}

impl Value {
    /// A text.
    pub(crate) fn text(text: impl AsRef<str>) -> Self {
        Self::Str(text.as_ref().into())
    }

    /// A list.
    pub(crate) fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// The value that JSON spells.
    pub(crate) fn from_json(json: &Json) -> Self {
        match json {
            Json::Null => Self::None,
            Json::Bool(b) => Self::Bool(*b),
            Json::Number(n) => {
                n.as_i64().map_or_else(|| Self::Float(n.as_f64().unwrap_or(f64::NAN)), Self::Int)
            }
            Json::String(s) => Self::text(s),
            Json::Array(items) => Self::list(items.iter().map(Self::from_json)),
            Json::Object(entries) => {
                Self::Dict(entries.iter().map(|(k, v)| (k.as_str().into(), Self::from_json(v))).collect())
            }
        }
    }

    /// The number, if it is one.
    pub(crate) fn as_number(&self) -> Option<f64> {
        match self {
            Self::Int(n) => Some(*n as f64),
            Self::Float(x) => Some(*x),
            _ => None,
        }
    }

    /// The text, if it is one.
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// What the language calls its type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Absent => "a missing value",
            Self::None => "None",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Dict(_) => "dict",
            Self::Event(_) => "an event",
            Self::Function(_) => "a function",
            Self::Node(..) => "a part of an event",
        }
    }

    /// Whether the value, all parts resolved, counts as true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Absent | Self::None => false,
            Self::Bool(b) => *b,
            Self::Int(n) => *n != 0,
            Self::Float(x) => *x != 0.0,
            Self::Str(text) => !text.is_empty(),
            Self::List(items) => !items.is_empty(),
            Self::Dict(entries) => !entries.is_empty(),
            Self::Event(_) | Self::Function(_) | Self::Node(..) => true,
        }
    }

    /// Whether two values, all parts resolved, are equal; `1` and `1.0` are.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Absent | Self::None, Self::Absent | Self::None) => true,
            (Self::List(a), Self::List(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| a.equals(b))
            }
            (Self::Dict(a), Self::Dict(b)) => {
                let find = |key: &str| b.iter().find(|(k, _)| **k == *key).map(|(_, value)| value);
                a.len() == b.len() && a.iter().all(|(k, v)| find(k).is_some_and(|other| v.equals(other)))
            }
            _ => match (self.as_number(), other.as_number()) {
                (Some(a), Some(b)) => a == b,
                _ => self == other,
            },
        }
    }
}
