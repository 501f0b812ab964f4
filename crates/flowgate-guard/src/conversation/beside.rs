//! What happens in a session beside its chat, such as calls that the caller's own tools make by way of a proxy.
//!
//! It is labelled and judged by the same monitor, so what one way in has shown counts for the other. Nothing of it is in the
//! [journal](crate::journal): whoever does it keeps it, and does it again in the same place when the conversation is made again.
//!
//! A call that the caller was handed by the last message of the chat may run here as it was judged there: once, until the caller says
//! anything else in the chat, and while all that it was permitted by still holds.

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Call, EventId, Tool};
use flowgate_lm::chat::{Message, Part};
use serde_json::{Map, Number, Value};

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

    /// A word that no other conversation has for a text.
    pub fn nonce_of(&self, text: &str) -> String {
        self.settings.key.nonce_of(text)
    }

    /// The calls of a message that the caller has got may run.
    pub(super) fn deliver(&mut self, message: &Message) {
        let Message::Assistant { calls, .. } = message else { return };
        self.delivered = calls.iter().map(|call| call.id.clone()).collect();
    }

    /// A call that the caller was handed in the last message and that has neither run nor been answered: with this tool and exactly
    /// these arguments, however their numbers are spelled. It is used up: who asks again is told of another one, or of none.
    pub fn take_handed(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        let trace = self.monitor.trace();
        let is_it = |answer: &Answer| {
            let Answer::Handed(event) = answer else { return None };
            let Some(Body::Call(call)) = trace.event(*event).map(|event| &event.body) else { return None };
            let is_same =
                call.tool == *tool && call.arguments.as_ref().is_ok_and(|judged| are_same(judged, arguments));
            (is_same && self.delivered.contains(&call.id)).then(|| call.clone())
        };
        let Some(Item::Step(step)) = self.items.last() else { return None };
        let call = step.calls.iter().find_map(|made| is_it(&made.answer))?;
        self.delivered.remove(&call.id);
        self.taken.push((tool.clone(), self.digest_of(&call)));
        Some(call)
    }

    /// The calls that were [taken](Self::take_handed) since the last time: the tool, and what stands for the call.
    pub fn taken(&mut self) -> Vec<(Tool, String)> {
        std::mem::take(&mut self.taken)
    }

    /// What a call that was taken answered, as an event. What the caller says of it later carries that.
    pub fn ran_beside(&mut self, id: &str, output: EventId) {
        self.monitor.reopen(output);
        self.beside.insert(id.to_owned(), output);
    }

    /// How a call ran beside the chat, if it did: the answer that was seen, what it carries, and whether it said just this.
    pub(super) fn seen_beside(&self, id: &str, content: &[Part]) -> Option<(EventId, Label, bool)> {
        let ran = *self.beside.get(id)?;
        let event = self.monitor.trace().event(ran)?;
        let said = match &event.body {
            Body::Output(output) => plain(&output.content),
            _ => None,
        };
        let is_same = matches!(content, [Part::Text(text)] if said == Some(text.as_str()));
        Some((ran, event.label, is_same))
    }
}

/// The text of a content that is one.
fn plain(content: &Value) -> Option<&str> {
    match content {
        Value::String(text) => Some(text),
        Value::Array(blocks) => match blocks.as_slice() {
            [block] => block.get("text")?.as_str(),
            _ => None,
        },
        _ => None,
    }
}

/// Whether two lists of arguments say the same.
fn are_same(judged: &Map<String, Value>, said: &Map<String, Value>) -> bool {
    judged.len() == said.len()
        && judged.iter().all(|(name, value)| said.get(name).is_some_and(|said| is_same(value, said)))
}

/// Whether two values are the same. Agents read numbers and write them again: to many of them, 20.0 is 20.
fn is_same(judged: &Value, said: &Value) -> bool {
    match (judged, said) {
        (Value::Number(judged), Value::Number(said)) => number(judged) == number(said),
        (Value::Array(judged), Value::Array(said)) => {
            judged.len() == said.len() && judged.iter().zip(said).all(|(judged, said)| is_same(judged, said))
        }
        (Value::Object(judged), Value::Object(said)) => are_same(judged, said),
        _ => judged == said,
    }
}

fn number(number: &Number) -> String {
    number.as_f64().filter(|_| number.is_f64()).map_or_else(|| number.to_string(), |float| float.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_may_be_spelled_anew_and_nothing_else() {
        let check = |judged: Value, said: Value, expected: bool| {
            assert_eq!(is_same(&judged, &said), expected, "{judged} {said}");
        };
        check(json!({"a": 20.0, "b": ["x"]}), json!({"b": ["x"], "a": 20}), true);
        check(json!([1e3, {"a": 0.5}]), json!([1000, {"a": 0.50}]), true);
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
