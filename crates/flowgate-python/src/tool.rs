//! Gives Python the class `Tool`: the name of a tool and of the server that offers it. Also reads the tools that other
//! classes accept as arguments ([`ToolArgument`]).

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use flowgate::trace::Tool;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;

/// A tool: its name, and the server that offers it, if there is one.
#[pyclass(frozen, eq, module = "flowgate", name = "Tool")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PyTool(pub(crate) Tool);

#[pymethods]
impl PyTool {
    /// Creates a tool. Without `server`, it is one of the agent's own.
    #[new]
    #[pyo3(signature = (name, server=None))]
    fn new(name: &str, server: Option<&str>) -> Self {
        Self(server.map_or_else(|| Tool::local(name), |server| Tool::of(server, name)))
    }

    /// Returns the tool of a text such as `bank/send_money`.
    #[staticmethod]
    fn parse(text: &str) -> Self {
        Self(parse_tool(text))
    }

    /// The name of the tool, without that of its server.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The server that offers the tool; `None` for one of the agent's own.
    #[getter]
    fn server(&self) -> Option<&str> {
        self.0.server.as_deref()
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        match &self.0.server {
            Some(server) => format!("Tool({:?}, server={server:?})", self.0.name),
            None => format!("Tool({:?})", self.0.name),
        }
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// A tool as an argument: a `Tool`, or a text such as `send_money` or `bank/send_money`.
pub(crate) struct ToolArgument(pub(crate) Tool);

impl<'py> FromPyObject<'_, 'py> for ToolArgument {
    type Error = PyErr;

    /// Converts an argument of a Python function. Raises `TypeError` for anything but a `Tool` or a text.
    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(tool) = object.cast::<PyTool>() {
            return Ok(Self(tool.get().0.clone()));
        }
        let text: String = object
            .extract()
            .map_err(|_| PyTypeError::new_err("a tool must be a `Tool`, or a string such as `bank/pay`"))?;
        Ok(Self(parse_tool(&text)))
    }
}

/// Reads `SERVER/NAME`, or the name of one of the agent's own tools. A text that begins with `/` names no server, so
/// all of it is the name.
fn parse_tool(text: &str) -> Tool {
    match text.split_once('/') {
        Some((server, name)) if !server.is_empty() => Tool::of(server, name),
        _ => Tool::local(text),
    }
}
