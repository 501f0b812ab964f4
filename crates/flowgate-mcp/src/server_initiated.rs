//! Handles messages that a server sends on its own, in a stream that answers no request. The gateway passes each of
//! them to this module first.
//!
//! Most of these messages change no state. This module forwards, refuses or drops them, and does not count their size,
//! so that a session does not grow with the number of notifications. The following messages must go through
//! [`handle_server_message`](Proxy::handle_server_message) instead:
//!
//! * a request that the policy allows,
//! * the cancellation of a request,
//! * the first notification that is forwarded while a call runs: the client's label must first rise to the label of the
//!   running calls.

use flowgate::json::Numbers;

use super::message::{self, McpMessage};
use super::session::MonitoredSession;
use super::{Proxy, ProxyAction};

impl Proxy {
    /// Handles a message that a server sends on its own, if the message changes no state. Returns the actions that the
    /// caller has to perform. Returns `None` if the message changes state and must go through
    /// [`handle_server_message`](Self::handle_server_message). A message that is too large, invalid or a response is
    /// dropped.
    pub fn handle_stateless_message(
        &mut self,
        session: &mut dyn MonitoredSession,
        bytes: &[u8],
    ) -> Option<Vec<ProxyAction>> {
        let dropped = |why: &str| Some(vec![ProxyAction::Note(why.to_owned())]);
        if bytes.len() > self.settings.limits.message {
            let limit = self.settings.limits.message;
            return dropped(&format!(
                "dropped a message of the server that is larger than {limit} bytes; let the server send smaller ones"
            ));
        }
        match message::read(bytes, Numbers::Any) {
            Err(_) => dropped(
                "dropped a message of the server that is not a valid message of JSON-RPC; correct or update that server",
            ),
            Ok((McpMessage::Answer { .. }, _)) => {
                dropped("dropped a response of the server whose `id` belongs to no open request")
            }
            Ok((McpMessage::Notice { method, params }, _)) => {
                // A forwarded notification is shown to the client, which can raise the client's label.
                let cancels_request = self.cancelled_request(&method, &params).is_some();
                let raises_label = self.would_raise_client_label() && self.is_forwarded(&method, &params);
                (!cancels_request && !raises_label)
                    .then(|| self.handle_server_notification(session, &method, &params))
            }
            Ok((McpMessage::Request { id, method, params }, _)) => {
                let is_allowed = self.allows_server_request(session.monitor(), &method);
                (!is_allowed).then(|| self.handle_server_request(session, id, &method, &params))
            }
        }
    }
}
