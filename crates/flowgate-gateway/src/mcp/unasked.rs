//! What a server says unasked, in a stream that answers nothing.
//!
//! What only tells changes nothing here, so it is passed without being put in and kept: however much a server tells, no conversation
//! grows by it. What asks is put in as if it came before an answer.

use flowgate::json::Numbers;

use super::message::{self, Id, Message};
use super::session::Session;
use super::{Asking, Out, Proxy};

impl Proxy {
    /// A message of the server that answers nothing: what is to be done, if it changes nothing. `None` if it is to be
    /// [put in](Self::from_server).
    pub fn overhear(&mut self, session: &mut dyn Session, bytes: &[u8]) -> Option<Vec<Out>> {
        let drop = |why: &str| Some(vec![Out::Note(why.to_owned())]);
        if bytes.len() > self.settings.limits.message {
            return drop("dropped a message of the server that is too large");
        }
        match message::read(bytes, Numbers::Any) {
            Err(_) => drop("dropped a message of the server that cannot be read"),
            Ok((Message::Answer { .. }, _)) => drop("dropped an answer that nobody had asked for"),
            Ok((Message::Notice { method, params }, _)) => {
                let id = params.get("requestId").and_then(Id::of);
                let takes_back = method == "notifications/cancelled"
                    && id.is_some_and(|id| matches!(self.asking.get(&id), Some(Asking::Server { .. })));
                let raises = method == "notifications/progress" && self.raises_client(&params);
                (!takes_back && !raises).then(|| self.server_notes(session, &method, &params))
            }
            Ok((Message::Request { id, method, params }, _)) => {
                let may_ask = self.may_ask(session.monitor(), &method);
                (!may_ask).then(|| self.server_asks(session, id, &method, &params))
            }
        }
    }
}
