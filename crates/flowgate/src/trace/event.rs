//! Events as a client reports them, before they are labelled.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::origin::Origin;
use crate::json;

/// A tool's identity: its server and its name. A name alone identifies no tool, since a second server may offer a
/// tool of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tool {
    /// The server that offers it, as the client's configuration calls it; `None` for the agent's own tools.
    pub server: Option<Arc<str>>,
    /// Its name on that server.
    pub name: Arc<str>,
}

impl Tool {
    /// The server of tools that are part of Flowgate; no real server may have this name.
    pub const FLOWGATE_SERVER: &'static str = "flowgate";

    /// Creates a tool without a server.
    pub fn local(name: &str) -> Self {
        Self { server: None, name: name.into() }
    }

    /// Creates a tool of a server.
    pub fn of(server: &str, name: &str) -> Self {
        Self { server: Some(server.into()), name: name.into() }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.server {
            Some(server) => write!(f, "{server}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// An event as a client reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct TraceEntry {
    /// The content of the event.
    pub body: EventBody,
    /// The agent of the event; `None` is the main agent.
    pub agent: Option<String>,
    /// The caller's name for the event, by which other events refer to it as a parent.
    pub name: Option<String>,
    /// Names of further events that this agent has seen before this one, in addition to its own earlier events.
    pub parents: Vec<String>,
    /// Fields that the reader does not know, unchanged.
    pub extra: Map<String, Value>,
    /// Its position in the list of messages that it was read from, if any.
    pub origin: Option<Origin>,
}

impl From<EventBody> for TraceEntry {
    fn from(body: EventBody) -> Self {
        Self { body, agent: None, name: None, parents: Vec::new(), extra: Map::new(), origin: None }
    }
}

/// The content of an event, by kind.
#[derive(Debug, Clone, PartialEq)]
pub enum EventBody {
    /// A message.
    Message(Message),
    /// The model proposed to call a tool.
    Call(Call),
    /// A tool returned an output.
    Output(Output),
    /// The agent received a tool description.
    Tool(ToolDescription),
}

/// A system, user or assistant message, or one with a role that the client defines.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The role of the author.
    pub role: String,
    /// The content: text, or a list of content blocks.
    pub content: Value,
}

/// A call that the model proposes.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The id by which the output refers to the call.
    pub id: String,
    /// The tool to be called.
    pub tool: Tool,
    /// The arguments, or the reason why they are ambiguous.
    pub arguments: Result<Map<String, Value>, ArgumentsError>,
}

/// A tool output.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// The id of the call that it answers.
    pub call_id: String,
    /// The tool, if the client reports it; the call is authoritative.
    pub tool: Option<Tool>,
    /// The content: text, or a list of content blocks.
    pub content: Value,
    /// The same output as a JSON value, if the tool returned both.
    pub structured: Option<Value>,
    /// Whether the tool reports an error instead of a result. `None` if the format of the output cannot express it:
    /// then no condition about it holds, and a rule that reads it fails.
    pub is_error: Option<bool>,
}

/// A server's description of a tool that it offers. It is text like any other, and may be an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDescription {
    /// The tool.
    pub tool: Tool,
    /// The description of what the tool does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub schema: Value,
}

/// The reason why the arguments of a call are not one JSON object that every parser reads alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArgumentsError {
    /// They are not strict JSON.
    Json(json::JsonError),
    /// They are JSON, but not an object.
    NoObject,
}

impl fmt::Display for ArgumentsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(error) => write!(f, "the arguments are not strict JSON: {error}"),
            Self::NoObject => f.write_str("the arguments are not a JSON object"),
        }
    }
}

impl std::error::Error for ArgumentsError {}

impl Call {
    /// Creates a call from arguments in JSON text. Empty text means no arguments.
    pub fn from_json(id: impl Into<String>, tool: Tool, arguments: &str) -> Self {
        let parsed = if arguments.trim().is_empty() {
            Ok(Map::new())
        } else {
            match json::parse(arguments, json::Numbers::Exact) {
                Ok(Value::Object(map)) => Ok(map),
                Ok(_) => Err(ArgumentsError::NoObject),
                Err(error) => Err(ArgumentsError::Json(error)),
            }
        };
        Self { id: id.into(), tool, arguments: parsed }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_two_readers_could_read_differently_are_an_error() {
        let check = |text: &str, expected: &str| {
            let call = Call::from_json("c", Tool::local("send"), text);
            let shown = match call.arguments {
                Ok(map) => Value::Object(map).to_string(),
                Err(error) => error.to_string(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        check("", "{}");
        check(r#"{"to":"bob"}"#, r#"{"to":"bob"}"#);
        check("[1]", "the arguments are not a JSON object");
        check(
            r#"{"to":"bob","to":"mallory"}"#,
            "the arguments are not strict JSON: duplicate key at line 1 column 16",
        );
    }
}
