//! Reads the body of a request within the limits of size, time and memory. The routes of [`GatewayService`] call it.

use std::sync::Arc;

use axum::body::{Body, HttpBody as _};
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::{GatewayBound, GatewayService, busy_reply};
use crate::http::reply::HttpReply;
use crate::http::value_budget::{LIMIT_NAME, ValueBudgetError, ValueBudgetShare};
use crate::limits::estimated_memory;

/// The multiple of the size limit up to which an oversized body is received before it is rejected.
const DISCARD_FACTOR: usize = 8;

impl GatewayService {
    /// Reads a JSON body within the limits of size and time, and reserves memory for its values. Returns the rejection
    /// if a limit is exceeded, or the request does not declare its body as JSON.
    pub(super) async fn receive(&self, headers: &HeaderMap, body: Body) -> Result<ReceivedBody, HttpReply> {
        check_content_type(headers)?;
        // The permits for the bytes of this body. There are none at first; `read` adds one for each byte that arrives.
        let held = Arc::clone(&self.bodies).try_acquire_many_owned(0).map_err(|_| busy_reply())?;
        let mut read = ReceivedBody { bytes: Vec::new(), held, _values: None };
        let limit = self.limits.body_time;
        timeout(limit, self.read(body, &mut read)).await.map_err(|_| {
            let detail = format!(
                "the body did not arrive within {} s: send it faster, or start the server with a larger --body-time",
                limit.as_secs_f32()
            );
            let reply = HttpReply::detail(StatusCode::REQUEST_TIMEOUT, &detail).close();
            let bound = GatewayBound {
                what: "seconds for a body to arrive",
                effect: "a request was refused with 408",
                setting: Some("--body-time"),
                advice: None,
                most: usize::try_from(limit.as_secs()).unwrap_or(usize::MAX),
            };
            self.refuse(&bound, reply)
        })??;
        read._values = Some(self.reserve_value_memory(&read.bytes)?);
        Ok(read)
    }

    /// Reserves memory for the JSON values of a body, which may take much more than its bytes. Rejects a body that
    /// would take more than its share (413), or for which there is no room now (503).
    fn reserve_value_memory(&self, body: &[u8]) -> Result<ValueBudgetShare, HttpReply> {
        let (needed_bytes, most) = (estimated_memory(body), self.values.total_bytes());
        let bound = |effect| GatewayBound {
            what: LIMIT_NAME,
            effect,
            setting: Some("--max-values"),
            advice: None,
            most,
        };
        self.values.take(needed_bytes).map_err(|why| {
            if why == ValueBudgetError::Taken {
                return self.refuse(&bound("a request was refused with 503"), busy_reply());
            }
            let detail = format!(
                "the body has too many JSON values: it would need about {} MiB of memory, but the limit is \
                {} MiB; send fewer and longer messages and parts, or start the server with a larger \
                `--max-values`",
                needed_bytes >> 20,
                self.values.max_share_bytes() >> 20
            );
            let reply = HttpReply::detail(StatusCode::PAYLOAD_TOO_LARGE, &detail);
            let effect = "a request was refused with 413, since its body alone needs more than a quarter of `--max-values`";
            self.refuse(&bound(effect), reply)
        })
    }

    /// Reads the body into `read`, and adds the permits for its bytes, of which all bodies share a limited number, to
    /// `read.held`. A body that is too large by less than the factor [`DISCARD_FACTOR`] is read to its end and
    /// discarded: its client then sees the rejection.
    async fn read(&self, mut body: Body, read: &mut ReceivedBody) -> Result<(), HttpReply> {
        let mut arrived = 0_usize;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|_| {
                HttpReply::detail(
                    StatusCode::BAD_REQUEST,
                    "the body ended before it was complete: send it again",
                )
                .close()
            })?;
            // Trailing headers are ignored.
            let Ok(data) = frame.into_data() else { continue };
            arrived = arrived.saturating_add(data.len());
            if arrived > self.limits.body {
                // A client that is still sending when the connection closes would not see the answer, so the rest is
                // read. The memory and the permits of the bytes so far are released.
                read.bytes = Vec::new();
                read.held.split(read.held.num_permits());
                if arrived > self.limits.body.saturating_mul(DISCARD_FACTOR) {
                    break;
                }
                continue;
            }
            let bytes = u32::try_from(data.len()).map_err(|_| busy_reply().close())?;
            let permits = Arc::clone(&self.bodies).try_acquire_many_owned(bytes);
            read.held.merge(permits.map_err(|_| self.refuse_without_permits())?);
            if read.bytes.is_empty() {
                // Reserves room for the declared length, so that the body need not be moved while it grows. The room is
                // at most four times what has arrived, since a client can declare a length that it does not send.
                let declared_length = body.size_hint().exact().and_then(|rest| usize::try_from(rest).ok());
                let all = declared_length.map_or(0, |rest| rest.saturating_add(data.len()));
                read.bytes.reserve(all.min(data.len().saturating_mul(4)));
            }
            read.bytes.extend_from_slice(&data);
        }
        if arrived > self.limits.body {
            return Err(self.refuse_too_large());
        }
        Ok(())
    }

    /// Reports that all bodies together have reached their limit, and returns the rejection of one more.
    fn refuse_without_permits(&self) -> HttpReply {
        let bound = GatewayBound {
            what: "bytes of all bodies that are read or evaluated",
            effect: "a request was refused with 503",
            setting: Some("--max-bodies"),
            advice: None,
            most: self.limits.bodies,
        };
        self.refuse(&bound, busy_reply().close())
    }

    /// Reports that a body is larger than the limit on one body, and returns its rejection.
    fn refuse_too_large(&self) -> HttpReply {
        let detail = format!(
            "the body is larger than {} bytes: send fewer messages, or start the server with a larger --max-body",
            self.limits.body
        );
        let bound = GatewayBound {
            what: "bytes of one body",
            effect: "a request was refused with 413",
            setting: Some("--max-body"),
            advice: None,
            most: self.limits.body,
        };
        let reply = HttpReply::detail(StatusCode::PAYLOAD_TOO_LARGE, &detail).close();
        self.refuse(&bound, reply)
    }
}

/// A body, with its share of the bytes of all bodies.
pub(super) struct ReceivedBody {
    pub(super) bytes: Vec<u8>,
    /// The permits for its bytes, of which all bodies share a limited number.
    held: OwnedSemaphorePermit,
    /// The memory of its values, until it is answered.
    _values: Option<ValueBudgetShare>,
}

/// Rejects a request that does not declare its body as JSON: a web page can send such a request to another site without
/// a preflight request.
fn check_content_type(headers: &HeaderMap) -> Result<(), HttpReply> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = content_type.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(HttpReply::detail(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "the request does not declare its body as JSON: send `Content-Type: application/json`",
    ))
}
