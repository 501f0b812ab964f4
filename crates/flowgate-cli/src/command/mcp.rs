//! `flowgate mcp`: a proxy between an MCP client and a server that it starts, on the standard streams.
//!
//! The state machine of [`flowgate_gateway::mcp`] decides what is sent; this module reads and writes lines. It never
//! waits for a side that does not read, because both sides may write at the same time, which could be a deadlock.

mod child;
mod lines;
mod seen;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use flowgate::monitor::{self, Monitor};
use flowgate_gateway::mcp::{Limits, Out, Pins, Proxy, Settings};
use tokio::sync::mpsc::Receiver;

use crate::args::McpArgs;
use crate::input::{InputError, reason};
use crate::output::{Output, load_policy, plural};
use crate::private;
use crate::stores::Stores;
use crate::visible;
use child::Child;
use lines::Queue;
use seen::Seen;

/// The time for a server to send the rest after its client closed the connection.
const REST: Duration = Duration::from_secs(5);
/// The largest number of events of a session.
const EVENTS: usize = 100_000;
/// The number of notes that are printed.
const REMARKS: usize = 200;

/// Runs the command; returns the exit code.
pub(crate) fn run(options: &McpArgs, output: &mut Output) -> Result<u8, InputError> {
    let name = options.policy.display().to_string();
    let policy = Arc::new(load_policy(&options.policy, output)?);
    let predicates = options.answering.predicates(&policy, &name)?;
    let stores = options.stores.as_deref().map(Stores::open).transpose()?;
    let seen = options.session.as_deref().map(Seen::open).transpose()?;
    let mut monitor =
        Monitor::with_limits(policy, monitor::Limits { events: EVENTS, ..monitor::Limits::default() });
    monitor.set_parameters(&options.parameters.iter().cloned().collect());
    monitor.set_predicates(predicates, Vec::new());
    let knows = stores.as_ref().map(|stores| stores.recall(&mut monitor)).transpose()?.unwrap_or_default();
    let mib = |count: u32| usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(1 << 20);
    let limits =
        Limits { message: mib(options.max_message), session: mib(options.max_session), ..Limits::default() };
    let settings = Settings {
        is_interactive: options.interactive,
        pins: options.pins.as_deref().map(|path| read_pins(path, options)).transpose()?,
        accept_new: options.accept_new,
        limits,
        ..Settings::new(&options.name)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| InputError(format!("no thread can be started: {error}")))?;
    let between = Between {
        proxy: Proxy::new(settings),
        monitor,
        stores,
        knows,
        seen,
        pins: options.pins.clone(),
        name: options.name.clone(),
        remarks: 0,
        noise: 0,
    };
    let ended = runtime.block_on(between.talk(options, limits.message, output));
    runtime.shutdown_background();
    ended
}

/// Reads the stored pins; returns none only if they are about to be created.
fn read_pins(path: &Path, options: &McpArgs) -> Result<Pins, InputError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Pins::read(&text, &options.name)
            .map_err(|error| InputError(format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && options.accept_new => {
            Ok(Pins::default())
        }
        Err(error) => Err(InputError(format!(
            "{}: {}; run once with --accept-new to approve the current tools",
            path.display(),
            reason(&error)
        ))),
    }
}

/// Stores the pins of this server in the file, beside those of other servers.
fn write_pins(path: &Path, server: &str, pins: &Pins) -> Result<(), String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let old = match std::fs::read_to_string(path) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(wrong(reason(&error))),
    };
    let text = pins.write(old.as_deref(), server).map_err(wrong)?;
    private::replace(path, &text).map_err(|error| wrong(reason(&error)))
}

/// The proxy between client and server.
struct Between {
    proxy: Proxy,
    monitor: Monitor,
    stores: Option<Stores>,
    /// The version of the stores that the monitor knows.
    knows: u64,
    /// The labels of everything that the client received from other servers.
    seen: Option<Seen>,
    pins: Option<PathBuf>,
    name: String,
    remarks: usize,
    /// The number of the server's lines that are not messages.
    noise: u64,
}

/// The sender of a line.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

impl Between {
    async fn talk(
        mut self,
        options: &McpArgs,
        largest: usize,
        output: &mut Output,
    ) -> Result<u8, InputError> {
        let mut child = Child::start(&options.command, largest).map_err(InputError)?;
        let (mut client, to_client) = (lines::standard_input(largest), lines::standard_output());
        let mut stopped = std::pin::pin!(child::stopped());
        let failed = |problem: String| InputError(problem);
        let code = loop {
            let (side, line) = tokio::select! {
                () = &mut stopped => break 0,
                line = client.recv() => (Side::Client, line),
                line = child.lines.recv() => (Side::Server, line),
            };
            match (side, line) {
                (side, Some(line)) => {
                    let said = self.hear(side, &line, output).map_err(failed);
                    let is_sent = said.map(|said| self.send(said, &to_client, child.input.as_ref(), output));
                    match is_sent {
                        Ok(true) => {}
                        Ok(false) => {
                            output.error(
                                "the client or the server does not read its messages; the session ends",
                            );
                            break 1;
                        }
                        Err(error) => {
                            child.end().await;
                            return Err(error);
                        }
                    }
                }
                (Side::Client, None) => {
                    self.rest(&mut child, &to_client, output).await?;
                    break 0;
                }
                (Side::Server, None) => {
                    let said = self.ended().map_err(InputError)?;
                    self.send(said, &to_client, None, output);
                    output.error("the server ended");
                    break 1;
                }
            }
        };
        // A client that ends the session during a call has observed how long the server took: the label of the
        // outcome must reach the proxies of its other servers.
        let said = self.ended().map_err(InputError);
        child.end().await;
        self.send(said?, &to_client, None, output);
        to_client.close();
        if self.noise > 0 {
            output.note(&format!(
                "dropped {} of the server's output, which was not MCP",
                plural(self.noise, "line")
            ));
        }
        if self.remarks > REMARKS {
            output.note(&format!(
                "{} not printed",
                plural(self.remarks.saturating_sub(REMARKS), "further note")
            ));
        }
        Ok(code)
    }

    /// Passes on further answers of the server for a while after the client closed the connection.
    async fn rest(
        &mut self,
        child: &mut Child,
        to_client: &Queue,
        output: &mut Output,
    ) -> Result<(), InputError> {
        if let Some(input) = child.input.take() {
            input.close();
        }
        let lines: &mut Receiver<Vec<u8>> = &mut child.lines;
        let until = tokio::time::Instant::now() + REST;
        while let Ok(Some(line)) = tokio::time::timeout_at(until, lines.recv()).await {
            let said = self.hear(Side::Server, &line, output).map_err(InputError)?;
            self.send(said, to_client, None, output);
        }
        let said = self.ended().map_err(InputError)?;
        self.send(said, to_client, None, output);
        Ok(())
    }

    /// Handles the end of the server: running calls have no answer. The labels reach the proxies of the client's
    /// other servers before the client is answered.
    fn ended(&mut self) -> Result<Vec<Out>, String> {
        let said = self.proxy.ended(&mut self.monitor);
        if let Some(stores) = &mut self.stores {
            stores.keep(&mut self.monitor, &mut self.knows)?;
        }
        if let Some(seen) = &self.seen {
            seen.exchange(&mut self.monitor)?;
        }
        Ok(said)
    }

    /// Passes a line to the state machine. The labels that a call can write are stored before it is sent, and the
    /// labels of other sessions are read before its answer is labelled.
    fn hear(&mut self, side: Side, line: &[u8], output: &mut Output) -> Result<Vec<Out>, String> {
        let text = line.trim_ascii();
        if text.is_empty() {
            return Ok(Vec::new());
        }
        if side == Side::Server && !matches!(text.first(), Some(b'{' | b'[')) {
            self.noise = self.noise.saturating_add(1);
            return Ok(Vec::new());
        }
        if let Some(stores) = &mut self.stores {
            stores.renew(&mut self.monitor, &mut self.knows)?;
        }
        if let Some(seen) = &self.seen {
            seen.exchange(&mut self.monitor)?;
        }
        let said = match side {
            Side::Client => self.proxy.from_client(&mut self.monitor, text),
            Side::Server => self.proxy.from_server(&mut self.monitor, text),
        };
        if let Some(stores) = &mut self.stores {
            stores.keep(&mut self.monitor, &mut self.knows)?;
        }
        if let Some(seen) = &self.seen {
            seen.exchange(&mut self.monitor)?;
        }
        if let (Some(path), Some(Out::Pins(pins))) =
            (&self.pins, said.iter().rfind(|out| matches!(out, Out::Pins(_))))
        {
            write_pins(path, &self.name, pins)?;
            output.note(&format!("the tools of {} are stored in {}", self.name, path.display()));
        }
        Ok(said)
    }

    /// Sends lines. Returns whether there was room for them.
    fn send(&mut self, said: Vec<Out>, client: &Queue, server: Option<&Queue>, output: &mut Output) -> bool {
        said.into_iter().all(|out| match out {
            Out::Client(line) => client.send(line),
            Out::Server(line) => server.is_none_or(|server| server.send(line)),
            Out::Note(note) => {
                self.remarks = self.remarks.saturating_add(1);
                if self.remarks <= REMARKS {
                    output.note(&visible::short(&note, 600));
                }
                true
            }
            Out::Pins(_) | Out::Ask(_) | Out::Unapproved { .. } => true,
        })
    }
}
