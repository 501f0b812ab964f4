//! Runs `flowgate scan`: lists the MCP servers and hooks that MCP clients have configured. Also lists the dangerous
//! combinations, in which the servers of one client together let a text of a stranger make the client act or leak
//! private data. What a server does is guessed from its name or, with `--start`, from its tools. The result also says
//! which servers and tools of each client bypass Flowgate.
//!
//! * `listing` asks whether to start each server, and lists the tools. Without `--start`, nothing is started.
//! * `result` prints the result, as text or as JSON.
//! * `programs` shortens command lines, which can contain keys, to what may be shown.

mod listing;
mod programs;
mod result;

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::args::{ScanArgs, ScanFormat};
use crate::clients::config_file::{ConfigText, ConfiguredServer, MAX_CONFIG};
use crate::clients::hooks::{self, ConfiguredHook, HookEffect};
use crate::clients::known_servers;
use crate::clients::known_tools::GuessedTraits;
use crate::clients::packages::{self, InstalledPackages, UnreadPackage};
use crate::clients::places::{
    CLIENTS, ClientFile, FileScope, McpClient, SearchedFolders, existing_files, home_folder,
};
use crate::input::{InputError, bounded_text};
use crate::output::Console;
use crate::progress::INTERRUPTED;

/// The servers and hooks that one configuration file of a client has.
struct ScannedFile {
    file: ClientFile,
    servers: Vec<ScannedServer>,
    hooks: Vec<ConfiguredHook>,
    /// Whether the file switches hooks off.
    switches_hooks_off: bool,
    /// Whether this file or another one of the client switches the hooks of this file off.
    hooks_are_off: bool,
    /// The whole content of the file.
    content: Value,
}

/// A server that is not switched off.
struct ScannedServer {
    server: ConfiguredServer,
    /// What its tools or, if they are not known, its names suggest that it does.
    traits: GuessedTraits,
    tools: ServerTools,
}

/// What is known of the tools of a server.
enum ServerTools {
    /// The scan starts no servers (no `--start`).
    NotRequested,
    /// The scan has no list of the server's tools, for this reason: a clause whose subject is the server.
    Unlisted(String),
    Listed(Vec<ScannedTool>),
}

/// A tool that a server has listed. All texts are those of the server.
#[derive(Debug, Clone)]
struct ScannedTool {
    name: String,
    /// What a draft of a policy says that it does: `reads`, `acts`, `destroys` or `?`.
    effect: &'static str,
    traits: GuessedTraits,
    /// Whether its description resembles an instruction to the model, or has hidden characters.
    is_suspicious: bool,
}

/// What the servers of one client can do together.
#[derive(Debug, PartialEq, Eq)]
struct Combination {
    kind: CombinationKind,
    /// The names of the unguarded servers that read strangers' text, with those of their tools if they are known.
    strangers: Vec<String>,
    /// The names of the unguarded servers that read private data, and of the client if it does so itself.
    private: Vec<String>,
    /// The names of the unguarded servers that act, and of the client if it does so itself.
    acts: Vec<String>,
}

/// The part of a client that its hooks of Flowgate guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HookCover {
    /// Nothing, since the client has no hook of Flowgate.
    NoHook,
    /// Nothing, although the client has a hook of Flowgate: it only watches, for example.
    Gap,
    /// What the client does in the project of the scan.
    Project,
    /// Everything that the client does.
    Everywhere,
}

/// The parts of a client that neither `flowgate mcp` nor a hook of Flowgate guards.
#[derive(Debug, PartialEq, Eq)]
struct Bypass {
    /// Whether the client reads files and runs commands by itself.
    has_own_tools: bool,
    /// What its hooks guard.
    cover: HookCover,
    /// The names of its servers that no `flowgate mcp` guards.
    servers: Vec<String>,
}

/// The harm that a stranger can do through the servers of one client together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CombinationKind {
    /// A text of a stranger can make the agent send private data.
    Leaks,
    /// A text of a stranger can make the agent act.
    IsSteered,
}

/// All that was found. `files` has the files of all `clients`, `combinations` only the clients that can leak or be
/// steered, and `bypasses` those of which something bypasses Flowgate.
struct ScanResult {
    files: Vec<ScannedFile>,
    clients: Vec<&'static McpClient>,
    combinations: Vec<(&'static McpClient, Combination)>,
    bypasses: Vec<(&'static McpClient, Bypass)>,
    /// What could not be read, so that its servers and hooks are not known.
    unread: Vec<UnreadPackage>,
    /// Whether servers were to be started.
    has_started: bool,
}

/// Runs `flowgate scan`: guesses what the servers of each client can do together. Returns 1 if a text of a stranger (an
/// untrusted party) can make a client leak private data or act, or if a file, a plug-in or an extension could not be
/// read, otherwise 0, and [`INTERRUPTED`] if Ctrl-C has stopped the servers. What cannot be read is reported, and does
/// not end the command.
///
/// # Errors
/// If there is no home folder; or with `--start`, if no thread can be started, or there is no terminal at which to ask
/// (unless `--yes` is given).
pub(crate) fn run(options: &ScanArgs, output: &mut Console) -> Result<u8, InputError> {
    if options.start && !options.yes {
        // Without a terminal, the command fails here, before anything is read or started.
        listing::check_terminal()?;
    }
    let home = home_folder(options.home.as_deref())
        .filter(|home| home.is_dir())
        .ok_or_else(|| InputError("there is no home folder; name one with --home".to_owned()))?;
    let project = options.project.clone().unwrap_or_else(|| PathBuf::from("."));
    let (mut files, mut unread) = (Vec::new(), Vec::new());
    // The files for all users of this machine are not read for another home folder, which may be of another machine.
    let own_root = options.home.is_none().then(|| Path::new("/"));
    let root = options.root.as_deref().or(own_root);
    let configured = existing_files(SearchedFolders { home: &home, project: &project, root });
    scan_files(configured, &mut files, &mut unread, output);
    // The contents of Claude Code's settings files, which say what plug-ins are switched on. If several files have a
    // setting, the last file in this order decides.
    let settings = files.iter().filter(|found| found.file.client.id == "claude-code");
    let settings: Vec<(FileScope, &Value)> =
        settings.map(|found| (found.file.scope, &found.content)).collect();
    let installed = [packages::plugins(&home, &project, &settings), packages::extensions(&home)];
    for InstalledPackages { files: of_packages, unread: left_out } in installed {
        unread.extend(left_out);
        scan_files(of_packages, &mut files, &mut unread, output);
    }
    apply_hook_switches(&mut files);
    if options.start && !listing::list_tools(&mut files, options, output)? {
        output.error("Ctrl-C has stopped the servers, so there is no result");
        return Ok(INTERRUPTED);
    }
    let clients = clients_of(&files);
    let (mut combinations, mut bypasses) = (Vec::new(), Vec::new());
    for client in &clients {
        let files = files.iter().filter(|found| found.file.client == *client);
        combinations.extend(combination(client, files.clone()).map(|found| (*client, found)));
        bypasses.extend(bypass(client, files).map(|found| (*client, found)));
    }
    let result = ScanResult { files, clients, combinations, bypasses, unread, has_started: options.start };
    match options.format {
        ScanFormat::Text => result::print_text(&result, output),
        ScanFormat::Json => {
            let document = result::to_json(&result);
            output.line(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
    }
    Ok(u8::from(!result.combinations.is_empty() || !result.unread.is_empty()))
}

/// Returns the clients of these files, each once, in the order of [`CLIENTS`].
fn clients_of(files: &[ScannedFile]) -> Vec<&'static McpClient> {
    let mut clients: Vec<&'static McpClient> = Vec::new();
    for found in files {
        if !clients.contains(&found.file.client) {
            clients.push(found.file.client);
        }
    }
    clients.sort_by_key(|client| CLIENTS.iter().position(|known| known == *client));
    clients
}

/// Reads the files at `paths`, and adds their servers and hooks to `files`. A file that cannot be read is added to
/// `unread`, with a warning.
fn scan_files(
    paths: Vec<ClientFile>,
    files: &mut Vec<ScannedFile>,
    unread: &mut Vec<UnreadPackage>,
    output: &mut Console,
) {
    for file in paths {
        let (client, name) = (file.client, format!("file {}", file.path.display()));
        match scan_file(file) {
            Ok(found) => files.push(found),
            Err(error) => {
                output.warning(&error.0);
                unread.push(UnreadPackage { client, name, why: "cannot be read".to_owned() });
            }
        }
    }
}

/// Reads a configuration file: its hooks, and the servers that are not switched off, each with what the names of the server
/// suggest that the server does. Fails if the file cannot be read or parsed.
fn scan_file(file: ClientFile) -> Result<ScannedFile, InputError> {
    let path: &Path = &file.path;
    let text = bounded_text(path, MAX_CONFIG)?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let config = ConfigText::read(&text, is_toml)
        .map_err(|error| InputError(format!("{}: {error}", path.display())))?;
    let servers = config.servers().into_iter().filter(|server| !server.is_disabled);
    let servers = servers.map(|server| {
        let traits = known_servers::guess(&server).into();
        ScannedServer { server, traits, tools: ServerTools::NotRequested }
    });
    let (servers, content) = (servers.collect(), config.to_value());
    let (hooks, switches_hooks_off) = (hooks::hooks_of(&content), hooks::are_switched_off(&content));
    // `apply_hook_switches` also applies the switches of other files.
    Ok(ScannedFile { file, servers, hooks, switches_hooks_off, hooks_are_off: switches_hooks_off, content })
}

/// Applies the switches of all files: if a file of the user or of a project switches hooks off, the hooks of both are off
/// for its client, but not the hooks for all users. A file for all users switches off its own hooks.
fn apply_hook_switches(files: &mut [ScannedFile]) {
    let is_system = |found: &ScannedFile| found.file.scope == FileScope::System;
    let switches = files.iter().filter(|found| found.switches_hooks_off && !is_system(found));
    let clients: Vec<&'static McpClient> = switches.map(|found| found.file.client).collect();
    for found in files.iter_mut().filter(|found| !is_system(found)) {
        found.hooks_are_off = clients.contains(&found.file.client);
    }
}

impl ScannedFile {
    /// Returns what a hook of this file does for the protection of the client.
    fn effect_of(&self, hook: &ConfiguredHook) -> HookEffect {
        hook.effect(self.file.client.hook)
    }

    /// Returns whether a hook of the file judges every call before it runs, and is not switched off.
    fn has_guard(&self) -> bool {
        !self.hooks_are_off && self.hooks.iter().any(|hook| self.effect_of(hook) == HookEffect::Guards)
    }

    /// Returns whether Flowgate guards a server of this file. `cover` says what the hooks of the file's client guard.
    fn is_guarded(&self, server: &ConfiguredServer, cover: HookCover) -> bool {
        let by_hook = match cover {
            HookCover::NoHook | HookCover::Gap => false,
            HookCover::Project => self.file.scope == FileScope::Project,
            HookCover::Everywhere => true,
        };
        by_hook || server.is_guarded()
    }
}

impl ScannedServer {
    /// Returns the names that a [`Combination`] lists for one trait, such as *reads private data*. `has` returns whether
    /// traits include the trait (`None`: not known). If the tools of this server are known, the names are `SERVER/TOOL`
    /// for each tool that certainly has the trait. Otherwise, the name is that of the server, if its names suggest the
    /// trait; with `--start`, a mark says that this is only a guess.
    fn names_with(&self, has: &dyn Fn(&GuessedTraits) -> Option<bool>) -> Vec<String> {
        let name = &self.server.name;
        let is_certain = |traits: &GuessedTraits| has(traits) == Some(true);
        match &self.tools {
            ServerTools::Listed(tools) => {
                let with = tools.iter().filter(|tool| is_certain(&tool.traits));
                with.map(|tool| format!("{name}/{}", tool.name)).collect()
            }
            _ if !is_certain(&self.traits) => Vec::new(),
            ServerTools::NotRequested => vec![name.clone()],
            ServerTools::Unlisted(_) => vec![format!("{name} (by its name)")],
        }
    }
}

/// Returns what the hooks in these files of a client guard.
fn hook_cover<'f>(files: &(impl Iterator<Item = &'f ScannedFile> + Clone)) -> HookCover {
    // The files with a hook that judges every call and is not switched off.
    let guarding_files = || files.clone().filter(|found| found.has_guard());
    let has_flowgate_hook =
        |found: &ScannedFile| found.hooks.iter().any(|hook| found.effect_of(hook) != HookEffect::NotFlowgate);
    if guarding_files().any(|found| found.file.scope != FileScope::Project) {
        HookCover::Everywhere
    } else if guarding_files().next().is_some() {
        HookCover::Project
    } else if files.clone().any(has_flowgate_hook) {
        HookCover::Gap
    } else {
        HookCover::NoHook
    }
}

/// Returns the parts of a client that bypass Flowgate; `None` if there are none. `files` are the files of the client.
fn bypass<'f>(client: &McpClient, files: impl Iterator<Item = &'f ScannedFile> + Clone) -> Option<Bypass> {
    let cover = hook_cover(&files);
    let servers = unguarded(cover, files).into_iter().map(|found| found.server.name.clone()).collect();
    let has_own_tools = client.has_own_tools && cover != HookCover::Everywhere;
    let found = Bypass { has_own_tools, cover, servers };
    (found.has_own_tools || !found.servers.is_empty()).then_some(found)
}

/// Returns the servers in these files of a client that neither `flowgate mcp` nor a hook guards. `cover` is what the
/// hooks guard.
fn unguarded<'f>(cover: HookCover, files: impl Iterator<Item = &'f ScannedFile>) -> Vec<&'f ScannedServer> {
    let of_file = |file: &'f ScannedFile| {
        file.servers.iter().filter(move |found| !file.is_guarded(&found.server, cover))
    };
    files.flat_map(of_file).collect()
}

/// Returns what the unguarded servers of a client can do together; `None` if they can neither leak nor be steered. They
/// can be steered if one of them reads text of untrusted parties (strangers) and one acts. They can leak if, in addition,
/// one reads private data. The client's own tools count as well. `files` are the files of the client.
fn combination<'f>(
    client: &McpClient,
    files: impl Iterator<Item = &'f ScannedFile> + Clone,
) -> Option<Combination> {
    let unguarded = unguarded(hook_cover(&files), files);
    let named = |has: &dyn Fn(&GuessedTraits) -> Option<bool>| -> Vec<String> {
        unguarded.iter().flat_map(|found| found.names_with(has)).collect()
    };
    let mut found = Combination {
        kind: CombinationKind::IsSteered,
        strangers: named(&|traits| traits.reads_strangers),
        private: named(&|traits| traits.reads_private),
        acts: named(&|traits| traits.acts),
    };
    if client.has_own_tools && !unguarded.is_empty() {
        // The client reads files and runs commands by itself. If all servers are guarded, no text of a stranger comes
        // in, so the client's own tools need not be named.
        let own = || format!("{} itself", client.name);
        found.private.push(own());
        found.acts.push(own());
    }
    if !found.private.is_empty() {
        found.kind = CombinationKind::Leaks;
    }
    (!found.strangers.is_empty() && !found.acts.is_empty()).then_some(found)
}
