//! What happens in a session beside its chat, such as calls that the caller's own tools make by way of a proxy.
//!
//! It is labelled and judged by the same monitor, so what one way in has shown counts for the other. Nothing of it is in the
//! [journal](crate::journal): whoever does it keeps it, and does it again in the same place when the conversation is made again.

use flowgate::monitor::Monitor;
use flowgate::trace::{Body, Call, EventId, Tool};
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

    /// A call that was handed over to be run and has neither run nor been answered: with this tool and exactly these
    /// arguments, however their numbers are spelled. It is used up: who asks again is told of another one, or of none.
    pub fn take_handed(&mut self, tool: &Tool, arguments: &Map<String, Value>) -> Option<Call> {
        let trace = self.monitor.trace();
        let is_it = |answer: &Answer| {
            let Answer::Handed(event) = answer else { return None };
            let Some(Body::Call(call)) = trace.event(*event).map(|event| &event.body) else { return None };
            let is_same =
                call.tool == *tool && call.arguments.as_ref().is_ok_and(|judged| are_same(judged, arguments));
            (is_same && !self.beside.contains_key(&call.id)).then(|| call.clone())
        };
        let call = self.items.iter().rev().find_map(|item| match item {
            Item::Step(step) => step.calls.iter().find_map(|made| is_it(&made.answer)),
            _ => None,
        })?;
        self.beside.insert(call.id.clone(), None);
        Some(call)
    }

    /// What a call that was taken answered, as an event. What the caller says of it later carries that.
    pub fn ran_beside(&mut self, id: &str, output: EventId) {
        self.beside.insert(id.to_owned(), Some(output));
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
        (Value::Number(judged), Value::Number(said)) => plain(judged) == plain(said),
        (Value::Array(judged), Value::Array(said)) => {
            judged.len() == said.len() && judged.iter().zip(said).all(|(judged, said)| is_same(judged, said))
        }
        (Value::Object(judged), Value::Object(said)) => are_same(judged, said),
        _ => judged == said,
    }
}

fn plain(number: &Number) -> String {
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
