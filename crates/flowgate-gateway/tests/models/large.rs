//! Bodies that are large in number, not in bytes.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::gateway::{Gateway, KEY};
use crate::upstream::{Upstream, says};

/// How often each length is tried: the fastest counts, whatever else the machine does.
const TRIES: usize = 3;

/// How long a chat of so many messages takes, which are each made by `message`.
fn time(gateway: &Gateway, count: usize, message: fn(usize) -> Value) -> Duration {
    let mut messages: Vec<Value> = (0..count).map(message).collect();
    messages.push(json!({"role": "user", "content": "Go on."}));
    let body = json!({"model": "double", "messages": messages}).to_string();
    let key = format!("Bearer {KEY}");
    let one = |_| {
        let begun = Instant::now();
        let (status, text) = gateway.post("/v1/chat/completions", &[("authorization", &key)], &body);
        assert_eq!(status, 200, "{text}");
        begun.elapsed()
    };
    (0..TRIES).map(one).min().unwrap()
}

/// Sixteen times as many messages take about sixteen times as long, and not the square of that.
#[test]
fn what_a_chat_takes_grows_with_its_length() {
    let upstream = Upstream::new(|_| says("Yes."));
    let gateway = Gateway::new(&upstream.url, "chat-completions", "interactive = true");
    let shapes: [(&str, fn(usize) -> Value); 4] = [
        (
            "answers to calls that nobody made",
            |n| json!({"role": "tool", "tool_call_id": format!("x{n}"), "content": "ok"}),
        ),
        ("answers to one call", |_| json!({"role": "tool", "tool_call_id": "x", "content": "ok"})),
        ("calls with their answers", |n| match n % 2 {
            0 => json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": format!("x{n}"), "type": "function", "function": {"name": "read", "arguments": "{}"}}]}),
            _ => json!({"role": "tool", "tool_call_id": format!("x{}", n - 1), "content": "ok"}),
        }),
        ("words of the user", |_| json!({"role": "user", "content": "ok"})),
    ];
    for (name, message) in shapes {
        let (few, many) = (time(&gateway, 1_000, message), time(&gateway, 16_000, message));
        assert!(many < few * 35, "{name}: {many:?} against {few:?}");
    }
}
