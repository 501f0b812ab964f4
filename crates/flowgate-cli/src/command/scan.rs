//! Runs `flowgate scan`: lists the MCP servers and hooks that MCP clients have configured. It also lists the
//! combinations of servers by which a text of a stranger could make the client act or leak private data, as far as the
//! names of servers suggest. It starts nothing.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::args::{ScanArgs, ScanFormat};
use crate::clients::config_file::{ConfigText, ConfiguredServer, ConfiguredTransport, MAX_CONFIG};
use crate::clients::known_servers::{ServerTraits, guess};
use crate::clients::places::{ClientFile, McpClient, existing_files, home_folder};
use crate::escaping;
use crate::input::{InputError, bounded_text};
use crate::output::{Console, plural};

/// The maximum number of servers that a finding names in each group: servers that read text of strangers, servers
/// that read private data, and servers that act.
const MAX_NAMED: usize = 6;

/// The servers and hooks that one configuration file of a client has.
struct ScannedFile {
    file: ClientFile,
    /// The servers, each with what its names suggest that it does; `None` if they say nothing.
    servers: Vec<(ConfiguredServer, Option<ServerTraits>)>,
    /// The commands of its hooks.
    hooks: Vec<String>,
}

/// What the servers of one client can do together.
#[derive(Debug, PartialEq, Eq)]
struct Combination {
    kind: CombinationKind,
    /// The names of the unguarded servers that read strangers' text.
    strangers: Vec<String>,
    /// The names of the unguarded servers that read private data, and of the client if it does so itself.
    private: Vec<String>,
    /// The names of the unguarded servers that act, and of the client if it does so itself.
    acts: Vec<String>,
}

/// The harm that a stranger can do through the servers of one client together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CombinationKind {
    /// A text of a stranger can make the agent send private data.
    Leaks,
    /// A text of a stranger can make the agent act.
    IsSteered,
}

/// Runs `flowgate scan`: guesses what the servers of each client can do together. Returns 1 if a text of a stranger (an
/// untrusted party) can make a client leak private data or act, otherwise 0. A file that cannot be read is reported,
/// and does not end the command.
pub(crate) fn run(options: &ScanArgs, output: &mut Console) -> Result<u8, InputError> {
    let home = home_folder(options.home.as_deref())
        .filter(|home| home.is_dir())
        .ok_or_else(|| InputError("there is no home folder; name one with --home".to_owned()))?;
    let project = options.project.clone().unwrap_or_else(|| PathBuf::from("."));
    let mut scanned = Vec::new();
    for file in existing_files(&home, &project) {
        match scan_file(&file.path) {
            Ok((servers, hooks)) => scanned.push(ScannedFile { file, servers, hooks }),
            Err(error) => output.warning(&error.0),
        }
    }
    let mut clients: Vec<&'static McpClient> = Vec::new();
    for found in &scanned {
        if !clients.contains(&found.file.client) {
            clients.push(found.file.client);
        }
    }
    let combinations: Vec<(&'static McpClient, Combination)> = clients
        .iter()
        .filter_map(|client| {
            let files = scanned.iter().filter(|found| found.file.client == *client);
            Some((*client, combination(client, files)?))
        })
        .collect();
    match options.format {
        ScanFormat::Text => print_text(&scanned, &clients, &combinations, output),
        ScanFormat::Json => {
            let document = to_json(&scanned, &clients, &combinations);
            output.line(&serde_json::to_string_pretty(&document).unwrap_or_default());
        }
    }
    Ok(u8::from(!combinations.is_empty()))
}

/// The servers of a file, each with what its names suggest that it does, and the commands of the file's hooks.
type FileContent = (Vec<(ConfiguredServer, Option<ServerTraits>)>, Vec<String>);

/// Reads the servers of a file that are not switched off, each with what its names suggest that it does (`None` if
/// they say nothing), and the commands of its hooks.
fn scan_file(path: &Path) -> Result<FileContent, InputError> {
    let text = bounded_text(path, MAX_CONFIG)?;
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    let config = ConfigText::read(&text, is_toml)
        .map_err(|error| InputError(format!("{}: {error}", path.display())))?;
    let servers = config.servers().into_iter().filter(|server| !server.is_disabled);
    Ok((
        servers
            .map(|server| {
                let traits = guess(&server);
                (server, traits)
            })
            .collect(),
        config.hooks(),
    ))
}

/// Returns what the servers of a client that no `flowgate mcp` guards can do together; `None` if they can neither leak
/// nor be steered. They can be steered if one of them reads text of untrusted parties (strangers) and one acts. They can
/// leak if, in addition, one reads private data. A client with a hook of Flowgate is guarded as a whole. `files` are the
/// files of the client.
fn combination<'f>(
    client: &McpClient,
    files: impl Iterator<Item = &'f ScannedFile> + Clone,
) -> Option<Combination> {
    if files.clone().flat_map(|found| &found.hooks).any(|hook| is_flowgate_hook(hook)) {
        return None;
    }
    let unguarded = files.flat_map(|found| &found.servers).filter(|(server, _)| !server.is_guarded());
    let unguarded: Vec<_> = unguarded.collect();
    let named = |has: &dyn Fn(&ServerTraits) -> bool| -> Vec<String> {
        let with = unguarded.iter().filter(|(_, traits)| traits.as_ref().is_some_and(has));
        with.map(|(server, _)| server.name.clone()).collect()
    };
    let mut found = Combination {
        kind: CombinationKind::IsSteered,
        strangers: named(&|traits| traits.reads_strangers),
        private: named(&|traits| traits.reads_private),
        acts: named(&|traits| traits.acts),
    };
    if client.has_own_tools && !unguarded.is_empty() {
        // The client reads files and runs commands by itself.
        let own = || format!("{} itself", client.name);
        found.private.push(own());
        found.acts.push(own());
    }
    if !found.private.is_empty() {
        found.kind = CombinationKind::Leaks;
    }
    (!found.strangers.is_empty() && !found.acts.is_empty()).then_some(found)
}

/// Returns whether a command of a hook begins with `flowgate hook`, with or without the path of `flowgate`. A command
/// that runs it in another way, for example after variables of the environment, is not recognised.
fn is_flowgate_hook(command: &str) -> bool {
    let mut words = command.split_whitespace();
    let program = words.next().unwrap_or_default().trim_matches(['"', '\'']);
    let name = program.rsplit(['/', '\\']).next().unwrap_or_default();
    matches!(name, "flowgate" | "flowgate.exe") && words.next() == Some("hook")
}

/// Prints the servers and hooks of each file, and the combinations: what the servers of one client can do together.
/// `scanned` has the files of all `clients`, and `combinations` only the clients that can leak or be steered.
fn print_text(
    scanned: &[ScannedFile],
    clients: &[&'static McpClient],
    combinations: &[(&'static McpClient, Combination)],
    output: &mut Console,
) {
    for found in scanned.iter().filter(|found| !found.servers.is_empty() || !found.hooks.is_empty()) {
        let title = format!("{}  {}", found.file.client.name, found.file.path.display());
        let title = output.paint("1", &escaping::line(&title));
        output.line(&title);
        // `?` in a cell below means that the names of the server say nothing about it.
        let yes = |has: bool| if has { "yes" } else { "-" };
        let rows: Vec<Vec<String>> = found
            .servers
            .iter()
            .map(|(server, traits)| {
                let cell = |has: &dyn Fn(&ServerTraits) -> bool| {
                    traits.as_ref().map_or("?", |traits| yes(has(traits))).to_owned()
                };
                vec![
                    format!("  {}", escaping::excerpt(&server.name, 40)),
                    program(server),
                    cell(&|traits| traits.reads_strangers),
                    cell(&|traits| traits.reads_private),
                    cell(&|traits| traits.acts),
                    yes(server.is_guarded()).to_owned(),
                ]
            })
            .collect();
        if !rows.is_empty() {
            output
                .table(&["  server", "program", "strangers' text", "private data", "acts", "guarded"], &rows);
        }
        for hook in &found.hooks {
            let mark = if is_flowgate_hook(hook) { "guards" } else { "hook  " };
            // A hook can have a key in its command line: only its program is shown.
            output.line(&format!("  {mark} {}", escaping::excerpt(&hook_program(hook), 60)));
        }
        output.line("");
    }
    for (client, combination) in combinations {
        let mark = output.paint("33", "!");
        output.line(&format!("{mark} {}", sentence(client, combination)));
    }
    let count: usize = scanned.iter().map(|found| found.servers.len()).sum();
    let servers = scanned.iter().flat_map(|found| &found.servers);
    let (unknown, guarded) = (
        servers.clone().filter(|(_, traits)| traits.is_none()).count(),
        servers.filter(|(server, _)| server.is_guarded()).count(),
    );
    output.line(&format!(
        "{}, {}: {guarded} guarded; names say nothing about {unknown}, which may do anything",
        plural(clients.len(), "client"),
        plural(count, "server")
    ));
    if let Some((client, _)) = combinations.first() {
        output.line(&format!(
            "Next: `flowgate init FILE --start` drafts a policy; `flowgate wrap {} --policy policy.flow` puts the servers behind it",
            client.id
        ));
    }
}

/// Describes in one sentence what a stranger can make a client do through a combination of its tools: some return text of
/// strangers (`strangers`), some read private data (`private`), and some send or change something (`acts`).
fn sentence(client: &McpClient, combination: &Combination) -> String {
    let named = |names: &[String]| {
        let first: Vec<String> =
            names.iter().take(MAX_NAMED).map(|name| escaping::excerpt(name, 40)).collect();
        let more = names.len() - first.len();
        if more == 0 { first.join(", ") } else { format!("{}, and {more} more", first.join(", ")) }
    };
    let (strangers, acts) = (named(&combination.strangers), named(&combination.acts));
    match combination.kind {
        CombinationKind::Leaks => format!(
            "{} can leak: a text that a stranger wrote (by way of {strangers}) can make it send private data (of {}) away (by way of {acts})",
            client.name,
            named(&combination.private)
        ),
        CombinationKind::IsSteered => format!(
            "{} can be steered: a text that a stranger wrote (by way of {strangers}) can make it act (by way of {acts})",
            client.name
        ),
    }
}

/// Returns the program or the host of a server, without arguments, which can be secret, except the name of a package.
fn program(server: &ConfiguredServer) -> String {
    match &server.transport {
        ConfiguredTransport::Url(url) => {
            let host = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            let host = host.split(['/', '?', '#']).next().unwrap_or_default();
            // A user and a password before the host are left out.
            escaping::excerpt(host.rsplit('@').next().unwrap_or_default(), 40)
        }
        ConfiguredTransport::Unknown => "?".to_owned(),
        ConfiguredTransport::Command(_) => {
            let command = server.own_command().unwrap_or_default();
            let (program, arguments) =
                command.split_first().map_or(("", command), |(first, rest)| (first.as_str(), rest));
            let program = program.rsplit(['/', '\\']).next().unwrap_or_default();
            let starts_packages = matches!(program, "npx" | "uvx" | "bunx" | "pipx");
            let started = package(arguments).filter(|_| starts_packages);
            escaping::excerpt(
                &started.map_or_else(|| program.to_owned(), |package| format!("{program} {package}")),
                60,
            )
        }
    }
}

/// Returns the name of the package that a package runner such as `npx` starts; `None` if there is none that is
/// certainly a name. The argument after an unknown option is taken for its value, which can be a key, and is never
/// returned.
fn package(arguments: &[String]) -> Option<&str> {
    // Whether the next argument may be the value of an option.
    let mut is_value = false;
    for argument in arguments {
        let names_package = matches!(argument.as_str(), "-p" | "--package" | "--from");
        // Options without a value, and the subcommand of `pipx run NAME`.
        let is_flag = matches!(argument.as_str(), "-y" | "--yes" | "-q" | "--quiet" | "run");
        if argument.starts_with('-') || is_flag {
            is_value = !names_package && !is_flag && !argument.contains('=');
        } else if std::mem::take(&mut is_value) {
            // The value of an option.
        } else {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "@/._-".contains(c);
            // A longer text, or one with other characters, is not certainly a name.
            return Some(argument.as_str()).filter(|name| name.len() <= 80 && name.chars().all(is_plain));
        }
    }
    None
}

/// Returns the program of a hook, by a heuristic: the first word of its command without `=`. Words before it set
/// environment variables, whose values can be keys. The result is empty if a quotation mark is not closed, or if a
/// value may be a shell's substitution, which is not understood.
fn hook_program(command: &str) -> String {
    if command.contains('=') && command.contains(['$', '`']) {
        return String::new();
    }
    // Otherwise backslashes are those of Windows paths.
    let words = match command.contains(['"', '\'']) || command.contains("\\ ") {
        true => shlex::split(command).unwrap_or_default(),
        false => command.split_whitespace().map(str::to_owned).collect(),
    };
    words.into_iter().find(|word| !word.contains('=')).unwrap_or_default()
}

/// Returns the result as JSON. It has no arguments of servers and no commands of hooks, which can have keys. `scanned`
/// has the files of all `clients`, and `combinations` what the servers of one client can do together, for the clients
/// that can leak or be steered.
fn to_json(
    scanned: &[ScannedFile],
    clients: &[&'static McpClient],
    combinations: &[(&'static McpClient, Combination)],
) -> Value {
    let clients = clients.iter().map(|client| {
        let files = scanned.iter().filter(|found| found.file.client == *client).map(|found| {
            let servers = found.servers.iter().map(|(server, traits)| {
                json!({
                    "name": server.name,
                    "program": program(server),
                    "reads_strangers": traits.map(|traits| traits.reads_strangers),
                    "reads_private": traits.map(|traits| traits.reads_private),
                    "acts": traits.map(|traits| traits.acts),
                    "guarded": server.is_guarded(),
                })
            });
            json!({
                "path": found.file.path.display().to_string(),
                "servers": servers.collect::<Vec<_>>(),
                "hooks": found.hooks.len(),
                "guarded_by_hook": found.hooks.iter().any(|hook| is_flowgate_hook(hook)),
            })
        });
        let finding = combinations.iter().find(|(of, _)| of == client).map(|(_, combination)| {
            json!({
                "kind": match combination.kind { CombinationKind::Leaks => "leaks", CombinationKind::IsSteered => "steered" },
                "strangers": combination.strangers,
                "private": combination.private,
                "acts": combination.acts,
            })
        });
        json!({"client": client.id, "files": files.collect::<Vec<_>>(), "combination": finding})
    });
    json!({"clients": clients.collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_not_shown() {
        for (arguments, expected) in [
            ("-y @x/server-files /data", Some("@x/server-files")),
            ("--token S3CRET pkg", Some("pkg")),
            ("--token=S3CRET pkg", Some("pkg")),
            ("--from pkg tool", Some("pkg")),
            ("run pkg", Some("pkg")),
            ("-y a:b", None),
            ("--token S3CRET", None),
        ] {
            let words: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
            assert_eq!(package(&words), expected, "{arguments}");
        }
        for (command, program) in [
            ("KEY=S3CRET /bin/check --all", "/bin/check"),
            ("KEY=\"S3 CRET\" /bin/check", "/bin/check"),
            ("KEY='S3 CRET' '/my hooks/check' x", "/my hooks/check"),
            ("KEY=\"S3 CRET /bin/check", ""),
            ("KEY=S3\\ CRET /bin/check", "/bin/check"),
            ("KEY=$(cat secret key) /bin/check", ""),
            ("$HOME/hooks/check.sh x", "$HOME/hooks/check.sh"),
            ("C:\\hooks\\check.exe x", "C:\\hooks\\check.exe"),
            ("", ""),
        ] {
            assert_eq!(hook_program(command), program, "{command}");
        }
    }
}
