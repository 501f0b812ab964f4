//! The connection to an MCP server: streamable HTTP, with one thread per request, which may outlive the request of the
//! client.
//!
//! No redirect is followed and no proxy is used: the operator did not choose the server that a redirect names.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SendError, SyncSender, sync_channel};
use std::time::Duration;

use flowgate_lm::remote::Authorities;

use super::answer_parts::{ServerAnswerHead, ServerAnswerPart, next};
use super::event_stream::EventStream;
use crate::mcp_proxy::stream_slot::StreamSlot;
use crate::ureq_tls::tls_config;

/// The header with the id of an MCP session. Only client and server use it; no decision of the gateway depends on it.
pub(super) const SESSION: &str = "mcp-session-id";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a server for an answer, including all messages before it, and for one stream of messages that
/// answer no request, after which the client may open another.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// The limit on a JSON answer, in bytes.
const MAX_JSON: usize = 8 << 20;

/// The problem of an answer that ended early.
pub(super) const BROKEN: &str = "the answer of the server broke off";

/// The limit on open requests to one server, including those whose client has disconnected.
const MOST_OPEN_REQUESTS: usize = 256;

/// The client of one MCP server.
#[derive(Debug, Clone)]
pub(crate) struct McpServerClient {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
    /// The numbers of open requests and of open listening streams.
    open: Arc<AtomicUsize>,
    listened: Arc<AtomicUsize>,
}

/// The answer of a server.
pub(super) struct ServerAnswer {
    /// The id of the MCP session, if the server sends one.
    pub(super) session: Option<String>,
    pub(super) body: ServerAnswerBody,
}

/// The body of an answer.
pub(super) enum ServerAnswerBody {
    /// No body.
    Nothing,
    /// One message.
    Message(String),
    /// Messages, one per event.
    Stream(Box<EventStream>),
    /// The server does not know the MCP session any more.
    SessionUnknown,
    /// The server offers no listening stream.
    StreamNotOffered,
}

/// The kind of a request to a server.
#[derive(Clone, Copy)]
enum ServerRequestKind<'w> {
    /// The answer to a message.
    Answer(&'w str),
    /// Messages that answer no request; or the rest of a stream after the event of this id.
    Stream { since: Option<&'w str>, held: Option<&'w Arc<StreamSlot>> },
}

/// The slot of an open request, released when it is dropped.
struct OpenRequestSlot(Arc<AtomicUsize>);

impl Drop for OpenRequestSlot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl McpServerClient {
    /// Creates a client for the server at an address, with the key that the gateway holds for it and the authorities
    /// that must certify it.
    pub(crate) fn new(url: &str, key: Option<String>, authorities: &Authorities) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(tls_config(authorities))
            .timeout_connect(Some(CONNECT_TIMEOUT))
            // The thread must end some time even if the request is abandoned.
            .timeout_global(Some(ANSWER_TIMEOUT))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = ureq::Agent::new_with_config(config);
        Self { agent, url: url.to_owned(), key, open: Arc::default(), listened: Arc::default() }
    }

    /// Sends a message, and waits for the answer until `stop` returns `true`.
    ///
    /// # Errors
    /// The reason why there is no answer, without text of the server and without its address.
    pub(super) fn send(
        &self,
        message: &str,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<ServerAnswer, &'static str> {
        self.ask(ServerRequestKind::Answer(message), headers, stop)
    }

    /// Opens a stream of messages that answer no request; or, with the id of an event, the rest of that event's
    /// stream. The client's slot `held` stays taken until the reading thread ends, since a blocked read cannot be
    /// interrupted.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn listen(
        &self,
        since: Option<&str>,
        held: Option<&Arc<StreamSlot>>,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<ServerAnswer, &'static str> {
        self.ask(ServerRequestKind::Stream { since, held }, headers, stop)
    }

    fn ask(
        &self,
        want: ServerRequestKind<'_>,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<ServerAnswer, &'static str> {
        let bytes = self.begin(want, headers)?;
        let listens = matches!(want, ServerRequestKind::Stream { .. });
        let Some(ServerAnswerPart::Head(ServerAnswerHead { status, kind, session })) = next(&bytes, stop)?
        else {
            return Err("the server cannot be reached");
        };
        let session = session.filter(|id| id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_graphic()));
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        let body = match status {
            202 | 204 => ServerAnswerBody::Nothing,
            405 if listens => ServerAnswerBody::StreamNotOffered,
            404 if has_session => ServerAnswerBody::SessionUnknown,
            300..=399 => {
                return Err(
                    "the server answers with a redirect, which is not followed: look at its url in [mcp]",
                );
            }
            401 | 403 => {
                return Err(
                    "the server rejects the key of the gateway (401 or 403): look at its key-from or key-file in [mcp]",
                );
            }
            // An HTTP error may still have an answer in its body.
            _ if kind.starts_with("application/json") && !listens => {
                let mut whole = Vec::new();
                while let Some(part) = next(&bytes, stop)? {
                    if let ServerAnswerPart::Bytes(part) = part {
                        whole.extend(part);
                    }
                    if whole.len() > MAX_JSON {
                        return Err("the answer of the server does not end");
                    }
                }
                ServerAnswerBody::Message(
                    String::from_utf8(whole).map_err(|_| "the answer of the server is not UTF-8")?,
                )
            }
            200..=299 if kind.starts_with("text/event-stream") => {
                ServerAnswerBody::Stream(Box::new(EventStream::new(bytes)))
            }
            200..=299 => ServerAnswerBody::Nothing,
            _ => return Err("the server answers with an error"),
        };
        Ok(ServerAnswer { session, body })
    }

    /// Starts the request on a thread of its own.
    fn begin(
        &self,
        want: ServerRequestKind<'_>,
        headers: &[(String, String)],
    ) -> Result<Receiver<ServerAnswerPart>, &'static str> {
        let open = match want {
            // Long-lived listening streams take no slot of ordinary requests.
            ServerRequestKind::Stream { since: None, .. } => &self.listened,
            _ => &self.open,
        };
        let place = OpenRequestSlot(Arc::clone(open));
        if open.fetch_add(1, Ordering::Relaxed) >= MOST_OPEN_REQUESTS {
            return Err("too many requests to this server are on their way; wait for some");
        }
        let (sender, bytes) = sync_channel(4);
        let asks: Box<dyn FnOnce() -> UreqResult + Send> = match want {
            ServerRequestKind::Answer(message) => {
                let request = self.agent.post(&self.url).header("content-type", "application/json");
                let request = self.with_headers(request, "application/json, text/event-stream", headers);
                let message = message.to_owned();
                Box::new(move || request.send(message.as_bytes()))
            }
            ServerRequestKind::Stream { since, .. } => {
                let mut request = self.with_headers(self.agent.get(&self.url), "text/event-stream", headers);
                if let Some(since) = since {
                    request = request.header("last-event-id", since);
                }
                Box::new(move || request.call())
            }
        };
        let held = match want {
            ServerRequestKind::Stream { held, .. } => held.cloned(),
            ServerRequestKind::Answer(_) => None,
        };
        let ask = move || {
            let _place = (place, held);
            // A send fails once the receiver is dropped; the connection then ends.
            let _ = ask(asks, &sender);
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(ask);
        thread.map_err(|_| "no thread can be started")?;
        Ok(bytes)
    }

    fn with_headers<B>(
        &self,
        request: ureq::RequestBuilder<B>,
        accept: &str,
        headers: &[(String, String)],
    ) -> ureq::RequestBuilder<B> {
        // The labels that a server adds to its answers can only raise them.
        let mut request = request.header("accept", accept).header("x-mcp-features", "ifc_labels");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Ends an MCP session at the server.
    pub(super) fn end(&self, session: &str) {
        let mut request = self.agent.delete(&self.url).header(SESSION, session);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        // A failure is harmless.
        let _ = request.call();
    }
}

type UreqResult = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// Performs a request, and sends the parts of its answer until the receiver is dropped.
fn ask(
    asks: impl FnOnce() -> UreqResult,
    parts: &SyncSender<ServerAnswerPart>,
) -> Result<(), SendError<ServerAnswerPart>> {
    let response = match asks() {
        Ok(response) => response,
        Err(ureq::Error::Timeout(_)) => {
            return parts.send(ServerAnswerPart::Failed("the server does not answer in time"));
        }
        // The TLS library reports a certificate that it does not trust as this kind of error.
        Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            return parts.send(ServerAnswerPart::Failed("the server cannot be trusted: no authority vouches for it that is known here (see `ca-file`)"));
        }
        Err(_) => return parts.send(ServerAnswerPart::Failed("the server cannot be reached")),
    };
    let text =
        |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kind = text("content-type").unwrap_or_default().to_ascii_lowercase();
    let (status, session) = (response.status().as_u16(), text(SESSION));
    parts.send(ServerAnswerPart::Head(ServerAnswerHead { status, kind, session }))?;
    let mut reader = response.into_body().into_reader();
    loop {
        let mut buffer = vec![0_u8; 16 << 10];
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                buffer.truncate(count);
                parts.send(ServerAnswerPart::Bytes(buffer))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return parts.send(ServerAnswerPart::Failed(BROKEN)),
        }
    }
}
