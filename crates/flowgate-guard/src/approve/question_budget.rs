//! Limits the questions that one conversation puts to a person ([`QuestionBudget`]), so that nobody can tire a person
//! with questions until one of them is answered with an approval.
//!
//! An attacker who can provoke questions repeats them, because a person reads the tenth question less carefully than
//! the first one. A budget limits the number of questions, and the number of refusals without an approval between them.
//! Once a limit is reached, a call that needs a person is refused without a question. The limits only refuse calls, so
//! they weaken no policy.
//!
//! A program wraps the approver of a conversation in a [`BudgetedApprover`], and uses the same wrapper if the
//! conversation continues later. An approver that several conversations share, such as a terminal, keeps a
//! [`QuestionCount`] itself.

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

/// The questions of a conversation so far, for a [`QuestionBudget`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuestionCount {
    /// The number of questions that a person was asked in this conversation.
    asked: usize,
    /// The number of refusals since the last approval, or since the user wrote last.
    refused_in_row: usize,
}

impl QuestionCount {
    /// Returns whether a person may be asked, within this budget.
    pub fn allows_question(&self, budget: QuestionBudget) -> bool {
        self.refused_in_row < budget.refusals_in_row && self.asked < budget.questions
    }

    /// Returns the number of questions that a person was asked.
    pub fn asked(&self) -> usize {
        self.asked
    }

    /// Counts a question with its answer. A question that nobody answers in time counts as a refusal; one that is still
    /// open does not.
    pub fn count(&mut self, decision: Decision) {
        self.asked = self.asked.saturating_add(1);
        self.settle(decision);
    }

    /// Counts the answer to a question that was [counted](Self::count) as undecided when it was asked. An approval
    /// resets the number of refusals in a row, a refusal or a missing answer adds one, and a question that stays
    /// undecided changes nothing.
    pub fn settle(&mut self, decision: Decision) {
        match decision {
            Decision::AllowOnce | Decision::AllowForConversation | Decision::AllowByAll => {
                self.refused_in_row = 0
            }
            Decision::Deny | Decision::Unanswered | Decision::Unasked => {
                self.refused_in_row = self.refused_in_row.saturating_add(1);
            }
            Decision::Undecided => {}
        }
    }

    /// Resets the number of refusals in a row, because the user has written: if the flood rule stopped questions, a
    /// person can be asked again. The number of questions asked so far still counts.
    pub fn resume(&mut self) {
        self.refused_in_row = 0;
    }
}

/// An approver that asks another one within a [`QuestionBudget`].
#[derive(Debug)]
pub struct BudgetedApprover<A> {
    inner: A,
    budget: QuestionBudget,
    count: QuestionCount,
}

impl<A: Approver> BudgetedApprover<A> {
    /// Puts a budget before an approver.
    pub fn new(inner: A, budget: QuestionBudget) -> Self {
        Self { inner, budget, count: QuestionCount::default() }
    }

    /// Returns the number of questions that the inner approver was asked.
    pub fn asked(&self) -> usize {
        self.count.asked()
    }

    /// Resets the number of refusals in a row, because the user has written: if the flood rule stopped questions, a
    /// person can be asked again. The number of questions asked so far still counts.
    pub fn resume(&mut self) {
        self.count.resume();
    }
}

impl<A: Approver> Approver for BudgetedApprover<A> {
    /// Asks the inner approver, and counts the question and its answer. A question that nobody answers in time counts
    /// as a refusal. Once the limit on questions or on refusals in a row is reached, nobody is asked: returns
    /// [`Decision::Unasked`], which refuses the call.
    fn decide<'a>(&'a mut self, request: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            if !self.count.allows_question(self.budget) {
                return Decision::Unasked;
            }
            let decision = self.inner.decide(request).await;
            self.count.count(decision);
            decision
        })
    }
}
