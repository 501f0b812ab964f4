//! Records calls that ran already, whatever their verdict is. Replays of logs, watch mode, `flowgate hook` and
//! conversations that are carried over to another policy call [`Monitor::record`]. A call that waits for its verdict is
//! judged and redeemed by `permits` instead.

use super::attribution::Attribution;
use super::input_record::{MonitorInput, call_id};
use super::{Judgement, Monitor, Outcome};
use crate::trace::{EventId, TraceEntry};

/// A call of a log, judged after the fact.
#[derive(Debug)]
pub struct RecordedCall {
    /// The outcome that the verdict would have had.
    pub outcome: Outcome,
    /// The judgement of the call.
    pub judgement: Judgement,
    /// The event of the call in the trace; `None` if the call could not be appended.
    pub event: Option<EventId>,
}

/// # Calls that ran before
impl Monitor {
    /// Judges a call of a log, and records that it ran whatever the verdict is. If the verdict denies the call, its
    /// output is later labelled top, since the verdict was ignored. If a person would be asked about the call, its
    /// output is labelled as if the person had approved.
    pub fn record(&mut self, entry: TraceEntry, attribution: &Attribution) -> RecordedCall {
        self.withdraw_dropped_permits();
        self.record_judged(&entry, attribution);
        // Needed only to record an input. Read here, since `examine` takes the entry.
        let id = self.inputs.is_some().then(|| call_id(&entry));
        let examined = self.examine(entry, attribution, None);
        let outcome = examined.judgement.outcome();
        if let Some(event) = examined.event {
            self.accesses.insert(event, examined.access);
            self.version += 1;
            self.run(event);
            self.record_input(|| MonitorInput::Ran { call: id.unwrap_or_default(), event });
            if outcome == Outcome::Deny {
                self.unpermitted.insert(event);
            }
        } else {
            // The call ran but could not be appended to the trace, so it may have written to any store.
            self.stores.raise_all(&self.policy.space().top());
            self.version += 1;
        }
        RecordedCall { outcome, judgement: examined.judgement, event: examined.event }
    }

    /// Records a call that ran before under another policy, as [`record`](Self::record) does, but leaves the labels of
    /// external state unchanged. A call writes with the labels of the policy that permits it, and the record that the
    /// earlier session left contains these.
    pub fn record_earlier(&mut self, entry: TraceEntry, attribution: &Attribution) -> RecordedCall {
        let before = self.stores.clone();
        let recorded = self.record(entry, attribution);
        self.stores.restore(&before);
        recorded
    }
}
