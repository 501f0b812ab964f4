//! How a server is asked: MCP's streamable HTTP, by a thread for each request, which may wait longer than whoever sent it.
//!
//! No redirect is followed and no proxy used: a server that sends us elsewhere was not chosen by the operator.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SendError, SyncSender, sync_channel};
use std::time::Duration;

use flowgate_lm::sse::Splitter;

/// The header by which a server knows a connection. It is the client's and the server's business: nothing here hangs on it.
pub(super) const SESSION: &str = "mcp-session-id";
const CONNECT: Duration = Duration::from_secs(10);
/// How long a server may take for an answer, with all that it says before.
const TIME: Duration = Duration::from_secs(300);
/// The most bytes of an answer that is JSON, and of an answer that is a stream.
const MAX_JSON: usize = 8 << 20;
const MAX_STREAM: usize = 64 << 20;

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
    /// Requests that are on their way.
    open: Arc<AtomicUsize>,
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
    Stream(Events),
    /// It does not know the connection any more.
    Unknown,
}

/// Messages as they come.
pub(super) struct Events {
    bytes: Receiver<Part>,
    splitter: Splitter,
    waiting: VecDeque<String>,
    read: usize,
}

/// The beginning of an answer.
struct Head {
    status: u16,
    kind: String,
    session: Option<String>,
}

/// What comes from the thread that asks, which may wait longer than whoever sent it.
enum Part {
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
    /// A way to the server at an address, with the key that is held here.
    pub(crate) fn new(url: &str, key: Option<String>) -> Self {
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .timeout_connect(Some(CONNECT))
            // The thread that waits must end when nobody waits for it any more.
            .timeout_global(Some(TIME))
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")))
            .build();
        let agent = ureq::Agent::new_with_config(config);
        Self { agent, url: url.to_owned(), key, open: Arc::default() }
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
        let bytes = self.begin(message, headers)?;
        let Some(Part::Head(Head { status, kind, session })) = next(&bytes, stop)? else {
            return Err("the server cannot be reached");
        };
        let session = session.filter(|id| id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_graphic()));
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        let body = match status {
            202 | 204 => Body::Nothing,
            404 if has_session => Body::Unknown,
            300..=399 => return Err("the server sends us elsewhere"),
            401 | 403 => return Err("the server does not let the gateway in"),
            // What a server says with an error may still be an answer.
            _ if kind.starts_with("application/json") => {
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
            200..=299 if kind.starts_with("text/event-stream") => {
                let (splitter, waiting) = (Splitter::default(), VecDeque::new());
                Body::Stream(Events { bytes, splitter, waiting, read: 0 })
            }
            200..=299 => Body::Nothing,
            _ => return Err("the server answers with an error"),
        };
        Ok(Answer { session, body })
    }

    /// Asks on a thread of its own.
    fn begin(&self, message: &str, headers: &[(String, String)]) -> Result<Receiver<Part>, &'static str> {
        let place = Place(Arc::clone(&self.open));
        if self.open.fetch_add(1, Ordering::Relaxed) >= MOST {
            return Err("too many requests to this server are on their way; wait for some");
        }
        let mut request = self.agent.post(&self.url).header("content-type", "application/json");
        request = request.header("accept", "application/json, text/event-stream");
        // What a server says of its answers can only make them carry more.
        request = request.header("x-mcp-features", "ifc_labels");
        if let Some(key) = &self.key {
            request = request.header("authorization", format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let (sender, bytes) = sync_channel(4);
        let message = message.to_owned();
        let ask = move || {
            let _place = place;
            // Where nobody listens any more, the connection ends.
            let _ = ask(request, &message, &sender);
        };
        let thread = std::thread::Builder::new().name("server".to_owned()).spawn(ask);
        thread.map_err(|_| "no thread can be started")?;
        Ok(bytes)
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

impl Events {
    /// The next message; nothing when the stream is over.
    ///
    /// # Errors
    /// If it broke off, or has no end, or it is time to `stop`.
    pub(super) fn next(&mut self, stop: &dyn Fn() -> bool) -> Result<Option<String>, &'static str> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(message));
            }
            let Some(part) = next(&self.bytes, stop)? else { return Ok(None) };
            let Part::Bytes(bytes) = part else { continue };
            self.read = self.read.saturating_add(bytes.len());
            if self.read > MAX_STREAM {
                return Err("the answer of the server does not end");
            }
            for event in self.splitter.feed(&bytes) {
                let event = event.map_err(|_| "the answer of the server cannot be read")?;
                if !event.data.is_empty() {
                    self.waiting.push_back(event.data);
                }
            }
        }
    }
}

/// The next part of an answer; nothing when it is over.
fn next(bytes: &Receiver<Part>, stop: &dyn Fn() -> bool) -> Result<Option<Part>, &'static str> {
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

/// Asks, and hands on what comes for as long as somebody takes it.
fn ask(
    request: ureq::RequestBuilder<ureq::typestate::WithBody>,
    message: &str,
    parts: &SyncSender<Part>,
) -> Result<(), SendError<Part>> {
    let response = match request.send(message.as_bytes()) {
        Ok(response) => response,
        Err(ureq::Error::Timeout(_)) => {
            return parts.send(Part::Failed("the server does not answer in time"));
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
            Err(_) => return parts.send(Part::Failed("the answer of the server broke off")),
        }
    }
}
