//! Tests of HTTP/2: many requests share a connection, and every bound that holds for HTTP/1.1 holds for each of them.

use std::net::SocketAddr;
use std::time::Duration;

use flowgate_gateway::limits::ServerLimits;
use h2::RecvStream;
use h2::client::{ResponseFuture, SendRequest};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::{JoinHandle, JoinSet};

use crate::certificates::{connect, run};
use crate::gateway::{GatewayHome, KEY, PATIENCE, POLICY, config};
use crate::tls::TlsGateway;
use crate::upstream::{UpstreamDouble, says, text_of};

const FOREVER: Duration = Duration::from_secs(3600);
/// What is done in time is done within this also on a slow machine.
const SOON: Duration = Duration::from_secs(1);
const CHAT: &str = "/v1/chat/completions";

/// A connection of HTTP/2.
struct Http2Client {
    send: SendRequest<Bytes>,
    authority: String,
    /// Completed when the connection has ended.
    ended: JoinHandle<Result<(), h2::Error>>,
}

/// An answer that has ended.
#[derive(Debug)]
struct Http2Answer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl Http2Client {
    /// Connects by TLS.
    async fn connect(server: &TlsGateway) -> Self {
        let config = server.authority.client(&["h2", "http/1.1"], None);
        let stream = connect(server.gateway.address, config).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        Self::begin(stream, server.gateway.address, &h2::client::Builder::new()).await
    }

    async fn begin(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        address: SocketAddr,
        builder: &h2::client::Builder,
    ) -> Self {
        let (send, connection) = builder.handshake(stream).await.unwrap();
        Self { send, authority: address.to_string(), ended: tokio::spawn(connection) }
    }

    fn request(&self, method: Method, path: &str) -> hyper::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {KEY}"))
    }

    /// Sends a request without waiting for its answer.
    async fn begin_request(
        &self,
        request: hyper::http::request::Builder,
        body: Option<&str>,
    ) -> ResponseFuture {
        let mut send = self.send.clone().ready().await.unwrap();
        let (answer, mut stream) = send.send_request(request.body(()).unwrap(), body.is_none()).unwrap();
        if let Some(body) = body {
            stream.send_data(Bytes::from(body.to_owned()), true).unwrap();
        }
        answer
    }

    async fn post(&self, path: &str, body: &Value) -> Http2Answer {
        let request = self.request(Method::POST, path);
        read(self.begin_request(request, Some(&body.to_string())).await).await.unwrap()
    }

    async fn get(&self, path: &str) -> Http2Answer {
        read(self.begin_request(self.request(Method::GET, path), None).await).await.unwrap()
    }
}

/// Reads an answer to its end.
async fn read(answer: ResponseFuture) -> Result<Http2Answer, h2::Error> {
    let (head, mut body) = answer.await?.into_parts();
    let mut text = String::new();
    while let Some(data) = next(&mut body).await {
        text.push_str(&data?);
    }
    Ok(Http2Answer { status: head.status.as_u16(), headers: head.headers, body: text })
}

async fn next(body: &mut RecvStream) -> Option<Result<String, h2::Error>> {
    let data = body.data().await?;
    Some(data.map(|data| {
        body.flow_control().release_capacity(data.len()).unwrap();
        String::from_utf8(data.to_vec()).unwrap()
    }))
}

fn chat(says: &str, stream: bool) -> Value {
    json!({"model": "double", "stream": stream, "messages": [{"role": "user", "content": says}]})
}

fn text_in(answer: &Http2Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    let answer: Value = serde_json::from_str(&answer.body).unwrap();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Repeats what the user says.
fn echo(request: &flowgate_lm::chat::Request) -> flowgate_lm::chat::Completion {
    let asked = text_of(request);
    let number: String = asked.chars().filter(char::is_ascii_digit).collect();
    says(&format!("You said {number}."))
}

fn start(
    mind: impl Fn(&flowgate_lm::chat::Request) -> flowgate_lm::chat::Completion + Send + Sync + 'static,
) -> TlsGateway {
    let upstream = UpstreamDouble::new(mind);
    TlsGateway::start_before(&upstream.url, "", POLICY, ServerLimits::default())
}

/// What happens to a connection of [`silent_upstream`].
#[derive(Debug, PartialEq)]
enum UpstreamEvent {
    Asked,
    Ended,
}

/// A model's server that answers no request; returns its address, and what happens to its connections.
async fn silent_upstream() -> (String, UnboundedReceiver<UpstreamEvent>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (sender, events) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let sender = sender.clone();
            tokio::spawn(async move {
                let mut read = [0; 4096];
                if stream.read(&mut read).await.is_ok_and(|count| count > 0) {
                    let _ = sender.send(UpstreamEvent::Asked);
                }
                while stream.read(&mut read).await.is_ok_and(|count| count > 0) {}
                let _ = sender.send(UpstreamEvent::Ended);
            });
        }
    });
    (url, events)
}

#[test]
fn requests_share_a_connection() {
    let server = start(echo);
    run(async {
        let client = Http2Client::connect(&server).await;
        let mut answers = JoinSet::new();
        for number in 0..30 {
            let request = client.request(Method::POST, CHAT);
            let asked = chat(&format!("Number {number}"), number % 2 == 0).to_string();
            let answer = client.begin_request(request, Some(&asked)).await;
            answers.spawn(async move { (number, read(answer).await.unwrap()) });
        }
        for (number, answer) in answers.join_all().await {
            let expected = format!("You said {number}.");
            if number % 2 == 0 {
                assert_eq!(answer.status, 200, "{answer:?}");
                assert!(answer.body.ends_with("data: [DONE]\n\n"), "{answer:?}");
                let events = answer.body.lines().filter_map(|line| line.strip_prefix("data: {"));
                let said: String = events
                    .map(|event| serde_json::from_str::<Value>(&format!("{{{event}")).unwrap())
                    .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
                    .collect();
                assert_eq!(said, expected);
            } else {
                assert_eq!(text_in(&answer), expected);
            }
            assert!(answer.headers.contains_key("x-flowgate-conversation"));
        }
        let metrics = client.get("/metrics").await;
        assert!(metrics.body.lines().any(|line| line == "flowgate_connections 1"), "{}", metrics.body);
    });
    server.gateway.stop();
    assert!(!server.log.rest().contains("limit"));
}

/// Without TLS, a connection may begin as HTTP/2 without negotiation.
#[test]
fn http2_needs_no_tls() {
    let upstream = UpstreamDouble::new(echo);
    let home = GatewayHome::new(&config(&upstream.url, "chat-completions", ""), POLICY);
    let gateway = home.start();
    run(async {
        let stream = TcpStream::connect(gateway.address).await.unwrap();
        let client = Http2Client::begin(stream, gateway.address, &h2::client::Builder::new()).await;
        assert_eq!(text_in(&client.post(CHAT, &chat("Number 7", false)).await), "You said 7.");
    });
    gateway.stop();
}

/// A stream that waits for its model delays no other one on its connection, and ends when the gateway stops.
#[test]
fn streams_do_not_wait_for_each_other() {
    let story = "A story that takes its time, and is not at its end yet. PAUSE Now it is.";
    let upstream = UpstreamDouble::pausing(
        move |request| if text_of(request).contains("story") { says(story) } else { echo(request) },
        PATIENCE,
    );
    let policy = POLICY.split("raise ").next().unwrap();
    let limits = ServerLimits { drain_time: FOREVER, ..ServerLimits::default() };
    let server = TlsGateway::start_before(&upstream.url, "", policy, limits);
    run(async {
        let client = Http2Client::connect(&server).await;
        let request = client.request(Method::POST, CHAT);
        let answer = client.begin_request(request, Some(&chat("Tell a story", true).to_string())).await;
        let mut body = answer.await.unwrap().into_body();
        let mut heard = next(&mut body).await.unwrap().unwrap();
        for number in 0..10 {
            let answer = client.post(CHAT, &chat(&format!("Number {number}"), false)).await;
            assert_eq!(text_in(&answer), format!("You said {number}."));
        }
        let stops = std::thread::spawn(|| server.gateway.stop());
        // The gateway accepts no more connections, and lets the stream end.
        while TcpStream::connect(client.authority.as_str()).await.is_ok() {}
        upstream.go_on.send(()).unwrap();
        while let Some(data) = next(&mut body).await {
            heard.push_str(&data.unwrap());
        }
        assert!(heard.ends_with("data: [DONE]\n\n"), "{heard}");
        // The server closes the connection; a last frame of the client may find it closed.
        let _ = client.ended.await.unwrap();
        stops.join().unwrap();
    });
}

/// Begins this number of turns in conversations of their own, all of which reach the model.
async fn begin_turns(
    client: &Http2Client,
    events: &mut UnboundedReceiver<UpstreamEvent>,
    count: usize,
    stream: bool,
) -> Vec<ResponseFuture> {
    let mut answers = Vec::new();
    for number in 0..count {
        let asked = chat(&format!("Number {number} {stream}"), stream).to_string();
        answers.push(client.begin_request(client.request(Method::POST, CHAT), Some(&asked)).await);
        assert_eq!(events.recv().await, Some(UpstreamEvent::Asked));
    }
    answers
}

/// A client that resets a stream ends its turn, and no other one.
#[test]
fn a_reset_ends_the_turn() {
    run(async {
        let (url, mut events) = silent_upstream().await;
        let server = TlsGateway::start_before(&url, "", POLICY, ServerLimits::default());
        let client = Http2Client::connect(&server).await;
        for stream in [true, false] {
            let mut answers = begin_turns(&client, &mut events, 2, stream).await;
            for _ in 0..2 {
                drop(answers.pop());
                assert_eq!(events.recv().await, Some(UpstreamEvent::Ended));
                assert_eq!(client.get("/health").await.status, 200);
                assert!(events.try_recv().is_err(), "the other turn waits for its model");
            }
        }
        assert!(!client.ended.is_finished());
    });
}

/// The end of a connection ends all of its turns.
#[test]
fn a_closed_connection_ends_its_turns() {
    run(async {
        let (url, mut events) = silent_upstream().await;
        let server = TlsGateway::start_before(&url, "", POLICY, ServerLimits::default());
        let client = Http2Client::connect(&server).await;
        let answers = begin_turns(&client, &mut events, 3, false).await;
        client.ended.abort();
        for _ in 0..3 {
            assert_eq!(events.recv().await, Some(UpstreamEvent::Ended));
        }
        drop(answers);
    });
}

/// A client that cancels its requests again and again loses the connection, and others do not notice.
#[test]
fn a_flood_of_resets_ends_the_connection() {
    run(async {
        let upstream = UpstreamDouble::new(echo);
        let more = "parallel = 1000\nrequests-per-minute = 100000";
        let limits = ServerLimits { body_time: FOREVER, ..ServerLimits::default() };
        let mut server = TlsGateway::start_before(&upstream.url, more, POLICY, limits);
        let flooding = Http2Client::connect(&server).await;
        'flood: loop {
            let mut open = Vec::new();
            for _ in 0..10 {
                let Ok(mut send) = flooding.send.clone().ready().await else { break 'flood };
                // Its body never ends.
                let request = flooding.request(Method::POST, CHAT).body(()).unwrap();
                let Ok(begun) = send.send_request(request, false) else { break 'flood };
                open.push(begun);
            }
            // The gateway has seen the requests when it answers this one.
            let Ok(mut send) = flooding.send.clone().ready().await else { break };
            let health = flooding.request(Method::GET, "/health").body(()).unwrap();
            let Ok((healthy, _)) = send.send_request(health, true) else { break };
            if healthy.await.is_err() {
                break;
            }
        }
        let _ = flooding.ended.await.unwrap();
        let other = Http2Client::connect(&server).await;
        assert_eq!(text_in(&other.post(CHAT, &chat("Number 1", false)).await), "You said 1.");
        let line = server.log.next("limit");
        assert_eq!(line["limit"], "cancelled requests of one connection, less its answered ones");
    });
}

/// The requests of one connection are counted like connections.
#[test]
fn requests_of_a_connection_are_admitted_like_connections() {
    run(async {
        let upstream = UpstreamDouble::new(echo);
        let limits = ServerLimits {
            connections_of_address: 4,
            body_time: FOREVER,
            head_time: FOREVER,
            ..ServerLimits::default()
        };
        let more = "[policy-api]\nallow-anonymous = true";
        let mut server = TlsGateway::start_before(&upstream.url, more, POLICY, limits);
        let client = Http2Client::connect(&server).await;
        let mut open = Vec::new();
        for _ in 0..4 {
            let mut send = client.send.clone().ready().await.unwrap();
            let request = client.request(Method::POST, "/api/v1/policy/load").body(()).unwrap();
            open.push(send.send_request(request, false).unwrap());
        }
        let refused = client.get("/health").await;
        assert_eq!(refused.status, 503, "{refused:?}");
        assert!(refused.headers.contains_key("retry-after"));
        let line = server.log.next("limit");
        assert_eq!(line["limit"], "connections of one address without a valid key");
        // One of them ends, and makes room.
        let (answer, mut body) = open.pop().unwrap();
        body.send_data(Bytes::from_static(b"{\"policy\": \"\"}"), true).unwrap();
        assert_eq!(read(answer).await.unwrap().status, 200);
        assert_eq!(client.get("/health").await.status, 200);
    });
}

/// A stream of whose answer the client accepts nothing is reset, and others of its connection are not.
#[test]
fn an_answer_that_is_not_read_is_reset() {
    run(async {
        let upstream = UpstreamDouble::new(echo);
        let limits = ServerLimits { write_time: SOON, ..ServerLimits::default() };
        let server = TlsGateway::start_before(&upstream.url, "", POLICY, limits);
        let config = server.authority.client(&["h2"], None);
        let stream = connect(server.gateway.address, config).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1000);
        let client = Http2Client::begin(stream, server.gateway.address, &builder).await;
        let request = client.request(Method::GET, "/api/openapi.json");
        let unread = client.begin_request(request, None).await.await.unwrap();
        assert_eq!(unread.status(), 200);
        let mut body = unread.into_body();
        let ended = loop {
            // The received bytes are not released.
            match body.data().await.unwrap() {
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(ended.reason(), Some(h2::Reason::CANCEL));
        assert_eq!(text_in(&client.post(CHAT, &chat("Number 1", false)).await), "You said 1.");
    });
}

#[test]
fn a_connection_without_requests_is_closed() {
    run(async {
        let upstream = UpstreamDouble::new(echo);
        let limits = ServerLimits { head_time: SOON, ..ServerLimits::default() };
        let server = TlsGateway::start_before(&upstream.url, "", POLICY, limits);
        let idle = Http2Client::connect(&server).await;
        // How the client notices is up to its library.
        let _ = idle.ended.await.unwrap();
        // One that does not even begin.
        let mut stream =
            connect(server.gateway.address, server.authority.client(&["h2"], None)).await.unwrap();
        let _ = stream.read_to_end(&mut Vec::new()).await;
    });
}

/// What HTTP/1.1 cannot express is refused, or has the same form at the routes.
#[test]
fn heads_are_checked() {
    let server = start(echo);
    run(async {
        let client = Http2Client::connect(&server).await;
        let check = async |method: Method, uri: &str, headers: &[(&str, &str)], expected: u16, text: &str| {
            let mut request = Request::builder().method(method).uri(uri);
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            let answer = read(client.begin_request(request, None).await).await.unwrap();
            assert!(answer.status == expected && answer.body.contains(text), "{uri} {headers:?} {answer:?}");
        };
        let own = format!("https://{}/metrics", client.authority);
        let host = client.authority.clone();
        check(Method::GET, &own, &[], 200, "flowgate_connections").await;
        check(Method::GET, &own, &[("host", &host)], 200, "flowgate_connections").await;
        check(Method::GET, &own, &[("host", "localhost")], 400, "differs from the host in `:authority`")
            .await;
        check(Method::GET, &own, &[("host", &host), ("host", "localhost")], 400, "header `Host` twice").await;
        check(Method::GET, "https://evil.example/metrics", &[], 403, "names a host other than this machine")
            .await;
        let many: Vec<(&str, &str)> = vec![("x-many", "1"); 65];
        check(Method::GET, &own, &many, 431, "more than 64 header fields").await;
        check(Method::PUT, &own, &[], 405, "supports only the method GET").await;
        let long = "x".repeat(40_000);
        let answer = client.begin_request(Request::get(&own).header("x-long", &long), None).await;
        let status = read(answer).await.map(|answer| answer.status);
        assert!(matches!(status, Ok(431) | Err(_)), "{status:?}");
    });
}

#[test]
fn bodies_have_the_limits_of_http1() {
    run(async {
        let upstream = UpstreamDouble::new(echo);
        let limits = ServerLimits { body: 10_000, body_time: SOON, ..ServerLimits::default() };
        let server = TlsGateway::start_before(&upstream.url, "", POLICY, limits);
        let client = Http2Client::connect(&server).await;
        let long = chat(&"x".repeat(20_000), false);
        assert_eq!(client.post(CHAT, &long).await.status, 413);
        let mut send = client.send.clone().ready().await.unwrap();
        let request = client.request(Method::POST, CHAT).body(()).unwrap();
        let (answer, mut body) = send.send_request(request, false).unwrap();
        body.send_data(Bytes::from_static(b"{"), false).unwrap();
        assert_eq!(read(answer).await.unwrap().status, 408);
        assert_eq!(text_in(&client.post(CHAT, &chat("Number 1", false)).await), "You said 1.");
    });
}
