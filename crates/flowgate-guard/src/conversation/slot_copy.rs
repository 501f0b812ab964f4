//! Computes the value of an argument that is a slot: a copy of hidden regions, or the text that a filler wrote.
//! [`super::slot_filling`] calls this module.
//!
//! A text in the trace can itself be a list or a map in some notation, such as JSON. The trace then stores the parsed
//! value together with the text, so that a policy can refer to its fields. If the tool's schema accepts a string for
//! the argument, the copy is the text as its author wrote it, byte for byte. Otherwise the copy is the parsed value. So
//! the schema, not the author of the text, determines the type of the argument.

use flowgate::trace::{Document, NodeId};
use serde_json::Value;

/// A region that a slot refers to.
#[derive(Debug, Clone)]
pub(super) struct SlotRegion {
    /// The parsed value.
    value: Value,
    /// The text as it was written, if it was written as text.
    text: Option<String>,
}

impl SlotRegion {
    /// Reads a node of an event.
    pub(super) fn from_node(document: &Document, node: NodeId) -> Self {
        let text = document.node(node).and_then(|node| node.text.as_ref()).map(|text| text.to_string());
        Self { value: document.to_value(node), text }
    }

    /// Wraps a text that belongs to no event.
    pub(super) fn from_text(text: String) -> Self {
        Self { value: Value::String(text), text: None }
    }

    /// Returns the parsed value.
    pub(super) fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the text as it was written, or JSON if the value was not written as text.
    pub(super) fn to_text(&self) -> String {
        match (&self.text, &self.value) {
            (Some(text), _) | (None, Value::String(text)) => text.clone(),
            (None, value) => value.to_string(),
        }
    }

    /// Returns the value that the argument `name` of a tool with this schema receives as a copy of the region. If the
    /// schema accepts text for the argument, the value is the text as it was written. If there is no such text, and the
    /// schema accepts text but not the type of the parsed value, the value is its JSON text. In all other cases, the
    /// value is the parsed value.
    fn to_argument(&self, schema: &Value, name: &str) -> Value {
        let accepted = accepted_types(schema, name);
        let accepts_text = accepted.as_ref().is_none_or(|types| types.contains(&"string"));
        let accepts_value = accepted.as_ref().is_none_or(|types| types.contains(&type_of(&self.value)));
        if accepts_text && (self.text.is_some() || !accepts_value) {
            Value::String(self.to_text())
        } else {
            self.value.clone()
        }
    }
}

/// Returns the value that the argument `name` of a tool with this schema receives as a copy of these regions. A single
/// region is copied with its type; the texts of several regions are joined, one per line. Without a region, the value
/// is null.
pub(super) fn slot_argument(copied: &[SlotRegion], schema: &Value, name: &str) -> Value {
    match copied {
        [] => Value::Null,
        [one] => one.to_argument(schema, name),
        many => Value::String(many.iter().map(SlotRegion::to_text).collect::<Vec<_>>().join("\n")),
    }
}

/// Returns the value of a slot for which a filler wrote this text: the text itself. If the schema of the argument
/// accepts no text, and the text spells a number or a boolean that the schema accepts, the value is this number or
/// boolean.
pub(super) fn written_argument(text: String, schema: &Value, name: &str) -> Value {
    let accepted = accepted_types(schema, name).filter(|types| !types.contains(&"string"));
    let scalar: Option<Value> = accepted.as_ref().and_then(|_| serde_json::from_str(text.trim()).ok());
    let fits = |value: &Value| {
        matches!(value, Value::Bool(_) | Value::Number(_))
            && accepted.as_ref().is_some_and(|types| types.contains(&type_of(value)))
    };
    scalar.filter(fits).unwrap_or(Value::String(text))
}

/// Returns the JSON types that a schema accepts for an argument; `None` if it does not declare them.
fn accepted_types<'s>(schema: &'s Value, name: &str) -> Option<Vec<&'s str>> {
    // `true`: this is the schema of the argument itself, and not one in a choice of schemas.
    schema_types(schema.get("properties")?.get(name)?, true)
}

/// Returns the JSON types that a schema accepts: by its `type` or, if `is_top` is true, by a choice of schemas such as
/// `anyOf`. Returns `None` if the schema declares no types. Choices within choices are not searched, and count as
/// undeclared.
fn schema_types(schema: &Value, is_top: bool) -> Option<Vec<&str>> {
    match schema.get("type") {
        Some(Value::String(one)) => return Some(with_integer(vec![one])),
        Some(Value::Array(many)) => {
            return many.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(with_integer);
        }
        _ => {}
    }
    // A choice of types: the form in which libraries declare optional arguments.
    let either = schema.get("anyOf").or(schema.get("oneOf")).and_then(Value::as_array).filter(|_| is_top)?;
    let all = either.iter().map(|one| schema_types(one, false)).collect::<Option<Vec<_>>>()?;
    Some(all.concat())
}

/// Adds the type of integers to types that contain numbers: a schema that accepts any number accepts an integer.
fn with_integer(mut types: Vec<&str>) -> Vec<&str> {
    if types.contains(&"number") {
        types.push("integer");
    }
    types
}

/// Returns the JSON schema type of a value.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `check` takes the type in the schema, the text of the filler, and the value of the argument.
    #[test]
    fn a_filler_writes_text_or_the_scalar_that_the_schema_takes() {
        let check = |ty: Value, text: &str, expected: Value| {
            let schema = json!({"properties": {"a": {"type": ty}}});
            assert_eq!(written_argument(text.to_owned(), &schema, "a"), expected, "{ty} {text}");
        };
        check(json!("boolean"), " true ", json!(true));
        check(json!("integer"), "5", json!(5));
        check(json!("number"), "5", json!(5));
        check(json!("integer"), "5.5", json!("5.5"));
        check(json!("integer"), "5, or more", json!("5, or more"));
        check(json!("boolean"), "5", json!("5"));
        check(json!(["string", "integer"]), "5", json!("5"));
        check(json!("string"), "true", json!("true"));
        check(json!("array"), "[1]", json!("[1]"));
        check(json!("object"), "{}", json!("{}"));
        check(json!("null"), "null", json!("null"));
        assert_eq!(written_argument("5".to_owned(), &Value::Null, "a"), json!("5"));
    }

    /// Rows: the region, the schema of the argument, and the value that is copied to the argument.
    #[test]
    fn a_text_stays_a_text_unless_the_schema_takes_none() {
        let written = |text: &str, value: Value| SlotRegion { value, text: Some(text.to_owned()) };
        let made = |value: Value| SlotRegion { value, text: None };
        let yaml = || written("a: 1\nb: [x]", json!({"a": 1, "b": ["x"]}));
        let whole = || json!("a: 1\nb: [x]");
        let (text, object) = (json!({"type": "string"}), json!({"type": "object"}));
        let optional = json!({"anyOf": [{"type": "string"}, {"type": "null"}]});
        let nested = json!({"anyOf": [{"anyOf": [{"type": "object"}]}, {"type": "null"}]});
        let rows = [
            // Values written as text.
            (yaml(), json!({"type": "string"}), whole()),
            (yaml(), json!({}), whole()),
            (yaml(), json!(true), whole()),
            (yaml(), json!({"$ref": "#/$defs/x"}), whole()),
            (yaml(), optional.clone(), whole()),
            (yaml(), nested, whole()),
            (yaml(), json!({"type": ["string", "object"]}), whole()),
            (yaml(), object.clone(), json!({"a": 1, "b": ["x"]})),
            (yaml(), json!({"type": ["array", "object"]}), json!({"a": 1, "b": ["x"]})),
            // Values not written as text.
            (made(json!({"a": 1})), text.clone(), json!("{\"a\":1}")),
            (made(json!({"a": 1})), optional, json!("{\"a\":1}")),
            (made(json!({"a": 1})), object, json!({"a": 1})),
            (made(json!({"a": 1})), json!({}), json!({"a": 1})),
            (made(json!(5)), text.clone(), json!("5")),
            (made(json!(5)), json!({"type": "number"}), json!(5)),
            (made(json!(5.5)), json!({"type": ["string", "integer"]}), json!("5.5")),
            (made(json!(5)), json!({"type": "integer"}), json!(5)),
            (made(json!(5)), json!({"type": ["string", "integer"]}), json!(5)),
            (made(json!("x")), text, json!("x")),
            // A value that the schema accepts in neither form is left for the tool to reject.
            (made(json!("x")), json!({"type": "integer"}), json!("x")),
        ];
        for (copied, of_argument, expected) in rows {
            let schema = json!({"type": "object", "properties": {"body": of_argument}});
            assert_eq!(
                slot_argument(std::slice::from_ref(&copied), &schema, "body"),
                expected,
                "{copied:?} {schema}"
            );
        }
        assert_eq!(slot_argument(&[yaml()], &Value::Null, "body"), whole());
        let many = [yaml(), made(json!([1])), SlotRegion::from_text("x".to_owned())];
        assert_eq!(slot_argument(&many, &Value::Null, "body"), json!("a: 1\nb: [x]\n[1]\nx"));
    }
}
