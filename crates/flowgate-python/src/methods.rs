//! Finds methods of conversations by name, and registers methods that a program defines in Python. A method of
//! conversations decides what a model is shown; a program chooses one when it creates a `Conversation`.
//!
//! A method in Python is an object with `name` and `doc`, and optionally `shows_everything`, `has_look`, `has_slots`,
//! `confirms(label, tool_is_harmless)` and `screener`. Whatever it does, the monitor judges every call with the label
//! of what the model was shown: an error of a method costs utility or questions, and never permits a call that the
//! policy denies.

use std::fmt;
use std::sync::{LazyLock, Mutex, PoisonError};

use flowgate::monitor::Judgement;
use flowgate_guard::conversation::Method;
use flowgate_guard::method::{MethodRegistry, StepMethod};
use flowgate_guard::screener::{Screener, TaggedChat};
use flowgate_lm::chat::{Completion, Message, Part, Request, ToolChoice};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::attribution::lasting_name;

/// The maximum number of methods of a program, the built-in ones included. Each lives as long as the program.
const MAX_METHODS: usize = 32;

/// The methods of this program: the built-in and the registered ones.
static REGISTRY: LazyLock<Mutex<MethodRegistry>> = LazyLock::new(|| Mutex::new(MethodRegistry::builtin()));

/// Returns the method of conversations with this name, built-in or registered. Raises `ValueError` with the known names
/// if there is none.
pub(crate) fn find(name: &str) -> PyResult<Method> {
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    registry.resolve(name).map_err(|unknown| PyValueError::new_err(unknown.to_string()))
}

/// Returns the methods of conversations: the name of each, and what a step is shown.
#[pyfunction]
pub(crate) fn methods() -> Vec<(&'static str, &'static str)> {
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    registry.methods().iter().map(|method| (method.name(), method.doc())).collect()
}

/// Returns the influence methods of recorded runs: the name of each, and its guarantee.
#[pyfunction]
pub(crate) fn influence_methods() -> Vec<(&'static str, &'static str)> {
    let registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    registry.influence_methods().iter().map(|method| (method.name(), method.doc())).collect()
}

/// Registers a method of conversations: an object with `name` and `doc`, and optionally with these attributes.
/// `shows_everything`, `has_look` and `has_slots` say whether the model is shown everything, can ask to see hidden
/// regions, and can leave arguments to be filled with them. `confirms(label, tool_is_harmless)` says whether a person
/// must approve a permitted call. A `screener` chooses the hidden regions that a step needs. Its
/// `instructions(names, nonce)` returns the question to its model about the regions with these names, which are marked
/// by tags that contain the nonce; its `parse(text)` returns the names in the answer.
#[pyfunction]
pub(crate) fn register_method(method: &Bound<'_, PyAny>) -> PyResult<()> {
    let text = |name: &str| -> PyResult<&'static str> {
        // The core holds methods by static references, so these texts, like the method below, live as long as the
        // program.
        let value: String = method.getattr(name).and_then(|value| value.extract()).map_err(|_| {
            PyValueError::new_err(format!(
                "the method has no attribute `{name}` that is a string: add it to its class"
            ))
        })?;
        Ok(lasting_name(&value))
    };
    // An attribute that is missing counts as false.
    let flag =
        |name: &str| -> PyResult<bool> { Ok(method.hasattr(name)? && method.getattr(name)?.is_truthy()?) };
    // An attribute that is missing or `None` counts as absent.
    let function = |name: &str| -> PyResult<Option<Py<PyAny>>> {
        let found = method.hasattr(name)?.then(|| method.getattr(name)).transpose()?;
        Ok(found.filter(|value| !value.is_none()).map(Bound::unbind))
    };
    let name = text("name")?;
    let screener = function("screener")?.map(|object| PythonScreener { name, object });
    let (shows_everything, has_look, has_slots) =
        (flag("shows_everything")?, flag("has_look")?, flag("has_slots")?);
    let converted = PythonMethod {
        name,
        doc: text("doc")?,
        shows_everything,
        has_look,
        has_slots,
        confirms: function("confirms")?,
        screener,
    };
    let mut registry = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    if registry.methods().len() >= MAX_METHODS {
        return Err(PyValueError::new_err(format!(
            "a program can have at most {MAX_METHODS} methods, the built-in ones included: register fewer"
        )));
    }
    if registry.find(converted.name).is_some() {
        return Err(PyValueError::new_err(format!(
            "a method named `{}` is already registered; choose another name",
            converted.name
        )));
    }
    registry
        .register(Box::leak(Box::new(converted)))
        .map_err(|taken| PyValueError::new_err(taken.to_string()))
}

/// A method of conversations that an object in Python defines.
struct PythonMethod {
    name: &'static str,
    doc: &'static str,
    shows_everything: bool,
    has_look: bool,
    has_slots: bool,
    /// The function that says whether a person must approve a permitted call, if the object has one.
    confirms: Option<Py<PyAny>>,
    screener: Option<PythonScreener>,
}

impl fmt::Debug for PythonMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonMethod({})", self.name)
    }
}

impl StepMethod for PythonMethod {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        self.doc
    }

    fn shows_everything(&self) -> bool {
        self.shows_everything
    }

    fn has_look(&self) -> bool {
        self.has_look
    }

    fn has_slots(&self) -> bool {
        self.has_slots
    }

    fn screener(&self) -> Option<&dyn Screener> {
        self.screener.as_ref().map(|screener| screener as &dyn Screener)
    }

    /// Returns whether a person must approve a call although the policy permits it, as the function `confirms` in
    /// Python says. It receives the label of the call, and whether the tool is harmless. Without a function, nobody
    /// must approve. If the function fails, a person must, which is the cautious answer.
    fn confirms(&self, permitted: &Judgement) -> bool {
        let Some(function) = &self.confirms else { return false };
        Python::attach(|py| {
            let answer = function.call1(py, (permitted.label.clone(), permitted.is_harmless));
            answer.and_then(|answer| answer.is_truthy(py)).unwrap_or(true)
        })
    }
}

/// A screener that an object in Python defines: it asks a model which hidden regions the next step needs.
struct PythonScreener {
    /// The name of the method that the screener belongs to.
    name: &'static str,
    /// The object with the functions `instructions` and `parse`.
    object: Py<PyAny>,
}

impl fmt::Debug for PythonScreener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PythonScreener({})", self.name)
    }
}

impl Screener for PythonScreener {
    fn name(&self) -> &'static str {
        self.name
    }

    fn doc(&self) -> &'static str {
        "a screener in Python"
    }

    /// Returns the request to the screener's model: the chat, with the instructions before and after it, so that no
    /// untrusted content comes last. If the function `instructions` in Python fails, the instructions are empty. The
    /// answer then names no regions, and every region counts as needed.
    fn question(&self, tagged: TaggedChat) -> Request {
        // `names` are the names of the regions that could be hidden. `nonce` is a string in the tags around them, which
        // no content contains, so that content cannot forge a region.
        let TaggedChat { mut request, nonce, names } = tagged;
        let instructions = Python::attach(|py| {
            let text = self.object.call_method1(py, "instructions", (names, nonce));
            text.and_then(|text| text.extract::<String>(py)).unwrap_or_default()
        });
        let part = |text: String| vec![Part::Text(text)];
        request.messages.edit().insert(0, Message::System(part(instructions.clone())));
        request.messages.push(Message::User(part(instructions)));
        // A screener answers in text, which `parse_answer` reads; a call would have no meaning.
        request.choice = ToolChoice::None;
        request
    }

    /// Returns the names of the regions in the answer, as the function `parse` in Python finds them. `None` if that
    /// function returns `None` or fails: the answer cannot be understood, and every region counts as needed.
    fn parse_answer(&self, completion: &Completion) -> Option<Vec<String>> {
        Python::attach(|py| {
            let names = self.object.call_method1(py, "parse", (completion.text.as_str(),)).ok()?;
            names.extract::<Option<Vec<String>>>(py).ok()?
        })
    }
}
