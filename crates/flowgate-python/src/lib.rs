//! Implements the native part of the Python package `flowgate`: the module `flowgate._flowgate`. The module gives
//! Python the types of the crates `flowgate` and `flowgate-guard`. It converts values and decides nothing itself.
//!
//! The other part of the package is written in Python, in `python/flowgate`: exceptions, the loop that drives a
//! conversation, decorators, display and adapters for frameworks. It imports this module.
//!
//! * `values`, `entry`, `completion`: convert Python objects to JSON, events and messages of models.
//! * `policy`, `diagnostic`, `label`, `tool`: represent policies, their errors, and the labels and tools that they
//!   name.
//! * `session`: holds the state that the objects of a session share, and makes threads wait for it.
//! * `monitor`, `event`, `verdict`, `reason`, `attribution`: represent one session under a policy.
//! * `trace`, `replay`, `analysis`: read recorded runs, and evaluate policies over them.
//! * `conversation`, `need`, `turn`, `methods`: guard conversations with a model.
//! * `predicates`, `detectors`: call functions in Python from policies, and the detectors of policies from Python.
//! * `errors`: creates the exceptions.
//!
//! A doc comment of a class, method or function that Python sees is its docstring, and uses the words of Python.

#![expect(clippy::needless_pass_by_value, reason = "arguments of Python functions are owned")]

mod analysis;
mod attribution;
mod completion;
mod conversation;
mod detectors;
mod diagnostic;
mod entry;
mod errors;
mod event;
mod label;
mod methods;
mod monitor;
mod need;
mod policy;
mod predicates;
mod reason;
mod replay;
mod session;
mod tool;
mod trace;
mod turn;
mod values;
mod verdict;

/// The native part of the package `flowgate`.
#[pyo3::pymodule]
mod _flowgate {
    #[pymodule_export]
    use crate::analysis::{PyAnalysis, PyFailure, PyViolation};
    #[pymodule_export]
    use crate::attribution::PyAttribution;
    #[pymodule_export]
    use crate::completion::PyCompletion;
    #[pymodule_export]
    use crate::conversation::PyConversation;
    #[pymodule_export]
    use crate::detectors::{
        PyMatch, PyPythonCode, fuzzy_find, hidden_characters, images, licences, links, moderated,
        personal_data, prompt_injection, python_code, secrets, unsafe_commands,
    };
    #[pymodule_export]
    use crate::diagnostic::PyDiagnostic;
    #[pymodule_export]
    use crate::event::{PyEvent, PyPart};
    #[pymodule_export]
    use crate::label::PyLabel;
    #[pymodule_export]
    use crate::methods::{influence_methods, methods, register_method};
    #[pymodule_export]
    use crate::monitor::PyMonitor;
    #[pymodule_export]
    use crate::need::{PyApprove, PyComplete, PyFill, PyNeed, PyRun, PyScreen};
    #[pymodule_export]
    use crate::policy::PyPolicy;
    #[pymodule_export]
    use crate::reason::{PyFinding, PyReason, PyRegion};
    #[pymodule_export]
    use crate::replay::{PyJudgedCall, PyReplay};
    #[pymodule_export]
    use crate::tool::PyTool;
    #[pymodule_export]
    use crate::trace::PyTrace;
    #[pymodule_export]
    use crate::turn::{PyCallVerdict, PyReply, PyTurn};
    #[pymodule_export]
    use crate::verdict::{PyAuthorizedCall, PyConfirm, PyDeny, PyPermit, PyVerdict};
}
