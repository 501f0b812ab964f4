//! Asks people about the calls of a turn, and keeps which answers the turn has used. [`super::turn`] creates it and reads
//! the outcome afterwards.

use flowgate_guard::approve::{ApprovalRequest, Approver, Decision};
use flowgate_lm::BoxFuture;

use crate::approvals::{ApprovalContext, ApprovalOutcome, ApprovalReference, ApprovalService};
use crate::database::DatabaseError;

/// Asks people about calls, and keeps the approvals that the turn uses.
pub(super) struct PersonApprover<'a> {
    approvals: &'a ApprovalService,
    pub(super) context: ApprovalContext<'a>,
    /// The approvals that the turn has used.
    pub(super) used: Vec<ApprovalReference>,
    /// The questions that a person answered with no.
    pub(super) refused: Vec<ApprovalReference>,
    /// The question for which the turn waits.
    pub(super) question: Option<ApprovalReference>,
    /// How many more questions were announced with it.
    pub(super) upcoming: usize,
    /// Whether questions were announced before their calls were judged.
    pub(super) announced: bool,
    /// The reason why a question could not be asked; the turn then fails.
    pub(super) failure: Option<DatabaseError>,
}

impl<'a> PersonApprover<'a> {
    /// Creates an approver for one turn, which asks in this context.
    pub(super) fn new(approvals: &'a ApprovalService, context: ApprovalContext<'a>) -> Self {
        Self {
            approvals,
            context,
            used: Vec::new(),
            refused: Vec::new(),
            question: None,
            upcoming: 0,
            announced: false,
            failure: None,
        }
    }
}

impl Approver for PersonApprover<'_> {
    /// Asks a person, and notes the outcome for the turn: the approvals that were used, and the question that is still
    /// open.
    fn decide<'a>(&'a mut self, ask: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            if self.used.iter_mut().any(|asked| asked.take_equal_call(ask)) {
                return Decision::Allow;
            }
            if self.refused.iter_mut().any(|asked| asked.take_equal_call(ask)) {
                return Decision::Refuse;
            }
            self.announced |= !ask.upcoming.is_empty();
            let ApprovalOutcome { decision, asked } =
                match self.approvals.ask(self.context, ask, &self.used).await {
                    Ok(answered) => answered,
                    Err(error) => {
                        self.failure = Some(error);
                        // The turn returns the error, and nothing of the turn is stored.
                        return Decision::Later;
                    }
                };
            match decision {
                Decision::Allow | Decision::AllowForConversation => self.used.extend(asked),
                Decision::Later => (self.question, self.upcoming) = (asked, ask.upcoming.len()),
                Decision::Refuse => self.refused.extend(asked),
                Decision::Silent | Decision::Unasked => {}
            }
            decision
        })
    }
}
