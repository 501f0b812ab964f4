//! Judges recorded runs call by call, as if they had happened under a policy: the classes `Replay` and `JudgedCall`,
//! and the method `replay` of `Trace`.

use std::sync::Arc;

use flowgate::monitor::{Attribution, Floors};
use flowgate::trace::{EventBody, EventId, Tool};
use flowgate_guard::influence::AttributionSession;
use flowgate_guard::method::MethodRegistry;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::attribution::PyAttribution;
use crate::monitor::{self, PyMonitor};
use crate::policy::PyPolicy;
use crate::reason::{PyFinding, PyReason};
use crate::session::{Session, State};
use crate::tool::PyTool;
use crate::trace::{LabelledRun, PyTrace};
use crate::values;

/// A judged run.
#[pyclass(frozen, module = "flowgate", name = "Replay")]
pub(crate) struct PyReplay {
    calls: Vec<PyJudgedCall>,
    findings: Vec<PyFinding>,
    refused: Vec<(usize, String)>,
    monitor: Py<PyMonitor>,
}

#[pymethods]
impl PyReplay {
    /// All calls, in order, with the verdicts that they would have received.
    #[getter]
    fn calls(&self) -> Vec<PyJudgedCall> {
        self.calls.clone()
    }

    /// What rules found about the events that are not calls.
    #[getter]
    fn findings(&self) -> Vec<PyFinding> {
        self.findings.clone()
    }

    /// The events that the session rejected: the index in the run, and why.
    #[getter]
    fn refused(&self) -> Vec<(usize, String)> {
        self.refused.clone()
    }

    /// The session at its end, with all labels.
    #[getter]
    fn monitor(&self, py: Python<'_>) -> Py<PyMonitor> {
        self.monitor.clone_ref(py)
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    /// Counts the calls by outcome.
    fn __repr__(&self) -> String {
        let count = |outcome: &str| self.calls.iter().filter(|call| call.outcome == outcome).count();
        format!(
            "Replay({} calls: {} permit, {} confirm, {} deny)",
            self.calls.len(),
            count("permit"),
            count("confirm"),
            count("deny")
        )
    }
}

/// A call of a run, with its verdict.
#[pyclass(frozen, module = "flowgate", name = "JudgedCall")]
#[derive(Debug, Clone)]
pub(crate) struct PyJudgedCall {
    entry: usize,
    event: Option<EventId>,
    id: String,
    tool: Tool,
    arguments: Option<Map<String, Value>>,
    origin: Option<String>,
    outcome: &'static str,
    reasons: Vec<PyReason>,
    label: Vec<String>,
}

#[pymethods]
impl PyJudgedCall {
    /// The index of the call among the events of the run.
    #[getter]
    fn entry(&self) -> usize {
        self.entry
    }

    /// The index of the call among the events of `Replay.monitor`; `None` if the session rejected it.
    #[getter]
    fn event(&self) -> Option<usize> {
        self.event.map(|event| event.0)
    }

    /// The id of the call.
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// The tool of the call.
    #[getter]
    fn tool(&self) -> PyTool {
        PyTool(self.tool.clone())
    }

    /// The arguments; `None` if they are ambiguous.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        self.arguments.as_ref().map(|map| values::from_object(py, map)).transpose()
    }

    /// The origin of the call, if the log contains it: `user` or `injection`.
    #[getter]
    fn origin(&self) -> Option<&str> {
        self.origin.as_deref()
    }

    /// `permit`, `confirm` or `deny`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.outcome
    }

    /// Why the call is not simply permitted.
    #[getter]
    fn reasons(&self) -> Vec<PyReason> {
        self.reasons.clone()
    }

    /// The label of the call: one text for each dimension, such as `untrusted`.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.label.clone()
    }

    /// Shows the tool, the outcome and the label.
    fn __repr__(&self) -> String {
        format!("JudgedCall({}: {}, labelled {})", self.tool, self.outcome, self.label.join(", "))
    }
}

/// The influence method that reports what the calls of a run depend on: a built-in one, or an object in Python with a
/// method `attribute`. Exactly one of the two fields is set.
struct Influence<'py> {
    builtin: Option<Box<dyn AttributionSession>>,
    python: Option<Bound<'py, PyAny>>,
}

impl<'py> Influence<'py> {
    /// Reads the argument `method` of `Trace.replay`: the name of a built-in method, by default `everything`, or an
    /// object with `attribute`. Raises `ValueError` for an unknown name, and `TypeError` for anything else.
    fn read(given: Option<&Bound<'py, PyAny>>) -> PyResult<Self> {
        let registry = MethodRegistry::builtin();
        let name = match given {
            None => "everything".to_owned(),
            Some(given) => match given.extract::<String>() {
                Ok(name) => name,
                Err(_) if given.hasattr("attribute")? => {
                    return Ok(Self { builtin: None, python: Some(given.clone()) });
                }
                Err(_) => {
                    return Err(PyTypeError::new_err(
                        "`method` must be the name of an influence method, or an object with \
                        `attribute(monitor, tool, arguments)`",
                    ));
                }
            },
        };
        let known: Vec<&str> = registry.influence_methods().iter().map(|method| method.name()).collect();
        let method = registry.find_influence(&name).ok_or_else(|| {
            PyValueError::new_err(format!(
                "there is no influence method `{}`; use one of {}",
                name.escape_debug(),
                known.join(", ")
            ))
        })?;
        Ok(Self { builtin: Some(method.start()), python: None })
    }
}

/// Judges the calls of a run in a new session. Every call is recorded as one that ran, whatever its verdict, because in
/// the recorded run it did. Other events get the labels of the policy and, in addition, those that the program gave. An
/// event that the session rejects is listed in the result, and the replay continues.
///
/// Raises an exception if a label does not fit the policy, or the influence method in Python fails or names an unknown
/// region.
fn replay(
    py: Python<'_>,
    policy: &PyPolicy,
    recorded: &LabelledRun,
    method: Option<&Bound<'_, PyAny>>,
    parameters: Option<&Bound<'_, PyAny>>,
    predicates: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyReplay> {
    let Influence { mut builtin, python } = Influence::read(method)?;
    let mut monitor = monitor::new_monitor(policy, parameters, predicates, None, None)?;
    if let Some(recorded) = recorded.run.parameters() {
        monitor.add_parameters(recorded);
    }
    let session = Session::new(State::Monitor(Box::new(monitor)), policy.path.clone());
    let monitor = Py::new(py, PyMonitor { session: Arc::clone(&session) })?;
    // `refused` has the rejected events: the position of each, and why it was rejected.
    let (mut calls, mut findings, mut refused) = (Vec::new(), Vec::new(), Vec::new());
    for (index, entry) in recorded.run.entries.iter().enumerate() {
        // An event that is no call: it is pushed with its labels.
        let EventBody::Call(call) = &entry.body else {
            let label = recorded.labels.iter().find(|(labelled, _)| *labelled == index);
            // The labels that the program gave can be read only now, since they refer to a policy.
            let names = label.map(|(_, label)| label.under(py, &policy.inner)).transpose()?;
            let pushed = session.monitor(py, |monitor| {
                let floors = names.map(|names| Floors::from(monitor.from_names(&names)));
                let pushed = monitor.push_with_floors(entry.clone(), &floors.unwrap_or_default());
                if let (Some(method), Ok((event, _))) = (&mut builtin, &pushed) {
                    method.observe(monitor.trace(), *event);
                }
                pushed
            });
            match pushed? {
                Ok((_, found)) => {
                    findings
                        .extend(found.into_iter().map(|finding| PyFinding::of(finding, session.policy())));
                }
                Err(error) => refused.push((index, error.to_string())),
            }
            continue;
        };
        // A call: its influence is found, then it is judged and recorded. Malformed arguments are `None`.
        let arguments = call.arguments.as_ref().ok().cloned();
        // The method in Python is called outside the session, so that it can read the monitor that it receives.
        let given = match &python {
            None => None,
            Some(method) => {
                let (monitor, tool) = (monitor.clone_ref(py), call.tool.clone());
                Some(attribution_from_python(py, method, monitor, tool, arguments.as_ref())?)
            }
        };
        let judged = session.monitor(py, |monitor| {
            let attribution = match (&mut builtin, given) {
                (_, Some(given)) => given.resolve(monitor)?,
                (Some(method), None) => method.attribute(monitor.trace(), entry),
                // `Influence::read` sets one of the two, so this case does not occur.
                (None, None) => Attribution::everything(),
            };
            let judged = monitor.record(entry.clone(), &attribution);
            if let (Some(method), Some(event)) = (&mut builtin, judged.event) {
                method.observe(monitor.trace(), event);
            }
            Ok(judged)
        })?;
        let judged = judged.map_err(|problem: String| PyValueError::new_err(problem))?;
        let reasons = judged.judgement.reasons.into_iter();
        calls.push(PyJudgedCall {
            entry: index,
            event: judged.event,
            id: call.id.clone(),
            tool: call.tool.clone(),
            arguments,
            origin: entry.extra.get("origin").and_then(Value::as_str).map(str::to_owned),
            outcome: judged.outcome.name(),
            reasons: reasons.map(|reason| PyReason::new(reason, session.policy())).collect(),
            label: judged.judgement.label,
        });
    }
    Ok(PyReplay { calls, findings, refused, monitor })
}

/// Asks an influence method in Python what a call of `tool` depends on. `arguments` are those of the call; `None` if
/// they are malformed.
fn attribution_from_python(
    py: Python<'_>,
    method: &Bound<'_, PyAny>,
    monitor: Py<PyMonitor>,
    tool: Tool,
    arguments: Option<&Map<String, Value>>,
) -> PyResult<PyAttribution> {
    let arguments = arguments.map(|map| values::from_object(py, map)).transpose()?;
    let given = method.call_method1("attribute", (monitor, PyTool(tool), arguments))?;
    let given = given.cast::<PyAttribution>().map_err(|_| {
        PyTypeError::new_err(
            "`attribute` of the influence method returns no `Attribution`: return one for each call",
        )
    })?;
    Ok(given.get().clone())
}

#[pymethods]
impl PyTrace {
    /// Judges the run call by call, as if it happened under this policy. `method` says what each call depends on: the
    /// name of a method (`everything`, `provenance`, `nothing`), or an object with `name` and
    /// `attribute(monitor, tool, arguments)`. `parameters` and `predicates` are as for `Monitor`; parameters of the run
    /// itself (`policy_parameters`) count where `parameters` has none.
    #[pyo3(signature = (policy, *, method=None, parameters=None, predicates=None))]
    fn replay(
        &self,
        py: Python<'_>,
        policy: &PyPolicy,
        method: Option<&Bound<'_, PyAny>>,
        parameters: Option<&Bound<'_, PyAny>>,
        predicates: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyReplay> {
        replay(py, policy, &self.copy(), method, parameters, predicates)
    }
}
