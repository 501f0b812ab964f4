//! Reads the body of an MCP server's answer as it arrives ([`ServerAnswerBytes`]). An answer counts against the limit on
//! open requests ([`OpenRequestPlace`]) until it is dropped. If the answer is dropped before its end, its connection is
//! closed. `upstream` creates the answers, and `event_stream` reads from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use hyper::body::Bytes;

/// The reason, for the operator's log, why a request has no answer: the connection was lost within the answer.
pub(super) const BROKEN: &str =
    "the connection to the MCP server was lost within its answer: check the log of that server";

/// The place of one open request in the limit on open requests to a server, released when it is dropped. Contains the
/// counter of the taken places.
pub(super) struct OpenRequestPlace(Arc<AtomicUsize>);

impl OpenRequestPlace {
    /// Takes one of `most` places for open requests; `None` if all are taken. `open` counts the taken places.
    pub(super) fn acquire(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        // The count is raised in any case. If all places are taken, `place` is dropped, which lowers the count again.
        let place = Self(Arc::clone(open));
        (open.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for OpenRequestPlace {
    /// Frees the place: the answer was read or is no longer awaited.
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The unread body of an answer. Dropping it ends the connection, unless the answer was read to its end.
pub(super) struct ServerAnswerBytes {
    response: reqwest::Response,
    /// The place of the request, held until the answer is dropped.
    place: OpenRequestPlace,
}

impl ServerAnswerBytes {
    /// Wraps an answer whose head has arrived; it holds `place` until it is dropped.
    pub(super) fn new(response: reqwest::Response, place: OpenRequestPlace) -> Self {
        Self { response, place }
    }

    /// Drops the answer, and returns the place of its request, which a second attempt of the request can take.
    pub(super) fn into_place(self) -> OpenRequestPlace {
        self.place
    }

    /// Returns a header of the answer; `None` if it is absent, or has characters other than visible ASCII.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns the HTTP status of the answer.
    pub(super) fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// Returns the next bytes of the body; `None` at its end. No bytes are lost if the future is dropped.
    ///
    /// # Errors
    /// If the answer breaks off.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, &'static str> {
        self.response.chunk().await.map_err(|_| BROKEN)
    }
}
