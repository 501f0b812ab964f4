//! The calls that were handed to the caller: which may run outside the chat, and which did.
//!
//! The part owns ids only; the calls and their answers are in the trace. [`super::outside_chat`] takes calls and records
//! answers, [`super::hand_over`] asks which label an answer carries. Invariant: a call is taken at most once, and only
//! while it belongs to the last message that the caller received.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::trace::{Call, Event, EventId, Tool, Trace};
use flowgate_lm::chat::Message;

/// The calls that were handed to the caller.
#[derive(Debug, Default)]
pub(super) struct HandedOverCalls {
    /// Ids of the calls that the last message handed to the caller and that have not run outside the chat.
    delivered: HashSet<String>,
    /// Calls taken to run outside the chat since the last query: the tool and the digest of the call.
    taken: Vec<(Tool, String)>,
    /// Calls that ran outside the chat, by id, with the event of the answer.
    answers: HashMap<String, EventId>,
    /// For a call that ran outside the chat, and each call without an answer that was equal to it then: all of them.
    equal: HashMap<String, Arc<[String]>>,
}

impl HandedOverCalls {
    /// Marks the calls of a message that the caller received as ready to run, in place of those of earlier messages.
    pub(super) fn deliver(&mut self, message: &Message) {
        let Message::Assistant { calls, .. } = message else { return };
        self.delivered = calls.iter().map(|call| call.id.clone()).collect();
    }

    /// Ends the right to run calls outside the chat.
    pub(super) fn revoke(&mut self) {
        self.delivered.clear();
    }

    /// Takes the first of these equal calls that may run, none of which has an answer.
    pub(super) fn take(&mut self, equal: &[&Call], digest: impl FnOnce(&Call) -> String) -> Option<Call> {
        let call = equal.iter().copied().find(|call| self.delivered.contains(&call.id))?.clone();
        if equal.len() > 1 {
            let ids: Arc<[String]> = equal.iter().map(|call| call.id.clone()).collect();
            self.equal.extend(ids.iter().map(|id| (id.clone(), Arc::clone(&ids))));
        }
        self.delivered.remove(&call.id);
        self.taken.push((call.tool.clone(), digest(&call)));
        Some(call)
    }

    /// Returns the calls taken since the last query.
    pub(super) fn drain_taken(&mut self) -> Vec<(Tool, String)> {
        std::mem::take(&mut self.taken)
    }

    /// Records the answer of a taken call.
    pub(super) fn record_answer(&mut self, id: &str, output: EventId) {
        self.answers.insert(id.to_owned(), output);
    }

    /// Returns the recorded answer of a call.
    pub(super) fn answer<'t>(&self, id: &str, trace: &'t Trace) -> Option<(EventId, &'t Event)> {
        let id = *self.answers.get(id)?;
        Some((id, trace.event(id)?))
    }

    /// Returns the join of the labels of the answers that were recorded for a call and for its equal calls that had no
    /// answer then: a request outside the chat does not say which of them it runs. `None` if none of them ran there.
    pub(super) fn label_of_answers(&self, id: &str, trace: &Trace) -> Option<Label> {
        let ran = self.equal_ids(id).chain([id]).filter_map(|id| self.answer(id, trace));
        ran.map(|(_, event)| event.label).reduce(|label, other| label.join(&other))
    }

    /// Whether an answer was recorded for another call that is equal to this one.
    pub(super) fn has_equal_answer(&self, id: &str) -> bool {
        self.equal_ids(id).any(|other| other != id && self.answers.contains_key(other))
    }

    fn equal_ids(&self, id: &str) -> impl Iterator<Item = &str> {
        self.equal.get(id).into_iter().flat_map(|ids| ids.iter().map(String::as_str))
    }
}
