//! Implements the HTTP client by which `connection` reaches remote MCP servers: MCP's streamable HTTP over `ureq`, the
//! library that also sends the requests to models. With OAuth, each request has a token from `oauth`.
//!
//! The client follows no redirect and uses no proxy. It reads a stream until the stream has answered the request; it
//! does not receive messages that a server sends without a request.

use std::collections::HashMap;
use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderName, HeaderValue};
use flowgate_lm::sse::EventSplitter;
use flowgate_oauth::{AccessToken, TokenSource};
use futures_util::StreamExt;
use futures_util::stream::{BoxStream, unfold};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::Sse;

use super::CallLimits;

/// The header with the identifier of the MCP session.
const SESSION_HEADER: &str = "mcp-session-id";
/// The time limit for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest body of an answer with an error status that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// The reason why a server did not answer: a clause for an error message to the user.
#[derive(Debug)]
pub(super) struct HttpError {
    why: String,
    /// Whether the server has rejected the token of the request.
    is_unauthorized: bool,
}

impl fmt::Display for HttpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for HttpError {}

impl From<String> for HttpError {
    fn from(why: String) -> Self {
        Self { why, is_unauthorized: false }
    }
}

/// The error that `rmcp` expects from this client.
type HttpTransportError = StreamableHttpError<HttpError>;
/// The headers that the configuration gives for a server.
type CustomHeaders = HashMap<HeaderName, HeaderValue>;

/// Puts an error message of this client into the error type that `rmcp` expects.
fn transport_error(why: impl Into<String>) -> HttpTransportError {
    StreamableHttpError::Client(HttpError::from(why.into()))
}

/// The HTTP client through which `rmcp` communicates with servers.
#[derive(Clone)]
pub(super) struct McpHttpClient {
    agent: ureq::Agent,
    limits: CallLimits,
    /// The tokens for the server, if it is behind OAuth.
    tokens: Option<TokenSource>,
}

/// Parses a header of the configuration. Its value, which may be a key, is marked as sensitive.
///
/// # Errors
/// If its name or value has characters that a request cannot contain.
pub(super) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = |part: &str| {
        format!(
            "cannot be used: the {part} of the header `{}` has characters that HTTP does not permit",
            crate::escaping::excerpt(name, 40)
        )
    };
    let parsed_name = HeaderName::try_from(name).map_err(|_| wrong("name"))?;
    let mut value = HeaderValue::try_from(value).map_err(|_| wrong("value"))?;
    value.set_sensitive(true);
    Ok((parsed_name, value))
}

/// Returns headers in the order of their names, because the order of a hash map differs from run to run.
fn sorted_headers(headers: &CustomHeaders) -> Vec<(&HeaderName, &HeaderValue)> {
    let mut ordered: Vec<_> = headers.iter().collect();
    ordered.sort_by(|a, b| a.0.as_str().cmp(b.0.as_str()));
    ordered
}

impl McpHttpClient {
    /// Creates a client that follows no redirect and uses no proxy. `limits` bound the time and the size of answers.
    pub(super) fn new(limits: CallLimits) -> Self {
        let config = ureq::Agent::config_builder()
            // An answer with an error status can contain an MCP error, so it is not an error of the transport.
            .http_status_as_error(false)
            // The operator did not choose the target of a redirect, and the headers may contain a key.
            .max_redirects(0)
            // No connection is kept for a later request.
            .max_idle_connections(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT_TIMEOUT))
            // The thread that waits for an answer must end soon after its caller has stopped waiting.
            .timeout_global(Some(limits.time.saturating_add(CONNECT_TIMEOUT)))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        Self { agent: ureq::Agent::new_with_config(config), limits, tokens: None }
    }

    /// Obtains the first token for the server. From then on, each request has a token.
    ///
    /// # Errors
    /// If there is none: a clause with advice for an error message to the user.
    pub(super) async fn authenticate(&mut self, tokens: TokenSource) -> Result<(), String> {
        tokens.token().await.map_err(|error| error.to_string())?;
        self.tokens = Some(tokens);
        Ok(())
    }

    /// Returns the token for the next request. `rejected` is a token that the server has rejected; the returned one
    /// differs from it. Returns `None` if the server is not behind OAuth.
    async fn token(&self, rejected: Option<&AccessToken>) -> Result<Option<AccessToken>, HttpTransportError> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let token = match rejected {
            None => tokens.token().await,
            Some(rejected) => tokens.token_after(rejected).await,
        };
        token.map(Some).map_err(|error| transport_error(error.to_string()))
    }

    /// Sends a message to the server at `uri`, and returns the answer: a message, or a stream of events. Blocks the
    /// thread. `headers` are the headers from the configuration, `session` is the id of the MCP session if the server
    /// has opened one, and `token` is the access token from the server's issuer if the server is behind OAuth.
    ///
    /// # Errors
    /// * There is no connection.
    /// * The server does not know the session any more.
    /// * The server requires authentication (401 or 403) or redirects, even if its answer has an MCP error.
    /// * The server answers with any other error status, and its answer has no MCP error.
    /// * The answer is too large, or is neither JSON nor a stream.
    fn post(
        &self,
        uri: &str,
        message: &ClientJsonRpcMessage,
        headers: &CustomHeaders,
        session: Option<&str>,
        token: Option<&AccessToken>,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let body = serde_json::to_vec(message)?;
        let mut request = self.agent.post(uri).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        for (name, value) in sorted_headers(headers) {
            request = request.header(name, value);
        }
        if let Some(session) = session {
            request = request.header(SESSION_HEADER, session);
        }
        if let Some(token) = token {
            request = request.header("authorization", token.authorization());
        }
        let response = request.send(&body[..]).map_err(|error| transport_error(describe_failure(&error)))?;
        let status = response.status().as_u16();
        let header = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let content_type = header("content-type").unwrap_or_default().to_ascii_lowercase();
        // The session that the server has opened, if this is the first answer.
        let new_session = header(SESSION_HEADER);
        let is_request = matches!(message, JsonRpcMessage::Request(_));
        let is_success = (200..=299).contains(&status);
        // The server has accepted a message that has no answer.
        if matches!(status, 202 | 204) || is_success && !is_request {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if let Some(error) = error_of_status(status, session.is_some(), token.is_some()) {
            return Err(error);
        }
        let is_json = content_type.starts_with("application/json");
        // Any other error is read by its body, and any other success by its media type.
        if !is_success {
            let answer = bounded(response.into_body().into_reader(), MAX_ERROR).ok();
            let answer = answer.and_then(|bytes| serde_json::from_slice::<ServerJsonRpcMessage>(&bytes).ok());
            return match answer {
                Some(answer @ JsonRpcMessage::Error(_)) if is_json => {
                    Ok(StreamableHttpPostResponse::Json(answer, new_session))
                }
                _ => Err(transport_error(format!("the server answered with the HTTP status {status}"))),
            };
        }
        if is_json {
            // The limit is for the text of the answer; its JSON is longer.
            let bytes = bounded(response.into_body().into_reader(), self.limits.answer.saturating_mul(2))?;
            return Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&bytes)?, new_session));
        }
        if content_type.starts_with("text/event-stream") {
            // The stream can have further events before the answer.
            let max_bytes = self.limits.answer.saturating_mul(4);
            let events = events(response.into_body().into_reader(), max_bytes);
            return Ok(StreamableHttpPostResponse::Sse(events, new_session));
        }
        Err(transport_error(
            "the answer of the server is neither JSON nor a stream of events; check that `url` is an MCP address",
        ))
    }
}

/// Returns the error for a status that says by itself what is wrong: the session has expired, a token is missing or not
/// accepted, or the server redirects. `None` for any other status. `has_session` and `has_token` say what the request had.
fn error_of_status(status: u16, has_session: bool, has_token: bool) -> Option<HttpTransportError> {
    match status {
        404 if has_session => Some(StreamableHttpError::SessionExpired),
        401 if has_token => {
            let why = "the server does not accept the tokens of its issuer (HTTP status 401); check `oauth`"
                .to_owned();
            Some(StreamableHttpError::Client(HttpError { why, is_unauthorized: true }))
        }
        401 | 403 => Some(transport_error(format!(
            "the server requires authentication (HTTP status {status}); add a key to `headers`, or `oauth`, or log in with `flowgate mcp login`"
        ))),
        300..=399 => Some(transport_error(format!(
            "the server redirects to another address (HTTP status {status}); write that address as `url`"
        ))),
        _ => None,
    }
}

/// Returns the events of an answer, which a separate thread reads. Ends with an error if the answer breaks off, has an
/// event that cannot be read, or is longer than `max_bytes`, which is four times the limit of an answer (in `flowgate
/// run`, `--max-answer`).
fn events(
    mut reader: ureq::BodyReader<'static>,
    max_bytes: usize,
) -> BoxStream<'static, Result<Sse, SseError>> {
    // At most 16 events wait for the caller; then the thread waits.
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        let mut splitter = EventSplitter::default();
        let (mut buffer, mut read) = (vec![0_u8; 16 << 10], 0_usize);
        // Errors of `send` are ignored: sending fails only if the caller has stopped waiting.
        let broken = |why: &str| SseError::Body(Box::new(HttpError::from(why.to_owned())));
        loop {
            let bytes = match reader.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => buffer.get(..count).unwrap_or_default(),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => {
                    let _ = sender.blocking_send(Err(broken("the event stream broke off before the answer")));
                    return;
                }
            };
            read = read.saturating_add(bytes.len());
            if read > max_bytes {
                let _ = sender.blocking_send(Err(broken(&format!(
                    "the event stream is longer than {max_bytes} bytes, four times the limit of an answer: ask for less, or raise --max-answer of `flowgate run`"
                ))));
                return;
            }
            for event in splitter.feed(bytes) {
                let Ok(event) = event else {
                    let _ = sender.blocking_send(Err(broken(
                        "the event stream has an event that is too long or not valid UTF-8",
                    )));
                    return;
                };
                let named = (!event.name.is_empty()).then_some(event.name);
                // The id and the retry time, which serve to resume a stream, are left out.
                let event = Sse { event: named, data: Some(event.data), id: None, retry: None };
                // If the receiver is gone, the caller has stopped waiting.
                if sender.blocking_send(Ok(event)).is_err() {
                    return;
                }
            }
        }
    });
    unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) }).boxed()
}

/// Reads a body of at most `max_bytes`; a longer one is an error.
fn bounded(reader: ureq::BodyReader<'static>, max_bytes: usize) -> Result<Vec<u8>, HttpTransportError> {
    // One byte more is read, so that a body that is too long is noticed.
    let limit = u64::try_from(max_bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut bytes = Vec::new();
    reader.take(limit).read_to_end(&mut bytes)?;
    if bytes.len() > max_bytes {
        Err(StreamableHttpError::ResponseBodyTooLarge { max_size: max_bytes })
    } else {
        Ok(bytes)
    }
}

/// Returns the reason why no answer was received. The reason has no details, since these may contain an address with a
/// secret, and no advice: for the user, `connection` adds that of `McpServerSpec::advice`, and the model, which reads
/// the reason if a call fails, cannot change the configuration.
fn describe_failure(error: &ureq::Error) -> &'static str {
    match error {
        ureq::Error::Timeout(_) => "the server did not answer in time",
        ureq::Error::HostNotFound => "the host name of the server cannot be resolved",
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => {
            "the certificate of the server is not trusted"
        }
        // All other errors are reported as a failed connection.
        _ => "no connection can be established",
    }
}

impl StreamableHttpClient for McpHttpClient {
    type Error = HttpError;

    /// Sends a message by [`post`](Self::post), on a thread that may block. If the server rejects the token, sends the
    /// message once more with a new token. The unnamed parameter is an access token that `rmcp` could pass. It is not
    /// used, since the keys are in the configured headers, or the tokens come from `oauth`.
    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _: Option<String>,
        custom_headers: CustomHeaders,
    ) -> Result<StreamableHttpPostResponse, HttpTransportError> {
        let post = |token: Option<AccessToken>| {
            let (client, uri, message) = (self.clone(), Arc::clone(&uri), message.clone());
            let (headers, session) = (custom_headers.clone(), session_id.clone());
            tokio::task::spawn_blocking(move || {
                client.post(&uri, &message, &headers, session.as_deref(), token.as_ref())
            })
        };
        let token = self.token(None).await?;
        match post(token.clone()).await? {
            // The token can have been revoked before it expired. The server has not run the request, so it can be
            // repeated.
            Err(StreamableHttpError::Client(error)) if error.is_unauthorized => {
                let token = self.token(token.as_ref()).await?;
                post(token).await?
            }
            answer => answer,
        }
    }

    /// Ends a session on the server. Any status of the answer is accepted, since the session is not used any
    /// more. Fails if there is no answer or no token. The parameter for a token is not used, as in
    /// [`post_message`](Self::post_message).
    async fn delete_session(
        &self,
        uri: Arc<str>,
        session_id: Arc<str>,
        _: Option<String>,
        custom_headers: CustomHeaders,
    ) -> Result<(), HttpTransportError> {
        let (agent, token) = (self.agent.clone(), self.token(None).await?);
        let delete = move || {
            let mut request = agent.delete(&*uri).header(SESSION_HEADER, &*session_id);
            for (name, value) in sorted_headers(&custom_headers) {
                request = request.header(name, value);
            }
            if let Some(token) = token {
                request = request.header("authorization", token.authorization());
            }
            request.call().map_err(|error| transport_error(describe_failure(&error))).map(drop)
        };
        tokio::task::spawn_blocking(delete).await?
    }

    /// Always returns an error, which means to `rmcp` that the server has no stream of messages without a request: this
    /// client does not receive such messages.
    async fn get_stream(
        &self,
        _: Arc<str>,
        _: Option<Arc<str>>,
        _: Option<String>,
        _: Option<String>,
        _: CustomHeaders,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, HttpTransportError> {
        Err(StreamableHttpError::ServerDoesNotSupportSse)
    }
}
