//! Defines the periodic check of a stream on which a client only listens for messages of an MCP server. The check ends
//! the stream if a freeze stops it or the client's token has expired. It also sends SSE comments, so that no HTTP
//! proxy closes the idle connection. `server_requests` creates a [`StreamCheck`], and `stop_signal` calls it when it
//! is due.

use std::time::{Duration, SystemTime};

use flowgate_lm::BoxFuture;
use tokio::sync::mpsc::Sender;
use tokio::time::Instant;

use super::request::McpRequest;
use super::stop_signal::PeriodicCheck;
use crate::chat::ModelRoutes;
use crate::chat::stream::ReplyPart;

/// The interval at which the freezes and the expiry of the client's token are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The interval at which a comment is sent to the client to keep the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Checks whether a freeze or an expired token stops a listening stream, and keeps the stream alive.
pub(super) struct StreamCheck<'w> {
    routes: &'w ModelRoutes,
    request: &'w McpRequest,
    /// The channel to the client, once the reply has begun; a comment must not precede the headers.
    parts: Option<Sender<ReplyPart>>,
    /// The time of the last check of the freezes.
    last_check: Instant,
    /// The time of the last comment.
    last_comment: Instant,
}

impl<'w> StreamCheck<'w> {
    /// Creates the checks of a listening stream, which begin now. `parts` is the channel of the reply, to which they
    /// send the comments that keep the client's connection open. It is `None` if the reply has not begun; then no
    /// comments are sent.
    pub(super) fn new(
        routes: &'w ModelRoutes,
        request: &'w McpRequest,
        parts: Option<Sender<ReplyPart>>,
    ) -> Self {
        let now = Instant::now();
        Self { routes, request, parts, last_check: now, last_comment: now }
    }
}

impl PeriodicCheck for StreamCheck<'_> {
    /// Returns when `check` has to be called next: for a check or, if the reply has begun, for a comment.
    fn next_check(&self) -> Instant {
        let next_check = self.last_check + POLL_INTERVAL;
        if self.parts.is_some() { next_check.min(self.last_comment + KEEP_ALIVE) } else { next_check }
    }

    /// Sends the client a comment if one is due, so that the connection does not count as idle. If a check is due,
    /// returns whether the stream must end, because a freeze stops it or the client's token has expired; otherwise
    /// returns false.
    fn check(&mut self) -> BoxFuture<'_, bool> {
        Box::pin(async move {
            if let Some(parts) = &self.parts
                && self.last_comment.elapsed() >= KEEP_ALIVE
            {
                self.last_comment = Instant::now();
                // A full channel means that other data is on its way.
                let _ = parts.try_send(ReplyPart::Bytes(b": still here\n\n".to_vec()));
            }
            if self.last_check.elapsed() < POLL_INTERVAL {
                return false;
            }
            self.last_check = Instant::now();
            let expires = self.request.key.as_ref().and_then(|key| key.expires);
            expires.is_some_and(|expires| expires <= SystemTime::now())
                || self.routes.freeze_of_server(self.request).await.is_some()
        })
    }
}
