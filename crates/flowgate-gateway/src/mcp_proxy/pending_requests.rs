//! Stores the pending requests of the MCP routes, in memory and for all clients, in two maps.
//!
//! * Questions to the person at an MCP client, each with the task that waits for the answer. The answer arrives in
//!   another request of the client; `person_questions` then finds the task here.
//! * Requests to MCP servers, by the id under which the server knows each, so that a client can cancel them.
//!   `server_requests` begins and cancels them here. A cancellation that arrives before its request begins is
//!   remembered.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::sync::oneshot::Sender;
use tokio_util::sync::CancellationToken;

/// The limit on remembered cancellations: of requests that begin later, and of requests that have already ended.
pub(crate) const MAX_CANCELLED: usize = 10_000;

/// The client, the conversation and the id (in JSON) of a question of the gateway.
pub(crate) type ElicitationKey = (String, String, String);

/// The state that the exchanges of all clients share.
#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    /// The channels to the exchanges that wait for the answers of people at clients.
    waiters: Mutex<HashMap<ElicitationKey, Sender<String>>>,
    /// The requests to MCP servers.
    requests: Mutex<ServerRequests>,
}

/// Requests to MCP servers, by the ids that the servers know.
#[derive(Debug, Default)]
struct ServerRequests {
    /// Requests that run, with the token that cancels each.
    running: HashMap<String, CancellationToken>,
    /// Requests that were cancelled while they did not run.
    cancelled: HashSet<String>,
}

/// A request to an MCP server that a client may cancel until this is dropped.
#[derive(Debug)]
pub(crate) struct RunningRequest<'p> {
    pending: &'p PendingRequests,
    id: String,
    /// Cancelled with the request.
    pub(crate) cancelled: CancellationToken,
}

impl Drop for RunningRequest<'_> {
    /// Removes the request, which has ended: it can no longer be cancelled.
    fn drop(&mut self) {
        self.pending.requests().running.remove(&self.id);
    }
}

impl PendingRequests {
    /// Locks the channels to the exchanges that wait for answers of people at clients.
    pub(crate) fn waiters(&self) -> MutexGuard<'_, HashMap<ElicitationKey, Sender<String>>> {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the requests to MCP servers, also after a panic.
    fn requests(&self) -> MutexGuard<'_, ServerRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a request that begins, by the id under which the server knows it. The token in the result is cancelled
    /// when the client cancels the request, or at once if that happened before. The caller drops the result when the
    /// request has ended.
    pub(crate) fn begin(&self, id: &Value) -> RunningRequest<'_> {
        let (id, cancelled) = (id.to_string(), CancellationToken::new());
        let mut requests = self.requests();
        if requests.cancelled.remove(&id) {
            cancelled.cancel();
        }
        requests.running.insert(id.clone(), cancelled.clone());
        drop(requests);
        RunningRequest { pending: self, id, cancelled }
    }

    /// Cancels the request that the server knows by this id. If it does not run, remembers the cancellation: the
    /// request may begin later, or may have ended already. If [`MAX_CANCELLED`] cancellations are remembered, forgets
    /// all of them first and returns true, so that the caller can log the loss; otherwise returns false.
    pub(crate) fn cancel(&self, id: &Value) -> bool {
        let (id, mut requests) = (id.to_string(), self.requests());
        if let Some(running) = requests.running.get(&id) {
            running.cancel();
            return false;
        }
        let is_full = requests.cancelled.len() >= MAX_CANCELLED;
        if is_full {
            requests.cancelled.clear();
        }
        requests.cancelled.insert(id);
        is_full
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_request_is_cancelled_before_and_while_it_runs() {
        let pending = PendingRequests::default();
        let (one, other) = (json!("one"), json!(1));
        let running = pending.begin(&one);
        let beside = pending.begin(&other);
        assert!(!pending.cancel(&one));
        assert!(running.cancelled.is_cancelled() && !beside.cancelled.is_cancelled());
        drop((running, beside));
        // The ids of a string and of a number differ.
        assert!(!pending.cancel(&json!("1")));
        assert!(!pending.begin(&other).cancelled.is_cancelled());
        assert!(pending.begin(&json!("1")).cancelled.is_cancelled());
        // A cancellation counts once.
        assert!(!pending.begin(&json!("1")).cancelled.is_cancelled());
        assert!(pending.requests().running.is_empty() && pending.requests().cancelled.is_empty());
    }

    #[test]
    fn cancellations_of_requests_that_have_ended_are_bounded() {
        let pending = PendingRequests::default();
        let running = pending.begin(&json!("running"));
        for number in 0..MAX_CANCELLED {
            assert!(!pending.cancel(&json!(number)));
        }
        assert!(pending.cancel(&json!("one more")));
        assert_eq!(pending.requests().cancelled.len(), 1);
        assert!(!pending.cancel(&json!("running")));
        assert!(running.cancelled.is_cancelled());
    }
}
