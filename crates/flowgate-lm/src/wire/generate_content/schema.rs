//! Converts schemas in Gemini's own form, which resembles OpenAPI's, to JSON Schema: the gateway checks the arguments
//! of calls against JSON Schema, and the other formats have no other form. [`super::request_decoder`] calls this module
//! for the schema of the reply, and [`super::tools`] for the schemas of tools.

use serde_json::{Map, Value, json};

use crate::json::Json;

/// The names of types in Gemini's form: the names of JSON Schema in capitals.
const TYPES: [&str; 7] = ["STRING", "NUMBER", "INTEGER", "BOOLEAN", "ARRAY", "OBJECT", "NULL"];
/// The fields whose value is a whole number; Gemini's form also permits a text with the number.
const COUNTS: [&str; 6] =
    ["minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"];

/// Converts a schema in Gemini's form, with the schemas in it, into a JSON schema with the same meaning. Fields that
/// both forms share stay unchanged, so a JSON schema stays a JSON schema with the same meaning.
pub(super) fn json_schema(schema: &Json<'_>) -> Value {
    let Json::Object(entries) = schema else { return schema.to_value() };
    let mut converted = Map::new();
    for (key, value) in entries {
        let (key, value) = match (key.as_ref(), value) {
            // The order of properties has no meaning in JSON Schema. `nullable` is converted after the loop.
            ("propertyOrdering" | "nullable", _) => continue,
            ("type", Json::Text(name)) if name == "TYPE_UNSPECIFIED" => continue,
            ("type", Json::Text(name)) if TYPES.contains(&name.as_ref()) => {
                ("type", Value::from(name.to_lowercase()))
            }
            ("properties", Json::Object(_)) => ("properties", each_entry(value)),
            ("defs" | "$defs", Json::Object(_)) => ("$defs", each_entry(value)),
            // The field `defs` is renamed to `$defs`, and so are the references to it.
            ("ref", Json::Text(place)) => match place.strip_prefix("#/defs/") {
                Some(name) => ("$ref", Value::from(format!("#/$defs/{name}"))),
                None => ("$ref", value.to_value()),
            },
            ("items" | "additionalProperties", _) => (key.as_ref(), json_schema(value)),
            ("anyOf", Json::List(schemas)) => ("anyOf", schemas.iter().map(json_schema).collect()),
            // Gemini's form permits a number, such as that of `maxItems`, as a text.
            (key, Json::Text(count)) if COUNTS.contains(&key) => {
                (key, count.parse::<u64>().map_or_else(|_| value.to_value(), Value::from))
            }
            (key, value) => (key, value.to_value()),
        };
        converted.insert(key.to_owned(), value);
    }
    if schema.get("nullable") == Some(&Json::Bool(true)) {
        allow_null(&mut converted);
    }
    Value::Object(converted)
}

/// Converts each value of `schemas`, an object whose keys are names and whose values are schemas, such as `properties`.
/// A `schemas` that is not an object stays unchanged.
fn each_entry(schemas: &Json<'_>) -> Value {
    let Json::Object(entries) = schemas else { return schemas.to_value() };
    entries.iter().map(|(name, schema)| (name.clone().into_owned(), json_schema(schema))).collect()
}

/// Changes a JSON schema so that it also permits `null`. Adds `null` to its `enum`, if it has one, and to its `type`
/// or, if it has no type, to its `anyOf`. Any other schema stays unchanged.
fn allow_null(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    match schema.get("type").and_then(Value::as_str).map(|name| json!([name, "null"])) {
        Some(types) => drop(schema.insert("type".to_owned(), types)),
        None => {
            if let Some(Value::Array(schemas)) = schema.get_mut("anyOf") {
                schemas.push(json!({"type": "null"}));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_converted() {
        let check = |schema: Value, expected: Value| {
            assert_eq!(json_schema(&Json::from(&schema)), expected, "{schema}");
        };
        check(
            json!({
                "type": "OBJECT",
                "properties": {"type": {"type": "STRING", "minLength": "1", "nullable": true, "enum": ["OBJECT"]}},
                "required": ["type"],
                "propertyOrdering": ["type"],
            }),
            json!({
                "type": "object",
                "properties": {"type": {"type": ["string", "null"], "minLength": 1, "enum": ["OBJECT", null]}},
                "required": ["type"],
            }),
        );
        check(
            json!({"anyOf": [{"type": "INTEGER"}, {"type": "ARRAY", "items": {"type": "NUMBER"}}], "nullable": true}),
            json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "number"}}, {"type": "null"}]}),
        );
        check(
            json!({"ref": "#/$defs/a", "defs": {"a": {"type": "BOOLEAN"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "boolean"}}}),
        );
        check(
            json!({"ref": "#/defs/a", "defs": {"a": {"type": "BOOLEAN"}}}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "boolean"}}}),
        );
        check(json!({"type": "TYPE_UNSPECIFIED", "nullable": false}), json!({}));
        // A JSON schema, and values that are no schemas, stay unchanged.
        for same in [
            json!({"type": "object", "additionalProperties": false, "minItems": "x"}),
            json!("STRING"),
            json!([1]),
        ] {
            check(same.clone(), same);
        }
    }
}
