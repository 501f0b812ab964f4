//! Handles the notifications of JSON-RPC (messages without an answer) that the client and the server send: progress,
//! cancellations, and lists that have changed. `client` and `server` call this module.
//!
//! A notification that is forwarded is rebuilt from the few fields that may be forwarded, so free text in it is
//! dropped. A notification of any other method is dropped and noted in the operator's log.

use serde_json::{Map, Value, json};

use super::message::{RequestId, notification};
use super::revision;
use super::session::MonitoredSession;
use super::{OutgoingRequest, PendingClientRequest, Proxy, ProxyAction};

/// The operator's note about a notification of the server that may not be forwarded.
const NOT_FORWARDED: &str = "dropped a notification of the server whose method is not forwarded to clients";
/// The operator's note about a notification of the server that cannot be forwarded any more.
const NO_ROOM: &str = "dropped a notification of the server, since the session has reached its size limit; \
restart the MCP server to begin another session";

impl Proxy {
    /// Handles a notification from the client: forwards the end of the initialization, a change of its roots, and the
    /// cancellation of one of its requests; drops any other. A cancelled call is recorded as failed. A cancellation
    /// that names no open request has no effect.
    pub(super) fn handle_client_notification(
        &mut self,
        session: &mut dyn MonitoredSession,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<ProxyAction> {
        match method {
            _ if revision::is_bare_client_notification(method) => {
                vec![ProxyAction::Server(notification(method, &Map::new()))]
            }
            "notifications/cancelled" => self.handle_client_cancellation(session, method, params),
            _ => {
                vec![ProxyAction::Note(
                    "dropped a notification of the client whose method is not forwarded to servers"
                        .to_owned(),
                )]
            }
        }
    }

    /// Handles the client's cancellation of one of its requests. `method` is the method of the notification.
    fn handle_client_cancellation(
        &mut self,
        session: &mut dyn MonitoredSession,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<ProxyAction> {
        let id =
            params.get("requestId").and_then(RequestId::from_value).and_then(|id| self.resolve_client_id(id));
        let Some(id) = id else { return Vec::new() };
        match self.client_requests.get(&id) {
            None => Vec::new(),
            // The request waits for a person: the server has not received it, so only the question is withdrawn.
            Some(PendingClientRequest::Waiting) => {
                self.withdraw_question(&id);
                self.client_requests.remove(&id);
                Vec::new()
            }
            Some(_) => {
                if let Some(pending) = self.client_requests.remove(&id) {
                    self.record_cancelled(session, &pending);
                }
                let params = Map::from_iter([("requestId".to_owned(), json!(id.value()))]);
                self.abandon(id);
                vec![ProxyAction::Server(notification(method, &params))]
            }
        }
    }

    /// Handles a notification from the server. Before a notification is forwarded, the client's label is raised to that
    /// of the running calls: whether and how often the server sends notifications may depend on the answers of these
    /// calls.
    pub(super) fn handle_server_notification(
        &mut self,
        session: &mut dyn MonitoredSession,
        method: &str,
        params: &Map<String, Value>,
    ) -> Vec<ProxyAction> {
        let actions = match self.handle_subscription_notification(method, params) {
            Some(actions) => actions,
            None => match self.forwarded_fields(method, params) {
                Some(fields) => vec![ProxyAction::Client(notification(method, &fields))],
                None => vec![ProxyAction::Note(NOT_FORWARDED.to_owned())],
            },
        };
        // Nothing is forwarded, so the client learns nothing.
        if !actions.iter().any(|out| matches!(out, ProxyAction::Client(_))) {
            return actions;
        }
        // The trace has no room for the event that raises the label.
        if !self.raise_client_label(session.monitor()) {
            return vec![ProxyAction::Note(NO_ROOM.to_owned())];
        }
        // The server has cancelled its own request to the client, so no answer to it is awaited any more.
        if let Some(id) = self.cancelled_request(method, params) {
            self.outgoing_requests.remove(&id);
        }
        actions
    }

    /// Returns whether a notification would be forwarded to the client.
    pub(super) fn is_forwarded(&self, method: &str, params: &Map<String, Value>) -> bool {
        match self.handle_subscription_notification(method, params) {
            // A notification of a subscription: the actions forward it, or only note that it is dropped.
            Some(actions) => actions.iter().any(|out| matches!(out, ProxyAction::Client(_))),
            None => self.forwarded_fields(method, params).is_some(),
        }
    }

    /// Returns the fields of a notification that are forwarded; `None` if it is dropped.
    fn forwarded_fields(&self, method: &str, params: &Map<String, Value>) -> Option<Map<String, Value>> {
        match method {
            _ if revision::is_bare_server_notification(method) => Some(Map::new()),
            "notifications/resources/updated" => {
                let uri = params.get("uri").and_then(Value::as_str);
                let uri = uri.filter(|uri| self.subscribed.contains(*uri))?;
                Some(Map::from_iter([("uri".to_owned(), uri.into())]))
            }
            "notifications/progress" => self.forwarded_progress(params),
            // A server may cancel only its own request to the client; anything else is dropped.
            _ => {
                let id = self.cancelled_request(method, params)?;
                Some(Map::from_iter([("requestId".to_owned(), id.value())]))
            }
        }
    }

    /// Returns the ID of the server's request to the client that the notification cancels; `None` if it cancels none.
    pub(super) fn cancelled_request(&self, method: &str, params: &Map<String, Value>) -> Option<RequestId> {
        let id = params
            .get("requestId")
            .and_then(RequestId::from_value)
            .filter(|_| method == "notifications/cancelled");
        id.filter(|id| matches!(self.outgoing_requests.get(id), Some(OutgoingRequest::Server { .. })))
    }
}
