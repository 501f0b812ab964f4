//! The session in which messages are judged.

use flowgate::monitor::Monitor;
use flowgate::trace::{Call, EventId, Tool};
use flowgate_guard::conversation::Conversation;
use serde_json::{Map, Value};

/// Where messages are labelled and judged: a monitor, or a conversation that has a chat as well.
pub trait Session {
    /// What labels and judges.
    fn monitor(&mut self) -> &mut Monitor;

    /// A call that was judged already and handed over to be run, and has not run. It is used up.
    fn take_handed(&mut self, _tool: &Tool, _arguments: &Map<String, Value>) -> Option<Call> {
        None
    }

    /// A call that was taken has answered this.
    fn ran(&mut self, _call_id: &str, _output: EventId) {}

    /// Stands for a call in what is recorded and asked; empty where nobody does either.
    fn digest_of(&self, _call: &Call) -> String {
        String::new()
    }
}

impl Session for Monitor {
    fn monitor(&mut self) -> &mut Monitor {
        self
    }
}

impl Session for Conversation {
    fn monitor(&mut self) -> &mut Monitor {
        self.beside()
    }

    fn take_handed(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        Self::take_handed(self, tool, arguments)
    }

    fn ran(&mut self, call_id: &str, output: EventId) {
        self.ran_beside(call_id, output);
    }

    fn digest_of(&self, call: &Call) -> String {
        Self::digest_of(self, call)
    }
}
