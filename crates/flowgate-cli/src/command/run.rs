//! `flowgate run`: a chat in the terminal with a guarded agent that uses the tools of MCP servers.

mod approver;
mod chat;
mod notes;
mod patient;
mod shell;
mod team;
mod trace;
mod waiting;
mod watch;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate_guard::Offered;
use flowgate_guard::agent::Toolbox;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{Conversation, Settings};
use flowgate_lm::recorded::{FileError, Mode};
use flowgate_lm::{Complete, Recorded, Remote};

use crate::args::RunArgs;
use crate::input::{InputError, policy_source, reason};
use crate::mcp::{self, Runtime, Server};
use crate::output::{Output, load_policy};
use crate::stores::Stores;
use crate::visible;
use approver::{Person, Sources};
use chat::Chat;
use patient::Patient;
use shell::Shell;
use team::{Desk, Member};
use trace::TraceFile;
use watch::{Shared, Watch};

/// Runs the command; returns the exit code.
pub(crate) fn run(options: &RunArgs, output: &mut Output) -> Result<u8, InputError> {
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let predicates = options.answering.predicates(&policy, &name)?;
    let small = options.small_model.as_ref().map(|small| model(options, Some(small))).transpose()?;
    let model = model(options, options.model.as_ref())?;
    let small = small.unwrap_or_else(|| Arc::clone(&model));
    let system = options.system.as_deref().map(system).transpose()?;
    let (specs, members) = options.config.as_deref().map(servers).transpose()?.unwrap_or_default();
    let trace =
        options.trace.as_deref().map(|path| TraceFile::create(path).map_err(|error| at(path, &error)));
    let trace = trace.transpose()?;
    let stores = options.stores.as_deref().map(Stores::open).transpose()?.unwrap_or_default();

    let parameters = options.parameters.iter().cloned().collect();
    let judging = Arc::clone(&policy);
    let monitor: Arc<dyn Fn() -> Monitor + Send + Sync> = Arc::new(move || {
        let mut monitor = Monitor::new(Arc::clone(&judging));
        monitor.set_parameters(&parameters);
        monitor.set_predicates(predicates.clone(), Vec::new());
        monitor
    });
    let shell = Arc::new(Shell::standard(output.err_color(), output.progress()));
    let runtime =
        Runtime::start().map_err(|error| InputError(format!("no thread can be started: {error}")))?;
    let runtime = Arc::new(runtime);
    let listening = Arc::clone(&shell);
    runtime.on_interrupt(move || listening.interrupted());
    let limits = mcp::Limits {
        time: Duration::from_secs(u64::from(options.call_time)),
        answer: usize::try_from(options.max_answer).unwrap_or(usize::MAX).saturating_mul(1 << 20),
    };
    let started = start(specs, limits, &runtime, &shell)?;
    let (servers, tools): (Vec<Arc<Server>>, Vec<Vec<Offered>>) = started.into_iter().unzip();
    let mut offered = listed(tools, &shell);
    let mut toolbox = tools_of(&servers, &offered, &shell);
    let shared = Shared::new(stores);
    let desk = Desk {
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        monitor: Arc::clone(&monitor),
        method: options.method(),
        model: Arc::clone(&model),
        small: Arc::clone(&small),
        shell: Arc::clone(&shell),
        shared: shared.clone(),
        labels: options.labels,
    };
    let agents: Vec<Offered> = members.iter().map(Member::offered).collect();
    for member in members {
        let (desk, own) = (desk.clone(), member.tools(&offered));
        let tools = tools_of(&servers, &own, &shell);
        toolbox.add(member.offered().tool, move |call: flowgate::monitor::Authorized| {
            desk.run(&member, &tools, &own, &call)
        });
    }
    offered.extend(agents);

    let mut key = [0_u8; 32];
    getrandom::fill(&mut key)
        .map_err(|error| InputError(format!("the system's random generator failed: {error}")))?;
    let settings = Settings::new(options.method(), DigestKey::new(key));
    let full = |error| InputError(format!("the session cannot start: {error}"));
    let mut session = monitor();
    let knows = shared.stores().recall(&mut session)?;
    let mut conversation = Conversation::new(session, offered, settings).map_err(full)?;
    let source = policy_source(&options.policy)?;
    let notes = notes::Notes { policy: &policy, source: &source, method: options.method() };
    notes.hidden_tools(&conversation, &shell);
    if let Some(system) = &system {
        if let Some(statement) = notes.hidden_message(monitor(), "system", system, &conversation) {
            shell.note(&format!(
                "the policy hides the instructions of --system from the lowest steps; to show them, add to {name}\n{statement}"
            ));
        }
        conversation.system(system.clone().into()).map_err(full)?;
    }
    let first = options.prompt.as_deref().unwrap_or("Hello!");
    if let Some(statement) = notes.hidden_message(monitor(), "user", first, &conversation) {
        mcp::end(&servers, &runtime);
        return Err(InputError(format!(
            "the policy hides the user's own messages from the model; add to {name}\n{statement}"
        )));
    }

    let sources = Sources::default();
    let person = Person {
        shell: Arc::clone(&shell),
        policy: Arc::clone(&policy),
        name: name.as_str().into(),
        who: "The model".to_owned(),
        sources: Arc::clone(&sources),
    };
    let mut watch = Watch::new(Arc::clone(&shell), options.labels, trace, shared, sources);
    watch.knows = knows;
    let mut chat = Chat {
        conversation,
        policy: &policy,
        method: options.method(),
        writer: Patient {
            model,
            shell: Arc::clone(&shell),
            what: "the model writes",
            steps: Some(AtomicUsize::new(0)),
        },
        screener: Patient {
            model: Arc::clone(&small),
            shell: Arc::clone(&shell),
            what: "the model screens",
            steps: None,
        },
        filler: Patient {
            model: small,
            shell: Arc::clone(&shell),
            what: "the model fills a slot",
            steps: None,
        },
        tools: &toolbox,
        person,
        watch,
        shell: &shell,
    };
    let code = match &options.prompt {
        Some(prompt) => chat.turn(prompt, output),
        None => chat.talk(output),
    };
    mcp::end(&servers, &runtime);
    Ok(code)
}

/// Returns the model of this name, or its recorded answers.
fn model(options: &RunArgs, name: Option<&String>) -> Result<Arc<dyn Complete>, InputError> {
    let remote = match (name, &options.url) {
        (Some(model), Some(url)) => {
            let remote = Remote::new(options.api(), url, model)
                .map_err(|error| InputError(format!("--url {url}: {error}")))?;
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
            None => recorded_name(path, name.map_or("", String::as_str))?,
        };
        let recorded = Recorded::replay(&name, path);
        return Ok(Arc::new(recorded.map_err(|error| unrecorded(path, &error))?));
    }
    let Some(remote) = remote else {
        return Err(InputError(
            "the model is missing: name it with --model and its server with --url, such as --url http://localhost:8080/v1"
                .to_owned(),
        ));
    };
    match &options.record {
        Some(path) => {
            let recorded = Recorded::open(remote, path, Mode::Record);
            Ok(Arc::new(recorded.map_err(|error| unrecorded(path, &error))?))
        }
        None => Ok(Arc::new(remote)),
    }
}

fn key(variable: &str) -> Result<String, InputError> {
    std::env::var(variable).map_err(|_| {
        InputError(format!(
            "--key-from: the variable {variable} is not set; set it to the key of the model's server"
        ))
    })
}

/// Returns the full name, with the address, of the model whose answers a file contains: each answer has it.
fn recorded_name(path: &Path, name: &str) -> Result<String, InputError> {
    let text = std::fs::read_to_string(path).map_err(|error| at(path, &error))?;
    let lines = text.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let mut names = lines.filter_map(|line| line.get("model")?.as_str().map(str::to_owned));
    let is_meant = |known: &String| name.is_empty() || known.split(" at ").next() == Some(name);
    names.find(is_meant).ok_or_else(|| {
        let whose = if name.is_empty() { String::new() } else { format!(" of {name}") };
        InputError(format!(
            "{}: it contains no recorded answers{whose}; record some with --record",
            path.display()
        ))
    })
}

/// Returns why a file of answers cannot be used; a missing file is reported in the same words as any other.
fn unrecorded(path: &Path, error: &FileError) -> InputError {
    let missing = std::io::ErrorKind::NotFound;
    match error {
        FileError::Io(why) if *why == missing.to_string() => at(path, &missing.into()),
        error => InputError(format!("{}: {error}", path.display())),
    }
}

fn at(path: &Path, error: &std::io::Error) -> InputError {
    InputError(format!("{}: {}", path.display(), reason(error)))
}

/// Returns the operator's instructions: text, or `@` and the file that has them.
fn system(text: &str) -> Result<String, InputError> {
    match text.strip_prefix('@') {
        Some(path) => policy_source(Path::new(path)),
        None => Ok(text.to_owned()),
    }
}

fn servers(path: &Path) -> Result<(Vec<mcp::Spec>, Vec<Member>), InputError> {
    let text = policy_source(path)?;
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let read = mcp::read(&text, &folder.unwrap_or_default(), &|name| std::env::var(name).ok());
    let wrong = |problem: String| InputError(format!("{}: {problem}", path.display()));
    let specs = read.map_err(wrong)?;
    let names: Vec<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    let members = team::read(&text, &names).map_err(wrong)?;
    Ok((specs, members))
}

fn start(
    specs: Vec<mcp::Spec>,
    limits: mcp::Limits,
    runtime: &Arc<Runtime>,
    shell: &Arc<Shell>,
) -> Result<mcp::Started, InputError> {
    if specs.is_empty() {
        return Ok(Vec::new());
    }
    let waiting = Arc::clone(shell);
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    shell.begin_turn();
    let working = shell.working(format!("starting {}", names.join(", ")));
    let started = mcp::start(specs, limits, runtime, &move || waiting.is_cancelled());
    drop(working);
    shell.end_turn();
    started.map_err(|mut errors| {
        let last = errors.pop().unwrap_or_default();
        for error in &errors {
            shell.error(error);
        }
        InputError(last)
    })
}

/// Returns the tools of all servers, each once.
fn listed(tools: Vec<Vec<Offered>>, shell: &Shell) -> Vec<Offered> {
    let mut offered = Vec::<Offered>::new();
    for tool in tools.into_iter().flatten() {
        if offered.iter().any(|known| known.tool == tool.tool) {
            let name = visible::line(&tool.tool.to_string());
            shell.note(&format!("{name} is listed twice; the first description is used"));
        } else {
            offered.push(tool);
        }
    }
    offered
}

/// Returns the functions that run these tools.
fn tools_of(servers: &[Arc<Server>], offered: &[Offered], shell: &Arc<Shell>) -> Toolbox {
    let mut toolbox = Toolbox::new();
    for Offered { tool, .. } in offered {
        let Some(server) = servers.iter().find(|server| tool.server.as_deref() == Some(server.name())) else {
            continue;
        };
        let (server, shell, what) = (Arc::clone(server), Arc::clone(shell), visible::line(&tool.to_string()));
        toolbox.add(tool.clone(), move |call: flowgate::monitor::Authorized| {
            let working = shell.working(format!("{what} runs"));
            let answer = server.call(&call, &|| shell.is_cancelled(), &|remark| shell.note(remark));
            drop(working);
            answer
        });
    }
    toolbox
}

/// Returns whether the policy with this statement added is valid.
fn parses(source: &str, statement: &str) -> bool {
    Policy::parse(&format!("{source}\n{statement}\n")).is_ok()
}
