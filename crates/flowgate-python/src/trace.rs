//! Builds and reads recorded runs, whose events have no labels of a policy yet: the class `Trace`. `Trace.replay`,
//! `Policy.analyze` and `Policy.check_against` evaluate a run under a policy.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use flowgate::analysis;
use flowgate::policy::Policy;
use flowgate::trace::read::{self, RecordedRun};
use flowgate::trace::{EventBody, Trace, TraceEntry};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::entry::{self, AgentPosition};
use crate::tool::{PyTool, ToolArgument};
use crate::{errors, label, values};

/// The tool, the arguments and the id of a call.
type CallParts = (PyTool, Option<Py<PyDict>>, String);

/// A recorded run: events without labels. A program builds it event by event, or reads it from messages.
#[pyclass(frozen, module = "flowgate", name = "Trace")]
#[derive(Default)]
pub(crate) struct PyTrace {
    run: Mutex<LabelledRun>,
}

/// A run, and the labels that a program gave to some of its events: for each, the index of the event and the label.
#[derive(Debug, Clone, Default)]
pub(crate) struct LabelledRun {
    pub(crate) run: RecordedRun,
    pub(crate) labels: Vec<(usize, GivenLabel)>,
}

/// A label that a program gave to an event of a run. It is checked when the run is judged, since a run has no policy
/// before.
#[derive(Debug, Clone)]
pub(crate) struct GivenLabel(Value);

impl GivenLabel {
    /// Converts a label in any of its forms to JSON, from which it can be read again under any policy.
    fn new(given: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(label) = given.cast::<label::PyLabel>() {
            return Ok(Self(label.get().names().clone()));
        }
        Ok(Self(values::to_json(given, "label")?))
    }

    /// Returns the names of the label under a policy. Raises `ValueError` if the label does not fit the policy.
    pub(crate) fn under(&self, py: Python<'_>, policy: &Arc<Policy>) -> PyResult<Value> {
        label::read(policy, &values::from_json(py, &self.0)?)
    }
}

impl PyTrace {
    /// Creates a trace of a run that was read; a program has given its events no labels.
    fn new(run: RecordedRun) -> Self {
        Self { run: Mutex::new(LabelledRun { run, labels: Vec::new() }) }
    }

    /// Returns a copy of the run, since other threads may add events to it.
    pub(crate) fn copy(&self) -> LabelledRun {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Builds a trace of the core from the events, without labels. Raises `TraceError` if they do not form one.
    pub(crate) fn build(&self) -> PyResult<Trace> {
        analysis::build_trace(self.copy().run.entries).map_err(|error| errors::trace_error(&error))
    }

    /// Appends an entry. If the program gave a label, the entry will carry at least that label. The label is stored
    /// next to the entry, because it can be converted only once there is a policy.
    fn add(&self, entry: TraceEntry, label: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let label = label.map(GivenLabel::new).transpose()?;
        let mut run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = label {
            let index = run.run.entries.len();
            run.labels.push((index, label));
        }
        run.run.entries.push(entry);
        Ok(())
    }

    /// Returns an id for a new call, which no call of the trace has: `call_` and a number. The number is the position
    /// of the next event, counted from 1, or a greater one if that id is taken.
    fn unused_call_id(&self) -> String {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let calls = run.run.entries.iter().filter_map(|entry| match &entry.body {
            EventBody::Call(call) => Some(call.id.as_str()),
            _ => None,
        });
        let number = run.run.entries.len() + 1;
        let first = format!("call_{number}");
        if calls.clone().all(|id| id != first) {
            return first;
        }
        let taken: HashSet<&str> = calls.collect();
        // These are `number` ids, and the trace has fewer calls, so one of them is free.
        let mut later = (number + 1..=2 * number).map(|number| format!("call_{number}"));
        later.find(|id| !taken.contains(id.as_str())).unwrap_or(first)
    }

    /// Returns the id of the last call that has no output yet; `None` if all have one.
    fn open_call(&self) -> Option<String> {
        let run = self.run.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = run.run.entries.iter();
        let answered: HashSet<&str> = entries
            .clone()
            .filter_map(|entry| match &entry.body {
                EventBody::Output(output) => Some(output.call_id.as_str()),
                _ => None,
            })
            .collect();
        entries.rev().find_map(|entry| match &entry.body {
            EventBody::Call(call) if !answered.contains(call.id.as_str()) => Some(call.id.clone()),
            _ => None,
        })
    }
}

#[pymethods]
impl PyTrace {
    /// Creates a trace: of messages in the format of OpenAI, Anthropic or MCP, or empty.
    #[new]
    #[pyo3(signature = (messages=None))]
    fn py_new(messages: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(messages) = messages else { return Ok(Self::default()) };
        let messages = values::to_list(messages, "messages")?;
        let entries = read::list(&messages).map_err(|error| errors::read_error(&error))?;
        // `meta` has the fields of a recorded run in addition to its messages; here there are none.
        Ok(Self::new(RecordedRun { meta: Map::new(), entries }))
    }

    /// Reads all runs in a text: one JSON document, or JSON lines of messages or of runs.
    #[staticmethod]
    fn parse(py: Python<'_>, text: &str) -> PyResult<Vec<Self>> {
        let runs = py.detach(|| read::file(text)).map_err(|error| errors::read_error(&error))?;
        Ok(runs.into_iter().map(Self::new).collect())
    }

    /// What the file has in addition to the messages: ids, suite, outcome.
    #[getter]
    fn meta<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::from_object(py, &self.copy().run.meta)
    }

    /// Adds a message of the user, and returns the trace, so that calls can be chained. The label of the message is the
    /// join of `label`, if it is given, and of the label that the policy gives to such a message. The other parameters
    /// are needed only if several agents share the run: `agent` is the agent that receives the message, `name` is a
    /// name for this event, and `parents` are the names of the events that precede it.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn user<'py>(
        slf: Bound<'py, Self>,
        content: &Bound<'py, PyAny>,
        label: Option<&Bound<'py, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::message(slf, "user", content, label, agent, name, parents)
    }

    /// Adds a system message, and returns the trace; the arguments are those of `user`.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn system<'py>(
        slf: Bound<'py, Self>,
        content: &Bound<'py, PyAny>,
        label: Option<&Bound<'py, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::message(slf, "system", content, label, agent, name, parents)
    }

    /// Adds a message of the model, and returns the trace; the arguments are those of `user`.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn assistant<'py>(
        slf: Bound<'py, Self>,
        content: &Bound<'py, PyAny>,
        label: Option<&Bound<'py, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        Self::message(slf, "assistant", content, label, agent, name, parents)
    }

    /// Adds a message of any role, and returns the trace; the other arguments are those of `user`.
    #[pyo3(signature = (role, content, *, label=None, agent=None, name=None, parents=None))]
    fn message<'py>(
        slf: Bound<'py, Self>,
        role: &str,
        content: &Bound<'py, PyAny>,
        label: Option<&Bound<'py, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        let entry = AgentPosition::new(agent, name, parents).entry(entry::message(role, content)?);
        slf.get().add(entry, label)?;
        Ok(slf)
    }

    /// Adds a call, and returns the trace. The arguments are a dict, or the JSON text that a model wrote. Without `id`,
    /// the call gets one that no other call has.
    #[pyo3(signature = (tool, arguments=None, *, id=None, agent=None, name=None, parents=None))]
    fn tool_call<'py>(
        slf: Bound<'py, Self>,
        tool: ToolArgument,
        arguments: Option<&Bound<'py, PyAny>>,
        id: Option<String>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        let id = id.unwrap_or_else(|| slf.get().unused_call_id());
        let entry = AgentPosition::new(agent, name, parents).entry(entry::call(tool.0, arguments, id)?);
        // A program gives labels to messages and outputs, and none to a call.
        slf.get().add(entry, None)?;
        Ok(slf)
    }

    /// Adds the output of the call with `call_id`, or else of the last call without an output, and returns the trace.
    /// Raises `ValueError` if every call has an output. `is_error` is `None` if that is unknown; the other arguments
    /// are those of `user` and `Monitor.tool_output`.
    #[pyo3(signature = (content, *, call_id=None, structured=None, is_error=Some(false), label=None, agent=None, name=None, parents=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn tool_output<'py>(
        slf: Bound<'py, Self>,
        content: &Bound<'py, PyAny>,
        call_id: Option<String>,
        structured: Option<&Bound<'py, PyAny>>,
        is_error: Option<bool>,
        label: Option<&Bound<'py, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Bound<'py, Self>> {
        let call_id = call_id.or_else(|| slf.get().open_call()).ok_or_else(|| {
            PyValueError::new_err(
                "every call has an output already: add a call first, or name one with `call_id`",
            )
        })?;
        let output = entry::output(call_id, content, structured, is_error)?;
        slf.get().add(AgentPosition::new(agent, name, parents).entry(output), label)?;
        Ok(slf)
    }

    /// The calls: the tool, the arguments (`None` if they are ambiguous) and the id of each.
    #[getter]
    fn calls(&self, py: Python<'_>) -> PyResult<Vec<CallParts>> {
        let run = self.copy().run;
        let call = |entry: &TraceEntry| match &entry.body {
            EventBody::Call(call) => Some(call.clone()),
            _ => None,
        };
        let convert = |call: flowgate::trace::Call| {
            let arguments = call.arguments.ok().map(|map| values::from_object(py, &map)).transpose()?;
            Ok((PyTool(call.tool), arguments.map(Bound::unbind), call.id))
        };
        run.entries.iter().filter_map(call).map(convert).collect()
    }

    fn __len__(&self) -> usize {
        self.run.lock().unwrap_or_else(PoisonError::into_inner).run.entries.len()
    }

    fn __repr__(&self) -> String {
        format!("Trace({} events)", self.__len__())
    }
}

/// Returns the events of a `Trace`, or of a list of messages, without the labels that a program gave. Raises
/// `TypeError` for anything else, and `TraceError` if a message cannot be read.
pub(crate) fn entries_of(given: &Bound<'_, PyAny>) -> PyResult<Vec<TraceEntry>> {
    if let Ok(trace) = given.cast::<PyTrace>() {
        return Ok(trace.get().copy().run.entries);
    }
    let messages = values::to_list(given, "trace").map_err(|error| {
        if error.is_instance_of::<PyTypeError>(given.py()) {
            PyTypeError::new_err("a trace must be a `Trace`, or a list of messages")
        } else {
            error
        }
    })?;
    read::list(&messages).map_err(|error| errors::read_error(&error))
}
