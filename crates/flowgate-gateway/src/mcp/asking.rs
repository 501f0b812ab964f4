//! Questions to a person, by way of a client that an operator has declared interactive.

use flowgate::monitor::{Monitor, Question};
use serde_json::{Map, Value, json};

use super::message::{Id, request};
use super::{Asked, Asking, Out, Pending, Proxy, Ruling, refusal};

/// The longest arguments that a person is shown. A call with longer ones cannot be confirmed: part of it would not be seen.
const MAX_SHOWN: usize = 4_000;

impl Proxy {
    /// Asks whether a call may run, or says no if there is nobody to ask.
    pub(super) fn ask(
        &mut self,
        monitor: &mut Monitor,
        id: Id,
        question: Box<Question>,
        pending: Pending,
    ) -> Vec<Out> {
        let arguments = question.call().and_then(|call| call.arguments.clone().ok()).unwrap_or_default();
        let shown = plain(&Value::Object(arguments).to_string());
        let is_free = self.asking.len() < self.settings.limits.outstanding;
        if !self.settings.is_interactive || !self.can_ask || shown.len() > MAX_SHOWN || !is_free {
            let refusal = self.refused(monitor, "nobody was asked", question.judgement());
            return vec![refusal::answer(&id, pending.kind, &refusal)];
        }
        let reasons: Vec<String> = question
            .judgement()
            .reasons
            .iter()
            .map(|reason| format!("* {}", plain(&reason.message)))
            .collect();
        let text = format!(
            "The policy asks before this call runs.\n\nTool: {}\nArguments: {shown}\n\nWhy:\n{}",
            plain(&pending.tool.to_string()),
            reasons.join("\n")
        );
        let own = Id::own(self.next());
        let schema = json!({"type": "object", "properties": {}});
        let mut params = Map::new();
        params.insert("message".to_owned(), Value::String(text));
        params.insert("requestedSchema".to_owned(), schema);
        let asked = request(&own, "elicitation/create", &params);
        self.asked.insert(id.clone(), Asked::Waiting);
        self.asking.insert(own, Asking::Person { question, id, pending: Box::new(pending) });
        vec![Out::Client(asked)]
    }

    /// A person has answered. Anything but an explicit yes is a no.
    pub(super) fn decided(
        &mut self,
        monitor: &mut Monitor,
        question: Box<Question>,
        id: Id,
        pending: Pending,
        answer: &Result<Value, Value>,
    ) -> Vec<Out> {
        if !matches!(self.asked.get(&id), Some(Asked::Waiting)) {
            return Vec::new();
        }
        self.asked.remove(&id);
        let is_yes = answer.as_ref().is_ok_and(|result| result.get("action") == Some(&json!("accept")));
        let ruling = if is_yes {
            match monitor.approve(*question).and_then(|permit| monitor.redeem(permit)) {
                Ok(authorized) => Ruling::Run(authorized),
                Err(denial) => Ruling::No(self.refused(monitor, "deny", denial.judgement())),
            }
        } else {
            Ruling::No(self.refused(monitor, "refused by a person", question.judgement()))
        };
        match ruling {
            Ruling::Run(authorized) => self.run(id, &authorized, pending),
            Ruling::No(refusal) => vec![refusal::answer(&id, pending.kind, &refusal)],
            Ruling::Ask(_) => Vec::new(),
        }
    }
}

/// Text of others as a person is to see it: nothing in it hides, or changes the direction of writing.
fn plain(text: &str) -> String {
    let is_plain = |c: char| !c.is_control() && (c.is_ascii() || c.is_alphanumeric());
    let mut shown = String::new();
    for c in text.chars() {
        match is_plain(c) {
            true => shown.push(c),
            false => shown.extend(c.escape_unicode()),
        }
    }
    shown
}
