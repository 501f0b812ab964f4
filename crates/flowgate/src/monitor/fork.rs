//! Judges hypothetical calls, and labels hypothetical events, on a copy of the monitor, so that the session stays
//! unchanged. `flowgate-guard`, `flowgate-mcp` and the watch mode of the gateway use these methods:
//!
//! * [`Monitor::would_permit`] decides whether calls would be permitted, without adding them to the trace. The guard
//!   uses it to judge a draft that it may discard.
//! * [`Monitor::would_judge`] returns the whole judgement of one such call, with its reasons.
//! * [`Monitor::questions_after`] computes the questions about the further calls of a message, so that a person can
//!   answer all of them at once.
//! * [`Monitor::labels_if_pushed`] computes the labels of texts before they are pushed, so that a text whose label is
//!   too high can be withheld.

use std::sync::Arc;

use super::{Attribution, Judgement, Monitor, Question, Verdict};
use crate::label::Label;
use crate::trace::TraceEntry;

/// # Forks
///
/// What would happen to calls and events, without any effect on the session.
impl Monitor {
    /// Returns whether all calls would be permitted without a question, each judged after the ones before it. Each item
    /// of `calls` is a call with its attribution. Leaves this monitor unchanged, so nothing reveals that the calls were
    /// considered. The time is linear in the length of the trace.
    pub fn would_permit(&self, calls: impl IntoIterator<Item = (TraceEntry, Attribution)>) -> bool {
        let mut fork = self.fork();
        // A dropped permit withdraws its call, so the permits live until all calls are judged.
        let mut permits = Vec::new();
        calls.into_iter().all(|(entry, attribution)| match fork.judge_entry(entry, attribution) {
            Verdict::Permit(permit) => {
                permits.push(permit);
                true
            }
            Verdict::Confirm(_) | Verdict::Deny(_) => false,
        })
    }

    /// Returns how a call with this attribution would be judged. Leaves the session of this monitor unchanged, but
    /// records the answers that extern predicates give: a replay of the session is then judged in the same way. The
    /// time is linear in the length of the trace.
    pub fn would_judge(&self, entry: TraceEntry, attribution: Attribution) -> Judgement {
        let mut fork = self.fork();
        let judgement = fork.judge_entry(entry, attribution).judgement().clone();
        self.answers.adopt(&fork.answers);
        judgement
    }

    /// Returns for each of `calls` the question that a person would be asked about it; `None` for a call that would be
    /// permitted or denied. Each call is judged as if the call of the question `first` and all earlier ones of `calls`
    /// had been approved and had run, except those that the policy denies. If `confirms` returns true for the judgement
    /// of a permitted call, there is a question about this call as well. Leaves this monitor unchanged. The caller can
    /// show the questions but cannot have them approved by this monitor, since a copy of it has asked them. The time is
    /// linear in the length of the trace.
    pub fn questions_after(
        &self,
        first: &Question,
        calls: impl IntoIterator<Item = (TraceEntry, Attribution)>,
        confirms: impl Fn(&Judgement) -> bool,
    ) -> Vec<Option<Question>> {
        let mut fork = self.fork();
        fork.run_if_approved(first.entry.clone(), first.attribution.clone());
        let questions = calls.into_iter().map(|(entry, attribution)| {
            let question = match fork.judge_entry(entry.clone(), attribution.clone()) {
                Verdict::Permit(permit) if confirms(permit.judgement()) => {
                    Some(fork.require_approval(permit))
                }
                Verdict::Confirm(question) => Some(question),
                Verdict::Permit(_) | Verdict::Deny(_) => None,
            };
            // A dropped permit and a question both take their call out of the trace, so it is judged again, and runs.
            fork.run_if_approved(entry, attribution);
            question
        });
        questions.collect()
    }

    /// Judges a call as if a person approved it, and marks it as run unless it is denied.
    fn run_if_approved(&mut self, entry: TraceEntry, attribution: Attribution) {
        let permit = match self.judge_entry(entry, attribution) {
            Verdict::Permit(permit) => Some(permit),
            Verdict::Confirm(question) => self.permit_approved(question).ok(),
            Verdict::Deny(_) => None,
        };
        // An error of `redeem` is ignored: a call that is denied after all does not run.
        let _ = permit.map(|permit| self.redeem(permit));
    }

    /// Returns the labels that messages, outputs or descriptions would carry if they were pushed one after
    /// the other; top for one that cannot be pushed. Leaves this monitor unchanged. The time is linear in the
    /// length of the trace.
    pub fn labels_if_pushed(&self, entries: impl IntoIterator<Item = TraceEntry>) -> Vec<Label> {
        let mut fork = self.fork();
        let top = fork.policy.space().top();
        let carried = entries.into_iter().map(|entry| match fork.push(entry) {
            Ok((event, _)) => fork.trace.event(event).map_or(top, |event| event.label),
            Err(_) => top,
        });
        carried.collect()
    }

    /// Copies the state into another monitor. Permits and questions of one are invalid in the other, so that no call
    /// runs that was judged only hypothetically.
    fn fork(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            limits: self.limits,
            trace: self.trace.clone(),
            name_table: self.name_table.clone(),
            servers: self.servers.clone(),
            known_tools: self.known_tools.clone(),
            // A new identity is what makes permits and questions of the other monitor invalid.
            session_identity: Arc::new(()),
            stores: self.stores.clone(),
            rules: self.rules.clone(),
            applicable: self.applicable.clone(),
            messages: Arc::clone(&self.messages),
            tools: Arc::clone(&self.tools),
            parameters: self.parameters.clone(),
            answers: self.answers.fork(),
            known_accesses: self.known_accesses.clone(),
            accesses: self.accesses.clone(),
            unpermitted: self.unpermitted.clone(),
            answered: self.answered.clone(),
            withdrawn: self.withdrawn.clone(),
            grants: self.grants.clone(),
            reserved: self.reserved.clone(),
            version: self.version,
            // Hypothetical calls and events are not inputs of the session, so the copy records nothing.
            inputs: None,
        }
    }
}
