//! Runs `flowgate run`: a chat in the terminal with a guarded agent that uses the tools of MCP servers. This file
//! builds the parts of the chat and connects them.
//!
//! * `chat` runs the turns, and the commands of the person.
//! * `terminal` owns output, input and Ctrl-C; `activity_line` draws the line that shows the running activity.
//! * `approver` asks the person whether a call may run.
//! * `observer` prints and saves what happens while a turn runs.
//! * `delegation` runs the agents to which the model delegates tasks.
//! * `cancellable_model` lets Ctrl-C stop a model.
//! * `notes` prints what the policy hides from the model.

mod activity_line;
mod approver;
mod cancellable_model;
mod chat;
mod delegation;
mod notes;
mod observer;
mod terminal;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use flowgate::monitor::Monitor;
use flowgate_guard::OfferedTool;
use flowgate_guard::agent::Toolbox;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, ConversationSettings};
use flowgate_lm::recorded::{AnswerFileError, RecordingMode};
use flowgate_lm::{ChatModel, RecordedModel, RemoteModel};

use crate::args::RunArgs;
use crate::escaping;
use crate::input::{InputError, describe_io_error, read_short_text};
use crate::mcp::{self, AsyncRuntime, McpServerHandle};
use crate::output::Console;
use crate::policy_file::load_policy;
use crate::stores::SharedStoreLabels;
use crate::trace_file::TraceFile;
use approver::{EventSources, TerminalApprover};
use cancellable_model::CancellableModel;
use chat::TerminalChat;
use delegation::{AgentSpec, DelegationContext};
use observer::{ChatObserver, SharedChatState};
use terminal::ChatTerminal;

/// Runs `flowgate run`: reads all files, starts the servers, creates the conversation, notes what the policy hides, and
/// runs the chat or the one turn of the command line. Fails if the policy hides the user's own messages. Returns the
/// exit code of the last turn.
pub(crate) fn run(options: &RunArgs, output: &mut Console) -> Result<u8, InputError> {
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let predicates = options.answering.predicates(&policy, &name)?;
    // The small model screens, and fills slots; without one, the model itself does.
    let small = options.small_model.as_ref().map(|small| model(options, Some(small))).transpose()?;
    let model = model(options, options.model.as_ref())?;
    let small = small.unwrap_or_else(|| Arc::clone(&model));
    let screener = screener(options, &small)?;
    let system = options.system.as_deref().map(read_instructions).transpose()?;
    // The MCP servers, and the agents to which the chat can delegate tasks.
    let (specs, members) = options.config.as_deref().map(read_servers).transpose()?.unwrap_or_default();
    let trace = options
        .trace
        .as_deref()
        // The trace of a chat has no limit of its own.
        .map(|path| TraceFile::create(path, usize::MAX).map_err(|error| file_error(path, &error)));
    let trace = trace.transpose()?;
    let stores = options.stores.as_deref().map(SharedStoreLabels::open).transpose()?.unwrap_or_default();

    let parameters = options.parameters.iter().cloned().collect();
    let monitor_policy = Arc::clone(&policy);
    // Creates an empty monitor: for this chat, for each delegated task, and to try something out.
    let monitor: Arc<dyn Fn() -> Monitor + Send + Sync> = Arc::new(move || {
        let mut monitor = Monitor::new(Arc::clone(&monitor_policy));
        monitor.set_parameters(&parameters);
        // The empty list: no answers of predicates were recorded before.
        monitor.set_predicates(predicates.clone(), Vec::new());
        monitor
    });
    let terminal = Arc::new(ChatTerminal::standard(output.err_color(), output.progress()));
    let runtime = AsyncRuntime::start().map_err(|error| {
        InputError(format!(
            "the threads for asynchronous work cannot be started: {error}; end other programs and try again"
        ))
    })?;
    let runtime = Arc::new(runtime);
    let interrupted_terminal = Arc::clone(&terminal);
    runtime.on_interrupt(move || interrupted_terminal.handle_interrupt());
    let limits = mcp::CallLimits {
        time: Duration::from_secs(u64::from(options.call_time)),
        answer: usize::try_from(options.max_answer).unwrap_or(usize::MAX).saturating_mul(1 << 20),
    };
    // The tools that the model is offered: those of the servers, and each agent as a tool.
    let started = start_servers(specs, limits, &runtime, &terminal)?;
    let (servers, tools): (Vec<Arc<McpServerHandle>>, Vec<Vec<OfferedTool>>) = started.into_iter().unzip();
    let running = mcp::ServersGuard { servers, runtime: Arc::clone(&runtime) };
    let mut offered = merge_tools(tools, &terminal);
    let mut toolbox = build_toolbox(&running.servers, &offered, &terminal);
    let shared = SharedChatState::new(stores);
    let delegation = DelegationContext {
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        monitor: Arc::clone(&monitor),
        method: options.method(),
        model: Arc::clone(&model),
        small: Arc::clone(&small),
        screener: Arc::clone(&screener),
        terminal: Arc::clone(&terminal),
        shared: shared.clone(),
        labels: options.labels,
    };
    let agents: Vec<OfferedTool> = members.iter().map(AgentSpec::to_offered_tool).collect();
    for member in members {
        let (delegation, own) = (delegation.clone(), member.allowed_tools(&offered));
        let tools = build_toolbox(&running.servers, &own, &terminal);
        toolbox.add(member.to_offered_tool().tool, move |call: flowgate::monitor::AuthorizedCall| {
            delegation.run_task(&member, &tools, &own, &call)
        });
    }
    offered.extend(agents);

    // The key of the digests in this conversation. It is random, so that digests do not reveal guessable texts.
    let mut key = [0_u8; 32];
    getrandom::fill(&mut key)
        .map_err(|error| InputError(format!("the random generator of the operating system failed, so the conversation has no key: {error}; try again")))?;
    let settings = ConversationSettings {
        step_labels: options.step_labels(),
        ..ConversationSettings::new(options.method(), DigestKey::new(key))
    };
    let cannot_begin = |error| InputError(format!("the chat cannot begin: {error}"));
    // The conversation, with what other processes stored of the labels of stores.
    let mut session = monitor();
    let stores_version = shared.stores().recall(&mut session)?;
    let mut conversation = Conversation::new(session, offered, settings).map_err(cannot_begin)?;
    let notes = notes::PolicyNotes { policy: &policy, method: options.method() };
    notes.report_hidden_tools(&conversation, &terminal);
    if let Some(system) = &system {
        if let Some(statement) = notes.suggest_statement(monitor(), "system", system, &conversation) {
            terminal.note(&format!(
                "the policy hides the instructions of --system from the lowest steps; to show them, add to {name}\n{statement}"
            ));
        }
        conversation.add_system_message(system.clone().into()).map_err(cannot_begin)?;
    }
    // Policies usually label messages by role, so any other text shows as well whether the user's messages are hidden.
    let first = options.prompt.as_deref().unwrap_or("Hello!");
    if let Some(statement) = notes.suggest_statement(monitor(), "user", first, &conversation) {
        return Err(InputError(format!(
            "the policy hides the user's own messages from the model; add to {name}\n{statement}"
        )));
    }

    // The chat at the terminal.
    let sources = EventSources::default();
    let person = TerminalApprover {
        terminal: Arc::clone(&terminal),
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        caller: "The model".to_owned(),
        sources: Arc::clone(&sources),
        repeated: Vec::new(),
        announced: Vec::new(),
    };
    let mut observer = ChatObserver::new(Arc::clone(&terminal), options.labels, trace, shared, sources);
    observer.stores_version = stores_version;
    let mut chat = TerminalChat {
        conversation,
        policy: &policy,
        method: options.method(),
        writer: CancellableModel {
            model,
            terminal: Arc::clone(&terminal),
            what: "the model writes",
            steps: Some(AtomicUsize::new(0)),
        },
        screener: CancellableModel {
            model: screener,
            terminal: Arc::clone(&terminal),
            what: "the model screens",
            steps: None,
        },
        filler: CancellableModel {
            model: small,
            terminal: Arc::clone(&terminal),
            what: "the model fills a slot",
            steps: None,
        },
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

/// Returns the model that screens: the small model, or one that reads the attention of a local model (`--screener`)
/// after the small model has written a preliminary message.
#[cfg(feature = "local")]
fn screener(options: &RunArgs, small: &Arc<dyn ChatModel>) -> Result<Arc<dyn ChatModel>, InputError> {
    let Some(folder) = &options.screener else { return Ok(Arc::clone(small)) };
    if options.method() != flowgate_guard::conversation::Method::Judge {
        return Err(InputError(
            "--screener needs --method judge: other methods ask no model which regions are needed".to_owned(),
        ));
    }
    crate::attention_screener::load(folder, Arc::clone(small))
}

/// Returns the model that screens: the small model. Without the feature `local` there is no other.
#[cfg(not(feature = "local"))]
#[expect(clippy::unnecessary_wraps, reason = "with the feature `local` it can fail")]
fn screener(_options: &RunArgs, small: &Arc<dyn ChatModel>) -> Result<Arc<dyn ChatModel>, InputError> {
    Ok(Arc::clone(small))
}

/// Returns the model with this name at the address of the options: the remote model, one that also records its answers
/// (`--record`), or one that replays recorded answers without a server (`--replay`).
///
/// # Errors
/// If the address, the key or the file of answers cannot be used, or if the options name no model and `--replay` is not
/// given.
fn model(options: &RunArgs, name: Option<&String>) -> Result<Arc<dyn ChatModel>, InputError> {
    let remote = match (name, &options.url) {
        (Some(model), Some(url)) => {
            let remote = RemoteModel::new(options.api, url, model)
                .map_err(|error| InputError(format!("--url {url}: {error}")))?
                // Each message repeats the chat so far.
                .prompt_caching(true);
            Some(match &options.key_from {
                Some(variable) => {
                    remote.key(key(variable)?.trim()).map_err(|error| InputError(error.to_string()))?
                }
                None => remote,
            })
        }
        _ => None,
    };
    if let Some(path) = &options.replay {
        let name = match remote {
            Some(remote) => remote.name().to_owned(),
            // With an empty name, the first model of the file.
            None => recorded_name(path, name.map_or("", String::as_str))?,
        };
        let recorded = RecordedModel::replay(&name, path);
        return Ok(Arc::new(recorded.map_err(|error| recording_error(path, &error))?));
    }
    let Some(remote) = remote else {
        return Err(InputError(
            "the command line names no model: name it with `--model` and its server with `--url`, such as \
            `--url http://localhost:8080/v1`"
                .to_owned(),
        ));
    };
    match &options.record {
        Some(path) => {
            let recorded = RecordedModel::open(remote, path, RecordingMode::Record);
            Ok(Arc::new(recorded.map_err(|error| recording_error(path, &error))?))
        }
        None => Ok(Arc::new(remote)),
    }
}

/// Returns the key of a model's server from an environment variable. A value that is not valid UTF-8 counts as not set.
pub(super) fn key(variable: &str) -> Result<String, InputError> {
    std::env::var(variable).map_err(|_| {
        InputError(format!(
            "`--key-from`: the environment variable {variable} is not set; set it to the key of the model \
            server"
        ))
    })
}

/// Finds the model `name` among those whose answers a file contains, and returns its full name there, `NAME at
/// ADDRESS`. With an empty `name`, finds the first model of the file.
fn recorded_name(path: &Path, name: &str) -> Result<String, InputError> {
    let text = std::fs::read_to_string(path).map_err(|error| file_error(path, &error))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut names = lines.filter_map(|line| line.get("model")?.as_str().map(str::to_owned));
    // The names in the file have the form `NAME at ADDRESS`.
    let is_meant = |known: &String| name.is_empty() || known.split(" at ").next() == Some(name);
    names.find(is_meant).ok_or_else(|| {
        let whose = if name.is_empty() { String::new() } else { format!(" of {name}") };
        InputError(format!(
            "{}: the file contains no recorded answers{whose}; record some with `--record`",
            path.display()
        ))
    })
}

/// Returns why a file of answers cannot be used. A missing file gets the same message as any other missing file. The
/// error has only a text, by which this case is recognised.
fn recording_error(path: &Path, error: &AnswerFileError) -> InputError {
    let missing = std::io::ErrorKind::NotFound;
    match error {
        AnswerFileError::Io(why) if *why == missing.to_string() => file_error(path, &missing.into()),
        error => InputError(format!("{}: {error}", path.display())),
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

/// Starts the servers while the terminal shows the activity; Ctrl-C cancels the start. If a server cannot be
/// started, prints all errors but the last, which it returns, because the caller prints that one.
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
