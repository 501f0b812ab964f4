//! Tests of upstreams with HTTP/2, which limit the requests that are open on one connection.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flowgate_gateway::limits::ServerLimits;
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Barrier;
use tokio_rustls::TlsAcceptor;

use crate::certificates::TestAuthority;
use crate::gateway::{GatewayHome, KEY, POLICY, config};
use crate::upstream::says;

/// When a server answers a request.
#[derive(Clone)]
enum AnswerTime {
    After(Duration),
    /// When as many are open at the same time as the barrier has.
    Together(Arc<Barrier>),
}

/// A model's server that speaks HTTP/2 over TLS and says yes to every request.
struct Http2Upstream {
    url: String,
    authority: TestAuthority,
    counts: Arc<RequestCounts>,
    /// Serves until it is dropped.
    _runtime: tokio::runtime::Runtime,
}

#[derive(Default)]
struct RequestCounts {
    connections: AtomicUsize,
    /// The requests that were answered.
    answered: AtomicUsize,
}

impl Http2Upstream {
    /// Starts a server that permits `max_streams` open requests on a connection.
    fn start(max_streams: usize, time: AnswerTime) -> Self {
        let max_streams = u32::try_from(max_streams).unwrap();
        let authority = TestAuthority::new();
        let issued = authority.issue_for_gateway();
        let certificate = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut settings = builder.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        settings.alpn_protocols = vec![b"h2".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(settings));
        let counts = Arc::new(RequestCounts::default());
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("https://{}/v1", listener.local_addr().unwrap());
        let counted = Arc::clone(&counts);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.connections.fetch_add(1, Ordering::SeqCst);
                let (time, counts) = (time.clone(), Arc::clone(&counted));
                tokio::spawn(serve(stream, acceptor.clone(), max_streams, time, counts));
            }
        });
        Self { url, authority, counts, _runtime: runtime }
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    max_streams: u32,
    time: AnswerTime,
    counts: Arc<RequestCounts>,
) {
    let Ok(stream) = acceptor.accept(stream).await else { return };
    let service =
        service_fn(move |request: Request<Incoming>| answer(request, time.clone(), Arc::clone(&counts)));
    let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = builder.max_concurrent_streams(max_streams).serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(
    request: Request<Incoming>,
    time: AnswerTime,
    counts: Arc<RequestCounts>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    assert_eq!(request.version(), Version::HTTP_2);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    match time {
        AnswerTime::After(delay) => tokio::time::sleep(delay).await,
        AnswerTime::Together(barrier) => {
            barrier.wait().await;
        }
    }
    let wants_stream = serde_json::from_slice::<serde_json::Value>(&body).unwrap()["stream"] == true;
    let (api, completion) = (Api::ChatCompletions, says("Yes."));
    let head = ResponseHead {
        id: "r",
        model: "double",
        created: 0,
        tools: &ONLY_FUNCTIONS,
        storage: AnswerStorage::NotStored,
    };
    let (kind, text) = if wants_stream {
        let events = api.encode_stream(&completion, head, true);
        ("text/event-stream", events.iter().map(|event| event.encode()).collect::<String>())
    } else {
        ("application/json", api.encode_response(&completion, head).to_string())
    };
    counts.answered.fetch_add(1, Ordering::SeqCst);
    Ok(Response::builder().header("content-type", kind).body(Full::new(Bytes::from(text))).unwrap())
}

/// Sends this many turns, of conversations of their own, each so long after the one before. Returns the statuses and
/// bodies of those that are not answered.
fn ask_many(upstream: &Http2Upstream, turns: usize, pause: Duration) -> Vec<(u16, String)> {
    let more = "parallel = 256\nrequests-per-minute = 10000";
    let text = config(&upstream.url, "chat-completions", more)
        .replace("key-from = \"UPSTREAM\"\n", "key-from = \"UPSTREAM\"\nca-file = \"authority.pem\"\n");
    let home = GatewayHome::new(&text, POLICY);
    std::fs::write(home.folder().join("authority.pem"), &upstream.authority.pem).unwrap();
    let limits = ServerLimits { connections_of_address: 0, ..ServerLimits::default() };
    let (gateway, _log) = home.start_within(limits);
    let ask = |number: usize| {
        let message = json!({"role": "user", "content": format!("Question {number}")});
        let body =
            json!({"model": "double", "messages": [message], "stream": number.is_multiple_of(2)}).to_string();
        let key = format!("Bearer {KEY}");
        gateway.post("/v1/chat/completions", &[("authorization", key.as_str())], &body)
    };
    let is_refused = |(status, body): &(u16, String)| *status != 200 || !body.contains("Yes.");
    let refused = std::thread::scope(|scope| {
        let begin = |number| {
            std::thread::sleep(pause);
            scope.spawn(move || ask(number))
        };
        let threads: Vec<_> = (0..turns).map(begin).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(is_refused).collect()
    });
    gateway.stop();
    refused
}

/// Turns that find the connection to the upstream full wait for those before them, for longer than connecting may take,
/// and all are answered.
#[test]
fn turns_beyond_the_streams_of_an_upstream_wait() {
    const TURNS: usize = 64;
    const STREAMS: usize = 4;
    // The last turns wait for 24 seconds. Connecting may take 10, and is tried twice.
    let upstream = Http2Upstream::start(STREAMS, AnswerTime::After(Duration::from_millis(1600)));
    let refused = ask_many(&upstream, TURNS, Duration::from_millis(20));
    assert!(refused.is_empty(), "{} of {TURNS}: {:?}", refused.len(), refused.first());
    assert_eq!(upstream.counts.answered.load(Ordering::SeqCst), TURNS);
}

/// A burst that is larger than what an upstream permits on one connection is answered over several.
#[test]
fn turns_of_a_burst_use_several_connections() {
    const TURNS: usize = 150;
    let upstream = Http2Upstream::start(100, AnswerTime::Together(Arc::new(Barrier::new(TURNS))));
    let refused = ask_many(&upstream, TURNS, Duration::ZERO);
    assert!(refused.is_empty(), "{} of {TURNS}: {:?}", refused.len(), refused.first());
    assert_eq!(upstream.counts.answered.load(Ordering::SeqCst), TURNS);
    assert!(upstream.counts.connections.load(Ordering::SeqCst) > 1);
}
