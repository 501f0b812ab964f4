//! Defines the nodes that [`locate`](super::locate) returns: the values that a text encodes, each with the span of
//! bytes that spells it. The document of an event is built from them.

use std::ops::Range;

use serde_json::{Number, Value};

/// One list, map or scalar, with the bytes that spell it.
#[derive(Clone, Debug, PartialEq)]
pub struct LocatedNode {
    /// The bytes that spell the node. Quotes, brackets and the header of a YAML block scalar (`|-`) are included;
    /// space around the node is not. Empty, directly after the `:` or `-`, for a value that YAML omits.
    pub span: Range<usize>,
    /// The content of the node.
    pub kind: LocatedNodeKind,
}

/// The content of a [`LocatedNode`].
#[derive(Clone, Debug, PartialEq)]
pub enum LocatedNodeKind {
    /// `null`, `None`, `~`, or a value that YAML omits.
    Null,
    /// A truth value.
    Bool(bool),
    /// A number, as spelled.
    Number(String),
    /// A text, decoded; also values without a JSON type, such as a date in YAML or a constructor call in Python.
    Text(String),
    /// A list, tuple or set.
    List(Vec<LocatedNode>),
    /// A map, in the order of the text.
    Map(Vec<MapEntry>),
}

/// One key and its value in a [`LocatedNodeKind::Map`].
#[derive(Clone, Debug, PartialEq)]
pub struct MapEntry {
    /// The key, decoded; if it is not a text, its spelling.
    pub key: String,
    /// The bytes that spell the key.
    pub key_span: Range<usize>,
    /// The value of the key.
    pub value: LocatedNode,
}

impl LocatedNode {
    /// Returns the value of one key, if this is a map that has it.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Self> {
        let LocatedNodeKind::Map(entries) = &self.kind else {
            return None;
        };
        entries.iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// Returns the node as a JSON value. A number that has no value in JSON, such as an infinity or `1e999`, becomes a
    /// string with its spelling.
    #[must_use]
    pub fn to_value(&self) -> Value {
        match &self.kind {
            LocatedNodeKind::Null => Value::Null,
            LocatedNodeKind::Bool(truth) => Value::Bool(*truth),
            LocatedNodeKind::Number(spelled) => {
                number(spelled).map_or_else(|| Value::String(spelled.clone()), Value::Number)
            }
            LocatedNodeKind::Text(text) => Value::String(text.clone()),
            LocatedNodeKind::List(items) => items.iter().map(Self::to_value).collect(),
            LocatedNodeKind::Map(entries) => {
                entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect()
            }
        }
    }
}

/// Returns the JSON number that a spelling in any of the notations represents: an integer if it fits in 64 bits, else
/// the nearest double. `None` for infinity and not-a-number, for a decimal number beyond the range of a double, and for
/// a hexadecimal or octal number of more than 64 bits.
fn number(spelled: &str) -> Option<Number> {
    if let Some(digits) = spelled.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok().map(Number::from);
    }
    if let Some(digits) = spelled.strip_prefix("0o") {
        return u64::from_str_radix(digits, 8).ok().map(Number::from);
    }
    match spelled.parse::<i64>() {
        // JSON keeps the sign of zero, which only a double can represent.
        Ok(0) if spelled.starts_with('-') => Number::from_f64(-0.0),
        Ok(whole) => Some(whole.into()),
        Err(_) => match spelled.parse::<u64>() {
            Ok(whole) => Some(whole.into()),
            Err(_) => spelled.parse().ok().and_then(Number::from_f64),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::locate;
    use super::*;
    use serde_json::json;

    #[test]
    fn numbers_become_json() {
        for (spelled, value) in [
            ("-0", json!(-0.0)),
            ("+7", json!(7)),
            ("007", json!(7)),
            ("0x1F", json!(31)),
            ("0o17", json!(15)),
            ("18446744073709551615", json!(u64::MAX)),
            ("18446744073709551616", json!(18_446_744_073_709_551_616.0)),
            ("1.", json!(1.0)),
            (".5", json!(0.5)),
            ("1E+2", json!(100.0)),
        ] {
            assert_eq!(number(spelled).map(Value::Number), Some(value), "{spelled}");
        }
        for spelled in ["1e999", "inf", "-inf", "nan", ".inf", ".nan"] {
            assert_eq!(number(spelled), None, "{spelled}");
        }
    }

    #[test]
    fn fields_are_looked_up() {
        let text = "{'a': [1], 'b': 'x'}";
        let located = locate(text, None).unwrap();
        let field = located.root.get("b").unwrap();
        assert_eq!(text.get(field.span.clone()), Some("'x'"));
        assert_eq!(located.root.get("c"), None);
        assert_eq!(field.get("b"), None);
    }
}
