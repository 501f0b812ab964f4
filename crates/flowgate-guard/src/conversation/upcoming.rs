//! Computes in advance the questions about the later calls of a message, so that a person can answer all of them at
//! once. [`super::calls`] adds these questions to the question about the first call.
//!
//! The later calls are judged on a copy of the monitor, as if each call before them had been approved. Only calls
//! without slots are considered, because the value of a slot is not known yet. The announcement of a later question
//! reveals that the first question was asked. A later question is therefore announced only if its readers may know of
//! the first question, that is, if the label of the first verdict flows to the label of the later verdict. Equal calls
//! share one question, which states their number, even if other calls are between them.

use flowgate::monitor::{Attribution, Question};
use flowgate::trace::{Call, Tool, TraceEntry};
use flowgate_lm::chat::ToolCall;
use serde_json::{Map, Value};

use super::Conversation;
use crate::approve::ApprovalRequest;
use crate::view::ModelStep;
use crate::{arguments, placeholder, slot};

/// The most calls whose questions are computed in advance.
const MAX_UPCOMING: usize = 20;

impl Conversation {
    /// Builds the request to decide on the call with this index in the last step, and announces the questions about the
    /// calls after it. Equal questions are one question, with the number of its calls in `times`; the labels of their
    /// verdicts are equal, so a reader of the question may know of all of these calls.
    pub(super) fn request_with_upcoming(&self, index: usize, question: &Question) -> ApprovalRequest {
        let mut request = self.approval_request(question);
        for next in self.upcoming(index, question) {
            if request.is_same_question(&next) {
                request.times += 1;
            } else if let Some(same) = request.upcoming.iter_mut().find(|one| one.is_same_question(&next)) {
                same.times += 1;
            } else {
                request.upcoming.push(next);
            }
        }
        request
    }

    /// Returns the questions about the calls of the last step after the call with this index, as far as they can be
    /// foreseen. `question` is the question about the call with this index.
    fn upcoming(&self, index: usize, question: &Question) -> Vec<ApprovalRequest> {
        let Some(step) = self.last_step() else { return Vec::new() };
        // Calls beyond the limit on the calls of a message are refused without a question.
        let later = step.calls.iter().take(self.settings.calls).skip(index + 1).take(MAX_UPCOMING);
        let (method, hidden) = (self.settings.method, step.names.all().len());
        let entries: Vec<_> = later
            .enumerate()
            .filter_map(|(number, step_call)| {
                let (tool, arguments) = self.written_call(step, &step_call.call)?;
                let call = Call { id: format!("upcoming-{number}"), tool, arguments: Ok(arguments) };
                Some((TraceEntry::from(call), Attribution::view(method.name(), step.label, hidden)))
            })
            .collect();
        if entries.is_empty() {
            return Vec::new();
        }
        // A method can require a person's confirmation of a call that the policy permits (`confirms`).
        let foreseen =
            self.monitor.questions_after(question, entries, |judgement| method.confirms(judgement));
        // A reader who is cleared for the next question is then cleared to know of this one.
        let may_announce = |next: &Question| question.judgement().decided.flows_to(&next.judgement().decided);
        let announced = foreseen.iter().flatten().filter(|next| may_announce(next));
        announced.map(|next| self.approval_request(next)).collect()
    }

    /// Returns the tool and the arguments of a call that would be judged with exactly these arguments: not a `look`,
    /// not refused as malformed, and without a slot. Returns `None` for any other call.
    fn written_call(&self, step: &ModelStep, call: &ToolCall) -> Option<(Tool, Map<String, Value>)> {
        // Only the arguments are read here: the id and the tool are not determined yet.
        let parsed = Call::from_json(String::new(), Tool::local(""), &call.arguments).arguments.ok()?;
        let is_look = call.name == slot::LOOK && self.settings.method.has_look();
        let is_offered = self
            .turn
            .selected_tools
            .as_ref()
            .is_none_or(|selected_tools| selected_tools.contains(&call.name));
        let entry = self.tools.catalogue().find(&self.monitor, &step.bound, &call.name)?;
        let hidden = step.names.len();
        // A value with a placeholder counts as a slot, and an argument whose name has one is malformed.
        let is_written = |(name, value): (&String, &Value)| {
            let has_slot = self.settings.method.has_slots() && slot::has_slot(value);
            !has_slot
                && matches!(slot::slot_from_placeholders(value, hidden), Ok(None))
                && placeholder::find(name, hidden).is_empty()
        };
        let is_judged_as_written = !is_look
            && is_offered
            && arguments::check(&parsed, &entry.offered.parameters).is_ok()
            && parsed.iter().all(is_written);
        is_judged_as_written.then(|| (entry.offered.tool.clone(), parsed))
    }
}
