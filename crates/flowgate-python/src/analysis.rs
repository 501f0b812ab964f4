//! Finds the matches of a policy's rules in recorded runs: the classes `Analysis`, `Violation` (a match of a rule) and
//! `Failure` (a rule that could not be evaluated), and the methods `analyze` and `check_against` of `Policy`.
//!
//! No call is judged, so the requirements of a policy have no effect here. The module `replay` judges recorded calls.

use flowgate::analysis::{self, AnalysisOptions, EvaluationFailure, EvaluationFailureKind, Violation};
use flowgate::occurrence::Occurrences;
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate::trace::TraceEntry;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Map, Value};

use crate::diagnostic::PyDiagnostic;
use crate::policy::PyPolicy;
use crate::reason::action_name;
use crate::trace::{self, PyTrace};
use crate::{errors, predicates, values};

/// What the rules of a policy find in a recorded run.
#[pyclass(frozen, get_all, module = "flowgate", name = "Analysis")]
#[derive(Debug, Clone)]
pub(crate) struct PyAnalysis {
    /// The matches of the rules.
    violations: Vec<PyViolation>,
    /// The rules that could not be evaluated.
    failures: Vec<PyFailure>,
}

#[pymethods]
impl PyAnalysis {
    /// Whether nothing was found, and every rule could be evaluated.
    #[getter]
    fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.failures.is_empty()
    }

    fn __repr__(&self) -> String {
        format!("Analysis({} violations, {} failures)", self.violations.len(), self.failures.len())
    }
}

/// One match of one rule.
#[pyclass(frozen, module = "flowgate", name = "Violation")]
#[derive(Debug, Clone)]
pub(crate) struct PyViolation {
    violation: Violation,
    /// The line of the rule in the policy.
    line: usize,
}

#[pymethods]
impl PyViolation {
    /// The message of the rule, or the positional arguments of its `Violation(...)`; empty if it has none.
    #[getter]
    fn args<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.violation.args.iter().map(|value| values::from_json(py, value)).collect()
    }

    /// The named arguments of the rule's `Violation(...)`; empty if it has none.
    #[getter]
    fn kwargs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::from_object(py, &self.violation.kwargs)
    }

    /// The first item of `args` as text: a string unchanged, any other value as JSON. Empty if the rule has no message.
    #[getter]
    fn message(&self) -> String {
        match self.violation.args.first() {
            Some(Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        }
    }

    /// The locations that the match concerns, as addresses in the list of messages, counted from 0.
    /// `messages.1.content:5-10` names the characters from 5 up to, but not including, 10 of that content.
    #[getter]
    fn ranges(&self) -> Vec<String> {
        self.violation.ranges.clone()
    }

    /// A key that identifies the match, and stays the same in a longer trace.
    #[getter]
    fn key(&self) -> &str {
        &self.violation.key
    }

    /// What the rule demands: `deny`, `ask` or `log`.
    #[getter]
    fn action(&self) -> &'static str {
        action_name(self.violation.action)
    }

    /// The line of the rule in the policy.
    #[getter]
    fn line(&self) -> usize {
        self.line
    }

    /// The index of the rule among the rules of the policy, from 0.
    #[getter]
    fn rule(&self) -> usize {
        self.violation.rule
    }

    fn __repr__(&self) -> String {
        format!("Violation({:?}, line {}, {})", self.message(), self.line, self.violation.ranges.join(", "))
    }
}

/// A rule that could not be evaluated.
#[pyclass(frozen, get_all, module = "flowgate", name = "Failure")]
#[derive(Debug, Clone)]
pub(crate) struct PyFailure {
    /// The class of the failure: `missing-parameter`, `fuel`, `too-many`, `unavailable`, `attribute` or `type`.
    kind: &'static str,
    /// What could not be evaluated, in one sentence.
    message: String,
    /// The line of the rule in the policy.
    line: usize,
    /// The index of the rule among the rules of the policy, from 0.
    rule: usize,
}

#[pymethods]
impl PyFailure {
    fn __repr__(&self) -> String {
        format!("Failure({} at line {}: {})", self.kind, self.line, self.message)
    }
}

impl PyFailure {
    /// Converts the failure of a rule that could not be evaluated. `policy` is needed to find the line of the rule.
    fn of(failure: &EvaluationFailure, policy: &Policy) -> Self {
        let kind = match failure.kind {
            EvaluationFailureKind::MissingParameter => "missing-parameter",
            EvaluationFailureKind::Fuel => "fuel",
            EvaluationFailureKind::TooMany => "too-many",
            EvaluationFailureKind::Unavailable => "unavailable",
            EvaluationFailureKind::Attribute => "attribute",
            EvaluationFailureKind::Type => "type",
        };
        let line = policy.locate(&failure.statement).line;
        Self { kind, message: failure.message.clone(), line, rule: failure.rule }
    }
}

/// The inputs of an analysis in addition to the policy and the trace.
struct AnalysisInputs {
    /// The values of `input.NAME`.
    parameters: Map<String, Value>,
    /// The functions that answer extern predicates.
    predicates: Predicates,
    /// The evaluation steps that the analysis may spend; `None` for the default of the core.
    fuel: Option<u64>,
}

impl AnalysisInputs {
    /// Converts the keyword arguments of `Policy.analyze`.
    fn read(
        parameters: Option<&Bound<'_, PyAny>>,
        predicates: Option<&Bound<'_, PyAny>>,
        fuel: Option<u64>,
    ) -> PyResult<Self> {
        let parameters = values::to_parameters(parameters)?;
        Ok(Self { parameters, predicates: predicates::read(predicates)?, fuel })
    }
}

/// Evaluates the rules of a policy over the events of a run, without the interpreter's lock, and converts the result.
/// Implements `Policy.analyze`. Raises `TraceError` if the events do not form a trace, for example because a parent is
/// unknown.
fn analyze(
    py: Python<'_>,
    policy: &Policy,
    entries: Vec<TraceEntry>,
    inputs: &AnalysisInputs,
) -> PyResult<PyAnalysis> {
    let default = AnalysisOptions::default();
    let options = AnalysisOptions {
        parameters: inputs.parameters.clone(),
        predicates: inputs.predicates.clone(),
        fuel: inputs.fuel.unwrap_or(default.fuel),
        ..default
    };
    let found = py.detach(|| analysis::analyze(policy, entries, &options));
    let found = found.map_err(|error| errors::trace_error(&error))?;
    let violation = |violation: Violation| {
        let line = policy.locate(&violation.statement).line;
        PyViolation { violation, line }
    };
    Ok(PyAnalysis {
        violations: found.violations.into_iter().map(violation).collect(),
        failures: found.failures.iter().map(|failure| PyFailure::of(failure, policy)).collect(),
    })
}

#[pymethods]
impl PyPolicy {
    /// Finds all matches of the rules in a recorded run: a `Trace`, or a list of messages. `parameters` are the values
    /// of `input.NAME`, `predicates` the functions that answer extern predicates, and `fuel` is the number of
    /// evaluation steps that the analysis may spend. A rule that needs more steps is a `Failure` in the result.
    #[pyo3(signature = (trace, *, parameters=None, predicates=None, fuel=None))]
    fn analyze(
        &self,
        py: Python<'_>,
        trace: &Bound<'_, PyAny>,
        parameters: Option<&Bound<'_, PyAny>>,
        predicates: Option<&Bound<'_, PyAny>>,
        fuel: Option<u64>,
    ) -> PyResult<PyAnalysis> {
        let entries = trace::entries_of(trace)?;
        let inputs = AnalysisInputs::read(parameters, predicates, fuel)?;
        analyze(py, &self.inner, entries, &inputs)
    }

    /// Returns a warning for each tool, argument, field or role that the policy names and that occurs in none of these
    /// recorded runs: the name may be misspelt.
    fn check_against(&self, py: Python<'_>, traces: Vec<Py<PyTrace>>) -> PyResult<Vec<PyDiagnostic>> {
        let mut occurrences = Occurrences::new();
        for recorded in &traces {
            // The interpreter's lock is released for each run, so that other threads of Python continue.
            let built = recorded.get().build()?;
            py.detach(|| occurrences.add(&built));
        }
        let found = occurrences.warnings(&self.inner);
        Ok(self.diagnostics(&found))
    }
}
