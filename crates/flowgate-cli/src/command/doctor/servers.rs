//! Examines the MCP servers of an MCP client, for `flowgate doctor`: whether each server's program exists, and whether
//! the server runs behind `flowgate mcp` with a policy that can be used. Adds what it finds to the findings that
//! `doctor` prints. `hooks` examines the hooks of the same files.

use std::path::{Path, PathBuf};

use super::guard_policy::load;
use super::{Findings, hooks, report_policy};
use crate::clients::config_file::{ConfigText, ConfiguredServer, ConfiguredTransport, MAX_CONFIG};
use crate::clients::hooks::{are_switched_off, hooks_of};
use crate::clients::places::{CLIENTS, McpClient, find_client, home_folder};
use crate::clients::wrapping::{guarded_command, is_watching, option};
use crate::escaping;
use crate::input::{InputError, bounded_text};

/// Examines the servers and hooks in `file`, if it is given, and in the files of the client with the id `client`, if it is
/// given. The files of a client are those in the home folder, those of the project and, if the options name no `home`,
/// those for all users; files that do not exist are skipped. Adds the results to `findings`.
///
/// # Errors
/// If there is no such client, no home folder, or a file cannot be read.
pub(super) fn examine(
    client: Option<&str>,
    file: Option<&Path>,
    (home, project): (Option<&Path>, &Path),
    findings: &mut Findings,
) -> Result<(), InputError> {
    // The files to examine, each with whether it belongs to the project alone. A file that the options name is not
    // taken for one of the project.
    let mut paths: Vec<(PathBuf, bool)> = file.map(|file| (file.to_owned(), false)).into_iter().collect();
    let mut examined: Option<&'static McpClient> = None;
    if let Some(client) = client {
        let known: Vec<&str> = CLIENTS.iter().map(|known| known.id).collect();
        let found = find_client(client).ok_or_else(|| {
            InputError(format!(
                "there is no client `{}`; the known clients are: {}",
                escaping::excerpt(client, 40),
                known.join(", ")
            ))
        })?;
        let home_path = home_folder(home)
            .ok_or_else(|| InputError("there is no home folder; name one with --home".to_owned()))?;
        let existing = existing_files(found, home, &home_path, project);
        examined = Some(found);
        if existing.is_empty() {
            findings.wrong(format!(
                "{} has no configuration in {} or in the project; name its file with --file",
                found.name,
                home_path.display()
            ));
        }
        paths.extend(existing);
    }
    let mut hooks = hooks::FoundHooks::default();
    for (path, is_of_project) in paths {
        let text = bounded_text(&path, MAX_CONFIG)?;
        let is_toml = path.extension().is_some_and(|extension| extension == "toml");
        match ConfigText::read(&text, is_toml) {
            Err(error) => findings.wrong(format!("{}: {error}", path.display())),
            Ok(config) => {
                for server in config.servers().iter().filter(|server| !server.is_disabled) {
                    examine_server(server, &path, findings);
                }
                let root = config.to_value();
                hooks.add((&path, is_of_project), hooks_of(&root), are_switched_off(&root));
            }
        }
    }
    hooks.examine(examined, findings);
    Ok(())
}

/// Returns the existing files of a client, each with whether it belongs to the project alone: those in the home folder
/// `home_path`, those for all users unless the options name a home folder (`named_home`), and those of the project.
fn existing_files(
    client: &McpClient,
    named_home: Option<&Path>,
    home_path: &Path,
    project: &Path,
) -> Vec<(PathBuf, bool)> {
    let of_system = client.system_files(Path::new("/")).filter(|_| named_home.is_none());
    let of_user = client.home_files(home_path).into_iter().chain(of_system).map(|path| (path, false));
    let of_project = client.project_files(project).map(|path| (path, true));
    let mut existing: Vec<(PathBuf, bool)> = Vec::new();
    for (path, is_of_project) in of_user.chain(of_project) {
        // If the project is the home folder, its files are those of the user.
        let is_new = |path: &Path| existing.iter().all(|(known, _)| !is_same_file(known, path));
        if path.is_file() && is_new(&path) {
            existing.push((path, is_of_project));
        }
    }
    existing
}

/// Returns whether two paths of existing files lead to the same file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => one == other,
    }
}

/// Examines one server of the file at `path`: whether its program exists, and whether it runs behind `flowgate mcp`
/// with a policy that names its tools.
fn examine_server(server: &ConfiguredServer, path: &Path, findings: &mut Findings) {
    let name = format!("{}: {}", path.display(), escaping::excerpt(&server.name, 40));
    let command = match &server.transport {
        ConfiguredTransport::Command(command) => command,
        ConfiguredTransport::Url(_) => {
            findings.wrong(format!(
                "{name} is not guarded: it has an address; put it behind `flowgate serve` (docs/mcp.md)"
            ));
            return;
        }
        ConfiguredTransport::Unknown => {
            findings.wrong(format!(
                "{name} needs either `command`, with strings as its `args`, or an address; correct its entry"
            ));
            return;
        }
    };
    // The program that the client starts, and the server itself if that is `flowgate mcp`.
    let mut programs: Vec<&String> =
        command.first().into_iter().chain(server.own_command().and_then(<[String]>::first)).collect();
    programs.dedup();
    for program in programs {
        if !is_program(program) {
            findings.wrong(format!(
                "{name}: there is no program `{}`; install it, or write its path",
                escaping::excerpt(program, 60)
            ));
        }
    }
    if guarded_command(command).is_some() && is_watching(command) {
        findings.wrong(format!(
            "{name} only watches: nothing is stopped; remove `--watch` to enforce the policy"
        ));
        return;
    }
    if !server.is_guarded() {
        findings.wrong(format!("{name} is not guarded; `flowgate wrap` puts it behind `flowgate mcp`"));
        return;
    }
    match option(command, "--policy") {
        None => findings.wrong(format!(
            "{name} has no --policy, so it does not start; run `flowgate unwrap`, then `flowgate wrap`"
        )),
        Some(policy) => examine_guard(&name, server, Path::new(policy), option(command, "--name"), findings),
    }
}

/// Examines the policy at `path` that guards a server. `name` is the server in messages, `policy_name` the value of
/// `--name`, by which the policy refers to it.
fn examine_guard(
    name: &str,
    server: &ConfiguredServer,
    path: &Path,
    policy_name: Option<&str>,
    findings: &mut Findings,
) {
    if path.is_relative() {
        findings.wrong(format!(
            "{name}: the path of its policy is relative, so it depends on the folder in which the client runs; write the absolute path"
        ));
    }
    let policy = match load(path) {
        Err(why) => return findings.wrong(format!("{name} does not start: {why}")),
        Ok(policy) => policy,
    };
    report_policy(&policy, &path.display().to_string(), path, findings);
    let called = policy_name.unwrap_or(&server.name);
    // A pattern without a server, or with `*`, can also mean this server.
    let is_named = policy
        .named_tools()
        .iter()
        .any(|tool| tool.server.as_deref().is_none_or(|named| named == called || named.contains('*')));
    if is_named {
        findings.right(format!("{name} is guarded by {}", path.display()));
    } else {
        findings.wrong(format!("{name}: its policy names no tool of `{called}`, so all of them are closed; name them in its statements as tool:{called}/NAME"));
    }
}

/// Returns whether a program exists: by its path, or in the search path of this process.
fn is_program(program: &str) -> bool {
    if program.contains(['/', '\\']) {
        return Path::new(program).is_file();
    }
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|folder| {
        // On Windows, a command line can name a program without its ending.
        ["", ".exe", ".cmd", ".bat"].iter().any(|end| folder.join(format!("{program}{end}")).is_file())
    })
}
