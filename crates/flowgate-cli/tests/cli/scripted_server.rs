//! A server of a model for tests, whose answers a function gives.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An answer: the type of its content, and its body.
pub(crate) type Answer = (&'static str, String);

/// Starts a server that answers each request by `answer`, which gets its path and its body. Returns the address of the
/// server, which ends with `/v1`, and the number of requests so far.
pub(crate) fn scripted_server(
    answer: impl Fn(&str, &str) -> Answer + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/v1", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let (counted, answer) = (Arc::clone(&count), Arc::new(answer));
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { continue };
            let (counted, answer) = (Arc::clone(&counted), Arc::clone(&answer));
            std::thread::spawn(move || {
                let Some((path, body)) = read_request(&mut stream) else { return };
                counted.fetch_add(1, Ordering::SeqCst);
                let (kind, body) = answer(&path, &body);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close");
                let _ = write!(stream, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            });
        }
    });
    (address, count)
}

/// Returns a chat answer with these words, as a stream of events.
pub(crate) fn saying(words: &str) -> Answer {
    let delta = serde_json::json!({"role": "assistant", "content": words}).to_string();
    let chunk = |delta: &str, reason: &str| {
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{reason}}}]}}\n\n")
    };
    let body = chunk(&delta, "null") + &chunk("{}", "\"stop\"") + "data: [DONE]\n\n";
    ("text/event-stream", body)
}

/// Reads the path and the body of a request. It is complete once its body has the announced length.
fn read_request(stream: &mut TcpStream) -> Option<(String, String)> {
    let mut received = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&received).to_lowercase();
        let length = text.split("content-length: ").nth(1).and_then(|rest| rest.split('\r').next());
        let length = length.and_then(|length| length.parse::<usize>().ok());
        let head = received.windows(4).position(|bytes| bytes == b"\r\n\r\n").map(|at| at + 4);
        if let (Some(length), Some(head)) = (length, head)
            && received.len() - head >= length
        {
            let path = String::from_utf8_lossy(&received).split(' ').nth(1)?.to_owned();
            return Some((path, String::from_utf8_lossy(received.get(head..)?).into_owned()));
        }
        match stream.read(&mut buffer) {
            Ok(read) if read > 0 => received.extend_from_slice(buffer.get(..read)?),
            _ => return None,
        }
    }
}
