//! Implements the method *cheapest first*: a step is first shown everything. If the policy permits all resulting calls
//! without a question, the step is accepted. Otherwise it is generated again, and is shown only what flows to the
//! strictest requirement of the tools on offer.
//!
//! Whether the first attempt is accepted depends on hidden text, and so reveals one bit of it.

use flowgate::monitor::Attribution;
use flowgate::trace::{Call, EventBody, TraceEntry};

use super::StepMethod;
use super::draft::{Draft, DraftJudge, DraftVerdict};

/// The method *cheapest-first*.
#[derive(Debug, Clone, Copy)]
pub struct CheapestFirst;

impl StepMethod for CheapestFirst {
    fn name(&self) -> &'static str {
        "cheapest-first"
    }

    fn doc(&self) -> &'static str {
        "everything if all calls of the resulting draft are permitted, else what flows to the strictest \
        requirement on offer"
    }

    fn shows_everything(&self) -> bool {
        // The first attempt of each step is shown everything, a second attempt less.
        true
    }

    fn start_drafts(&self) -> Option<Box<dyn DraftJudge>> {
        Some(Box::new(*self))
    }
}

impl DraftJudge for CheapestFirst {
    /// Accepts the draft if the policy permits all of its calls without a question; otherwise the step is generated
    /// at the base label. The choice is between two labels, so it reveals one bit.
    fn judge(&mut self, draft: &Draft<'_>) -> DraftVerdict {
        let judged = draft.calls.iter().map(|call| {
            // The call is not added to the trace, so its id does not matter.
            let id = format!("draft{}", call.index);
            let entry = EventBody::Call(Call::from_json(id, call.tool.clone(), &call.arguments));
            // The number of hidden regions (0) is only for records, and this judgement is not recorded.
            (TraceEntry::from(entry), Attribution::view(self.name(), draft.label, 0))
        });
        let would_run = draft.monitor.would_permit(judged);
        DraftVerdict { label: if would_run { draft.label } else { draft.base }, bits: 1 }
    }
}
