//! Gives Python the class `Attribution`, by which a program reports what a call depends on, and converts attributions
//! for the monitor.
//!
//! Parts of events are given by their paths, and are looked up in a session only when a call is judged, so one
//! attribution can be used in several sessions. `Monitor.judge`, `Monitor.record` and influence methods in Python take
//! or return it.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use flowgate::monitor::{Attribution, CallDependency, Monitor};
use flowgate::trace::EventId;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::event::find_node;
use crate::label::PyLabel;

/// The maximum number of texts that [`lasting_name`] stores.
const MAX_NAMES: usize = 64;

/// The texts that [`lasting_name`] has returned.
static NAMES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Returns the name or the description of a method as a text that lives as long as the program, which the core
/// requires. Equal texts are stored once. Each takes memory until the program ends, so at most [`MAX_NAMES`] are
/// stored; after that, the result for a new text is `python`.
pub(crate) fn lasting_name(name: &str) -> &'static str {
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    match names.get(name) {
        Some(known) => known,
        None if names.len() >= MAX_NAMES => "python",
        None => {
            let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
            names.insert(name);
            name
        }
    }
}

/// What a call depends on, as a program or an influence method in Python reports it.
#[pyclass(frozen, module = "flowgate", name = "Attribution")]
#[derive(Debug, Clone)]
pub(crate) struct PyAttribution {
    /// The name of the influence method in verdicts.
    method: String,
    decision: Dependency,
    /// What each named argument depends on.
    arguments: Vec<(String, Dependency)>,
    /// The number of regions that were hidden from the decision.
    hidden: usize,
}

/// What the decision or one argument of a call depends on, before it is looked up in a session.
#[derive(Debug, Clone)]
enum Dependency {
    /// Everything that the agent has seen.
    Everything,
    /// Something that is hidden from the model, so that the model cannot have written the call.
    Hidden,
    /// Regions: for each, the index of its event and the path of the part.
    Regions(Vec<(usize, String)>),
    /// A view: the model was shown only what flows to this label, which is given by its names.
    View(Value),
}

/// Reads a dependency in one of the forms that the constructor of `Attribution` documents: a word, a `Label`, or a list
/// of regions, each the index of an event and the path of a part. Whether a region exists is not checked here, since
/// there is no session yet. Raises `ValueError` for another word, and `TypeError` for any other form.
fn dependency(given: &Bound<'_, PyAny>) -> PyResult<Dependency> {
    if let Ok(word) = given.extract::<String>() {
        return match word.as_str() {
            "everything" => Ok(Dependency::Everything),
            "hidden" => Ok(Dependency::Hidden),
            _ => Err(PyValueError::new_err(
                "a dependency must be \"everything\", \"hidden\", a `Label` of a view, or a list of (event, path)",
            )),
        };
    }
    if let Ok(label) = given.cast::<PyLabel>() {
        return Ok(Dependency::View(label.get().names().clone()));
    }
    let regions = given.extract().map_err(|_| {
        PyTypeError::new_err(
            "a dependency must be \"everything\", \"hidden\", a `Label` of a view, or a list of (event, path)",
        )
    })?;
    Ok(Dependency::Regions(regions))
}

#[pymethods]
impl PyAttribution {
    /// Creates an attribution: `decision` is what the decision to call depends on, and `arguments` what each named
    /// argument depends on. A dependency has one of four forms: `"everything"`, all that the agent has seen;
    /// `"hidden"`, something that was hidden from the model, so that the model cannot have written the call; a `Label`,
    /// if the model was shown only what flows to it (a view); or a list of regions `(event, path)`. An argument that is
    /// not named depends on the view if the decision does, and otherwise on everything.
    ///
    /// `method` names the influence method in verdicts, and `hidden` is the number of regions that were hidden from the
    /// decision.
    #[new]
    #[pyo3(signature = (decision, arguments=None, *, method="python", hidden=0))]
    fn new(
        decision: &Bound<'_, PyAny>,
        arguments: Option<&Bound<'_, PyDict>>,
        method: &str,
        hidden: usize,
    ) -> PyResult<Self> {
        let mut named = Vec::new();
        if let Some(arguments) = arguments {
            for (name, value) in arguments {
                named.push((name.extract()?, dependency(&value)?));
            }
        }
        Ok(Self { method: method.to_owned(), decision: dependency(decision)?, arguments: named, hidden })
    }

    /// The name of the influence method, as verdicts show it.
    #[getter]
    fn method(&self) -> &str {
        &self.method
    }

    fn __repr__(&self) -> String {
        format!("Attribution({}, {} arguments)", self.method, self.arguments.len())
    }
}

impl PyAttribution {
    /// Converts the attribution for the session of `monitor`: looks up each region, which is named by an event and a
    /// path, and converts the label of a view from its names to a label of this session. If a region does not exist,
    /// the error message names it.
    pub(crate) fn resolve(&self, monitor: &mut Monitor) -> Result<Attribution, String> {
        let decision = resolve_dependency(&self.decision, monitor)?;
        let mut arguments = Vec::with_capacity(self.arguments.len());
        for (name, given) in &self.arguments {
            arguments.push((name.clone(), resolve_dependency(given, monitor)?));
        }
        // The core holds the name of a method by a static reference.
        Ok(Attribution { method: lasting_name(&self.method), decision, arguments, hidden: self.hidden })
    }
}

/// Converts what the decision or one argument depends on. If a region does not exist, the error message names it.
fn resolve_dependency(given: &Dependency, monitor: &mut Monitor) -> Result<CallDependency, String> {
    Ok(match given {
        Dependency::Everything => CallDependency::Everything,
        Dependency::Hidden => CallDependency::Hidden,
        Dependency::View(names) => CallDependency::View(monitor.from_names(names)),
        Dependency::Regions(regions) => {
            let mut found = Vec::with_capacity(regions.len());
            for (event, path) in regions {
                let document = monitor.trace().event(EventId(*event)).map(|event| &event.document);
                let node = document.and_then(|document| find_node(document, path));
                let node = node.ok_or_else(|| {
                    format!(
                        "there is no region `{}` in event {event}; use an event of the session, and a region that its `parts` list",
                        path.escape_debug()
                    )
                })?;
                found.push((EventId(*event), node));
            }
            CallDependency::Regions(found)
        }
    })
}
