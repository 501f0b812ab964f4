//! Writes JSON in one canonical spelling: equal values have equal text, however they were written. The digests of
//! messages, and the search for a call that was handed to a client, compare the arguments of calls in this spelling.
//!
//! Agents parse the arguments of a call and print them again before they send the chat back. Whitespace, escapes, the
//! order of keys and the spelling of numbers change on the way: Python adds spaces and `\u` escapes, Go sorts keys,
//! JavaScript prints 20.0 as 20. The text that [`canonical_json`] returns does not depend on these.

use std::borrow::Cow;

use flowgate::json::{self, Numbers};
use serde_json::{Map, Number, Value};

/// Returns the canonical spelling of a JSON text. A text that is not strict JSON, or has a duplicate key, is returned
/// unchanged: two parsers may read it differently, so only the same text equals it.
pub(crate) fn canonical_json(text: &str) -> Cow<'_, str> {
    match json::parse(text, Numbers::Any) {
        Ok(value) => canonical_text(&value).into(),
        Err(_) => text.into(),
    }
}

/// Returns the canonical spelling of a value: compact, with sorted keys and one spelling of each number.
pub(crate) fn canonical_text(value: &Value) -> String {
    let mut text = String::new();
    write_value(value, &mut text);
    text
}

/// Returns the canonical spelling of an object.
pub(crate) fn canonical_object(object: &Map<String, Value>) -> String {
    let mut text = String::new();
    write_object(object, &mut text);
    text
}

/// Appends the canonical spelling of a value to `text`.
fn write_value(value: &Value, text: &mut String) {
    match value {
        Value::Object(object) => write_object(object, text),
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_value(item, text);
            }
            text.push(']');
        }
        Value::Number(number) => text.push_str(&canonical_number(number)),
        Value::String(string) => write_string(string, text),
        Value::Null => text.push_str("null"),
        Value::Bool(bool) => text.push_str(if *bool { "true" } else { "false" }),
    }
}

/// Appends the canonical spelling of an object to `text`, with sorted keys.
fn write_object(object: &Map<String, Value>, text: &mut String) {
    let mut entries: Vec<(&String, &Value)> = object.iter().collect();
    entries.sort_unstable_by_key(|(name, _)| *name);
    text.push('{');
    for (index, (name, value)) in entries.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        write_string(name, text);
        text.push(':');
        write_value(value, text);
    }
    text.push('}');
}

/// Appends a string to `text` as a JSON string literal, in the one spelling that `serde_json` writes.
fn write_string(string: &str, text: &mut String) {
    text.push_str(&Value::from(string).to_string());
}

/// Returns the canonical spelling of a number, which is the same for numbers that are equal (`20`, `20.0` and `2e1`).
fn canonical_number(number: &Number) -> String {
    // An integer is printed as it is. Rust prints the float 1.0 as `1`, so it equals the integer 1. Adding 0.0 turns
    // -0.0 into 0.0, because JavaScript prints both as 0.
    let float = number.as_f64().filter(|_| number.is_f64()).map(|float| float + 0.0);
    float.map_or_else(|| number.to_string(), |float| float.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_spelling() {
        let check = |text: &str, expected: &str| {
            assert_eq!(canonical_json(text), expected, "{text}");
            assert_eq!(canonical_json(expected), expected, "the canonical spelling of {text} is not stable");
        };
        check("{}", "{}");
        check(" { \"to\" : \"bob\",\n\"a\": [1, 2.50] } ", r#"{"a":[1,2.5],"to":"bob"}"#);
        check(r#"{"b":{"d":1,"c":2},"a":null}"#, r#"{"a":null,"b":{"c":2,"d":1}}"#);
        check(r#"["\u00e9\/\ud83d\ude00\n", true, false]"#, "[\"é/\u{1f600}\\n\",true,false]");
        check("[20.0, 2e1, 20, -0.0, -0, 1E-2]", "[20,20,20,0,0,0.01]");
        check("18446744073709551615", "18446744073709551615");
    }

    #[test]
    fn what_parsers_may_read_differently_stays_as_it_is() {
        let deep = "[".repeat(200) + &"]".repeat(200);
        for text in [
            "",
            "{\"a\": 1",
            "{\"a\": 1} x",
            r#"{"a": 1, "a": 1}"#,
            "[1e999]",
            "[NaN]",
            r#"["\ud83d"]"#,
            &deep,
        ] {
            assert_eq!(canonical_json(text), text);
        }
    }

    #[test]
    fn different_values_have_different_spellings() {
        for (one, other) in [
            ("20.5", "20"),
            ("20", "\"20\""),
            ("1", "true"),
            ("18446744073709551615", "18446744073709551614"),
            ("[1]", "[1,1]"),
            ("[1,2]", "[2,1]"),
            ("{\"a\":1}", "{\"a\":1,\"b\":null}"),
            ("{\"a\":null}", "{\"b\":null}"),
            ("\"a\"", "\"a \""),
            ("\"\\\\n\"", "\"\\n\""),
        ] {
            assert_ne!(canonical_json(one), canonical_json(other));
        }
    }
}
