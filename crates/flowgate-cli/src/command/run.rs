//! Runs `flowgate run`: a chat in the terminal with a guarded agent that uses the tools of MCP servers. This file
//! builds the parts of the chat and connects them. The submodules:
//!
//! * `chat` runs the turns, and the commands of the person.
//! * `terminal` owns output, input and Ctrl-C; `activity_line` draws the line that shows the running activity.
//! * `approver` asks the person whether a call may run, and `question_card` writes the question.
//! * `grants` lists and withdraws what the person has allowed for the rest of the conversation.
//! * `observer` prints and saves what happens while a turn runs. It also notes in `observed_chat` where each event
//!   comes from, since the questions to the person state this.
//! * `models` chooses the models.
//! * `delegation` runs the agents to which the model delegates tasks.
//! * `cancellable_model` lets Ctrl-C stop a model.
//! * `notes` prints what the policy hides from the model.

mod activity_line;
mod approver;
mod cancellable_model;
mod chat;
mod delegation;
mod grants;
pub(super) mod models;
mod notes;
mod observed_chat;
mod observer;
mod question_card;
mod terminal;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use flowgate::monitor::{Monitor, PushError};
use flowgate::policy::Policy;
use flowgate::predicates::Predicates;
use flowgate_guard::OfferedTool;
use flowgate_guard::agent::Toolbox;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, ConversationSettings};

use crate::args::RunArgs;
use crate::escaping;
use crate::input::{InputError, describe_io_error, read_short_text};
use crate::mcp::{self, AsyncRuntime, McpServerHandle};
use crate::output::Console;
use crate::policy_file::load_policy;
use crate::stores::SharedStoreLabels;
use crate::trace_file::TraceFile;
use approver::TerminalApprover;
use cancellable_model::CancellableModel;
use chat::TerminalChat;
use delegation::{AgentSpec, DelegationContext};
use models::ChatModels;
use observed_chat::ObservedChat;
use observer::{ChatObserver, SharedChatState};
use question_card::CardWriter;
use terminal::ChatTerminal;

/// Creates empty monitors of the policy: for the chat, for each delegated task, and to find out what the policy hides.
type MonitorFactory = Arc<dyn Fn() -> Monitor + Send + Sync>;

/// Runs `flowgate run`: reads all files, starts the servers, creates the conversation, and prints what the policy
/// hides. Then runs the one turn whose prompt is on the command line or, without a prompt, the chat. Fails if the
/// policy hides the user's own messages. Returns the exit code of the last turn.
pub(crate) fn run(options: &RunArgs, output: &mut Console) -> Result<u8, InputError> {
    // All files are read before a server is started.
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let predicates = options.answering.predicates(&policy, &name)?;
    let models = ChatModels::of(options)?;
    let system = options.system.as_deref().map(read_instructions).transpose()?;
    // The MCP servers, and the agents to which the chat can delegate tasks.
    let (specs, members) = options.config.as_deref().map(read_servers).transpose()?.unwrap_or_default();
    // The trace of a chat has no limit of its own.
    let create = |path: &Path| TraceFile::create(path, usize::MAX).map_err(|error| file_error(path, &error));
    let trace = options.trace.as_deref().map(create).transpose()?;
    let stores = options.stores.as_deref().map(SharedStoreLabels::open).transpose()?.unwrap_or_default();

    let monitor = monitor_factory(options, &policy, predicates);
    let terminal = Arc::new(ChatTerminal::standard(output.err_color(), output.progress()));
    let runtime = start_runtime(&terminal)?;
    let started = start_servers(specs, call_limits(options), &runtime, &terminal)?;
    let (servers, tools): (Vec<Arc<McpServerHandle>>, Vec<Vec<OfferedTool>>) = started.into_iter().unzip();
    let running = mcp::ServersGuard { servers, runtime: Arc::clone(&runtime) };
    // The tools that the model is offered: those of the servers, and each agent as a tool.
    let mut offered = merge_tools(tools, &terminal);
    let mut toolbox = build_toolbox(&running.servers, &offered, &terminal);
    let shared = SharedChatState::new(stores);
    let delegation = DelegationContext {
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        monitor: Arc::clone(&monitor),
        method: options.method(),
        model: Arc::clone(&models.model),
        small: Arc::clone(&models.small),
        screener: Arc::clone(&models.screener),
        terminal: Arc::clone(&terminal),
        shared: shared.clone(),
        labels: options.labels,
    };
    add_agents(members, &delegation, &running.servers, &mut toolbox, &mut offered);

    // The conversation, with the labels of stores that other processes have saved.
    let settings = ConversationSettings {
        step_labels: options.step_labels(),
        ..ConversationSettings::new(options.method(), random_digest_key()?)
    };
    let mut session = monitor();
    let stores_version = shared.stores().recall(&mut session)?;
    let mut conversation = Conversation::new(session, offered, settings).map_err(cannot_begin)?;
    let notes = notes::PolicyNotes { policy: &policy, method: options.method() };
    notes.report_hidden_tools(&conversation, &terminal);
    if let Some(system) = system {
        add_instructions(system, &mut conversation, &notes, (&name, &monitor), &terminal)?;
    }
    refuse_hidden_user(options, &conversation, &notes, (&name, &monitor))?;

    // The chat at the terminal.
    let observed = Arc::new(ObservedChat::default());
    let person = TerminalApprover::new(CardWriter {
        terminal: Arc::clone(&terminal),
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        caller: "The model".to_owned(),
        chat: Arc::clone(&observed),
    });
    let mut observer = ChatObserver::new(Arc::clone(&terminal), options.labels, trace, shared, observed);
    observer.stores_version = stores_version;
    let cancellable =
        |model, what, steps| CancellableModel { model, terminal: Arc::clone(&terminal), what, steps };
    let mut chat = TerminalChat {
        conversation,
        policy: &policy,
        method: options.method(),
        writer: cancellable(models.model, "the model writes", Some(AtomicUsize::new(0))),
        screener: cancellable(models.screener, "the model screens", None),
        filler: cancellable(models.small, "the model fills a slot", None),
        tools: &toolbox,
        person,
        observer,
        terminal: &terminal,
    };
    Ok(match &options.prompt {
        Some(prompt) => chat.run_turn(prompt, output),
        None => chat.run(output),
    })
}

/// Returns a function that creates empty monitors of the policy with the parameters of the options. `predicates` answer
/// the extern predicates of the policy.
fn monitor_factory(options: &RunArgs, policy: &Arc<Policy>, predicates: Predicates) -> MonitorFactory {
    let parameters = options.parameters.iter().cloned().collect();
    let policy = Arc::clone(policy);
    Arc::new(move || {
        let mut monitor = Monitor::new(Arc::clone(&policy));
        monitor.set_parameters(&parameters);
        // The empty list: no answers of predicates were recorded before.
        monitor.set_predicates(predicates.clone(), Vec::new());
        monitor
    })
}

/// Starts the runtime of the servers' connections. From then on, the terminal handles Ctrl-C.
fn start_runtime(terminal: &Arc<ChatTerminal>) -> Result<Arc<AsyncRuntime>, InputError> {
    let runtime = AsyncRuntime::start().map_err(|error| {
        InputError(format!(
            "the threads for asynchronous work cannot be started: {error}; end other programs and try again"
        ))
    })?;
    let interrupted_terminal = Arc::clone(terminal);
    runtime.on_interrupt(move || interrupted_terminal.handle_interrupt());
    Ok(Arc::new(runtime))
}

/// Returns the limits of the options for the calls of servers. `--call-time` is in seconds, and `--max-answer` in MiB.
fn call_limits(options: &RunArgs) -> mcp::CallLimits {
    mcp::CallLimits {
        time: Duration::from_secs(u64::from(options.call_time)),
        answer: usize::try_from(options.max_answer).unwrap_or(usize::MAX).saturating_mul(1 << 20),
    }
}

/// Adds the agents `members` as tools: to `toolbox`, which runs their tasks, and to `offered`. An agent may call those
/// tools of `offered` that its entry in the configuration permits. It cannot call another agent, because the agents are
/// added to `offered` last.
fn add_agents(
    members: Vec<AgentSpec>,
    delegation: &DelegationContext,
    servers: &[Arc<McpServerHandle>],
    toolbox: &mut Toolbox,
    offered: &mut Vec<OfferedTool>,
) {
    let agents: Vec<OfferedTool> = members.iter().map(AgentSpec::to_offered_tool).collect();
    for member in members {
        let (delegation, own) = (delegation.clone(), member.allowed_tools(offered));
        let tools = build_toolbox(servers, &own, &delegation.terminal);
        toolbox.add(member.to_offered_tool().tool, move |call: flowgate::monitor::AuthorizedCall| {
            delegation.run_task(&member, &tools, &own, &call)
        });
    }
    offered.extend(agents);
}

/// Returns the key of the digests in a conversation. It is random, so that digests do not reveal guessable texts.
fn random_digest_key() -> Result<DigestKey, InputError> {
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key).map_err(|error| {
        InputError(format!(
            "the random generator of the operating system failed, so the conversation has no key: {error}; try again"
        ))
    })?;
    Ok(DigestKey::new(key))
}

/// Returns the error for a conversation that cannot take its first events, for example since it has no room for them.
#[expect(clippy::needless_pass_by_value, reason = "`map_err` passes the error by value")]
fn cannot_begin(error: PushError) -> InputError {
    InputError(format!("the chat cannot begin: {error}"))
}

/// Adds the operator's instructions `system` to the conversation. If the policy hides them from the steps at the base
/// label, also prints the statement that would show them. `name` is the policy's file; `monitor` creates the empty
/// monitor in which `notes` tries whether the policy hides the instructions.
fn add_instructions(
    system: String,
    conversation: &mut Conversation,
    notes: &notes::PolicyNotes<'_>,
    (name, monitor): (&str, &MonitorFactory),
    terminal: &ChatTerminal,
) -> Result<(), InputError> {
    if let Some(statement) = notes.suggest_statement(monitor(), "system", &system, conversation) {
        terminal.note(&format!(
            "the policy hides the instructions of --system from the steps at the base label; to show them, add to {name}\n{statement}"
        ));
    }
    conversation.add_system_message(system.into()).map_err(cannot_begin)?;
    Ok(())
}

/// Fails if the policy hides the user's own messages from the steps at the base label: the agent could then do nothing
/// useful. The error has the statement that would show them. `name` is the policy's file; `monitor` creates the empty
/// monitor in which `notes` tries whether the policy hides a message.
fn refuse_hidden_user(
    options: &RunArgs,
    conversation: &Conversation,
    notes: &notes::PolicyNotes<'_>,
    (name, monitor): (&str, &MonitorFactory),
) -> Result<(), InputError> {
    // The first message of a chat is not known yet. Policies usually label messages by role, so the label of any text
    // shows whether the user's messages are hidden.
    let first = options.prompt.as_deref().unwrap_or("Hello!");
    match notes.suggest_statement(monitor(), "user", first, conversation) {
        None => Ok(()),
        Some(statement) => Err(InputError(format!(
            "the policy hides the user's own messages from the model; to show them, add to {name}\n{statement}"
        ))),
    }
}

/// Returns an I/O error as a message with the name of the file.
fn file_error(path: &Path, error: &std::io::Error) -> InputError {
    InputError(format!("{}: {}", path.display(), describe_io_error(error)))
}

/// Returns the operator's instructions: text, or `@` and the file that has them.
fn read_instructions(text: &str) -> Result<String, InputError> {
    match text.strip_prefix('@') {
        Some(path) => read_short_text(Path::new(path)),
        None => Ok(text.to_owned()),
    }
}

/// Reads the servers in the file of `--config`, and the agents to which the chat can delegate tasks. Relative paths in
/// the file start at its folder.
fn read_servers(path: &Path) -> Result<(Vec<mcp::McpServerSpec>, Vec<AgentSpec>), InputError> {
    let text = read_short_text(path)?;
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let read = mcp::read(&text, &folder.unwrap_or_default(), &|name| std::env::var(name).ok());
    let wrong = |problem: String| InputError(format!("{}: {problem}", path.display()));
    let specs = read.map_err(wrong)?;
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let members = delegation::read_agents(&text, &names).map_err(wrong)?;
    Ok((specs, members))
}

/// Starts the servers while the terminal shows the activity; Ctrl-C cancels the start. If servers cannot be started,
/// prints all errors but the last one, and returns the last one, which the caller prints.
fn start_servers(
    specs: Vec<mcp::McpServerSpec>,
    limits: mcp::CallLimits,
    runtime: &Arc<AsyncRuntime>,
    terminal: &Arc<ChatTerminal>,
) -> Result<mcp::StartedServers, InputError> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let waiting = Arc::clone(terminal);
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    // `is_cancelled` is true only within a turn, so the start counts as one.
    terminal.begin_turn();
    let working = terminal.show_activity(format!("starting {}", names.join(", ")));
    let started = mcp::start(specs, limits, runtime, &move || waiting.is_cancelled());
    // Ends the line of the activity.
    drop(working);
    terminal.end_turn();
    started.map_err(|mut errors| {
        let last = errors.pop().unwrap_or_default();
        for error in &errors {
            terminal.error(error);
        }
        InputError(last)
    })
}

/// Returns the tools of all servers, each once. If a server lists a tool twice, prints a note and uses the first
/// description.
fn merge_tools(tools: Vec<Vec<OfferedTool>>, terminal: &ChatTerminal) -> Vec<OfferedTool> {
    let mut offered = Vec::<OfferedTool>::new();
    for tool in tools.into_iter().flatten() {
        if offered.iter().any(|known| known.tool == tool.tool) {
            let name = escaping::line(&tool.tool.to_string());
            terminal.note(&format!("the server lists the tool {name} twice; the first description is used"));
        } else {
            offered.push(tool);
        }
    }
    offered
}

/// Returns a toolbox with a function for each of the tools `offered`, which sends a call to the tool's server. Tools
/// that belong to none of `servers` are left out.
fn build_toolbox(
    servers: &[Arc<McpServerHandle>],
    offered: &[OfferedTool],
    terminal: &Arc<ChatTerminal>,
) -> Toolbox {
    let mut toolbox = Toolbox::new();
    for OfferedTool { tool, .. } in offered {
        let Some(server) = servers.iter().find(|server| tool.server.as_deref() == Some(server.name())) else {
            continue;
        };
        let (server, terminal, what) =
            (Arc::clone(server), Arc::clone(terminal), escaping::line(&tool.to_string()));
        toolbox.add(tool.clone(), move |call: flowgate::monitor::AuthorizedCall| {
            let working = terminal.show_activity(format!("{what} runs"));
            let answer = server.call(&call, &|| terminal.is_cancelled(), &|remark| terminal.note(remark));
            // Ends the line of the activity.
            drop(working);
            answer
        });
    }
    toolbox
}
