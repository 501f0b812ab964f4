//! Creates the exceptions of the package from errors of the crate `flowgate`. The other modules call this one where
//! such an error reaches Python. The classes of the exceptions are in `python/flowgate/errors.py`.

use flowgate::analysis::TraceError;
use flowgate::monitor::PushError;
use flowgate::policy::InvalidPolicy;
use flowgate::trace::read::ReadError;
use pyo3::prelude::*;

use crate::diagnostic::PyDiagnostic;

mod classes {
    pyo3::import_exception!(flowgate.errors, Denied);
    pyo3::import_exception!(flowgate.errors, FlowgateError);
    pyo3::import_exception!(flowgate.errors, InUseError);
    pyo3::import_exception!(flowgate.errors, PolicyError);
    pyo3::import_exception!(flowgate.errors, SessionError);
    pyo3::import_exception!(flowgate.errors, TraceError);
    pyo3::import_exception!(flowgate.errors, UsedError);
}

pub(crate) use classes::{Denied, FlowgateError, InUseError, UsedError};

/// Returns the exception for a policy that cannot be used, with its diagnostics. `path` is the policy's own file.
pub(crate) fn policy_error(invalid: &InvalidPolicy, path: Option<&str>) -> PyErr {
    let diagnostics: Vec<PyDiagnostic> =
        invalid.diagnostics.iter().map(|found| PyDiagnostic::of(found, &invalid.source, path)).collect();
    classes::PolicyError::new_err((diagnostics,))
}

/// Returns the exception for an event that does not fit into the session.
pub(crate) fn session_error(error: &PushError) -> PyErr {
    classes::SessionError::new_err(error.to_string())
}

/// Returns the exception for a recorded run that cannot be read, with the line and the message at fault.
pub(crate) fn read_error(error: &ReadError) -> PyErr {
    classes::TraceError::new_err((error.problem.clone(), error.line, error.message))
}

/// Returns the exception for a recorded run whose events do not form a trace, with the event at fault.
pub(crate) fn trace_error(error: &TraceError) -> PyErr {
    let no_line: Option<usize> = None;
    classes::TraceError::new_err((error.problem.to_string(), no_line, error.event))
}
