//! Slots of listening streams, which each hold a connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit on parallel listening streams of one client.
pub(crate) const MAX_LISTENING: usize = 32;

/// One of a client's parallel listening streams, released when it is dropped.
#[derive(Debug)]
pub(crate) struct StreamSlot(Arc<AtomicUsize>);

impl StreamSlot {
    /// Takes one of the slots that `taken` counts; `None` if the client has reached its limit.
    pub(crate) fn acquire(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let slot = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_LISTENING).then_some(slot)
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
