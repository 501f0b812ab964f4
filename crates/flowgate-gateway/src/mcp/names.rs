//! Ids of several clients that speak at the same time.
//!
//! Each counts its requests as it likes, and so two may use one id. Where that can happen, the server knows every request by an
//! id of ours, and each client gets its answer under its own.

use serde_json::Value;

use super::message::Id;
use super::{Out, Proxy};

impl Proxy {
    /// The id of a request as the server is to know it.
    pub(super) fn renamed(&mut self, theirs: Id) -> Id {
        if !self.settings.renames {
            return theirs;
        }
        let ours = Id::number(self.next());
        self.names.insert(ours.clone(), theirs);
        ours
    }

    /// The request that a client means, if it is clear which.
    pub(super) fn meant(&self, theirs: Id) -> Option<Id> {
        if !self.settings.renames {
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
        if !self.settings.renames {
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
