//! Defines pins, the records of the tools that a person has approved with their descriptions.
//!
//! A pin is the digest of the server's whole description of a tool, independent of the order of fields. A tool that the
//! server adds later is therefore not approved, and neither is a tool whose description has changed by a word.
//! `listing` compares each tool with the pins. The gateway persists them in its database, `flowgate mcp` in a file.

use std::collections::BTreeMap;
use std::fmt;

use flowgate::json::{self, JsonError, Numbers};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// The approved tools of one server, with their digests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pins(BTreeMap<String, String>);

impl From<BTreeMap<String, String>> for Pins {
    /// Returns pins for these tools, by their digests.
    fn from(pins: BTreeMap<String, String>) -> Self {
        Self(pins)
    }
}

/// The reason why a text is not a file of pins.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PinsError {
    /// The text is not strict JSON.
    Json(JsonError),
    /// The text is JSON without the fields of a file of pins.
    Form,
}

impl fmt::Display for PinsError {
    /// Writes the position of the error if the text is not valid JSON, and what to do with the file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Json(error) = self {
            write!(f, "{error}; ")?;
        }
        f.write_str(
            "the file is not one that `--pins` has written; remove it, and run once with `--accept-new`",
        )
    }
}

impl std::error::Error for PinsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::Form => None,
        }
    }
}

impl Pins {
    /// Returns the tools with their digests.
    pub fn tools(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(tool, digest)| (tool.as_str(), digest.as_str()))
    }

    /// Parses the text of a file of pins, which may contain several servers, and returns the pins of one server: the
    /// digests of its approved tools. Returns no pins if the file does not contain this server.
    ///
    /// # Errors
    /// If the text is not a file of pins.
    pub fn from_file_text(text: &str, server: &str) -> Result<Self, PinsError> {
        let value = json::parse(text, Numbers::Any).map_err(PinsError::Json)?;
        let servers = value.get("pins").and_then(Value::as_object).ok_or(PinsError::Form)?;
        let Some(pins) = servers.get(server) else { return Ok(Self::default()) };
        let pins = pins.as_object().ok_or(PinsError::Form)?.iter();
        let pins = pins.map(|(name, digest)| Some((name.clone(), digest.as_str()?.to_owned())));
        Ok(Self(pins.collect::<Option<_>>().ok_or(PinsError::Form)?))
    }

    /// Returns the new text of a file of pins: with these pins for `server`, and everything else unchanged.
    /// The caller writes the file. `old` is its present text; `None` if there is no file yet.
    ///
    /// # Errors
    /// If the old text is not a file of pins.
    pub fn to_file_text(&self, old: Option<&str>, server: &str) -> Result<String, PinsError> {
        // A text that is not a file of pins must not be overwritten.
        if let Some(old) = old {
            Self::from_file_text(old, server)?;
        }
        let old = old.map(|old| json::parse(old, Numbers::Any).map_err(PinsError::Json)).transpose()?;
        let mut file = match old {
            Some(Value::Object(file)) => file,
            _ => Map::new(),
        };
        let servers = file.entry("pins").or_insert_with(|| json!({}));
        servers.as_object_mut().ok_or(PinsError::Form)?.insert(server.to_owned(), json!(self.0));
        Ok(format!("{:#}\n", Value::Object(file)))
    }

    /// Returns whether a tool of this name is approved, with any description.
    pub(super) fn contains_name(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether a tool is approved with the description of this digest.
    pub fn is_approved(&self, name: &str, digest: &str) -> bool {
        self.0.get(name).is_some_and(|pinned| pinned == digest)
    }

    /// Approves a tool with the description of this digest, in place of an earlier description.
    pub(super) fn insert(&mut self, name: &str, digest: &str) {
        self.0.insert(name.to_owned(), digest.to_owned());
    }
}

/// Returns the SHA-256 digest, in hexadecimal, of the whole description of a tool, as the server lists it.
pub(super) fn digest(tool: &Value) -> String {
    let digest = Sha256::digest(with_sorted_keys(tool).to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the value with the keys of all objects in sorted order, so that a digest does not depend on their order.
fn with_sorted_keys(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, Value> =
                fields.iter().map(|(key, value)| (key, with_sorted_keys(value))).collect();
            Value::Object(fields.into_iter().map(|(key, value)| (key.clone(), value)).collect())
        }
        Value::Array(items) => items.iter().map(with_sorted_keys).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_does_not_depend_on_the_order_of_fields() {
        let said = json!({"name": "a", "description": "reads", "inputSchema": {"x": 1, "y": [2]}});
        let same = json!({"inputSchema": {"y": [2], "x": 1}, "description": "reads", "name": "a"});
        let other = json!({"name": "a", "description": "reads", "inputSchema": {"x": 1, "y": [3]}});
        assert_eq!(digest(&said), digest(&same));
        assert_ne!(digest(&said), digest(&other));
    }

    #[test]
    fn a_file_holds_the_pins_of_several_servers() {
        let mut one = Pins::default();
        one.insert("read", "aa");
        let text = one.to_file_text(None, "files").unwrap();
        let text = Pins::default().to_file_text(Some(&text), "mail").unwrap();
        assert_eq!(Pins::from_file_text(&text, "files").unwrap(), one);
        assert_eq!(Pins::from_file_text(&text, "mail").unwrap(), Pins::default());
        assert!(
            Pins::from_file_text("{}", "files")
                .unwrap_err()
                .to_string()
                .contains("run once with `--accept-new`")
        );
        assert!(Pins::from_file_text("{\"pins\": {\"files\": 3}}", "files").is_err());
    }
}
