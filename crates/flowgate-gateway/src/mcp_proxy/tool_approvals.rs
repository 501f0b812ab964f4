//! Restricts the tools of a server to those that a tenant has approved, as they were described then.
//!
//! `conversation_inputs` calls this before and after the tools of a server are listed.

use serde_json::Value;

use super::exchange::McpExchange;
use super::proxies::ProxyEvent;
use super::request::McpRequest;
use crate::chat::conversations::ConversationState;
use crate::database::{DatabaseError, ToolOffer};
use crate::http::request_error::RequestError;
use axum::http::StatusCode;
use flowgate_mcp::{Pins, ProxyAction};

/// The limit on tools in one list that people are asked about.
const MAX_PROPOSED: usize = 20;

impl McpExchange<'_> {
    /// Sets the approved tools before tools are listed. The first list of a server that a tenant receives counts as
    /// approved, unless the operator wants to see it first.
    pub(super) async fn pin(
        &mut self,
        session: &mut ConversationState,
        what: &ProxyEvent,
    ) -> Result<(), DatabaseError> {
        let ProxyEvent::Client { text, .. } = what else { return Ok(()) };
        let message: Value = serde_json::from_str(text).unwrap_or_default();
        let is_page = message.pointer("/params/cursor").is_some_and(|cursor| !cursor.is_null());
        if message.get("method").and_then(Value::as_str) != Some("tools/list") || is_page {
            return Ok(());
        }
        let McpRequest { client, server, .. } = self.request;
        let approved = self.routes.approvals.store.approved(&client.spec.tenant, &server.name).await?;
        let accept_new = approved.is_empty() && !server.approves_first;
        let pins = Pins::from(approved);
        if session.pins(&server.name) != Some(&pins) {
            self.hand_to_proxy(session, ProxyEvent::Pinned { pins, accept_new });
        }
        Ok(())
    }

    /// Stores which tools count as approved, and asks people about the others. Removes the actions that report tools,
    /// since they concern the gateway alone.
    pub(super) async fn note_tools(
        &mut self,
        session: &mut ConversationState,
        actions: &mut Vec<ProxyAction>,
    ) -> Result<(), RequestError> {
        let McpRequest { client, server, .. } = self.request;
        let offer = |tool: &str, digest: &str| {
            let (server, tool, digest) = (server.name.clone(), tool.to_owned(), digest.to_owned());
            ToolOffer { server, tool, digest }
        };
        let (mut proposed, mut pinned) = (0, None);
        for out in actions.iter() {
            match out {
                ProxyAction::Pins(pins) => {
                    let offers: Vec<ToolOffer> =
                        pins.tools().map(|(tool, digest)| offer(tool, digest)).collect();
                    let (store, tenant) = (&self.routes.approvals.store, &client.spec.tenant);
                    store.approve_first(tenant, &offers).await?;
                    let known = Pins::from(store.approved(tenant, &server.name).await?);
                    if pins.tools().any(|(tool, digest)| !known.is_approved(tool, digest)) {
                        pinned = Some(known);
                    }
                }
                ProxyAction::Unapproved { name, digest, description } if proposed < MAX_PROPOSED => {
                    proposed += 1;
                    let offer = offer(name, digest);
                    self.routes.approvals.ask_about_tool(&client.spec, &offer, description).await?;
                }
                _ => {}
            }
        }
        actions.retain(|out| !matches!(out, ProxyAction::Pins(_) | ProxyAction::Unapproved { .. }));
        // Another client of the tenant received other descriptions at the same time, and those are approved.
        if let Some(pins) = pinned {
            self.hand_to_proxy(session, ProxyEvent::Pinned { pins, accept_new: false });
            let why = "another request listed the tools at the same time: list the tools again";
            return Err(RequestError::new(StatusCode::CONFLICT, why));
        }
        Ok(())
    }
}
