//! Tests of the server over sockets, with an independent HTTP client.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use flowgate::policy::Dialect;
use flowgate_gateway::http::access::{AccessControl, BearerToken};
use flowgate_gateway::http::server::{HttpServer, ServeConfig, ShutdownOutcome};
use flowgate_gateway::limits::ServerLimits;
use flowgate_gateway::log::OperatorLog;
use flowgate_gateway::openapi;
use flowgate_gateway::predicates::PredicateSources;
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::{HeaderMap, Method, Request};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

const LOAD: &str = "/api/v1/policy/load";
const CHECK: &str = "/api/v1/policy/check";
const BATCH: &str = "/api/v1/policy/check/batch";

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(300);
const SHORT: Duration = Duration::from_millis(50);

/// A running server.
struct RunningServer {
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<ShutdownOutcome>,
}

async fn start_as(dialect: Dialect, access: AccessControl, limits: ServerLimits) -> RunningServer {
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = HttpServer::bind(ServeConfig {
        listen,
        dialect,
        access,
        predicate_sources: PredicateSources::default(),
        models: None,
        loader: None,
        limits,
        log: OperatorLog::default(),
    })
    .await
    .unwrap();
    let address = server.address();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(server.run(async {
        let _ = stopped.await;
    }));
    RunningServer { address, stop, ended }
}

async fn start(limits: ServerLimits) -> RunningServer {
    start_as(Dialect::Flowgate, AccessControl::Local, limits).await
}

struct HttpAnswer {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl HttpAnswer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    fn detail(&self) -> String {
        format!("{} {}", self.status, self.json()["detail"].as_str().unwrap_or("(no detail)"))
    }
}

impl RunningServer {
    async fn send(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> HttpAnswer {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path);
        let host = self.address.to_string();
        let known = |name: &str| headers.iter().any(|(given, _)| *given == name);
        for (name, value) in [("host", host.as_str()), ("content-type", "application/json")] {
            if !known(name) {
                request = request.header(name, value);
            }
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let (head, body) = client.send_request(request).await.unwrap().into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        HttpAnswer {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    async fn post(&self, path: &str, body: &Value) -> HttpAnswer {
        self.send(Method::POST, path, &[], &body.to_string()).await
    }

    async fn get(&self, path: &str) -> HttpAnswer {
        self.send(Method::GET, path, &[], "").await
    }

    /// Sends bytes, and reads until the server closes the connection.
    async fn raw(&self, bytes: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(bytes.as_bytes()).await.unwrap();
        rest(stream).await
    }
}

async fn rest(mut stream: TcpStream) -> String {
    let mut read = Vec::new();
    timeout(LONG, stream.read_to_end(&mut read)).await.unwrap().unwrap();
    String::from_utf8(read).unwrap()
}

/// Compares a text with a golden file.
fn golden(name: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, printed).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        printed, expected,
        "{name}; UPDATE_GOLDEN=1 cargo test writes it anew, then read the difference"
    );
}

#[tokio::test]
async fn wire_formats_are_stable() {
    let policy = "raise \"no code after mail\" if:\n    (mail: ToolCall) -> (code: ToolCall)\n    mail is tool:read_mail\n    code is tool:run_code\n";
    let odd = "raise \"x\" if:\n    (a: ToolCall) -> (b: ToolCall)\n    b -> (c: Message)\n";
    let broken = "abc :=\n    12 + CodeIssue\n\nraise \"x\" if:\n    (m: Mesage)\n";
    let messages = json!([{"role": "user", "content": "what is new?"}]);
    let saying = "raise Violation(\"a key\", call, limit=2) if:\n    (call: ToolCall) is tool:send\n    \"key\" in call.arguments.body\n";
    let sending = |arguments: &str| {
        let function = json!({"name": "send", "arguments": arguments});
        json!([{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": function}]}])
    };
    let found = sending(r#"{"body": "the key is under the mat"}"#);
    let unreadable = sending(r#"{"body": "the key", "body": "nothing"}"#);
    let rows = [
        ("load", LOAD, json!({"policy": policy})),
        ("load-warning", LOAD, json!({"policy": odd})),
        ("load-error", LOAD, json!({"policy": broken})),
        ("check", CHECK, json!({"messages": messages, "policy": policy, "parameters": {}})),
        ("check-violation", CHECK, json!({"messages": found, "policy": saying})),
        ("check-failure", CHECK, json!({"messages": unreadable, "policy": saying})),
        ("check-error", CHECK, json!({"messages": messages, "policy": broken, "parameters": {}})),
        (
            "check-no-trace",
            CHECK,
            json!({"messages": [{"role": "user", "content": ""}, {"content": ""}], "policy": policy}),
        ),
        (
            "batch",
            BATCH,
            json!({"messages": messages, "policies": [policy, broken], "parameters": {}, "dataset_name": "d"}),
        ),
    ];
    let server = start(ServerLimits::default()).await;
    for (name, path, body) in rows {
        let answer = server.post(path, &body).await;
        assert_eq!(answer.headers["content-type"], "application/json");
        let exchange = json!({"request": {"POST": path, "body": body}, "status": answer.status, "answer": answer.json()});
        golden(&format!("{name}.json"), &format!("{exchange:#}\n"));
    }
}

#[tokio::test]
async fn a_load_error_shows_the_place() {
    let server = start(ServerLimits::default()).await;
    let answer = server.post(LOAD, &json!({"policy": "abc :=\n    12 + CodeIssue\n"})).await;
    let report = answer.json()["detail"].as_str().unwrap().to_owned();
    let lines: Vec<&str> = report.lines().collect();
    let line = lines.iter().position(|line| line.contains("12 + CodeIssue")).unwrap();
    assert_eq!(lines[line + 1].find('^'), lines[line].find("CodeIssue"), "{report}");
}

#[tokio::test]
async fn unanswerable_requests_are_refused_with_advice() {
    let server = start(ServerLimits { body: 200, ..ServerLimits::default() }).await;
    let json = ("content-type", "application/json");
    let long = format!("{{\"policy\":\"{}\"}}", "#".repeat(300));
    let rows = [
        (
            Method::POST,
            LOAD,
            json,
            r#"{"policy":"","policy":""}"#,
            "400 the body of the request is not valid JSON: duplicate key at line 1 column 21",
        ),
        (
            Method::POST,
            CHECK,
            json,
            r#"{"messages":[],"policy":""#,
            "400 the body of the request is not valid JSON: EOF while parsing a string at line 1 column 25",
        ),
        (
            Method::POST,
            CHECK,
            json,
            r#"{"messages":[{"role":"user","role":"system"}],"policy":""}"#,
            "400 the body of the request is not valid JSON: duplicate key at line 1 column 34",
        ),
        (
            Method::POST,
            CHECK,
            json,
            r#"{"messages":[3],"policy":""}"#,
            "400 Input Validation Error: messages[0]: the message is not a JSON object; write one with a `role`",
        ),
        (
            Method::POST,
            CHECK,
            ("content-type", "text/plain"),
            "{}",
            "415 the request does not declare its body as JSON: send `Content-Type: application/json`",
        ),
        (
            Method::POST,
            LOAD,
            ("content-type", "Application/JSON; charset=utf-8"),
            "{}",
            "400 the body of the request has no field `policy`: add it",
        ),
        (
            Method::POST,
            LOAD,
            json,
            &long,
            "413 the body is larger than 200 bytes: send fewer messages, or start the server with a larger --max-body",
        ),
        (
            Method::GET,
            LOAD,
            json,
            "",
            "405 /api/v1/policy/load supports only the method POST: send the request with this method",
        ),
        (
            Method::POST,
            "/metrics",
            json,
            "",
            "405 /metrics supports only the method GET: send the request with this method",
        ),
        (
            Method::GET,
            "/api/v1/policy",
            json,
            "",
            "404 there is no route with this path: use one of these routes: POST /v1/chat/completions, POST /v1/responses, POST /v1/messages, POST /v1/messages/count_tokens, POST /v1beta/models/{target}, POST /v1/models/{target}, GET /v1beta/models, POST /api/v1/policy/load, POST /api/v1/policy/check, POST /api/v1/policy/check/batch, GET /api/openapi.json, GET /api/v1/gateway/health, GET /health, GET /metrics, POST /v1/embeddings, POST /api/v1/handed-calls, POST /beta/litellm_basic_guardrail_api, POST /envoy.service.ext_proc.v3.ExternalProcessor/Process, GET /v1/models, GET /api/v1/approvals, POST /api/v1/approvals, GET /api/v1/approvals/events, GET /api/v1/approvals/{id}, POST /api/v1/approvals/{id}, GET /api/v1/freezes, POST /api/v1/freezes, GET /api/v1/grants, DELETE /api/v1/grants/{id}, GET /api/v1/keys, POST /api/v1/keys, DELETE /api/v1/keys/{id}, POST /api/v1/audit/forget, GET /api/v1/quotations, POST /api/v1/quotations/clear, GET /api/v1/policies, GET /api/v1/policies/usage, POST /api/v1/policies/dry-run, POST /api/v1/policies/reload, POST /mcp/{server}, GET /mcp/{server}, DELETE /mcp/{server}, GET /ui, GET /ui/, GET /ui/login, GET /ui/login/callback, GET /ui/{file}, GET /ui/api/session, POST /ui/api/session, DELETE /ui/api/session, POST /ui/api/login-link, GET /ui/api/conversations, GET /ui/api/conversation, GET /ui/api/trace, GET /ui/api/figures, GET /ui/api/coverage",
        ),
        (Method::GET, "/health", ("host", "evil.example"), "", "200 (no detail)"),
        (
            Method::POST,
            LOAD,
            ("host", "evil.example"),
            "{}",
            "403 the header `Host` names a host other than this machine: send the request to `localhost`, since a \
            server without a token accepts only that and loopback addresses",
        ),
    ];
    for (method, path, header, body, expected) in rows {
        let answer = server.send(method, path, &[header], body).await;
        assert_eq!(answer.detail(), expected, "{path}");
    }
    assert_eq!(server.get(LOAD).await.headers["allow"], "POST");
}

#[tokio::test]
async fn a_token_is_asked_for() {
    let token = BearerToken::new("0123456789abcdef").unwrap();
    let server = start_as(Dialect::Flowgate, AccessControl::Token(token), ServerLimits::default()).await;
    let check = async |path: &str, authorization: &str, expected: u16| {
        let headers = [("authorization", authorization), ("host", "flowgate.example")];
        let answer = server.send(Method::GET, path, &headers, "").await;
        assert_eq!(answer.status, expected, "{path} {authorization}");
        assert_eq!(answer.headers.contains_key("www-authenticate"), expected == 401);
    };
    check("/metrics", "Bearer 0123456789abcdef", 200).await;
    check("/metrics", "Bearer 0123456789abcdeg", 401).await;
    check("/metrics", "", 401).await;
    check("/nowhere", "", 401).await;
    check("/nowhere", "Bearer 0123456789abcdef", 404).await;
    check("/health", "", 200).await;
    check("/api/openapi.json", "", 200).await;
}

#[tokio::test]
async fn too_much_at_the_same_time_is_put_off() {
    // Compiling this policy takes so long that a time limit of zero expires before it ends.
    let body = json!({"policy": "raise \"x\" if:\n    (m: Message)\n".repeat(3000)});
    for limits in [
        ServerLimits { bodies: 10, ..ServerLimits::default() },
        ServerLimits { answer_time: Duration::ZERO, ..ServerLimits::default() },
    ] {
        let server = start(limits).await;
        let answer = server.post(LOAD, &body).await;
        assert_eq!(answer.status, 503, "{}", answer.body);
        assert!(answer.headers.contains_key("retry-after"));
    }
}

#[tokio::test]
async fn bytes_of_bodies_are_given_back() {
    let server = start(ServerLimits { bodies: 40, ..ServerLimits::default() }).await;
    for _ in 0..5 {
        assert_eq!(server.post(LOAD, &json!({"policy": "# nothing"})).await.status, 200);
    }
}

#[tokio::test]
async fn a_client_that_sends_too_much_sees_why() {
    let server = start(ServerLimits { body: 4 << 20, ..ServerLimits::default() }).await;
    for mib in [5, 20] {
        let body = json!({"policy": "#".repeat(mib << 20)});
        assert_eq!(timeout(LONG, server.post(LOAD, &body)).await.unwrap().status, 413);
    }
}

#[tokio::test]
async fn slow_clients_lose_their_connection() {
    let limits = ServerLimits { head_time: SHORT, body_time: SHORT, ..ServerLimits::default() };
    let server = start(limits).await;
    let head = format!("POST {LOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n");
    // No bytes; half a head; half a body; nothing after an answer.
    assert_eq!(server.raw("").await, "");
    assert!(!server.raw(&head).await.contains("200 OK"));
    let answer = server.raw(&format!("{head}Content-Length: 10\r\n\r\n{{")).await;
    assert!(
        answer.starts_with("HTTP/1.1 408 ") && answer.contains("did not arrive within 0.05 s"),
        "{answer}"
    );
    // This request is in time even on a slow machine.
    let limits = ServerLimits { head_time: Duration::from_secs(5), ..ServerLimits::default() };
    let server = start(limits).await;
    let answer = server.raw("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test]
async fn more_connections_than_places_wait() {
    let server = start(ServerLimits { connections: 1, ..ServerLimits::default() }).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let second = server.get("/health");
    let mut second = std::pin::pin!(second);
    assert!(timeout(SHORT, second.as_mut()).await.is_err(), "there is one place");
    drop(first);
    assert_eq!(timeout(LONG, second).await.unwrap().status, 200);
}

#[tokio::test]
async fn a_stopping_server_completes_running_requests() {
    let body = r#"{"policy":""}"#;
    let head = format!(
        "POST {LOAD} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    for (drain_time, is_drained) in [(LONG, true), (SHORT, false)] {
        let server = start(ServerLimits { drain_time, ..ServerLimits::default() }).await;
        let idle = TcpStream::connect(server.address).await.unwrap();
        let mut begun = TcpStream::connect(server.address).await.unwrap();
        begun.write_all(head.as_bytes()).await.unwrap();
        // A later response shows that the server has accepted the connections.
        let connections = |metrics: &str| metrics.lines().any(|line| line == "flowgate_connections 3");
        while !connections(&server.get("/metrics").await.body) {}
        server.stop.send(()).unwrap();
        if is_drained {
            assert_eq!(rest(idle).await, "");
            assert!(TcpStream::connect(server.address).await.is_err());
            begun.write_all(body.as_bytes()).await.unwrap();
            let answer = rest(begun).await;
            assert!(answer.ends_with(r#"{"warnings":[]}"#), "{answer}");
            assert_eq!(server.ended.await.unwrap(), ShutdownOutcome::Drained);
        } else {
            assert_eq!(server.ended.await.unwrap(), ShutdownOutcome::Cut);
        }
    }
}

#[tokio::test]
async fn requests_are_counted_by_route_and_status() {
    let server = start(ServerLimits::default()).await;
    let (good, bad) = (json!({"policy": "", "messages": []}), json!({"policy": "raise", "messages": []}));
    for body in [&good, &good, &bad] {
        server.post(CHECK, body).await;
    }
    server.get("/nowhere").await;
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.headers["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    for line in [
        r#"flowgate_requests_total{route="/api/v1/policy/check",status="200"} 2"#,
        r#"flowgate_requests_total{route="/api/v1/policy/check",status="400"} 1"#,
        r#"flowgate_requests_total{route="other",status="404"} 1"#,
        r#"flowgate_request_seconds_count{route="/api/v1/policy/check"} 3"#,
        "flowgate_policy_cache_hits_total 1",
        "flowgate_policy_cache_policies 1",
    ] {
        assert!(metrics.body.lines().any(|printed| printed == line), "{line} is not in\n{}", metrics.body);
    }
}

#[tokio::test]
async fn the_description_is_served_and_its_examples_work() {
    let server = start(ServerLimits::default()).await;
    let answer = server.get("/api/openapi.json").await;
    assert_eq!(answer.body, openapi::DOCUMENT);
    for (path, methods) in answer.json()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let example = &operation["requestBody"]["content"]["application/json"]["example"];
            let answer = match method.as_str() {
                "post" => server.post(path, example).await,
                "delete" => server.send(Method::DELETE, path, &[], "").await,
                _ => server.get(path).await,
            };
            // This server has no model routes.
            let asks_nobody = [
                "/api/v1/approvals",
                "/api/v1/freezes",
                "/api/v1/grants",
                "/api/v1/keys",
                "/api/v1/handed-calls",
                "/api/v1/audit/",
                "/api/v1/quotations",
                "/api/v1/policies",
                "/mcp/",
                "/ui",
                "/beta/",
                "/envoy.service.",
            ];
            let is_missing = path.starts_with("/v1/")
                || path.starts_with("/v1beta/")
                || asks_nobody.iter().any(|route| path.starts_with(route));
            let expected = if is_missing { 404 } else { 200 };
            assert_eq!(answer.status, expected, "{method} {path}: {}", answer.body);
            assert!(operation["responses"][expected.to_string()].is_object(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn a_taken_address_is_named() {
    let server = start(ServerLimits::default()).await;
    let (dialect, access, limits) = (Dialect::Flowgate, AccessControl::Local, ServerLimits::default());
    let error = HttpServer::bind(ServeConfig {
        listen: server.address,
        dialect,
        access,
        predicate_sources: PredicateSources::default(),
        models: None,
        loader: None,
        limits,
        log: OperatorLog::default(),
    })
    .await
    .unwrap_err();
    assert!(error.to_string().contains("is in use by another program"), "{error}");
}
