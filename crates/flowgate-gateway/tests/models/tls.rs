//! Tests of TLS towards clients: who is answered, who is refused and how, and how the certificate is replaced.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use flowgate::policy::Dialect;
use flowgate_gateway::http::access::AccessControl;
use flowgate_gateway::http::server::{HttpServer, ServeConfig};
use flowgate_gateway::limits::ServerLimits;
use flowgate_gateway::predicates::PredicateSources;
use serde_json::{Value, json};

use crate::certificates::{TLS, TestAuthority, connect, http_client, run};
use crate::gateway::{GatewayHome, KEY, LogLines, POLICY, TestGateway, config};
use crate::upstream::{UpstreamDouble, says};

/// No timeout frees a connection: a slow client stays for longer than a test runs.
const FOREVER: Duration = Duration::from_secs(3600);
const SHORT: Duration = Duration::from_millis(50);

/// A gateway with TLS before a model.
pub(crate) struct TlsGateway {
    pub(crate) authority: TestAuthority,
    pub(crate) home: GatewayHome,
    pub(crate) gateway: TestGateway,
    pub(crate) log: LogLines,
}

impl TlsGateway {
    /// Starts a gateway before a model that says hello.
    fn start() -> Self {
        Self::start_within(ServerLimits::default())
    }

    fn start_within(limits: ServerLimits) -> Self {
        let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
        Self::start_before(&upstream.url, "", POLICY, limits)
    }

    /// Starts a gateway before an upstream, with `more` configuration for the client of [`KEY`].
    pub(crate) fn start_before(upstream: &str, more: &str, policy: &str, limits: ServerLimits) -> Self {
        let more = "user-messages = \"trust-unmarked-even-if-pasted\"\n".to_owned() + more;
        let config = config(upstream, "chat-completions", &more);
        let home = GatewayHome::new(&(TLS.to_owned() + &config), policy);
        let authority = TestAuthority::new();
        authority.issue_for_gateway().write_to(home.folder());
        let (gateway, log) = home.start_within(limits);
        Self { authority, home, gateway, log }
    }

    fn http1(&self) -> reqwest::Client {
        http_client(self.authority.client(&["http/1.1"], None))
    }

    fn asks_as(&self, client: &reqwest::Client) -> Result<String, reqwest::Error> {
        run(ask(client, self.gateway.address))
    }
}

/// Sends a message of the user; returns the text of the answer.
async fn ask(client: &reqwest::Client, address: SocketAddr) -> Result<String, reqwest::Error> {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    let request = client.post(format!("https://{address}/v1/chat/completions")).bearer_auth(KEY);
    let answer = request.header("content-type", "application/json").body(body).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    assert_eq!(status, 200, "{text}");
    let answer: Value = serde_json::from_str(&text).unwrap();
    Ok(answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned())
}

/// Sends bytes without TLS; returns what the gateway sends until it closes the connection.
fn raw(address: SocketAddr, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    let mut read = Vec::new();
    // A gateway that does not read everything may reset the connection.
    let _ = stream.read_to_end(&mut read);
    String::from_utf8_lossy(&read).into_owned()
}

#[test]
fn a_client_with_tls_is_answered() {
    let server = TlsGateway::start();
    let client = server.http1();
    for _ in 0..2 {
        assert_eq!(server.asks_as(&client).unwrap(), "Hello yourself.");
    }
    server.gateway.stop();
    assert!(!server.log.rest().contains("refused"));
}

#[test]
fn a_client_without_tls_sees_why_it_is_refused() {
    let mut server = TlsGateway::start();
    let request = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n";
    let request = request.to_owned() + &"x".repeat(10_000);
    let answer = raw(server.gateway.address, request.as_bytes());
    assert!(
        answer.starts_with("HTTP/1.1 400 ") && answer.ends_with("send the request by https\"}"),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{answer}");
    let line = server.log.next("refused");
    assert_eq!(
        line["message"],
        "a client connected without TLS: the address in its configuration must begin with https://"
    );
    assert_eq!(line["address"], "127.0.0.1");
    assert_eq!(raw(server.gateway.address, &[0, 1, 2, 3]), "");
    assert_eq!(
        server.log.next("refused")["message"],
        "a client sent neither TLS nor HTTP: check which program connects to this port"
    );
    // A record of TLS with nonsense in it is answered by an alert.
    raw(server.gateway.address, &[0x16, 3, 1, 0, 4, 9, 9, 9, 9]);
    assert_eq!(
        server.log.next("refused")["message"],
        "a client did not follow the TLS protocol, so its connection was closed: check that it connects with https:// and a supported version of TLS"
    );
    assert_eq!(server.asks_as(&server.http1()).unwrap(), "Hello yourself.");
}

#[test]
fn a_client_trusts_its_authorities_alone() {
    let mut server = TlsGateway::start();
    let client = http_client(TestAuthority::new().client(&["http/1.1"], None));
    assert!(server.asks_as(&client).unwrap_err().is_connect());
    let line = server.log.next("refused");
    assert_eq!(
        line["message"],
        "a client does not trust the certificate of the gateway: check that it has not expired, and that the client knows its authority"
    );
    assert_eq!(server.asks_as(&server.http1()).unwrap(), "Hello yourself.");
}

/// Handshakes that do not end hold the slots of connections without a key, and are closed for other connections.
#[test]
fn slow_handshakes_do_not_delay_others() {
    let hello_begun: &[u8] = &[0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3];
    for begun in [&[][..], &[0x16], hello_begun] {
        let limits = ServerLimits {
            connections: 8,
            head_time: FOREVER,
            body_time: FOREVER,
            ..ServerLimits::default()
        };
        let mut server = TlsGateway::start_within(limits);
        let client = server.http1();
        assert_eq!(server.asks_as(&client).unwrap(), "Hello yourself.");
        let slow: Vec<TcpStream> = (0..40)
            .map(|_| {
                let mut stream = TcpStream::connect(server.gateway.address).unwrap();
                // The connection may be closed already.
                let _ = stream.write_all(begun);
                stream
            })
            .collect();
        assert_eq!(server.asks_as(&server.http1()).unwrap(), "Hello yourself.", "{begun:?}");
        let line = server.log.next("limit");
        assert_eq!(line["limit"], "open connections", "{begun:?}");
        drop(slow);
        server.gateway.stop();
    }
}

#[test]
fn a_handshake_ends_in_time() {
    let mut server = TlsGateway::start_within(ServerLimits { head_time: SHORT, ..ServerLimits::default() });
    for begun in [&[][..], &[0x16, 3, 1]] {
        assert_eq!(raw(server.gateway.address, begun), "");
        let line = server.log.next("limit");
        assert_eq!(line["limit"], "seconds for a TLS handshake");
        assert_eq!(line["setting"], "--head-time");
    }
}

#[test]
fn a_gateway_that_stops_waits_for_no_handshake() {
    let server = TlsGateway::start_within(ServerLimits {
        head_time: FOREVER,
        drain_time: FOREVER,
        ..ServerLimits::default()
    });
    let mut slow = TcpStream::connect(server.gateway.address).unwrap();
    slow.write_all(&[0x16]).unwrap();
    // The gateway has accepted the slow connection before this one.
    assert_eq!(server.asks_as(&server.http1()).unwrap(), "Hello yourself.");
    server.gateway.stop();
    assert_eq!(slow.read(&mut [0]).unwrap_or(0), 0);
}

/// The next handshake has the new certificate; open connections remain, and a certificate that cannot be used leaves
/// the earlier one in use.
#[test]
fn a_certificate_is_replaced_while_the_gateway_runs() {
    let mut server = TlsGateway::start();
    let folder = server.home.folder().to_owned();
    let earlier = server.http1();
    let hello = |server: &TlsGateway, client: &reqwest::Client| {
        server.asks_as(client).is_ok_and(|text| text == "Hello yourself.")
    };
    assert!(hello(&server, &earlier));
    let other = TestAuthority::new();
    let new = other.issue_for_gateway();
    // The key is still that of the earlier certificate.
    std::fs::write(folder.join("gateway.pem"), &new.certificate).unwrap();
    assert!(hello(&server, &server.http1()));
    let line = server.log.next("remark");
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("the key does not belong to the first certificate of"), "{message}");
    assert!(message.ends_with("the gateway keeps its current certificate"), "{message}");
    std::fs::write(folder.join("gateway.key"), &new.key).unwrap();
    let later = http_client(other.client(&["http/1.1"], None));
    assert!(hello(&server, &later));
    assert_eq!(server.log.next("certificate")["level"], "info");
    assert!(!hello(&server, &server.http1()));
    for (file, broken) in
        [("gateway.pem", None), ("gateway.pem", Some("no certificate")), ("gateway.key", None)]
    {
        let path = folder.join(file);
        match broken {
            None => std::fs::remove_file(&path).unwrap(),
            Some(text) => std::fs::write(&path, text).unwrap(),
        }
        assert!(hello(&server, &http_client(other.client(&["http/1.1"], None))), "{file}");
        let line = server.log.next("remark");
        assert!(line["message"].as_str().unwrap().starts_with("tls."), "{line}");
    }
    // A file that is renamed into place, as most programs replace it.
    server.authority.issue_for_gateway().write_to(&folder);
    std::fs::rename(folder.join("gateway.pem"), folder.join("renamed.pem")).unwrap();
    std::fs::rename(folder.join("renamed.pem"), folder.join("gateway.pem")).unwrap();
    assert!(hello(&server, &server.http1()));
    server.log.next("certificate");
}

/// An open connection does not notice that the certificate is replaced.
#[test]
fn an_open_connection_outlives_its_certificate() {
    let server = TlsGateway::start();
    let folder = server.home.folder().to_owned();
    run(async {
        let address = server.gateway.address;
        let stream = connect(address, server.authority.client(&[], None)).await.unwrap();
        let (mut client, connection) =
            hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        TestAuthority::new().issue_for_gateway().write_to(&folder);
        let other = connect(address, server.authority.client(&[], None)).await;
        assert!(other.is_err());
        let request = hyper::Request::get("/health").header("host", "localhost");
        let request = request.body(http_body_util::Empty::<hyper::body::Bytes>::new()).unwrap();
        assert_eq!(client.send_request(request).await.unwrap().status(), 200);
    });
}

#[test]
fn a_gateway_reachable_without_tls_warns() {
    for (listen, expected) in [("127.0.0.1:0", false), ("0.0.0.0:0", true)] {
        let (log, lines) = LogLines::new();
        let server = run(HttpServer::bind(ServeConfig {
            listen: listen.parse().unwrap(),
            dialect: Dialect::Flowgate,
            access: AccessControl::Anonymous,
            predicate_sources: PredicateSources::default(),
            models: None,
            loader: None,
            limits: ServerLimits::default(),
            log,
        }));
        drop(server.unwrap());
        assert_eq!(lines.rest().contains("clients connect without TLS"), expected, "{listen}");
    }
}
