//! Gives Python guarded conversations with a model: the class `Conversation`.
//!
//! The class wraps `flowgate_guard::conversation`, a state machine without I/O. A conversation says what it needs next,
//! such as an answer of the model, and its driver obtains that and passes it in. The class `flowgate.Guard`, in Python,
//! is such a driver. The classes of the needs are in `need`.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowgate::trace::{EventId, Tool};
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, ConversationSettings, HiddenItemKind, StepLabelling};
use flowgate_guard::history::{ClientProfile, History, MessageTemplate};
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::Message;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde_json::Value;

use crate::errors;
use crate::event::PyEvent;
use crate::label::{self, PyLabel};
use crate::monitor::{self, PyMonitor};
use crate::need::{self, NeedContext};
use crate::policy::PyPolicy;
use crate::session::{Chat, Session, State};
use crate::tool::ToolArgument;
use crate::turn::PyTurn;
use crate::{completion, methods, values};

/// The maximum number of tools that one conversation may offer.
const MAX_TOOLS: usize = 512;

/// A guarded conversation with a model. Ask it for its `need()`, answer the need, and so on until the need is a `Turn`.
#[pyclass(frozen, subclass, module = "flowgate", name = "Conversation")]
pub(crate) struct PyConversation {
    session: Arc<Session>,
    /// The number of the latest need; earlier ones can no longer be answered.
    latest: Arc<AtomicU64>,
    /// Pairs of a prefix, by which the client marks the tools of a server, and the name of the server; the longest
    /// prefix comes first.
    prefixes: Vec<(String, String)>,
    /// The names by which the client of the last request calls its tools.
    names: Mutex<HashMap<Tool, String>>,
}

#[pymethods]
impl PyConversation {
    /// Creates a conversation in which the model may call these tools: dicts with `tool`, `description`, `parameters`
    /// (a JSON schema), `output` (another one, optional) and `described_by` (`"operator"`, or `"server"` for a
    /// description that the policy labels).
    ///
    /// `key` consists of 32 random bytes, for digests of calls. `method` names the algorithm that chooses what a step
    /// is shown; the function `methods` lists all. `parameters`, `predicates`, `fuel` and `events` are as for
    /// `Monitor`. `expires` is how long a question to a person stays open, in seconds. With `step_labels="fixed"`,
    /// every step carries the bound of what it could have been shown, instead of the label of what it was shown.
    /// `hides_context` says whether the fact that context was added, such as a retrieved memory, can be a secret; a
    /// method that shows everything does not keep this secret. `sampling` is a dict of parameters for every request to
    /// the model, such as `temperature`.
    ///
    /// Four limits bound a turn. When the model asks to see hidden text, a new level of the turn begins, whose steps
    /// are shown this text. `levels` is how many levels can be on top of each other; `steps` bounds the messages of the
    /// model in one level, `messages` those in all levels together, and `calls` the calls in one message.
    ///
    /// `trust_user_messages`, `pinned` and `prefixes` are for `accept_request`. `trust_user_messages` says whether a
    /// person types the client's messages of the user. `pinned` lists messages that the operator knows word for word.
    /// `prefixes` is a dict from prefixes of the names of tools to the servers of these tools.
    #[new]
    #[pyo3(signature = (policy, tools, *, key, method="lowest-first", parameters=None, predicates=None, fuel=None, events=None,
        steps=None, messages=None, levels=None, calls=None, expires=None, step_labels="floating", hides_context=false, sampling=None,
        trust_user_messages=false, pinned=None, prefixes=None))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn new(
        policy: &PyPolicy,
        tools: Vec<Bound<'_, PyAny>>,
        key: [u8; 32],
        method: &str,
        parameters: Option<&Bound<'_, PyAny>>,
        predicates: Option<&Bound<'_, PyAny>>,
        fuel: Option<u64>,
        events: Option<usize>,
        steps: Option<usize>,
        messages: Option<usize>,
        levels: Option<usize>,
        calls: Option<usize>,
        expires: Option<f64>,
        step_labels: &str,
        hides_context: bool,
        sampling: Option<&Bound<'_, PyDict>>,
        trust_user_messages: bool,
        pinned: Option<Vec<String>>,
        prefixes: Option<HashMap<String, String>>,
    ) -> PyResult<Self> {
        let monitor = monitor::new_monitor(policy, parameters, predicates, fuel, events)?;
        let mut settings = ConversationSettings::new(methods::find(method)?, DigestKey::new(key));
        settings.sampling = completion::sampling(sampling)?;
        // A limit that is not given keeps the default of the guard.
        settings.steps = steps.unwrap_or(settings.steps);
        settings.messages = messages.unwrap_or(settings.messages);
        settings.levels = levels.unwrap_or(settings.levels);
        settings.calls = calls.unwrap_or(settings.calls);
        if let Some(seconds) = expires {
            settings.expires = Duration::try_from_secs_f64(seconds)
                .map_err(|_| PyValueError::new_err("`expires` must be a number of seconds, 0 or more"))?;
        }
        settings.step_labels = match step_labels {
            "floating" => StepLabelling::Floating,
            "fixed" => StepLabelling::Fixed,
            _ => return Err(PyValueError::new_err("`step_labels` must be \"floating\" or \"fixed\"")),
        };
        settings.hides_context = hides_context;
        let conversation = Conversation::new(monitor, offered_tools(&tools)?, settings)
            .map_err(|error| errors::session_error(&error))?;
        // What is known about the client: whether a person types its messages, and which texts it sends unchanged.
        let client = ClientProfile {
            is_interactive: trust_user_messages,
            pinned: pinned.unwrap_or_default().iter().map(|text| MessageTemplate::new(text)).collect(),
            ..ClientProfile::default()
        };
        let chat = Chat { conversation, client, history: History::new() };
        let session = Session::new(State::Conversation(Box::new(chat)), policy.path.clone());
        let mut prefixes: Vec<(String, String)> = prefixes.unwrap_or_default().into_iter().collect();
        // The longest prefix first, so that the prefix of one server may begin with that of another.
        prefixes.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Ok(Self { session, latest: Arc::default(), prefixes, names: Mutex::default() })
    }

    /// The session as a `Monitor`: its events with their labels, its grants and consents. A call that is judged with
    /// this `Monitor` is not part of the chat with the model.
    #[getter]
    fn monitor(&self) -> PyMonitor {
        PyMonitor { session: Arc::clone(&self.session) }
    }

    /// Returns what the conversation waits for: a `Complete`, `Screen`, `Fill`, `Approve` or `Run`, or the finished
    /// `Turn`. If the program has not answered the previous need, the conversation itself answers it in the most
    /// cautious way, for example as a refusal; the program can no longer answer it.
    fn need(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        let need = self.with(py, Conversation::need)?;
        let context = NeedContext { session: Arc::clone(&self.session), latest: Arc::clone(&self.latest) };
        need::to_python(py, context, need)
    }

    /// Adds the operator's instructions as a system message, and returns the event.
    fn system(&self, py: Python<'_>, content: &Bound<'_, PyAny>) -> PyResult<PyEvent> {
        self.context(py, "system", content)
    }

    /// Adds other context, such as retrieved memory, as a message with this role, and returns the event. The policy
    /// labels it.
    fn context(&self, py: Python<'_>, role: &str, content: &Bound<'_, PyAny>) -> PyResult<PyEvent> {
        let content = values::to_json(content, "content")?;
        let added = self.with(py, |conversation| conversation.add_context(role, content))?;
        self.to_py_event(added)
    }

    /// Adds the user's next message, begins a turn, and returns the event of the message. Unfinished work of the
    /// previous turn is dropped.
    fn user(&self, py: Python<'_>, content: &Bound<'_, PyAny>) -> PyResult<PyEvent> {
        let content = values::to_json(content, "content")?;
        let added = self.with(py, |conversation| conversation.add_user_message(content))?;
        self.to_py_event(added)
    }

    /// Adds a task from another agent, begins a turn, and returns the event of the task. `label` is the label of that
    /// agent's call; everything in this conversation carries at least that label from now on.
    fn task(
        &self,
        py: Python<'_>,
        content: &Bound<'_, PyAny>,
        label: &Bound<'_, PyAny>,
    ) -> PyResult<PyEvent> {
        let content = values::to_json(content, "content")?;
        let names = label::read(self.session.policy(), label)?;
        let added = self.with(py, |conversation| conversation.add_task(content, &names))?;
        self.to_py_event(added)
    }

    /// Continues a turn that has ended, without another message of the user.
    fn continue_turn(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Conversation::continue_turn)
    }

    /// Aborts the turn, whatever it waits for.
    fn stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, Conversation::stop)
    }

    /// Whether the next input is the user's message.
    #[getter]
    fn is_turn_over(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, |conversation| conversation.is_turn_over())
    }

    /// Offers these tools from the next turn on; they are described as for the constructor.
    fn offer_tools(&self, py: Python<'_>, tools: Vec<Bound<'_, PyAny>>) -> PyResult<()> {
        let tools = offered_tools(&tools)?;
        let offered = self.with(py, |conversation| conversation.offer_tools(tools))?;
        offered.map_err(|error| errors::session_error(&error))
    }

    /// Chooses the label of the next step in place of the method: the model is then shown what flows to this label.
    fn choose_label(&self, py: Python<'_>, label: &Bound<'_, PyAny>) -> PyResult<()> {
        let names = label::read(self.session.policy(), label)?;
        self.with(py, |conversation| {
            let label = conversation.monitor_mut().from_names(&names);
            conversation.choose_label(label);
        })
    }

    /// The base label, at which the steps of each turn start. A step at the base label is shown only what flows to it;
    /// the method can show later steps more.
    #[getter]
    fn base_label(&self, py: Python<'_>) -> PyResult<PyLabel> {
        let names = self.with(py, |conversation| {
            let label = *conversation.base_label();
            conversation.monitor().to_names(&label)
        })?;
        Ok(PyLabel::new(Arc::clone(self.session.policy()), &names))
    }

    /// The label of the last reply. If another agent called this one, the program passes the label to that agent's
    /// conversation together with the reply, as the label of a tool's output or of a `task`.
    #[getter]
    fn reply_label(&self, py: Python<'_>) -> PyResult<PyLabel> {
        let names = self.with(py, |conversation| conversation.reply_label_names())?;
        Ok(PyLabel::new(Arc::clone(self.session.policy()), &names))
    }

    /// Returns the body of the request that shows a model what flows to `label`; the other arguments are those of
    /// `Complete.request`. It shows a program what the model would see, and changes nothing.
    #[pyo3(signature = (label, api="openai", *, model=None))]
    fn view_at<'py>(
        &self,
        py: Python<'py>,
        label: &Bound<'py, PyAny>,
        api: &str,
        model: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let names = label::read(self.session.policy(), label)?;
        let view = self.with(py, |conversation| {
            let label = conversation.monitor_mut().from_names(&names);
            conversation.view_at(label)
        })?;
        completion::request_body(py, &view.request, completion::api(api)?, model)
    }

    /// Returns what is hidden from the steps at the base label, and why: for each item what is hidden, its label, and
    /// the cause.
    fn hidden_items(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<String>, String)>> {
        let items = self.session.with(py, |state| match state {
            // From the first item of the chat on.
            State::Conversation(chat) => chat.conversation.hidden_items(&chat.client, 0),
            // A `Conversation` always has the state of one, so this case does not occur.
            State::Monitor(_) => Vec::new(),
        })?;
        let what = |kind: &HiddenItemKind| match kind {
            HiddenItemKind::Answer(tool) => format!("an output of {tool}"),
            HiddenItemKind::Format => "the schema of the reply".to_owned(),
            HiddenItemKind::Past => "what the agent did before".to_owned(),
            HiddenItemKind::System => "a system message".to_owned(),
            HiddenItemKind::Tool(tool) => format!("the description of {tool}"),
            HiddenItemKind::User => "a message of the user".to_owned(),
        };
        Ok(items
            .into_iter()
            // The cause is the name of a variant of `HidingCause`, such as `Unlabelled`.
            .map(|item| (what(&item.what), item.carries, format!("{:?}", item.cause)))
            .collect())
    }

    /// Withdraws the standing consents on these lines of the policy, and restores all others. Returns whether the set
    /// of withdrawn ones changed.
    fn withdraw_consents(&self, py: Python<'_>, lines: Vec<usize>) -> PyResult<bool> {
        let lines = lines.into_iter().collect();
        self.with(py, |conversation| conversation.withdraw_consents(&lines))
    }

    /// Withdraws the approvals that people have given for the rest of the conversation. Returns whether there were any.
    fn withdraw_grants(&self, py: Python<'_>) -> PyResult<bool> {
        self.with(py, Conversation::withdraw_grants)
    }

    /// Accepts the chat as a client holds it now: the body of its request to a provider, in the format `api`. The tools
    /// of the request are offered; their descriptions count as the operator's, except those of tools with the prefix of
    /// a server. Raises `ValueError` for a request that cannot be guarded or has too many tools. Raises `SessionError` if
    /// the session has no room; the tools and the sampling of the request may then be in effect already.
    #[pyo3(signature = (body, api="openai"))]
    fn accept_request(&self, py: Python<'_>, body: &Bound<'_, PyAny>, api: &str) -> PyResult<()> {
        let received = completion::read_request(body, completion::api(api)?)?;
        if received.request.tools.len() > MAX_TOOLS {
            return Err(PyValueError::new_err(format!(
                "the request has more than {MAX_TOOLS} tools: send only those that the agent needs"
            )));
        }
        let mut names = HashMap::new();
        let mut tools = Vec::new();
        for offered in &received.request.tools {
            let tool = self.tool_of(&offered.name);
            names.insert(tool.clone(), offered.name.clone());
            let described_by =
                if tool.server.is_some() { DescriptionAuthor::Server } else { DescriptionAuthor::Operator };
            let (description, parameters) = (offered.description.clone(), Arc::clone(&offered.parameters));
            tools.push(OfferedTool { tool, description, parameters, output: None, words: described_by });
        }
        let client_names = &self.names;
        let accepted = self.session.with(py, |state| {
            // A `Conversation` always has the state of one, so the other case does not occur.
            let State::Conversation(chat) = state else { return Ok(()) };
            let Chat { conversation, client, history } = &mut **chat;
            conversation.offer_tools(tools)?;
            // The client's names belong to the tools on offer, so they are replaced together with these tools.
            *client_names.lock().unwrap_or_else(PoisonError::into_inner) = names;
            conversation.set_sampling(received.request.sampling.clone());
            // `accept_messages` and `set_output_format` also return an upper bound on the bits that their work reveals
            // about remembered texts. The gateway reports these bits as a metric; the Python package has no metrics.
            let _summary = conversation.accept_messages(client, history, &received.request.messages)?;
            conversation.set_output_format(client, history, received.request.format).map(|_bits| ())
        })?;
        accepted.map_err(|error| errors::session_error(&error))
    }

    /// Returns a turn as the answer that the client of `accept_request` receives, as the provider would send it, and
    /// records that the client has received this answer. `id`, `model` and `created` (seconds since 1970) are the
    /// fields of the same names in the answer.
    #[pyo3(signature = (turn, api="openai", *, id="flowgate", model="", created=0))]
    fn respond<'py>(
        &self,
        py: Python<'py>,
        turn: &PyTurn,
        api: &str,
        id: &str,
        model: &str,
        created: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        // An unknown form is an error before the answer counts as received.
        let api = completion::api(api)?;
        let completion = self.answer(py, turn)?;
        completion::response_body(py, &completion, api, id, model, created)
    }

    /// Returns a turn as the answer that the client of `accept_request` receives, for a client that asked for a stream:
    /// the name and the data of each event. The client counts as having received it. The arguments are those of
    /// `respond`; with `usage`, the events include the number of tokens.
    #[pyo3(signature = (turn, api="openai", *, id="flowgate", model="", created=0, usage=false))]
    #[expect(clippy::too_many_arguments, reason = "they are keywords in Python")]
    fn respond_stream(
        &self,
        py: Python<'_>,
        turn: &PyTurn,
        api: &str,
        id: &str,
        model: &str,
        created: u64,
        usage: bool,
    ) -> PyResult<Vec<(String, String)>> {
        // An unknown form is an error before the answer counts as received.
        let api = completion::api(api)?;
        let completion = self.answer(py, turn)?;
        Ok(completion::response_events(&completion, api, id, model, created, usage))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let events = self.session.monitor(py, |monitor| monitor.trace().len())?;
        Ok(format!("Conversation({events} events)"))
    }
}

impl PyConversation {
    /// Runs `act` on the conversation, without the interpreter's lock.
    fn with<R: Send>(&self, py: Python<'_>, act: impl FnOnce(&mut Conversation) -> R + Send) -> PyResult<R> {
        need::conversation(py, &self.session, act)
    }

    /// Converts an added event, or raises `SessionError` if the conversation rejected it.
    fn to_py_event(&self, added: Result<EventId, flowgate::monitor::PushError>) -> PyResult<PyEvent> {
        let event = added.map_err(|error| errors::session_error(&error))?;
        Ok(PyEvent::new(&self.session, event, Vec::new()))
    }

    /// Returns the tool that a client calls by this name: a tool of a server if the name begins with one of the
    /// server's prefixes and continues after it, otherwise a tool of the agent itself.
    fn tool_of(&self, name: &str) -> Tool {
        // The server, and the name of the tool without the prefix.
        let found = self.prefixes.iter().find_map(|(prefix, server)| {
            Some((server, name.strip_prefix(prefix.as_str()).filter(|rest| !rest.is_empty())?))
        });
        found.map_or_else(|| Tool::local(name), |(server, rest)| Tool::of(server, rest))
    }

    /// Returns a turn as the answer for the client, with the names by which the client calls its tools. Records that
    /// the client has received this answer: the client's next request repeats the answer, which is then recognised.
    fn answer(&self, py: Python<'_>, turn: &PyTurn) -> PyResult<flowgate_lm::chat::Completion> {
        let completion = {
            let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            turn.completion(&|tool| names.get(tool).cloned().unwrap_or_else(|| tool.name.to_string()))
        };
        // The client's next request repeats this message; it is recorded in the form in which it will come back:
        // without the model's reasoning, which the client does not receive.
        let message = Message::Assistant {
            text: completion.text.clone(),
            calls: completion.calls.clone(),
            thoughts: Vec::new(),
        };
        self.session.with(py, |state| {
            if let State::Conversation(chat) = state {
                let Chat { conversation, client, history } = &mut **chat;
                conversation.record_answer(client, history, &message);
            }
        })?;
        Ok(completion)
    }
}

/// Reads the tools of a conversation, each a dict as the constructor of `Conversation` documents it. Raises
/// `ValueError` if there are more than [`MAX_TOOLS`], which bounds the time that each step spends on them.
fn offered_tools(tools: &[Bound<'_, PyAny>]) -> PyResult<Vec<OfferedTool>> {
    if tools.len() > MAX_TOOLS {
        return Err(PyValueError::new_err(format!(
            "`tools` has more than {MAX_TOOLS} tools: give only those that the agent needs"
        )));
    }
    tools.iter().enumerate().map(|(index, tool)| offered_tool(tool, index)).collect()
}

/// Reads one tool; `index` is its position in the list, for error messages. `None` as the value of a field means that
/// it is absent. Without `described_by`, the operator, who is trusted, has described the tool.
fn offered_tool(given: &Bound<'_, PyAny>, index: usize) -> PyResult<OfferedTool> {
    let given = given.cast::<PyDict>().map_err(|_| {
        PyTypeError::new_err(format!(
            "`tools[{index}]` is not a dict: pass a dict with `tool`, `description` and `parameters`"
        ))
    })?;
    // A field with the value `None` is absent.
    let field = |name: &str| given.get_item(name).map(|value| value.filter(|value| !value.is_none()));
    let Some(tool) = field("tool")? else {
        return Err(PyValueError::new_err(format!(
            "`tools[{index}]` has no `tool`: add the name of the tool"
        )));
    };
    let ToolArgument(tool) = tool.extract()?;
    let description = field("description")?.map(|text| text.extract()).transpose()?.unwrap_or_default();
    let parameters = field("parameters")?.map(|schema| values::to_json(&schema, "parameters")).transpose()?;
    let output = field("output")?.map(|schema| values::to_json(&schema, "output")).transpose()?;
    let author: Option<String> = field("described_by")?.map(|author| author.extract()).transpose()?;
    let described_by = match author.as_deref() {
        None | Some("operator") => DescriptionAuthor::Operator,
        Some("server") => DescriptionAuthor::Server,
        Some(_) => {
            return Err(PyValueError::new_err(format!(
                "`described_by` of `tools[{index}]` must be \"operator\" or \"server\""
            )));
        }
    };
    Ok(OfferedTool {
        tool,
        description,
        parameters: Arc::new(parameters.unwrap_or(Value::Null)),
        output,
        words: described_by,
    })
}
