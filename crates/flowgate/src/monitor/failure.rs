//! Calls that bring no answer which can be passed on: the server is silent, fails, or says what nobody can read in one way.
//!
//! That a call failed depends on what its answer would have held, so the outcome is an event as well. Its text is the caller's and
//! constant; its label is the most that any answer of the tool may carry, since nothing is known of the answer itself.

use serde_json::Value;

use super::{Finding, Floors, Monitor, PushError};
use crate::label::Label;
use crate::trace::{Body, Entry, EventId, Output, Status};

impl Monitor {
    /// Adds the outcome of a call that brought no answer. `text` stands in place of the answer and must be a constant.
    ///
    /// The event carries [`failure_carries`](Self::failure_carries); no statement of the policy can lower it, since none has an
    /// answer to look at.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn push_failure(
        &mut self,
        call_id: &str,
        text: &'static str,
    ) -> Result<(EventId, Vec<Finding>), PushError> {
        let floors = Floors::from(self.failure_carries(call_id));
        let (call_id, content) = (call_id.to_owned(), Value::from(text));
        let output = Output { call_id, tool: None, content, structured: None, is_error: Some(true) };
        self.push_labelled(Entry::from(Body::Output(output)), None, &floors, true)
    }

    /// What any outcome of a running call may carry: the label of the call, of the stores that it reads, and the most that the policy
    /// lets an answer of its tool carry. A dimension that no statement declares for all of the answer is top, whatever the policy's
    /// default is; and so is everything if there is no such call.
    pub fn failure_carries(&self, call_id: &str) -> Label {
        let top = self.policy.space().top();
        let mut calls = self.trace.calls_with_id(call_id);
        let (Some(id), None) = (calls.next(), calls.next()) else { return top };
        let Some(call) = self.trace.event(id).filter(|call| call.status == Status::Done) else { return top };
        let Some(tool) = call.tool() else { return top };
        let stores = self.accesses.get(&id).map_or(Label::BOTTOM, |access| self.stores.label(&access.reads));
        let label = call.label.join(&call.decided).join(&stores);
        label.join(&self.most_answered(tool, top)).join(&self.answer_floor(tool))
    }
}
