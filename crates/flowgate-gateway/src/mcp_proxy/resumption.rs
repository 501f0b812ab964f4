//! Resumes a stream of server-sent events if an MCP server ends it before sending the answer. The client does not
//! notice, since the client receives everything in one stream. `server_requests` calls it.
//!
//! An event can have an id, and a stream can be resumed after its last event with an id. The field `retry` of an event
//! says how long to wait before the resumption. The gateway keeps the ids to itself: clients neither receive nor send
//! them.

use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::event_stream::EventStream;
use super::exchange::McpExchange;
use super::request::McpRequest;
use super::stop_signal::StopSignal;
use super::upstream::{ANSWER_TIMEOUT, SESSION, ServerAnswerBody};

/// The limit on consecutive resumptions without a new event.
const MAX_EMPTY: usize = 10;

/// The limits on the resumptions of one answer.
pub(super) struct ResumptionLimits {
    /// The end of the time for the answer.
    pub(super) until: Instant,
    /// The id of the event after which the stream was resumed last.
    since: String,
    /// The number of consecutive resumptions after that event.
    empty: usize,
}

impl ResumptionLimits {
    /// Begins the time for an answer, in which no resumption has happened yet.
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + ANSWER_TIMEOUT, since: String::new(), empty: 0 }
    }

    /// Counts a resumption after the event with the id `since`, and returns whether the resumption is within the
    /// limits: the time for the answer, and the number of consecutive resumptions without a new event. Without the
    /// second limit, a server that ends each stream at once would be asked again and again.
    fn allows_another(&mut self, since: &str) -> bool {
        // The same id as at the last resumption: the stream has brought no event since.
        self.empty = if self.since == since { self.empty.saturating_add(1) } else { 0 };
        since.clone_into(&mut self.since);
        self.empty < MAX_EMPTY && Instant::now() < self.until
    }
}

impl McpExchange<'_> {
    /// Resumes a stream that has ended, after the pause that its server asked for, and tries again if the server cannot
    /// be reached. `session` is the id of the MCP session, if there is one. Returns true if the stream was resumed:
    /// `events` then continues with its rest. Returns false if the server does not resume the stream, a limit is
    /// reached, the wait is over, or a freeze stops the server.
    pub(super) async fn resume(
        &self,
        events: &mut EventStream,
        session: Option<&str>,
        limits: &mut ResumptionLimits,
        stop: &mut StopSignal<'_>,
    ) -> bool {
        let McpRequest { server, headers: request_headers, .. } = self.request;
        // A resumption sends no message, so the headers name only the version of the protocol.
        let mut headers = request_headers.for_message(&Value::Null);
        headers.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
        loop {
            let Some((last_event, pause)) = events.resume_point() else { return false };
            let last_event = last_event.to_owned();
            if !limits.allows_another(&last_event) || stop.wait_for(sleep(pause)).await.is_err() {
                return false;
            }
            if self.routes.freeze_of_server(self.request).await.is_some() {
                return false;
            }
            match server.upstream.listen(Some(&last_event), &headers, stop).await.map(|answer| answer.body) {
                Ok(ServerAnswerBody::Stream(rest)) => {
                    events.resume_with(*rest);
                    return true;
                }
                // The server does not resume the stream that it announced.
                Ok(_) => return false,
                // The server cannot be reached, or the wait is over. In the second case, the next iteration returns
                // false.
                Err(_) => {}
            }
        }
    }
}
