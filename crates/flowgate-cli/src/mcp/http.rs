//! Servers at an address: MCP's streamable HTTP over `ureq`, which asks for models as well.
//!
//! No redirect is followed and no proxy used. Streams are read as far as they answer a request; nothing listens to what a server
//! would say unasked.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use flowgate_lm::sse::Splitter;
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::Limits;

const SESSION: &str = "mcp-session-id";
const CONNECT: Duration = Duration::from_secs(10);
/// The most bytes to read of an answer that is an error.
const MAX_ERROR: usize = 64 << 10;

/// Why a server did not answer.
#[derive(Debug)]
pub(super) struct HttpError(String);

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HttpError {}

type Failed = StreamableHttpError<HttpError>;
type Headers = HashMap<HeaderName, HeaderValue>;

fn failed(why: impl Into<String>) -> Failed {
    StreamableHttpError::Client(HttpError(why.into()))
}

/// Asks over HTTP.
#[derive(Clone)]
pub(super) struct Client {
    agent: ureq::Agent,
    limits: Limits,
}

/// A header of the configuration.
///
/// # Errors
/// If it cannot stand in a request.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || {
        format!(
            "cannot be asked: the header `{}` has characters that no header has",
            crate::visible::short(name, 40)
        )
    };
    let name = HeaderName::try_from(name).map_err(|_| wrong())?;
    let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Headers in an order that is the same each time.
fn in_order(headers: &Headers) -> Vec<(&HeaderName, &HeaderValue)> {
    let mut ordered: Vec<_> = headers.iter().collect();
    ordered.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    ordered
}

impl Client {
    pub(super) fn new(limits: Limits) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A server that sends us elsewhere was not chosen by the operator.
            .max_redirects(0)
            .max_idle_connections(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            // The thread that waits must end when nobody waits for it any more.
            .timeout_global(Some(limits.time.saturating_add(CONNECT)))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: ureq::Agent::new_with_config(config), limits }
    }

    /// Asks, on a thread that may wait.
    fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        headers: &Headers,
        session: Option<&str>,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let body = serde_json::to_vec(message)?;
        let mut request = self.agent.post(uri).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in in_order(headers) {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION, session);
        }
        let response = request.send(&body[..]).map_err(|error| failed(unreachable(&error)))?;
        let status = response.status().as_u16();
        let text = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (kind, id) = (text("content-type").unwrap_or_default().to_ascii_lowercase(), text(SESSION));
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        match status {
            202 | 204 => return Ok(StreamableHttpPostResponse::Accepted),
            200..=299 if !is_request => return Ok(StreamableHttpPostResponse::Accepted),
            404 if session.is_some() => return Err(StreamableHttpError::SessionExpired),
            401 | 403 => {
                return Err(failed(format!(
                    "it wants to know who asks ({status}); give it a key in `headers`"
                )));
            }
            300..=399 => {
                return Err(failed(format!("it sends us elsewhere ({status}); write that address as `url`")));
            }
            _ => {}
        }
        let is_json = kind.starts_with("application/json");
        if !(200..=299).contains(&status) {
            let answer = bounded(response.into_body().into_reader(), MAX_ERROR).ok();
            let answer = answer.and_then(|bytes| serde_json::from_slice::<ServerJsonRpcMessage>(&bytes).ok());
            return match answer {
                Some(answer @ JsonRpcMessage::Error(_)) if is_json => {
                    Ok(StreamableHttpPostResponse::Json(answer, id))
                }
                _ => Err(failed(format!("it answers with the status {status}"))),
            };
        }
        if is_json {
            let bytes = bounded(response.into_body().into_reader(), self.limits.answer.saturating_mul(2))?;
            return Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&bytes)?, id));
        }
        if kind.starts_with("text/event-stream") {
            let most = self.limits.answer.saturating_mul(4);
            return Ok(StreamableHttpPostResponse::Sse(events(response.into_body().into_reader(), most), id));
        }
        Err(failed("its answer is neither JSON nor a stream of events; is this an address of MCP?"))
    }
}

/// The events of a stream, which is read on a thread of its own.
fn events(mut reader: ureq::BodyReader<'static>, most: usize) -> BoxStream<'static, Result<Sse, SseError>> {
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        let mut splitter = Splitter::default();
        let (mut buffer, mut read) = (vec![0_u8; 16 << 10], 0_usize);
        let broken = |why: &str| SseError::Body(Box::new(HttpError(why.to_owned())));
        loop {
            let bytes = match reader.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    let _ = sender.blocking_send(Err(broken("the stream broke off")));
                    return;
                }
            };
            read = read.saturating_add(bytes.len());
            if read > most {
                let _ = sender.blocking_send(Err(broken("the stream is too long")));
                return;
            }
            for event in splitter.feed(bytes) {
                let Ok(event) = event else {
                    let _ = sender.blocking_send(Err(broken("the stream cannot be read")));
                    return;
                };
                let named = (!event.name.is_empty()).then_some(event.name);
                let event = Sse { event: named, data: Some(event.data), id: None, retry: None };
                // Nobody listens any more.
                if sender.blocking_send(Ok(event)).is_err() {
                    return;
                }
            }
        }
    });
    unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed()
}

fn bounded(reader: ureq::BodyReader<'static>, most: usize) -> Result<Vec<u8>, Failed> {
    let limit = u64::try_from(most).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        Err(StreamableHttpError::ResponseBodyTooLarge { max_size: most })
    } else {
        Ok(bytes)
    }
}

fn unreachable(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "it does not answer in time",
        ureq::Error::HostNotFound => "its host is not known",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => {
            "no connection that could be trusted"
        }
        _ => "no connection",
    }
}

impl StreamableHttpClient for Client {
    type Error = HttpError;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: Headers,
    ) -> Result<StreamableHttpPostResponse, Failed> {
        let client = self.clone();
        let asking = move || client.post(&uri, &message, &custom_headers, session_id.as_deref());
        tokio::task::spawn_blocking(asking).await?
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: Headers,
    ) -> Result<(), Failed> {
        let agent = self.agent.clone();
        let asking = move || {
            let mut request = agent.delete(&*uri).header(SESSION, &*session_id);
            for (name, value) in in_order(&custom_headers) {
                request = request.header(name, value);
            }
            request.call().map_err(|error| failed(unreachable(&error))).map(drop)
        };
        tokio::task::spawn_blocking(asking).await?
    }

    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: Headers,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Failed> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
