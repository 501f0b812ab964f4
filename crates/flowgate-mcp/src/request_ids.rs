//! Generates request IDs, and translates those of clients where several clients share one proxy, as at the gateway. The
//! handlers of the client's and the server's messages call this module.
//!
//! Clients choose IDs independently, so two clients may use the same ID. The server therefore receives every request
//! under a generated ID, and each client gets its answer under its own ID.

use serde_json::Value;

use super::message::RequestId;
use super::{PendingClientRequest, Proxy, ProxyAction};

impl Proxy {
    /// Returns a generated ID for a question or a round.
    pub(super) fn generated_id(&mut self) -> RequestId {
        let count = self.next_number();
        RequestId::generated(self.settings.id_word.as_deref().unwrap_or_default(), count)
    }

    /// Where several clients share the proxy (`settings.id_word` is set), abandons all requests at the server once the
    /// number of open requests reaches the limit. Some of them, such as those of a gateway that has ended, may never be
    /// answered.
    pub(super) fn make_room(&mut self) {
        if self.settings.id_word.is_none() || self.client_requests.len() < self.settings.limits.outstanding {
            return;
        }
        let waits_for_person =
            |pending: &PendingClientRequest| matches!(pending, PendingClientRequest::Waiting);
        let at_server: Vec<RequestId> = self
            .client_requests
            .iter()
            .filter(|(_, pending)| !waits_for_person(pending))
            .map(|(id, _)| id.clone())
            .collect();
        at_server.into_iter().for_each(|id| self.abandon(id));
    }

    /// Returns the ID under which the server receives a request: the client's own if only one client uses the proxy,
    /// and otherwise a generated one, since two clients may choose the same ID. A generated ID is recorded with the
    /// client's.
    pub(super) fn server_side_id(&mut self, client_id: RequestId) -> RequestId {
        if self.settings.id_word.is_none() {
            return client_id;
        }
        let count = self.next_number();
        // The IDs of requests begin with this word; the IDs of `generated_id` begin with `flowgate-`.
        let word = self.settings.id_word.as_deref().unwrap_or_default();
        let server_id = RequestId::from_name(&format!("{word}-{count}"));
        self.client_ids.insert(server_id.clone(), client_id);
        server_id
    }

    /// Returns the server-side ID of the open request that a client's ID refers to, such as in a cancellation. `None`
    /// if no open request has the client's ID, or several do: which client sent the message is not known here. If only
    /// one client uses the proxy, the IDs are equal.
    pub(super) fn resolve_client_id(&self, client_id: RequestId) -> Option<RequestId> {
        if self.settings.id_word.is_none() {
            return Some(client_id);
        }
        let mut matching = self
            .client_ids
            .iter()
            .filter(|(server_id, name)| **name == client_id && self.client_requests.contains_key(server_id));
        match (matching.next(), matching.next()) {
            (Some((server_id, _)), None) => Some(server_id.clone()),
            _ => None,
        }
    }

    /// Restores the clients' own IDs in answers to them, where several clients share the proxy (`settings.id_word` is
    /// set). Messages to the server and other actions stay unchanged.
    pub(super) fn restore_client_ids(&mut self, out: Vec<ProxyAction>) -> Vec<ProxyAction> {
        if self.settings.id_word.is_none() {
            return out;
        }
        out.into_iter()
            .map(|out| match out {
                ProxyAction::Client(text) => ProxyAction::Client(self.restore_client_id(text)),
                other => other,
            })
            .collect()
    }

    /// Replaces the server-side ID in an answer by the ID that the client chose, and forgets the pair of IDs, since a
    /// request has only one answer. Returns any other message unchanged.
    fn restore_client_id(&mut self, text: String) -> String {
        let Ok(Value::Object(mut message)) = serde_json::from_str(&text) else { return text };
        // A request or a notification has no ID that a client chose.
        if message.contains_key("method") {
            return text;
        }
        let client_id = message
            .get("id")
            .and_then(RequestId::from_value)
            .and_then(|server_id| self.client_ids.remove(&server_id));
        match (client_id, message.get_mut("id")) {
            (Some(client_id), Some(id)) => *id = client_id.value(),
            _ => return text,
        }
        Value::Object(message).to_string()
    }
}
