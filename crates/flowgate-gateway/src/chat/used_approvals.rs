//! Collects the approvals that a turn uses. Most of them are marked as used in the database when the turn is stored,
//! since its calls run only afterwards: until then, they are *pending*. The approval of a call that the provider runs
//! during the turn is marked before the call: it is *committed*. `person_approver` and `turn_start` add approvals,
//! `turn_observer` commits some of them, and `turn` reads the pending ones at the end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use flowgate_guard::approve::{ApprovalRequest, Decision};

use crate::approvals::ApprovalReference;

/// The approvals that one turn uses.
#[derive(Default)]
pub(super) struct UsedApprovals(Mutex<Approvals>);

/// The approvals, behind the lock of [`UsedApprovals`].
#[derive(Default)]
struct Approvals {
    /// The approvals that are marked as used when the turn is stored.
    pending: Vec<ApprovalReference>,
    /// The approvals that are marked as used already.
    committed: Vec<ApprovalReference>,
}

impl UsedApprovals {
    /// Locks the approvals, which the approver and the observer of the turn share.
    fn lock(&self) -> MutexGuard<'_, Approvals> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds approvals that the turn uses.
    pub(super) fn add(&self, approvals: impl IntoIterator<Item = ApprovalReference>) {
        self.lock().pending.extend(approvals);
    }

    /// Takes one call from an approval of several calls equal to this one, so that it covers one call fewer. Returns
    /// the id and the decision of the approval; `None` if no approval of the turn covers the call.
    pub(super) fn take_equal_call(&self, ask: &ApprovalRequest) -> Option<(String, Decision)> {
        let Approvals { pending, committed } = &mut *self.lock();
        let mut approvals = pending.iter_mut().chain(committed);
        let taken = |asked: &mut ApprovalReference| {
            asked.take_equal_call(ask).then(|| (asked.id.clone(), asked.allowing_decision()))
        };
        approvals.find_map(taken)
    }

    /// Returns all approvals of the turn.
    pub(super) fn all(&self) -> Vec<ApprovalReference> {
        let approvals = self.lock();
        approvals.pending.iter().chain(&approvals.committed).cloned().collect()
    }

    /// Returns the id of the approval that this turn still has to mark as used in the database for the call with this
    /// digest. `None` if there is none: an approval of several equal calls was marked for another of these calls, by
    /// this turn or an earlier one.
    pub(super) fn pending_id(&self, digest: &str) -> Option<String> {
        self.lock().pending.iter().find(|asked| asked.digest == digest).map(|asked| asked.id.clone())
    }

    /// Notes that the approval with this id is marked as used in the database already (*committed*).
    pub(super) fn note_committed(&self, id: &str) {
        let Approvals { pending, committed } = &mut *self.lock();
        committed.extend(pending.extract_if(.., |asked| asked.id == id));
    }

    /// Returns the approvals that the caller has to mark as used when the turn is stored.
    pub(super) fn into_pending(self) -> Vec<ApprovalReference> {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner).pending
    }
}
