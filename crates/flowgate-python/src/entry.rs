//! Creates events from the arguments of Python methods, and adds events to a session. `Monitor` and `Trace` create
//! their events with the same functions, so that both accept the same arguments. `Monitor` and `AuthorizedCall` add
//! events to their session with [`push`].

use std::sync::Arc;

use flowgate::monitor::Floors;
use flowgate::trace::{Call, EventBody, Message, Output, Tool, ToolDescription, TraceEntry};
use pyo3::prelude::*;
use serde_json::{Map, Value};

use crate::errors;
use crate::event::PyEvent;
use crate::label;
use crate::reason::PyFinding;
use crate::session::Session;
use crate::values;

/// Where an event is, if several agents share a session: the agent to which it belongs, the name of the event, and the
/// events that precede it.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentPosition {
    /// The name of the agent; `None` for the main one.
    pub(crate) agent: Option<String>,
    /// The name by which other events refer to this one as a parent.
    pub(crate) name: Option<String>,
    /// The names of further events that the agent has seen, in addition to its own earlier ones.
    pub(crate) parents: Vec<String>,
}

impl AgentPosition {
    /// Creates a position from the arguments of a Python method. Without `agent`, the event belongs to the main agent;
    /// without `parents`, the agent has seen only its own earlier events.
    pub(crate) fn new(agent: Option<String>, name: Option<String>, parents: Option<Vec<String>>) -> Self {
        Self { agent, name, parents: parents.unwrap_or_default() }
    }

    /// Creates an entry of a trace: the event `body` at this position.
    pub(crate) fn entry(self, body: impl Into<EventBody>) -> TraceEntry {
        TraceEntry {
            agent: self.agent,
            name: self.name,
            parents: self.parents,
            ..TraceEntry::from(body.into())
        }
    }
}

/// Creates a message of a role. `content` is a text or any other JSON value.
pub(crate) fn message(role: &str, content: &Bound<'_, PyAny>) -> PyResult<Message> {
    Ok(Message::new(role, values::to_json(content, "content")?))
}

/// Creates a call. The arguments are a dict, or the JSON text that a model wrote. Arguments that two parsers of JSON
/// could read differently, because of a duplicate key or a large number, make the call malformed, and the monitor
/// denies it. Without arguments, the call has an empty object.
pub(crate) fn call(tool: Tool, arguments: Option<&Bound<'_, PyAny>>, id: String) -> PyResult<Call> {
    let Some(arguments) = arguments else { return Ok(Call { id, tool, arguments: Ok(Map::new()) }) };
    if let Ok(text) = arguments.extract::<&str>() {
        return Ok(Call::from_json(id, tool, text));
    }
    let arguments = values::to_object(arguments, "arguments")?;
    if arguments.values().all(values::is_exact) {
        return Ok(Call { id, tool, arguments: Ok(arguments) });
    }
    // A number is too large to be exact. `from_json` makes the call malformed, with an error about the number.
    Ok(Call::from_json(id, tool, &Value::Object(arguments).to_string()))
}

/// Creates the output of the call with the id `call_id`. `structured` is the same output as a JSON value, which some
/// tools return in addition to the text; `is_error` is `None` if that is unknown.
pub(crate) fn output(
    call_id: String,
    content: &Bound<'_, PyAny>,
    structured: Option<&Bound<'_, PyAny>>,
    is_error: Option<bool>,
) -> PyResult<Output> {
    let content = values::to_json(content, "content")?;
    let structured = structured.map(|value| values::to_json(value, "structured")).transpose()?;
    // The tool is that of the call.
    Ok(Output { call_id, tool: None, content, structured, is_error })
}

/// Creates the description of a tool, with the JSON schemas of its arguments (`parameters`) and its output, if given.
/// Without `parameters`, the schema of the arguments is null.
pub(crate) fn description(
    tool: Tool,
    description: String,
    parameters: Option<&Bound<'_, PyAny>>,
    output: Option<&Bound<'_, PyAny>>,
) -> PyResult<ToolDescription> {
    let input_schema = parameters.map(|schema| values::to_json(schema, "parameters")).transpose()?;
    let output_schema = output.map(|schema| values::to_json(schema, "output")).transpose()?;
    let input_schema = Arc::new(input_schema.unwrap_or(Value::Null));
    // `other` has further fields of a description, such as a title, which these arguments do not include.
    Ok(ToolDescription { tool, description, input_schema, output_schema, other: Map::new() })
}

/// Adds an event to a session like [`push_entry`], with a label in one of the forms that [`label::read`] accepts.
pub(crate) fn push(
    py: Python<'_>,
    session: &Arc<Session>,
    entry: TraceEntry,
    label: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyEvent> {
    let names = label.map(|label| label::read(session.policy(), label)).transpose()?;
    push_entry(py, session, entry, names.as_ref())
}

/// Adds an event to a session, and returns it with what rules found about it. The event carries at least the label
/// `names`, in addition to the label that the policy gives it. Raises `SessionError` if the event does not fit into the
/// session.
pub(crate) fn push_entry(
    py: Python<'_>,
    session: &Arc<Session>,
    entry: TraceEntry,
    names: Option<&Value>,
) -> PyResult<PyEvent> {
    let pushed = session.monitor(py, |monitor| {
        let floors = names.map(|names| Floors::from(monitor.from_names(names))).unwrap_or_default();
        monitor.push_with_floors(entry, &floors)
    })?;
    let (id, findings) = pushed.map_err(|error| errors::session_error(&error))?;
    let findings = findings.into_iter().map(|finding| PyFinding::of(finding, session.policy())).collect();
    Ok(PyEvent::new(session, id, findings))
}
