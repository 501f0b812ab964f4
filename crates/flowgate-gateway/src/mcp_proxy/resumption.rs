//! Resumption of a stream that its server ends before the answer; the client receives everything in one stream.
//!
//! A server announces by the ids of its events that it can be resumed, and by `retry` after which pause. This concerns
//! only the server and the gateway: no event id goes to a client, and none is taken from one.

use std::time::{Duration, Instant};

use super::event_stream::EventStream;
use super::upstream::{ANSWER_TIMEOUT, McpServerClient, ServerAnswerBody};

/// The limit on consecutive resumptions that bring no new event.
const MOST_EMPTY: usize = 10;
/// The interval at which a waiting request checks whether it should stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The limits on the resumptions of one answer.
pub(super) struct ResumptionLimits {
    until: Instant,
    since: String,
    empty: usize,
}

impl ResumptionLimits {
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + ANSWER_TIMEOUT, since: String::new(), empty: 0 }
    }

    /// Returns whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns whether the server may be asked once more for the events after this one.
    fn allows_another(&mut self, since: &str) -> bool {
        self.empty = if self.since == since { self.empty.saturating_add(1) } else { 0 };
        since.clone_into(&mut self.since);
        self.empty < MOST_EMPTY && !self.is_over()
    }
}

/// Resumes a stream that has ended. Returns whether there is more of it. Asks the server only while `may_ask` returns
/// `true`, and ends as soon as `stop` does.
pub(super) fn resume(
    events: &mut EventStream,
    server: &McpServerClient,
    headers: &[(String, String)],
    limits: &mut ResumptionLimits,
    may_ask: &dyn Fn() -> bool,
    stop: &dyn Fn() -> bool,
) -> bool {
    loop {
        let Some((since, pause)) = events.resume_point() else { return false };
        let since = since.to_owned();
        if !limits.allows_another(&since) {
            return false;
        }
        let until = Instant::now() + pause;
        while Instant::now() < until {
            if stop() {
                return false;
            }
            std::thread::sleep(POLL_INTERVAL.min(until.saturating_duration_since(Instant::now())));
        }
        if !may_ask() {
            return false;
        }
        match server.listen(Some(&since), None, headers, stop).map(|answer| answer.body) {
            Ok(ServerAnswerBody::Stream(rest)) => {
                events.resume_with(*rest);
                return true;
            }
            // The server does not resume the stream that it announced.
            Ok(_) => return false,
            Err(_) => {}
        }
    }
}
