//! Converts descriptions of a tool's parameters to a JSON schema. The descriptions have the form of ToolEmu, an emulator of tools. The benchmarks
//! InjecAgent and PrivacyLens use this form, and their readers call [`schema`].

use serde_json::{Map, Value, json};

use super::reading::{CorpusError, LocatedValue};

/// The types that JSON schemas have. The benchmarks also use others, such as `date`, which a schema leaves out.
const TYPES: [&str; 6] = ["string", "integer", "number", "boolean", "array", "object"];

/// Converts a list of parameters, each with `name`, `type`, `description` and an optional `required`, to a JSON schema. It is an error if the list or
/// a parameter has another form. A type that is not in [`TYPES`] is left out, so that the argument may have any type.
pub(super) fn schema(parameters: &LocatedValue<'_>) -> Result<Value, CorpusError> {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for parameter in parameters.items()? {
        let name = parameter.text_of("name")?;
        let mut schema = Map::new();
        let kind = parameter.text_of("type")?;
        if TYPES.contains(&kind) {
            schema.insert("type".to_owned(), kind.into());
        }
        schema.insert("description".to_owned(), parameter.text_of("description")?.into());
        properties.insert(name.to_owned(), Value::Object(schema));
        if let Some(flag) = parameter.optional("required")?
            && flag.value().as_bool().ok_or_else(|| flag.expected("true or false"))?
        {
            required.push(name);
        }
    }
    Ok(json!({"type": "object", "properties": properties, "required": required}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_become_a_schema() {
        let check = |parameters: Value, expected: Result<Value, &str>| {
            let found = schema(&LocatedValue::root("f", &parameters)).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        };
        check(
            json!([
                {"name": "to", "type": "string", "description": "d", "required": true},
                {"name": "at", "type": "date", "description": "e"},
            ]),
            Ok(json!({
                "type": "object",
                "properties": {"to": {"type": "string", "description": "d"}, "at": {"description": "e"}},
                "required": ["to"],
            })),
        );
        check(
            json!([{"name": "to", "type": "string", "description": "d", "required": "yes"}]),
            Err(
                "f: [0].required: expected true or false, found a text; correct the file, or download it again",
            ),
        );
    }
}
