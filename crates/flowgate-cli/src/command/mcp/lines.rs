//! Queues the lines that `flowgate mcp` exchanges with its client and its server. Each line is one JSON-RPC message.
//!
//! A thread reads the standard input, and another one writes the standard output, so that the proxy never waits for a
//! client that does not read. [`LineQueue::send`] reports when too many bytes wait to be written. `child` uses the same
//! queue for the lines to the server, which a task writes.

use std::io::{BufRead, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use tokio::sync::mpsc::{self, Receiver, UnboundedSender};

/// The maximum number of bytes that wait to be written.
const MAX_QUEUED_BYTES: usize = 64 << 20;
/// The maximum number of lines that wait to be processed.
const QUEUE_CAPACITY: usize = 16;

/// The sending end of a queue of lines that another thread or task writes.
pub(super) struct LineQueue {
    sender: UnboundedSender<String>,
    /// The number of bytes that were sent and are not written yet.
    queued_bytes: Arc<AtomicUsize>,
    /// The thread that writes; `None` if a task writes.
    writer: Option<JoinHandle<()>>,
}

/// The receiving end of a queue of lines.
pub(super) struct LineQueueReceiver {
    receiver: mpsc::UnboundedReceiver<String>,
    queued_bytes: Arc<AtomicUsize>,
}

/// Creates a queue: its sending and its receiving end. No thread writes the lines yet (`writer: None`).
pub(super) fn queue() -> (LineQueue, LineQueueReceiver) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    (
        LineQueue { sender, queued_bytes: Arc::clone(&queued_bytes), writer: None },
        LineQueueReceiver { receiver, queued_bytes },
    )
}

impl LineQueue {
    /// Queues a line. Returns false if more than [`MAX_QUEUED_BYTES`] then wait; the caller ends the session in this
    /// case. It is not an error here if nothing reads the queue any more: the caller also reads from that side of the
    /// connection, and notices its end there.
    pub(super) fn send(&self, mut line: String) -> bool {
        line.push('\n');
        let length = line.len();
        let waited = self.queued_bytes.fetch_add(length, Ordering::Relaxed);
        let _ = self.sender.send(line);
        waited.saturating_add(length) <= MAX_QUEUED_BYTES
    }

    /// Closes the queue, and waits until the queued lines are written, but at most a second, since the other side may
    /// not read. If a task writes the lines, and not a thread, returns at once: waiting here would block the task.
    pub(super) fn close(self) {
        let Self { sender, queued_bytes, writer } = self;
        drop(sender);
        for _ in 0..100 {
            if queued_bytes.load(Ordering::Acquire) == 0
                || writer.as_ref().is_none_or(JoinHandle::is_finished)
            {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
}

impl LineQueueReceiver {
    /// Returns the next line; it counts as waiting until it is [`mark_written`](Self::mark_written).
    pub(super) async fn next(&mut self) -> Option<String> {
        self.receiver.recv().await
    }

    /// Records that a line was written: it no longer counts as waiting.
    pub(super) fn mark_written(&self, line: &str) {
        self.queued_bytes.fetch_sub(line.len(), Ordering::Release);
    }
}

/// Starts a thread that writes lines to the standard output, and returns the queue to it. The thread ends when the
/// queue is closed, or when the output cannot be written.
pub(super) fn standard_output() -> LineQueue {
    let (mut queue, mut lines) = queue();
    queue.writer = Some(std::thread::spawn(move || {
        while let Some(line) = lines.receiver.blocking_recv() {
            let mut out = std::io::stdout();
            if out.write_all(line.as_bytes()).and_then(|()| out.flush()).is_err() {
                return;
            }
            lines.mark_written(&line);
        }
    }));
    queue
}

/// Starts a thread that reads lines from the standard input into the returned channel. A line that is longer than
/// `largest` bytes is cut after `largest` + 1 bytes, by which the receiver notices that it was too long.
pub(super) fn standard_input(largest: usize) -> Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(QUEUE_CAPACITY);
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        while let Some(line) = read_line(&mut input, largest) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads the next line; `None` at the end or after an error. A line that is longer than `largest` bytes is cut after
/// `largest` + 1 bytes, by which the receiver notices that it was too long; the rest of the line is skipped.
pub(super) fn read_line(input: &mut impl BufRead, largest: usize) -> Option<Vec<u8>> {
    let (mut line, mut nothing_read) = (Vec::new(), true);
    loop {
        let buffer = match input.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return None,
        };
        if buffer.is_empty() {
            return (!nothing_read).then_some(line);
        }
        nothing_read = false;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = buffer.get(..end.unwrap_or(buffer.len())).unwrap_or_default();
        let room = largest.saturating_add(1).saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(part.get(..room).unwrap_or_default());
        let taken = end.map_or(buffer.len(), |end| end.saturating_add(1));
        input.consume(taken);
        if end.is_some() {
            return Some(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_bounded_and_none_is_lost() {
        let mut input = std::io::BufReader::with_capacity(3, &b"a\n\nlonger than it may be\nend"[..]);
        let lines: Vec<String> = std::iter::from_fn(|| read_line(&mut input, 5))
            .map(|line| String::from_utf8(line).unwrap())
            .collect();
        assert_eq!(lines, ["a", "", "longer", "end"]);
    }

    #[test]
    fn an_unread_queue_is_bounded() {
        let (queue, _lines) = queue();
        assert!(queue.send("x".repeat(MAX_QUEUED_BYTES / 2)));
        assert!(!queue.send("x".repeat(MAX_QUEUED_BYTES / 2)));
    }
}
