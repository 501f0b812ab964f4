//! Enforces freezes (orders of an admin that stop tools, servers, clients and conversations) for MCP servers: a stopped
//! call is not sent to its server, and no message of a stopped server is sent to a client. The other files of
//! `mcp_proxy` call it before they send a message.

use flowgate_mcp::ProxyAction;
use serde_json::Value;

use super::exchange::McpExchange;
use super::proxies::ProxyEvent;
use super::request::McpRequest;
use crate::chat::ModelRoutes;
use crate::chat::conversations::ConversationState;

/// Returns the name by which a freeze matches a message to a server: the tool of a call, otherwise the method.
pub(super) fn freeze_name(message: &Value) -> String {
    match (message.get("method").and_then(Value::as_str), message.pointer("/params/name")) {
        (Some("tools/call"), Some(Value::String(name))) => name.clone(),
        (method, _) => method.unwrap_or_default().to_owned(),
    }
}

impl ModelRoutes {
    /// Returns why no message may pass between the client and the server of a request: a freeze stops the server, the
    /// client or the conversation, the client's virtual key is no longer valid, or the database cannot be read. `None`
    /// if messages may pass.
    pub(super) async fn freeze_of_server(&self, request: &McpRequest) -> Option<String> {
        // No freeze of a tool has an empty name, so only freezes of the server, the client and the conversation match.
        self.freeze_of(request, "").await
    }

    /// Returns why the tool or the method `name` of the server of a request may not be used: the tool or the method is
    /// frozen, or the server is stopped as in [`Self::freeze_of_server`]. `None` if it may be used.
    pub(super) async fn freeze_of(&self, request: &McpRequest, name: &str) -> Option<String> {
        let McpRequest { client, server, conversation, .. } = request;
        let tool = format!("{}/{name}", server.name);
        self.approvals.freeze_reason(&client.spec, conversation, &tool).await
    }
}

impl McpExchange<'_> {
    /// Removes from `actions` each message to the server that a freeze stops. Reports a removed request to the proxy as
    /// not sent, and adds in its place the actions that result, such as the error for the client.
    pub(super) async fn withhold_frozen(
        &mut self,
        session: &mut ConversationState,
        actions: &mut Vec<ProxyAction>,
    ) {
        let mut allowed = Vec::new();
        for action in std::mem::take(actions) {
            // A freeze stops only messages to the server.
            let ProxyAction::Server(text) = &action else {
                allowed.push(action);
                continue;
            };
            let message: Value = serde_json::from_str(text).unwrap_or_default();
            let Some(why) = self.routes.freeze_of(self.request, &freeze_name(&message)).await else {
                allowed.push(action);
                continue;
            };
            // A request has a method and an id. A notification or a response is dropped silently: nobody waits for an
            // answer to it.
            let request_id = message.get("id").filter(|_| message.get("method").is_some());
            if let Some(id) = request_id {
                let unsent = ProxyEvent::Unsent { id: id.clone(), why };
                allowed.extend(self.hand_to_proxy(session, unsent));
            }
        }
        *actions = allowed;
    }
}
