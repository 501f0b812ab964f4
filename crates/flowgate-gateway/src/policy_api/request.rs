//! Parses the bodies of requests for `policy_api`: one type for each route, with a function `read`. A body must be
//! strict JSON. Every error has the status 400, and names the wrong field or the position in malformed JSON.

use flowgate::json::{self, Numbers};
use serde_json::{Map, Value};

use super::PolicyApiError;

/// A policy to load.
pub(super) struct LoadRequest {
    pub(super) policy: String,
}

/// A trace to judge by a policy.
pub(super) struct CheckRequest {
    pub(super) messages: Vec<Value>,
    pub(super) policy: String,
    pub(super) parameters: Map<String, Value>,
}

/// A trace to judge by several policies.
pub(super) struct BatchRequest {
    pub(super) messages: Vec<Value>,
    pub(super) policies: Vec<String>,
    pub(super) parameters: Map<String, Value>,
}

impl LoadRequest {
    /// Reads a body with a policy.
    pub(super) fn read(body: &[u8]) -> Result<Self, PolicyApiError> {
        let mut fields = BodyFields::read(body, "`policy`")?;
        Ok(Self { policy: fields.text("policy")? })
    }
}

impl CheckRequest {
    /// Reads a body with one trace and one policy.
    pub(super) fn read(body: &[u8]) -> Result<Self, PolicyApiError> {
        let mut fields = BodyFields::read(body, "`messages`, `policy` and `parameters`")?;
        Ok(Self {
            messages: fields.list("messages")?,
            policy: fields.text("policy")?,
            parameters: fields.object("parameters")?,
        })
    }
}

impl BatchRequest {
    /// Reads a body with one trace and a list of policies.
    pub(super) fn read(body: &[u8]) -> Result<Self, PolicyApiError> {
        let mut fields = BodyFields::read(body, "`messages`, `policies` and `parameters`")?;
        let messages = fields.list("messages")?;
        let policies = fields.list("policies")?.into_iter().enumerate().map(|(index, policy)| match policy {
            Value::String(policy) => Ok(policy),
            _ => Err(PolicyApiError::bad_request(format!(
                "the item `policies[{index}]` of the body is not a string: send the text of a policy"
            ))),
        });
        let policies = policies.collect::<Result<_, _>>()?;
        let parameters = fields.object("parameters")?;
        // Only Invariant's service uses this field. A wrong type is an error here, as it is there.
        fields.optional_text("dataset_name")?;
        Ok(Self { messages, policies, parameters })
    }
}

/// The fields of a body. Unknown fields are ignored: newer clients may send more.
struct BodyFields(Map<String, Value>);

impl BodyFields {
    /// Reads a body that is a JSON object; `expected` names the fields of the request in the error message.
    fn read(body: &[u8], expected: &str) -> Result<Self, PolicyApiError> {
        let text = std::str::from_utf8(body).map_err(|error| {
            PolicyApiError::bad_request(format!(
                "the body of the request is not valid UTF-8 from byte {} on: send JSON in UTF-8",
                error.valid_up_to()
            ))
        })?;
        // `Numbers::Any`: numbers that parsers may read differently are accepted too.
        match json::parse(text, Numbers::Any) {
            Ok(Value::Object(fields)) => Ok(Self(fields)),
            Ok(_) => Err(PolicyApiError::bad_request(format!(
                "the body is not a JSON object: send one with {expected}"
            ))),
            Err(error) => Err(PolicyApiError::bad_request(format!(
                "the body of the request is not valid JSON: {error}"
            ))),
        }
    }

    /// Takes a field that must be present.
    fn required(&mut self, name: &str) -> Result<Value, PolicyApiError> {
        self.0.swap_remove(name).ok_or_else(|| {
            PolicyApiError::bad_request(format!("the body of the request has no field `{name}`: add it"))
        })
    }

    /// Takes a field that must be a string.
    fn text(&mut self, name: &str) -> Result<String, PolicyApiError> {
        match self.required(name)? {
            Value::String(text) => Ok(text),
            _ => Err(PolicyApiError::bad_request(format!(
                "the field `{name}` of the body is not a string: send one"
            ))),
        }
    }

    /// Takes a field that must be a list.
    fn list(&mut self, name: &str) -> Result<Vec<Value>, PolicyApiError> {
        match self.required(name)? {
            Value::Array(items) => Ok(items),
            _ => Err(PolicyApiError::bad_request(format!(
                "the field `{name}` of the body is not a list: send one"
            ))),
        }
    }

    /// Takes a field that must be an object, absent or null; the object is empty in the last two cases.
    fn object(&mut self, name: &str) -> Result<Map<String, Value>, PolicyApiError> {
        match self.0.swap_remove(name) {
            None | Some(Value::Null) => Ok(Map::new()),
            Some(Value::Object(fields)) => Ok(fields),
            Some(_) => Err(PolicyApiError::bad_request(format!(
                "the field `{name}` of the body is not an object: send one"
            ))),
        }
    }

    /// Checks that a field is absent, null or a string, and drops it: its value is not used, but a wrong type is an
    /// error, as in the service that clients of this API are written for.
    fn optional_text(&mut self, name: &str) -> Result<(), PolicyApiError> {
        match self.0.swap_remove(name) {
            None | Some(Value::Null | Value::String(_)) => Ok(()),
            Some(_) => Err(PolicyApiError::bad_request(format!(
                "the field `{name}` of the body is not a string: send one"
            ))),
        }
    }
}
