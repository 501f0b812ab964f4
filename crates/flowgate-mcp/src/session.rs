//! Defines the trait [`MonitoredSession`], the state in which a proxy labels messages and judges calls: a monitor
//! alone, or a conversation that also has a chat. The caller of the proxy owns it.

use flowgate::monitor::Monitor;
use flowgate::trace::{Call, EventId, Tool};
use flowgate_guard::conversation::Conversation;
use serde_json::{Map, Value};

/// The state in which messages are labelled and judged: a monitor, or a conversation that also has a chat.
pub trait MonitoredSession {
    /// Returns the monitor that labels and judges.
    fn monitor(&mut self) -> &mut Monitor;

    /// Returns and consumes the call of this tool with these arguments that was judged in the chat and handed over to
    /// the client to be run, if there is one that has not run yet.
    fn take_handed_over_call(&mut self, _tool: &Tool, _arguments: &Map<String, Value>) -> Option<Call> {
        None
    }

    /// Does the same as [`take_handed_over_call`](Self::take_handed_over_call) for a call that the chat handed over
    /// under an earlier policy, before the conversation was carried over to the present one.
    fn take_earlier_handed_over_call(
        &mut self,
        _tool: &Tool,
        _arguments: &Map<String, Value>,
    ) -> Option<Call> {
        None
    }

    /// Reports to the session which event is the output of a call that was sent to the server. `_call_id` is the ID in
    /// the trace under which the call was first sent. Does nothing by default: a monitor alone keeps no such record.
    fn record_output(&mut self, _call_id: &str, _output: EventId) {}

    /// Returns the digest of a call for records and questions; empty if the session has neither.
    fn digest_of(&self, _call: &Call) -> String {
        String::new()
    }
}

impl MonitoredSession for Monitor {
    fn monitor(&mut self) -> &mut Monitor {
        self
    }
}

impl MonitoredSession for Conversation {
    fn monitor(&mut self) -> &mut Monitor {
        self.monitor_mut()
    }

    fn take_handed_over_call(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        Self::take_handed_over_call(self, tool, arguments)
    }

    fn take_earlier_handed_over_call(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        Self::take_earlier_handed_over_call(self, tool, arguments)
    }

    /// Reports the output to the conversation, whose chat may have handed the call over.
    fn record_output(&mut self, call_id: &str, output: EventId) {
        self.record_outside_answer(call_id, output);
    }

    fn digest_of(&self, call: &Call) -> String {
        Self::call_digest(self, call)
    }
}
