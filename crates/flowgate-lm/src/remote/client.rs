//! Defines [`HttpClient`], which sends a request to a model server over HTTP, within the budget, and sends it again
//! after failures that may be temporary.
//!
//! [`RemoteModel`](super::RemoteModel) and [`Scorer`](super::score::Scorer) own a client. Clones of a client share its
//! connections. A clone whose connection settings are changed gets connections of its own.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper::body::Bytes;
use tokio::runtime::Handle;
use tokio::sync::oneshot::Receiver;
use tokio::time::{Instant, sleep, timeout_at};

use super::client_pool::{ClientPool, OpenRequest};
use super::failure::to_failure;
use super::request_body::RequestBody;
use super::response::HttpResponse;
use super::retry::{AttemptFailure, RetryObserver, RetryPolicy};
use super::{Authorities, RequestBudget, Timeouts};
use crate::Error;

/// The version of Anthropic's format that requests ask for. The next version, 2026-10-21, rejects `temperature` and
/// `top_p`, and the servers of local models do not support it.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// The longest time limit that applies; a longer one is shortened to it.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// The most idle connections to one server.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// How many bytes of one answer the server may send over HTTP/2 before they are read.
const STREAM_WINDOW: u32 = 64 << 10;
/// How many bytes of all answers on one HTTP/2 connection the server may send before they are read. The requests share
/// the connection; with room for hundreds of unread answers, one slow listener does not delay the others.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// The interval at which an HTTP/2 connection with open requests is tested. The server may disappear without notice,
/// and later requests would use the same connection.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// How long the server has to answer such a test before the connection is closed.
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// The HTTP client of one server.
#[derive(Clone)]
pub(super) struct HttpClient {
    connections: Connections,
    /// The base address, without a slash at its end.
    base: String,
    /// The host of the address.
    host: String,
    /// The headers of all requests, such as the key.
    headers: Vec<(&'static str, HeaderValue)>,
    times: Timeouts,
    pub(super) retries: RetryPolicy,
    pub(super) retry_observer: Option<RetryObserver>,
    pub(super) budget: Option<Arc<RequestBudget>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers contain the key.
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

/// The settings of connections, and the open connections with these settings.
#[derive(Clone, Default)]
struct Connections {
    authorities: Authorities,
    uses_proxy: bool,
    /// How long a connection stays open after an answer; zero closes it at once.
    idle: Duration,
    /// The time limit for establishing a connection.
    connect_timeout: Duration,
    /// The HTTP clients that were built with these settings.
    clients: Arc<ClientPool>,
}

impl Connections {
    /// Returns these settings so that the caller can change them. The open connections have the old settings, so this
    /// client no longer uses them; clones of the client may still use them.
    fn change(&mut self) -> &mut Self {
        self.clients = Arc::default();
        self
    }

    /// Returns an HTTP client for one request, and a value that counts the request as open in the pool until the value
    /// is dropped. Fails if no HTTP client can be built.
    fn acquire_client(&self) -> Result<(reqwest::Client, OpenRequest), Error> {
        let acquired = self.clients.acquire(|| self.make_client());
        acquired.ok_or_else(|| {
            Error::Unreachable(
                "the HTTP client cannot be initialized; check the configured certificate authorities"
                    .to_owned(),
            )
        })
    }

    /// Builds an HTTP client with these settings; `None` if the client or its TLS cannot be set up.
    fn make_client(&self) -> Option<reqwest::Client> {
        let mut tls = self.authorities.tls().ok()?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // A time of zero closes connections after each answer.
        let max_idle = if self.idle.is_zero() { 0 } else { MAX_IDLE_CONNECTIONS };
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls)
            // A redirect would send the request to a server that the operator did not choose.
            .redirect(reqwest::redirect::Policy::none())
            // The budget counts each attempt, so the HTTP client must not retry on its own.
            .retry(reqwest::retry::never())
            .referer(false)
            .connect_timeout(self.connect_timeout)
            .pool_max_idle_per_host(max_idle)
            .pool_idle_timeout(self.idle)
            .tcp_nodelay(true)
            .http2_initial_stream_window_size(STREAM_WINDOW)
            .http2_initial_connection_window_size(CONNECTION_WINDOW)
            // A connection on which a ping gets no answer is closed.
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT)
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")));
        let builder = if self.uses_proxy { builder } else { builder.no_proxy() };
        builder.build().ok()
    }
}

/// Handles the answers to the attempts of one request.
pub(super) trait ResponseHandler: Send {
    /// The decoded answer.
    type Out: Send;

    /// Reads and decodes the answer to one attempt, whose status is 200. The failure says whether another attempt may
    /// succeed.
    fn read(
        &mut self,
        answer: HttpResponse,
    ) -> impl Future<Output = Result<Self::Out, AttemptFailure>> + Send;

    /// Prepares for another attempt, before each retry: discards what the failed attempt has produced. An error ends
    /// the request.
    fn begin_retry(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

impl HttpClient {
    /// Creates a client of the server at the address `base`, with the default time limits and retries, and without a
    /// budget.
    ///
    /// # Errors
    /// If the address is not an HTTP or HTTPS URL with a host, or has a user name or a query.
    pub(super) fn new(base: &str) -> Result<Self, Error> {
        // The paths of requests begin with a slash, so the base must not end with one.
        let base = base.trim_end_matches('/');
        let wrong = || {
            Error::Unreachable(
                "the address must begin with `http://` or `https://` and have a host, but no user name and no query"
                    .to_owned(),
            )
        };
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        let is_http = matches!(uri.scheme_str(), Some("http" | "https"));
        if !is_http || has_user || uri.query().is_some() || reqwest::Url::parse(base).is_err() {
            return Err(wrong());
        }
        let times = Timeouts::default();
        Ok(Self {
            connections: Connections { connect_timeout: times.connect, ..Connections::default() },
            base: base.to_owned(),
            host: host.to_owned(),
            headers: Vec::new(),
            times,
            retries: RetryPolicy::default(),
            retry_observer: None,
            budget: None,
        })
    }

    /// Returns the host of the server's address.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Removes `/v1` from the end of the base address, if it is there: some servers have their own endpoints directly
    /// below the host.
    pub(super) fn without_version_path(mut self) -> Self {
        if let Some(root) = self.base.strip_suffix("/v1") {
            self.base = root.to_owned();
        }
        self
    }

    /// Sets the header `name` of all requests, in place of an earlier value. The value is not shown in debug output,
    /// since it may be the key of the provider's account. Fails if the value contains characters that a header cannot
    /// contain. The text of the error is for a key; callers that add another header ignore the error.
    pub(super) fn header(&mut self, name: &'static str, value: String) -> Result<(), Error> {
        let value = HeaderValue::try_from(value);
        let mut value = value.map_err(|_| {
            Error::Unreachable(
                "the key contains characters that an HTTP header cannot contain, such as a line break; check \
                the key"
                    .to_owned(),
            )
        })?;
        value.set_sensitive(true);
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value));
        Ok(())
    }

    /// Sets the time limits. The limit for establishing a connection applies only to new connections.
    pub(super) fn set_times(&mut self, times: Timeouts) {
        self.times = times;
        self.connections.change().connect_timeout = times.connect;
    }

    /// Uses the proxy that the environment specifies, if any.
    pub(super) fn proxy_from_environment(&mut self) {
        self.connections.change().uses_proxy = true;
    }

    /// Keeps connections open for the time `idle` after an answer; zero closes them at once.
    pub(super) fn keep_connections(&mut self, idle: Duration) {
        self.connections.change().idle = idle;
    }

    /// Sets the authorities that are trusted for TLS.
    pub(super) fn set_authorities(&mut self, authorities: &Authorities) {
        self.connections.change().authorities = authorities.clone();
    }

    /// Sends a JSON body to `path`, below the base address, and returns what `handler` reads from the answer.
    ///
    /// An attempt can fail while the request is sent or while the answer is read. It is then repeated if the retry
    /// policy and the time limit of the whole request allow it; otherwise its error is returned. Each attempt counts in
    /// the budget. Also fails if the budget is spent, if `handler` ends the request before a retry, and outside of a
    /// Tokio runtime.
    pub(super) async fn ask<E: ResponseHandler>(
        &self,
        path: &str,
        body: &Bytes,
        handler: &mut E,
    ) -> Result<E::Out, Error> {
        // Without a runtime, the HTTP client panics.
        if Handle::try_current().is_err() {
            return Err(Error::Unreachable(
                "the calling thread has no Tokio runtime; call the model from within a Tokio runtime"
                    .to_owned(),
            ));
        }
        // The time limit for all attempts together. It is at most a day, so that the addition does not overflow.
        let deadline = Instant::now() + self.times.whole.min(DAY);
        for attempt in 0_u32.. {
            if Instant::now() >= deadline {
                return Err(Error::Timeout);
            }
            if let Some(budget) = &self.budget {
                budget.admit()?;
            }
            let result = match self.send_once(path, body, deadline).await {
                Ok(answer) => handler.read(answer).await,
                Err(failure) => Err(failure),
            };
            let failure = match result {
                Ok(out) => return Ok(out),
                Err(failure) => failure,
            };
            let Some(wait) = self.retries.delay(attempt, &failure) else { return Err(failure.error) };
            // Without time for another attempt, a retry would only replace the error by a timeout.
            if wait >= deadline.saturating_duration_since(Instant::now()) {
                return Err(failure.error);
            }
            if let Some(observer) = &self.retry_observer {
                observer(&failure.error);
            }
            sleep(wait).await;
            handler.begin_retry()?;
        }
        // Not reached in practice: the number of attempts would have to overflow.
        Err(Error::Timeout)
    }

    /// Sends `body` to `path` once, and reads the head of the answer. Fails if the request cannot be sent, if the status
    /// is not 200, or if the answer does not begin within the time limit for the first byte and before `deadline`, the
    /// end of the time limit of the whole request.
    async fn send_once(
        &self,
        path: &str,
        body: &Bytes,
        deadline: Instant,
    ) -> Result<HttpResponse, AttemptFailure> {
        // `sending` reports when the HTTP client begins to send the body.
        let (body, sending) = RequestBody::new(body.clone());
        // `open` counts the request as open until the answer is dropped.
        let (client, open) = self.connections.acquire_client()?;
        let mut request = client
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/json")
            // Servers of the other formats ignore this header.
            .header("anthropic-version", ANTHROPIC_VERSION);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let sent = request.body(reqwest::Body::wrap(body)).send();
        let response = self.await_head(sent, sending, deadline).await?;
        HttpResponse::read_head((response, open), deadline, !self.connections.idle.is_zero()).await
    }

    /// Waits for the head of the answer, which the future `sent` returns. The wait has two parts: until `sending`
    /// reports that the request is being sent, and from then on until the answer begins, within the time limit for the
    /// first byte. Fails with [`Error::Timeout`] after that limit, or after `deadline`, the end of the time limit of
    /// the whole request.
    ///
    /// The HTTP client itself limits the time for establishing a connection. If the server permits no further open
    /// request on the connection, the request waits until an earlier request ends, and only `deadline` limits this
    /// wait.
    async fn await_head(
        &self,
        sent: impl Future<Output = reqwest::Result<reqwest::Response>>,
        mut sending: Receiver<()>,
        deadline: Instant,
    ) -> Result<reqwest::Response, AttemptFailure> {
        let mut sent = pin!(sent);
        // Returns `None` as soon as the request is being sent, or `Some` if the answer or an error comes before that.
        let answer_or_sending = poll_fn(|cx| match sent.as_mut().poll(cx) {
            Poll::Ready(answer) => Poll::Ready(Some(answer)),
            Poll::Pending => pin!(&mut sending).poll(cx).map(|_| None),
        });
        let early_answer = timeout_at(deadline, answer_or_sending).await.map_err(|_| Error::Timeout)?;
        let answer = match early_answer {
            Some(answer) => answer,
            None => {
                let first_byte_end = Instant::now() + self.times.first_byte.min(DAY);
                timeout_at(first_byte_end.min(deadline), sent).await.map_err(|_| Error::Timeout)?
            }
        };
        answer.map_err(|error| to_failure(&error))
    }
}
