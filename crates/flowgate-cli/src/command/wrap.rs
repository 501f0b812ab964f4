//! Runs `flowgate wrap` and `flowgate unwrap`. `wrap` changes the configuration of an MCP client so that the client's
//! servers run behind `flowgate mcp`, and `unwrap` changes the configuration back. Only the command lines of servers
//! change. `wrap` first writes a backup of the file to the same folder. `clients` parses and edits the configurations.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::args::{ClientArgs, WrapArgs};
use crate::clients::config_file::{ConfigText, ConfiguredServer, MAX_CONFIG};
use crate::clients::edit::{ServerChange, is_equivalent, unwrap_change, with_commands, wrap_change};
use crate::clients::places::{CLIENTS, find_client, home_folder};
use crate::clients::wrapping::{WrapSettings, absolute};
use crate::escaping;
use crate::input::{InputError, bounded_text, describe_io_error};
use crate::output::{Console, plural};
use crate::policy_file::load_policy;

/// The end of the name of a backup.
const BACKUP: &str = ".flowgate-backup";
/// The maximum number of backups of one file.
const MAX_BACKUPS: usize = 100;

/// Runs `flowgate wrap`: changes a client's file so that its servers run behind `flowgate mcp`, after writing a
/// backup. With `--dry-run`, changes nothing. Returns 1 if a server cannot be wrapped, otherwise 0.
///
/// # Errors
/// If the policy does not compile, the folder of the session does not exist, or a configuration file cannot be read,
/// changed or written.
pub(crate) fn wrap(options: &WrapArgs, output: &mut Console) -> Result<u8, InputError> {
    // A policy that does not compile would stop the servers.
    load_policy(&options.policy, output)?;
    // `flowgate mcp` creates the file of `--session`, but not its folder.
    if let Some(session) = options.session.as_deref()
        && session.parent().is_some_and(|folder| !folder.as_os_str().is_empty() && !folder.is_dir())
    {
        // A missing folder gets the same message as a missing file.
        let missing = describe_io_error(&std::io::ErrorKind::NotFound.into());
        return Err(InputError(format!("{}: {missing}", session.display())));
    }
    let wrapping = WrapSettings {
        flowgate: match &options.flowgate {
            Some(program) => program.clone(),
            None => own_program()?,
        },
        policy: absolute(&options.policy),
        session: options.session.as_deref().map(absolute),
        is_interactive: options.interactive,
    };
    let targets = TargetFile::read_all(&options.target)?;
    let (mut edits, mut refused) = (Vec::new(), 0);
    // All new texts are made before a file changes.
    for target in &targets {
        let (changes, refused_here) =
            target.changes(&options.target, &|server| wrap_change(server, &wrapping), output);
        refused += refused_here;
        edits.push((target, changes.len(), target.with_commands(&changes)?));
    }
    let (mut has_changed, code) = (false, u8::from(refused > 0));
    for (target, count, text) in edits {
        let path = target.path.display();
        if count == 0 {
            output.line(&format!("{path}: nothing to change"));
        } else if options.target.dry_run {
            output.line(&format!("{path}: {} would run behind `flowgate mcp`", plural(count, "server")));
        } else {
            let backup = target.back_up()?;
            replace(&target.path, &text)?;
            output.line(&format!("{path}: {} behind `flowgate mcp`", servers_run(count)));
            output.line(&format!("backup of the file as it was: {}", backup.display()));
            has_changed = true;
        }
    }
    if has_changed {
        output.line("Next: restart the client. `flowgate unwrap` restores the file.");
    }
    Ok(code)
}

/// Runs `flowgate unwrap`: changes a client's file so that its servers run without `flowgate mcp`. If the result
/// means the same as a backup, the backup is restored, with its layout, and removed. With `--dry-run`, changes nothing.
/// Returns 0.
///
/// # Errors
/// If a configuration file cannot be read, changed or written.
pub(crate) fn unwrap(options: &ClientArgs, output: &mut Console) -> Result<u8, InputError> {
    let targets = TargetFile::read_all(options)?;
    let mut edits = Vec::new();
    // All new texts are made before a file changes.
    for target in &targets {
        // `changes` has reported the servers that cannot be changed, whose number is not needed.
        let (changes, _) = target.changes(options, &unwrap_change, output);
        edits.push((target, changes.len(), target.with_commands(&changes)?));
    }
    let mut has_changed = false;
    for (target, count, text) in edits {
        let path = target.path.display();
        if count == 0 {
            output.line(&format!("{path}: no server runs behind `flowgate mcp`"));
        } else if options.dry_run {
            output.line(&format!("{path}: {} would run without `flowgate mcp`", plural(count, "server")));
        } else {
            let original = target.equal_backup(&text);
            replace(&target.path, original.as_ref().map_or(&text, |(_, content)| content))?;
            output.line(&format!("{path}: {} without `flowgate mcp`", servers_run(count)));
            if let Some((backup, _)) = original {
                // The file has the content of the backup again. A backup that cannot be removed does no harm.
                let _ = std::fs::remove_file(backup);
            }
            has_changed = true;
        }
    }
    if has_changed {
        output.line("Next: restart the client.");
    }
    Ok(0)
}

/// Returns the number of servers with the verb, such as `1 server runs` or `2 servers run`.
fn servers_run(count: usize) -> String {
    format!("{} {}", plural(count, "server"), if count == 1 { "runs" } else { "run" })
}

/// Returns the path of this program, by which a client starts `flowgate mcp`: clients do not have the search path of a
/// shell.
fn own_program() -> Result<String, InputError> {
    let problem = "the path of this program is unknown; name it with --flowgate";
    std::env::current_exe().map(|path| path.display().to_string()).map_err(|_| InputError(problem.to_owned()))
}

/// A list of servers, each with its new command line.
type ServerCommands = Vec<(ConfiguredServer, Vec<String>)>;

/// A configuration file that the command changes.
struct TargetFile {
    /// The path of the file. A symbolic link is resolved, so that writing replaces the file and not the link.
    path: PathBuf,
    /// Its text.
    text: String,
    /// The parsed text.
    config: ConfigText,
}

impl TargetFile {
    /// Reads the configuration file that the options name, or else the files of the client that they name. Of these,
    /// returns the files that configure servers, or the first file if none does.
    ///
    /// # Errors
    /// If a file cannot be read, or none of them has a server that the options name.
    fn read_all(options: &ClientArgs) -> Result<Vec<Self>, InputError> {
        let paths = match (&options.file, options.client.as_deref()) {
            (Some(file), _) => vec![file.clone()],
            // The command line requires a file or a client.
            (None, client) => client_files(client.unwrap_or_default(), options.home.as_deref())?,
        };
        let mut targets = paths.into_iter().map(Self::read).collect::<Result<Vec<_>, _>>()?;
        let has_servers = |target: &Self| !target.config.servers().is_empty();
        match targets.iter().any(has_servers) {
            true => targets.retain(has_servers),
            false => targets.truncate(1),
        }
        Self::check_names(options, &targets)?;
        Ok(targets)
    }

    /// Fails if the options name a server that none of `targets` has.
    fn check_names(options: &ClientArgs, targets: &[Self]) -> Result<(), InputError> {
        let servers: Vec<ConfiguredServer> =
            targets.iter().flat_map(|target| target.config.servers()).collect();
        let missing = options.servers.iter().find(|name| servers.iter().all(|server| server.name != **name));
        let Some(missing) = missing else { return Ok(()) };
        let names: Vec<String> = servers.iter().map(|server| escaping::excerpt(&server.name, 40)).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let paths: Vec<String> = targets.iter().map(|target| target.path.display().to_string()).collect();
        Err(InputError(format!(
            "{}: there is no server `{}`; name one of its servers: {known}",
            paths.join(", "),
            escaping::excerpt(missing, 40)
        )))
    }

    /// Reads a configuration file.
    fn read(path: PathBuf) -> Result<Self, InputError> {
        let text = bounded_text(&path, MAX_CONFIG)?;
        let config = read_config(&path, &text)?;
        // If the path is a symbolic link, the file that it leads to is replaced, not the link.
        let path = std::fs::canonicalize(&path).unwrap_or(path);
        Ok(Self { path, text, config })
    }

    /// Returns the servers to change, each with its new command line, and the number of servers that cannot be changed.
    /// Prints a warning for each server that cannot be changed. `change` returns what to do with a server. With
    /// `options.dry_run`, also prints the new command lines.
    fn changes(
        &self,
        options: &ClientArgs,
        change: &dyn Fn(&ConfiguredServer) -> ServerChange,
        output: &mut Console,
    ) -> (ServerCommands, usize) {
        let servers = self.config.servers();
        let is_wanted =
            |server: &ConfiguredServer| options.servers.is_empty() || options.servers.contains(&server.name);
        let (mut changes, mut refused) = (Vec::new(), 0);
        for server in servers.into_iter().filter(is_wanted) {
            match change(&server) {
                ServerChange::Command(command) => {
                    if options.dry_run {
                        output.line(&format!(
                            "{}: {}",
                            escaping::excerpt(&server.name, 64),
                            escaping::line(&command.join(" "))
                        ));
                    }
                    changes.push((server, command));
                }
                ServerChange::None => {}
                ServerChange::Refused(why) => {
                    output.warning(&format!("{}: {why}", escaping::excerpt(&server.name, 64)));
                    refused += 1;
                }
            }
        }
        (changes, refused)
    }

    /// Returns the text with new command lines. Parses it again, so that no file is written that the client cannot
    /// read.
    fn with_commands(&self, changes: &[(ConfiguredServer, Vec<String>)]) -> Result<String, InputError> {
        let error = |why: String| InputError(format!("{}: {why}", self.path.display()));
        let text = with_commands(&self.text, &self.config, changes).map_err(error)?;
        read_config(&self.path, &text)?;
        Ok(text)
    }

    /// Writes a backup, a new file with the unchanged text in the same folder, and returns its path. If a backup with
    /// the same text exists already, only returns the path of that backup. Fails if the backup cannot be written, or if
    /// there are [`MAX_BACKUPS`] backups with other texts.
    fn back_up(&self) -> Result<PathBuf, InputError> {
        for path in self.backup_paths() {
            if bounded_text(&path, MAX_CONFIG).is_ok_and(|text| text == self.text) {
                return Ok(path);
            }
            let created = std::fs::File::options().write(true).create_new(true).open(&path);
            match created {
                // Another backup has this name, so the next name is tried.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(write_error(&path, &error)),
                Ok(mut file) => {
                    self.write_text(&mut file).map_err(|error| write_error(&path, &error))?;
                    return Ok(path);
                }
            }
        }
        let problem = "all names for backups of this file are taken; remove the backups that you do not need"
            .to_owned();
        Err(InputError(format!("{}: {problem}", self.path.display())))
    }

    /// Writes the unchanged text to `backup`. The text can contain keys, so the backup first gets the permissions of the
    /// file.
    fn write_text(&self, backup: &mut std::fs::File) -> std::io::Result<()> {
        let permissions = std::fs::metadata(&self.path)?.permissions();
        backup.set_permissions(permissions)?;
        backup.write_all(self.text.as_bytes())?;
        backup.sync_all()
    }

    /// Returns the newest backup that has the same values as `text`, apart from layout and comments: its path and its
    /// content. `None` if there is none. Backups that cannot be read are skipped.
    fn equal_backup(&self, text: &str) -> Option<(PathBuf, String)> {
        let config = read_config(&self.path, text).ok()?;
        let mut backups: Vec<PathBuf> = self.backup_paths().take_while(|path| path.exists()).collect();
        // The newest backup has the greatest number.
        backups.reverse();
        backups.into_iter().find_map(|path| {
            let content = bounded_text(&path, MAX_CONFIG).ok()?;
            let is_same = is_equivalent(&read_config(&self.path, &content).ok()?, &config);
            is_same.then_some((path, content))
        })
    }

    /// Returns the paths that backups can have, whether they exist or not, in order: `NAME.flowgate-backup`,
    /// `NAME.flowgate-backup-2`, ..., up to the number [`MAX_BACKUPS`].
    fn backup_paths(&self) -> impl Iterator<Item = PathBuf> {
        (1..=MAX_BACKUPS).map(|number| {
            let mut name = self.path.as_os_str().to_owned();
            name.push(BACKUP);
            if number > 1 {
                name.push(format!("-{number}"));
            }
            PathBuf::from(name)
        })
    }
}

/// Returns the configuration files of a client that exist in the home folder: in `home`, or else in the user's own. It
/// is an error if Flowgate does not know the client, or the client has no such file.
fn client_files(client: &str, home: Option<&Path>) -> Result<Vec<PathBuf>, InputError> {
    let found = find_client(client).ok_or_else(|| {
        let known: Vec<&str> = CLIENTS.iter().map(|known| known.id).collect();
        InputError(format!(
            "there is no client `{}`; the known clients are: {}",
            escaping::excerpt(client, 40),
            known.join(", ")
        ))
    })?;
    let home = home_folder(home)
        .ok_or_else(|| InputError("there is no home folder; name one with --home".to_owned()))?;
    let files = found.home_files(&home);
    let existing: Vec<PathBuf> = files.iter().filter(|path| path.is_file()).cloned().collect();
    if existing.is_empty() {
        let first = files.first().cloned().unwrap_or_default();
        return Err(InputError(format!(
            "{} has no configuration at {}; name the file with --file",
            found.name,
            first.display()
        )));
    }
    Ok(existing)
}

/// Parses the text of the file at `path`: TOML if its name ends in `.toml`, otherwise JSON.
fn read_config(path: &Path, text: &str) -> Result<ConfigText, InputError> {
    let is_toml = path.extension().is_some_and(|extension| extension == "toml");
    ConfigText::read(text, is_toml)
        .map_err(|error| InputError(format!("{}: {error}; nothing was changed", path.display())))
}

/// Replaces a file atomically, and keeps its permissions: the new text is written to a second file in the same folder,
/// which is then renamed. A second file that an earlier attempt left is removed first. If any of this fails, the file
/// keeps its text.
fn replace(path: &Path, text: &str) -> Result<(), InputError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".flowgate-part");
    let part = PathBuf::from(part);
    let write = || {
        let permissions = std::fs::metadata(path)?.permissions();
        let _ = std::fs::remove_file(&part);
        let mut file = std::fs::File::options().write(true).create_new(true).open(&part)?;
        file.set_permissions(permissions)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&part, path)
    };
    write().map_err(|error| write_error(path, &error))
}

/// Returns the error for a file at `path` that cannot be written. Another file of the same client may have been changed
/// before it, so the message is about this file alone.
fn write_error(path: &Path, error: &std::io::Error) -> InputError {
    let why = match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "there is no permission to write the file, so it was not changed; change the permissions of the file and of its folder, or run as their owner".to_owned()
        }
        _ => describe_io_error(error),
    };
    InputError(format!("{}: {why}", path.display()))
}
