//! Lets Python functions answer the extern predicates of policies, for `Monitor`, `Conversation`, `Policy.analyze` and
//! `Trace.replay`.
//!
//! A function that raises an exception gives no answer. A rule that needs the answer then fails, which denies the call.
//! A statement that would grant something if the predicate held grants nothing. The reason in the verdict names the
//! type of the exception and not its text, which may contain what the function was given; the logger
//! `flowgate.predicates` has the traceback at the level DEBUG.

use std::sync::Arc;

use flowgate::predicates::Predicates;
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use serde_json::Value;

use crate::{session, values};

/// Reads a dict from names of predicates to the functions that answer them. Without a dict, there are no functions.
/// Raises `TypeError` if a value is not callable. Whether the policy declares the predicates is not checked here.
pub(crate) fn read(given: Option<&Bound<'_, PyAny>>) -> PyResult<Predicates> {
    let mut predicates = Predicates::new();
    let Some(given) = given else { return Ok(predicates) };
    let functions = given.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err("`predicates` must be a dict from names of predicates to functions")
    })?;
    for (name, function) in functions {
        let name: String = name.extract()?;
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "the predicate `{}` is not callable: pass a function",
                name.escape_debug()
            )));
        }
        let function = Arc::new(function.unbind());
        predicates.define(name, move |arguments| answer(&function, arguments));
    }
    Ok(predicates)
}

/// Calls a function in Python with the arguments of a predicate, and returns its answer as JSON. If the function raises
/// an exception, the error message names its type and, for an error of the function (an `Exception`), the logger that has
/// the traceback. An exception such as `KeyboardInterrupt` is not logged, but must reach the program:
/// [`session::interrupt`] stores it, and it is raised when the use of the session ends.
fn answer(function: &Py<PyAny>, arguments: &[Value]) -> Result<Value, String> {
    Python::attach(|py| {
        let call = || -> PyResult<Value> {
            let arguments: Vec<_> =
                arguments.iter().map(|value| values::from_json(py, value)).collect::<PyResult<_>>()?;
            let answer = function.bind(py).call1(PyTuple::new(py, arguments)?)?;
            values::to_json(&answer, "the answer of the predicate")
        };
        call().map_err(|error| {
            let kind =
                error.get_type(py).name().map_or_else(|_| "an exception".to_owned(), |name| name.to_string());
            if error.is_instance_of::<PyException>(py) {
                log_exception(py, &error);
                format!(
                    "the predicate raised {kind}; the logger `flowgate.predicates` has the traceback at the level DEBUG"
                )
            } else {
                session::interrupt(error);
                format!("the predicate raised {kind}")
            }
        })
    })
}

/// Writes the traceback of an exception to the logger `flowgate.predicates` at the level DEBUG.
fn log_exception(py: Python<'_>, error: &PyErr) {
    let write = || -> PyResult<()> {
        let logger = py.import("logging")?.call_method1("getLogger", ("flowgate.predicates",))?;
        let options = PyDict::new(py);
        options.set_item("exc_info", error.value(py))?;
        logger.call_method("debug", ("a predicate raised an exception",), Some(&options))?;
        Ok(())
    };
    // A logger that fails must not change the answer, and so the verdict.
    if let Err(error) = write() {
        error.write_unraisable(py, None);
    }
}
