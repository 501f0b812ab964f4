//! Owns the running turn: its outcome so far, and the state that is reset when the next turn begins.
//!
//! [`RunningTurn`] contains the [`Turn`] that its caller receives at the end, and the approval of the call that is
//! about to run. A [conversation](super::Conversation) fills it. A caller that aborts a turn takes the judged calls and
//! the approvals from it, which the turn would have reported at its end. Invariant: an approval is spent by the call
//! that it was given for, or is reported as void: the call was approved, and did not run.

use flowgate::monitor::Denial;
use flowgate::trace::Tool;

use super::turn::{CallVerdict, HandedOverCall, ModelReply, Turn, TurnEnd, VoidedCall};

/// The state of the running turn.
#[derive(Debug, Default)]
pub struct RunningTurn {
    /// What the turn has produced so far.
    pub(super) outcome: Turn,
    /// Rule findings on messages and tool answers, reported with the turn.
    pub(super) rule_messages: Vec<String>,
    /// The tools on offer in this turn, if not all.
    pub(super) selected_tools: Option<Vec<String>>,
    /// The step that a person's decision continued, as an index of the items, until the caller receives the answer.
    pub(super) resumed: Option<usize>,
    /// The call that a person has just approved, until it runs or is void: the tool and the digest of the call.
    approved: Option<(Tool, String)>,
}

impl RunningTurn {
    /// Returns the replies of the model so far.
    pub fn replies(&self) -> &[ModelReply] {
        &self.outcome.replies
    }

    /// Returns the calls that were judged so far.
    pub fn judged_calls(&self) -> &[CallVerdict] {
        &self.outcome.judged
    }

    /// Returns the calls that were judged so far, and removes them from the turn, which then does not report them.
    pub fn take_judged_calls(&mut self) -> Vec<CallVerdict> {
        std::mem::take(&mut self.outcome.judged)
    }

    /// Takes the approved calls of an unfinished turn that do not run: those that are void already, and those that will
    /// not run because `cause` has ended the turn.
    pub fn void_approved_calls(&mut self, cause: &str) -> Vec<VoidedCall> {
        self.void_approval(cause);
        let mut void = std::mem::take(&mut self.outcome.void);
        for call in &mut self.outcome.calls {
            let Some(digest) = call.approved.take() else { continue };
            let (tool, reasons) = (call.tool.clone(), Vec::new());
            void.push(VoidedCall { tool, digest, reasons, cause: cause.to_owned() });
        }
        void
    }

    /// Begins a turn. Rule findings since the last turn stay, to be reported with this one.
    pub(super) fn begin(&mut self) {
        (self.outcome, self.selected_tools, self.resumed) = (Turn::default(), None, None);
    }

    /// Takes the outcome of the complete turn, with the findings of rules.
    pub(super) fn finish(&mut self) -> Turn {
        let mut turn = std::mem::take(&mut self.outcome);
        turn.rule_messages.append(&mut self.rule_messages);
        turn
    }

    /// Takes the outcome of a turn that waits for a person. Calls that are handed over stay until the turn continues,
    /// so that all calls of a message reach the caller together.
    pub(super) fn finish_asked(&mut self) -> Turn {
        let calls = std::mem::take(&mut self.outcome.calls);
        let turn = Turn { ended: Some(TurnEnd::Asked), ..std::mem::take(&mut self.outcome) };
        self.outcome.calls = calls;
        turn
    }

    /// Counts an approval, and records the approved call: its tool and its digest; `None` if the question has no call.
    pub(super) fn approve(&mut self, approved: Option<(Tool, String)>) {
        self.outcome.spent.allowed += 1;
        self.approved = approved;
    }

    /// Returns the digest of the approved call that is about to run; `None` if no person approved it.
    pub(super) fn approved_digest(&self) -> Option<&str> {
        self.approved.as_ref().map(|(_, digest)| digest.as_str())
    }

    /// Forgets the approval of the call that has run.
    pub(super) fn spend_approval(&mut self) {
        self.approved = None;
    }

    /// Adds a call that the caller runs itself, with its approval.
    pub(super) fn hand_over(&mut self, call: HandedOverCall) {
        let approved = self.approved.take().map(|(_, digest)| digest);
        self.outcome.calls.push(HandedOverCall { approved, ..call });
    }

    /// Records that the approved call that was about to run does not run, because of `cause`. Does nothing if no call
    /// is approved.
    pub(super) fn void_approval(&mut self, cause: &str) {
        if let Some((tool, digest)) = self.approved.take() {
            self.outcome.void.push(VoidedCall { tool, digest, reasons: Vec::new(), cause: cause.to_owned() });
        }
    }

    /// Records that the approved call was judged again and denied, with the reasons of the denial. Does nothing if no
    /// call is approved.
    pub(super) fn void_denied(&mut self, denial: &Denial) {
        if let Some((tool, digest)) = self.approved.take() {
            let reasons = denial.judgement().reasons.clone();
            let cause = "the call was refused when it was judged again".to_owned();
            self.outcome.void.push(VoidedCall { tool, digest, reasons, cause });
        }
    }
}
