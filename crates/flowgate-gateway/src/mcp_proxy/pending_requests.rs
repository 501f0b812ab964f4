//! Requests that are in progress: those that wait for a person at the client, and those that were cancelled.

use std::collections::{HashMap, HashSet};
use std::sync::mpsc::SyncSender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;

/// The limit on cancelled requests that are remembered until they end.
pub(crate) const MOST_CANCELLED: usize = 10_000;

/// Client, conversation and id of a question of the gateway.
pub(crate) type ElicitationKey = (String, String, String);

/// The state that the exchanges of all clients share.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    /// Receivers of the answers of people at clients.
    waiters: Mutex<HashMap<ElicitationKey, SyncSender<String>>>,
    /// Requests to MCP servers that were cancelled, by the ids that the servers know.
    cancelled: Mutex<HashSet<String>>,
}

impl PendingRequests {
    pub(crate) fn waiters(&self) -> MutexGuard<'_, HashMap<ElicitationKey, SyncSender<String>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that the request with this server-side id was cancelled. Returns whether the set was full and was cleared:
    /// entries of requests that had already ended stay behind.
    pub(crate) fn cancel(&self, id: &Value) -> bool {
        let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = cancelled.len() >= MOST_CANCELLED;
        if is_full {
            cancelled.clear();
        }
        cancelled.insert(id.to_string());
        is_full
    }

    /// Returns whether the request was cancelled, and forgets it.
    pub(crate) fn take_cancelled(&self, id: &Value) -> bool {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner).remove(&id.to_string())
    }
}
