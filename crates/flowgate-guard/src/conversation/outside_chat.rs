//! Connects a conversation to activity outside its chat, such as the calls that the caller makes through the gateway's
//! MCP proxy.
//!
//! The conversation's monitor labels and judges that activity too, so labels assigned on one path apply on the other.
//! The [journal](crate::journal) does not contain that activity: the caller records it, and repeats it at the same
//! point of a replay.
//!
//! A call that the last message of the chat handed to the caller may run outside the chat under its verdict in the
//! chat: once, until the caller sends anything else in the chat or a consent or grant is withdrawn.

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Call, EventBody, EventId, Tool};
use flowgate_lm::chat::Part;
use serde_json::{Map, Number, Value};

use super::Conversation;
use crate::view::{CallOutcome, ConversationItem};

impl Conversation {
    /// The monitor, for activity outside the chat. Events pushed here appear in no view, but they influence every
    /// call that is judged as influenced by everything, and rules see them.
    pub fn monitor_mut(&mut self) -> &mut Monitor {
        &mut self.monitor
    }

    /// The keyed digest of a call, as questions to people and records contain it.
    pub fn call_digest(&self, call: &Call) -> String {
        self.settings.key.digest_of(call)
    }

    /// A keyed digest of a text, different in every conversation.
    pub fn text_digest(&self, text: &str) -> String {
        self.settings.key.text_digest(text)
    }

    /// Takes a call that the last message handed to the caller and that has neither run nor been answered: with this
    /// tool and exactly these arguments, apart from the spelling of numbers. Each call is taken at most once: the
    /// next query returns another such call, or `None`.
    pub fn take_handed_over_call(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        // Anything else that the caller has sent since ends the right to run them.
        let Some(ConversationItem::Step(_)) = self.items.last() else { return None };
        let is_equal_call = |call: &&Call| {
            call.tool == *tool
                && call.arguments.as_ref().is_ok_and(|judged| are_equal_arguments(judged, arguments))
        };
        let calls = self.items.steps().flat_map(|(_, step)| &step.calls);
        let unanswered = calls.filter_map(|step_call| match step_call.answer {
            CallOutcome::HandedOver(event) => match &self.monitor.trace().event(event)?.body {
                EventBody::Call(call) => Some(call),
                _ => None,
            },
            _ => None,
        });
        // Equal calls of earlier messages count as well: the caller may report the answer as that of any of them.
        let equal_calls: Vec<&Call> = unanswered.filter(is_equal_call).collect();
        let key = &self.settings.key;
        self.handed.take(&equal_calls, |call| key.digest_of(call))
    }

    /// Returns the calls [taken](Self::take_handed_over_call) since the last query: the tool, and the digest of the
    /// call.
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

    /// Returns the recorded answer of a call that ran outside the chat, with its label, if `content` is identical to
    /// it. `None` if the call has no such answer: then the caller reports another text.
    pub(super) fn find_outside_answer(&self, id: &str, content: &[Part]) -> Option<(EventId, Label)> {
        let (output_id, event) = self.handed.answer(id, self.monitor.trace())?;
        let EventBody::Output(output) = &event.body else { return None };
        let is_same = match content {
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

/// Whether two argument maps are equal, apart from the spelling of numbers.
fn are_equal_arguments(judged: &Map<String, Value>, sent: &Map<String, Value>) -> bool {
    judged.len() == sent.len()
        && judged.iter().all(|(name, value)| sent.get(name).is_some_and(|sent| is_equal_value(value, sent)))
}

/// Whether two values are equal. Agents parse and reprint numbers: many of them print 20.0 as 20.
fn is_equal_value(judged: &Value, sent: &Value) -> bool {
    match (judged, sent) {
        (Value::Number(judged), Value::Number(sent)) => canonical_number(judged) == canonical_number(sent),
        (Value::Array(judged), Value::Array(sent)) => {
            judged.len() == sent.len()
                && judged.iter().zip(sent).all(|(judged, sent)| is_equal_value(judged, sent))
        }
        (Value::Object(judged), Value::Object(sent)) => are_equal_arguments(judged, sent),
        _ => judged == sent,
    }
}

/// Returns one spelling for all spellings of a number.
fn canonical_number(number: &Number) -> String {
    // The sum has no negative zero, which JavaScript prints as 0.
    let float = number.as_f64().filter(|_| number.is_f64()).map(|float| float + 0.0);
    float.map_or_else(|| number.to_string(), |float| float.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_may_be_spelled_anew_and_nothing_else() {
        let check = |judged: Value, sent: Value, expected: bool| {
            assert_eq!(is_equal_value(&judged, &sent), expected, "{judged} {sent}");
        };
        check(json!({"a": 20.0, "b": ["x"]}), json!({"b": ["x"], "a": 20}), true);
        check(json!([1e3, {"a": 0.5}]), json!([1000, {"a": 0.50}]), true);
        check(json!({"a": -0.0}), json!({"a": 0}), true);
        check(json!(20.5), json!(20), false);
        check(json!(20), json!("20"), false);
        check(json!(1), json!(true), false);
        check(json!(u64::MAX), json!(u64::MAX - 1), false);
        check(json!([1]), json!([1, 1]), false);
        check(json!({"a": 1}), json!({"a": 1, "b": null}), false);
        check(json!({"a": null}), json!({"b": null}), false);
        check(json!("a"), json!("a "), false);
    }
}
