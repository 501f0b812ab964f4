//! Resumption of a stream that its server ends before the answer; the client receives everything in one stream.
//!
//! A server announces by the ids of its events that it can be resumed, and by `retry` after which pause. This concerns
//! only the server and the gateway: no event id goes to a client, and none is taken from one.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::events::Events;
use super::exchange::{Exchange, Request};
use super::upstream::{Body, SESSION, TIME};

/// The limit on consecutive resumptions that bring no new event.
const MOST_EMPTY: usize = 10;
/// The interval at which a waiting request checks whether it should stop.
const LOOK: Duration = Duration::from_millis(100);

/// The limits on the resumptions of one answer.
pub(super) struct Patience {
    until: Instant,
    since: String,
    empty: usize,
}

impl Patience {
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + TIME, since: String::new(), empty: 0 }
    }

    /// Returns whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Returns whether the server may be asked once more for the events after this one.
    fn lasts(&mut self, since: &str) -> bool {
        self.empty = if self.since == since { self.empty.saturating_add(1) } else { 0 };
        since.clone_into(&mut self.since);
        self.empty < MOST_EMPTY && !self.is_over()
    }
}

impl Exchange<'_> {
    /// Resumes a stream that has ended. Returns whether there is more of it.
    pub(super) fn rest_of(
        &self,
        events: &mut Events,
        session: Option<&str>,
        patience: &mut Patience,
        stop: &dyn Fn() -> bool,
    ) -> bool {
        let Request { client, server, conversation, beside, .. } = self.request;
        let mut headers = beside.of(&Value::Null);
        headers.extend(session.map(|session| (SESSION.to_owned(), session.to_owned())));
        loop {
            let Some((since, pause)) = events.left_at() else { return false };
            let since = since.to_owned();
            if !patience.lasts(&since) {
                return false;
            }
            let until = Instant::now() + pause;
            while Instant::now() < until {
                if stop() {
                    return false;
                }
                std::thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
            }
            let place = format!("{}/", server.name);
            if self.routes.approvals.stops(&client.spec, conversation, &place).is_some() {
                return false;
            }
            match server.upstream.listen(Some(&since), None, &headers, stop).map(|answer| answer.body) {
                Ok(Body::Stream(rest)) => {
                    events.go_on(*rest);
                    return true;
                }
                // The server does not resume the stream that it announced.
                Ok(_) => return false,
                Err(_) => {}
            }
        }
    }
}
