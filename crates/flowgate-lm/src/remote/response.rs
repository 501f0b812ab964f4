//! Reads the answer of a server: its head, and its body piece by piece.
//!
//! [`HttpClient`](super::client::HttpClient) creates it, and the handlers of answers read it.

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

/// The most bytes to read of an error's body.
const MAX_ERROR: usize = 64 << 10;
/// How long a caller waits for the end of a stream after its answer. Usually the end has already arrived.
const DRAIN_WAIT: Duration = Duration::from_millis(2);
/// How long the connection waits for it after that.
const MAX_DRAIN_TIME: Duration = Duration::from_secs(5);
/// The most bytes to read of a stream after its answer.
const MAX_DRAINED_BYTES: usize = 16 << 10;

/// An answer whose body has not been read yet.
pub(super) struct HttpResponse {
    response: Response,
    deadline: Instant,
    received_bytes: usize,
    is_stream: bool,
    is_connection_kept: bool,
    /// The place of the request, until the answer has been read or is given up.
    open: OpenRequest,
}

impl HttpResponse {
    /// Reads the status of an answer, and the description of an error.
    pub(super) async fn read_head(
        (response, open): (Response, OpenRequest),
        deadline: Instant,
        is_connection_kept: bool,
    ) -> Result<Self, AttemptFailure> {
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        let kind = header("content-type").unwrap_or_default();
        let is_stream = kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
        let wait = retry_after(header("retry-after"), header("retry-after-ms"));
        let mut answer = Self { response, deadline, received_bytes: 0, is_stream, is_connection_kept, open };
        if status == 200 {
            return Ok(answer);
        }
        let text = answer.read_error_body().await;
        let body: Value = serde_json::from_slice(&text).unwrap_or_default();
        let word = |key: &str| body.get("error").and_then(|error| error.get(key)).and_then(Value::as_str);
        let name = word("code").or_else(|| word("type"));
        Err(AttemptFailure {
            retry_after: wait,
            ..AttemptFailure::from(error_for_status(status, name, wait))
        })
    }

    /// Reads the body of an error up to the limit. An error whose body cannot be read is still an error.
    async fn read_error_body(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        while let Ok(bytes) = self.read().await
            && !bytes.is_empty()
        {
            let left = MAX_ERROR.saturating_sub(text.len());
            text.extend_from_slice(bytes.get(..left).unwrap_or(&bytes));
            if text.len() >= MAX_ERROR {
                break;
            }
        }
        text
    }

    /// Whether the body is a stream of events.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Waits for a future as long as the request has time.
    pub(super) async fn wait_for<F: Future>(&self, future: F) -> Result<F::Output, AttemptFailure> {
        timeout_at(self.deadline, future).await.map_err(|_| Error::Timeout.into())
    }

    /// Reads the next bytes; empty at the end.
    pub(super) async fn read(&mut self) -> Result<Bytes, AttemptFailure> {
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

    /// Reads the whole body as JSON.
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

    /// Reads the few bytes that follow an answer, so that the connection can be used again. Where they have not
    /// arrived yet, a task waits for them instead of the caller. The connection of a stream that does not end is
    /// closed.
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

/// Reads a body to its end, or up to the limit. The request keeps its place until then.
async fn drain(mut response: Response, _open: OpenRequest) {
    let mut count = 0_usize;
    while let Ok(Some(bytes)) = response.chunk().await
        && count <= MAX_DRAINED_BYTES
    {
        count = count.saturating_add(bytes.len());
    }
}
