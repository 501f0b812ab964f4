//! Whether the client of a request still waits for the answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the client still waits for its answer. Once the [`ClientGoneSignal`] of a request is dropped, its turn ends
/// as soon as it can.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientPresence(Arc<AtomicBool>);

impl ClientPresence {
    pub(crate) fn has_gone(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns the guard whose drop signals to the turn that the client has disconnected.
    pub(crate) fn gone_on_drop(&self) -> ClientGoneSignal {
        ClientGoneSignal(Arc::clone(&self.0))
    }
}

/// Signals on drop that the client has disconnected.
#[derive(Debug)]
pub(crate) struct ClientGoneSignal(Arc<AtomicBool>);

impl Drop for ClientGoneSignal {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
