//! Tracks the calls that were handed to the caller, who can run them through the gateway's MCP proxy, outside the chat.
//! [`super::outside_chat`] and [`super::hand_over`] use this module.
//!
//! When the proxy receives such a call, it *takes* the call, so that the verdict of the chat applies to it, and records
//! its answer. [`HandedOverCalls`] knows which calls can still be taken, which were taken, and which recorded answers
//! the caller may later report in the chat. The calls and their answers themselves are in the trace. Invariant: a call
//! is taken at most once, and only while it belongs to the last message that the caller received.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::trace::{Call, Event, EventBody, EventId, Tool, Trace};
use flowgate_lm::chat::Message;

/// The calls that were handed to the caller.
#[derive(Debug, Default)]
pub(super) struct HandedOverCalls {
    /// Ids of the calls that the last message handed to the caller and that have not run outside the chat.
    delivered: HashSet<String>,
    /// Ids of the calls that the last message handed to the caller under an earlier policy, before the conversation was
    /// carried over, and that are not known to have run outside the chat.
    earlier: HashSet<String>,
    /// The calls that the caller knows by another id than the trace: the caller's id, and the id in the trace.
    renamed: HashMap<String, String>,
    /// Calls taken to run outside the chat since [`drain_taken`](Self::drain_taken) was last called: the tool and the
    /// digest of each call.
    taken: Vec<(Tool, String)>,
    /// Calls that were taken to run outside the chat, by id, with the event of the answer once there is one.
    answers: HashMap<String, Option<EventId>>,
    /// The answers of *separate* calls, by tool, in the order of the trace. A separate call ran outside the chat
    /// without having been handed over.
    separate_answers: HashMap<Tool, Vec<EventId>>,
    /// Sets of equal calls, by the id of each member: a call that ran outside the chat, and the calls without an answer
    /// that had the same tool and arguments when it ran. A set has the ids and the events of its members.
    equal: HashMap<String, Arc<[(String, EventId)]>>,
}

impl HandedOverCalls {
    /// Records that the caller has received a message: from now on, the calls of this message may run outside the chat,
    /// and those of earlier messages may not. `ids` are the ids in the trace of the calls that were handed over for the
    /// message, in order. The message may name these calls by other ids: some callers know a call only by its position
    /// in their chat. If the message does not have as many calls as there are `ids`, its own ids are taken as those of
    /// the trace.
    pub(super) fn deliver(&mut self, message: &Message, ids: Vec<String>) {
        let Message::Assistant { calls, .. } = message else { return };
        // Ids cannot be assigned to the calls of the message, so each call keeps the id that the message gives it.
        if calls.len() != ids.len() {
            self.delivered = calls.iter().map(|call| call.id.clone()).collect();
            return;
        }
        for (call, id) in calls.iter().zip(&ids) {
            // An id that the caller used for an earlier call now means this one.
            match call.id == *id {
                true => drop(self.renamed.remove(&call.id)),
                false => drop(self.renamed.insert(call.id.clone(), id.clone())),
            }
        }
        self.delivered = ids.into_iter().collect();
    }

    /// Returns the id in the trace of the call that the caller knows by the id `id`.
    pub(super) fn id_in_trace<'i>(&'i self, id: &'i str) -> &'i str {
        self.renamed.get(id).map_or(id, String::as_str)
    }

    /// Ends the right to run calls outside the chat.
    pub(super) fn revoke(&mut self) {
        self.delivered.clear();
    }

    /// Ends the right to run the calls of the last message outside the chat, because they were handed over under an
    /// earlier policy. Those that ran outside the chat under that policy can be taken by [`Self::take_earlier`].
    pub(super) fn end_earlier(&mut self) {
        self.earlier = std::mem::take(&mut self.delivered);
    }

    /// Takes a call that ran outside the chat under an earlier policy. Works like [`Self::take`], but with the calls of
    /// `self.earlier` in place of `self.delivered`.
    pub(super) fn take_earlier(
        &mut self,
        equal_calls: &[(&Call, EventId)],
        digest: &dyn Fn(&Call) -> String,
    ) -> Option<Call> {
        // `take` searches in `delivered`, so the two sets change places while it runs.
        let delivered = std::mem::replace(&mut self.delivered, std::mem::take(&mut self.earlier));
        let taken = self.take(equal_calls, digest);
        self.earlier = std::mem::replace(&mut self.delivered, delivered);
        taken
    }

    /// Takes a call, so that it can run outside the chat. Returns the first of `equal_calls` that may still run; `None`
    /// if none of them may. A call can be taken only once. `equal_calls` are the calls without an answer that have the
    /// tool and the arguments of the request to run a call, each with its event. `digest` computes the digest under
    /// which [`drain_taken`](Self::drain_taken) reports the call.
    pub(super) fn take(
        &mut self,
        equal_calls: &[(&Call, EventId)],
        digest: &dyn Fn(&Call) -> String,
    ) -> Option<Call> {
        let calls = equal_calls.iter().map(|(call, _)| *call);
        let call = calls.into_iter().find(|call| self.delivered.contains(&call.id))?.clone();
        // The caller may report the answer as the answer of any of the equal calls, so the set of them is recorded
        // (`self.equal`) for the label of the answer.
        if equal_calls.len() > 1 {
            let set: Arc<[_]> = equal_calls.iter().map(|(call, event)| (call.id.clone(), *event)).collect();
            self.equal.extend(set.iter().map(|(id, _)| (id.clone(), Arc::clone(&set))));
        }
        self.delivered.remove(&call.id);
        self.answers.insert(call.id.clone(), None);
        self.taken.push((call.tool.clone(), digest(&call)));
        Some(call)
    }

    /// Returns the calls that were taken since this method was last called: the tool and the digest of each.
    pub(super) fn drain_taken(&mut self) -> Vec<(Tool, String)> {
        std::mem::take(&mut self.taken)
    }

    /// Records the event `output` as the answer of a call that ran outside the chat. The call is the taken call with
    /// this id, or, if none has it, a separate call that was never handed over. The answer of a separate call is
    /// recorded only if the trace names its tool.
    pub(super) fn record_answer(&mut self, id: &str, output: EventId, trace: &Trace) {
        if let Some(answer) = self.answers.get_mut(id) {
            *answer = Some(output);
        } else if let Some(tool) = trace.event(output).and_then(|event| trace.event(event.call?)?.tool()) {
            self.separate_answers.entry(tool.clone()).or_default().push(output);
        }
    }

    /// Returns the recorded answer of the taken call with this id, and its event; `None` if none is recorded.
    pub(super) fn answer<'t>(&self, id: &str, trace: &'t Trace) -> Option<(EventId, &'t Event)> {
        let id = (*self.answers.get(id)?)?;
        Some((id, trace.event(id)?))
    }

    /// Returns the join of the labels of all recorded answers that a caller may report as the answer of a handed-over
    /// call; `None` if none is recorded. These are the answers
    /// * of the call itself;
    /// * of its [visible equal calls](Self::visible_equal_answers), since a request outside the chat does not say which
    ///   of them it runs;
    /// * of later calls of the tool that ran outside the chat as separate calls, since a caller may run a call again,
    ///   or spell its arguments in another way.
    pub(super) fn label_of_answers(&self, call: EventId, trace: &Trace) -> Option<Label> {
        let itself = self.answer(call_id(call, trace)?, trace).map(|(_, event)| event);
        let equal = self.visible_equal_answers(call, trace);
        let separate = self.later_separate_answers(call, trace).filter_map(|id| trace.event(id));
        let labels = itself.into_iter().chain(equal).chain(separate).map(|event| event.label);
        labels.reduce(|label, other| label.join(&other))
    }

    /// Whether an answer of another call is recorded that a caller may report as the answer of this call: of a visible
    /// equal call, or of a later separate call of the tool ([`label_of_answers`](Self::label_of_answers) says why).
    pub(super) fn has_other_answer(&self, call: EventId, trace: &Trace) -> bool {
        self.visible_equal_answers(call, trace).next().is_some()
            || self.later_separate_answers(call, trace).next().is_some()
    }

    /// Returns the recorded answers of other calls, which were equal to this call when one of the equal calls ran
    /// outside the chat. Leaves out a call whose label does not flow to the label of this call.
    ///
    /// Whether a call with a hidden argument is equal to this call is as hidden as the argument, so the answer of such
    /// a call must not change the label of this call's answer. Leaving it out loses nothing: the two calls have the
    /// same arguments, so the answer of the hidden call reveals only that they are equal.
    fn visible_equal_answers<'t>(
        &'t self,
        call: EventId,
        trace: &'t Trace,
    ) -> impl Iterator<Item = &'t Event> {
        let label_of = |call: EventId| trace.event(call).map(|event| event.label);
        let own_label = label_of(call);
        let is_visible = move |other: EventId| {
            label_of(other).zip(own_label).is_some_and(|(label, own_label)| label.flows_to(&own_label))
        };
        let equal = call_id(call, trace).and_then(|id| self.equal.get(id));
        let others = equal.into_iter().flat_map(|set| set.iter()).filter(move |(_, other)| *other != call);
        let visible = others.filter(move |(_, other)| is_visible(*other));
        visible.filter_map(|(id, _)| self.answer(id, trace)).map(|(_, event)| event)
    }

    /// Returns the answers of separate calls of the same tool that ran outside the chat after this call, the newest
    /// first.
    fn later_separate_answers(&self, call: EventId, trace: &Trace) -> impl Iterator<Item = EventId> {
        let of_tool = trace.event(call).and_then(|event| self.separate_answers.get(event.tool()?));
        of_tool.into_iter().flatten().rev().copied().take_while(move |output| *output > call)
    }
}

/// Returns the id of the call that an event consists of; `None` if the event is no call.
fn call_id(call: EventId, trace: &Trace) -> Option<&str> {
    match &trace.event(call)?.body {
        EventBody::Call(call) => Some(&call.id),
        _ => None,
    }
}
