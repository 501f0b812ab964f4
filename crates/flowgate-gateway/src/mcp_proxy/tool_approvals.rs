//! Restricts the tools of an MCP server that a client may see and call to the tools that the client's tenant has
//! approved. An approval is valid only for the approved description of a tool, since a server could win approval with a
//! harmless description and change it later. A person approves tools. But the first list that a tenant receives from a
//! server counts as approved, unless the configuration requires a person's approval for it too (`approves_first`).
//!
//! `conversation_inputs` calls [`McpExchange::pin`], which gives the proxy the approved tools, before it hands an input
//! to the proxy. After that it calls `note_tools`, which records new tools for a person to approve.

use flowgate::trace::Tool;
use serde_json::Value;

use super::exchange::McpExchange;
use super::proxies::ProxyEvent;
use super::request::McpRequest;
use crate::chat::conversations::ConversationState;
use crate::database::{DatabaseError, ServerTool};
use crate::http::request_error::RequestError;
use axum::http::StatusCode;
use flowgate_mcp::{Pins, ProxyAction};

/// The limit on tools in one list that people are asked about.
const MAX_PROPOSED: usize = 20;

impl McpExchange<'_> {
    /// If `event` is a request of the client to list tools, hands the proxy the approved tools with the digests of
    /// their descriptions (the *pins*). The proxy then hides the other tools of the list. Does nothing for other
    /// inputs.
    pub(super) async fn pin(
        &mut self,
        session: &mut ConversationState,
        event: &ProxyEvent,
    ) -> Result<(), DatabaseError> {
        let ProxyEvent::Client { text, .. } = event else { return Ok(()) };
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        // A later page belongs to a list for which the proxy has already received the approved tools.
        let is_later_page = message.pointer("/params/cursor").is_some_and(|cursor| !cursor.is_null());
        if message.get("method").and_then(Value::as_str) != Some("tools/list") || is_later_page {
            return Ok(());
        }
        let McpRequest { client, server, .. } = self.request;
        let approved = self.routes.approvals.store.approved(&client.spec.tenant, &server.name).await?;
        // The first list counts as approved, unless the configuration requires a person's approval from the beginning.
        let accept_new = approved.is_empty() && !server.approves_first;
        let pins = Pins::from(approved);
        // The coverage (which tools the gateway has seen) notes all listed tools. The proxy later reports only
        // those without an approval; those with an approval are noted here.
        self.note_listed(pins.tools().map(|(tool, _)| tool));
        // The proxy receives the approved tools only if they have changed.
        if session.pins(&server.name) != Some(&pins) {
            self.hand_to_proxy(session, ProxyEvent::Pinned { pins, accept_new });
        }
        Ok(())
    }

    /// Notes that the server offers these tools to the client, for the coverage that the page for people shows.
    fn note_listed<'t>(&self, tools: impl Iterator<Item = &'t str>) {
        let McpRequest { client, server, .. } = self.request;
        let tools = tools.map(|tool| Tool::of(&server.name, tool));
        self.routes.coverage.note_offered(&client.spec.name, tools);
    }

    /// Handles what the proxy reports about a list of tools, and removes these reports from `actions`, since they are
    /// for the gateway only. [`ProxyAction::Pins`] are the tools of a first list, which the proxy has accepted: they
    /// are stored as approved. Each [`ProxyAction::Unapproved`] is a tool that the proxy has hidden: people are asked
    /// about it, at most about [`MAX_PROPOSED`] of one list.
    ///
    /// # Errors
    /// If the tenant has approved other descriptions at the same time (the client has to list the tools again), or if
    /// the database or the audit log fails.
    pub(super) async fn note_tools(
        &mut self,
        session: &mut ConversationState,
        actions: &mut Vec<ProxyAction>,
    ) -> Result<(), RequestError> {
        let McpRequest { client, server, .. } = self.request;
        // The tool of this server with this name, whose description has this digest.
        let offer = |tool: &str, digest: &str| {
            let (server, tool, digest) = (server.name.clone(), tool.to_owned(), digest.to_owned());
            ServerTool { server, tool, digest }
        };
        let listed = actions.iter().flat_map(|action| match action {
            ProxyAction::Pins(pins) => pins.tools().map(|(tool, _)| tool).collect(),
            ProxyAction::Unapproved { name, .. } => vec![name.as_str()],
            _ => Vec::new(),
        });
        self.note_listed(listed);
        // The number of tools that people are asked about.
        let mut proposed = 0;
        // The approved tools, if they differ from the listed ones.
        let mut conflicting_pins = None;
        for action in actions.iter() {
            match action {
                ProxyAction::Pins(pins) => {
                    let offers: Vec<ServerTool> =
                        pins.tools().map(|(tool, digest)| offer(tool, digest)).collect();
                    let (store, tenant) = (&self.routes.approvals.store, &client.spec.tenant);
                    // Has no effect on a tool that is approved already, perhaps with another description.
                    store.approve_first(tenant, &offers).await?;
                    let approved = Pins::from(store.approved(tenant, &server.name).await?);
                    if pins.tools().any(|(tool, digest)| !approved.is_approved(tool, digest)) {
                        conflicting_pins = Some(approved);
                    }
                }
                ProxyAction::Unapproved { name, digest, description } if proposed < MAX_PROPOSED => {
                    proposed += 1;
                    let proposal = offer(name, digest);
                    self.routes.approvals.ask_about_tool(&client.spec, &proposal, description).await?;
                }
                // Further tools without an approval stay hidden, and nobody is asked about them.
                _ => {}
            }
        }
        actions.retain(|action| !matches!(action, ProxyAction::Pins(_) | ProxyAction::Unapproved { .. }));
        // Another client of the tenant received other descriptions at the same time, and those are approved.
        if let Some(pins) = conflicting_pins {
            self.hand_to_proxy(session, ProxyEvent::Pinned { pins, accept_new: false });
            let why = "another request of the tenant listed other descriptions of the tools at the same time: list the \
                tools again";
            return Err(RequestError::new(StatusCode::CONFLICT, why));
        }
        Ok(())
    }
}
