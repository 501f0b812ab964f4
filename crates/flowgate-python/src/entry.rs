//! Events as a program in Python gives them.

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

/// The position of an event, if several agents share a session: the agent, the name of the event, and what the agent has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentPosition {
    pub(crate) agent: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) parents: Vec<String>,
}

impl AgentPosition {
    pub(crate) fn new(agent: Option<String>, name: Option<String>, parents: Option<Vec<String>>) -> Self {
        Self { agent, name, parents: parents.unwrap_or_default() }
    }

    pub(crate) fn entry(self, body: impl Into<EventBody>) -> TraceEntry {
        TraceEntry {
            agent: self.agent,
            name: self.name,
            parents: self.parents,
            ..TraceEntry::from(body.into())
        }
    }
}

pub(crate) fn message(role: &str, content: &Bound<'_, PyAny>) -> PyResult<Message> {
    Ok(Message::new(role, values::to_json(content, "content")?))
}

/// Creates a call. The arguments are a dict, or the JSON text that a model wrote; an ambiguous text makes the call malformed, which
/// denies.
pub(crate) fn call(tool: Tool, arguments: Option<&Bound<'_, PyAny>>, id: String) -> PyResult<Call> {
    let Some(arguments) = arguments else { return Ok(Call { id, tool, arguments: Ok(Map::new()) }) };
    if let Ok(text) = arguments.extract::<&str>() {
        return Ok(Call::from_json(id, tool, text));
    }
    let arguments = values::to_object(arguments, "arguments")?;
    if arguments.values().all(values::is_exact) {
        return Ok(Call { id, tool, arguments: Ok(arguments) });
    }
    // The reader of JSON explains which numbers are not exact.
    Ok(Call::from_json(id, tool, &Value::Object(arguments).to_string()))
}

pub(crate) fn output(
    call_id: String,
    content: &Bound<'_, PyAny>,
    structured: Option<&Bound<'_, PyAny>>,
    is_error: Option<bool>,
) -> PyResult<Output> {
    let content = values::to_json(content, "content")?;
    let structured = structured.map(|value| values::to_json(value, "structured")).transpose()?;
    Ok(Output { call_id, tool: None, content, structured, is_error })
}

pub(crate) fn description(
    tool: Tool,
    description: String,
    parameters: Option<&Bound<'_, PyAny>>,
    output: Option<&Bound<'_, PyAny>>,
) -> PyResult<ToolDescription> {
    let input_schema = parameters.map(|schema| values::to_json(schema, "parameters")).transpose()?;
    let output_schema = output.map(|schema| values::to_json(schema, "output")).transpose()?;
    let input_schema = Arc::new(input_schema.unwrap_or(Value::Null));
    Ok(ToolDescription { tool, description, input_schema, output_schema, other: Map::new() })
}

/// Adds an event to a session. It carries at least `label`, in addition to the label that the policy gives it.
pub(crate) fn push(
    py: Python<'_>,
    session: &Arc<Session>,
    entry: TraceEntry,
    label: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyEvent> {
    let names = label.map(|label| label::read(session.policy(), label)).transpose()?;
    push_entry(py, session, entry, names.as_ref())
}

/// Appends an event to the trace of a session, and returns it with the findings of the policy. `names` describes a label, by the
/// elements of each dimension, that the event carries at least.
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
