//! Defines [`HttpResponse`], the answer of a server: reads its head, and its body piece by piece, within the limits on
//! time and size.
//!
//! [`HttpClient`](super::client::HttpClient) creates an [`HttpResponse`] for each attempt of a request, and the
//! request's [`ResponseHandler`](super::client::ResponseHandler) reads it.

use std::time::Duration;

use hyper::body::Bytes;
use reqwest::Response;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::MAX_BODY;
use super::client_pool::OpenRequest;
use super::failure::to_failure;
use super::retry::{AttemptFailure, retry_after};
use crate::Error;
use crate::wire::error_for_status;

/// The most bytes to read of the body of an answer whose status is not 200.
const MAX_ERROR: usize = 64 << 10;
/// How long the caller itself waits for the bytes between the end of a complete answer and the end of its body. Usually
/// these bytes have already arrived.
const DRAIN_WAIT: Duration = Duration::from_millis(2);
/// How long a background task waits for the same bytes afterwards, before it closes the connection.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
/// The most bytes between the end of a complete answer and the end of its body. If there are more, the connection is
/// closed.
const MAX_DRAINED_BYTES: usize = 16 << 10;

/// An answer whose body has not been read yet.
pub(super) struct HttpResponse {
    response: Response,
    /// The end of the time limit of the request.
    deadline: Instant,
    /// The number of bytes of the body that were read, at most [`MAX_BODY`].
    received_bytes: usize,
    /// Whether the body is a stream of events, according to the `content-type`.
    is_stream: bool,
    /// Whether the connection can serve another request after this one.
    is_connection_kept: bool,
    /// Counts the request as open in the pool of clients, until the answer has been read or is given up.
    open: OpenRequest,
}

impl HttpResponse {
    /// Returns the answer if its status is 200. Otherwise reads the server's name of the error from the body, and
    /// returns the error for the status and this name, with the delay after which the server permits a retry.
    ///
    /// `response` is what the HTTP client returned, with its body unread. `open` counts the request as open in the pool
    /// of clients until the answer is dropped. `deadline` is the end of the time limit of the request.
    /// `is_connection_kept` says whether the connection can serve another request afterwards.
    pub(super) async fn read_head(
        (response, open): (Response, OpenRequest),
        deadline: Instant,
        is_connection_kept: bool,
    ) -> Result<Self, AttemptFailure> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        let content_type = header("content-type").unwrap_or_default();
        let is_stream = content_type.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
        let wait = retry_after(header("retry-after"), header("retry-after-ms"));
        let mut answer = Self { response, deadline, received_bytes: 0, is_stream, is_connection_kept, open };
        if status == 200 {
            return Ok(answer);
        }
        // A body that is not JSON has no name of the error; the status alone determines the error.
        let text = answer.read_error_body().await;
        let body: Value = serde_json::from_slice(&text).unwrap_or_default();
        // The server's name of the error: its code, or else its type.
        let word = |key: &str| body.get("error").and_then(|error| error.get(key)).and_then(Value::as_str);
        let name = word("code").or_else(|| word("type"));
        Err(AttemptFailure {
            retry_after: wait,
            ..AttemptFailure::from(error_for_status(status, name, wait))
        })
    }

    /// Reads the body of an error, at most [`MAX_ERROR`] bytes. If reading fails, returns what was read: the status
    /// already says that the request failed.
    async fn read_error_body(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        while let Ok(bytes) = self.read().await
            && !bytes.is_empty()
        {
            // The part of the new bytes that is within the limit.
            let room = MAX_ERROR.saturating_sub(text.len());
            text.extend_from_slice(bytes.get(..room).unwrap_or(&bytes));
            if text.len() >= MAX_ERROR {
                break;
            }
        }
        text
    }

    /// Returns whether the body is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Waits for a future until the deadline of the request, and fails with [`Error::Timeout`] after it.
    pub(super) async fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, AttemptFailure> {
        timeout_at(self.deadline, future).await.map_err(|_| Error::Timeout.into())
    }

    /// Reads the next bytes of the body; returns no bytes at its end. Fails if the connection fails, after the
    /// deadline, and if the body is longer than [`MAX_BODY`].
    pub(super) async fn read(&mut self) -> Result<Bytes, AttemptFailure> {
        // An empty piece before the end is skipped, because the caller takes empty bytes for the end.
        loop {
            let read = timeout_at(self.deadline, self.response.chunk()).await.map_err(|_| Error::Timeout)?;
            let Some(bytes) = read.map_err(|error| to_failure(&error))? else { return Ok(Bytes::new()) };
            self.received_bytes = self.received_bytes.saturating_add(bytes.len());
            if self.received_bytes > MAX_BODY {
                return Err(Error::TooLong(MAX_BODY).into());
            }
            if !bytes.is_empty() {
                return Ok(bytes);
            }
        }
    }

    /// Reads the whole body as JSON. Fails if it cannot be read within the limits, or is not valid JSON.
    pub(super) async fn json(&mut self) -> Result<Value, AttemptFailure> {
        let mut text = Vec::new();
        loop {
            let bytes = self.read().await?;
            if bytes.is_empty() {
                break;
            }
            text.extend_from_slice(&bytes);
        }
        serde_json::from_slice(&text).map_err(|_| Error::Malformed("the answer is not valid JSON").into())
    }

    /// Reads the few bytes between the end of a complete answer and the end of the body, so that the connection can be
    /// used again. If these bytes do not arrive within [`DRAIN_WAIT`], a background task waits for them instead of the
    /// caller, for at most [`MAX_DRAIN_TIME`]. If the body does not end by then, the connection is closed. Does nothing
    /// if connections are not used again.
    pub(super) async fn release_connection(self) {
        if !self.is_connection_kept {
            return;
        }
        let mut drained = Box::pin(drain(self.response, self.open));
        if timeout(DRAIN_WAIT, &mut drained).await.is_err() {
            tokio::spawn(timeout(MAX_DRAIN_TIME, drained));
        }
    }
}

/// Reads a body and discards its bytes, until the body ends, an error occurs, or more than [`MAX_DRAINED_BYTES`] were
/// read. `_open` counts the request as open until this function ends.
async fn drain(mut response: Response, _open: OpenRequest) {
    let mut count = 0_usize;
    while let Ok(Some(bytes)) = response.chunk().await
        && count <= MAX_DRAINED_BYTES
    {
        count = count.saturating_add(bytes.len());
    }
}
