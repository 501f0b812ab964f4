//! Limits the listening streams of a client: answers that stay open to forward what an MCP server sends on its own.
//! `request` acquires a [`StreamPlace`] for each stream, which counts until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit on parallel listening streams of one client.
pub(crate) const MAX_LISTENING: usize = 32;

/// One of a client's parallel listening streams, released when it is dropped. Contains the count of these streams.
#[derive(Debug)]
pub(crate) struct StreamPlace(Arc<AtomicUsize>);

impl StreamPlace {
    /// Takes one of the places that `taken` counts; `None` if the client has reached its limit.
    pub(crate) fn acquire(taken: &Arc<AtomicUsize>) -> Option<Self> {
        // At the limit, the drop of `place` decrements the count again.
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_LISTENING).then_some(place)
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
