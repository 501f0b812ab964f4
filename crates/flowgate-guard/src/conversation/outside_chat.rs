//! Connects a conversation to activity outside its chat, such as calls that the caller sends to the gateway's MCP
//! proxy.
//!
//! The conversation's monitor labels and judges this activity, too. Labels that are assigned in the chat therefore
//! apply at the proxy, and the other way round. The [journal](crate::journal) does not contain activity outside the
//! chat: the caller records it, and repeats it at the same point of a replay.
//!
//! The model's last message can hand calls over to the caller. The caller may run each of these calls once outside the
//! chat, without another verdict: the verdict in the chat applies. This right ends when the caller sends anything else
//! in the chat, or when a consent or a grant is withdrawn.

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Call, EventBody, EventId, Tool};
use flowgate_lm::chat::Part;
use serde_json::{Map, Value};

use super::Conversation;
use super::handed_over_calls::HandedOverCalls;
use crate::canonical_json::canonical_object;
use crate::view::{CallOutcome, ConversationItem};

impl Conversation {
    /// Returns the monitor, for activity outside the chat. Events that the caller pushes to it appear in no view. Rules
    /// see them, and each call that is judged as influenced by everything carries their labels.
    pub fn monitor_mut(&mut self) -> &mut Monitor {
        &mut self.monitor
    }

    /// Returns the keyed digest of a call, by which questions to people and records identify the call.
    pub fn call_digest(&self, call: &Call) -> String {
        self.settings.key.digest_of(call)
    }

    /// Returns the digest of a text under the key of this conversation: 8 hexadecimal digits. Conversations with
    /// other keys give the text other digests.
    pub fn text_digest(&self, text: &str) -> String {
        self.settings.key.text_digest(text)
    }

    /// Takes a call that the last message handed to the caller and that has neither run nor been answered. The call
    /// has this tool and exactly these arguments, apart from the order of keys and the spelling of numbers. Each call
    /// is taken at most once: when this method is used again, it returns another such call, or `None`.
    pub fn take_handed_over_call(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        // The last item is the step with the calls, unless the caller has sent something since, which ends the right to
        // run them.
        let Some(ConversationItem::Step(_)) = self.items.last() else { return None };
        self.take_equal_call(tool, arguments, HandedOverCalls::take)
    }

    /// Takes a call that the last message handed to the caller under an earlier policy, and that ran outside the chat
    /// under that policy. In all other respects, works like [`take_handed_over_call`](Self::take_handed_over_call).
    /// Only a conversation that is [carried over](Self::carry_over) has such calls: its caller takes them while it
    /// repeats what happened in the earlier conversation.
    pub fn take_earlier_handed_over_call(
        &mut self,
        tool: &Tool,
        arguments: &Map<String, Value>,
    ) -> Option<Call> {
        self.take_equal_call(tool, arguments, HandedOverCalls::take_earlier)
    }

    /// Finds the handed-over calls without an answer that have this tool and these arguments, and takes one of them
    /// with `take`. `take` receives all these calls, and a function that computes the digest of a call. Returns the
    /// taken call; `None` if `take` took none.
    fn take_equal_call(
        &mut self,
        tool: &Tool,
        arguments: &Map<String, Value>,
        take: impl FnOnce(&mut HandedOverCalls, &[(&Call, EventId)], &dyn Fn(&Call) -> String) -> Option<Call>,
    ) -> Option<Call> {
        let sent = canonical_object(arguments);
        let is_equal_call = |(call, _): &(&Call, EventId)| {
            call.tool == *tool && call.arguments.as_ref().is_ok_and(|judged| canonical_object(judged) == sent)
        };
        let calls = self.items.steps().flat_map(|(_, step)| &step.calls);
        let unanswered = calls.filter_map(|step_call| match step_call.answer {
            CallOutcome::HandedOver(event) => match &self.monitor.trace().event(event)?.body {
                EventBody::Call(call) => Some((call, event)),
                _ => None,
            },
            _ => None,
        });
        // Equal calls of earlier messages count as well: the caller may report the answer as the answer to any of them.
        let equal_calls: Vec<(&Call, EventId)> = unanswered.filter(is_equal_call).collect();
        let key = &self.settings.key;
        take(&mut self.handed, &equal_calls, &|call| key.digest_of(call))
    }

    /// Returns the calls that were [taken](Self::take_handed_over_call) since this method was last called: the tool and
    /// the digest of each.
    pub fn drain_taken_calls(&mut self) -> Vec<(Tool, String)> {
        self.handed.drain_taken()
    }

    /// Records that the event `output` is the answer of a call that ran outside the chat: of the taken call with this
    /// id, or of a call that was judged outside the chat. What the caller reports later as the answer of a handed-over
    /// call carries the labels of all recorded answers that it may be.
    pub fn record_outside_answer(&mut self, id: &str, output: EventId) {
        self.monitor.allow_another_output(output);
        self.handed.record_answer(id, output, self.monitor.trace());
    }

    /// Returns the recorded answer of the call with this id, which ran outside the chat, and the label of the answer,
    /// if the caller reports the same `content`. Returns `None` if no answer is recorded, or if the contents differ.
    pub(super) fn find_outside_answer(&self, id: &str, content: &[Part]) -> Option<(EventId, Label)> {
        let (output_id, event) = self.handed.answer(id, self.monitor.trace())?;
        let EventBody::Output(output) = &event.body else { return None };
        let is_same = match content {
            // The answer may be recorded as a string, or as a list with one block.
            [Part::Text(text)] => single_text(&output.content) == Some(text.as_str()),
            parts => output.content == parts.iter().map(super::merge::to_content_block).collect::<Value>(),
        };
        is_same.then_some((output_id, event.label))
    }
}

/// Returns the text of a content that consists of a single text. `None` for any other content.
fn single_text(content: &Value) -> Option<&str> {
    match content {
        Value::String(text) => Some(text),
        Value::Array(blocks) => match blocks.as_slice() {
            [block] => block.get("text")?.as_str(),
            _ => None,
        },
        _ => None,
    }
}
