//! Removes calls that did not run from a session, so that such a call is no part of the history that rules see.
//!
//! The methods of the monitor that judge a call or append an event first call [`Monitor::withdraw_dropped_permits`], for
//! the permitted calls whose permits were dropped. `permits` and `rejudge` call [`Monitor::retract`] for a call that is
//! not permitted.

use super::Monitor;
use crate::label::Label;
use crate::trace::{EventId, Status};

impl Monitor {
    /// Withdraws the calls whose permits were dropped without being redeemed. Each method of the monitor that judges a
    /// call or appends an event calls this first: a dropped permit only sets a flag, since it has no access to the
    /// monitor.
    pub(super) fn withdraw_dropped_permits(&mut self) {
        if self.reserved.iter().all(|(_, drop_flag)| !drop_flag.is_dropped()) {
            return;
        }
        let given_up: Vec<EventId> = self
            .reserved
            .iter()
            .filter(|(_, drop_flag)| drop_flag.is_dropped())
            .map(|(event, _)| *event)
            .collect();
        for event in given_up {
            self.withdraw(event);
        }
        // Rules no longer see these calls, so earlier verdicts are no longer valid.
        self.version += 1;
    }

    /// Abandons a permitted call that has not run: its event remains in the trace, but rules no longer see it, and
    /// another event can use the name by which events refer to it.
    pub(super) fn withdraw(&mut self, event: EventId) {
        self.reserved.retain(|(reserved, _)| *reserved != event);
        self.accesses.remove(&event);
        self.trace.forget_name(event);
        if let Some(call) = self.trace.event_mut(event) {
            call.status = Status::Withdrawn;
        }
    }

    /// Removes the last event of the trace, a call that is not permitted. `seen` is the label of what the agent of the
    /// call had seen before; it becomes the label of this agent's context again.
    pub(super) fn retract(&mut self, event: EventId, seen: &Label) {
        self.trace.retract(event, seen);
        // The rules have stored the event, whose index the next event takes.
        self.rules.forget(&self.policy.plan, event);
    }
}
