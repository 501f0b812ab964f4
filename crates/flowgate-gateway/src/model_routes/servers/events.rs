//! What a server says in a stream, message by message, and where it can be asked for the rest.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use flowgate_lm::sse::Splitter;

use super::upstream::{Part, next};

/// The most bytes of one stream.
const MAX_STREAM: usize = 64 << 20;
/// The longest id of an event, in bytes.
const MAX_ID: usize = 256;
/// How soon a stream is asked for again, if its server does not say; and what it may say.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(30)];

/// Messages as they come.
pub(super) struct Events {
    bytes: Receiver<Part>,
    splitter: Splitter,
    waiting: VecDeque<String>,
    read: usize,
    /// Where the stream was left that this one goes on with.
    since: Option<(String, Duration)>,
}

impl Events {
    pub(super) fn new(bytes: Receiver<Part>) -> Self {
        Self { bytes, splitter: Splitter::default(), waiting: VecDeque::new(), read: 0, since: None }
    }

    /// Since which event the rest can be asked for, and when. Nothing if the server has not said so.
    pub(super) fn left_at(&self) -> Option<(&str, Duration)> {
        let (since, pause) =
            self.since.as_ref().map_or(("", PAUSE), |(since, pause)| (since.as_str(), *pause));
        let id = Some(self.splitter.last_id()).filter(|id| !id.is_empty()).unwrap_or(since);
        let is_id =
            !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
        let pause = self.splitter.retry().map_or(pause, Duration::from_millis);
        let [least, most] = PAUSES;
        is_id.then(|| (id, pause.clamp(least, most)))
    }

    /// Goes on with the rest, which takes no more room than if it had come at once.
    pub(super) fn go_on(&mut self, rest: Self) {
        let since = self.left_at().map(|(since, pause)| (since.to_owned(), pause));
        *self = Self { read: self.read, since, ..rest };
    }

    /// The next message; nothing when the stream is over.
    ///
    /// # Errors
    /// If it broke off, or has no end, or it is time to `stop`.
    pub(super) fn next(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<String>, &'static str> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(message));
            }
            let Some(part) = next(&self.bytes, stop)? else { return Ok(None) };
            let Part::Bytes(bytes) = part else { continue };
            // Comments alone keep nobody waiting.
            if stop() {
                return Err("nobody waits for the answer any more");
            }
            self.read = self.read.saturating_add(bytes.len());
            if self.read > MAX_STREAM {
                return Err("the answer of the server does not end");
            }
            for event in self.splitter.feed(&bytes) {
                let event = event.map_err(|_| "the answer of the server cannot be read")?;
                if !event.data.is_empty() {
                    self.waiting.push_back(event.data);
                }
            }
        }
    }
}
