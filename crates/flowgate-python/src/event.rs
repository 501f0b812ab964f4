//! Gives Python the labelled events of a session: the classes `Event` and `Part`. An `Event` is only an index and a
//! reference to its session, so it always shows the current status and labels.

use std::sync::Arc;

use flowgate::monitor::Monitor;
use flowgate::trace::{Document, Event, EventBody, EventId, NodeContent, NodeId, Status};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use serde_json::Value;

use crate::label::PyLabel;
use crate::reason::PyFinding;
use crate::session::Session;
use crate::tool::PyTool;
use crate::values;

/// An event of a session: a message, a call, an output, or a tool description. Its fields are read from the session.
#[pyclass(frozen, module = "flowgate", name = "Event")]
pub(crate) struct PyEvent {
    session: Arc<Session>,
    id: EventId,
    findings: Vec<PyFinding>,
}

impl PyEvent {
    /// Refers to the event `id` of a session. `findings` are what rules found when it was added; an event that is read
    /// later has none.
    pub(crate) fn new(session: &Arc<Session>, id: EventId, findings: Vec<PyFinding>) -> Self {
        Self { session: Arc::clone(session), id, findings }
    }

    /// Calls `read` with the event and the monitor of its session, and returns the result. Events are never removed, so
    /// the default value for a missing event is not used in practice.
    fn read<R: Send + Default>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&Event, &Monitor) -> R + Send,
    ) -> PyResult<R> {
        let id = self.id;
        self.session.monitor(py, |monitor| {
            monitor.trace().event(id).map(|event| read(event, monitor)).unwrap_or_default()
        })
    }
}

#[pymethods]
impl PyEvent {
    /// The index among the events of the session, from 0.
    #[getter]
    fn index(&self) -> usize {
        self.id.0
    }

    /// `message`, `call`, `output` or `tool`.
    #[getter]
    fn kind(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.read(py, |event, _| match &event.body {
            EventBody::Message(_) => "message",
            EventBody::Call(_) => "call",
            EventBody::Output(_) => "output",
            EventBody::Tool(_) => "tool",
        })
    }

    /// The role of a message; `None` for another event.
    #[getter]
    fn role(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.read(py, |event, _| match &event.body {
            EventBody::Message(message) => Some(message.role.clone()),
            _ => None,
        })
    }

    /// The tool of a call, an output or a tool description; `None` for a message.
    #[getter]
    fn tool(&self, py: Python<'_>) -> PyResult<Option<PyTool>> {
        self.read(py, |event, monitor| {
            // An output need not name its tool. Its tool is then that of the call that it answers.
            let of_call = event.call.and_then(|call| monitor.trace().event(call)).and_then(Event::tool);
            let tool = match &event.body {
                EventBody::Tool(described) => Some(&described.tool),
                _ => event.tool().or(of_call),
            };
            tool.cloned().map(PyTool)
        })
    }

    /// The id of a call, or of the call that an output answers; `None` for another event.
    #[getter]
    fn call_id(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.read(py, |event, _| match &event.body {
            EventBody::Call(call) => Some(call.id.clone()),
            EventBody::Output(output) => Some(output.call_id.clone()),
            EventBody::Message(_) | EventBody::Tool(_) => None,
        })
    }

    /// The content of a message or an output, the arguments of a call (`None` if they are ambiguous), or the
    /// description of a tool.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let content = self.read(py, |event, _| match &event.body {
            EventBody::Message(message) => message.content.clone(),
            EventBody::Output(output) => output.content.clone(),
            EventBody::Call(call) => call.arguments.clone().map_or(Value::Null, Value::Object),
            EventBody::Tool(described) => Value::from(described.description.as_str()),
        })?;
        values::from_json(py, &content)
    }

    /// Whether an output is an error; `None` if that is unknown, and for another event.
    #[getter]
    fn is_error(&self, py: Python<'_>) -> PyResult<Option<bool>> {
        self.read(py, |event, _| match &event.body {
            EventBody::Output(output) => output.is_error,
            _ => None,
        })
    }

    /// The name of the agent; empty for the main agent.
    #[getter]
    fn agent(&self, py: Python<'_>) -> PyResult<String> {
        self.read(py, |event, monitor| monitor.trace().agent_name(event.agent).to_owned())
    }

    /// `done`; `pending` if a call is permitted and has not run; or `withdrawn` if a permitted call was given up before
    /// it ran.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<&'static str> {
        self.read(py, |event, _| match event.status {
            Status::Done => "done",
            Status::Pending => "pending",
            Status::Withdrawn => "withdrawn",
        })
    }

    /// The join of the labels of all parts.
    #[getter]
    fn label(&self, py: Python<'_>) -> PyResult<PyLabel> {
        let names = self.read(py, |event, monitor| monitor.to_names(&event.label))?;
        Ok(PyLabel::new(Arc::clone(self.session.policy()), &names))
    }

    /// Returns the label of a part, such as `content[0].recipient`. The label of a list or a map is that of its
    /// structure: which parts there are, and not what they contain. Raises `KeyError` if there is no such part.
    fn label_of(&self, py: Python<'_>, path: &str) -> PyResult<PyLabel> {
        let found = self.read(py, |event, monitor| {
            let node = find_node(&event.document, path)?;
            Some(monitor.to_names(&event.document.node(node)?.label))
        })?;
        let names = found.ok_or_else(|| {
            PyKeyError::new_err(format!(
                "event {} has no part `{}`; use one that `parts` of the event lists",
                self.id.0,
                path.escape_debug()
            ))
        })?;
        Ok(PyLabel::new(Arc::clone(self.session.policy()), &names))
    }

    /// The labelled parts, which together cover the event: each value, list and map in its JSON, with its path. Only a
    /// part without parts of its own has a value.
    #[getter]
    fn parts(&self, py: Python<'_>) -> PyResult<Vec<PyPart>> {
        self.read(py, |event, monitor| {
            let nodes = event.document.nodes().iter().enumerate();
            let part = |(id, node): (NodeId, &flowgate::trace::DocumentNode)| PyPart {
                path: event.document.path(id).to_string(),
                span: node.span.as_ref().map(|span| (span.start, span.end)),
                label: monitor.describe(&node.label),
                value: match &node.content {
                    NodeContent::Scalar(value) => Some(value.clone()),
                    NodeContent::List | NodeContent::Map => None,
                },
                text: node.text.as_deref().map(str::to_owned),
            };
            nodes.map(part).collect()
        })
    }

    /// What rules found about the event when it was added; empty for an event that is read later, such as from
    /// `Monitor.events`.
    #[getter]
    fn findings(&self) -> Vec<PyFinding> {
        self.findings.clone()
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    /// Shows the index, the kind, the role or tool, and the label, but not the content.
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        // A message shows its role, any other event its tool.
        let kind = self.kind(py)?;
        let what = match (self.role(py)?, self.tool(py)?) {
            (Some(role), _) => format!(" of the role {role}"),
            (None, Some(tool)) => format!(" {}", tool.0),
            (None, None) => String::new(),
        };
        let label = self.read(py, |event, monitor| monitor.describe(&event.label).join(", "))?;
        Ok(format!("Event({}: {kind}{what}, labelled {label})", self.id.0))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let other = other.cast::<Self>();
        other.is_ok_and(|other| other.get().id == self.id && Arc::ptr_eq(&other.get().session, &self.session))
    }

    fn __hash__(&self) -> usize {
        self.id.0
    }
}

/// A labelled part of an event.
#[pyclass(frozen, module = "flowgate", name = "Part")]
#[derive(Debug, Clone)]
pub(crate) struct PyPart {
    path: String,
    span: Option<(usize, usize)>,
    label: Vec<String>,
    value: Option<Value>,
    text: Option<String>,
}

#[pymethods]
impl PyPart {
    /// The path of the part; empty for the event itself.
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// The first byte, and the one after the last, that spell the part in the nearest enclosing text; `None` if the
    /// part is not in a text.
    #[getter]
    fn span(&self) -> Option<(usize, usize)> {
        self.span
    }

    /// The label: one text for each dimension, such as `untrusted` or `readers(ann)`.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.label.clone()
    }

    /// The value; `None` for a list or a map, which has parts of its own.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.value.as_ref().map(|value| values::from_json(py, value)).transpose()
    }

    /// The text that encodes the part, if it is a list or a map in a text; otherwise `None`.
    #[getter]
    fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Shows the path and the label, but not the value.
    fn __repr__(&self) -> String {
        format!("Part({}: {})", self.path, self.label.join(", "))
    }
}

/// Returns the node of an event's document that has this path; `None` if the event has no such part. `path` must be
/// spelled as verdicts and `Part.path` print it.
pub(crate) fn find_node(document: &Document, path: &str) -> Option<NodeId> {
    (0..document.nodes().len()).find(|node| document.path(*node).to_string() == path)
}
