//! Decodes and encodes the format that a request demands of the answer's text ([`OutputFormat`]), such as JSON that
//! follows a schema, as far as the wire formats share its fields. Each wire format declares the fields of its own
//! objects, and its decoder and encoder call this module.
//!
//! A schema comes from the client and is passed on to the model, so it could be huge, deeply nested or refer to another
//! document. Its size and depth are therefore bounded, and it may refer only to places within itself: nothing is
//! fetched.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::WireError;
use super::fields::ObjectFields;
use super::known_fields::KnownFields;
use crate::chat::{OutputFormat, OutputSchema};
use crate::json::Json;

/// The most bytes of a schema, as compact JSON.
const MAX_BYTES: usize = 262_144;
/// The greatest depth of nested lists and objects in a schema.
const MAX_DEPTH: usize = 64;
/// The most characters of the name of a schema, as in OpenAI's formats.
const MAX_NAME: usize = 64;

/// The name that a schema without a name gets in OpenAI's formats, which require a name.
const NAME: &str = "output";

/// The problem of a schema that refers to another document.
const ELSEWHERE: &str = "has a `$ref` or `$dynamicRef` that does not begin with `#`: nothing is fetched, so put the schema itself there";

/// Reads `format`, the object in which a request demands a format of the answer's text. `None` if the request permits
/// any text. `known` lists the types that the object may have in this wire format (some of `text`, `json_object` and
/// `json_schema`), each with the fields of an object of this type. For any other type, fails with the problem
/// `unknown`. `read_schema` reads the rest of an object of the type `json_schema`.
pub(super) fn read_format<'a>(
    format: &ObjectFields<'a>,
    known: &[(&str, &KnownFields)],
    unknown: &'static str,
    read_schema: impl Fn(&ObjectFields<'a>) -> Result<OutputSchema, WireError>,
) -> Result<Option<OutputFormat>, WireError> {
    let kind = format.text("type")?;
    let Some((_, fields)) = known.iter().find(|(name, _)| *name == kind) else {
        return format.field_error("type", unknown);
    };
    format.reject_unsupported(fields)?;
    match kind {
        "json_object" => Ok(Some(OutputFormat::JsonObject)),
        "json_schema" => Ok(Some(OutputFormat::Schema(read_schema(format)?))),
        // The type `text`: any text.
        _ => Ok(None),
    }
}

/// Reads a schema from `object`, with the fields that OpenAI's formats share: `name`, `description`, `schema` and
/// `strict`. The description and `strict` may be missing. Fails if the name or the schema is missing or invalid.
pub(super) fn read_named_schema(object: &ObjectFields<'_>) -> Result<OutputSchema, WireError> {
    let name = object.text("name")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_plain) {
        return object.field_error("name", "is not a name of 1 to 64 letters, digits, `_` and `-`");
    }
    Ok(OutputSchema {
        name: name.to_owned(),
        description: object.optional_text("description")?.unwrap_or_default().to_owned(),
        schema: read_schema(object, "schema")?,
        strict: object.get("strict").map(|_| object.flag("strict")).transpose()?,
    })
}

/// Reads the schema in the field `key`. Fails if it is missing or not an object, if it is too deep or too large, or if
/// it refers to another document.
pub(super) fn read_schema(object: &ObjectFields<'_>, key: &str) -> Result<Arc<Value>, WireError> {
    match object.get(key) {
        None => object.field_error(key, "is missing"),
        Some(schema @ Json::Object(_)) => checked_schema(object, key, schema.to_value()),
        Some(_) => object.field_error(key, "is not an object"),
    }
}

/// Checks `schema`, which was read from the field `key` of `object`, and returns it to be shared. Fails if the schema
/// is too deep or too large, or if it refers to another document; the error names the field.
pub(super) fn checked_schema(
    object: &ObjectFields<'_>,
    key: &str,
    schema: Value,
) -> Result<Arc<Value>, WireError> {
    match problem(&schema) {
        Some(problem) => object.field_error(key, problem),
        None => Ok(schema.into()),
    }
}

/// Returns the problem of a schema that is too deep or too large, or that refers to another document; `None` for any
/// other schema. Does not check whether the keywords of the schema are valid.
fn problem(schema: &Value) -> Option<&'static str> {
    // The values that are still to be checked, each with its depth. A stack instead of recursion, because the depth of
    // the schema is not bounded yet.
    let mut open = vec![(schema, 1)];
    while let Some((value, depth)) = open.pop() {
        let is_nested = matches!(value, Value::Array(_) | Value::Object(_));
        if is_nested && depth > MAX_DEPTH {
            return Some("is nested more than 64 levels deep; make it flatter");
        }
        match value {
            Value::Array(items) => open.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(entries) => {
                // Whether the keyword `key` refers to another document: its target does not begin with `#`.
                let is_elsewhere = |key: &str| {
                    entries.get(key).and_then(Value::as_str).is_some_and(|target| !target.starts_with('#'))
                };
                if is_elsewhere("$ref") || is_elsewhere("$dynamicRef") {
                    return Some(ELSEWHERE);
                }
                open.extend(entries.values().map(|entry| (entry, depth + 1)));
            }
            _ => {}
        }
    }
    (schema.to_string().len() > MAX_BYTES).then_some("is larger than 262144 bytes; make it smaller")
}

/// Encodes a schema with the fields that OpenAI's formats share: `name`, `description`, `schema` and `strict`. These
/// formats require a name, so a schema without a name (from a client of another format) gets the name `output`.
pub(super) fn encode_named_schema(schema: &OutputSchema) -> Map<String, Value> {
    let name = if schema.name.is_empty() { NAME } else { schema.name.as_str() };
    let mut fields = Map::from_iter([("name".to_owned(), Value::from(name))]);
    if !schema.description.is_empty() {
        fields.insert("description".to_owned(), Value::from(schema.description.as_str()));
    }
    fields.insert("schema".to_owned(), (*schema.schema).clone());
    if let Some(strict) = schema.strict {
        fields.insert("strict".to_owned(), Value::Bool(strict));
    }
    fields
}

/// Returns the JSON schema of `schema` for a wire format that has no field for the description. Writes the description
/// into the JSON schema, unless the description is empty or the JSON schema already has one.
pub(super) fn described_schema(schema: &OutputSchema) -> Value {
    let mut described = (*schema.schema).clone();
    if let (Value::Object(entries), false) = (&mut described, schema.description.is_empty()) {
        let description = Value::from(schema.description.as_str());
        entries.entry("description").or_insert(description);
    }
    described
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_are_bounded_and_refer_only_to_themselves() {
        let nested = |depth: usize| (1..depth).fold(json!({}), |inner, _| json!({"items": inner}));
        let long = |bytes: usize| {
            let empty = json!({"description": ""}).to_string().len();
            json!({"description": "a".repeat(bytes - empty)})
        };
        let deep = Some("is nested more than 64 levels deep; make it flatter");
        let large = Some("is larger than 262144 bytes; make it smaller");
        for (schema, expected) in [
            (json!({}), None),
            (nested(MAX_DEPTH), None),
            (nested(MAX_DEPTH + 1), deep),
            (long(MAX_BYTES), None),
            (long(MAX_BYTES + 1), large),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}), None),
            (json!({"items": {"$ref": "https://example.org/schema.json"}}), Some(ELSEWHERE)),
            (json!({"anyOf": [{"$dynamicRef": "other.json"}]}), Some(ELSEWHERE)),
            // A property that has the name of the keyword.
            (json!({"properties": {"$ref": {"type": "string"}}}), None),
        ] {
            let shown: String = schema.to_string().chars().take(80).collect();
            assert_eq!(problem(&schema), expected, "{shown}");
        }
    }

    #[test]
    fn a_description_is_not_lost_where_a_format_has_no_field_for_it() {
        let check = |schema: Value, description: &str, expected: Value| {
            let (name, description) = (String::new(), description.to_owned());
            let schema = OutputSchema { name, description, schema: schema.into(), strict: None };
            assert_eq!(described_schema(&schema), expected);
        };
        check(json!({"type": "object"}), "D.", json!({"type": "object", "description": "D."}));
        check(json!({"description": "S."}), "D.", json!({"description": "S."}));
        check(json!({"type": "object"}), "", json!({"type": "object"}));
    }
}
