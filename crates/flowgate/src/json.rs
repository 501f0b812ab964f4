//! Parses JSON strictly: [`parse`] rejects input that two parsers could read differently.
//!
//! For example, one parser reads the recipient `bob` from `{"to":"bob","to":"mallory"}`, and another one reads
//! `mallory`. So the call that the tool executes could differ from the call that was judged. Therefore, duplicate keys
//! are an error. Numbers that some parsers round (outside I-JSON, RFC 7493) are an error as well where numbers must
//! reach the tool unchanged. Call arguments, recorded runs, lists of tools, messages of MCP and most other JSON from
//! outside are parsed in this way.

use std::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// The largest integer that every JSON parser represents exactly (RFC 7493, section 2.2).
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;

/// Which numbers [`parse`] accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// Every number that JSON allows.
    Any,
    /// Only numbers that every parser reads alike.
    Exact,
}

/// An error of [`parse`]. It reports the location, never content of the parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonError {
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1; 0 at the very beginning.
    pub column: usize,
    /// The error.
    pub message: String,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {} column {}", self.message, self.line, self.column)
    }
}

impl std::error::Error for JsonError {}

/// Parses one JSON value that spans the whole of `text`.
///
/// # Errors
/// On anything that is not JSON, on duplicate keys, on nesting deeper than 128, and on inexact numbers if `numbers`
/// is [`Numbers::Exact`].
pub fn parse(text: &str, numbers: Numbers) -> Result<Value, JsonError> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = StrictJsonSeed(numbers).deserialize(&mut reader).map_err(|error| to_json_error(&error))?;
    reader.end().map_err(|error| to_json_error(&error))?;
    Ok(value)
}

/// Converts an error of `serde_json`. Removes the location at the end of its message, since [`JsonError`] has fields
/// for it.
fn to_json_error(error: &serde_json::Error) -> JsonError {
    let text = error.to_string();
    let message = text.rsplit_once(" at line ").map_or(text.as_str(), |(message, _)| message);
    // The message quotes no content of the parsed text: messages of this module are constants, and the syntax errors of
    // `serde_json` quote none.
    JsonError { line: error.line(), column: error.column(), message: message.to_owned() }
}

/// Deserializes a JSON value, and rejects duplicate keys and, depending on [`Numbers`], inexact numbers.
struct StrictJsonSeed(Numbers);

impl<'de> DeserializeSeed<'de> for StrictJsonSeed {
    type Value = Value;

    /// Deserializes one value of any kind: the deserializer calls the `visit_...` function below for the kind that it
    /// reads.
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJsonSeed {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    /// Accepts an integer. If only exact numbers are accepted, an integer that other parsers may round is rejected.
    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        self.check_exact(value as f64)?;
        Ok(Value::Number(value.into()))
    }

    /// Accepts an integer, as [`visit_i64`](Self::visit_i64) does.
    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        self.check_exact(value as f64)?;
        Ok(Value::Number(value.into()))
    }

    /// Accepts a number with a fraction or an exponent. If only exact numbers are accepted, an integer in this notation
    /// that other parsers may round, such as `1e20`, is rejected.
    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        self.check_exact(value)?;
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number is not finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    /// Deserializes a list. The items are deserialized with the same [`Numbers`].
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Self(self.0))? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    /// Deserializes an object. A duplicate key is an error. The values are deserialized with the same [`Numbers`].
    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match map.entry(key) {
                // Parsers differ in which of two values for one key they use.
                Entry::Occupied(_) => return Err(de::Error::custom("duplicate key")),
                Entry::Vacant(entry) => {
                    entry.insert(entries.next_value_seed(Self(self.0))?);
                }
            }
        }
        Ok(Value::Object(map))
    }
}

impl StrictJsonSeed {
    /// Fails for an integer that another parser may round, if only exact numbers are accepted (`Numbers::Exact`).
    fn check_exact<E: de::Error>(&self, value: f64) -> Result<(), E> {
        if self.0 == Numbers::Exact && value.abs() > MAX_EXACT && value.fract() == 0.0 {
            return Err(E::custom("number is too large to be exact"));
        }
        Ok(())
    }
}

/// Returns the approximate size of a value in memory, in bytes, for limits on what is computed or stored.
pub(crate) fn estimated_size(value: &Value) -> usize {
    // The size of a value or key without its text.
    const ITEM: usize = 32;
    match value {
        Value::String(text) => ITEM + text.len(),
        Value::Array(items) => ITEM + items.iter().map(estimated_size).sum::<usize>(),
        Value::Object(entries) => {
            ITEM + entries.iter().map(|(key, value)| ITEM + key.len() + estimated_size(value)).sum::<usize>()
        }
        _ => ITEM,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ambiguous_json_is_refused() {
        let check = |text: &str, numbers, expected: &str| {
            let shown =
                parse(text, numbers).map_or_else(|error| error.to_string(), |value| value.to_string());
            assert_eq!(shown, expected, "{text}");
        };
        check(r#"{"b":1,"a":[true,null,"x"]}"#, Numbers::Exact, r#"{"b":1,"a":[true,null,"x"]}"#);
        check(r#"{"to":"bob","to":"mallory"}"#, Numbers::Any, "duplicate key at line 1 column 16");
        check(r#"{"to":"bob","\u0074o":"mallory"}"#, Numbers::Any, "duplicate key at line 1 column 21");
        check("[{\"a\":1,\n\"a\":2}]", Numbers::Any, "duplicate key at line 2 column 3");
        check("9007199254740993", Numbers::Any, "9007199254740993");
        check("9007199254740993", Numbers::Exact, "number is too large to be exact at line 1 column 16");
        check(
            "12345678901234567890123",
            Numbers::Exact,
            "number is too large to be exact at line 1 column 23",
        );
        check("1e400", Numbers::Any, "number out of range at line 1 column 5");
        check("{} {}", Numbers::Any, "trailing characters at line 1 column 4");
        check("", Numbers::Any, "EOF while parsing a value at line 1 column 0");
        check(&"[".repeat(1000), Numbers::Any, "recursion limit exceeded at line 1 column 128");
    }
}
