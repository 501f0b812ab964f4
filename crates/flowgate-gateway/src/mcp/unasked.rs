//! Messages that a server sends unasked, in a stream that answers no request.
//!
//! A notification that changes no state is forwarded without going through [`from_server`](Proxy::from_server), so a
//! conversation does not grow with the number of notifications. A request that the policy allows goes through it, as if
//! it came before an answer; so do a cancellation and the first notification while a call runs, which raises the
//! client's label.

use flowgate::json::Numbers;

use super::message::{self, Message};
use super::session::Session;
use super::{Out, Proxy};

impl Proxy {
    /// Handles a message that answers no request and changes no state. Returns `None` if the message changes state and
    /// must go through [`from_server`](Self::from_server).
    pub fn overhear(&mut self, session: &mut dyn Session, bytes: &[u8]) -> Option<Vec<Out>> {
        let drop = |why: &str| Some(vec![Out::Note(why.to_owned())]);
        if bytes.len() > self.settings.limits.message {
            return drop("dropped a message of the server that is too large");
        }
        match message::read(bytes, Numbers::Any) {
            Err(_) => drop("dropped a message of the server that cannot be read"),
            Ok((Message::Answer { .. }, _)) => drop("dropped an answer that nobody had asked for"),
            Ok((Message::Notice { method, params }, _)) => {
                let takes_back = self.taken_back(&method, &params).is_some();
                let raises = self.raises_client() && self.is_passed(&method, &params);
                (!takes_back && !raises).then(|| self.server_notes(session, &method, &params))
            }
            Ok((Message::Request { id, method, params }, _)) => {
                let may_ask = self.may_ask(session.monitor(), &method);
                (!may_ask).then(|| self.server_asks(session, id, &method, &params))
            }
        }
    }
}
