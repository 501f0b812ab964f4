//! Tests of a gateway whose audit log is on a disk that does not answer.

use std::fs::File;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config, until};
use crate::upstream::{UpstreamDouble, calls};

/// More than a pipe holds.
const LONG_TEXT: usize = 200 << 10;
/// Longer than a test of the log may take, also on a busy machine.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(60);

/// Returns the status and the failing parts; 0 if there is no answer in time.
fn health(gateway: &TestGateway) -> (u16, Value) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false);
    let agent: ureq::Agent = agent.timeout_global(Some(HEALTH_TIMEOUT)).build().into();
    let Ok(mut answer) = agent.get(format!("http://{}/health", gateway.address)).call() else {
        return (0, Value::Null);
    };
    let body: Value = serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap();
    (answer.status().as_u16(), body["failing"].clone())
}

/// While a write to the log hangs, `/health` reports the log and does not hang itself.
#[cfg(unix)]
#[test]
fn health_does_not_wait_for_a_log_that_hangs() {
    let arguments = json!({"to": "mallory", "body": "x".repeat(LONG_TEXT)}).to_string();
    let upstream = UpstreamDouble::new(move |_| calls(&[("send", &arguments)]));
    let text =
        config(&upstream.url, "chat-completions", "") + "[audit]\nfile = \"audit.jsonl\"\ncontent-days = 9\n";
    let home = GatewayHome::new(&text, POLICY);
    let gateway = home.start();
    assert_eq!(health(&gateway).0, 200);
    // No program reads from the pipe.
    let pipe = home.folder().join("audit.jsonl.content");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let send = json!({"type": "function", "function": {"name": "send", "description": "send", "parameters": {"type": "object"}}});
    let message = json!({"role": "user", "content": "Hello"});
    let body = json!({"model": "double", "messages": [message], "tools": [send]}).to_string();
    let key = format!("Bearer {KEY}");
    std::thread::scope(|scope| {
        let turn =
            scope.spawn(|| gateway.post("/v1/chat/completions", &[("authorization", key.as_str())], &body));
        let mut answer = (200, Value::Null);
        until(|| {
            answer = health(&gateway);
            answer.0 != 200
        });
        let has_ended = turn.is_finished();
        // The turn continues, so that a test that fails ends as well.
        let mut reader = File::open(&pipe).unwrap();
        std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
        turn.join().unwrap();
        assert_eq!((answer, has_ended), ((503, json!(["audit log"])), false));
    });
    gateway.stop();
}
