//! Reads the messages in the event stream of an MCP server, and notes the position from which the stream can be
//! resumed. `upstream` creates an [`EventStream`], and `server_requests` and `listening` read it.

use std::collections::VecDeque;
use std::time::Duration;

use flowgate_lm::Error;
use flowgate_lm::sse::EventSplitter;

use super::answer_bytes::ServerAnswerBytes;
use super::stop_signal::{NOT_AWAITED, StopSignal};

/// The limit on one stream, in bytes.
const MAX_STREAM: usize = 64 << 20;
/// The limit on an event's id, in bytes.
const MAX_ID: usize = 256;
/// The pause before a stream is resumed, if its server sets none.
const DEFAULT_RESUME_PAUSE: Duration = Duration::from_secs(1);
/// The shortest and the longest pause that a server can set.
const RESUME_PAUSE_BOUNDS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// The messages of a stream as they arrive.
pub(super) struct EventStream {
    bytes: ServerAnswerBytes,
    splitter: EventSplitter,
    /// Messages that have arrived and were not returned yet.
    waiting: VecDeque<String>,
    /// The number of bytes read, including those of the earlier streams that this one resumes.
    read: usize,
    /// If this stream resumes an earlier one: the id of the last event of the earlier stream, and the pause before the
    /// resumption.
    since: Option<(String, Duration)>,
}

impl EventStream {
    /// Begins to read a new event stream. `bytes` is the body of the server's answer.
    pub(super) fn new(bytes: ServerAnswerBytes) -> Self {
        Self { bytes, splitter: EventSplitter::default(), waiting: VecDeque::new(), read: 0, since: None }
    }

    /// Returns the id of the last event that has one, after which the stream can be resumed, and the pause before
    /// the resumption, which is within [`RESUME_PAUSE_BOUNDS`]; `None` if the server has sent no id, or the last id
    /// is not valid.
    pub(super) fn resume_point(&self) -> Option<(&str, Duration)> {
        // Until this stream has sent an id or a pause of its own, the values of the earlier stream apply.
        let (since, pause) =
            self.since.as_ref().map_or(("", DEFAULT_RESUME_PAUSE), |(since, pause)| (since.as_str(), *pause));
        let id = Some(self.splitter.last_id()).filter(|id| !id.is_empty()).unwrap_or(since);
        // The id is sent in a header of HTTP, which can have only spaces and visible ASCII.
        let is_id =
            !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        let pause = self.splitter.retry().map_or(pause, Duration::from_millis);
        let [least, most] = RESUME_PAUSE_BOUNDS;
        is_id.then(|| (id, pause.clamp(least, most)))
    }

    /// Continues with `rest`, the stream by which the server resumes this one. The size limit applies to the sum of
    /// both.
    pub(super) fn resume_with(&mut self, rest: Self) {
        // Until `rest` has sent an id of its own, it can be resumed where this stream could.
        let since = self.resume_point().map(|(since, pause)| (since.to_owned(), pause));
        *self = Self { read: self.read, since, ..rest };
    }

    /// Returns the next message; `None` at the end of the stream.
    ///
    /// # Errors
    /// If the stream broke off, is too long, is not UTF-8 or has an event that is too long, or if `stop` has ended
    /// the wait.
    pub(super) async fn next(&mut self, stop: &mut StopSignal<'_>) -> Result<Option<String>, &'static str> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(message));
            }
            // The outer result says whether `stop` has ended the wait, and the inner one whether the stream broke off.
            let Some(bytes) = stop.wait_for(self.bytes.next()).await?? else { return Ok(None) };
            // Checked here as well, since `wait_for` prefers bytes that have arrived: a server that sends comments all
            // the time could otherwise hold an abandoned request open.
            if stop.is_over().await {
                return Err(NOT_AWAITED);
            }
            self.read = self.read.saturating_add(bytes.len());
            if self.read > MAX_STREAM {
                return Err(
                    "the event stream of the MCP server is larger than 64 MiB: let the agent ask for less",
                );
            }
            for event in self.splitter.feed(&bytes) {
                let event = event.map_err(|error| match error {
                    // The limit is `flowgate_lm::sse::MAX_EVENT`.
                    Error::TooLong(_) => {
                        "an event in the event stream of the MCP server is longer than 16 MiB, which is a fixed limit: let the agent ask for less"
                    }
                    _ => "the event stream of the MCP server is not valid UTF-8: check that server",
                })?;
                if !event.data.is_empty() {
                    self.waiting.push_back(event.data);
                }
            }
        }
    }
}
