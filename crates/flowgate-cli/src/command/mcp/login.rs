//! Runs `flowgate mcp login` and `flowgate mcp logout`: a person logs in at a remote MCP server behind OAuth,
//! or removes the tokens. The crate `flowgate-oauth` implements the login; this module shows the address, opens the browser, and
//! reads what the person pastes.

use std::io::{BufRead as _, IsTerminal as _, Read as _, stderr, stdin};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use flowgate_oauth::{Login, TokenFile, agent};
use ureq::tls::TlsConfig;

use crate::args::{McpLoginCommand, McpServerArgs};
use crate::escaping;
use crate::input::{InputError, read_short_text};
use crate::mcp::{self, AsyncRuntime, McpServerSpec};
use crate::output::Console;

/// The longest line that is read, in bytes: an address with the outcome of a login.
const MAX_LINE: u64 = 16 << 10;
/// The time limit for finding the issuer and registering there, and for the removal of tokens.
const BEGIN_TIMEOUT: Duration = Duration::from_secs(120);
/// The time limit for the login; `flowgate-oauth` has a shorter one.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(3600);

/// What the task of a login tells the person.
enum LoginMessage {
    Note(String),
    /// The login has ended; the text says why it failed, if it did.
    Ended(Result<(), String>),
}

/// Runs a command for logins, and returns its exit code.
pub(super) fn run(command: &McpLoginCommand, output: &mut Console) -> Result<u8, InputError> {
    match command {
        McpLoginCommand::Login { server, no_browser } => log_in(server, !no_browser, output),
        McpLoginCommand::Logout(server) => log_out(server, output),
    }
}

/// Reads the configuration file that the options name, and returns the server that they name. Relative paths in the
/// file start at its folder.
fn read_server(options: &McpServerArgs) -> Result<McpServerSpec, InputError> {
    let path = options.config.as_path();
    let text = read_short_text(path)?;
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_path_buf));
    let environment = |name: &str| std::env::var(name).ok();
    mcp::read_named(&text, &options.name, &folder.unwrap_or_default(), &environment)
        .map_err(|problem| InputError(format!("{}: {problem}", path.display())))
}

/// Returns the error for a server at which nobody can log in. `why` is the reason, a clause whose subject is the server.
fn no_login(options: &McpServerArgs, why: &str) -> InputError {
    let name = escaping::excerpt(&options.name, 40);
    InputError(format!("{}: the server `{name}` {why}", options.config.display()))
}

/// Starts the threads for asynchronous work.
fn start_runtime() -> Result<AsyncRuntime, InputError> {
    AsyncRuntime::start().map_err(|error| {
        InputError(format!(
            "the threads for asynchronous work cannot be started: {error}; end other programs and try again"
        ))
    })
}

/// Logs the person in at the server of the options: shows the address of the issuer's login page, opens it in a browser
/// if `opens_browser`, and waits for the outcome. Returns 1 if the login failed, otherwise 0.
fn log_in(options: &McpServerArgs, opens_browser: bool, output: &mut Console) -> Result<u8, InputError> {
    let (settings, token_file) = read_server(options)?.login().map_err(|why| no_login(options, &why))?;
    let runtime = start_runtime()?;
    let begun = runtime.spawn(Login::begin(settings, agent(TlsConfig::default())));
    let failed = |output: &mut Console, why: &str| {
        output.error(&format!("the login to {} failed: {why}", escaping::excerpt(&options.name, 40)));
        Ok(1)
    };
    // `|| false`: nothing cancels the wait.
    let login = match begun.wait(BEGIN_TIMEOUT, &|| false) {
        Ok(Ok(login)) => login,
        Ok(Err(error)) => return failed(output, &error.to_string()),
        Err(_) => return failed(output, "the issuer did not answer in time; try again"),
    };
    output.note(&format!("to log in at {}, open this address in a browser:", login.issuer()));
    output.line(login.address());
    output.note("if the browser cannot show its last page, paste the address of that page here");
    if opens_browser && stderr().is_terminal() {
        open_browser(login.address());
    }
    let messages = complete(login, token_file.clone(), &runtime);
    loop {
        match messages.recv_timeout(LOGIN_TIMEOUT) {
            Ok(LoginMessage::Note(note)) => output.note(&note),
            Ok(LoginMessage::Ended(Ok(()))) => break,
            Ok(LoginMessage::Ended(Err(why))) => return failed(output, &why),
            // The time limit is over, or the task has ended without an outcome.
            Err(_) => return failed(output, "the login ended without an outcome; try again"),
        }
    }
    output.note(&format!("the tokens are in {}, which only you can read", token_file.path().display()));
    output.line(&format!("logged in to {}", escaping::excerpt(&options.name, 40)));
    Ok(0)
}

/// Starts a task on the thread of `runtime` that waits for the outcome of a login, and writes the tokens to `file`. The
/// returned channel receives what the person should read and, at the end, the outcome. Another thread passes the lines
/// that the person pastes to the task.
fn complete(login: Login, file: TokenFile, runtime: &AsyncRuntime) -> Receiver<LoginMessage> {
    let (sender, messages) = channel();
    let (pasted_sender, pasted) = tokio::sync::mpsc::channel(1);
    std::thread::spawn(move || read_lines(&pasted_sender));
    let notes: Sender<LoginMessage> = sender.clone();
    // The handle of the task is not needed: the task runs to its end without it.
    runtime.spawn(async move {
        // Sending fails only if the program ends.
        let note = move |note: &str| drop(notes.send(LoginMessage::Note(note.to_owned())));
        let ended = login.complete(&file, pasted, &note).await;
        let _ = sender.send(LoginMessage::Ended(ended.map_err(|error| error.to_string())));
    });
    messages
}

/// Sends the lines that the person pastes to `lines`, until the input or the login ends, or until a line is longer than
/// [`MAX_LINE`] bytes.
fn read_lines(lines: &tokio::sync::mpsc::Sender<String>) {
    let mut input = stdin().lock();
    loop {
        let mut line = String::new();
        let read = input.by_ref().take(MAX_LINE).read_line(&mut line);
        let is_whole = read.is_ok() && line.ends_with('\n');
        // A blank line is not sent. Sending fails if the login has ended.
        let has_ended = !line.trim().is_empty() && lines.blocking_send(line).is_err();
        if has_ended || !is_whole {
            return;
        }
    }
}

/// Opens an address in the browser of the person, if there is one. The address was checked to be one of HTTPS, and
/// reaches the program as one argument, without a shell. A failure is ignored: the person has the address.
fn open_browser(address: &str) {
    // Without a display, `xdg-open` could start a browser in this terminal.
    let has_display = || {
        ["DISPLAY", "WAYLAND_DISPLAY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    };
    let (program, arguments): (&str, &[&str]) = match std::env::consts::OS {
        "macos" => ("open", &[]),
        "windows" => ("rundll32", &["url.dll,FileProtocolHandler"]),
        _ if has_display() => ("xdg-open", &[]),
        _ => return,
    };
    let mut command = Command::new(program);
    command.args(arguments).arg(address);
    let _ = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
}

/// Removes the tokens of the login at the server of the options, and prints whether there were any. Waits until no other
/// process uses the tokens. Returns 0.
fn log_out(options: &McpServerArgs, output: &mut Console) -> Result<u8, InputError> {
    let (_, file) = read_server(options)?.login().map_err(|why| no_login(options, &why))?;
    let runtime = start_runtime()?;
    let removed = runtime.spawn(async move { file.remove().await });
    let name = escaping::excerpt(&options.name, 40);
    // `|| false`: nothing cancels the wait.
    let removed = removed.wait(BEGIN_TIMEOUT, &|| false);
    let removed = removed
        .map_err(|_| InputError(format!("the tokens of {name} were not removed in time; try again")))?;
    match removed.map_err(|error| InputError(error.to_string()))? {
        true => output.line(&format!("logged out of {name}")),
        false => output.line(&format!("nobody was logged in to {name}")),
    }
    Ok(0)
}
