//! What happens in a session beside its chat, such as calls that the caller's own tools make by way of a proxy.
//!
//! It is labelled and judged by the same monitor, so what one way in has shown counts for the other. Nothing of it is in the
//! [journal](crate::journal): whoever does it keeps it, and does it again in the same place when the conversation is made again.

use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Call, EventId, Tool};
use serde_json::{Map, Value};

use super::Conversation;
use crate::view::{Answer, Item};

impl Conversation {
    /// The monitor, for what happens beside the chat. What is pushed here is in no view, but everything that is judged as
    /// influenced by everything is influenced by it, and rules see it.
    pub fn beside(&mut self) -> &mut Monitor {
        &mut self.monitor
    }

    /// Stands for a call, as in questions to people and in what is recorded.
    pub fn digest_of(&self, call: &Call) -> String {
        self.settings.key.digest_of(call)
    }

    /// The id of a call that was handed over to be run and has neither run nor been answered: with this tool and exactly these
    /// arguments. It is used up: who asks again is told of another one, or of none.
    pub fn take_handed(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<String> {
        let trace = self.monitor.trace();
        let is_it = |answer: &Answer| {
            let Answer::Handed(event) = answer else { return None };
            let Some(Body::Call(call)) = trace.event(*event).map(|event| &event.body) else { return None };
            let is_same = call.tool == *tool && call.arguments.as_ref() == Ok(arguments);
            (is_same && !self.beside.contains_key(&call.id)).then(|| call.id.clone())
        };
        let id = self.items.iter().rev().find_map(|item| match item {
            Item::Step(step) => step.calls.iter().find_map(|made| is_it(&made.answer)),
            _ => None,
        })?;
        self.beside.insert(id.clone(), None);
        Some(id)
    }

    /// What a call that was taken answered, as an event. What the caller says of it later carries that.
    pub fn ran_beside(&mut self, id: &str, output: EventId) {
        self.beside.insert(id.to_owned(), Some(output));
    }
}
