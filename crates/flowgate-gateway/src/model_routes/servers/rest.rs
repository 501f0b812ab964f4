//! A stream that its server ends before the answer, to be asked for the rest: the gateway asks, and its client gets all in one stream.
//!
//! A server says by ids of its events that it can be asked, and by `retry` when. That is between it and the gateway: no id of an
//! event goes to a client, and none comes from one.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::events::Events;
use super::exchange::{Exchange, Request};
use super::upstream::{Body, SESSION, TIME};

/// How often a server is asked that has nothing new to say.
const MOST_EMPTY: usize = 10;
/// How often whoever waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(100);

/// How long the rest of one answer may be asked for.
pub(super) struct Patience {
    until: Instant,
    since: String,
    empty: usize,
}

impl Patience {
    pub(super) fn begin() -> Self {
        Self { until: Instant::now() + TIME, since: String::new(), empty: 0 }
    }

    /// Whether it is over.
    pub(super) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Whether a server may be asked once more for what it has said since this event.
    fn lasts(&mut self, since: &str) -> bool {
        self.empty = if self.since == since { self.empty.saturating_add(1) } else { 0 };
        since.clone_into(&mut self.since);
        self.empty < MOST_EMPTY && !self.is_over()
    }
}

impl Exchange<'_> {
    /// Asks for the rest of a stream that is over. Whether there is one.
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
                // It knows nothing of what it has promised.
                Ok(_) => return false,
                Err(_) => {}
            }
        }
    }
}
