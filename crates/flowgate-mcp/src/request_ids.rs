//! Translates request IDs where several clients share one proxy.
//!
//! Clients choose IDs independently, so two may use the same one. The server then receives every request under a
//! generated ID, and each client gets its answer under its own ID.

use serde_json::Value;

use super::message::RequestId;
use super::{PendingClientRequest, Proxy, ProxyAction};

impl Proxy {
    /// Returns a generated ID for a question.
    pub(super) fn generated_id(&mut self) -> RequestId {
        let count = self.next_number();
        RequestId::generated(self.settings.names.as_deref().unwrap_or_default(), count)
    }

    /// Abandons all requests at the server once their number reaches the limit: where several clients speak, some, such
    /// as those of a gateway that has ended, may never be answered.
    pub(super) fn make_room(&mut self) {
        if self.settings.names.is_none() || self.asked.len() < self.settings.limits.outstanding {
            return;
        }
        let waiting = |asked: &PendingClientRequest| matches!(asked, PendingClientRequest::Waiting);
        let old: Vec<RequestId> =
            self.asked.iter().filter(|(_, asked)| !waiting(asked)).map(|(id, _)| id.clone()).collect();
        old.into_iter().for_each(|id| self.abandon(id));
    }

    /// Returns the ID under which the server receives a request.
    pub(super) fn server_side_id(&mut self, client_id: RequestId) -> RequestId {
        if self.settings.names.is_none() {
            return client_id;
        }
        let count = self.next_number();
        let word = self.settings.names.as_deref().unwrap_or_default();
        let server_id = RequestId::from_name(&format!("{word}-{count}"));
        self.names.insert(server_id.clone(), client_id);
        server_id
    }

    /// Returns the request that a client's ID refers to, if it is unambiguous.
    pub(super) fn resolve_client_id(&self, client_id: RequestId) -> Option<RequestId> {
        if self.settings.names.is_none() {
            return Some(client_id);
        }
        let mut waiting = self
            .names
            .iter()
            .filter(|(server_id, name)| **name == client_id && self.asked.contains_key(server_id));
        match (waiting.next(), waiting.next()) {
            (Some((server_id, _)), None) => Some(server_id.clone()),
            _ => None,
        }
    }

    /// Restores the clients' own IDs in answers to them.
    pub(super) fn restore_client_ids(&mut self, out: Vec<ProxyAction>) -> Vec<ProxyAction> {
        if self.settings.names.is_none() {
            return out;
        }
        out.into_iter()
            .map(|out| match out {
                ProxyAction::Client(text) => ProxyAction::Client(self.restore_client_id(text)),
                other => other,
            })
            .collect()
    }

    /// Replaces the server's id in an answer by the id that the client chose; any other message is returned unchanged.
    fn restore_client_id(&mut self, text: String) -> String {
        let Ok(Value::Object(mut message)) = serde_json::from_str(&text) else { return text };
        if message.contains_key("method") {
            return text;
        }
        let client_id = message
            .get("id")
            .and_then(RequestId::from_value)
            .and_then(|server_id| self.names.remove(&server_id));
        match (client_id, message.get_mut("id")) {
            (Some(client_id), Some(id)) => *id = client_id.value(),
            _ => return text,
        }
        Value::Object(message).to_string()
    }
}
