//! Signals to a turn that the client of its request no longer waits for the answer. `service` creates a
//! [`ClientPresence`] for each request that may take long.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Says whether the client of a request still waits for the answer. Once the [`DisconnectGuard`] of the request is
/// dropped, the turn ends as soon as it can.
#[derive(Debug, Clone, Default)]
pub(crate) struct ClientPresence(CancellationToken);

/// Signals on drop that the client has disconnected.
pub(crate) type DisconnectGuard = DropGuard;

impl ClientPresence {
    /// Returns whether the client has disconnected.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until the client has disconnected.
    pub(crate) async fn disconnected(&self) {
        self.0.cancelled().await;
    }

    /// Returns the guard whose drop signals to the turn that the client has disconnected.
    pub(crate) fn disconnect_on_drop(&self) -> DisconnectGuard {
        self.0.clone().drop_guard()
    }
}
