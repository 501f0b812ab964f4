//! Runs `flowgate mcp`: a proxy between an MCP client, on the standard streams, and a server that the command starts.
//!
//! The [`Proxy`] decides what is sent. This module passes lines to it and writes its answers, shares labels with other
//! processes through files, and writes the file of approved tools, the watch log and the trace. It never waits for a
//! side that does not read: if both sides wrote at the same time, such a wait would be a deadlock.
//!
//! * `child` starts and ends the process of the server.
//! * `lines` queues the lines to and from the client and the server.
//! * `client_labels` stores the labels of everything that the client has received in a file.
//! * `login` runs `flowgate mcp login` and `logout`, the logins at remote servers, which need no proxy.

mod child;
mod client_labels;
mod lines;
mod login;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flowgate::monitor::{self, Monitor, Outcome};
use flowgate_audit::watch::{WatchLog, WatchedVerdict};
use flowgate_mcp::{Pins, Proxy, ProxyAction, ProxyLimits, ProxySettings};
use tokio::sync::mpsc::Receiver;

use crate::args::{McpArgs, McpGuardArgs};
use crate::escaping;
use crate::input::{InputError, describe_io_error};
use crate::output::{Console, plural};
use crate::policy_file::load_policy;
use crate::private_files;
use crate::stores::SharedStoreLabels;
use crate::trace_file::TraceFile;
use crate::trace_folder::TraceFolder;
use child::ServerProcess;
use client_labels::ClientLabelFile;
use lines::LineQueue;

/// The time in which a server can send its remaining lines after the client has closed the connection.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of events of a session.
const MAX_EVENTS: usize = 100_000;
/// The maximum number of notes that are printed; further ones are only counted.
const MAX_NOTES: usize = 200;

/// Runs `flowgate mcp`: the guard before a server, or a command for logins.
pub(crate) fn run(options: &McpArgs, output: &mut Console) -> Result<u8, InputError> {
    match &options.login {
        Some(command) => login::run(command, output),
        None => guard(&options.guard, output),
    }
}

/// Runs the guard: creates the monitor and the proxy, and runs the session until the client or the server ends. Returns
/// 0 if the client closed the connection, 1 if the server ended or a side stopped reading.
fn guard(options: &McpGuardArgs, output: &mut Console) -> Result<u8, InputError> {
    // The parser of the arguments requires `--policy`, so this error does not occur.
    let policy_path = options.policy.as_deref();
    let policy_path = policy_path
        .ok_or_else(|| InputError("there is no `--policy`; see `flowgate mcp --help`".to_owned()))?;
    let policy_name = policy_path.display().to_string();
    let policy = Arc::new(load_policy(policy_path, output)?);
    let predicates = options.answering.predicates(&policy, &policy_name)?;
    let stores = options.stores.as_deref().map(SharedStoreLabels::open).transpose()?;
    let client_labels = options.session.as_deref().map(ClientLabelFile::open).transpose()?;
    let watch = options.watch.as_deref().map(open_watch_log).transpose()?;
    if let Some(log) = &watch {
        output.warning(&format!(
            "watch mode: nothing is stopped, asked about or hidden; each verdict is appended to {}",
            log.path().display()
        ));
    }
    let trace =
        options.traces.as_deref().map(|folder| SessionTrace::begin(folder, &options.name)).transpose()?;
    if let Some(trace) = &trace {
        output.warning(&format!(
            "the session is recorded in {}, with the content of calls and answers",
            trace.folder.path_of(&trace.name).display()
        ));
    }
    let mut monitor =
        Monitor::with_limits(policy, monitor::Limits { events: MAX_EVENTS, ..monitor::Limits::default() });
    monitor.set_parameters(&options.parameters.iter().cloned().collect());
    // The empty list: no answers of predicates were recorded before.
    monitor.set_predicates(predicates, Vec::new());
    // The version of the shared labels that the monitor has joined. Without `--stores`, it is not used.
    let stores_version =
        stores.as_ref().map(|stores| stores.recall(&mut monitor)).transpose()?.unwrap_or_default();
    let settings = proxy_settings(options, watch.is_some())?;
    let max_line = settings.limits.message;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| {
        InputError(format!(
            "the threads for asynchronous work cannot be started: {error}; end other programs and try again"
        ))
    })?;
    let stdio_proxy = StdioProxy {
        proxy: Proxy::new(settings),
        monitor,
        stores,
        stores_version,
        client_labels,
        pins: options.pins.clone(),
        watch,
        trace,
        name: options.name.clone(),
        notes: 0,
        noise: 0,
    };
    let ended = runtime.block_on(stdio_proxy.run_session(options, max_line, output));
    // The program ends now, so tasks that still read or write lines are not waited for.
    runtime.shutdown_background();
    ended
}

/// Returns the settings of the proxy, with the approved tools that the file of `--pins` contains.
fn proxy_settings(options: &McpGuardArgs, is_watching: bool) -> Result<ProxySettings, InputError> {
    let mib = |count: u32| usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(1 << 20);
    let limits = ProxyLimits {
        message: mib(options.max_message),
        session: mib(options.max_session),
        ..ProxyLimits::default()
    };
    Ok(ProxySettings {
        is_interactive: options.interactive,
        is_watching,
        pins: options.pins.as_deref().map(|path| read_pins(path, options)).transpose()?,
        accept_new: options.accept_new,
        limits,
        ..ProxySettings::new(&options.name)
    })
}

/// Opens the watch log at `path`, to which watch mode appends verdicts that are not enforced; the error names the file.
fn open_watch_log(path: &Path) -> Result<WatchLog, InputError> {
    WatchLog::open(path)
        .map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))
}

/// Reads the stored pins (approved tools) of the server. A missing file is an error, except with `--accept-new`: the
/// server then has no pins yet, and the session creates the file.
fn read_pins(path: &Path, options: &McpGuardArgs) -> Result<Pins, InputError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Pins::from_file_text(&text, &options.name)
            .map_err(|error| InputError(format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && options.accept_new => {
            Ok(Pins::default())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(InputError(format!(
            "{}: {}, or run once with `--accept-new` to approve the current tools",
            path.display(),
            describe_io_error(&error)
        ))),
        Err(error) => Err(InputError(format!("{}: {}", path.display(), describe_io_error(&error)))),
    }
}

/// Writes the pins (approved tools) of the server `server` to the file, and keeps the pins of other servers in the
/// file. Holds the lock of the file meanwhile, since the proxies of other servers may write their pins at the same
/// time.
fn write_pins(path: &Path, server: &str, pins: &Pins) -> Result<(), String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let lock = private_files::lock_beside(path).and_then(|file| file.lock().map(|()| file));
    // The lock ends when the file is closed, at the end of this function.
    let _lock = lock.map_err(|error| wrong(describe_io_error(&error)))?;
    let old = match std::fs::read_to_string(path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrong(describe_io_error(&error))),
    };
    let text = pins.to_file_text(old.as_deref(), server).map_err(|error| wrong(error.to_string()))?;
    private_files::replace(path, &text).map_err(|error| wrong(describe_io_error(&error)))
}

/// Returns a note for the operator about a verdict that watch mode does not enforce. A verdict that names no tool has
/// `-` in its place.
fn describe_watched(verdict: &WatchedVerdict) -> String {
    let decision = if verdict.outcome == Outcome::Confirm { "asked about" } else { "denied" };
    let tool = verdict.tool.as_deref().unwrap_or("-");
    format!(
        "watch mode: the {} of `{tool}` passes; with enforcement it is {decision}: {}",
        verdict.subject.name(),
        verdict.reason
    )
}

/// A session of `flowgate mcp`: the proxy, its monitor, and the files that the session reads and writes.
struct StdioProxy {
    proxy: Proxy,
    monitor: Monitor,
    stores: Option<SharedStoreLabels>,
    /// The version of the stored labels (`--stores`) that the monitor has joined; a higher version in the file means
    /// that another process has changed them.
    stores_version: u64,
    /// The file of `--session`: the labels of everything that the client has received from any of its servers.
    client_labels: Option<ClientLabelFile>,
    /// The file of approved tools (`--pins`).
    pins: Option<PathBuf>,
    /// The log of verdicts that are not enforced, in watch mode.
    watch: Option<WatchLog>,
    /// The trace of the session, in watch mode.
    trace: Option<SessionTrace>,
    /// The name of the server in policies.
    name: String,
    /// The number of notes so far, printed or not.
    notes: usize,
    /// The number of the server's lines that are not messages.
    noise: u64,
}

/// The trace of the session (`--traces`).
struct SessionTrace {
    folder: TraceFolder,
    /// The name of the file in the folder.
    name: String,
    file: TraceFile,
}

impl SessionTrace {
    /// Creates the file of this session in the folder at `path`. The name of the file contains the server, the time and
    /// the number of this process, so that no two sessions have the same file.
    fn begin(path: &Path, server: &str) -> Result<Self, InputError> {
        let folder = TraceFolder::open(path).map_err(InputError)?;
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let name = format!("mcp-{server}-{time}-{}.jsonl", std::process::id());
        let file = folder.begin(&name).map_err(InputError)?;
        Ok(Self { folder, name, file })
    }

    /// Writes the events that are new since the last call.
    ///
    /// # Errors
    /// If the file cannot be written, or has reached its limit with these events. The message names it.
    fn record(&mut self, monitor: &Monitor) -> Result<(), String> {
        match self.file.write_new_events(monitor) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.folder.full(&self.name)),
            Err(error) => Err(format!(
                "{}: the trace cannot be written: {}",
                self.folder.path_of(&self.name).display(),
                describe_io_error(&error)
            )),
        }
    }
}

/// The sender of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LineSender {
    Client,
    Server,
}

impl StdioProxy {
    /// Starts the server, and exchanges messages until a side ends or stops reading, or a signal stops the program. At
    /// the end, prints how many lines of the server were no messages (`noise`), and how many notes (`notes`) were not
    /// printed. `max_line` is the maximum number of bytes of a line. Returns the exit code.
    async fn run_session(
        mut self,
        options: &McpGuardArgs,
        max_line: usize,
        output: &mut Console,
    ) -> Result<u8, InputError> {
        let mut child = ServerProcess::start(&options.command, max_line).map_err(InputError)?;
        let (mut client, to_client) = (lines::standard_input(max_line), lines::standard_output());
        let mut stopped = std::pin::pin!(child::stop_signal());
        let code = loop {
            let (side, line) = tokio::select! {
                // A signal is an ordinary end of the session.
                () = &mut stopped => break 0,
                line = client.recv() => (LineSender::Client, line),
                line = child.lines.recv() => (LineSender::Server, line),
            };
            match (side, line) {
                (side, Some(line)) => {
                    let actions = match self.handle_line(side, &line, output) {
                        Ok(actions) => actions,
                        Err(problem) => {
                            child.terminate().await;
                            return Err(InputError(problem));
                        }
                    };
                    let both_sides_read = self.send(actions, &to_client, child.input.as_ref(), output);
                    if !both_sides_read {
                        output.error(
                            "the client or the server has stopped reading its messages, so the session \
                                ends; begin a new session in the client",
                        );
                        break 1;
                    }
                }
                // The client has closed the connection.
                (LineSender::Client, None) => {
                    self.drain_server(&mut child, &to_client, output).await?;
                    break 0;
                }
                (LineSender::Server, None) => {
                    let actions = self.end_calls().map_err(InputError)?;
                    self.send(actions, &to_client, None, output);
                    output.error(
                        "the MCP server ended, so the session ends; begin a new session in the client",
                    );
                    break 1;
                }
            }
        };
        // A client that ends the session during a call has observed how long the server took. So the label of the
        // call's outcome must reach the proxies of the client's other servers. If the labels cannot be stored, the
        // error is returned only after the server has ended.
        let actions = self.end_calls().map_err(InputError);
        child.terminate().await;
        self.record_trace(output);
        self.send(actions?, &to_client, None, output);
        to_client.close();
        if self.noise > 0 {
            output.note(&format!(
                "dropped {} of the server's standard output that were not messages of MCP; let the server write its log to the standard error",
                plural(self.noise, "line")
            ));
        }
        if self.notes > MAX_NOTES {
            output.note(&format!(
                "{} not printed",
                plural(self.notes.saturating_sub(MAX_NOTES), "further note")
            ));
        }
        Ok(code)
    }

    /// Handles the remaining answers of the server for at most [`DRAIN_TIMEOUT`], after the client has closed the
    /// connection: the labels of these answers are stored for other processes, and the client may still read them.
    /// First closes the server's input, which asks the server to end.
    async fn drain_server(
        &mut self,
        child: &mut ServerProcess,
        to_client: &LineQueue,
        output: &mut Console,
    ) -> Result<(), InputError> {
        if let Some(input) = child.input.take() {
            input.close();
        }
        let lines: &mut Receiver<Vec<u8>> = &mut child.lines;
        let deadline = tokio::time::Instant::now() + DRAIN_TIMEOUT;
        while let Ok(Some(line)) = tokio::time::timeout_at(deadline, lines.recv()).await {
            let actions = self.handle_line(LineSender::Server, &line, output).map_err(InputError)?;
            // Whether the client still reads does not matter here, since the session ends anyway.
            self.send(actions, to_client, None, output);
        }
        let actions = self.end_calls().map_err(InputError)?;
        self.send(actions, to_client, None, output);
        Ok(())
    }

    /// Ends the running calls, which will get no answer, and returns the resulting actions, such as errors for the
    /// client. Stores the labels before the caller carries out the actions, so that the proxies of the client's other
    /// servers have the labels before the client receives an error.
    fn end_calls(&mut self) -> Result<Vec<ProxyAction>, String> {
        let actions = self.proxy.handle_server_exit(&mut self.monitor);
        if let Some(stores) = &mut self.stores {
            stores.save_labels(&mut self.monitor, &mut self.stores_version)?;
        }
        if let Some(labels) = &self.client_labels {
            labels.exchange(&mut self.monitor)?;
        }
        Ok(actions)
    }

    /// Passes a line of `side` to the proxy, and returns what to send. A line of the server that does not begin like
    /// JSON is only counted. If the approved tools of the server have changed, writes them to the file of `--pins`.
    ///
    /// Other processes share labels through files: their labels are read before the line is judged or labelled, and the
    /// resulting labels are stored before anything is sent. So no process reads a value whose label it does not know.
    fn handle_line(
        &mut self,
        side: LineSender,
        line: &[u8],
        output: &mut Console,
    ) -> Result<Vec<ProxyAction>, String> {
        let text = line.trim_ascii();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        // Some servers print log lines to their standard output.
        if side == LineSender::Server && !matches!(text.first(), Some(b'{' | b'[')) {
            self.noise = self.noise.saturating_add(1);
            return Ok(Vec::new());
        }
        // Reads the labels of other processes.
        if let Some(stores) = &mut self.stores {
            stores.refresh_session(&mut self.monitor, &mut self.stores_version)?;
        }
        if let Some(labels) = &self.client_labels {
            labels.exchange(&mut self.monitor)?;
        }
        let actions = match side {
            LineSender::Client => self.proxy.handle_client_message(&mut self.monitor, text),
            LineSender::Server => self.proxy.handle_server_message(&mut self.monitor, text),
        };
        self.record_watched(output);
        self.record_trace(output);
        // Stores the labels that result.
        if let Some(stores) = &mut self.stores {
            stores.save_labels(&mut self.monitor, &mut self.stores_version)?;
        }
        if let Some(labels) = &self.client_labels {
            labels.exchange(&mut self.monitor)?;
        }
        let newest_pins = actions.iter().rfind(|action| matches!(action, ProxyAction::Pins(_)));
        if let (Some(path), Some(ProxyAction::Pins(pins))) = (&self.pins, newest_pins) {
            write_pins(path, &self.name, pins)?;
            output.note(&format!("the tools of {} are stored in {}", self.name, path.display()));
        }
        Ok(actions)
    }

    /// Appends the verdicts that were not enforced to the watch log, and prints what would have been stopped. Does
    /// nothing without watch mode. A log that cannot be written stops nothing either: a note reports it.
    fn record_watched(&mut self, output: &mut Console) {
        let Some(log) = &self.watch else { return };
        let watched = self.proxy.take_watched();
        let written = log.append(&watched);
        let objections = watched.iter().filter(|verdict| verdict.outcome != Outcome::Permit);
        let notes: Vec<String> = objections.map(describe_watched).chain(written.err()).collect();
        notes.iter().for_each(|note| self.print_note(note, output));
    }

    /// Writes the new events of the session to its trace. Does nothing without `--traces`. A trace that cannot be
    /// written stops nothing: a note reports it.
    fn record_trace(&mut self, output: &mut Console) {
        let Some(trace) = &mut self.trace else { return };
        if let Err(note) = trace.record(&self.monitor) {
            self.print_note(&note, output);
        }
    }

    /// Prints a note, unless [`MAX_NOTES`] of them were printed already.
    fn print_note(&mut self, note: &str, output: &mut Console) {
        self.notes = self.notes.saturating_add(1);
        if self.notes <= MAX_NOTES {
            output.note(&escaping::excerpt(note, 600));
        }
    }

    /// Performs actions: queues lines for the client and the server, and prints notes, at most [`MAX_NOTES`] of them,
    /// so that a server cannot flood the terminal. Without a `server`, whose input is closed, drops the lines for it.
    /// Returns false if the queue of a side is full because the side has stopped reading; then the further actions are
    /// dropped.
    fn send(
        &mut self,
        actions: Vec<ProxyAction>,
        client: &LineQueue,
        server: Option<&LineQueue>,
        output: &mut Console,
    ) -> bool {
        actions.into_iter().all(|out| match out {
            ProxyAction::Client(line) => client.send(line),
            ProxyAction::Server(line) => server.is_none_or(|server| server.send(line)),
            ProxyAction::Note(note) => {
                self.print_note(&note, output);
                true
            }
            // `handle_line` has stored the pins. The others concern only the gateway, which can ask people elsewhere.
            ProxyAction::Pins(_) | ProxyAction::Ask(_) | ProxyAction::Unapproved { .. } => true,
        })
    }
}
