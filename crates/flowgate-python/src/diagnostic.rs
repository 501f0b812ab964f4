//! Gives Python the errors and warnings of the compiler about a policy: the class `Diagnostic`. `Policy.warnings` and
//! the checks of `Policy` return warnings; the exception `PolicyError` contains the errors.

use flowgate::policy::{Diagnostic, PolicySource, Severity};
use pyo3::prelude::*;

/// One finding about a policy, with its file, line and column.
#[pyclass(frozen, get_all, eq, module = "flowgate", name = "Diagnostic")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PyDiagnostic {
    /// A stable identifier of the kind of problem, such as `unknown-name`.
    code: &'static str,
    /// `error`, with which the policy cannot be used, or `warning`.
    severity: &'static str,
    /// The file of the finding: that of the policy, or one that it imports; `None` if the policy has no file.
    file: Option<String>,
    /// The line in the file, from 1.
    line: usize,
    /// The character in the line, from 1.
    column: usize,
    /// The problem, in one line.
    message: String,
    /// How to correct it; `None` if there is no suggestion.
    hint: Option<String>,
    /// The line of the policy, an underline, the message and the hint.
    excerpt: String,
}

impl PyDiagnostic {
    /// Converts a diagnostic: adds its position, and an excerpt with the lines that it is about. `source` is the policy
    /// with the files that it imports. `path` is the policy's own file: the file of each position that is not in an
    /// imported file.
    pub(crate) fn of(found: &Diagnostic, source: &PolicySource, path: Option<&str>) -> Self {
        let position = source.locate(found.span.start);
        // The text of the file that the span is in, and the span in this file.
        let (_, text, span) = source.excerpt_file(&found.span);
        let excerpt = Diagnostic { span, ..found.clone() }.render(text);
        Self {
            code: found.code,
            severity: match found.severity {
                Severity::Warning => "warning",
                // `Severity` is non-exhaustive. A severity that is not known here counts as an error, the cautious
                // choice.
                _ => "error",
            },
            file: position.file.or(path).map(str::to_owned),
            line: position.line,
            column: position.column,
            message: found.message.clone(),
            hint: found.help.clone(),
            excerpt,
        }
    }
}

#[pymethods]
impl PyDiagnostic {
    fn __repr__(&self) -> String {
        format!(
            "Diagnostic({} {} at {}:{}: {})",
            self.severity, self.code, self.line, self.column, self.message
        )
    }

    fn __str__(&self) -> String {
        let file = self.file.as_deref().map(|file| format!("{file}:")).unwrap_or_default();
        let hint = self.hint.as_ref().map(|hint| format!("; hint: {hint}")).unwrap_or_default();
        format!("{file}{}:{}: {} [{}]{hint}", self.line, self.column, self.message, self.code)
    }
}
