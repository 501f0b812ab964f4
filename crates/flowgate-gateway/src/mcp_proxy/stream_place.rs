//! Limits the listening streams of a client: HTTP responses that stay open to forward the messages that an MCP server
//! sends without a request. `request` acquires a [`StreamPlace`] for each stream, which counts until it is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limit on parallel listening streams of one client.
pub(crate) const MAX_LISTENING: usize = 32;

/// The place of one of a client's parallel listening streams, released when it is dropped. Contains the counter of
/// these streams.
#[derive(Debug)]
pub(crate) struct StreamPlace(Arc<AtomicUsize>);

impl StreamPlace {
    /// Takes a place for a stream; `None` if the client has reached its limit. `taken` counts the taken places.
    pub(crate) fn acquire(taken: &Arc<AtomicUsize>) -> Option<Self> {
        // The count is raised in any case. At the limit, `place` is dropped, which lowers the count again.
        let place = Self(Arc::clone(taken));
        (taken.fetch_add(1, Ordering::Relaxed) < MAX_LISTENING).then_some(place)
    }
}

impl Drop for StreamPlace {
    /// Frees the place: the stream has ended.
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
