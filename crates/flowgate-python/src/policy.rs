//! Gives Python compiled policies and what they declare: the class `Policy`. Its methods `analyze` and `check_against`,
//! which concern recorded runs, are in `analysis`.

use std::sync::Arc;

use flowgate::policy::{ArgumentRole, Dialect, Policy};
use flowgate::tool_schemas::ToolSchemas;
use flowgate_audit::policy_digest;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::{Value, json};

use crate::diagnostic::PyDiagnostic;
use crate::errors;
use crate::label::{self, PyLabel};
use crate::tool::{PyTool, ToolArgument};
use crate::values;

/// A compiled policy. It is immutable; monitors and threads share it.
#[pyclass(frozen, subclass, module = "flowgate", name = "Policy")]
pub(crate) struct PyPolicy {
    pub(crate) inner: Arc<Policy>,
    /// The file of the policy, if it has one, for messages.
    pub(crate) path: Option<String>,
}

/// Reads the name of a dialect: `flowgate`, or `invariant` for the policies of the analyzer invariant-ai.
fn dialect(name: &str) -> PyResult<Dialect> {
    match name {
        "flowgate" => Ok(Dialect::Flowgate),
        "invariant" => Ok(Dialect::Compat),
        _ => Err(PyValueError::new_err("`dialect` must be \"flowgate\" or \"invariant\"")),
    }
}

/// Returns the text of the file `name`, which a policy imports: the result of the program's function `read`. The error
/// is a message that says why there is no text: the program has passed no function, or the function raised an exception,
/// whose text becomes the message.
fn read_import(read: Option<&Py<PyAny>>, name: &str) -> Result<String, String> {
    let Some(read) = read else {
        return Err(
            "`Policy` was created without a function `read`; pass one, or use `load_policy`".to_owned()
        );
    };
    Python::attach(|py| {
        let text = read.call1(py, (name,)).and_then(|text| text.extract::<String>(py));
        text.map_err(|error| error.value(py).to_string())
    })
}

#[pymethods]
impl PyPolicy {
    /// Compiles a policy. `path` names its file in messages; `read` returns the text of a file that it imports. With
    /// `dialect="invariant"`, constructs mean what Invariant's analyzer makes of them.
    #[new]
    #[pyo3(signature = (source, *, path=None, dialect="flowgate", read=None))]
    fn new(
        py: Python<'_>,
        source: &str,
        path: Option<String>,
        dialect: &str,
        read: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let dialect = self::dialect(dialect)?;
        let load = |name: &str| read_import(read.as_ref(), name);
        let parsed = py.detach(|| Policy::load(source, dialect, load));
        let policy = parsed.map_err(|invalid| errors::policy_error(&invalid, path.as_deref()))?;
        Ok(Self { inner: Arc::new(policy), path })
    }

    /// Returns a new policy with further statements after those of this one, which stays unchanged.
    fn with_statements(&self, statements: &str) -> PyResult<Self> {
        let policy = self.inner.with_statements(statements);
        let policy = policy.map_err(|invalid| errors::policy_error(&invalid, self.path.as_deref()))?;
        Ok(Self { inner: Arc::new(policy), path: self.path.clone() })
    }

    /// The text of the policy.
    #[getter]
    fn source(&self) -> &str {
        self.inner.source()
    }

    /// The digest of the texts of all files. Policies with the same digest have the same texts. A gateway reports the
    /// digest of its policy, so that the two can be compared.
    #[getter]
    fn digest(&self) -> String {
        policy_digest(&self.inner)
    }

    /// The file of the policy, if it has one.
    #[getter]
    fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// The warnings of the compiler: parts of the policy that may not mean what their author intends.
    #[getter]
    fn warnings(&self) -> Vec<PyDiagnostic> {
        let warnings = self.inner.warnings().iter();
        warnings.map(|found| PyDiagnostic::of(found, self.inner.files(), self.path.as_deref())).collect()
    }

    /// Whether the policy declares no lattice, so that labels stop nothing and only its rules do.
    #[getter]
    fn is_rules_only(&self) -> bool {
        self.inner.is_rules_only()
    }

    /// The names of the predicates that the policy declares `extern`.
    #[getter]
    fn externs(&self) -> Vec<String> {
        self.inner.externs().map(str::to_owned).collect()
    }

    /// The names of the dimensions of labels.
    #[getter]
    fn dimensions(&self) -> Vec<String> {
        self.inner.space().dimensions().iter().map(|dimension| dimension.name.clone()).collect()
    }

    /// The tools that the policy names.
    #[getter]
    fn tools(&self) -> Vec<PyTool> {
        self.inner.named_tools().into_iter().map(PyTool).collect()
    }

    /// The standing consents: the line and the text of each.
    #[getter]
    fn consents(&self) -> Vec<(usize, String)> {
        self.inner.consents().map(|(line, text)| (line, text.to_owned())).collect()
    }

    /// The greatest label.
    #[getter]
    fn top(&self) -> PyLabel {
        PyLabel::new(Arc::clone(&self.inner), &label::top(&self.inner))
    }

    /// The least label: trusted and public in every dimension.
    #[getter]
    fn bottom(&self) -> PyLabel {
        PyLabel::new(Arc::clone(&self.inner), &label::bottom(&self.inner))
    }

    /// Returns a label: of an element such as `"trusted"`, a list of elements, or a dict of dimensions. What is not
    /// named is bottom.
    fn label(&self, label: &Bound<'_, PyAny>) -> PyResult<PyLabel> {
        Ok(PyLabel::new(Arc::clone(&self.inner), &label::read(&self.inner, label)?))
    }

    /// Returns the label that these names represent, such as `Label.names` of a label in another session of the policy.
    /// A dimension that is missing or malformed becomes top, so that damaged names never give a lower label.
    fn label_from_names(&self, names: &Bound<'_, PyDict>) -> PyResult<PyLabel> {
        let names = Value::Object(values::to_object(names, "names")?);
        Ok(PyLabel::new(Arc::clone(&self.inner), &names))
    }

    /// Returns what the value of an argument is for, such as `"recipient"`, as the policy declares it or as the name of
    /// the argument suggests; `None` if it is unknown.
    fn argument_role(&self, tool: ToolArgument, argument: &str) -> Option<&'static str> {
        self.inner.argument_role(&tool.0, argument).map(ArgumentRole::name)
    }

    /// Returns a diagnostic for each tool and argument that the policy names and that these descriptions of tools do
    /// not have: the name may be misspelt. The descriptions are dicts with `name`, `description` and `inputSchema`, or
    /// as OpenAI's and Anthropic's clients send them. `server` is the server of the tools; without it, they are the
    /// agent's own.
    #[pyo3(signature = (tools, *, server=None))]
    fn check_tools(&self, tools: &Bound<'_, PyAny>, server: Option<&str>) -> PyResult<Vec<PyDiagnostic>> {
        // The form of an MCP server's list of tools, which the reader of descriptions accepts as text.
        let list = json!({"tools": values::to_list(tools, "tools")?});
        let mut schemas = ToolSchemas::new();
        schemas
            .add_list(server, &list.to_string())
            .map_err(|error| PyValueError::new_err(format!("`tools`: {error}")))?;
        Ok(self.diagnostics(&schemas.diagnostics(&self.inner)))
    }

    fn __repr__(&self) -> String {
        let file = self.path.as_deref().map(|path| format!("{path:?}, ")).unwrap_or_default();
        let dimensions = self.dimensions();
        // A policy that declares no dimension gives no labels, so it has only rules.
        let lattice = if dimensions.is_empty() { "rules only".to_owned() } else { dimensions.join(", ") };
        format!("Policy({file}{lattice}; {} lines)", self.inner.source().lines().count())
    }
}

impl PyPolicy {
    /// Converts diagnostics about this policy.
    pub(crate) fn diagnostics(&self, found: &[flowgate::policy::Diagnostic]) -> Vec<PyDiagnostic> {
        found.iter().map(|one| PyDiagnostic::of(one, self.inner.files(), self.path.as_deref())).collect()
    }
}
