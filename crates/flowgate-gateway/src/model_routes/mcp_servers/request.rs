//! One request of a client for an MCP server.

use std::sync::Arc;

use axum::http::StatusCode;

use super::headers::McpHeaders;
use super::pending_reply::error_reply;
use crate::config::McpServer;
use crate::model_routes::clients::{ClientState, RequestSlot};
use crate::model_routes::stream_slot::StreamSlot;
use crate::model_routes::{ClientLimit, ModelRoutes};
use crate::reply::HttpReply;

/// The error of a client with too many listening streams.
const TOO_MANY_REQUESTS: &str = "this client has as many requests open as it may: wait for one of them";

/// A request whose body has not been read.
#[derive(Debug)]
pub(crate) struct McpRequest {
    pub(super) client: Arc<ClientState>,
    pub(super) server: Arc<McpServer>,
    pub(super) conversation: String,
    /// The server's id of the MCP session.
    pub(super) session: Option<String>,
    pub(super) headers: McpHeaders,
    /// Whether the client accepts an event stream.
    pub(super) streams: bool,
    /// Whether the client asks for the labels of answers.
    pub(super) labels: bool,
    pub(super) slot: ClientSlot,
}

/// The quota that a request takes of its client.
#[derive(Debug)]
pub(crate) enum ClientSlot {
    /// One of its parallel requests.
    Asks(#[expect(dead_code, reason = "given back when it is dropped")] RequestSlot),
    /// One of its parallel streams of server messages that answer no request.
    Listens(Arc<StreamSlot>),
}

impl McpRequest {
    /// Exchanges the slot of an ordinary request for that of a listening stream.
    pub(crate) fn switch_slot(&mut self, routes: &ModelRoutes) -> Result<(), HttpReply> {
        let Some(place) = StreamSlot::acquire(&self.client.listening) else {
            routes.client_limit(&self.client, Some(&self.conversation), ClientLimit::Listening);
            return Err(error_reply(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_REQUESTS).mark_logged());
        };
        self.slot = ClientSlot::Listens(Arc::new(place));
        Ok(())
    }
}
