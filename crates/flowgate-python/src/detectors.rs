//! Offers the detectors of the policy language as Python functions, in the module `flowgate.detectors`. They recognise
//! secrets, personal data and the like by the form that such data have in a text. Each releases the interpreter's lock
//! while it searches, since a text can be long.

use std::ops::Range;

use flowgate::detect::{self, Finding};
use pyo3::prelude::*;

/// Something that a detector found: its kind, its position and its text. `start` and `end` count characters.
#[pyclass(frozen, get_all, eq, module = "flowgate.detectors", name = "Match")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PyMatch {
    /// The name of the kind; for a link or an image, its address.
    kind: String,
    start: usize,
    end: usize,
    text: String,
}

#[pymethods]
impl PyMatch {
    /// Does not show the text, which may be a secret.
    fn __repr__(&self) -> String {
        format!("Match({}, {}..{})", self.kind, self.start, self.end)
    }
}

/// Creates a match of the kind `kind` at `span` in a text. Detectors count in bytes and Python counts in characters, so
/// `span` is converted.
fn to_match(text: &str, kind: &str, span: &Range<usize>) -> PyMatch {
    let characters = |to: usize| text.get(..to).unwrap_or(text).chars().count();
    PyMatch {
        kind: kind.to_owned(),
        start: characters(span.start),
        end: characters(span.end),
        text: text.get(span.clone()).unwrap_or_default().to_owned(),
    }
}

/// Creates the matches of findings in a text.
fn to_matches(text: &str, findings: impl IntoIterator<Item = Finding>) -> Vec<PyMatch> {
    findings.into_iter().map(|finding| to_match(text, finding.kind, &finding.span)).collect()
}

/// Finds secrets: tokens and keys of many services, private keys, and strings of high entropy.
#[pyfunction]
pub(crate) fn secrets(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| to_matches(text, detect::secrets(text)))
}

/// Finds personal data: e-mail and IP addresses, URLs, phone numbers, numbers with check digits, names and places.
#[pyfunction]
pub(crate) fn personal_data(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| to_matches(text, detect::personal::all_findings(text)))
}

/// Finds phrases that address a model. Returns a score from 0 (none) to 1, and the phrases.
#[pyfunction]
pub(crate) fn prompt_injection(py: Python<'_>, text: &str) -> (f64, Vec<PyMatch>) {
    py.detach(|| {
        let injection = detect::injection::find(text);
        (injection.score, to_matches(text, injection.findings))
    })
}

/// Finds unsafe shell commands: those that destroy data, open access, run a downloaded program or send data away, and
/// parts of a script that cannot be read.
#[pyfunction]
pub(crate) fn unsafe_commands(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| {
        detect::shell::find(text)
            .iter()
            .map(|unsafe_| to_match(text, unsafe_.kind.as_str(), &unsafe_.span))
            .collect()
    })
}

/// Finds characters that readers do not see, such as zero-width spaces, tags and controls of the writing direction, and
/// words that mix letters of two scripts.
#[pyfunction]
pub(crate) fn hidden_characters(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| to_matches(text, detect::unicode::find_hidden(text)))
}

/// Returns the links in HTML and Markdown; the kind of each match is the address.
#[pyfunction]
pub(crate) fn links(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| {
        detect::markup::parse(text).links.iter().map(|link| to_match(text, &link.url, &link.span)).collect()
    })
}

/// Returns the images in HTML and Markdown; the kind of each match is the address.
#[pyfunction]
pub(crate) fn images(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| {
        detect::markup::parse(text).images.iter().map(|link| to_match(text, &link.url, &link.span)).collect()
    })
}

/// Finds harmful language by lists of words and phrases: hate, harassment, self-harm, sexual content and violence.
#[pyfunction]
pub(crate) fn moderated(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| to_matches(text, detect::moderation::find(text)))
}

/// Finds software licences, by their titles and phrases, and copyright notices.
#[pyfunction]
pub(crate) fn licences(py: Python<'_>, text: &str) -> Vec<PyMatch> {
    py.detach(|| to_matches(text, detect::licence::find(text)))
}

/// Finds `query` in a text, approximately: `threshold` is the least similarity, from 0 to 1. `None` if no passage is
/// that similar.
#[pyfunction]
#[pyo3(signature = (text, query, threshold=0.8))]
pub(crate) fn fuzzy_find(py: Python<'_>, text: &str, query: &str, threshold: f64) -> Option<PyMatch> {
    py.detach(|| detect::fuzzy::find(text, query, threshold).map(|span| to_match(text, "fuzzy", &span)))
}

/// What Python code imports and calls.
#[pyclass(frozen, get_all, module = "flowgate.detectors", name = "PythonCode")]
#[derive(Debug, Clone)]
pub(crate) struct PyPythonCode {
    /// The names of the imported modules and objects.
    imports: Vec<String>,
    /// The names of the built-in functions that are used.
    builtins: Vec<String>,
    /// The names of the called functions.
    function_calls: Vec<String>,
    /// The calls that can run code or commands.
    unsafe_calls: Vec<PyMatch>,
    /// Why the code cannot be parsed; `None` if it can.
    syntax_error: Option<String>,
}

/// Parses Python code and returns what it imports and calls. With `ipython`, the text is a cell of a notebook, and its
/// shell commands are among the unsafe calls if they are unsafe. Code that cannot be parsed has a `syntax_error`.
#[pyfunction]
#[pyo3(signature = (text, *, ipython=false))]
pub(crate) fn python_code(py: Python<'_>, text: &str, ipython: bool) -> PyPythonCode {
    py.detach(|| {
        let code = detect::python::python_code(text, ipython);
        PyPythonCode {
            unsafe_calls: to_matches(text, code.unsafe_calls),
            imports: code.imports,
            builtins: code.builtins,
            function_calls: code.function_calls,
            syntax_error: code.syntax_error,
        }
    })
}
