//! Gives Python the outcome of a turn of a conversation, which `Conversation.need` returns at the end of the turn: the
//! classes `Turn`, `Reply` and `CallVerdict`.

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_guard::conversation::{CallVerdict, Turn, TurnEnd};
use flowgate_lm::chat::{Completion, Stop, ToolCall};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::json;

use crate::reason::PyReason;
use crate::tool::PyTool;
use crate::values;

/// A finished turn: what the model replied, and what happened.
#[pyclass(frozen, module = "flowgate", name = "Turn")]
#[derive(Debug, Clone)]
pub(crate) struct PyTurn {
    turn: Turn,
    policy: Arc<Policy>,
}

impl PyTurn {
    /// Wraps a finished turn. `policy` is needed to find the statements that the reasons of its calls name.
    pub(crate) fn new(turn: Turn, policy: Arc<Policy>) -> Self {
        Self { turn, policy }
    }

    /// Returns the turn as one message of the model, for a client that runs the calls itself. `name` returns the name
    /// by which the client calls a tool. If the turn ended because the model may not see what the next step needs, the
    /// text says so; if it ended at a limit, the stop reason is `Stop::Length`. No other cause of an early end is
    /// shown.
    pub(crate) fn completion(&self, name: &dyn Fn(&flowgate::trace::Tool) -> String) -> Completion {
        let mut text = self.text();
        if self.turn.ended == Some(TurnEnd::Clearance) {
            if !text.is_empty() {
                text.push_str("\n\n");
            }
            text.push_str("[the policy does not let the model's server see what the next step needs]");
        }
        let calls = self.turn.calls.iter().map(|call| ToolCall {
            id: call.id.clone(),
            name: name(&call.tool),
            arguments: call.arguments.clone(),
        });
        let calls: Vec<ToolCall> = calls.collect();
        // Calls for the client always stop the message. Without any, a stop for calls means that all of them ran or
        // were refused here, so the message is at its end.
        let stop = match (calls.is_empty(), self.turn.ended) {
            (false, _) => Stop::Calls,
            (true, Some(TurnEnd::Steps | TurnEnd::Full)) => Stop::Length,
            (true, _) if self.turn.stop == Stop::Calls => Stop::End,
            (true, _) => self.turn.stop,
        };
        Completion { text, calls, stop, usage: self.turn.spent.tokens, ..Completion::default() }
    }
}

#[pymethods]
impl PyTurn {
    /// `user`: the next input is the user's message.
    #[getter]
    fn kind(&self) -> &'static str {
        "user"
    }

    /// The replies of the model as one text, with an empty line between them. A reply that a rule withholds is replaced
    /// by the messages of the rule.
    #[getter]
    fn text(&self) -> String {
        let parts = self.turn.replies.iter().map(|reply| match reply.withheld.as_slice() {
            [] => reply.text.clone(),
            rules => format!("[withheld by a rule: {}]", rules.join("; ")),
        });
        parts.collect::<Vec<_>>().join("\n\n")
    }

    /// The replies of the model. Each has its text, which is empty if a rule withholds it, its label, the messages of
    /// the rules that withhold it, and the URLs in it that were disarmed.
    #[getter]
    fn replies(&self) -> Vec<PyReply> {
        let replies = self.turn.replies.iter();
        replies
            .map(|reply| PyReply {
                text: reply.text.clone(),
                label: reply.label.clone(),
                withheld: reply.withheld.clone(),
                disarmed: reply.disarmed.clone(),
            })
            .collect()
    }

    /// All calls that were judged, in order, whatever their outcome.
    #[getter]
    fn judged(&self) -> Vec<PyCallVerdict> {
        let judged = self.turn.judged.iter();
        judged.map(|call| PyCallVerdict { call: call.clone(), policy: Arc::clone(&self.policy) }).collect()
    }

    /// Calls that may run and that the caller runs itself: the id, the tool, and the arguments as JSON text.
    #[getter]
    fn calls(&self) -> Vec<(String, PyTool, String)> {
        let calls = self.turn.calls.iter();
        calls.map(|call| (call.id.clone(), PyTool(call.tool.clone()), call.arguments.clone())).collect()
    }

    /// The messages of rules that object to a message or to a tool's output.
    #[getter]
    fn rule_messages(&self) -> Vec<String> {
        self.turn.rule_messages.clone()
    }

    /// Why the turn ended before the model's last message; `None` if it ended with it. `steps`: the limit on messages
    /// was reached; `full`: the session has no room; `model`: the model gave no answer; `clearance`: the model may not
    /// see what the next step would show; `asked`: a question to a person is open.
    #[getter]
    fn ended(&self) -> Option<&'static str> {
        self.turn.ended.map(|ended| match ended {
            TurnEnd::Steps => "steps",
            TurnEnd::Full => "full",
            TurnEnd::Model => "model",
            TurnEnd::Clearance => "clearance",
            TurnEnd::Asked => "asked",
        })
    }

    /// Approved calls that did not run: the tool and the cause.
    #[getter]
    fn void(&self) -> Vec<(PyTool, String)> {
        self.turn.void.iter().map(|call| (PyTool(call.tool.clone()), call.cause.clone())).collect()
    }

    /// What the turn used, as a dict of counts: messages of the model, of the filler (`fills`) and of the screener
    /// (`screenings`), tokens, looks, and questions to a person, of which `allowed` were answered with an approval.
    /// `ran` and `refused` count the calls that were released to run and that were refused. `hidden` counts hidden
    /// regions over all steps, and `bits` is an upper bound on what hidden text could reveal.
    #[getter]
    fn usage<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let spent = &self.turn.spent;
        let usage = json!({
            "messages": spent.messages,
            "fills": spent.fills,
            "screenings": spent.screenings,
            "input_tokens": spent.tokens.input,
            "output_tokens": spent.tokens.output,
            "looks": spent.looks,
            "hidden": spent.hidden,
            "questions": spent.questions,
            "allowed": spent.allowed,
            "ran": spent.ran,
            "refused": spent.refused,
            "bits": spent.bits,
        });
        values::from_json(py, &usage)
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    fn __str__(&self) -> String {
        self.text()
    }

    fn __repr__(&self) -> String {
        let ended = self.ended().map(|ended| format!(", ended: {ended}")).unwrap_or_default();
        format!("Turn({:?}, {} calls judged{ended})", self.text(), self.turn.judged.len())
    }
}

/// A reply of the model to the user.
#[pyclass(frozen, get_all, module = "flowgate", name = "Reply")]
#[derive(Debug, Clone)]
pub(crate) struct PyReply {
    /// The text; empty if it is withheld.
    text: String,
    /// The label: one text for each dimension, such as `untrusted`.
    label: Vec<String>,
    /// The messages of the rules that withhold the reply.
    withheld: Vec<String>,
    /// The URLs that were disarmed, so that they do not work as links.
    disarmed: Vec<String>,
}

#[pymethods]
impl PyReply {
    fn __repr__(&self) -> String {
        format!("Reply({:?}, labelled {})", self.text, self.label.join(", "))
    }
}

/// A call that was judged in a turn.
#[pyclass(frozen, module = "flowgate", name = "CallVerdict")]
#[derive(Debug, Clone)]
pub(crate) struct PyCallVerdict {
    call: CallVerdict,
    policy: Arc<Policy>,
}

#[pymethods]
impl PyCallVerdict {
    /// The tool of the call.
    #[getter]
    fn tool(&self) -> PyTool {
        PyTool(self.call.tool.clone())
    }

    /// The arguments, as they were judged.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::from_object(py, &self.call.arguments)
    }

    /// `permit`, `confirm` or `deny`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.call.outcome.name()
    }

    /// Why the call is not simply permitted, and what a person has granted for the rest of the conversation.
    #[getter]
    fn reasons(&self) -> Vec<PyReason> {
        self.call.reasons.iter().map(|reason| PyReason::new(reason.clone(), &self.policy)).collect()
    }

    /// The label of the call: one text for each dimension, such as `untrusted`.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.call.label.clone()
    }

    /// The keyed digest of the tool and these arguments.
    #[getter]
    fn digest(&self) -> &str {
        &self.call.digest
    }

    fn __repr__(&self) -> String {
        format!("CallVerdict({}: {})", self.call.tool, self.call.outcome.name())
    }
}
