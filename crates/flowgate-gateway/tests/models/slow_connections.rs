//! Tests that requests with a valid key are answered while many connections stay open without authentication.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use flowgate_gateway::limits::ServerLimits;
use serde_json::json;

use crate::gateway::{GatewayHome, KEY, POLICY, config};
use crate::upstream::{UpstreamDouble, says};

/// No timeout frees a connection: a slow client stays for longer than a test runs.
const FOREVER: Duration = Duration::from_secs(3600);

fn limits() -> ServerLimits {
    ServerLimits { connections: 8, head_time: FOREVER, body_time: FOREVER, ..ServerLimits::default() }
}

fn request(key: &str) -> String {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn connect(gateway: &crate::gateway::TestGateway, sends: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // The connection may be closed already.
    let _ = stream.write_all(sends.as_bytes());
    stream
}

/// Reads the response up to this text.
fn answer(stream: &mut TcpStream, until: &str) -> String {
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains(until) {
        match stream.read(&mut buffer) {
            Ok(count) if count > 0 => text.push_str(&String::from_utf8_lossy(&buffer[..count])),
            _ => break,
        }
    }
    text
}

#[test]
fn slow_connections_without_a_key_do_not_delay_those_with_one() {
    let (all, half) = (request(KEY), "POST /v1/chat/completions HTTP/1.1\r\nHost: lo");
    let unknown = request("nobody-has-this-key");
    let (head, _) = unknown.split_once("\r\n\r\n").unwrap();
    let unfinished = format!("{head}\r\n\r\n{{");
    let health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // The gateway closes a connection whose body it does not read.
    for (what, sends, is_open) in [
        ("nothing", "", true),
        ("half a head", half, true),
        ("an unknown key, and half a body", &unfinished, false),
        ("an unknown key", &unknown, false),
        ("a request that takes no key", health, true),
    ] {
        let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
        let home = GatewayHome::new(
            &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
            POLICY,
        );
        let (gateway, mut log) = home.start_within(limits());
        // Three slow clients with a valid key keep their connections.
        let mut known: Vec<TcpStream> = (0..3).map(|_| connect(&gateway, &all)).collect();
        for stream in &mut known {
            assert!(answer(stream, "yourself").contains("yourself"), "{what}");
        }
        let slow: Vec<TcpStream> = (0..40).map(|_| connect(&gateway, sends)).collect();
        assert!(answer(&mut connect(&gateway, &all), "yourself").contains("yourself"), "{what}");
        for stream in &mut known {
            stream.write_all(all.as_bytes()).unwrap();
            assert!(answer(stream, "yourself").contains("yourself"), "{what}");
        }
        if is_open {
            let line = log.next("limit");
            assert_eq!((&line["limit"], &line["most"]), (&json!("open connections"), &json!(8)), "{what}");
        }
        drop(slow);
        gateway.stop();
    }
}

/// An address cannot exceed its share of connections, so 600 slow ones leave room for other addresses.
#[test]
fn slow_connections_of_one_address_leave_room_for_others() {
    let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
    let home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    let limits = ServerLimits { connections: 64, connections_of_address: 16, ..limits() };
    let (gateway, log) = home.start_within(limits);
    let slow: Vec<TcpStream> = (0..600).map(|_| connect_from([127, 0, 0, 2], gateway.address)).collect();
    for number in 3..20 {
        let mut honest = connect_from([127, 0, 0, number], gateway.address);
        honest.write_all(request(KEY).as_bytes()).unwrap();
        assert!(answer(&mut honest, "yourself").contains("yourself"), "{number}");
    }
    let (_, figures) = gateway.get("/metrics", KEY);
    let of =
        |name: &str| figures.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    assert!(of("flowgate_connections").unwrap() <= 16 + 17 + 1, "{figures}");
    let crowded = "flowgate_limits_total{limit=\"connections of one address without a valid key\"}";
    assert!(of(crowded).unwrap() > 0, "{figures}");
    assert_eq!(of("flowgate_limits_total{limit=\"open connections\"}"), None, "{figures}");
    drop(slow);
    gateway.stop();
    assert!(log.rest().contains("setting\":\"--max-connections-of-address"));
}

/// Connects from an address of this machine.
fn connect_from(from: [u8; 4], to: std::net::SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let stream = runtime.block_on(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        socket.connect(to).await.unwrap().into_std().unwrap()
    });
    stream.set_nonblocking(false).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// A slow client with a valid key keeps its connection; only connections without one make room.
#[test]
fn a_slow_client_with_a_key_keeps_its_connection() {
    let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
    let home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    let (gateway, mut log) = home.start_within(limits());
    let all = request(KEY);
    let (begin, rest) = all.split_at(all.len() - 5);
    let mut slow = connect(&gateway, begin);
    // The gateway has read the key of the slow client once this later request is answered.
    assert!(answer(&mut connect(&gateway, &all), "yourself").contains("yourself"));
    let strangers: Vec<TcpStream> = (0..40).map(|_| connect(&gateway, "")).collect();
    assert_eq!(log.next("limit")["limit"], "open connections");
    slow.write_all(rest.as_bytes()).unwrap();
    assert!(answer(&mut slow, "yourself").contains("yourself"));
    drop(strangers);
    gateway.stop();
}
