//! The HTTP client: sends a request, and retries it where that may help.

use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use ureq::http::{HeaderValue, Uri};
use ureq::tls::TlsConfig;

use super::address_cache::AddressCache;
use super::connection::connector;
use super::retry::{AttemptFailure, RetryPolicy, retry_after};
use super::stream_drain::StreamDrain;
use super::{Authorities, Budget, MAX_BODY, Timeouts};
use crate::Error;
use crate::wire::error_for_status;

/// The most bytes to read of an error's body.
const MAX_ERROR: u64 = 64 << 10;
/// The version of Anthropic's format. The next version, 2026-10-21, rejects `temperature` and `top_p`;
/// servers of local models support this one.
const ANTHROPIC_VERSION: &str = "2023-06-01";
/// The longest time limit.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The HTTP client of one server.
#[derive(Clone)]
pub(super) struct HttpClient {
    agent: ureq::Agent,
    /// Drains the rest of answers, if connections are kept.
    leftovers: Option<StreamDrain>,
    base: String,
    host: String,
    headers: Vec<(&'static str, HeaderValue)>,
    pub(super) times: Timeouts,
    pub(super) retries: RetryPolicy,
    pub(super) budget: Option<Arc<Budget>>,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The headers contain the key.
        f.debug_struct("Client").field("base", &self.base).finish_non_exhaustive()
    }
}

/// Handles the answer to a request.
pub(super) trait ResponseHandler {
    type Out;

    /// Reads an answer.
    fn read(&mut self, answer: HttpResponse) -> Result<Self::Out, AttemptFailure>;

    /// Called before each retry.
    fn begin_retry(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

/// The most idle connections.
const MOST_IDLE_CONNECTIONS: usize = 256;

fn agent(proxy: Option<ureq::Proxy>, idle: Duration, tls: TlsConfig) -> ureq::Agent {
    let kept = if idle.is_zero() { 0 } else { MOST_IDLE_CONNECTIONS };
    let config = ureq::Agent::config_builder()
        .http_status_as_error(false)
        // The operator did not choose the target of a redirect.
        .max_redirects(0)
        .max_idle_connections(kept)
        .max_idle_connections_per_host(kept)
        .max_idle_age(idle)
        .proxy(proxy)
        .tls_config(tls)
        .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
        .build();
    ureq::Agent::with_parts(config, connector(), AddressCache::new(idle))
}

impl HttpClient {
    pub(super) fn new(base: &str) -> Result<Self, Error> {
        let base = base.trim_end_matches('/');
        let wrong = || Error::Unreachable("the address is not http:// or https:// with a host".to_owned());
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !matches!(uri.scheme_str(), Some("http" | "https")) || has_user || uri.query().is_some() {
            return Err(wrong());
        }
        Ok(Self {
            agent: agent(None, Duration::ZERO, Authorities::default().tls()),
            leftovers: None,
            base: base.to_owned(),
            host: host.to_owned(),
            headers: Vec::new(),
            times: Timeouts::default(),
            retries: RetryPolicy::default(),
            budget: None,
        })
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// Removes the version from the address: some servers have their own endpoints there.
    pub(super) fn without_version_path(mut self) -> Self {
        if let Some(root) = self.base.strip_suffix("/v1") {
            self.base = root.to_owned();
        }
        self
    }

    pub(super) fn header(&mut self, name: &'static str, value: String) -> Result<(), Error> {
        let value = HeaderValue::try_from(value);
        let mut value =
            value.map_err(|_| Error::Unreachable("the key cannot stand in a header".to_owned()))?;
        value.set_sensitive(true);
        self.headers.push((name, value));
        Ok(())
    }

    pub(super) fn proxy_from_environment(&mut self) {
        let config = self.agent.config();
        self.agent = agent(ureq::Proxy::try_from_env(), config.max_idle_age(), config.tls_config().clone());
    }

    /// Keeps connections open for this time after an answer.
    pub(super) fn keep_connections(&mut self, idle: Duration) {
        let config = self.agent.config();
        let agent = agent(config.proxy().cloned(), idle, config.tls_config().clone());
        (self.agent, self.leftovers) = (agent, StreamDrain::new());
    }

    pub(super) fn set_authorities(&mut self, authorities: &Authorities) {
        let config = self.agent.config();
        self.agent = agent(config.proxy().cloned(), config.max_idle_age(), authorities.tls());
    }

    /// Sends a JSON body, and retries as long as that may help.
    pub(super) fn ask<E: ResponseHandler>(
        &self,
        path: &str,
        body: &[u8],
        exchange: &mut E,
    ) -> Result<E::Out, Error> {
        let begun = Instant::now();
        let whole = self.times.whole.min(DAY);
        for attempt in 0_u32.. {
            if let Some(budget) = &self.budget {
                budget.admit()?;
            }
            let left = whole.checked_sub(begun.elapsed()).ok_or(Error::Timeout)?;
            let asked = self.send_once(path, body, left).and_then(|answer| exchange.read(answer));
            let failure = match asked {
                Ok(out) => return Ok(out),
                Err(failure) => failure,
            };
            let Some(wait) = self.retries.delay(attempt, &failure) else { return Err(failure.error) };
            // An attempt without time left would only hide the original error.
            if begun.elapsed().saturating_add(wait) >= whole {
                return Err(failure.error);
            }
            std::thread::sleep(wait);
            exchange.begin_retry()?;
        }
        Err(Error::Timeout)
    }

    fn send_once(&self, path: &str, body: &[u8], left: Duration) -> Result<HttpResponse, AttemptFailure> {
        let times = self.times;
        let request = self.agent.post(format!("{}{path}", self.base)).config();
        let request = request
            .timeout_global(Some(left))
            .timeout_resolve(Some(times.connect.min(left)))
            .timeout_connect(Some(times.connect.min(left)))
            .timeout_recv_response(Some(times.first_byte.min(left)))
            .build();
        let mut request =
            request.header("content-type", "application/json").header("anthropic-version", ANTHROPIC_VERSION);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let mut response = request.send(body).map_err(|error| to_failure(&error))?;
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let status = response.status().as_u16();
        if status == 200 {
            let kind = header("content-type").unwrap_or_default();
            let is_stream = kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
            let leftovers = self.leftovers.clone();
            return Ok(HttpResponse {
                body: response.into_body().into_reader(),
                read: 0,
                is_stream,
                leftovers,
            });
        }
        let wait = retry_after(header("retry-after"), header("retry-after-ms"));
        let mut text = Vec::new();
        // An error whose body cannot be read is still an error.
        let _ = response.body_mut().as_reader().take(MAX_ERROR).read_to_end(&mut text);
        let body: Value = serde_json::from_slice(&text).unwrap_or_default();
        let word = |key: &str| body.get("error").and_then(|error| error.get(key)).and_then(Value::as_str);
        let name = word("code").or_else(|| word("type"));
        Err(AttemptFailure {
            retry_after: wait,
            ..AttemptFailure::from(error_for_status(status, name, wait))
        })
    }
}

/// An answer whose body has not been read yet.
pub(super) struct HttpResponse {
    body: ureq::BodyReader<'static>,
    read: usize,
    is_stream: bool,
    leftovers: Option<StreamDrain>,
}

impl HttpResponse {
    /// Drains the rest of the body, so that the connection can be used again.
    pub(super) fn release_connection(self) {
        if let Some(leftovers) = self.leftovers {
            leftovers.drain(self.body);
        }
    }

    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Reads the next bytes; empty at the end.
    pub(super) fn read<'a>(&mut self, buffer: &'a mut [u8]) -> Result<&'a [u8], AttemptFailure> {
        let count = loop {
            match self.body.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read.map_err(|error| read_failure(&error))?,
            }
        };
        self.read = self.read.saturating_add(count);
        if self.read > MAX_BODY {
            return Err(Error::TooLong(MAX_BODY).into());
        }
        Ok(buffer.get(..count).unwrap_or_default())
    }

    /// Reads the whole body as JSON.
    pub(super) fn json(&mut self) -> Result<Value, AttemptFailure> {
        let mut text = Vec::new();
        let mut buffer = vec![0_u8; 16 << 10];
        loop {
            let bytes = self.read(&mut buffer)?;
            if bytes.is_empty() {
                break;
            }
            text.extend_from_slice(bytes);
        }
        serde_json::from_slice(&text).map_err(|_| Error::Malformed("it is not JSON").into())
    }
}

/// The text of [`Error::Unreachable`] where no trusted authority signed the server's certificate.
pub const UNTRUSTED: &str = "no connection that could be trusted";

/// Returns the failure for a transport error, without content of the request.
fn to_failure(error: &ureq::Error) -> AttemptFailure {
    let unreachable = |why: &str| Error::Unreachable(why.to_owned());
    match error {
        ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            AttemptFailure::transient(Error::Timeout)
        }
        ureq::Error::Timeout(_) => Error::Timeout.into(),
        ureq::Error::HostNotFound => AttemptFailure::transient(unreachable("the host is not known")),
        ureq::Error::ConnectionFailed => AttemptFailure::transient(unreachable("no connection")),
        ureq::Error::Io(error) => read_failure(error),
        ureq::Error::Protocol(_) | ureq::Error::LargeResponseHeader(..) => {
            Error::Malformed("it is not in HTTP").into()
        }
        ureq::Error::Tls(_) | ureq::Error::Rustls(_) | ureq::Error::Pem(_) => unreachable(UNTRUSTED).into(),
        _ => unreachable("the request cannot be sent").into(),
    }
}

fn read_failure(error: &io::Error) -> AttemptFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<ureq::Error>());
    match (inner, error.kind()) {
        (Some(inner), _) if !matches!(inner, ureq::Error::Io(_)) => to_failure(inner),
        (_, io::ErrorKind::TimedOut) => Error::Timeout.into(),
        // The TLS library reports errors about the peer, such as its certificate, with this kind.
        (_, io::ErrorKind::InvalidData) => Error::Unreachable(UNTRUSTED.to_owned()).into(),
        (_, kind) => AttemptFailure::transient(Error::Unreachable(kind.to_string())),
    }
}
