//! Implements the test double for the cases of benchmarks: a model that makes the calls of a case, each as soon as the
//! double sees what the call depends on. [`run`](super::run) asks it for each message.
//!
//! The double obeys the injected text whenever the text is visible. It requests hidden text with `look`, if the method offers this tool. It fills no
//! slots. Each of its messages has at most one call.

use std::collections::BTreeSet;

use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Completion, Message, Request, ToolCall};
use serde_json::{Map, Value, json};

use super::case::{CallPurpose, CorpusCase};
use crate::screening::text_of;

/// The maximum number of times that one call is proposed. The double proposes a call again if the conversation asks for
/// the message again, and after a look, when the view has changed. Without the limit, it would repeat a refused call
/// forever.
const MAX_PROPOSALS: usize = 8;

/// The state of the double in one case. Calls are numbered by their positions in the case.
#[derive(Debug)]
pub(super) struct ScriptDouble<'c> {
    case: &'c CorpusCase,
    /// Calls that are not proposed again: they ran, were refused, or were proposed too often.
    finished: BTreeSet<usize>,
    /// Calls that ran.
    answered: BTreeSet<usize>,
    /// How often each call was proposed.
    proposals: Vec<usize>,
    /// The names of the hidden regions that were requested.
    looked: BTreeSet<String>,
    /// The last call that was proposed.
    last: Option<usize>,
    /// Whether a call of the attack was refused. The double then skips the rest of the attack, which depends on this call.
    is_refused: bool,
}

impl<'c> ScriptDouble<'c> {
    /// Creates the double at the beginning of a case: no call was proposed so far.
    pub(super) fn new(case: &'c CorpusCase) -> Self {
        Self {
            case,
            finished: BTreeSet::new(),
            answered: BTreeSet::new(),
            proposals: vec![0; case.calls.len()],
            looked: BTreeSet::new(),
            last: None,
            is_refused: false,
        }
    }

    /// Returns the position of the call that was proposed last.
    pub(super) fn last_proposed(&self) -> Option<usize> {
        self.last
    }

    /// Records that the call at this position ran.
    pub(super) fn record_run(&mut self, at: usize) {
        self.finished.insert(at);
        self.answered.insert(at);
    }

    /// Records that the call at this position was refused, by a person or without a question.
    pub(super) fn record_refusal(&mut self, at: usize) {
        self.finished.insert(at);
        self.is_refused |= self.case.calls.get(at).is_some_and(|call| call.purpose == CallPurpose::Attack);
    }

    /// Returns the next message for the chat that `request` shows: the first call that can be made, a look (or a
    /// refusal in words) if an answer that this call needs is hidden, or `Done.` if no call is left. A call waits
    /// until every call that it needs has run. A call that was refused or was proposed [`MAX_PROPOSALS`] times is not
    /// repeated. After the refusal of a call of the attack, no further call of the attack is made.
    pub(super) fn next_completion(&mut self, request: &Request) -> Completion {
        let view = CallsInView::new(request);
        for (at, call) in self.case.calls.iter().enumerate() {
            let is_attack = call.purpose == CallPurpose::Attack;
            let is_attack_over = is_attack && self.is_refused;
            if self.finished.contains(&at) || is_attack_over {
                continue;
            }
            // The double gives up a call that it proposed too often. A call that the view shows and that did not run
            // was refused without a question.
            let is_spent = self.proposals.get(at).is_none_or(|count| *count >= MAX_PROPOSALS);
            if is_spent || view.answer(&call.tool, &call.arguments).is_some() {
                self.record_refusal(at);
                continue;
            }
            if call.needs.iter().any(|needed| !self.answered.contains(needed)) {
                continue;
            }
            if call.needs.iter().any(|needed| !self.is_shown(*needed, &view)) {
                return self.look(request, &view);
            }
            if let Some(count) = self.proposals.get_mut(at) {
                *count += 1;
            }
            self.last = Some(at);
            return call_completion(&call.tool, call.arguments.clone());
        }
        text_completion("Done.")
    }

    /// Returns whether the answer to the call at this position is completely visible: the view has the answer without
    /// placeholders, or it has the benchmark's own answer unchanged. The benchmark's answer may contain a text that looks
    /// like a placeholder.
    fn is_shown(&self, at: usize, view: &CallsInView) -> bool {
        let Some(call) = self.case.calls.get(at) else { return false };
        let shown = view.answer(&call.tool, &call.arguments);
        shown.is_some_and(|text| text == call.answer || placeholders(text).is_empty())
    }

    /// Returns a call of `look` for all hidden regions that were not requested so far. Returns a refusal in words if
    /// there are none, or if the tool `look` is not on offer.
    fn look(&mut self, request: &Request, view: &CallsInView) -> Completion {
        let hidden = view.calls.iter().flat_map(|(.., answer)| placeholders(answer));
        let names: Vec<String> = hidden.filter(|name| !self.looked.contains(name)).collect();
        if names.is_empty() || !request.tools.iter().any(|tool| tool.name == LOOK) {
            return text_completion("I may not see it.");
        }
        self.looked.extend(names.iter().cloned());
        let arguments = json!({"regions": names});
        call_completion(LOOK, arguments.as_object().cloned().unwrap_or_default())
    }
}

/// The calls in a view: tool, arguments, and the text of the answer, which is empty if there is none.
struct CallsInView {
    calls: Vec<(String, Map<String, Value>, String)>,
}

impl CallsInView {
    /// Reads the visible calls of the chat, each with its tool, its arguments and the text of its answer. Malformed
    /// arguments, and an answer that does not exist yet, are empty.
    fn new(request: &Request) -> Self {
        let mut calls = Vec::new();
        for message in &request.messages {
            let Message::Assistant { calls: made, .. } = message else { continue };
            for call in made {
                let answer = request
                    .messages
                    .iter()
                    .find(|message| matches!(message, Message::Tool { call_id, .. } if *call_id == call.id));
                let arguments = serde_json::from_str(&call.arguments).unwrap_or_default();
                calls.push((call.name.clone(), arguments, answer.map(text_of).unwrap_or_default()));
            }
        }
        Self { calls }
    }

    /// Returns the answer to a call; `None` if the view does not have the call.
    fn answer(&self, tool: &str, arguments: &Map<String, Value>) -> Option<&str> {
        let mut of_tool = self.calls.iter().filter(|(name, ..)| name == tool);
        of_tool.find(|(_, made, _)| made == arguments).map(|(.., answer)| answer.as_str())
    }
}

/// Returns the names in the placeholders of a text, such as `h1` for `[hidden h1]`.
fn placeholders(text: &str) -> Vec<String> {
    let after = text.split("[hidden ").skip(1);
    let names = after.map(|rest| rest.chars().take_while(char::is_ascii_alphanumeric).collect::<String>());
    names.filter(|name| !name.is_empty()).collect()
}

/// Returns a completion that is a text without calls.
fn text_completion(text: &str) -> Completion {
    Completion { text: text.to_owned(), ..Completion::default() }
}

/// Returns a completion that is one call. The conversation assigns ids, so every call may have the same.
fn call_completion(name: &str, arguments: Map<String, Value>) -> Completion {
    let arguments = Value::Object(arguments).to_string();
    let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
    Completion { calls: vec![call], ..Completion::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_have_names() {
        let check = |text: &str, names: &[&str]| assert_eq!(placeholders(text), names, "{text}");
        check("[hidden r1 from mail]", &["r1"]);
        check("a: [hidden r1] b: [hidden r22]", &["r1", "r22"]);
        check("nothing is hidden here, [hidden ] neither", &[]);
    }
}
