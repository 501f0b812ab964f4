//! How a server is asked, and listened to: MCP's streamable HTTP, by a thread for each request, which may wait longer than whoever sent it.
//!
//! No redirect is followed and no proxy used: a server that sends us elsewhere was not chosen by the operator.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::time::Duration;

use flowgate_lm::remote::Authorities;

use super::events::Events;
use crate::model_routes::clients::Listening;

/// The header by which a server knows a connection. It is the client's and the server's business: nothing here hangs on it.
pub(super) const SESSION: &str = "mcp-session-id";
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take for an answer, with all that it says before; and for a stream of what it says unasked, of which there may
/// be another.
pub(super) const TIME: Duration = Duration::from_secs(300);
/// The most bytes of an answer that is JSON.
const MAX_JSON: usize = 8 << 20;

/// Why there is no more of an answer that was not whole.
pub(super) const BROKEN: &str = "the answer of the server broke off";

/// How many requests to one server may be on their way, with those that nobody waits for any more.
const MOST: usize = 256;
/// How often whoever waits looks whether it still has to.
const LOOK: Duration = Duration::from_millis(100);

/// A way to one server.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
    /// Requests that are on their way, and streams that are listened to.
    open: Arc<AtomicUsize>,
    listened: Arc<AtomicUsize>,
}

/// What a server answers.
pub(super) struct Answer {
    /// What it calls the connection, if it says so.
    pub(super) session: Option<String>,
    pub(super) body: Body,
}

/// The body of an answer.
pub(super) enum Body {
    /// There is none.
    Nothing,
    /// One message.
    Message(String),
    /// Messages, one event each.
    Stream(Box<Events>),
    /// It does not know the connection any more.
    Unknown,
    /// It says nothing unasked.
    NotAllowed,
}

/// What is wanted of a server.
#[derive(Clone, Copy)]
enum Want<'w> {
    /// The answer to a message.
    Answer(&'w str),
    /// What it says unasked, or has said since an event of this id.
    Stream { since: Option<&'w str>, held: Option<&'w Arc<Listening>> },
}

/// The beginning of an answer.
pub(super) struct Head {
    status: u16,
    kind: String,
    session: Option<String>,
}

/// What comes from the thread that asks, which may wait longer than whoever sent it.
pub(super) enum Part {
    Head(Head),
    Bytes(Vec<u8>),
    Failed(&'static str),
}

/// The place of a request that is on its way, until it is dropped.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Upstream {
    /// A way to the server at an address, with the key that is held here, if one of these vouches for it.
    pub(crate) fn new(url: &str, key: Option<String>, authorities: &Authorities) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .tls_config(authorities.tls())
            .timeout_connect(Some(CONNECT))
            // The thread that waits must end when nobody waits for it any more.
            .timeout_global(Some(TIME))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = ureq::Agent::new_with_config(config);
        Self { agent, url: url.to_owned(), key, open: Arc::default(), listened: Arc::default() }
    }

    /// Sends a message, and waits for the answer until it is time to `stop`.
    ///
    /// # Errors
    /// Why there is no answer, without what the server says and without the address.
    pub(super) fn send(
        &self,
        message: &str,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, &'static str> {
        self.ask(Want::Answer(message), headers, stop)
    }

    /// Asks for what the server says unasked; or with the id of an event, for what it has said since in the stream of that event.
    /// What is held of the client's is held for as long as the server is waited for: nobody can tell a thread that reads.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn listen(
        &self,
        since: Option<&str>,
        held: Option<&Arc<Listening>>,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, &'static str> {
        self.ask(Want::Stream { since, held }, headers, stop)
    }

    fn ask(
        &self,
        want: Want<'_>,
        headers: &[(String, String)],
        stop: &dyn Fn() -> bool,
    ) -> Result<Answer, &'static str> {
        let bytes = self.begin(want, headers)?;
        let listens = matches!(want, Want::Stream { .. });
        let Some(Part::Head(Head { status, kind, session })) = next(&bytes, stop)? else {
            return Err("the server cannot be reached");
        };
        let session = session.filter(|id| id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_graphic()));
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        let body = match status {
            202 | 204 => Body::Nothing,
            405 if listens => Body::NotAllowed,
            404 if has_session => Body::Unknown,
            300..=399 => return Err("the server sends us elsewhere"),
            401 | 403 => return Err("the server does not let the gateway in"),
            // What a server says with an error may still be an answer.
            _ if kind.starts_with("application/json") && !listens => {
                let mut whole = Vec::new();
                while let Some(part) = next(&bytes, stop)? {
                    if let Part::Bytes(part) = part {
                        whole.extend(part);
                    }
                    if whole.len() > MAX_JSON {
                        return Err("the answer of the server does not end");
                    }
                }
                Body::Message(String::from_utf8(whole).map_err(|_| "the answer of the server is not UTF-8")?)
            }
            200..=299 if kind.starts_with("text/event-stream") => Body::Stream(Box::new(Events::new(bytes))),
            200..=299 => Body::Nothing,
            _ => return Err("the server answers with an error"),
        };
        Ok(Answer { session, body })
    }

    /// Asks on a thread of its own.
    fn begin(&self, want: Want<'_>, headers: &[(String, String)]) -> Result<Receiver<Part>, &'static str> {
        let open = match want {
            // Who listens for long takes no place of those who ask.
            Want::Stream { since: None, .. } => &self.listened,
            _ => &self.open,
        };
        let place = Place(Arc::clone(open));
        if open.fetch_add(1, Ordering::Relaxed) >= MOST {
            return Err("too many requests to this server are on their way; wait for some");
        }
        let (sender, bytes) = sync_channel(4);
        let asks: Box<dyn FnOnce() -> Asked + Send> = match want {
            Want::Answer(message) => {
                let request = self.agent.post(&self.url).header("content-type", "application/json");
                let request = self.dressed(request, "application/json, text/event-stream", headers);
                let message = message.to_owned();
                Box::new(move || request.send(message.as_bytes()))
            }
            Want::Stream { since, .. } => {
                let mut request = self.dressed(self.agent.get(&self.url), "text/event-stream", headers);
                if let Some(since) = since {
                    request = request.header("last-event-id", since);
                }
                Box::new(move || request.call())
            }
        };
        let held = match want {
            Want::Stream { held, .. } => held.cloned(),
            Want::Answer(_) => None,
        };
        let ask = move || {
            let _place = (place, held);
            // Where nobody listens any more, the connection ends.
            let _ = ask(asks, &sender);
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(ask);
        thread.map_err(|_| "no thread can be started")?;
        Ok(bytes)
    }

    fn dressed<B>(
        &self,
        request: ureq::RequestBuilder<B>,
        accept: &str,
        headers: &[(String, String)],
    ) -> ureq::RequestBuilder<B> {
        // What a server says of its answers can only make them carry more.
        let mut request = request.header("accept", accept).header("x-mcp-features", "ifc_labels");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Tells the server that a connection is over.
    pub(super) fn end(&self, session: &str) {
        let mut request = self.agent.delete(&self.url).header(SESSION, session);
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        // Whether it wants to know is its own business.
        let _ = request.call();
    }
}

/// The next part of an answer; nothing when it is over.
pub(super) fn next(bytes: &Receiver<Part>, stop: &dyn Fn() -> bool) -> Result<Option<Part>, &'static str> {
    loop {
        match bytes.recv_timeout(LOOK) {
            Ok(Part::Failed(why)) => return Err(why),
            Ok(part) => return Ok(Some(part)),
            Err(RecvTimeoutError::Disconnected) => return Ok(None),
            Err(RecvTimeoutError::Timeout) if stop() => return Err("nobody waits for the answer any more"),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

type Asked = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// Asks, and hands on what comes for as long as somebody takes it.
fn ask(asks: impl FnOnce() -> Asked, parts: &SyncSender<Part>) -> Result<(), SendError<Part>> {
    let response = match asks() {
        Ok(response) => response,
        Err(ureq::Error::Timeout(_)) => {
            return parts.send(Part::Failed("the server does not answer in time"));
        }
        // In these words the TLS library says what it thinks of the other side.
        Err(ureq::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => {
            return parts.send(Part::Failed("the server cannot be trusted: no authority vouches for it that is known here (see `ca-file`)"));
        }
        Err(_) => return parts.send(Part::Failed("the server cannot be reached")),
    };
    let text =
        |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let kind = text("content-type").unwrap_or_default().to_ascii_lowercase();
    let (status, session) = (response.status().as_u16(), text(SESSION));
    parts.send(Part::Head(Head { status, kind, session }))?;
    let mut reader = response.into_body().into_reader();
    loop {
        let mut buffer = vec![0_u8; 16 << 10];
        match reader.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => {
                buffer.truncate(count);
                parts.send(Part::Bytes(buffer))?;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return parts.send(Part::Failed(BROKEN)),
        }
    }
}
