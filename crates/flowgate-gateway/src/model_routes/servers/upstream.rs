//! How a server is asked: MCP's streamable HTTP, from a thread that may wait.
//!
//! No redirect is followed and no proxy used: a server that sends us elsewhere was not chosen by the operator.

use std::io::Read;
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

/// A way to one server.
#[derive(Debug, Clone)]
pub(crate) struct Upstream {
    agent: ureq::Agent,
    url: String,
    key: Option<String>,
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
}

/// Messages as they come.
pub(super) struct Events {
    reader: ureq::BodyReader<'static>,
    splitter: Splitter,
    waiting: std::collections::VecDeque<String>,
    read: usize,
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
        Self { agent: ureq::Agent::new_with_config(config), url: url.to_owned(), key }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// Why there is no answer, without what the server says and without the address.
    pub(super) fn send(&self, message: &str, headers: &[(String, String)]) -> Result<Answer, &'static str> {
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
        let response = request.send(message.as_bytes()).map_err(|error| match error {
            ureq::Error::Timeout(_) => "the server does not answer in time",
            _ => "the server cannot be reached",
        })?;
        let text = |name: &str| {
            response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
        };
        let (kind, session) = (text("content-type").unwrap_or_default().to_ascii_lowercase(), text(SESSION));
        let session = session.filter(|id| id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_graphic()));
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        let status = response.status().as_u16();
        let body = match status {
            202 | 204 => Body::Nothing,
            404 if has_session => Body::Unknown,
            300..=399 => return Err("the server sends us elsewhere"),
            401 | 403 => return Err("the server does not let the gateway in"),
            // What a server says with an error may still be an answer.
            _ if kind.starts_with("application/json") => {
                let mut bytes = Vec::new();
                let most = u64::try_from(MAX_JSON).unwrap_or(u64::MAX);
                let read = response.into_body().into_reader().take(most).read_to_end(&mut bytes);
                read.map_err(|_| "the answer of the server broke off")?;
                Body::Message(String::from_utf8(bytes).map_err(|_| "the answer of the server is not UTF-8")?)
            }
            200..=299 if kind.starts_with("text/event-stream") => Body::Stream(Box::new(Events {
                reader: response.into_body().into_reader(),
                splitter: Splitter::default(),
                waiting: std::collections::VecDeque::new(),
                read: 0,
            })),
            200..=299 => Body::Nothing,
            _ => return Err("the server answers with an error"),
        };
        Ok(Answer { session, body })
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
    /// If it broke off, or has no end.
    pub(super) fn next(&mut self) -> Result<Option<String>, &'static str> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Ok(Some(message));
            }
            let mut buffer = vec![0_u8; 16 << 10];
            let count = match self.reader.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(_) => return Err("the answer of the server broke off"),
            };
            self.read = self.read.saturating_add(count);
            if self.read > MAX_STREAM {
                return Err("the answer of the server does not end");
            }
            for event in self.splitter.feed(buffer.get(..count).unwrap_or_default()) {
                let event = event.map_err(|_| "the answer of the server cannot be read")?;
                if !event.data.is_empty() {
                    self.waiting.push_back(event.data);
                }
            }
        }
    }
}
