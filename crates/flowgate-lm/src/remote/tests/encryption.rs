//! Tests of servers with TLS: which certificates the client trusts, and which version of HTTP the client and the
//! server agree on.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::Version;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::{BoxFuture, Listener};

/// A server with TLS that answers each request with the same stream.
pub(super) struct TlsServer {
    pub(super) url: String,
    pub(super) authorities: Authorities,
    pub(super) seen: Arc<ServerCounts>,
}

#[derive(Default)]
pub(super) struct ServerCounts {
    pub(super) connections: AtomicUsize,
    versions: Mutex<Vec<Version>>,
    open: AtomicUsize,
    /// The largest number of requests that were open at the same time.
    pub(super) most_open: AtomicUsize,
}

/// How a server answers.
#[derive(Clone)]
pub(super) struct ServerBehaviour {
    pub(super) answer: Bytes,
    /// How long each answer takes.
    pub(super) delay: Duration,
    /// The largest number of requests that may be open on a connection of HTTP/2.
    pub(super) max_streams: u32,
}

impl ServerBehaviour {
    /// Returns a behaviour that sends a short answer at once.
    pub(super) fn prompt() -> Self {
        let answer = Bytes::from(stream(Api::ChatCompletions, "hello"));
        Self { answer, delay: Duration::ZERO, max_streams: 200 }
    }
}

impl TlsServer {
    /// Starts a server that offers these protocols by ALPN, and a short answer.
    async fn start(protocols: &[&str]) -> Self {
        Self::start_as(protocols, ServerBehaviour::prompt()).await
    }

    /// Starts a server with this behaviour that offers these protocols by ALPN. Its certificate is its own authority,
    /// which the field `authorities` contains.
    pub(super) async fn start_as(protocols: &[&str], behaviour: ServerBehaviour) -> Self {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config =
            config.with_no_client_auth().with_single_cert(vec![cert.der().clone()], key).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}/v1", listener.local_addr().unwrap());
        let seen = Arc::new(ServerCounts::default());
        let sees = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                sees.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve_connection(
                    connection,
                    acceptor.clone(),
                    behaviour.clone(),
                    Arc::clone(&sees),
                ));
            }
        });
        Self { url, authorities: Authorities::read(cert.pem().as_bytes()).unwrap(), seen }
    }
}

/// Answers the requests of one connection, and counts them in `seen`.
async fn serve_connection(
    connection: TcpStream,
    acceptor: TlsAcceptor,
    behaviour: ServerBehaviour,
    seen: Arc<ServerCounts>,
) {
    // A client that does not trust the server ends the handshake.
    let Ok(connection) = acceptor.accept(connection).await else { return };
    let is_http2 = connection.get_ref().1.alpn_protocol() == Some(b"h2");
    let ServerBehaviour { answer, delay, max_streams } = behaviour;
    let service = service_fn(move |request: http::Request<Incoming>| {
        seen.versions.lock().unwrap().push(request.version());
        let body = Full::new(answer.clone());
        let answer = http::Response::builder().header("content-type", "text/event-stream").body(body);
        let seen = Arc::clone(&seen);
        async move {
            let open = seen.open.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most_open.fetch_max(open, Ordering::SeqCst);
            tokio::time::sleep(delay).await;
            seen.open.fetch_sub(1, Ordering::SeqCst);
            Ok::<_, Infallible>(answer.unwrap())
        }
    });
    let connection = TokioIo::new(connection);
    let _ = if is_http2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_concurrent_streams(max_streams).serve_connection(connection, service).await
    } else {
        http1::Builder::new().serve_connection(connection, service).await
    };
}

#[tokio::test]
async fn the_server_chooses_the_version() {
    let check = async |protocols: &[&str], expected: Version| {
        let server = TlsServer::start(protocols).await;
        let remote = remote(Api::ChatCompletions, &server.url).authorities(&server.authorities);
        let remote = remote.keep_connections(LONG);
        for _ in 0..2 {
            assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(*server.seen.versions.lock().unwrap(), [expected; 2], "{protocols:?}");
        server.seen.connections.load(Ordering::SeqCst)
    };
    check(&["http/1.1"], Version::HTTP_11).await;
    check(&[], Version::HTTP_11).await;
    let connections = check(&["h2", "http/1.1"], Version::HTTP_2).await;
    assert_eq!(connections, 1, "one connection of HTTP/2 serves all requests");
}

#[tokio::test]
async fn requests_share_a_connection_at_the_same_time() {
    let server = TlsServer::start(&["h2"]).await;
    let remote = remote(Api::ChatCompletions, &server.url).authorities(&server.authorities);
    let remote = remote.keep_connections(LONG);
    let (first, second, third) = tokio::join!(ask(&remote), ask(&remote), ask(&remote));
    for answered in [first, second, third] {
        assert_eq!(answered.0.unwrap().text, "hello");
    }
    assert_eq!(server.seen.versions.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn only_the_given_authorities_are_trusted() {
    let server = TlsServer::start(&["h2"]).await;
    let other = TlsServer::start(&["h2"]).await;
    for authorities in [Authorities::default(), other.authorities] {
        let remote = remote(Api::ChatCompletions, &server.url).authorities(&authorities);
        let error = ask(&remote).await.0.unwrap_err();
        assert_eq!(error, Error::Unreachable(UNTRUSTED.to_owned()));
    }
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 2, "not tried again");
    assert!(server.seen.versions.lock().unwrap().is_empty());
}

/// Requests share one HTTP/2 connection. If the listeners of some stop reading, a further request on this connection
/// still gets its answer.
#[tokio::test]
async fn listeners_that_are_not_ready_do_not_hold_up_others() {
    /// With so many answers, their unread bytes would exceed the limit of an HTTP/2 connection if each answer had no
    /// limit of its own.
    const SLOW: usize = 16;
    let comments = format!(": {}\n\n", "x".repeat(1020)).repeat(512);
    let text = stream(Api::ChatCompletions, "hello");
    let (first, rest) = text.split_at(text.split_inclusive("\n\n").take(2).map(str::len).sum());
    let answer = Bytes::from(format!("{first}{comments}{rest}"));
    let server = TlsServer::start_as(&["h2"], ServerBehaviour { answer, ..ServerBehaviour::prompt() }).await;
    let remote = remote(Api::ChatCompletions, &server.url).authorities(&server.authorities);
    let remote = remote.keep_connections(LONG);
    assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
    let mut slow = tokio::task::JoinSet::new();
    let heard = Arc::new(Semaphore::new(0));
    for _ in 0..SLOW {
        let (remote, heard) = (remote.clone(), Arc::clone(&heard));
        slow.spawn(async move { remote.complete(&request(), &mut StuckListener(heard)).await });
    }
    let _ = heard.acquire_many(SLOW as u32).await.unwrap();
    assert_eq!(ask(&remote).await.0.unwrap().text, "hello");
    assert!(slow.try_join_next().is_none());
    assert_eq!(server.seen.connections.load(Ordering::SeqCst), 1);
}

/// A listener that is never ready again after it has received something.
struct StuckListener(Arc<Semaphore>);

impl Listener for StuckListener {
    fn on_delta(&mut self, _: Delta<'_>) -> ControlFlow<()> {
        self.0.add_permits(1);
        ControlFlow::Continue(())
    }

    fn ready(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(std::future::pending())
    }
}
