//! Asks people about the calls of a turn. Notes two things: the approvals that the turn uses, so that they are stored
//! as used together with the turn; and the question for which the turn waits. [`super::turn`] creates one
//! [`PersonApprover`] for each turn, passes it to the agent of the guard, and reads the notes afterwards.

use flowgate_guard::approve::{ApprovalRequest, Approver, Decision};
use flowgate_lm::BoxFuture;

use super::used_approvals::UsedApprovals;
use crate::approvals::{ApprovalContext, ApprovalOutcome, ApprovalReference, ApprovalService};
use crate::database::DatabaseError;

/// Asks people about the calls of one turn, and notes the answers that the turn uses.
pub(super) struct PersonApprover<'a> {
    approvals: &'a ApprovalService,
    pub(super) context: ApprovalContext<'a>,
    /// The approvals that the turn has used.
    pub(super) used: &'a UsedApprovals,
    /// Answers to questions about several equal calls that people gave during earlier requests of the same turn. They
    /// cover further calls of the message of the model about which the turn waited.
    pub(super) earlier: Vec<(ApprovalReference, Decision)>,
    /// The questions that a person denied.
    pub(super) refused: Vec<ApprovalReference>,
    /// The question for which the turn waits.
    pub(super) question: Option<ApprovalReference>,
    /// The number of questions about later calls of the same message that were stored together with `question`.
    pub(super) upcoming: usize,
    /// Whether the turn has stored questions about calls before these calls were judged. Such questions have to be
    /// voided if their calls turn out not to need them.
    pub(super) announced: bool,
    /// The digests of the calls about which people were asked, for the spans of these calls.
    pub(super) asked: Vec<String>,
    /// Why the database could not store a question, or could not check an earlier answer; the turn then fails.
    pub(super) failure: Option<DatabaseError>,
}

impl<'a> PersonApprover<'a> {
    /// Creates an approver for one turn that has asked nothing yet. `context` is the client, the conversation and the
    /// request for which it asks, and `used` receives the approvals that the turn uses.
    pub(super) fn new(
        approvals: &'a ApprovalService,
        context: ApprovalContext<'a>,
        used: &'a UsedApprovals,
    ) -> Self {
        Self {
            approvals,
            context,
            used,
            earlier: Vec::new(),
            refused: Vec::new(),
            question: None,
            upcoming: 0,
            announced: false,
            asked: Vec::new(),
            failure: None,
        }
    }

    /// Returns copies of those answers of this turn that cover further calls: one question can be about several equal
    /// calls of a message, and some of these calls are not judged yet. If the turn ends because it waits for a person,
    /// the conversation remembers these answers for the request that continues the turn.
    pub(super) fn answers_for_further_calls(&self) -> Vec<(ApprovalReference, Decision)> {
        let used = self.used.all().into_iter().map(|asked| {
            let decision = asked.allowing_decision();
            (asked, decision)
        });
        let refused = self.refused.iter().map(|asked| (asked.clone(), Decision::Deny));
        let earlier = self.earlier.iter().cloned();
        let all = used.chain(refused).chain(earlier);
        all.filter(|(asked, _)| asked.covers_further_calls()).collect()
    }

    /// Takes an answer that this turn has received already and that also covers the call of `ask`: its question was
    /// about several equal calls. The answer then covers one call fewer. Returns the id of its question and the
    /// decision; `None` if a person has to be asked.
    fn take_answer(&mut self, ask: &ApprovalRequest) -> Option<(String, Decision)> {
        // First the approvals and the denials that this request has received, then the answers of earlier requests
        // about the same message.
        if let Some(answer) = self.used.take_equal_call(ask) {
            return Some(answer);
        }
        if let Some(asked) =
            self.refused.iter_mut().find_map(|asked| asked.take_equal_call(ask).then_some(asked))
        {
            return Some((asked.id.clone(), Decision::Deny));
        }
        take_from(&mut self.earlier, ask)
    }

    /// Checks `decision`, the earlier answer to the question `id`, before it is used for a further call, and returns
    /// the decision on this call. If a lasting grant gave the answer and was withdrawn since, that is
    /// [`Decision::Unanswered`], so that the call does not run; otherwise it is `decision`. If the database fails,
    /// notes the failure and returns [`Decision::Undecided`].
    async fn recheck_answer(&mut self, id: String, decision: Decision) -> Decision {
        // A denial stays a denial.
        if !decision.allows() {
            return decision;
        }
        match self.approvals.store.is_answering_grant_withdrawn(&[id]).await {
            Ok(false) => decision,
            Ok(true) => Decision::Unanswered,
            Err(error) => {
                self.failure = Some(error);
                // The turn returns the error, and nothing of the turn is stored.
                Decision::Undecided
            }
        }
    }

    /// Returns the question `ask` without those upcoming questions that the turn's answers cover already. An upcoming
    /// question is about a later call in the same message of the model, and is stored together with `ask`. It can be
    /// about several equal calls; it is left out only if answers cover all of them.
    fn without_answered(&self, ask: &ApprovalRequest) -> ApprovalRequest {
        let mut answers = self.answers_for_further_calls();
        let mut ask = ask.clone();
        // Each covered call takes one call from the copied answers. A question stays if an answer is missing for one of
        // its calls.
        ask.upcoming.retain(|next| (0..next.times).any(|_| take_from(&mut answers, next).is_none()));
        ask
    }
}

/// Uses the first of `answers` that covers the call of `ask`, so that this answer covers one call fewer. Returns the id
/// of its question and its decision; `None` if no answer covers the call.
fn take_from(
    answers: &mut [(ApprovalReference, Decision)],
    ask: &ApprovalRequest,
) -> Option<(String, Decision)> {
    let taken = |(asked, decision): &mut (ApprovalReference, Decision)| {
        asked.take_equal_call(ask).then(|| (asked.id.clone(), *decision))
    };
    answers.iter_mut().find_map(taken)
}

impl Approver for PersonApprover<'_> {
    /// Asks a person about the call of `ask`, unless an earlier answer of the turn to a question about several equal
    /// calls covers this call.
    ///
    /// Notes for the turn that the call was asked about (`asked`), the answer (`used`, `refused`) or the question that
    /// is still open (`question`), and whether questions about later calls were stored as well (`announced`). If the
    /// question cannot be asked, notes the error, with which the turn has to fail.
    fn decide<'a>(&'a mut self, ask: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        Box::pin(async move {
            if let Some((id, decision)) = self.take_answer(ask) {
                return self.recheck_answer(id, decision).await;
            }
            // Questions about later calls that are answered already are not stored again.
            let ask = &self.without_answered(ask);
            self.announced |= !ask.upcoming.is_empty();
            // The questions that this turn has answers to already. The answers must not be used again for `ask`:
            // `take_answer` has counted how many calls they cover.
            let mut answered = self.used.all();
            answered.extend_from_slice(&self.refused);
            let ApprovalOutcome { decision, asked } =
                match self.approvals.ask(self.context, ask, &answered).await {
                    Ok(answered) => answered,
                    Err(error) => {
                        self.failure = Some(error);
                        // The turn returns the error, and nothing of the turn is stored.
                        return Decision::Undecided;
                    }
                };
            // `asked` is `None` if no person was asked.
            self.asked.extend(asked.as_ref().map(|_| ask.digest.clone()));
            match decision {
                Decision::AllowOnce | Decision::AllowForConversation | Decision::AllowByAll => {
                    self.used.add(asked);
                }
                Decision::Undecided => (self.question, self.upcoming) = (asked, ask.upcoming.len()),
                Decision::Deny => self.refused.extend(asked),
                // The call is refused without an answer of a person, so there is no answer to note.
                Decision::Unanswered | Decision::Unasked => {}
            }
            decision
        })
    }
}
