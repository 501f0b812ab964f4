//! Runs the MCP server of `flowgate mcp` as a child process: starts it in a process group of its own, writes and reads
//! its lines, and ends it together with its own children. Also waits for the signals that end `flowgate mcp`.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, Command};
use tokio::sync::mpsc::{self, Receiver};

use super::lines::{LineQueue, LineQueueReceiver, queue};

/// The time for a server to end after its input was closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// A running server. It is killed, together with its children, when this value is dropped.
pub(super) struct ServerProcess {
    /// Its output, line by line; the channel ends after the last line.
    pub(super) lines: Receiver<Vec<u8>>,
    /// The queue of the lines for its input; `None` after the input was closed.
    pub(super) input: Option<LineQueue>,
    process: Box<dyn ChildWrapper>,
}

impl ServerProcess {
    /// Starts the server, and the tasks that write its input and read its output. The server inherits the environment
    /// and the standard error. Lines of its output that are longer than `largest` bytes are cut.
    ///
    /// # Errors
    /// If the server cannot be started, with advice.
    pub(super) fn start(command: &[OsString], largest: usize) -> Result<Self, String> {
        let (program, arguments) = command
            .split_first()
            .ok_or("the command line names no server; write the server's command after `--`")?;
        let program_name = crate::escaping::line(&program.to_string_lossy());
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut command = CommandWrap::from(command);
        // A process group of its own, so that the processes that the server starts can be ended with it.
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        let mut process = command.spawn().map_err(|error| {
            let why = match error.kind() {
                std::io::ErrorKind::NotFound => "no program of this name was found".to_owned(),
                std::io::ErrorKind::PermissionDenied => "the file is not executable".to_owned(),
                _ => error.to_string(),
            };
            format!("the server's command `{program_name}` cannot be started: {why}; try to run it by hand")
        })?;
        let (to, from) = (process.stdin().take(), process.stdout().take());
        let (Some(to), Some(from)) = (to, from) else {
            return Err(format!(
                "the server's command `{program_name}` was started without standard input and output; this is a \
                defect of Flowgate; please report it"
            ));
        };
        let (input, queued_lines) = queue();
        tokio::spawn(write_lines(to, queued_lines));
        Ok(Self { lines: read_lines(from, largest), input: Some(input), process })
    }

    /// Ends the server: closes its input, waits up to [`EXIT_TIMEOUT`] for its end, and then kills the server and its
    /// children. A failure is ignored, since nothing more can be done.
    pub(super) async fn terminate(mut self) {
        drop(self.input.take());
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.process.wait()).await;
        // The server has ended, or has not ended in time. Its children may still run.
        let _ = self.process.start_kill();
        let _ = tokio::time::timeout(EXIT_TIMEOUT, self.process.wait()).await;
    }
}

/// Kills the server and its children, for the ends of a session at which nothing waits for them, such as an error.
impl Drop for ServerProcess {
    fn drop(&mut self) {
        let _ = self.process.start_kill();
    }
}

/// Waits for a signal that ends the program: Ctrl-C or, on Unix, SIGTERM. Returns at once if the program cannot listen
/// to Ctrl-C.
pub(super) async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut termination) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = termination.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}

/// Writes queued lines to the server's input, until the queue ends or the server does not read any more. A written line
/// no longer counts against the limit of the queue.
async fn write_lines(mut input: ChildStdin, mut lines: LineQueueReceiver) {
    while let Some(line) = lines.next().await {
        if input.write_all(line.as_bytes()).await.is_err() || input.flush().await.is_err() {
            return;
        }
        lines.mark_written(&line);
    }
}

/// Starts a task that reads lines into the returned channel until the end of the output. A line that is longer than
/// `largest` bytes is cut after `largest` + 1 bytes, by which the receiver notices that it was too long. The channel
/// has room for 16 lines; a server that writes faster has to wait.
fn read_lines(from: impl AsyncRead + Unpin + Send + 'static, largest: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        let mut from = BufReader::new(from);
        while let Some(line) = read_line(&mut from, largest).await {
            if sender.send(line).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads the next line; `None` at the end or after an error. A line that is longer than `largest` bytes is cut after
/// `largest` + 1 bytes, by which the receiver notices that it was too long; the rest of the line is skipped.
async fn read_line(from: &mut (impl AsyncBufReadExt + Unpin), largest: usize) -> Option<Vec<u8>> {
    let (mut line, mut nothing_read) = (Vec::new(), true);
    loop {
        let buffer = from.fill_buf().await.ok()?;
        if buffer.is_empty() {
            return (!nothing_read).then_some(line);
        }
        nothing_read = false;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let room = largest.saturating_add(1).saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(part.get(..room).unwrap_or_default());
        let taken = end.map_or(buffer.len(), |end| end.saturating_add(1));
        from.consume(taken);
        if end.is_some() {
            return Some(line);
        }
    }
}
