//! Ids of several clients that speak at the same time.
//!
//! Each counts its requests as it likes, and so two may use one id. Where that can happen, the server knows every request by an
//! id of ours, and each client gets its answer under its own.

use serde_json::Value;

use super::message::Id;
use super::{Asked, Out, Proxy};

impl Proxy {
    /// An id for a question of ours.
    pub(super) fn own_id(&mut self) -> Id {
        let count = self.next();
        Id::own(self.settings.names.as_deref().unwrap_or_default(), count)
    }

    /// Of requests that have waited for answers for ever, such as those of a gateway that has ended, nobody waits any more.
    pub(super) fn make_room(&mut self) {
        if self.settings.names.is_none() || self.asked.len() < self.settings.limits.outstanding {
            return;
        }
        let waiting = |asked: &Asked| matches!(asked, Asked::Waiting);
        let old: Vec<Id> =
            self.asked.iter().filter(|(_, asked)| !waiting(asked)).map(|(id, _)| id.clone()).collect();
        old.into_iter().for_each(|id| self.abandon(id));
    }

    /// The id of a request as the server is to know it.
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

    /// The request that a client means, if it is clear which.
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

    /// Messages as clients are to get them: answers under the ids that they gave.
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
