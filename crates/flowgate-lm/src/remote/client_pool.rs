//! Defines [`ClientPool`], which spreads the requests to one server over several HTTP clients, each with connections of
//! its own. `client.rs` owns a pool for each set of connection settings.
//!
//! Over HTTP/2, an HTTP client has one connection to a server, and the server limits the number of open requests on
//! this connection, usually to 100 or more. A further request would wait until another request ends. The pool creates
//! another HTTP client for it instead.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The most open requests of one client: fewer than a server permits on a connection.
const MAX_OPEN_REQUESTS: usize = 64;

/// The clients of one server, which all have the same settings.
#[derive(Default)]
pub(super) struct ClientPool {
    clients: Mutex<Vec<PooledClient>>,
}

/// An HTTP client with the number of its open requests.
struct PooledClient {
    client: reqwest::Client,
    /// Counts the open requests: each open request holds a clone of this value.
    open: Arc<()>,
}

/// Counts a request as an open one of its client until this value is dropped.
pub(super) struct OpenRequest {
    _counted: Arc<()>,
}

impl fmt::Debug for ClientPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientPool").finish_non_exhaustive()
    }
}

impl ClientPool {
    /// Returns the first client that has fewer than [`MAX_OPEN_REQUESTS`] open requests, and a value that counts a new
    /// request on it as open until the value is dropped. If there is no such client, `make` creates another one, which
    /// stays in the pool. `None` if `make` fails.
    pub(super) fn acquire(
        &self,
        make: impl FnOnce() -> Option<reqwest::Client>,
    ) -> Option<(reqwest::Client, OpenRequest)> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        // Each open request has a clone of `open`, and the pool itself has one more: at most `MAX_OPEN_REQUESTS` clones
        // mean fewer open requests.
        let has_capacity = |pooled: &&PooledClient| Arc::strong_count(&pooled.open) <= MAX_OPEN_REQUESTS;
        if let Some(pooled) = clients.iter().find(has_capacity) {
            return Some((pooled.client.clone(), OpenRequest { _counted: Arc::clone(&pooled.open) }));
        }
        let (client, open) = (make()?, Arc::new(()));
        clients.push(PooledClient { client: client.clone(), open: Arc::clone(&open) });
        Some((client, OpenRequest { _counted: open }))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_full_client_is_followed_by_another() {
        let (pool, made) = (ClientPool::default(), Cell::new(0));
        let make = || {
            made.set(made.get() + 1);
            let tls = crate::remote::Authorities::default().tls().unwrap();
            reqwest::Client::builder().tls_backend_preconfigured(tls).build().ok()
        };
        let mut open = Vec::new();
        let mut acquire = |count: usize| {
            open.extend((0..count).map(|_| pool.acquire(make).unwrap().1));
            made.get()
        };
        assert_eq!([acquire(1), acquire(MAX_OPEN_REQUESTS - 1), acquire(1)], [1, 1, 2]);
        // A place that is free again is used first.
        drop(open.remove(0));
        let _last = pool.acquire(make).unwrap();
        let counts = |pooled: &PooledClient| Arc::strong_count(&pooled.open) - 1;
        let open_requests: Vec<usize> = pool.clients.lock().unwrap().iter().map(counts).collect();
        assert_eq!(open_requests, [MAX_OPEN_REQUESTS, 1]);
        assert!(pool.acquire(|| None).is_some());
        assert!(ClientPool::default().acquire(|| None).is_none());
    }
}
