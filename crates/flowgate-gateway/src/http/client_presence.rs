//! Whether the client of a request still waits for the answer.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Whether the client still waits for its answer. Once the [`ClientGoneSignal`] of a request is dropped, its turn ends
/// as soon as it can.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientPresence(CancellationToken);

/// Signals on drop that the client has disconnected.
pub(crate) type ClientGoneSignal = DropGuard;

impl ClientPresence {
    pub(crate) fn has_gone(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn gone(&self) {
        self.0.cancelled().await;
    }

    /// Returns the guard whose drop signals to the turn that the client has disconnected.
    pub(crate) fn gone_on_drop(&self) -> ClientGoneSignal {
        self.0.clone().drop_guard()
    }
}
