//! Limits the questions that one conversation puts to a person ([`QuestionBudget`]), so that nobody can tire a person
//! with questions until one of them is answered with an approval.
//!
//! An attacker who can provoke questions repeats them, because a person reads the tenth question less carefully than
//! the first one. A budget limits the number of questions, and the number of refusals without an approval between them.
//! Once a limit is reached, a call that needs a person is refused without a question. The limits only refuse calls, so
//! they weaken no policy.
//!
//! A program wraps the approver of a conversation in a [`BudgetedApprover`], and uses the same wrapper if the
//! conversation continues later.

use flowgate_lm::BoxFuture;

use super::{ApprovalRequest, Approver, Decision};

/// The limits on questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionBudget {
    /// The most questions in a conversation.
    pub questions: usize,
    /// The number of refusals without an approval between them after which nobody is asked until the user
    /// [writes again](BudgetedApprover::resume). This limit is called the flood rule.
    pub refusals_in_row: usize,
}

/// An approver that asks another one within a [`QuestionBudget`].
#[derive(Debug)]
pub struct BudgetedApprover<A> {
    inner: A,
    budget: QuestionBudget,
    /// The number of questions that the inner approver was asked in this conversation.
    asked: usize,
    /// The number of refusals since the last approval, or since the user wrote last.
    refused_in_row: usize,
}

impl<A: Approver> BudgetedApprover<A> {
    /// Puts a budget before an approver.
    pub fn new(inner: A, budget: QuestionBudget) -> Self {
        Self { inner, budget, asked: 0, refused_in_row: 0 }
    }

    /// Returns the number of questions that the inner approver was asked.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// Ends the effect of the flood rule, because the user has written. The budget of the conversation stays used up.
    pub fn resume(&mut self) {
        self.refused_in_row = 0;
    }
}

impl<A: Approver> Approver for BudgetedApprover<A> {
    /// Asks the inner approver, and counts the question and a refusal. A question that nobody answers in time counts as
    /// a refusal. Once the limit on questions or on refusals in a row is reached, nobody is asked: returns
    /// [`Decision::Unasked`], which refuses the call.
    fn decide<'a>(&'a mut self, ask: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            let is_flood = self.refused_in_row >= self.budget.refusals_in_row;
            if is_flood || self.asked >= self.budget.questions {
                return Decision::Unasked;
            }
            self.asked = self.asked.saturating_add(1);
            let decision = self.inner.decide(ask).await;
            // A question that is still open is no refusal.
            match decision {
                Decision::Allow | Decision::AllowForConversation => self.refused_in_row = 0,
                Decision::Refuse | Decision::Silent | Decision::Unasked => {
                    self.refused_in_row = self.refused_in_row.saturating_add(1);
                }
                Decision::Later => {}
            }
            decision
        })
    }
}
