//! Sends requests to an MCP server over streamable HTTP ([`McpServerClient`]), for `server_requests`, `listening`
//! and `resumption`, and ends MCP sessions for `request`. A message is sent by a task that may outlive the request
//! of the client.
//!
//! No redirect is followed, and the proxy variables of the environment are ignored: messages go only to the address
//! that the operator wrote.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flowgate_lm::remote::{Authorities, is_tls_failure};
use flowgate_oauth::TokenSource;
use reqwest::RequestBuilder;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::answer_bytes::{OpenRequestPlace, ServerAnswerBytes};
use super::event_stream::EventStream;
use super::server_credential::{Authorization, ServerCredential};
use super::stop_signal::StopSignal;

/// The header with the id of an MCP session. Only client and server use it; no decision of the gateway depends on it.
pub(super) const SESSION: &str = "mcp-session-id";
/// The time limit for a connection to a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit for an answer of a server, including all messages before the answer. It is also the time limit for
/// one stream of messages that answer no request; the client may open another stream afterwards.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(300);
/// The time in which a message has to reach its server after the wait for its answer has ended.
const ABANDONED_TIMEOUT: Duration = Duration::from_secs(15);
/// The time for which an idle connection stays open after an answer.
const IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// The most idle connections to one server.
const MAX_IDLE_CONNECTIONS: usize = 256;
/// The limit on a JSON answer, in bytes.
const MAX_JSON: usize = 8 << 20;

/// The limit on open requests to one server, including those whose client has disconnected. It is equal to the default
/// limit on exchanges of the whole gateway.
const MAX_OPEN_REQUESTS: usize = 8192;

/// The reason why there is no answer if a request could not be sent.
const UNREACHABLE: &str = "the MCP server cannot be reached: check its `url` in [mcp]";

/// The client of one MCP server.
#[derive(Clone)]
pub(crate) struct McpServerClient {
    authorities: Authorities,
    /// Created by the first request; `None` if it cannot be created.
    client: Arc<OnceLock<Option<reqwest::Client>>>,
    url: String,
    credential: ServerCredential,
    /// The number of open requests.
    open: Arc<AtomicUsize>,
    /// The number of open listening streams.
    listened: Arc<AtomicUsize>,
}

impl fmt::Debug for McpServerClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the credential.
        f.debug_struct("McpServerClient").field("url", &self.url).finish_non_exhaustive()
    }
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

/// What a request expects from a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ServerRequestKind {
    /// The answer to a message.
    Answer,
    /// A stream of messages.
    Stream,
}

impl McpServerClient {
    /// Creates a client for the server at an address, with the credential that the gateway holds for it and the
    /// authorities that must certify it.
    pub(crate) fn new(url: &str, credential: ServerCredential, authorities: &Authorities) -> Self {
        Self {
            authorities: authorities.clone(),
            client: Arc::default(),
            url: url.to_owned(),
            credential,
            open: Arc::default(),
            listened: Arc::default(),
        }
    }

    /// Returns the source of the tokens for the server; `None` if the server is not behind OAuth.
    pub(crate) fn tokens(&self) -> Option<&TokenSource> {
        self.credential.tokens()
    }

    /// Sends a message with `headers`, and waits for the answer until `stop` ends the wait. The server receives the
    /// message even then, if it can be reached in time (`deliver`).
    ///
    /// # Errors
    /// The reason why there is no answer, for the operator's log, without text of the server and without its address.
    pub(super) async fn send(
        &self,
        message: String,
        headers: &[(String, String)],
        stop: &mut StopSignal<'_>,
    ) -> Result<ServerAnswer, &'static str> {
        let place = acquire(&self.open)?;
        let request = self.client()?.post(&self.url).header("content-type", "application/json").body(message);
        let request = self.with_headers(request, "application/json, text/event-stream", headers);
        // The conversation counts the message as sent since it was judged. A separate task therefore sends it, even
        // if the client disconnects before.
        let (answer_sender, answer) = oneshot::channel();
        tokio::spawn(deliver(request, self.credential.clone(), place, answer_sender));
        // A task that ends without an answer counts as a server that cannot be reached.
        let bytes = stop.wait_for(answer).await?.unwrap_or(Err(UNREACHABLE))?;
        // The status 404 means that the session is unknown only if the request names a session.
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        read_answer(bytes, ServerRequestKind::Answer, has_session, stop).await
    }

    /// Opens a new stream of messages that answer no request or, if `since` is the id of an event, the rest of an
    /// earlier stream after that event. `headers` are the MCP headers of the request, and `stop` ends the wait for the
    /// server.
    ///
    /// # Errors
    /// The reason why there is no stream, for the client, without text of the server and without its address.
    pub(super) async fn listen(
        &self,
        since: Option<&str>,
        headers: &[(String, String)],
        stop: &mut StopSignal<'_>,
    ) -> Result<ServerAnswer, &'static str> {
        // Long-lived listening streams do not count against the limit on ordinary requests; the rest of an answer does.
        let place = acquire(if since.is_some() { &self.open } else { &self.listened })?;
        let mut request = self.with_headers(self.client()?.get(&self.url), "text/event-stream", headers);
        if let Some(since) = since {
            request = request.header("last-event-id", since);
        }
        let bytes = stop.wait_for(send_authorized(request, &self.credential, place)).await??;
        // The status 404 means that the session is unknown only if the request names a session.
        let has_session = headers.iter().any(|(name, _)| name == SESSION);
        read_answer(bytes, ServerRequestKind::Stream, has_session, stop).await
    }

    /// Asks the server to end the MCP session with this id.
    pub(super) async fn end(&self, session: &str) {
        let Ok(client) = self.client() else { return };
        let request = client.delete(&self.url).header(SESSION, session);
        // A failure is harmless: the server keeps a session that is not used any more.
        let Ok(authorization) = self.credential.authorization(None).await else { return };
        let _ = with_authorization(request, authorization.as_ref()).send().await;
    }

    /// Adds the accepted media types and `headers` to a request.
    fn with_headers(
        &self,
        request: RequestBuilder,
        accept: &str,
        headers: &[(String, String)],
    ) -> RequestBuilder {
        // Asks the server to label its answers; its labels can only raise those of the policy.
        let request = request.header("accept", accept).header("x-mcp-features", "ifc_labels");
        headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    }

    /// Returns the HTTP client, which the first call creates. Fails, in every call, if it cannot be created.
    fn client(&self) -> Result<&reqwest::Client, &'static str> {
        self.client.get_or_init(|| self.make_client()).as_ref().ok_or(
            "the HTTP client for the MCP server cannot be started: check the server's `ca-file` in [mcp]",
        )
    }

    /// Creates the HTTP client; `None` if the authorities or the TLS library are not usable.
    fn make_client(&self) -> Option<reqwest::Client> {
        let builder = reqwest::Client::builder()
            .tls_backend_preconfigured(self.authorities.tls().ok()?)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            // A message is sent once: the server may have acted on it.
            .retry(reqwest::retry::never())
            .referer(false)
            // HTTP/1.1 uses a connection for each open request, so a request that stalls does not delay others.
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(ANSWER_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            .pool_idle_timeout(IDLE_TIMEOUT)
            .tcp_nodelay(true)
            .user_agent(concat!("flowgate/", env!("CARGO_PKG_VERSION")));
        builder.build().ok()
    }
}

/// Takes one of the [`MAX_OPEN_REQUESTS`] places for requests to one server; `open` counts the taken ones. Ordinary
/// requests and listening streams are counted separately. The error is the reason why a request is not sent if all
/// places are taken.
fn acquire(open: &Arc<AtomicUsize>) -> Result<OpenRequestPlace, &'static str> {
    OpenRequestPlace::acquire(open, MAX_OPEN_REQUESTS)
        .ok_or("too many requests to this MCP server are in progress: try again after some are answered")
}

/// Adds the credential of the gateway to a request.
fn with_authorization(request: RequestBuilder, authorization: Option<&Authorization>) -> RequestBuilder {
    match authorization {
        Some(authorization) => request.header("authorization", authorization.header()),
        None => request,
    }
}

/// Sends a request with the credential of the gateway, and returns the answer when it begins. If the server rejects a
/// token, which may have been revoked before it expired, sends the request once more with another token: a server that
/// answers with the status 401 has not acted on the request. `place` is the place of the request in the limit on open
/// requests; the returned answer holds it.
///
/// # Errors
/// Why there is no answer, without text of the server or of its issuer.
async fn send_authorized(
    request: RequestBuilder,
    credential: &ServerCredential,
    place: OpenRequestPlace,
) -> Result<ServerAnswerBytes, &'static str> {
    // A copy of the request for a second attempt, which is made only with a token: a rejected key has no replacement.
    let again = credential.tokens().and_then(|_| request.try_clone());
    let authorization = credential.authorization(None).await?;
    let answer = send(with_authorization(request, authorization.as_ref()), place).await?;
    match again.filter(|_| answer.status() == 401) {
        None => Ok(answer),
        Some(again) => {
            let place = answer.into_place();
            // Obtains a token other than the rejected one.
            let authorization = credential.authorization(authorization.as_ref()).await?;
            send(with_authorization(again, authorization.as_ref()), place).await
        }
    }
}

/// Sends a request, and returns the answer when it begins. The answer holds `place` until it is dropped.
///
/// # Errors
/// Why there is no answer, without text of the server.
async fn send(request: RequestBuilder, place: OpenRequestPlace) -> Result<ServerAnswerBytes, &'static str> {
    match request.send().await {
        Ok(response) => Ok(ServerAnswerBytes::new(response, place)),
        Err(error) if error.is_timeout() => {
            Err("the MCP server did not answer in time: check the log of that server")
        }
        Err(error) if is_tls_failure(&error) => Err(
            "the certificate of the MCP server is not trusted: its issuer is unknown, it has expired, or it names another host; check the `ca-file` of the server in [mcp]",
        ),
        Err(_) => Err(UNREACHABLE),
    }
}

/// Sends a request to the server, and hands the answer to the channel `answer` when it begins. `place` is the place
/// that the request takes in the limit on open requests. If the receiver stops waiting, the request still has
/// [`ABANDONED_TIMEOUT`] to reach its server; after that, it is dropped.
async fn deliver(
    request: RequestBuilder,
    credential: ServerCredential,
    place: OpenRequestPlace,
    mut answer: oneshot::Sender<Result<ServerAnswerBytes, &'static str>>,
) {
    let is_abandoned = async {
        answer.closed().await;
        sleep(ABANDONED_TIMEOUT).await;
    };
    let sent = tokio::select! {
        sent = send_authorized(request, &credential, place) => sent,
        () = is_abandoned => return,
    };
    // An answer that is no longer awaited is dropped, and its connection ends.
    let _ = answer.send(sent);
}

/// Interprets the status and the media type of an answer, whose body is still to be read (`bytes`). Reads a body with
/// one JSON message completely, unless `stop` ends the wait; the caller reads a stream. `kind` is the kind of answer
/// that the request expects. `has_session` says whether the request named an MCP session: only then, the status 404
/// means that the session is unknown.
///
/// # Errors
/// If the server answers with a redirect, rejects the credential of the gateway (401 or 403), or answers with another
/// error without a JSON body; if the answer is too large, is not UTF-8 or breaks off; or if the wait is over.
async fn read_answer(
    mut bytes: ServerAnswerBytes,
    kind: ServerRequestKind,
    has_session: bool,
    stop: &mut StopSignal<'_>,
) -> Result<ServerAnswer, &'static str> {
    // A request for a stream expects no single message.
    let expects_stream = kind == ServerRequestKind::Stream;
    // An id that is too long, or has characters other than visible ASCII, is ignored.
    let is_session = |id: &&str| id.len() <= 256 && id.bytes().all(|byte| byte.is_ascii_graphic());
    let session = bytes.header(SESSION).filter(is_session).map(str::to_owned);
    let content = bytes.header("content-type").unwrap_or_default().to_ascii_lowercase();
    let body = match bytes.status() {
        // The server has accepted a message that has no answer.
        202 | 204 => ServerAnswerBody::Nothing,
        405 if expects_stream => ServerAnswerBody::StreamNotOffered,
        404 if has_session => ServerAnswerBody::SessionUnknown,
        300..=399 => {
            return Err(
                "the MCP server answered with a redirect, which the gateway does not follow: check its `url` \
                in [mcp]",
            );
        }
        401 | 403 => {
            return Err(
                "the MCP server rejected the key or the token of the gateway (401 or 403): check its \
                `key-from`, `key-file` or `oauth` in [mcp]",
            );
        }
        // The answer is one JSON message, which an HTTP error may have in its body as well.
        _ if content.starts_with("application/json") && !expects_stream => {
            let mut whole = Vec::new();
            while let Some(part) = stop.wait_for(bytes.next()).await?? {
                whole.extend_from_slice(&part);
                if whole.len() > MAX_JSON {
                    return Err(
                        "the answer of the MCP server is larger than 8 MiB, and a message may have at most 4 MiB: let \
                        the agent ask for less",
                    );
                }
            }
            ServerAnswerBody::Message(
                String::from_utf8(whole)
                    .map_err(|_| "the answer of the MCP server is not valid UTF-8: check that server")?,
            )
        }
        200..=299 if content.starts_with("text/event-stream") => {
            ServerAnswerBody::Stream(Box::new(EventStream::new(bytes)))
        }
        // A success of another media type has no MCP message; its body is not read.
        200..=299 => ServerAnswerBody::Nothing,
        _ => {
            return Err(
                "the MCP server answered with an HTTP error (4xx or 5xx): check its `url` in [mcp], and the log of that server",
            );
        }
    };
    Ok(ServerAnswer { session, body })
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;

    use super::super::stop_signal::NOT_AWAITED;
    use super::*;

    #[tokio::test]
    async fn a_message_reaches_its_server_after_its_client_disconnected() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let client = McpServerClient::new(&url, ServerCredential::None, &Authorities::default());
        let mut stop = StopSignal::default();
        stop.cancelled.cancel();
        let sent = client.send("the message".to_owned(), &[], &mut stop).await;
        assert_eq!(sent.err(), Some(NOT_AWAITED));
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(b"the message") {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0, "{received:?}");
        }
    }

    #[tokio::test]
    async fn an_abandoned_listening_stream_releases_its_place() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let client = McpServerClient::new(&url, ServerCredential::None, &Authorities::default());
        let mut stop = StopSignal::default();
        stop.closing.cancel();
        let heard = client.listen(None, &[], &mut stop).await;
        assert_eq!(heard.err(), Some(NOT_AWAITED));
        assert_eq!(client.listened.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}
