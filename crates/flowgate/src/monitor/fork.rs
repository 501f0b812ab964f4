//! What would become of calls and events that nobody is to know were thought of.

use std::sync::Arc;

use super::{Attribution, Monitor, Verdict};
use crate::label::Label;
use crate::trace::Entry;

impl Monitor {
    /// Whether calls would be permitted one after the other, of which nobody is to know that they were thought of. Nothing
    /// comes of asking, and it takes as long as the trace is.
    pub fn would_permit(&self, calls: impl IntoIterator<Item = (Entry, Attribution)>) -> bool {
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

    /// What messages, answers or descriptions would carry if they came next, one after the other: the greatest label for one that
    /// cannot come. Nothing comes of asking, and it takes as long as the trace is.
    pub fn would_carry(&self, entries: impl IntoIterator<Item = Entry>) -> Vec<Label> {
        let mut fork = self.fork();
        let top = fork.policy.space().top();
        let carried = entries.into_iter().map(|entry| match fork.push(entry) {
            Ok((event, _)) => fork.trace.event(event).map_or(top, |event| event.label),
            Err(_) => top,
        });
        carried.collect()
    }

    /// The same state in another monitor, of which no permit is good here.
    fn fork(&self) -> Self {
        Self {
            policy: Arc::clone(&self.policy),
            limits: self.limits,
            trace: self.trace.clone(),
            roster: self.roster.clone(),
            servers: self.servers.clone(),
            met: self.met.clone(),
            home: Arc::new(()),
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
            reserved: self.reserved.clone(),
            version: self.version,
        }
    }
}
