//! Defines [`OutputFormat`], the form that a request demands of the model's text (structured output): JSON, or JSON
//! that matches an [`OutputSchema`].
//!
//! The decoders of [`wire`](crate::wire) read the form from a client's request, and the encoders write it for a model's
//! server. A schema contains names and descriptions, which a model reads as text. `flowgate-guard` therefore labels the
//! schema by the policy, and shows it to a step only if its label flows to the label of the step.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The form of the text of a message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputFormat {
    /// A JSON object.
    JsonObject,
    /// JSON that matches a schema.
    Schema(OutputSchema),
}

/// A schema, with the name, the description and the strictness that the client gives for it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OutputSchema {
    /// The name; empty if the client gives none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// The description of what the JSON is for; empty if the client gives none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON schema. The requests of many chats share one copy.
    pub schema: Arc<Value>,
    /// Whether the server must enforce the schema; `None` leaves it to the server.
    #[serde(default)]
    pub strict: Option<bool>,
}

impl OutputSchema {
    /// Returns everything that the model reads of this value as one text: JSON with the name, the description and the
    /// schema.
    #[must_use]
    pub fn text(&self) -> String {
        let mut fields = Map::new();
        for (key, text) in [("name", &self.name), ("description", &self.description)] {
            if !text.is_empty() {
                fields.insert(key.to_owned(), Value::from(text.as_str()));
            }
        }
        fields.insert("schema".to_owned(), (*self.schema).clone());
        Value::Object(fields).to_string()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The stored form of a format is read back, and does not change.
    #[test]
    fn formats_are_stored() {
        let schema = |name: &str, strict| {
            OutputFormat::Schema(OutputSchema {
                name: name.to_owned(),
                description: String::new(),
                schema: json!({"type": "object"}).into(),
                strict,
            })
        };
        for (format, stored) in [
            (OutputFormat::JsonObject, json!("json_object")),
            (schema("", None), json!({"schema": {"schema": {"type": "object"}, "strict": null}})),
            (
                schema("n", Some(true)),
                json!({"schema": {"name": "n", "schema": {"type": "object"}, "strict": true}}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&format).unwrap(), stored);
            assert_eq!(serde_json::from_value::<OutputFormat>(stored).unwrap(), format);
        }
    }

    #[test]
    fn the_text_has_all_that_a_model_is_shown() {
        let schema = OutputSchema {
            name: "n".to_owned(),
            description: "D.".to_owned(),
            schema: json!({"type": "object", "description": "S."}).into(),
            strict: None,
        };
        assert_eq!(
            schema.text(),
            r#"{"name":"n","description":"D.","schema":{"type":"object","description":"S."}}"#
        );
    }
}
