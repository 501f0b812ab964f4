//! What is known of a store that nobody else writes to, so that it is not asked every time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Freeze;

/// Nothing of it is used where others write as well.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    tenants: HashMap<String, Option<String>>,
    freezes: Option<Arc<[Freeze]>>,
    /// How often something was stopped or let go on.
    changes: u64,
}

impl Cache {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a tenant's stores, if it is known what it is.
    pub(super) fn tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.known().tenants.get(tenant).cloned()
    }

    /// What the record of a tenant's stores is. Until a write of it has failed or not, it is known as what was written: that
    /// carries no less.
    pub(super) fn set_tenant(&self, tenant: &str, record: Option<String>) {
        self.known().tenants.insert(tenant.to_owned(), record);
    }

    /// What is stopped, or how often that has changed.
    pub(super) fn freezes(&self) -> Result<Arc<[Freeze]>, u64> {
        let known = self.known();
        known.freezes.clone().ok_or(known.changes)
    }

    /// What was stopped when it had changed so often; if it has changed since, nothing is known.
    pub(super) fn set_freezes(&self, changes: u64, freezes: &Arc<[Freeze]>) {
        let mut known = self.known();
        if known.changes == changes {
            known.freezes = Some(Arc::clone(freezes));
        }
    }

    /// Something was stopped, or let go on.
    pub(super) fn forget_freezes(&self) {
        let mut known = self.known();
        known.changes += 1;
        known.freezes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_known_after_it() {
        let cache = Cache::default();
        let nothing: Arc<[Freeze]> = Arc::new([]);
        let before = cache.freezes().unwrap_err();
        cache.forget_freezes();
        cache.set_freezes(before, &nothing);
        let now = cache.freezes().unwrap_err();
        cache.set_freezes(now, &nothing);
        assert!(cache.freezes().is_ok());
    }
}
