//! Holds the JSON Schema of the configuration file, `config.schema.json`, and checks values by it. Editors read the
//! schema from the repository; `overrides` finds in it the fields that variables can set, and the types of their
//! values. The tests compare the schema with what [`super::file`] accepts.

use std::sync::LazyLock;

use serde_json::Value;

/// The text of the JSON Schema of the configuration file.
pub const SCHEMA: &str = include_str!("../../config.schema.json");

/// The schema as a value. If the text were not JSON, it would be `null`, and no field could be overridden.
static PARSED: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(SCHEMA).unwrap_or_default());

/// Returns the schema of the whole file.
pub(super) fn whole_file() -> &'static Value {
    &PARSED
}

/// Returns the schema of the entries of a section in which the operator chooses the names, such as `[clients.NAME]`;
/// `None` if `schema` does not describe such a section.
pub(super) fn of_named_entries(schema: &Value) -> Option<&Value> {
    schema.get("additionalProperties").filter(|entries| entries.is_object())
}

/// Checks a value by the part of the schema that describes it.
///
/// # Errors
/// What the value must be, without the value itself: `a whole number from 1 to 9`. Of a table, it names the field
/// that does not exist or has a wrong value.
pub(super) fn check(value: &toml::Value, schema: &Value) -> Result<(), String> {
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    let keyword = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
    // Whether the value has the type that the schema names, and obeys its `enum`, `minimum` and `maximum`. Lists and
    // tables are checked part by part, and the outcome is returned at once.
    let is_right = match (keyword("type"), value) {
        ("string", toml::Value::String(text)) => match schema.get("enum").and_then(Value::as_array) {
            Some(words) => words.iter().any(|word| word.as_str() == Some(text)),
            None => true,
        },
        ("integer", toml::Value::Integer(number)) => {
            bound("minimum").is_none_or(|least| *number >= least)
                && bound("maximum").is_none_or(|greatest| *number <= greatest)
        }
        ("boolean", toml::Value::Boolean(_))
        | ("number", toml::Value::Integer(_) | toml::Value::Float(_)) => true,
        ("array", toml::Value::Array(items)) => {
            let of_items = schema.get("items").unwrap_or(&Value::Null);
            return items.iter().try_for_each(|item| {
                check(item, of_items).map_err(|expected| format!("a list whose items are each {expected}"))
            });
        }
        ("object", toml::Value::Table(table)) => {
            return table.iter().try_for_each(|(name, value)| check_entry(name, value, schema));
        }
        _ => false,
    };
    if is_right { Ok(()) } else { Err(expectation(schema)) }
}

/// Checks one entry of a table by the schema of the table.
///
/// # Errors
/// What the table must be, as [`check`] says it.
fn check_entry(name: &str, value: &toml::Value, schema: &Value) -> Result<(), String> {
    let Some(fields) = schema.get("properties") else {
        // A table in which the operator chooses the names. If the schema describes its values, the value is checked.
        return of_named_entries(schema).map_or(Ok(()), |entries| check(value, entries));
    };
    let Some(field) = fields.get(name) else {
        let known: Vec<String> =
            fields.as_object().into_iter().flatten().map(|(name, _)| format!("`{name}`")).collect();
        return Err(format!(
            "a table whose fields are all among {} (`{}` is not one of them)",
            known.join(", "),
            name.escape_debug()
        ));
    };
    check(value, field).map_err(|expected| format!("a table whose `{name}` is {expected}"))
}

/// Returns what a value must be by its schema, for messages.
fn expectation(schema: &Value) -> String {
    let words = schema.get("enum").and_then(Value::as_array);
    if let Some(words) = words {
        let words: Vec<String> =
            words.iter().filter_map(Value::as_str).map(|word| format!("`{word}`")).collect();
        return format!("one of {}", words.join(", "));
    }
    let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
    match schema.get("type").and_then(Value::as_str) {
        Some("string") => "a text".to_owned(),
        Some("boolean") => "`true` or `false`".to_owned(),
        Some("number") => "a number".to_owned(),
        Some("integer") => match (bound("minimum"), bound("maximum")) {
            (Some(least), Some(greatest)) => format!("a whole number from {least} to {greatest}"),
            (Some(least), None) => format!("a whole number of at least {least}"),
            _ => "a whole number".to_owned(),
        },
        Some("array") => "a list, as in TOML: [\"first\", \"second\"]".to_owned(),
        Some("object") => "a table, as in TOML: { name = \"value\" }".to_owned(),
        _ => "a value of a field that exists".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;
    use crate::config::file::ConfigFile;

    /// Returns the error of a file with this content, as the gateway reads it; an empty text if it reads it.
    fn error_of(file: toml::Value) -> String {
        ConfigFile::deserialize(file).map_or_else(|error| error.to_string(), |_| String::new())
    }

    /// Returns the file in which the section at `path` has this value.
    fn at(path: &[&str], value: toml::Value) -> toml::Value {
        path.iter().rev().fold(value, |value, name| {
            toml::Value::Table([((*name).to_owned(), value)].into_iter().collect())
        })
    }

    /// Returns the file with all fields, in which the section at `path` has this value.
    fn complete_with(path: &[&str], value: toml::Value) -> toml::Value {
        let mut file = example(whole_file());
        let mut section = &mut file;
        for name in path {
            section = section.get_mut(*name).unwrap();
        }
        *section = value;
        file
    }

    /// Returns a value that the schema permits: with all fields, and with one entry `x` for names of the operator.
    fn example(schema: &Value) -> toml::Value {
        if let Some(word) = schema.pointer("/enum/0") {
            return toml::Value::String(word.as_str().unwrap().to_owned());
        }
        match schema["type"].as_str().unwrap() {
            "string" => toml::Value::String("x".to_owned()),
            "boolean" => toml::Value::Boolean(true),
            "number" => toml::Value::Float(1.5),
            "integer" => toml::Value::Integer(schema["minimum"].as_i64().unwrap()),
            "array" => toml::Value::Array(vec![example(&schema["items"])]),
            "object" => {
                let fields = schema["properties"].as_object().into_iter().flatten();
                let mut table: toml::Table =
                    fields.map(|(name, field)| (name.clone(), example(field))).collect();
                if let Some(entries) = of_named_entries(schema) {
                    table.insert("x".to_owned(), example(entries));
                }
                toml::Value::Table(table)
            }
            other => panic!("{other}"),
        }
    }

    /// Checks the section at `path` and all below it against what the gateway reads, and returns the number of fields.
    fn compare(path: &[&str], schema: &Value) -> usize {
        // A value of another type is refused, by the gateway and by `check`.
        let wrong =
            if schema["type"] == "boolean" { toml::Value::Integer(7) } else { toml::Value::Boolean(true) };
        let refused = error_of(at(path, wrong.clone()));
        assert!(refused.contains("invalid type"), "{path:?} {refused}");
        assert!(check(&wrong, schema).is_err(), "{path:?}");
        assert_eq!(check(&example(schema), schema), Ok(()), "{path:?}");
        // Outside the bounds and the words, too.
        for (name, beyond) in [("minimum", -1), ("maximum", 1)] {
            if let Some(bound) = schema[name].as_i64() {
                let beyond = toml::Value::Integer(bound + beyond);
                assert!(error_of(at(path, beyond.clone())).contains("invalid value"), "{path:?} {beyond:?}");
                assert!(check(&beyond, schema).is_err(), "{path:?} {beyond:?}");
            }
        }
        if let Some(words) = schema["enum"].as_array() {
            let known: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            for word in &known {
                let refused = error_of(at(path, toml::Value::String((*word).to_owned())));
                assert!(refused.is_empty() || refused.contains("missing field"), "{path:?} {word} {refused}");
            }
            let other = toml::Value::String("no-such-word".to_owned());
            let refused = error_of(at(path, other.clone()));
            assert_eq!(named_in(refused.split_once("expected").unwrap().1), known, "{path:?}");
            assert!(check(&other, schema).is_err(), "{path:?}");
        }
        let mut count = 0;
        if let Some(entries) = of_named_entries(schema) {
            count += compare(&[path, &["x"]].concat(), entries);
        }
        let Some(fields) = schema["properties"].as_object() else { return count };
        // The gateway reads exactly the fields of the schema.
        assert_eq!(schema["additionalProperties"], false, "{path:?}");
        let unknown = error_of(at(&[path, &["no-such-field"]].concat(), toml::Value::Boolean(true)));
        let (_, listed) = unknown.split_once("expected").unwrap_or_else(|| panic!("{path:?} {unknown}"));
        assert_eq!(named_in(listed), fields.keys().collect::<Vec<_>>(), "{path:?}");
        assert!(check(&at(&["no-such-field"], toml::Value::Boolean(true)), schema).is_err(), "{path:?}");
        let complete = example(schema);
        assert_eq!(error_of(complete_with(path, complete.clone())), "", "{path:?}");
        for (name, field) in fields {
            let mut without = complete.clone();
            without.as_table_mut().unwrap().remove(name);
            let is_required =
                schema["required"].as_array().is_some_and(|all| all.contains(&name.as_str().into()));
            let error = error_of(complete_with(path, without));
            assert_eq!(error.contains(&format!("missing field `{name}`")), is_required, "{path:?} {name}");
            count += 1 + compare(&[path, &[name]].concat(), field);
        }
        count
    }

    /// Returns the words in backquotes of a message.
    fn named_in(message: &str) -> Vec<&str> {
        message.lines().next().unwrap().split('`').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_schema_has_exactly_the_fields_that_are_read() {
        let count = compare(&[], whole_file());
        assert!(count > 100, "{count} fields");
    }
}
