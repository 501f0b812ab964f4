//! Connections that are held open by clients which never say who they are: those who have a key are answered all the same.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use flowgate_gateway::limits::Limits;
use serde_json::json;

use crate::gateway::{Home, KEY, POLICY, config};
use crate::upstream::{Upstream, says};

/// Time is no way out: a client that is slow stays for longer than a test runs.
const FOREVER: Duration = Duration::from_secs(3600);

fn limits() -> Limits {
    Limits { connections: 8, head_time: FOREVER, body_time: FOREVER, ..Limits::default() }
}

fn request(key: &str) -> String {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello"}]}).to_string();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn connect(gateway: &crate::gateway::Gateway, sends: &str) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Whoever is closed already cannot send.
    let _ = stream.write_all(sends.as_bytes());
    stream
}

/// What is answered, up to a text.
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
    // The gateway itself closes a connection whose body it does not read.
    for (what, sends, is_open) in [
        ("nothing", "", true),
        ("half a head", half, true),
        ("an unknown key, and half a body", &unfinished, false),
        ("an unknown key", &unknown, false),
        ("a request that takes no key", health, true),
    ] {
        let upstream = Upstream::new(|_| says("Hello yourself."));
        let home = Home::new(&config(&upstream.url, "chat-completions", "interactive = true"), POLICY);
        let (gateway, mut log) = home.start_within(limits());
        // Three who have a key, and are slow in between: they keep their connections.
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

/// A client with a key may be as slow as it likes: nobody who has none takes its place.
#[test]
fn a_slow_client_with_a_key_keeps_its_connection() {
    let upstream = Upstream::new(|_| says("Hello yourself."));
    let home = Home::new(&config(&upstream.url, "chat-completions", "interactive = true"), POLICY);
    let (gateway, mut log) = home.start_within(limits());
    let all = request(KEY);
    let (begin, rest) = all.split_at(all.len() - 5);
    let mut slow = connect(&gateway, begin);
    // It is known to have a key when the gateway has read its head, and it answers this one after that.
    assert!(answer(&mut connect(&gateway, &all), "yourself").contains("yourself"));
    let strangers: Vec<TcpStream> = (0..40).map(|_| connect(&gateway, "")).collect();
    assert_eq!(log.next("limit")["limit"], "open connections");
    slow.write_all(rest.as_bytes()).unwrap();
    assert!(answer(&mut slow, "yourself").contains("yourself"));
    drop(strangers);
    gateway.stop();
}
