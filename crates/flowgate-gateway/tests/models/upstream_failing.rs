//! Tests of failing upstreams: the client receives one constant message, whatever the upstream sends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::{asking, requests};

/// An upstream that sends scripted responses; the last one is repeated.
pub(crate) struct FailingUpstreamDouble {
    pub(crate) url: String,
    script: Arc<Mutex<Vec<String>>>,
}

impl FailingUpstreamDouble {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let script: Arc<Mutex<Vec<String>>> = Arc::default();
        let scripted = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let script = Arc::clone(&scripted);
                std::thread::spawn(move || answer(&mut stream.unwrap(), &script));
            }
        });
        Self { url, script }
    }

    pub(crate) fn sends(&self, script: &[&str]) {
        *self.script.lock().unwrap() = script.iter().map(|text| (*text).to_owned()).collect();
    }
}

fn answer(stream: &mut TcpStream, script: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line).unwrap_or(0) > 0 && !line.trim().is_empty() {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length]).unwrap();
    let text = {
        let mut script = script.lock().unwrap();
        if script.len() > 1 { script.remove(0) } else { script.first().cloned().unwrap_or_default() }
    };
    let _ = stream.write_all(text.as_bytes());
}

pub(crate) fn http(head: &str, kind: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {head}\r\ncontent-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns responses that fail. No text of them may reach a client or the log; the number in them is too long to occur
/// in an ID by chance.
fn failures() -> Vec<String> {
    let mut all = Vec::new();
    for status in [201, 204, 301, 400, 401, 403, 404, 408, 409, 413, 418, 422, 429, 500, 503, 504, 529, 599] {
        let body = json!({"error": {"code": "private_word", "type": "private", "message": "private text"}});
        let head = format!("{status} private\r\nretry-after: 4803162\r\nretry-after-ms: 4803162000");
        all.push(http(&head, "application/json", &body.to_string()));
    }
    for body in [
        "",
        "private",
        "[]",
        "{\"private\": 1}",
        "{\"choices\": \"private\"}",
        "{\"choices\": [{\"private\": \"\\ud800\"}]}",
    ] {
        all.push(http("200 OK", "application/json", body));
    }
    for events in [
        "data: private\n\n",
        "data: {\"error\": {\"code\": \"private_word\"}}\n\n",
        "event: private\n\n",
        ": private\n\n",
    ] {
        all.push(http("200 OK", "text/event-stream", events));
    }
    all.extend([
        String::new(),
        "private\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\ncontent-length: 4803162\r\n\r\n{\"pri".to_owned(),
    ]);
    all
}

/// All failures have the same status and body; the log contains a reason without text of the upstream.
#[test]
fn every_failure_of_a_model_looks_alike() {
    let upstream = FailingUpstreamDouble::new();
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"\nrequests-per-minute = 100000";
    let (gateway, lines) =
        GatewayHome::new(&config(&upstream.url, "chat-completions", more), POLICY).start_with_log();
    let key = format!("Bearer {KEY}");
    for (path, body) in requests("x") {
        for streams in [false, true] {
            let (path, body) = asking(path, &body, streams);
            let mut told: Option<(u16, String)> = None;
            for failure in failures() {
                upstream.sends(&[&failure]);
                let heard = gateway.post(&path, &[("authorization", &key)], &body.to_string());
                assert_eq!(*told.get_or_insert_with(|| heard.clone()), heard, "{path} {failure}");
            }
            let (status, said) = told.unwrap();
            assert!(status == 502 && said.contains("sent no answer that can be forwarded"), "{said}");
        }
    }
    gateway.stop();
    let log = lines.rest();
    assert!(log.contains("\"upstream\"") && log.contains("busy"), "{log}");
    assert!(["private", "4803162"].iter().all(|text| !log.contains(text)), "{log}");
}

/// Released text of a broken response is not revoked, and no second attempt is appended to it. An attempt is retried if
/// none of its text was released.
#[test]
fn no_other_attempt_follows_text_that_went_out() {
    let policy = POLICY.split("raise ").next().unwrap();
    let chunk = |text: &str| {
        format!(
            "data: {}\n\n",
            json!({"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "double", "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]})
        )
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    let end = format!(
        "data: {}\n\ndata: [DONE]\n\n",
        json!({"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "double", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    );
    let first = "Once upon a time there was an otter, and nobody had seen it for forty years. ";
    let broken = format!("{head}{}", chunk(first));
    let second = format!("{head}{}{end}", chunk("Mallory wants to be paid."));
    let key = format!("Bearer {KEY}");
    for (path, body) in requests("x") {
        let (path, body) = asking(path, &body, true);
        for (script, is_whole) in [([broken.as_str(), second.as_str()], false), (["", second.as_str()], true)]
        {
            let upstream = FailingUpstreamDouble::new();
            upstream.sends(&script);
            let text = config(
                &upstream.url,
                "chat-completions",
                "user-messages = \"trust-unmarked-even-if-pasted\"",
            );
            let gateway = TestGateway::configured(&text, policy);
            let (_, heard) = gateway.post(&path, &[("authorization", &key)], &body.to_string());
            // A broken response consists of the released text and an error.
            assert_eq!(heard.contains("Mallory wants"), is_whole, "{path}: {heard}");
            assert_eq!(heard.contains("Once upon a time"), !is_whole, "{path}: {heard}");
            assert_eq!(heard.contains("sent no answer"), !is_whole, "{path}: {heard}");
        }
    }
}
