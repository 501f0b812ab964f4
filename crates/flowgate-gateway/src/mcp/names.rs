//! Request IDs where several clients share one machine.
//!
//! Clients choose IDs independently, so two may use the same one. The server then receives every request under a
//! generated ID, and each client gets its answer under its own ID.

use serde_json::Value;

use super::message::Id;
use super::{Asked, Out, Proxy};

impl Proxy {
    /// Returns a generated ID for a question.
    pub(super) fn own_id(&mut self) -> Id {
        let count = self.next();
        Id::own(self.settings.names.as_deref().unwrap_or_default(), count)
    }

    /// Abandons all requests at the server once their number reaches the limit: where several clients speak, some, such
    /// as those of a gateway that has ended, may never be answered.
    pub(super) fn make_room(&mut self) {
        if self.settings.names.is_none() || self.asked.len() < self.settings.limits.outstanding {
            return;
        }
        let waiting = |asked: &Asked| matches!(asked, Asked::Waiting);
        let old: Vec<Id> =
            self.asked.iter().filter(|(_, asked)| !waiting(asked)).map(|(id, _)| id.clone()).collect();
        old.into_iter().for_each(|id| self.abandon(id));
    }

    /// Returns the ID under which the server receives a request.
    pub(super) fn renamed(&mut self, theirs: Id) -> Id {
        if self.settings.names.is_none() {
            return theirs;
        }
        let count = self.next();
        let word = self.settings.names.as_deref().unwrap_or_default();
        let ours = Id::named(&format!("{word}-{count}"));
        self.names.insert(ours.clone(), theirs);
        ours
    }

    /// Returns the request that a client's ID refers to, if it is unambiguous.
    pub(super) fn meant(&self, theirs: Id) -> Option<Id> {
        if self.settings.names.is_none() {
            return Some(theirs);
        }
        let mut waiting =
            self.names.iter().filter(|(ours, name)| **name == theirs && self.asked.contains_key(ours));
        match (waiting.next(), waiting.next()) {
            (Some((ours, _)), None) => Some(ours.clone()),
            _ => None,
        }
    }

    /// Restores the clients' own IDs in answers to them.
    pub(super) fn under_their_names(&mut self, out: Vec<Out>) -> Vec<Out> {
        if self.settings.names.is_none() {
            return out;
        }
        out.into_iter()
            .map(|out| match out {
                Out::Client(text) => Out::Client(self.under_their_name(text)),
                other => other,
            })
            .collect()
    }

    fn under_their_name(&mut self, text: String) -> String {
        let Ok(Value::Object(mut message)) = serde_json::from_str(&text) else { return text };
        if message.contains_key("method") {
            return text;
        }
        let theirs = message.get("id").and_then(Id::of).and_then(|ours| self.names.remove(&ours));
        match (theirs, message.get_mut("id")) {
            (Some(theirs), Some(id)) => *id = theirs.value(),
            _ => return text,
        }
        Value::Object(message).to_string()
    }
}
