//! Gives Python the explanations of verdicts. The classes `Verdict`, `Approve`, `CallVerdict`, `JudgedCall` and `Event`
//! return them:
//!
//! * `Reason` says why a call is not simply permitted, with the statement of the policy and the part of the call.
//! * `Region` is a part of an event from which the call has its label.
//! * `Finding` says what a rule found about an event that can no longer be stopped.

use std::sync::Arc;

use flowgate::monitor::{EventFinding, Reason};
use flowgate::policy::{Action, Policy};
use flowgate::trace::Region;
use pyo3::prelude::*;

/// A part of an event: the index of the event, the path of the part in it, and its bytes if it is a part of a text.
#[pyclass(frozen, get_all, eq, hash, module = "flowgate", name = "Region")]
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct PyRegion {
    event: usize,
    path: String,
    span: Option<(usize, usize)>,
    /// The label of the region: one text, such as `untrusted`, for each dimension that exceeds the requirement.
    label: Vec<String>,
}

impl PyRegion {
    /// Converts a region. `label` has one text for each dimension in which the region's label exceeds the requirement.
    pub(crate) fn of(region: &Region, label: &[String]) -> Self {
        Self {
            event: region.event.0,
            path: region.path.to_string(),
            span: region.span.as_ref().map(|span| (span.start, span.end)),
            label: label.to_vec(),
        }
    }
}

#[pymethods]
impl PyRegion {
    fn __repr__(&self) -> String {
        let label =
            if self.label.is_empty() { String::new() } else { format!(": {}", self.label.join(", ")) };
        format!("Region(event {}, {}{label})", self.event, self.path)
    }
}

/// One reason against a call, or one finding about an event.
#[pyclass(frozen, module = "flowgate", name = "Reason")]
#[derive(Debug, Clone)]
pub(crate) struct PyReason {
    reason: Reason,
    policy: Arc<Policy>,
}

impl PyReason {
    /// Converts a reason. `policy` is needed to find the line and the text of the statement that the reason names.
    pub(crate) fn new(reason: Reason, policy: &Arc<Policy>) -> Self {
        Self { reason, policy: Arc::clone(policy) }
    }
}

/// Returns the name of an action in Python.
pub(crate) fn action_name(action: Action) -> &'static str {
    match action {
        Action::Deny => "deny",
        Action::Ask => "ask",
        Action::Log => "log",
    }
}

#[pymethods]
impl PyReason {
    /// The kind, such as `requirement`, `rule` or `undeclared`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.reason.kind.name()
    }

    /// The consequence for the call: `deny`, `ask` or `log`.
    #[getter]
    fn action(&self) -> &'static str {
        action_name(self.reason.action)
    }

    /// One sentence, without content of the trace.
    #[getter]
    fn message(&self) -> &str {
        &self.reason.message
    }

    /// The line of the statement of the policy in its file, from 1; `None` if the reason does not come from a
    /// statement.
    #[getter]
    fn line(&self) -> Option<usize> {
        self.reason.statement.as_ref().map(|span| self.policy.locate(span).line)
    }

    /// The file of the statement if the policy imports it; `None` if the statement is in the policy's own file, or
    /// there is none.
    #[getter]
    fn file(&self) -> Option<&str> {
        self.reason.statement.as_ref().and_then(|span| self.policy.locate(span).file)
    }

    /// The statement of the policy; `None` if the reason does not come from one, such as that the id of the call is in
    /// use.
    #[getter]
    fn statement(&self) -> Option<&str> {
        self.reason.statement.as_ref().map(|span| self.policy.excerpt(span))
    }

    /// The part of the call that the reason is about: `decision`, or the path of an argument. `None` if it is about no
    /// single part, such as a match of a rule.
    #[getter]
    fn part(&self) -> Option<&str> {
        self.reason.part.as_deref()
    }

    /// The label of the part, in the dimensions that exceed the requirement.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.reason.label.clone()
    }

    /// The greatest label that the part may carry in these dimensions.
    #[getter]
    fn required(&self) -> Vec<String> {
        self.reason.required.clone()
    }

    /// The regions from which the part has its label, nearest first.
    #[getter]
    fn regions(&self) -> Vec<PyRegion> {
        self.reason.regions.iter().map(|(region, label)| PyRegion::of(region, label)).collect()
    }

    /// The kinds of confidential data in the part, in the words of the policy.
    #[getter]
    fn categories(&self) -> Vec<String> {
        self.reason.categories.clone()
    }

    /// The indices of the events that a rule refers to.
    #[getter]
    fn events(&self) -> Vec<usize> {
        self.reason.events.iter().map(|event| event.0).collect()
    }

    /// Whether a person may approve calls with this reason for the rest of the conversation.
    #[getter]
    fn is_grantable(&self) -> bool {
        self.reason.grant_scope >= flowgate::policy::GrantScope::Conversation
    }

    fn __str__(&self) -> String {
        self.reason.message.clone()
    }

    fn __repr__(&self) -> String {
        let line = self.line().map(|line| format!(", line {line}")).unwrap_or_default();
        format!("Reason({}: {:?}{line})", self.kind(), self.reason.message)
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().reason == self.reason)
    }
}

/// A finding about an event that can no longer be stopped.
#[pyclass(frozen, module = "flowgate", name = "Finding")]
#[derive(Debug, Clone)]
pub(crate) struct PyFinding {
    event: usize,
    reason: PyReason,
}

impl PyFinding {
    /// Converts a finding. `policy` is needed to find the line and the text of the statement that its reason names.
    pub(crate) fn of(finding: EventFinding, policy: &Arc<Policy>) -> Self {
        Self { event: finding.event.0, reason: PyReason::new(finding.reason, policy) }
    }
}

#[pymethods]
impl PyFinding {
    /// The index of the event among the events of the session, from 0.
    #[getter]
    fn event(&self) -> usize {
        self.event
    }

    /// The reason for the finding.
    #[getter]
    fn reason(&self) -> PyReason {
        self.reason.clone()
    }

    /// The message of the reason.
    #[getter]
    fn message(&self) -> &str {
        self.reason.message()
    }

    fn __repr__(&self) -> String {
        format!("Finding(event {}: {:?})", self.event, self.reason.message())
    }
}
