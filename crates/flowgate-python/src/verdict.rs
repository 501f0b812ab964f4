//! Gives Python the verdicts of the monitor: the classes `Verdict`, `Permit`, `Confirm`, `Deny` and `AuthorizedCall`.
//!
//! `Monitor.judge` returns a verdict. A permit is evidence that the monitor has judged exactly this call, and can be
//! used once. It holds a reference to its session, so that `permit.redeem()` needs no arguments.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use flowgate::monitor::{AuthorizedCall, Denial, Judgement, Outcome, Permit, Question, Verdict};
use flowgate::trace::{Call, Output, TraceEntry};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::entry;
use crate::errors::{self, Denied, UsedError};
use crate::event::PyEvent;
use crate::reason::PyReason;
use crate::session::Session;
use crate::tool::PyTool;
use crate::values;

/// The verdict on a call: a `Permit`, a `Confirm` or a `Deny`. It is true if the call may run.
#[pyclass(frozen, subclass, module = "flowgate", name = "Verdict")]
pub(crate) struct PyVerdict {
    outcome: Outcome,
    session: Arc<Session>,
    judgement: Judgement,
    call: Option<Call>,
}

impl PyVerdict {
    /// Creates the part that all verdicts have in common. `call` is `None` if the monitor has dropped the call already.
    fn new(outcome: Outcome, session: &Arc<Session>, judgement: &Judgement, call: Option<&Call>) -> Self {
        Self { outcome, session: Arc::clone(session), judgement: judgement.clone(), call: call.cloned() }
    }

    /// Returns the label of the call on one line.
    fn label_text(&self) -> String {
        self.judgement.label.join(", ")
    }

    /// Returns the tool of the call and a space, for `repr`; empty if the call is unknown.
    fn call_text(&self) -> String {
        self.call.as_ref().map(|call| format!("{} ", call.tool)).unwrap_or_default()
    }

    /// Returns the messages of all reasons on one line.
    fn why_text(&self) -> String {
        let reasons = self.judgement.reasons.iter().map(|reason| reason.message.as_str());
        reasons.collect::<Vec<_>>().join("; ")
    }
}

#[pymethods]
impl PyVerdict {
    /// `permit`, `confirm` or `deny`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.outcome.name()
    }

    /// The tool of the call; `None` in the verdict of a `Denied` that `redeem` or `approve` raises, which no longer has
    /// the call.
    #[getter]
    fn tool(&self) -> Option<PyTool> {
        self.call.as_ref().map(|call| PyTool(call.tool.clone()))
    }

    /// The id of the call; `None` in the verdict of a `Denied` that `redeem` or `approve` raises, which no longer has
    /// the call.
    #[getter]
    fn id(&self) -> Option<&str> {
        self.call.as_ref().map(|call| call.id.as_str())
    }

    /// The arguments; `None` if they are not one JSON object that every parser reads alike, or where `tool` is `None`.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let arguments = self.call.as_ref().and_then(|call| call.arguments.as_ref().ok());
        arguments.map(|map| values::from_object(py, map)).transpose()
    }

    /// Why the call is not simply permitted; empty if it is.
    #[getter]
    fn reasons(&self) -> Vec<PyReason> {
        let reasons = self.judgement.reasons.iter();
        reasons.map(|reason| PyReason::new(reason.clone(), self.session.policy())).collect()
    }

    /// Matches of rules that only log, and what standing consent covers.
    #[getter]
    fn notes(&self) -> Vec<PyReason> {
        let notes = self.judgement.notes.iter();
        notes.map(|note| PyReason::new(note.clone(), self.session.policy())).collect()
    }

    /// All reasons in one line.
    #[getter]
    fn why(&self) -> String {
        self.why_text()
    }

    /// The label of the call: one text for each dimension, such as `untrusted`.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.judgement.label.clone()
    }

    /// Whether the policy lets everything flow into the tool.
    #[getter]
    fn is_harmless(&self) -> bool {
        self.judgement.is_harmless
    }

    /// The influence method that reported what the call depends on.
    #[getter]
    fn method(&self) -> &'static str {
        self.judgement.method
    }

    /// The number of regions that were hidden from the decision.
    #[getter]
    fn hidden(&self) -> usize {
        self.judgement.hidden
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    // In a condition of Python, a verdict counts as true only if it permits the call: a question to a person does not.
    fn __bool__(&self) -> bool {
        self.outcome == Outcome::Permit
    }

    /// Shows the outcome, the tool, the label and the reasons.
    fn __repr__(&self) -> String {
        let outcome = match self.outcome {
            Outcome::Permit => "Permit",
            Outcome::Confirm => "Confirm",
            Outcome::Deny => "Deny",
        };
        let why = self.why_text();
        let why = if why.is_empty() { why } else { format!(": {why}") };
        format!("{outcome}({}labelled {}{why})", self.call_text(), self.label_text())
    }
}

/// The call may run, once. Use it in a `with` statement, or `redeem()` it.
#[pyclass(frozen, extends = PyVerdict, module = "flowgate", name = "Permit")]
pub(crate) struct PyPermit {
    session: Arc<Session>,
    /// The permit; `None` after it was used or given up.
    permit: Mutex<Option<Permit>>,
    /// The call that a `with` statement runs or has run.
    running: Mutex<Option<Py<PyAuthorizedCall>>>,
}

impl PyPermit {
    /// Takes the permit, so that it cannot be used again. Raises `UsedError` if it was used or given up before.
    fn take(&self) -> PyResult<Permit> {
        let permit = self.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        permit.ok_or_else(|| UsedError::new_err("the permit is used already: judge the call again"))
    }

    /// Returns the call that a `with` statement runs, if there is one.
    fn running(&self, py: Python<'_>) -> Option<Py<PyAuthorizedCall>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running.as_ref().map(|call| call.clone_ref(py))
    }
}

#[pymethods]
impl PyPermit {
    /// Redeems the permit: the call counts as running from now on. It is judged again first if the session has changed
    /// since.
    ///
    /// Raises `Denied` if the call must not run after all, and `UsedError` if the permit is used already.
    fn redeem(&self, py: Python<'_>) -> PyResult<PyAuthorizedCall> {
        let permit = self.take()?;
        let redeemed = self.session.monitor(py, |monitor| monitor.redeem(permit))?;
        let call = redeemed.map_err(|denial| denied(py, &self.session, &denial))?;
        // No output or error of the tool is recorded yet.
        Ok(PyAuthorizedCall { session: Arc::clone(&self.session), call, is_answered: Mutex::new(false) })
    }

    /// Gives the permit up; the call will not run.
    fn drop(&self) {
        drop(self.permit.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    /// Turns the permit into a question to a person, for a program that wants a person to decide although the policy
    /// permits the call. The permit is then used.
    fn require_approval(&self, py: Python<'_>) -> PyResult<Py<PyConfirm>> {
        let permit = self.take()?;
        let question = self.session.monitor(py, |monitor| monitor.require_approval(permit))?;
        confirm(py, &self.session, question)
    }

    /// Whether the permit is used or given up.
    #[getter]
    fn is_used(&self) -> bool {
        self.permit.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Redeems the permit for a `with` statement, whose end records a failure if there is no output by then.
    fn __enter__(&self, py: Python<'_>) -> PyResult<Py<PyAuthorizedCall>> {
        let call = Py::new(py, self.redeem(py)?)?;
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = Some(call.clone_ref(py));
        Ok(call)
    }

    /// Records that the call has failed, unless an output or an error of its tool was recorded, so that every call of a
    /// `with` statement has an outcome. A failed call may have had any effect. `kind` is the type of the exception that
    /// ended the statement; `None` if there is no exception.
    #[pyo3(signature = (kind, error, traceback))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        // An exception continues after the `with` statement, as `False` says. Its text is not recorded, because it may
        // contain what the tool was given.
        let _ = (error, traceback);
        let Some(call) = self.running(py) else { return Ok(false) };
        let text = if kind.is_none() { "the tool gave no output" } else { "the tool raised an exception" };
        call.get().fail(py, text)?;
        Ok(false)
    }
}

/// A person must decide on the call.
#[pyclass(frozen, extends = PyVerdict, module = "flowgate", name = "Confirm")]
pub(crate) struct PyConfirm {
    session: Arc<Session>,
    /// The question; `None` after it was answered.
    question: Mutex<Option<Question>>,
    is_grantable: bool,
    /// What a person is shown; computed when it is first read, since it searches the trace.
    details: OnceLock<QuestionDetails>,
}

/// The texts of a question that a person is shown.
struct QuestionDetails {
    summary: String,
    evidence: Vec<String>,
    changeable: Vec<String>,
}

impl PyConfirm {
    /// Returns what a person is shown; computes it at the first use. Raises `UsedError` if the question was answered
    /// before that.
    fn details(&self, py: Python<'_>) -> PyResult<&QuestionDetails> {
        if let Some(details) = self.details.get() {
            return Ok(details);
        }
        let details = self.session.monitor(py, |monitor| {
            let question = self.question.lock().unwrap_or_else(PoisonError::into_inner);
            question.as_ref().map(|question| QuestionDetails {
                summary: question.summary(monitor.policy()),
                evidence: monitor.question_evidence(question),
                changeable: monitor.changeable_arguments(question),
            })
        })?;
        let details = details.ok_or_else(|| {
            UsedError::new_err("the question is answered already: read its summary, evidence and changeable arguments before you answer it")
        })?;
        Ok(self.details.get_or_init(|| details))
    }
}

#[pymethods]
impl PyConfirm {
    /// In a few sentences, what the call would do, who may have chosen it, and what it would disclose. Quotes
    /// arguments.
    #[getter]
    fn summary(&self, py: Python<'_>) -> PyResult<&str> {
        Ok(&self.details(py)?.summary)
    }

    /// For each value that untrusted text may have chosen, where it was found.
    #[getter]
    fn evidence(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.details(py)?.evidence.clone())
    }

    /// Whether the policy lets a person answer for the rest of the session.
    #[getter]
    fn is_grantable(&self) -> bool {
        self.is_grantable
    }

    /// The arguments whose values may change if a person answers for the rest of the session.
    #[getter]
    fn changeable(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        Ok(self.details(py)?.changeable.clone())
    }

    /// Records that a person has approved exactly this call, for the reasons in `reasons`, and returns the permit. With
    /// `for_session`, equal calls of the session need no further approval. `by` names the people who have approved it,
    /// for a call that several people must approve.
    ///
    /// Raises `Denied` if the call must not run after all, if somebody who must approve it is not named in `by`, or if
    /// `for_session` is given and the question is not grantable; `ValueError` if `for_session` and `by` are both given,
    /// since an approval by named people is for one call; and `UsedError` if the question is answered already.
    #[pyo3(signature = (*, for_session=false, by=None))]
    fn approve(&self, py: Python<'_>, for_session: bool, by: Option<Vec<String>>) -> PyResult<Py<PyPermit>> {
        if for_session && by.is_some() {
            return Err(PyValueError::new_err(
                "`by` approves one call: leave out `for_session`, or leave out `by`",
            ));
        }
        let question = self.question.lock().unwrap_or_else(PoisonError::into_inner).take();
        let question = question
            .ok_or_else(|| UsedError::new_err("the question is answered already: judge the call again"))?;
        let call = question.call().cloned();
        let approved = self.session.monitor(py, |monitor| match by {
            Some(who) => monitor.approve_by(question, &who),
            None if for_session => monitor.approve_for_session(question),
            None => monitor.approve(question),
        })?;
        match approved {
            Ok(granted) => permit(py, &self.session, granted, call.as_ref()),
            Err(denial) => Err(denied(py, &self.session, &denial)),
        }
    }

    /// Records that the call will not run; the question can no longer be approved.
    fn refuse(&self) {
        drop(self.question.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// The call must not run.
#[pyclass(frozen, extends = PyVerdict, module = "flowgate", name = "Deny")]
pub(crate) struct PyDeny;

#[pymethods]
impl PyDeny {
    /// Raises `Denied`.
    fn throw(slf: &Bound<'_, Self>) -> PyResult<()> {
        Err(Denied::new_err((slf.clone().unbind(),)))
    }
}

/// A call that runs. Its `output` or `error` becomes the next event of the session.
#[pyclass(frozen, module = "flowgate", name = "AuthorizedCall")]
pub(crate) struct PyAuthorizedCall {
    session: Arc<Session>,
    call: AuthorizedCall,
    /// Whether an output, an error or a failure was passed to the session.
    is_answered: Mutex<bool>,
}

#[pymethods]
impl PyAuthorizedCall {
    /// The id of the call.
    #[getter]
    fn id(&self) -> &str {
        &self.call.call().id
    }

    /// The tool to run.
    #[getter]
    fn tool(&self) -> PyTool {
        PyTool(self.call.call().tool.clone())
    }

    /// The arguments that were judged.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match &self.call.call().arguments {
            Ok(arguments) => values::from_object(py, arguments),
            // The monitor denies a call with malformed arguments, so this case does not occur.
            Err(_) => Ok(PyDict::new(py)),
        }
    }

    /// The arguments that were judged, as compact JSON.
    #[getter]
    fn arguments_json(&self) -> String {
        self.call.arguments_json()
    }

    /// The index of the call among the events of the session, from 0.
    #[getter]
    fn event(&self) -> usize {
        self.call.event().0
    }

    /// Records the output of the tool: text, or a list of content blocks. `structured` is the same output as a JSON
    /// value, and `label` is a label that the output carries at least. Returns the event of the output.
    #[pyo3(signature = (content, *, structured=None, label=None))]
    fn output(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        structured: Option<&Bound<'_, PyAny>>,
        label: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyEvent> {
        let content = values::to_json(content, "content")?;
        let structured = structured.map(|value| values::to_json(value, "structured")).transpose()?;
        let output = Output { structured, ..Output::result(self.id(), content) };
        self.push(py, TraceEntry::from(output), label)
    }

    /// Records that the tool failed: `content`, its error message, becomes the output of the call. It carries at least
    /// `label`, if that is given. Returns the event of the output.
    #[pyo3(signature = (content, *, label=None))]
    fn error(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        label: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PyEvent> {
        let content = values::to_json(content, "content")?;
        self.push(py, TraceEntry::tool_error(self.id(), content), label)
    }

    /// Shows the tool and the arguments.
    fn __repr__(&self) -> String {
        format!("AuthorizedCall({} {})", self.call.call().tool, self.call.arguments_json())
    }
}

impl PyAuthorizedCall {
    /// Adds the output of the call to the session, and marks the call as answered, so that the end of a `with`
    /// statement does not record a failure. If the output is rejected, for example because of its label, the call is
    /// not answered.
    fn push(&self, py: Python<'_>, entry: TraceEntry, label: Option<&Bound<'_, PyAny>>) -> PyResult<PyEvent> {
        let event = entry::push(py, &self.session, entry, label)?;
        *self.is_answered.lock().unwrap_or_else(PoisonError::into_inner) = true;
        Ok(event)
    }

    /// Records that the call failed with the message `text`, unless its output or error is recorded already.
    /// Only a constant may be recorded, since the text is not labelled by the policy.
    fn fail(&self, py: Python<'_>, text: &'static str) -> PyResult<()> {
        // Marks the call as answered, and finds out whether it was before. Of two threads, only one records a failure.
        let was_answered =
            std::mem::replace(&mut *self.is_answered.lock().unwrap_or_else(PoisonError::into_inner), true);
        if !was_answered {
            let id = self.id().to_owned();
            let pushed = self.session.monitor(py, |monitor| monitor.push_failure(&id, text))?;
            pushed.map_err(|error| errors::session_error(&error))?;
        }
        Ok(())
    }
}

/// Converts a verdict on `call` to the class of its kind: `Permit`, `Confirm` or `Deny`.
pub(crate) fn to_python(
    py: Python<'_>,
    session: &Arc<Session>,
    verdict: Verdict,
    call: &Call,
) -> PyResult<Py<PyAny>> {
    Ok(match verdict {
        Verdict::Permit(given) => permit(py, session, given, Some(call))?.into_any(),
        Verdict::Confirm(question) => confirm(py, session, question)?.into_any(),
        Verdict::Deny(denial) => deny(py, session, denial.judgement(), Some(call))?.into_any(),
    })
}

/// Creates a `Permit`, which can be used once. `call` is the permitted call, whose tool and arguments the `Permit`
/// shows; `None` where the caller no longer has it.
fn permit(
    py: Python<'_>,
    session: &Arc<Session>,
    permit: Permit,
    call: Option<&Call>,
) -> PyResult<Py<PyPermit>> {
    let base = PyVerdict::new(Outcome::Permit, session, permit.judgement(), call);
    let permit = PyPermit {
        session: Arc::clone(session),
        permit: Mutex::new(Some(permit)),
        // The call does not run yet.
        running: Mutex::new(None),
    };
    Py::new(py, PyClassInitializer::from(base).add_subclass(permit))
}

/// Creates a `Confirm` from the monitor's question to a person.
fn confirm(py: Python<'_>, session: &Arc<Session>, question: Question) -> PyResult<Py<PyConfirm>> {
    let base = PyVerdict::new(Outcome::Confirm, session, question.judgement(), question.call());
    let is_grantable = question.is_grantable();
    let confirm = PyConfirm {
        session: Arc::clone(session),
        question: Mutex::new(Some(question)),
        is_grantable,
        details: OnceLock::new(),
    };
    Py::new(py, PyClassInitializer::from(base).add_subclass(confirm))
}

/// Creates a `Deny`, which shows the reasons of the judgement. `call` is `None` where the caller no longer has it.
fn deny(
    py: Python<'_>,
    session: &Arc<Session>,
    judgement: &Judgement,
    call: Option<&Call>,
) -> PyResult<Py<PyDeny>> {
    let base = PyVerdict::new(Outcome::Deny, session, judgement, call);
    Py::new(py, PyClassInitializer::from(base).add_subclass(PyDeny))
}

/// Returns the exception `Denied`, with the verdict, for a call that must not run after all. The verdict shows no call,
/// since a denial no longer has it. If the verdict cannot be created, the exception of that failure is returned
/// instead, so that the caller gets one in any case.
pub(crate) fn denied(py: Python<'_>, session: &Arc<Session>, denial: &Denial) -> PyErr {
    match deny(py, session, denial.judgement(), None) {
        Ok(verdict) => Denied::new_err((verdict,)),
        Err(error) => error,
    }
}
