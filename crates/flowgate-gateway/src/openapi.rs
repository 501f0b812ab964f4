//! Contains the OpenAPI description of the gateway's HTTP API, which `http::service` serves. `openapi.json` is written
//! by hand; tests compare it with the routes and with the response types.

/// An OpenAPI 3.1 document.
pub const DOCUMENT: &str = include_str!("../openapi.json");

/// Returns the document, parsed.
#[cfg(test)]
pub(crate) fn document() -> serde_json::Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

/// Returns the schema with this name.
#[cfg(test)]
pub(crate) fn schema(name: &str) -> serde_json::Value {
    document()["components"]["schemas"][name].clone()
}

/// Returns how `value` violates the schema, by the keywords that the document uses; empty if it is valid. `place` names
/// the value in the messages.
#[cfg(test)]
pub(crate) fn mistakes(value: &serde_json::Value, schema: &serde_json::Value, place: &str) -> Vec<String> {
    use serde_json::Value;
    if let Some(reference) = schema["$ref"].as_str() {
        let document = document();
        return mistakes(value, document.pointer(reference.trim_start_matches('#')).unwrap(), place);
    }
    let kind = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    // An integer is also a number.
    let is = |expected: &Value| expected == kind || (expected == "number" && kind == "integer");
    let mut found = Vec::new();
    match &schema["type"] {
        Value::Array(kinds) if kinds.iter().any(is) => {}
        expected if is(expected) => {}
        expected => found.push(format!("{place} is {kind}, not {expected}")),
    }
    if schema["enum"].as_array().is_some_and(|known| !known.contains(value)) {
        found.push(format!("{place} is {value}, not one of {}", schema["enum"]));
    }
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if value.get(name).is_none() {
            found.push(format!("{place} has no {name}"));
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        // `additionalProperties` is the schema of the fields that `properties` does not name. Without it, an object
        // whose fields are listed must have no others.
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(schema) => found.extend(mistakes(field, schema, &format!("{place}.{name}"))),
            None if schema.get("properties").is_some() => found.push(format!("{place} has a field {name}")),
            None => {}
        }
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(mistakes(item, &schema["items"], &format!("{place}[{index}]")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::service::ROUTES;
    use serde_json::{Value, json};

    #[test]
    fn mistakes_are_found() {
        let check = |name: &str, value: Value, expected: &[&str]| {
            assert_eq!(mistakes(&value, &schema(name), "it"), expected, "{value}");
        };
        check("Failed", json!({"rule": 1, "kind": "fuel", "message": "m"}), &[]);
        check(
            "Failed",
            json!({"rule": 1.5, "kind": "fuel", "message": "m"}),
            &["it.rule is number, not \"integer\""],
        );
        check("Failed", json!({"rule": 1, "kind": "fuel"}), &["it has no message"]);
        check("Detail", json!({"detail": "m", "more": 1}), &["it has a field more"]);
        let kinds = schema("Failed")["properties"]["kind"]["enum"].clone();
        let expected = format!("it.kind is \"x\", not one of {kinds}");
        check("Failed", json!({"rule": 1, "kind": "x", "message": "m"}), &[&expected]);
        let expected = "it.errors[0] is null, not \"object\"";
        assert!(
            mistakes(&json!({"errors": [null]}), &schema("Checked"), "it").contains(&expected.to_owned())
        );
    }

    #[test]
    fn it_describes_exactly_the_routes() {
        let document = document();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            described.extend(methods.as_object().unwrap().keys().map(|method| format!("{method} {path}")));
        }
        let mut served: Vec<String> = ROUTES
            .iter()
            .map(|(method, path, _)| format!("{} {}", method.as_str().to_lowercase(), path))
            .collect();
        described.sort();
        served.sort();
        assert_eq!(described, served);
    }

    #[test]
    fn every_reference_leads_somewhere_and_every_schema_is_used() {
        fn references(value: &Value, found: &mut Vec<String>) {
            match value {
                Value::Object(fields) => {
                    found.extend(fields.get("$ref").and_then(Value::as_str).map(str::to_owned));
                    fields.values().for_each(|value| references(value, found));
                }
                Value::Array(items) => items.iter().for_each(|item| references(item, found)),
                _ => {}
            }
        }
        let document = document();
        let mut found = Vec::new();
        references(&document, &mut found);
        for reference in &found {
            assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
        }
        for (group, items) in document["components"].as_object().unwrap() {
            for name in items.as_object().unwrap().keys().filter(|_| group != "securitySchemes") {
                assert!(found.contains(&format!("#/components/{group}/{name}")), "{name} is not used");
            }
        }
    }
}
