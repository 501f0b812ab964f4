//! Defines the events as a client reports them, before they are labelled: messages, calls, outputs and descriptions of
//! tools. A program builds a [`TraceEntry`] for each and passes it to the monitor.

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
    /// Writes `SERVER/NAME`, or the name alone for a tool without a server.
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

/// Entries of the main agent, without a name, parents or further fields. [`with_agent`](Self::with_agent),
/// [`with_name`](Self::with_name) and [`with_parents`](Self::with_parents) set what several agents need.
impl TraceEntry {
    /// Creates a message of the user. `content` is a text, or a JSON list of content blocks.
    pub fn user(content: impl Into<Value>) -> Self {
        Message::new("user", content).into()
    }

    /// Creates a system message.
    pub fn system(content: impl Into<Value>) -> Self {
        Message::new("system", content).into()
    }

    /// Creates a message of the model. Its calls are separate entries: see [`tool_call`](Self::tool_call).
    pub fn assistant(content: impl Into<Value>) -> Self {
        Message::new("assistant", content).into()
    }

    /// Creates a call with arguments in JSON text, as [`Call::from_json`] does.
    pub fn tool_call(id: impl Into<String>, tool: Tool, arguments: &str) -> Self {
        Call::from_json(id, tool, arguments).into()
    }

    /// Creates the output of a call whose tool reports no error.
    pub fn tool_output(call_id: impl Into<String>, content: impl Into<Value>) -> Self {
        Output::result(call_id, content).into()
    }

    /// Creates the output of a call whose tool reports an error.
    pub fn tool_error(call_id: impl Into<String>, content: impl Into<Value>) -> Self {
        Output::error(call_id, content).into()
    }

    /// Sets the agent of the event.
    #[must_use]
    pub fn with_agent(self, agent: impl Into<String>) -> Self {
        Self { agent: Some(agent.into()), ..self }
    }

    /// Sets the name by which other events refer to this one.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Sets the names of the events of other agents that this agent has seen.
    #[must_use]
    pub fn with_parents<S: Into<String>>(self, parents: impl IntoIterator<Item = S>) -> Self {
        Self { parents: parents.into_iter().map(S::into).collect(), ..self }
    }
}

impl<B: Into<EventBody>> From<B> for TraceEntry {
    fn from(body: B) -> Self {
        let body = body.into();
        Self { body, agent: None, name: None, parents: Vec::new(), extra: Map::new(), origin: None }
    }
}

/// The content of an event, by kind.
///
/// The enum is exhaustive on purpose: a body that a program does not handle would have no label.
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

impl From<Message> for EventBody {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

impl From<Call> for EventBody {
    fn from(call: Call) -> Self {
        Self::Call(call)
    }
}

impl From<Output> for EventBody {
    fn from(output: Output) -> Self {
        Self::Output(output)
    }
}

impl From<ToolDescription> for EventBody {
    fn from(description: ToolDescription) -> Self {
        Self::Tool(description)
    }
}

/// A system, user or assistant message, or one with a role that the client defines.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The role of the author.
    pub role: String,
    /// The content: text, or a list of content blocks.
    pub content: Value,
}

impl Message {
    /// Creates a message. `content` is a text, or a JSON list of content blocks.
    pub fn new(role: impl Into<String>, content: impl Into<Value>) -> Self {
        Self { role: role.into(), content: content.into() }
    }
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

impl Output {
    /// Creates an output without a structured form, of a tool that reports no error.
    pub fn result(call_id: impl Into<String>, content: impl Into<Value>) -> Self {
        let is_error = Some(false);
        Self { call_id: call_id.into(), tool: None, content: content.into(), structured: None, is_error }
    }

    /// Creates an output without a structured form, of a tool that reports an error.
    pub fn error(call_id: impl Into<String>, content: impl Into<Value>) -> Self {
        Self { is_error: Some(true), ..Self::result(call_id, content) }
    }
}

/// A server's description of a tool that it offers. It is text like any other, and may be an attack.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDescription {
    /// The tool.
    pub tool: Tool,
    /// The description of what the tool does.
    pub description: String,
    /// The JSON schema of its arguments.
    pub input_schema: Arc<Value>,
    /// The JSON schema of its outputs, if the server declares one.
    pub output_schema: Option<Value>,
    /// The other fields of the description, such as its title.
    pub other: Map<String, Value>,
}

/// The reason why the arguments of a call are not one JSON object that every parser reads alike.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
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
            Self::NoObject => f.write_str("the arguments are not a JSON object; write one, such as `{}`"),
        }
    }
}

impl std::error::Error for ArgumentsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Json(error) => Some(error),
            Self::NoObject => None,
        }
    }
}

impl Call {
    /// Creates a call from arguments in JSON text. Empty text means no arguments. Arguments that are not one JSON
    /// object, or that two parsers could read differently, become the error that the call then carries in their place.
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
    fn constructors_equal_the_entries_of_the_readers() {
        let check = |entry: TraceEntry, json: &str| {
            let mut read = super::super::read::file(json).unwrap().remove(0).entries;
            // Only readers know the position in a list of messages, and keep metadata for rules.
            let read = TraceEntry { origin: None, extra: Map::new(), ..read.pop().unwrap() };
            assert_eq!(entry, read, "{json}");
        };
        check(TraceEntry::user("hi"), r#"{"role": "user", "content": "hi"}"#);
        check(TraceEntry::system("hi"), r#"{"role": "system", "content": "hi"}"#);
        check(TraceEntry::assistant("hi"), r#"{"role": "assistant", "content": "hi"}"#);
        check(
            TraceEntry::tool_call("c1", Tool::local("send"), r#"{"to": "ann"}"#),
            r#"{"id": "c1", "type": "function", "function": {"name": "send", "arguments": "{\"to\": \"ann\"}"}}"#,
        );
        let blocks =
            r#"[{"type": "tool_result", "tool_use_id": "c1", "content": "hi", "is_error": IS_ERROR}]"#;
        let answer =
            |is_error| format!(r#"{{"role": "user", "content": {}}}"#, blocks.replace("IS_ERROR", is_error));
        check(TraceEntry::tool_output("c1", "hi"), &answer("false"));
        check(TraceEntry::tool_error("c1", "hi"), &answer("true"));
        check(
            TraceEntry::user("hi").with_agent("helper").with_name("e2").with_parents(["e1"]),
            r#"{"role": "user", "content": "hi",
                "metadata": {"agent": "helper", "id": "e2", "parents": ["e1"]}}"#,
        );
    }

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
        check("[1]", "the arguments are not a JSON object; write one, such as `{}`");
        check(
            r#"{"to":"bob","to":"mallory"}"#,
            "the arguments are not strict JSON: duplicate key at line 1 column 16",
        );
    }
}
