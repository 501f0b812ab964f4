//! Checks periodically during a listening stream whether a freeze stops it, and whether a comment must be sent so that
//! nothing on the way closes the idle connection. `listening` creates the checks.

use std::time::Duration;

use flowgate_lm::BoxFuture;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::request::McpRequest;
use super::stop_signal::PeriodicCheck;
use crate::chat::ModelRoutes;
use crate::chat::stream::ReplyPart;

/// The interval at which the freezes are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The interval at which a comment is sent to the client to keep the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Checks whether a freeze stops a listening stream, and keeps the stream alive.
pub(super) struct StreamWatch<'w> {
    routes: &'w ModelRoutes,
    request: &'w McpRequest,
    /// The parts of the reply, once it has begun: a comment before its begin would take the place of the begin.
    parts: Option<Sender<ReplyPart>>,
    looked: Instant,
    alive: Instant,
}

impl<'w> StreamWatch<'w> {
    pub(super) fn new(
        routes: &'w ModelRoutes,
        request: &'w McpRequest,
        parts: Option<Sender<ReplyPart>>,
    ) -> Self {
        let now = Instant::now();
        Self { routes, request, parts, looked: now, alive: now }
    }
}

impl PeriodicCheck for StreamWatch<'_> {
    fn next_check(&self) -> Instant {
        let looks = self.looked + POLL_INTERVAL;
        if self.parts.is_some() { looks.min(self.alive + KEEP_ALIVE) } else { looks }
    }

    /// Sends a comment if one is due, and returns whether a freeze stops the stream.
    fn check(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if let Some(parts) = &self.parts
                && self.alive.elapsed() >= KEEP_ALIVE
            {
                self.alive = Instant::now();
                // A full channel means that other data is on its way.
                let _ = parts.try_send(ReplyPart::Bytes(b": still here\n\n".to_vec()));
            }
            if self.looked.elapsed() < POLL_INTERVAL {
                return false;
            }
            self.looked = Instant::now();
            self.routes.freeze_of_server(self.request).await.is_some()
        })
    }
}
