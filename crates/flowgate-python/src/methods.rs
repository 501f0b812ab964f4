//! Methods of conversations by name, and methods that a program registers in Python.
//!
//! A method in Python is an object with `name` and `doc`, and optionally `shows_everything`, `has_look`, `has_slots`, `confirms(verdict)` and
//! `screener`. Whatever it does, the monitor judges every call with the label of what the model was shown: an error of a method costs
//! utility or questions, and never permits a call that the policy denies.

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

/// The most methods that a program may register: each lives as long as the program.
const MAX_METHODS: usize = 32;

static REGISTRY: LazyLock<Mutex<MethodRegistry>> = LazyLock::new(|| Mutex::new(MethodRegistry::builtin()));

/// Returns the method of conversations with this name.
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

/// Registers a method of conversations: an object with `name` and `doc`, and optionally `shows_everything`, `has_look`, `has_slots`,
/// `confirms(label, tool_is_harmless)` and a `screener` with `instructions(names, nonce)` and `parse(text)`.
#[pyfunction]
pub(crate) fn register_method(method: &Bound<'_, PyAny>) -> PyResult<()> {
    let text = |name: &str| -> PyResult<&'static str> {
        let value: String = method
            .getattr(name)
            .and_then(|value| value.extract())
            .map_err(|_| PyValueError::new_err(format!("the method has no text `{name}`")))?;
        Ok(lasting_name(&value))
    };
    let flag =
        |name: &str| -> PyResult<bool> { Ok(method.hasattr(name)? && method.getattr(name)?.is_truthy()?) };
    let function = |name: &str| -> PyResult<Option<Py<PyAny>>> {
        let found = method.hasattr(name)?.then(|| method.getattr(name)).transpose()?;
        Ok(found.filter(|value| !value.is_none()).map(Bound::unbind))
    };
    let name = text("name")?;
    let screener = function("screener")?.map(|object| PythonScreener { name, object });
    let (shows_everything, has_look, has_slots) =
        (flag("shows_everything")?, flag("has_look")?, flag("has_slots")?);
    let made = PythonMethod {
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
        return Err(PyValueError::new_err(format!("a program registers at most {MAX_METHODS} methods")));
    }
    if registry.find(made.name).is_some() {
        return Err(PyValueError::new_err(format!("a method named `{}` is already registered", made.name)));
    }
    registry.register(Box::leak(Box::new(made))).map_err(|taken| PyValueError::new_err(taken.to_string()))
}

struct PythonMethod {
    name: &'static str,
    doc: &'static str,
    shows_everything: bool,
    has_look: bool,
    has_slots: bool,
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

    /// A function that fails asks a person.
    fn confirms(&self, permitted: &Judgement) -> bool {
        let Some(function) = &self.confirms else { return false };
        Python::attach(|py| {
            let answer = function.call1(py, (permitted.label.clone(), permitted.is_harmless));
            answer.and_then(|answer| answer.is_truthy(py)).unwrap_or(true)
        })
    }
}

struct PythonScreener {
    name: &'static str,
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

    /// The instructions come before and after the chat, so that no content comes last. Instructions that cannot be made are empty: the
    /// answer then names no regions, and every region counts.
    fn question(&self, tagged: TaggedChat) -> Request {
        let TaggedChat { mut request, nonce, names } = tagged;
        let instructions = Python::attach(|py| {
            let text = self.object.call_method1(py, "instructions", (names, nonce));
            text.and_then(|text| text.extract::<String>(py)).unwrap_or_default()
        });
        let part = |text: String| vec![Part::Text(text)];
        request.messages.edit().insert(0, Message::System(part(instructions.clone())));
        request.messages.push(Message::User(part(instructions)));
        request.choice = ToolChoice::None;
        request
    }

    fn parse_answer(&self, completion: &Completion) -> Option<Vec<String>> {
        Python::attach(|py| {
            let names = self.object.call_method1(py, "parse", (completion.text.as_str(),)).ok()?;
            names.extract::<Option<Vec<String>>>(py).ok()?
        })
    }
}
