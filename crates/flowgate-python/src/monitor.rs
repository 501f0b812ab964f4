//! Gives Python one session under a policy, which labels events and judges calls: the class `Monitor`. A program that
//! drives its model itself uses only a `Monitor`; the session of a `Conversation` is accessible as a `Monitor` too.
//!
//! The methods convert arguments and results, and run on the shared state in `session`. The verdicts are created in
//! `verdict`.

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, Limits, Monitor};
use flowgate::trace::{EventBody, EventId, TraceEntry, read};
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::attribution::PyAttribution;
use crate::entry::{self, AgentPosition};
use crate::errors;
use crate::event::PyEvent;
use crate::label::{self, PyLabel};
use crate::policy::PyPolicy;
use crate::reason::PyReason;
use crate::session::{Session, State};
use crate::tool::{PyTool, ToolArgument};
use crate::verdict;
use crate::{predicates, values};

/// The tool, the arguments and the reasons of a grant.
type GrantParts = (PyTool, Py<PyAny>, Vec<PyReason>);

/// One session under a policy: labels events, and judges calls before they run. Threads may share it: one at a time
/// uses it.
#[pyclass(frozen, subclass, module = "flowgate", name = "Monitor")]
pub(crate) struct PyMonitor {
    pub(crate) session: Arc<Session>,
}

/// Creates the monitor of a session from the arguments that `Monitor` and `Conversation` have in common; the
/// constructor of `Monitor` documents them. A limit that is not given is the default of the core.
pub(crate) fn new_monitor(
    policy: &PyPolicy,
    parameters: Option<&Bound<'_, PyAny>>,
    predicates: Option<&Bound<'_, PyAny>>,
    fuel: Option<u64>,
    events: Option<usize>,
) -> PyResult<Monitor> {
    let default = Limits::default();
    let limits = Limits { fuel: fuel.unwrap_or(default.fuel), events: events.unwrap_or(default.events) };
    let mut monitor = Monitor::with_limits(Arc::clone(&policy.inner), limits);
    if let Some(parameters) = parameters {
        monitor.set_parameters(&values::to_object(parameters, "parameters")?);
    }
    // A new session has no recorded answers.
    monitor.set_predicates(predicates::read(predicates)?, Vec::new());
    Ok(monitor)
}

#[pymethods]
impl PyMonitor {
    /// Creates a monitor. `parameters` are the values of `input.NAME`, `predicates` the functions that answer extern
    /// predicates; `fuel` is the maximum number of evaluation steps for one event, and `events` the maximum number of
    /// events. Each of the two has a default.
    #[new]
    #[pyo3(signature = (policy, *, parameters=None, predicates=None, fuel=None, events=None))]
    fn new(
        policy: &PyPolicy,
        parameters: Option<&Bound<'_, PyAny>>,
        predicates: Option<&Bound<'_, PyAny>>,
        fuel: Option<u64>,
        events: Option<usize>,
    ) -> PyResult<Self> {
        let monitor = new_monitor(policy, parameters, predicates, fuel, events)?;
        Ok(Self { session: Session::new(State::Monitor(Box::new(monitor)), policy.path.clone()) })
    }

    /// The policy.
    #[getter]
    fn policy(&self) -> PyPolicy {
        PyPolicy { inner: Arc::clone(self.session.policy()), path: self.session.path().map(str::to_owned) }
    }

    /// Adds a message of the user. The label of the message is the join of `label`, if it is given, and of the label
    /// that the policy gives to such a message. The other parameters are needed only if several agents share the
    /// session: `agent` is the agent that receives the message, `name` is a name for this event, and `parents` are the
    /// names of the events that precede it.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn user(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        label: Option<&Bound<'_, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<PyEvent> {
        self.message(py, "user", content, label, agent, name, parents)
    }

    /// Adds a system message; the arguments are those of `user`.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn system(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        label: Option<&Bound<'_, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<PyEvent> {
        self.message(py, "system", content, label, agent, name, parents)
    }

    /// Adds a message of the model; the arguments are those of `user`.
    #[pyo3(signature = (content, *, label=None, agent=None, name=None, parents=None))]
    fn assistant(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        label: Option<&Bound<'_, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<PyEvent> {
        self.message(py, "assistant", content, label, agent, name, parents)
    }

    /// Adds a message of any role; the other arguments are those of `user`.
    #[pyo3(signature = (role, content, *, label=None, agent=None, name=None, parents=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn message(
        &self,
        py: Python<'_>,
        role: &str,
        content: &Bound<'_, PyAny>,
        label: Option<&Bound<'_, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<PyEvent> {
        let entry = AgentPosition::new(agent, name, parents).entry(entry::message(role, content)?);
        entry::push(py, &self.session, entry, label)
    }

    /// Adds the output of a call: text, or a list of content blocks. `structured` is the same output as a JSON value.
    /// `is_error` says whether the tool failed: `False` by default, and `None` if it is unknown. The other arguments
    /// are those of `user`.
    #[pyo3(signature = (call_id, content, *, structured=None, is_error=Some(false), label=None, agent=None, name=None, parents=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn tool_output(
        &self,
        py: Python<'_>,
        call_id: String,
        content: &Bound<'_, PyAny>,
        structured: Option<&Bound<'_, PyAny>>,
        is_error: Option<bool>,
        label: Option<&Bound<'_, PyAny>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<PyEvent> {
        let output = entry::output(call_id, content, structured, is_error)?;
        entry::push(py, &self.session, AgentPosition::new(agent, name, parents).entry(output), label)
    }

    /// Adds the description of a tool as its server wrote it: text like any other, which the policy labels.
    /// `parameters` and `output` are the JSON schemas of its arguments and its output.
    #[pyo3(signature = (tool, description, *, parameters=None, output=None, label=None))]
    fn tool_description(
        &self,
        py: Python<'_>,
        tool: ToolArgument,
        description: String,
        parameters: Option<&Bound<'_, PyAny>>,
        output: Option<&Bound<'_, PyAny>>,
        label: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyEvent> {
        let described = entry::description(tool.0, description, parameters, output)?;
        entry::push(py, &self.session, TraceEntry::from(described), label)
    }

    /// Adds one message or a list of messages in the format of OpenAI, Anthropic or MCP, and returns the events.
    /// Messages with calls are an error, since calls are judged before they are added. If a message does not fit into
    /// the session, this is an error too, and the messages before it stay added.
    fn push(&self, py: Python<'_>, message: &Bound<'_, PyAny>) -> PyResult<Vec<PyEvent>> {
        let message = values::to_json(message, "message")?;
        let messages = if let Value::Array(list) = message { list } else { vec![message] };
        let entries = read::list(&messages).map_err(|error| errors::read_error(&error))?;
        if entries.iter().any(|entry| matches!(entry.body, EventBody::Call(_))) {
            return Err(PyValueError::new_err(
                "the message contains calls: pass each to `judge`, or use `record` if they have run already",
            ));
        }
        // No label is given, so each message carries the label that the policy gives it.
        entries.into_iter().map(|entry| entry::push_entry(py, &self.session, entry, None)).collect()
    }

    /// Judges a call before it runs, and returns a `Permit`, a `Confirm` or a `Deny`. The arguments are a dict, or the
    /// JSON text that a model wrote. Without `attribution`, the call counts as influenced by everything that the agent
    /// has seen. Without `id`, it gets one that no other call has. Raises `IndexError` if the attribution names a
    /// region that does not exist.
    #[pyo3(signature = (tool, arguments=None, *, id=None, attribution=None, agent=None, name=None, parents=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn judge(
        &self,
        py: Python<'_>,
        tool: ToolArgument,
        arguments: Option<&Bound<'_, PyAny>>,
        id: Option<String>,
        attribution: Option<&Bound<'_, PyAttribution>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<Py<PyAny>> {
        let id = self.call_id(py, id)?;
        let call = entry::call(tool.0, arguments, id)?;
        let entry = AgentPosition::new(agent, name, parents).entry(call.clone());
        let attribution = attribution.map(|given| given.get().clone());
        let judged = self.session.monitor(py, |monitor| {
            let attribution = resolve(attribution.as_ref(), monitor)?;
            Ok(monitor.judge_entry(entry, attribution))
        })?;
        let verdict = judged.map_err(|problem: String| PyIndexError::new_err(problem))?;
        verdict::to_python(py, &self.session, verdict, &call)
    }

    /// Judges a call that has run already, and records it whatever the verdict is. Returns the outcome (`permit`,
    /// `confirm` or `deny`), the reasons, and the index of the event, or `None` if the session could not add it. The
    /// arguments are those of `judge`.
    #[pyo3(signature = (tool, arguments=None, *, id=None, attribution=None, agent=None, name=None, parents=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn record(
        &self,
        py: Python<'_>,
        tool: ToolArgument,
        arguments: Option<&Bound<'_, PyAny>>,
        id: Option<String>,
        attribution: Option<&Bound<'_, PyAttribution>>,
        agent: Option<String>,
        name: Option<String>,
        parents: Option<Vec<String>>,
    ) -> PyResult<(&'static str, Vec<PyReason>, Option<usize>)> {
        let id = self.call_id(py, id)?;
        let entry = AgentPosition::new(agent, name, parents).entry(entry::call(tool.0, arguments, id)?);
        let attribution = attribution.map(|given| given.get().clone());
        let recorded = self.session.monitor(py, |monitor| {
            let attribution = resolve(attribution.as_ref(), monitor)?;
            Ok(monitor.record(entry, &attribution))
        })?;
        let recorded = recorded.map_err(|problem: String| PyIndexError::new_err(problem))?;
        let reasons = recorded.judgement.reasons.into_iter();
        let reasons = reasons.map(|reason| PyReason::new(reason, self.session.policy())).collect();
        Ok((recorded.outcome.name(), reasons, recorded.event.map(|event| event.0)))
    }

    /// The events so far.
    #[getter]
    fn events(&self, py: Python<'_>) -> PyResult<Vec<PyEvent>> {
        events(py, &self.session)
    }

    /// Returns the label that names represent: an element, a list of elements, a dict of dimensions, or a `Label`. What
    /// is not named is bottom.
    fn label(&self, label: &Bound<'_, PyAny>) -> PyResult<PyLabel> {
        let names = label::read(self.session.policy(), label)?;
        Ok(PyLabel::new(Arc::clone(self.session.policy()), &names))
    }

    /// Declares tools that exist. If two servers offer tools of the same name, the name alone is then ambiguous from
    /// the start, and not only after both tools have occurred.
    fn declare_tools(&self, py: Python<'_>, tools: Vec<ToolArgument>) -> PyResult<()> {
        self.session.monitor(py, |monitor| monitor.declare_tools(tools.iter().map(|tool| &tool.0)))
    }

    /// Sets the values of `input.NAME`.
    fn set_parameters(&self, py: Python<'_>, parameters: &Bound<'_, PyAny>) -> PyResult<()> {
        let parameters = values::to_object(parameters, "parameters")?;
        self.session.monitor(py, |monitor| monitor.set_parameters(&parameters))
    }

    /// The answers of predicates so far: dicts with `name`, `arguments`, and `answer` or `error`.
    #[getter]
    fn predicate_answers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let answers = self.session.monitor(py, |monitor| monitor.predicate_answers())?;
        let list: Vec<Value> = answers
            .into_iter()
            .map(|asked| match asked.answer {
                Ok(answer) => json!({"name": asked.name, "arguments": asked.arguments, "answer": answer}),
                Err(error) => json!({"name": asked.name, "arguments": asked.arguments, "error": error}),
            })
            .collect();
        values::from_json(py, &Value::Array(list))
    }

    /// Returns, as a dict, the arguments of a tool for which the policy makes an exception. `payload` lists the
    /// arguments that may be filled with hidden text, and `consent` those with a standing consent. `endorsed` has the
    /// arguments whose values the policy endorses if they have some form, each with an upper bound, in bits, on what
    /// the author of the value can choose.
    fn argument_rights<'py>(&self, py: Python<'py>, tool: ToolArgument) -> PyResult<Bound<'py, PyDict>> {
        let rights = self.session.monitor(py, |monitor| {
            json!({
                "payload": monitor.payload_arguments(&tool.0),
                "consent": monitor.consent_arguments(&tool.0),
                "endorsed": monitor.endorsed_arguments(&tool.0),
            })
        })?;
        match rights {
            Value::Object(map) => values::from_object(py, &map),
            // The value is always an object, so this case does not occur.
            _ => Ok(PyDict::new(py)),
        }
    }

    /// Whether a statement of the policy bounds what may flow into the tool.
    fn has_requirement(&self, py: Python<'_>, tool: ToolArgument) -> PyResult<bool> {
        self.session.monitor(py, |monitor| monitor.has_requirement(&tool.0))
    }

    /// Whether a call of the tool with this label can be permitted without a question. If not, every such call is
    /// denied or needs a question.
    fn may_permit(&self, py: Python<'_>, tool: ToolArgument, label: &Bound<'_, PyAny>) -> PyResult<bool> {
        let names = label::read(self.session.policy(), label)?;
        self.session.monitor(py, |monitor| {
            let label = monitor.from_names(&names);
            monitor.may_permit(&tool.0, &label)
        })
    }

    /// Returns the least label that every output of the tool carries. It can be above bottom, because rules can stop an
    /// output, and whether they do reveals something about what they have read.
    fn output_floor(&self, py: Python<'_>, tool: ToolArgument) -> PyResult<PyLabel> {
        // The closure always returns a label, so the default does not occur; null is read as the top.
        self.to_python_label(py, |monitor| Some(monitor.output_floor(&tool.0))).map(|label| {
            label.unwrap_or_else(|| PyLabel::new(Arc::clone(self.session.policy()), &Value::Null))
        })
    }

    /// Returns the greatest label that an endpoint that reads prompts, such as `model`, may be shown; `None` if no
    /// statement of the policy names it.
    fn clearance(&self, py: Python<'_>, endpoint: &str) -> PyResult<Option<PyLabel>> {
        self.to_python_label(py, |monitor| monitor.clearance(endpoint))
    }

    /// Withdraws the standing consents on these lines of the policy, and restores all others. Returns whether the set
    /// of withdrawn ones changed.
    fn withdraw_consents(&self, py: Python<'_>, lines: Vec<usize>) -> PyResult<bool> {
        let lines = lines.into_iter().collect();
        self.session.monitor(py, |monitor| monitor.withdraw_consents(&lines))
    }

    /// Withdraws the approvals that people have given for the rest of the session. Returns whether there were any.
    fn withdraw_grants(&self, py: Python<'_>) -> PyResult<bool> {
        self.session.monitor(py, |monitor| monitor.withdraw_grants())
    }

    /// The calls that people have approved for the rest of the session: the tool, the arguments and the reasons of
    /// each.
    #[getter]
    fn grants(&self, py: Python<'_>) -> PyResult<Vec<GrantParts>> {
        let grants = self.session.monitor(py, |monitor| monitor.session_grants().to_vec())?;
        let convert = |grant: flowgate::monitor::Grant| {
            let arguments = values::from_object(py, &grant.arguments)?.into_any().unbind();
            let reasons = grant.reasons.into_iter();
            let reasons = reasons.map(|reason| PyReason::new(reason, self.session.policy())).collect();
            Ok((PyTool(grant.tool), arguments, reasons))
        };
        grants.into_iter().map(convert).collect()
    }

    /// Returns the labels of the stores that the session has written to, for other sessions of the same account.
    fn external_state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let record = self.session.monitor(py, |monitor| monitor.external_state_record())?;
        values::from_json(py, &record)
    }

    /// Joins the labels of stores from `external_state` of another session into those of this one, which may read what
    /// the other one has written. Raises `ValueError` if the record is malformed.
    fn join_external_state(&self, py: Python<'_>, record: &Bound<'_, PyAny>) -> PyResult<()> {
        let record = values::to_json(record, "record")?;
        let joined = self.session.monitor(py, |monitor| monitor.join_external_state(&record))?;
        joined.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.session.monitor(py, |monitor| monitor.trace().len())
    }

    /// Returns the event at an index; a negative index counts from the end, as in a list. Raises `IndexError` if there
    /// is none.
    fn __getitem__(&self, py: Python<'_>, index: isize) -> PyResult<PyEvent> {
        let length = self.__len__(py)?;
        let at = if index < 0 { length.checked_add_signed(index) } else { usize::try_from(index).ok() };
        match at.filter(|at| *at < length) {
            // The findings of rules are known only where an event is added, so the list of them is empty.
            Some(at) => Ok(PyEvent::new(&self.session, EventId(at), Vec::new())),
            None => Err(PyIndexError::new_err(format!(
                "the session has no event {index}: it has {length} in total, counted from 0; use an index in this range"
            ))),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!("Monitor({} events)", self.__len__(py)?))
    }
}

impl PyMonitor {
    /// Returns the id of a new call: the given one, or else `call_` and a number, an id that no call of the session
    /// has. The search begins at the number of events, so that it rarely meets a used id.
    fn call_id(&self, py: Python<'_>, given: Option<String>) -> PyResult<String> {
        match given {
            Some(id) => Ok(id),
            None => self.session.monitor(py, |monitor| {
                let trace = monitor.trace();
                let mut number = trace.len() + 1;
                while trace.calls_with_id(&format!("call_{number}")).next().is_some() {
                    number += 1;
                }
                format!("call_{number}")
            }),
        }
    }

    /// Calls `compute`, which returns a label of the core, and converts this label to one of Python; `None` stays `None`.
    /// The label is converted by its names, since the bits of a label have a meaning only in the name table of this
    /// session.
    fn to_python_label(
        &self,
        py: Python<'_>,
        compute: impl FnOnce(&mut Monitor) -> Option<Label> + Send,
    ) -> PyResult<Option<PyLabel>> {
        let names = self.session.monitor(py, |monitor| {
            let label = compute(monitor)?;
            Some(monitor.to_names(&label))
        })?;
        Ok(names.map(|names| PyLabel::new(Arc::clone(self.session.policy()), &names)))
    }
}

/// Converts an attribution that a program gave to one for the session of `monitor`. Without an attribution, the call
/// counts as depending on everything that its agent has seen, which is the cautious assumption. If the attribution
/// names a region that does not exist, the error message names the region.
fn resolve(given: Option<&PyAttribution>, monitor: &mut Monitor) -> Result<Attribution, String> {
    given.map_or_else(|| Ok(Attribution::everything()), |given| given.resolve(monitor))
}

/// Returns all events of a session, in order. Their `findings` are empty, since only the event that is returned when it
/// is added has them.
pub(crate) fn events(py: Python<'_>, session: &Arc<Session>) -> PyResult<Vec<PyEvent>> {
    let length = session.monitor(py, |monitor| monitor.trace().len())?;
    Ok((0..length).map(|index| PyEvent::new(session, EventId(index), Vec::new())).collect())
}
