//! Judges hypothetical calls on a copy of the monitor, which leaves the session unchanged.

use std::sync::Arc;

use super::{Attribution, Monitor, Verdict};
use crate::label::Label;
use crate::trace::TraceEntry;

/// # Forks
///
/// What would happen to calls and events, without any effect on the session.
impl Monitor {
    /// Returns whether calls would be permitted one after the other, where nothing may reveal that they were
    /// considered. Leaves this monitor unchanged. The time is linear in the length of the trace.
    pub fn would_permit(&self, calls: impl IntoIterator<Item = (TraceEntry, Attribution)>) -> bool {
        let mut fork = self.fork();
        let mut permits = Vec::new();
        calls.into_iter().all(|(entry, attribution)| match fork.judge_entry(entry, attribution) {
            Verdict::Permit(permit) => {
                permits.push(permit);
                true
            }
            Verdict::Confirm(_) | Verdict::Deny(_) => false,
        })
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

    /// Copies the state into another monitor, whose permits are invalid here.
    fn fork(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            limits: self.limits,
            trace: self.trace.clone(),
            roster: self.roster.clone(),
            servers: self.servers.clone(),
            known_tools: self.known_tools.clone(),
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
        }
    }
}
