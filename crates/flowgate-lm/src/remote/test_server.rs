//! Implements a double of a model's server for the tests of `remote`: [`serve`] starts it with scripted replies, one
//! for each connection, and returns the requests that it receives. [`ScriptedReply`] describes one reply.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// The first byte that a client with TLS sends.
const TLS_HANDSHAKE: u8 = 22;

/// The reply to one connection.
pub(super) enum ScriptedReply {
    /// Sends these bytes and closes the connection.
    Say(String),
    /// Sends these bytes and keeps the connection open.
    Stall(String),
}

impl ScriptedReply {
    /// Returns a reply with the JSON `body` that closes the connection. `status` is the status with its reason, such as
    /// `200 OK`, and `more` are further header lines, each with its line break.
    pub(super) fn json(status: &str, more: &str, body: &str) -> Self {
        let length = body.len();
        let head =
            format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{more}content-length: {length}");
        Self::Say(format!("{head}\r\nconnection: close\r\n\r\n{body}"))
    }

    /// Returns a reply with the event stream `body` that closes the connection.
    pub(super) fn stream(body: &str) -> Self {
        Self::Say(Self::streaming(body))
    }

    /// Returns the bytes of an answer with the event stream `body`, for a reply that closes or stalls.
    pub(super) fn streaming(body: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{body}")
    }
}

/// Starts the server in a thread, with one reply per connection. It ends after the last reply, unless one stalls.
/// Returns its address, and a channel with the head and body of each request that it receives.
pub(super) fn serve(replies: Vec<ScriptedReply>) -> (String, Receiver<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (request_sender, requests) = channel();
    std::thread::spawn(move || {
        // Stalled connections stay open until the server ends.
        let mut open = Vec::new();
        let mut left = replies.into_iter();
        let Some(mut reply) = left.next() else { return };
        loop {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(300))).unwrap();
            let mut bytes = Vec::new();
            let mut buffer = [0_u8; 4096];
            // Reads until the request has as many bytes as its `content-length` states: its head and its body. If the
            // connection ends earlier, what was read counts as the head.
            let request = loop {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                // A client that speaks TLS waits for an answer in TLS.
                if bytes.first() == Some(&TLS_HANDSHAKE) {
                    break (text, String::new());
                }
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let length = head.to_ascii_lowercase();
                    let length = length.split_once("content-length: ").map_or("0", |(_, rest)| rest);
                    let length: usize = length.lines().next().unwrap().parse().unwrap();
                    if body.len() >= length {
                        break (head.to_owned(), body.to_owned());
                    }
                }
                match stream.read(&mut buffer) {
                    Ok(count) if count > 0 => bytes.extend_from_slice(&buffer[..count]),
                    _ => break (text, String::new()),
                }
            };
            // Errors are ignored: the test may not read the requests, and the client may have closed the connection.
            let _ = request_sender.send(request);
            match &reply {
                ScriptedReply::Say(text) => drop(stream.write_all(text.as_bytes())),
                ScriptedReply::Stall(text) => {
                    drop(stream.write_all(text.as_bytes()));
                    open.push(stream);
                }
            }
            match left.next() {
                Some(next) => reply = next,
                None => break,
            }
        }
        drop(listener);
        // The stalled connections stay open until the tests end.
        while !open.is_empty() {
            std::thread::park();
        }
    });
    (format!("http://{address}/v1"), requests)
}
