//! Counts the open, answered and cancelled requests of one HTTP/2 connection. `connection_service` counts each request
//! here, and `connection` ends a connection because of the counts.
//!
//! The HTTP library limits neither the time of an HTTP/2 connection without requests nor the number of requests that
//! are cancelled as soon as they have been sent (CVE-2023-44487). `connection` notices both by [`OpenRequests::idle`]
//! and [`OpenRequests::flooded`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;

use crate::http::admission::RequestPlace;

/// The number by which the cancelled requests of a connection may exceed the answered ones.
pub(crate) const MAX_CANCELLED: u64 = 100;

/// The requests of a connection.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests(watch::Sender<ConnectionRequestCounts>);

/// The numbers of requests of one connection, by their state.
#[derive(Debug, Clone, Copy, Default)]
struct ConnectionRequestCounts {
    /// The requests that have not ended.
    open: u64,
    /// The requests whose answer has begun.
    answered: u64,
    /// The requests that ended before their answer began: the client cancelled them.
    cancelled: u64,
}

/// An open request. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct OpenRequest {
    requests: Arc<OpenRequests>,
    /// Whether the answer has begun.
    is_answered: bool,
    /// The place of the request among the open connections, held until the request ends.
    _place: Option<RequestPlace>,
}

impl OpenRequests {
    /// Begins a request, which holds its place, if it needs one, until it ends.
    pub(crate) fn begin(self: &Arc<Self>, place: Option<RequestPlace>) -> OpenRequest {
        self.0.send_modify(|counts| counts.open += 1);
        OpenRequest { requests: Arc::clone(self), is_answered: false, _place: place }
    }

    /// Waits until the connection has had no open request for the whole time `limit`. The caller then closes the
    /// connection.
    pub(crate) async fn idle(&self, limit: Duration) {
        let mut counts = self.0.subscribe();
        loop {
            // The sender lives as long as `self`, so the wait does not fail.
            let _ = counts.wait_for(|counts| counts.open == 0).await;
            if timeout(limit, counts.wait_for(|counts| counts.open > 0)).await.is_err() {
                return;
            }
        }
    }

    /// Waits until the client has cancelled too many requests: the cancelled ones exceed the answered ones by more than
    /// [`MAX_CANCELLED`]. The caller then closes the connection.
    pub(crate) async fn flooded(&self) {
        let is_over = |counts: &ConnectionRequestCounts| {
            counts.cancelled > counts.answered.saturating_add(MAX_CANCELLED)
        };
        // The sender lives as long as `self`, so the wait does not fail.
        let _ = self.0.subscribe().wait_for(is_over).await;
    }
}

impl OpenRequest {
    /// Notes that the answer begins, so that the request does not count as cancelled when it ends. Only the first call
    /// has an effect.
    pub(crate) fn mark_answered(&mut self) {
        if !self.is_answered {
            self.is_answered = true;
            self.requests.0.send_modify(|counts| counts.answered += 1);
        }
    }
}

impl Drop for OpenRequest {
    /// Ends the request. It counts as cancelled by the client if its answer has not begun.
    fn drop(&mut self) {
        self.requests.0.send_modify(|counts| {
            counts.open -= 1;
            counts.cancelled += u64::from(!self.is_answered);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[tokio::test]
    async fn a_connection_is_idle_while_no_request_is_open() {
        let requests = Arc::new(OpenRequests::default());
        requests.idle(SHORT).await;
        let open = requests.begin(None);
        assert!(timeout(4 * SHORT, requests.idle(SHORT)).await.is_err());
        let other = requests.begin(None);
        drop(open);
        assert!(timeout(4 * SHORT, requests.idle(SHORT)).await.is_err());
        drop(other);
        requests.idle(SHORT).await;
    }

    #[tokio::test]
    async fn cancelled_requests_are_counted_against_answered_ones() {
        let check = async |answered: u64, cancelled: u64, expected: bool| {
            let requests = Arc::new(OpenRequests::default());
            for _ in 0..answered {
                requests.begin(None).mark_answered();
            }
            for _ in 0..cancelled {
                drop(requests.begin(None));
            }
            let is_flooded = tokio::select! {
                biased;
                () = requests.flooded() => true,
                () = std::future::ready(()) => false,
            };
            assert_eq!(is_flooded, expected, "{answered} {cancelled}");
        };
        check(0, MAX_CANCELLED, false).await;
        check(0, MAX_CANCELLED + 1, true).await;
        check(50, MAX_CANCELLED + 50, false).await;
        check(50, MAX_CANCELLED + 51, true).await;
    }
}
