//! Gives Python what a conversation waits for, and passes the answers to it: the classes `Need`, `Complete`, `Screen`,
//! `Fill`, `Approve` and `Run`.
//!
//! `Conversation.need` creates a need. The program answers it by one of the need's methods: `accept`, `decide`,
//! `output` and others. Only the latest need can be answered, and only once. When the program asks the conversation for
//! its next need, an unanswered one becomes invalid, so that an answer never reaches another question.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use flowgate::monitor::AuthorizedCall;
use flowgate_guard::approve::{ApprovalRequest, Decision};
use flowgate_guard::conversation::{Conversation, Need, ToolAnswer};
use flowgate_guard::view::View;
use flowgate_lm::chat::Request;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::completion;
use crate::errors::UsedError;
use crate::label::{self, PyLabel};
use crate::reason::{PyReason, PyRegion};
use crate::session::{Session, State};
use crate::tool::PyTool;
use crate::turn::PyTurn;
use crate::values;

/// The state that all needs of one conversation share.
pub(crate) struct NeedContext {
    pub(crate) session: Arc<Session>,
    /// The number of the latest need.
    pub(crate) latest: Arc<AtomicU64>,
}

/// What a conversation waits for. The subclass of each kind has the content of the need and the methods that answer it.
#[pyclass(frozen, subclass, module = "flowgate", name = "Need")]
pub(crate) struct PyNeed {
    kind: &'static str,
    /// The number of the need among those of the conversation.
    number: u64,
    /// Whether an answer was passed to the conversation.
    is_answered: AtomicBool,
    context: NeedContext,
}

#[pymethods]
impl PyNeed {
    /// `complete`, `screen`, `fill`, `approve` or `run`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn __repr__(&self) -> String {
        format!("Need({})", self.kind)
    }
}

impl PyNeed {
    /// Marks the need as answered, and runs `act`, which passes the answer to the conversation. Raises `UsedError` if
    /// the need is answered already or is not the latest one. Of two threads that answer at once, only one succeeds.
    fn answer<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Conversation) -> R + Send,
    ) -> PyResult<R> {
        if !self.is_latest() || self.is_answered.swap(true, Ordering::AcqRel) {
            return Err(not_awaited());
        }
        conversation(py, &self.context.session, act)
    }

    /// Returns whether this is the latest need: the conversation has not been asked for another one since.
    fn is_latest(&self) -> bool {
        self.context.latest.load(Ordering::Acquire) == self.number
    }
}

/// Returns the exception `UsedError` for a need that is answered already or is not the latest one.
fn not_awaited() -> PyErr {
    UsedError::new_err("the conversation no longer waits for this answer: ask it for its next `need()`")
}

/// Runs `act` on the conversation of a session, without the interpreter's lock. Raises `ValueError` if the session is a
/// monitor alone, which has no needs.
pub(crate) fn conversation<R: Send>(
    py: Python<'_>,
    session: &Arc<Session>,
    act: impl FnOnce(&mut Conversation) -> R + Send,
) -> PyResult<R> {
    let result = session.with(py, |state| match state {
        State::Conversation(chat) => Some(act(&mut chat.conversation)),
        State::Monitor(_) => None,
    })?;
    result.ok_or_else(|| {
        PyValueError::new_err(
            "the session is a monitor without a conversation, so it has no needs: create a `Conversation`",
        )
    })
}

/// The model's next message is needed.
#[pyclass(frozen, extends = PyNeed, module = "flowgate", name = "Complete")]
pub(crate) struct PyComplete {
    view: View,
}

#[pymethods]
impl PyComplete {
    /// Returns the body of the request to the model, with what it may be shown: in the format of OpenAI's chat
    /// completions (`openai`) or responses (`responses`), of Anthropic's messages (`anthropic`), or of Gemini
    /// (`gemini`). Without `model`, the body names no model. Raises `ValueError` if the format cannot express the
    /// request.
    #[pyo3(signature = (api="openai", *, model=None))]
    fn request<'py>(&self, py: Python<'py>, api: &str, model: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        completion::request_body(py, &self.view.request, completion::api(api)?, model)
    }

    /// The names of the regions that are hidden from the model.
    #[getter]
    fn hidden(&self) -> Vec<String> {
        self.view.names.all().iter().map(|region| region.name.clone()).collect()
    }

    /// The label of everything that the model writes now.
    #[getter]
    fn label(slf: &Bound<'_, Self>) -> PyResult<PyLabel> {
        let session = &slf.as_super().get().context.session;
        let label = slf.get().view.label;
        let names = session.monitor(slf.py(), |monitor| monitor.to_names(&label))?;
        Ok(PyLabel::new(Arc::clone(session.policy()), &names))
    }

    /// Accepts what the model wrote: a text, a `Completion`, an answer of a provider, or an assistant message.
    fn accept(slf: &Bound<'_, Self>, completion: &Bound<'_, PyAny>) -> PyResult<()> {
        let completion = completion::read(completion)?;
        slf.as_super().get().answer(slf.py(), |conversation| {
            conversation.accept_completion(completion);
        })
    }

    /// Reports that the model gave no answer. Returns whether the turn continues. It continues if the step may have
    /// been shown hidden text, since the end of the turn would reveal a fact about that text. Otherwise, the turn has
    /// ended, and the caller reports the failure.
    fn fail(slf: &Bound<'_, Self>) -> PyResult<bool> {
        slf.as_super().get().answer(slf.py(), |conversation| {
            // A step above the base label may have been shown hidden text, which the failure can depend on.
            let continues = conversation.is_raised();
            if continues {
                conversation.fail_completion()
            } else {
                conversation.stop()
            }
            continues
        })
    }
}

/// The answer of the screener's model is needed.
#[pyclass(frozen, extends = PyNeed, module = "flowgate", name = "Screen")]
pub(crate) struct PyScreen {
    request: Request,
}

#[pymethods]
impl PyScreen {
    /// Returns the body of the request to the model; the arguments are those of `Complete.request`.
    #[pyo3(signature = (api="openai", *, model=None))]
    fn request<'py>(&self, py: Python<'py>, api: &str, model: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        completion::request_body(py, &self.request, completion::api(api)?, model)
    }

    /// Accepts what the screener's model wrote, in one of the forms that `Complete.accept` accepts.
    fn accept(slf: &Bound<'_, Self>, completion: &Bound<'_, PyAny>) -> PyResult<()> {
        let completion = completion::read(completion)?;
        slf.as_super().get().answer(slf.py(), |conversation| conversation.accept_screening(&completion))
    }
}

/// The text of a slot is needed, from a model without tools.
#[pyclass(frozen, extends = PyNeed, module = "flowgate", name = "Fill")]
pub(crate) struct PyFill {
    request: Request,
}

#[pymethods]
impl PyFill {
    /// Returns the body of the request to the model; the arguments are those of `Complete.request`.
    #[pyo3(signature = (api="openai", *, model=None))]
    fn request<'py>(&self, py: Python<'py>, api: &str, model: Option<&str>) -> PyResult<Bound<'py, PyAny>> {
        completion::request_body(py, &self.request, completion::api(api)?, model)
    }

    /// Accepts what the model wrote, in one of the forms that `Complete.accept` accepts; anything other than text is
    /// dropped.
    fn accept(slf: &Bound<'_, Self>, completion: &Bound<'_, PyAny>) -> PyResult<()> {
        let completion = completion::read(completion)?;
        slf.as_super().get().answer(slf.py(), |conversation| conversation.accept_fill(&completion))
    }

    /// Reports that the slot could not be filled: the call does not run.
    fn fail(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.as_super().get().answer(slf.py(), Conversation::fail_fill)
    }
}

/// The tool, the arguments and the summary of a question that is expected to follow.
type UpcomingQuestion = (PyTool, Py<PyAny>, String);

/// A person must decide on a call.
#[pyclass(frozen, extends = PyNeed, module = "flowgate", name = "Approve")]
pub(crate) struct PyApprove {
    request: ApprovalRequest,
}

#[pymethods]
impl PyApprove {
    /// The tool of the call.
    #[getter]
    fn tool(&self) -> PyTool {
        PyTool(self.request.tool.clone())
    }

    /// The arguments as they would run.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        values::from_json(py, &self.request.arguments)
    }

    /// In a few sentences, what the call would do, who may have chosen it, and what it would disclose. Quotes
    /// arguments.
    #[getter]
    fn summary(&self) -> &str {
        &self.request.summary
    }

    /// For each value that untrusted text may have chosen, where it was found.
    #[getter]
    fn evidence(&self) -> Vec<String> {
        self.request.evidence.clone()
    }

    /// The label of the call: one text for each dimension, such as `untrusted`.
    #[getter]
    fn label(&self) -> Vec<String> {
        self.request.label.clone()
    }

    /// Why the call is not simply permitted.
    #[getter]
    fn reasons(slf: &Bound<'_, Self>) -> Vec<PyReason> {
        let policy = slf.as_super().get().context.session.policy();
        slf.get().request.reasons.iter().map(|reason| PyReason::new(reason.clone(), policy)).collect()
    }

    /// The regions that contributed the label: each with the beginning of its text.
    #[getter]
    fn excerpts(&self) -> Vec<(PyRegion, String)> {
        let excerpts = self.request.excerpts.iter();
        excerpts
            .map(|excerpt| (PyRegion::of(&excerpt.region, &excerpt.label), excerpt.text.clone()))
            .collect()
    }

    /// The keyed digest of the tool and these arguments.
    #[getter]
    fn digest(&self) -> &str {
        &self.request.digest
    }

    /// Whether the policy lets a person answer for the rest of the conversation.
    #[getter]
    fn is_grantable(&self) -> bool {
        self.request.is_grantable()
    }

    /// The arguments whose values may change if a person answers for the rest of the conversation.
    #[getter]
    fn changeable(&self) -> Vec<String> {
        self.request.changeable.clone()
    }

    /// How often the model makes this call in direct succession: a person can answer for all of them.
    #[getter]
    fn times(&self) -> usize {
        self.request.times
    }

    /// The questions about further calls of the same message of the model, as far as they can be foreseen: the tool,
    /// the arguments and the summary of each. Each is asked when its call is judged; it may then have other reasons, or
    /// not be asked.
    #[getter]
    fn upcoming(&self, py: Python<'_>) -> PyResult<Vec<UpcomingQuestion>> {
        let upcoming = self.request.upcoming.iter();
        let convert = |asked: &ApprovalRequest| {
            let arguments = values::from_json(py, &asked.arguments)?.unbind();
            Ok((PyTool(asked.tool.clone()), arguments, asked.summary.clone()))
        };
        upcoming.map(convert).collect()
    }

    /// How long the question stays open, in seconds.
    #[getter]
    fn expires(&self) -> f64 {
        self.request.expires.as_secs_f64()
    }

    /// Passes a decision to the conversation: `allow once`, `allow for conversation`, `deny`, `unanswered` if nobody
    /// decided in time, or `unasked` if there were too many questions. `True` and `False` mean `allow once` and `deny`;
    /// anything else is an error and decides nothing.
    fn decide(slf: &Bound<'_, Self>, decision: &Bound<'_, PyAny>) -> PyResult<()> {
        let decision = self::decision(decision)?;
        slf.as_super().get().answer(slf.py(), |conversation| conversation.accept_decision(decision))
    }

    /// Ends the turn for now, with the question open: the turn continues after the decision. Raises `UsedError` if the
    /// need is answered already or is not the latest one.
    fn postpone(slf: &Bound<'_, Self>) -> PyResult<PyTurn> {
        let need = slf.as_super().get();
        if !need.is_latest() || need.is_answered.load(Ordering::Acquire) {
            return Err(not_awaited());
        }
        // The question stays open: this need can still be answered, so it is not marked as answered.
        let turn = conversation(slf.py(), &need.context.session, Conversation::postpone)?;
        Ok(PyTurn::new(turn, Arc::clone(need.context.session.policy())))
    }

    /// Displays the object in a notebook.
    fn _repr_html_<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        values::display(slf)
    }

    fn __repr__(&self) -> String {
        format!("Approve({}: {:?})", self.request.tool, self.request.summary)
    }
}

/// Reads a decision in one of the forms that `Approve.decide` documents: `True`, `False` or a word. The words of earlier
/// versions, `allow`, `refuse` and `silent`, are read as well. Anything else, such as 1, raises `ValueError`, so that
/// no value becomes a consent by accident.
fn decision(given: &Bound<'_, PyAny>) -> PyResult<Decision> {
    use pyo3::types::PyBool;
    if let Ok(allows) = given.cast::<PyBool>() {
        return Ok(if allows.is_true() { Decision::AllowOnce } else { Decision::Deny });
    }
    match given.extract::<String>().as_deref() {
        Ok("allow" | "allow once") => Ok(Decision::AllowOnce),
        Ok("allow for conversation") => Ok(Decision::AllowForConversation),
        Ok("deny" | "refuse") => Ok(Decision::Deny),
        Ok("unanswered" | "silent") => Ok(Decision::Unanswered),
        Ok("unasked") => Ok(Decision::Unasked),
        _ => Err(PyValueError::new_err(
            "a decision must be True, False, \"allow once\", \"allow for conversation\", \"deny\", \"unanswered\" or \"unasked\"",
        )),
    }
}

/// A call may run; the output of its tool is needed.
#[pyclass(frozen, extends = PyNeed, module = "flowgate", name = "Run")]
pub(crate) struct PyRun {
    /// The call, until it is handed over to the client; then `None`.
    call: Mutex<Option<AuthorizedCall>>,
    id: String,
    tool: PyTool,
    arguments: serde_json::Map<String, Value>,
    arguments_json: String,
}

#[pymethods]
impl PyRun {
    /// The id of the call.
    #[getter]
    fn id(&self) -> &str {
        &self.id
    }

    /// The tool to run.
    #[getter]
    fn tool(&self) -> PyTool {
        self.tool.clone()
    }

    /// The arguments that were judged.
    #[getter]
    fn arguments<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        values::from_object(py, &self.arguments)
    }

    /// The arguments that were judged, as compact JSON.
    #[getter]
    fn arguments_json(&self) -> &str {
        &self.arguments_json
    }

    /// Passes the output of the tool: text, or a list of content blocks. `structured` is the same output as a JSON
    /// value, `is_error` says whether the tool failed, and `label` is a label that the output carries at least.
    #[pyo3(signature = (content, *, structured=None, is_error=false, label=None))]
    fn output(
        slf: &Bound<'_, Self>,
        content: &Bound<'_, PyAny>,
        structured: Option<&Bound<'_, PyAny>>,
        is_error: bool,
        label: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let need = slf.as_super().get();
        let policy = need.context.session.policy();
        let content = values::to_json(content, "content")?;
        let structured = structured.map(|value| values::to_json(value, "structured")).transpose()?;
        let carries = label.map(|label| label::read(policy, label)).transpose()?;
        let answer = ToolAnswer { content, structured, is_error, carries };
        need.answer(slf.py(), |conversation| conversation.accept_tool_answer(answer))
    }

    /// Reports that the tool failed: `text`, its error message, becomes its output.
    fn error(slf: &Bound<'_, Self>, text: String) -> PyResult<()> {
        slf.as_super().get().answer(slf.py(), |conversation| {
            conversation.accept_tool_answer(ToolAnswer::error(text));
        })
    }

    /// Leaves the call to the client, which runs it and sends its output with the chat: see
    /// `Conversation.accept_request`. Raises `UsedError` if the call was handed over or answered before, or if the
    /// conversation has been asked for another need since.
    fn hand_over(slf: &Bound<'_, Self>) -> PyResult<()> {
        // A call of an earlier need stays with it: taken, it would be lost.
        if !slf.as_super().get().is_latest() {
            return Err(not_awaited());
        }
        let call = slf.get().call.lock().unwrap_or_else(PoisonError::into_inner).take();
        let call = call.ok_or_else(|| {
            UsedError::new_err("the call was already handed over to the client: send its output with the chat, by `Conversation.accept_request`")
        })?;
        slf.as_super().get().answer(slf.py(), |conversation| conversation.hand_over(call))
    }

    fn __repr__(&self) -> String {
        format!("Run({} {})", self.tool.0, self.arguments_json)
    }
}

/// Converts a need to the class of its kind, and makes it the latest one of the conversation. The need of the user's
/// next message is the finished `Turn`, which needs no answer.
pub(crate) fn to_python(py: Python<'_>, context: NeedContext, need: Need) -> PyResult<Py<PyAny>> {
    // Only the need with the latest number can be answered.
    let number = context.latest.fetch_add(1, Ordering::AcqRel) + 1;
    let policy = Arc::clone(context.session.policy());
    let base = |kind| PyNeed { kind, number, is_answered: AtomicBool::new(false), context };
    Ok(match need {
        Need::Complete(view) => {
            Py::new(py, PyClassInitializer::from(base("complete")).add_subclass(PyComplete { view }))?
                .into_any()
        }
        Need::Screen(request) => {
            Py::new(py, PyClassInitializer::from(base("screen")).add_subclass(PyScreen { request }))?
                .into_any()
        }
        Need::Fill(request) => {
            Py::new(py, PyClassInitializer::from(base("fill")).add_subclass(PyFill { request }))?.into_any()
        }
        Need::Approve(request) => {
            let request = *request;
            Py::new(py, PyClassInitializer::from(base("approve")).add_subclass(PyApprove { request }))?
                .into_any()
        }
        Need::Run(call) => {
            let run = PyRun {
                id: call.call().id.clone(),
                tool: PyTool(call.call().tool.clone()),
                arguments: call.call().arguments.clone().unwrap_or_default(),
                arguments_json: call.arguments_json(),
                call: Mutex::new(Some(call)),
            };
            Py::new(py, PyClassInitializer::from(base("run")).add_subclass(run))?.into_any()
        }
        Need::User(turn) => Py::new(py, PyTurn::new(turn, policy))?.into_any(),
    })
}
