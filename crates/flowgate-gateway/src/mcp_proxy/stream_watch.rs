//! Checks during a listening stream: whether it should end, and whether the connection needs a sign of life.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::Sender;

use super::request::McpRequest;
use crate::chat::ModelRoutes;
use crate::chat::stream::ReplyPart;
use crate::database::block_on;
use crate::http::client_presence::ClientPresence;

/// The interval at which the freezes are checked.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// The interval at which a comment is sent to the client to keep the stream alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Checks whether a listening stream should end, and keeps it alive.
pub(super) struct StreamWatch<'w> {
    routes: &'w ModelRoutes,
    request: &'w McpRequest,
    waiting: &'w ClientPresence,
    parts: Sender<ReplyPart>,
    looked: Cell<Instant>,
    alive: Cell<Instant>,
}

impl<'w> StreamWatch<'w> {
    pub(super) fn new(
        routes: &'w ModelRoutes,
        request: &'w McpRequest,
        waiting: &'w ClientPresence,
        parts: Sender<ReplyPart>,
    ) -> Self {
        let (looked, alive) = (Cell::new(Instant::now()), Cell::new(Instant::now()));
        Self { routes, request, waiting, parts, looked, alive }
    }

    /// Returns why a freeze stops the stream, if one does.
    pub(super) fn freeze_reason(&self) -> Option<String> {
        let McpRequest { client, server, conversation, .. } = self.request;
        self.looked.set(Instant::now());
        let tools = format!("{}/", server.name);
        block_on(self.routes.approvals.freeze_reason(&client.spec, conversation, &tools))
    }

    /// Returns whether the client has disconnected, the gateway shuts down or a freeze stops the stream.
    pub(super) fn is_over(&self) -> bool {
        if self.waiting.has_gone() || self.routes.is_closing() {
            return true;
        }
        if self.alive.get().elapsed() >= KEEP_ALIVE {
            self.alive.set(Instant::now());
            // A full channel means that other data is on its way.
            let _ = self.parts.try_send(ReplyPart::Bytes(b": still here\n\n".to_vec()));
        }
        self.looked.get().elapsed() >= POLL_INTERVAL && self.freeze_reason().is_some()
    }
}
