//! Starts the servers of a scan to list their tools, for `flowgate scan --start`. A server is started only after a
//! person has seen its command line or its address and said yes, or with `--yes`. Every server is ended again, also
//! after an error and after Ctrl-C.

use std::io::{IsTerminal as _, stderr, stdin};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flowgate::draft::{DescribedTool, DraftOptions, ToolEffect, ToolTraits, draft_policy};

use super::{ScannedFile, ScannedServer, ScannedTool, ServerTools};
use crate::args::ScanArgs;
use crate::clients::known_servers;
use crate::clients::known_tools::{self, GuessedTraits};
use crate::clients::packages::folder_variable;
use crate::escaping;
use crate::input::InputError;
use crate::mcp::{self, AsyncRuntime, McpServerSpec};
use crate::output::Console;
use crate::typed_lines::{self, TypedLines};

/// The most servers that run at the same time.
const MAX_RUNNING: usize = 8;
/// The longest command line or address that a person can be asked about, in characters. Of a longer one, the decisive
/// part could be out of sight.
const MAX_LAUNCH: usize = 2_000;

/// A server to start, with all entries of the configurations that configure it. A server of several clients is started
/// once.
struct ServerLaunch {
    spec: McpServerSpec,
    /// The command line or the address of the server, as the person is shown it.
    shown: String,
    /// The entries: the index of the file, and the index of the server in the file.
    entries: Vec<(usize, usize)>,
}

/// Checks that there is a terminal at which a person can be asked.
///
/// # Errors
/// If there is none.
pub(super) fn check_terminal() -> Result<(), InputError> {
    if stdin().is_terminal() && stderr().is_terminal() {
        return Ok(());
    }
    Err(InputError(
        "there is no terminal at which the command can ask before it starts a server: run the command at a terminal, or \
         read the configurations and add --yes, which starts all servers"
            .to_owned(),
    ))
}

/// Asks for each server whether to start it, starts the accepted servers, and writes their tools into `files`, or the
/// reason why there are none. Returns false if Ctrl-C has stopped the listing; all servers have been ended then.
///
/// # Errors
/// If the system can start no thread.
pub(super) fn list_tools(
    files: &mut [ScannedFile],
    options: &ScanArgs,
    output: &mut Console,
) -> Result<bool, InputError> {
    let launches = launches(files);
    // The standard input is read only if there are questions.
    let lines = (!options.yes && !launches.is_empty()).then(TypedLines::start_reading);
    let mut accepted = Vec::new();
    for launch in launches {
        let names = names(files, &launch);
        match accepts(&names, &launch, lines.as_ref(), output) {
            Ok(()) => accepted.push(launch),
            Err(why) => set_tools(files, &launch, &Err(why)),
        }
    }
    let runtime = AsyncRuntime::start().map_err(|error| {
        InputError(format!("the system can start no thread: {error}; end other programs and try again"))
    })?;
    // From here on, Ctrl-C stops the servers before the program ends.
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&is_stopped);
    runtime.on_interrupt(move || stopped.store(true, Ordering::Relaxed));
    let runtime = Arc::new(runtime);
    let limit = Duration::from_secs(u64::from(options.seconds));
    for some in accepted.chunks(MAX_RUNNING) {
        if is_stopped.load(Ordering::Relaxed) {
            break;
        }
        let specs = some.iter().map(|launch| launch.spec.clone()).collect();
        let listed = mcp::list_tools(specs, limit, &runtime, &|| is_stopped.load(Ordering::Relaxed));
        // The answers have the order of the requests.
        for (launch, (_, tools)) in some.iter().zip(listed) {
            set_tools(files, launch, &tools);
        }
    }
    Ok(!is_stopped.load(Ordering::Relaxed))
}

/// Returns the servers of all files that can be started, each once. For a server that cannot be started, writes the
/// reason into `files`.
fn launches(files: &mut [ScannedFile]) -> Vec<ServerLaunch> {
    let mut launches: Vec<ServerLaunch> = Vec::new();
    for (file, found) in files.iter_mut().enumerate() {
        let path = found.file.path.clone();
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        for (server, scanned) in found.servers.iter_mut().enumerate() {
            let entry = scanned.server.usual_entry(&found.content);
            // The names of servers can be any text, so the started ones are numbered.
            let name = format!("s{}", launches.len());
            let read =
                |variable: &dyn Fn(&str) -> Option<String>| mcp::read_entry(&name, &entry, &folder, variable);
            // Each entry is read twice: with the values of its variables, to start the server, and in the form that a
            // person is shown. There, a variable of the environment is `${NAME}`, since its value can be a secret.
            let environment = |name: &str| std::env::var(name).ok();
            let value_of = |name: &str| folder_variable(&path, name).or_else(|| environment(name));
            let shown_value_of = |name: &str| {
                folder_variable(&path, name).or_else(|| environment(name).map(|_| format!("${{{name}}}")))
            };
            match (read(&value_of), read(&shown_value_of)) {
                (Ok(spec), Ok(shown)) => {
                    match launches.iter_mut().find(|other| other.spec.is_reached_like(&spec)) {
                        Some(same) => same.entries.push((file, server)),
                        None => launches.push(ServerLaunch {
                            spec,
                            shown: shown.launch(),
                            entries: vec![(file, server)],
                        }),
                    }
                }
                (Err(why), _) | (_, Err(why)) => scanned.tools = ServerTools::Unlisted(why),
            }
        }
    }
    launches
}

/// Returns the names of a server in the configurations, each with its client, for a person.
fn names(files: &[ScannedFile], launch: &ServerLaunch) -> String {
    let names = launch.entries.iter().filter_map(|(file, server)| {
        let found = files.get(*file)?;
        let name = &found.servers.get(*server)?.server.name;
        Some(format!("{} of {}", escaping::excerpt(name, 40), found.file.client.name))
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Shows the command line or the address of a server, and asks the person whether to start it. `lines` are the lines
/// that the person types; `None` with `--yes`: then the answer is yes.
///
/// # Errors
/// If the person does not say yes, or cannot be shown everything: the reason, a clause whose subject is the server.
fn accepts(
    names: &str,
    launch: &ServerLaunch,
    lines: Option<&TypedLines>,
    output: &mut Console,
) -> Result<(), String> {
    let Some(lines) = lines else {
        output.note(&format!("starting {names}: {}", launch.shown));
        return Ok(());
    };
    if launch.shown.chars().count() > MAX_LAUNCH {
        return Err("was not started: its command line or address is too long to be shown; read its configuration, and use --yes".to_owned());
    }
    let question = format!("{names}\n    {}\nStart it to list its tools? [y/N] ", launch.shown);
    match lines.ask_beside_result(&question, output) {
        Some(line) if typed_lines::is_yes(&line) => Ok(()),
        _ => Err("was not started, as you said".to_owned()),
    }
}

/// Writes the tools of a server, or why there are none, into all entries that configure it.
fn set_tools(files: &mut [ScannedFile], launch: &ServerLaunch, tools: &Result<Vec<DescribedTool>, String>) {
    for (file, server) in &launch.entries {
        let Some(scanned) = files.get_mut(*file).and_then(|found| found.servers.get_mut(*server)) else {
            continue;
        };
        match tools {
            Err(why) => scanned.tools = ServerTools::Unlisted(why.clone()),
            Ok(tools) => set_listed(scanned, tools),
        }
    }
}

/// Writes the tools that a server has listed into its entry, with what they suggest that the server does.
fn set_listed(scanned: &mut ScannedServer, tools: &[DescribedTool]) {
    let of_server = known_servers::guess(&scanned.server);
    // The draft of a policy says which descriptions resemble instructions.
    let suspicious = draft_policy(tools, DraftOptions::default()).suspicious;
    let tools: Vec<ScannedTool> = tools
        .iter()
        .map(|tool| {
            // `true`: the server's own claim that a tool only reads counts.
            let traits = ToolTraits::of(tool, true);
            ScannedTool {
                name: tool.tool.name.to_string(),
                effect: match traits.effect {
                    ToolEffect::Reads => "reads",
                    ToolEffect::Acts => "acts",
                    ToolEffect::Destroys => "destroys",
                    ToolEffect::Unknown => "?",
                },
                traits: known_tools::guess(tool, &traits, of_server),
                is_suspicious: suspicious.contains(&tool.tool),
            }
        })
        .collect();
    scanned.traits = GuessedTraits::of_all(&tools.iter().map(|tool| tool.traits).collect::<Vec<_>>());
    scanned.tools = ServerTools::Listed(tools);
}
