//! Tests of answers of servers and conversations with many short values: they share one memory budget and are rejected
//! if it is exhausted.

use flowgate_gateway::limits::ServerLimits;
use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, POLICY, config};
use crate::mcp::{AnswerForm, McpServerDouble};
use crate::servers::{self, client, home};
use crate::upstream::{UpstreamDouble, says, text_of};

/// Starts a server whose answers contain a list of the requested number of values.
fn counting(form: AnswerForm) -> McpServerDouble {
    McpServerDouble::new(form, &["read"], |_, arguments| {
        let count = usize::try_from(arguments["count"].as_u64().unwrap()).unwrap();
        json!({"content": [{"type": "text", "text": "numbers"}], "structuredContent": {"rows": vec![1; count]}})
    })
}

/// An answer that would take more than a quarter of the budget is not parsed: the client receives the constant message
/// for failures, and the log and the metrics report the limit. Answers with fewer values, and later answers of another
/// server, are forwarded.
#[test]
fn an_answer_of_many_short_values_is_refused() {
    for form in [AnswerForm::Json, AnswerForm::Stream] {
        let (web, bank) = (counting(form), servers::bank(form));
        let home = home("http://127.0.0.1:1/v1", [&web, &bank], "", servers::POLICY);
        let (gateway, mut log) =
            home.start_within(ServerLimits { values: 64 << 20, ..ServerLimits::default() });
        let mut one = client(&gateway, "one");
        one.begin("web");
        one.begin("bank");
        assert_eq!(one.call("web", "read", &json!({"count": 1_000})), "numbers");
        let answer = one.ask("web", "tools/call", &json!({"name": "read", "arguments": {"count": 60_000}}));
        assert!(!answer.to_string().contains("numbers"), "{answer}");
        let line = log.next("limit");
        assert_eq!(
            (&line["setting"], &line["most"], &line["conversation"]),
            (&json!("--max-values"), &json!(64 << 20), &json!("one")),
            "{line}"
        );
        let (_, figures) = gateway.get("/metrics", KEY);
        let count = "flowgate_limits_total{limit=\"bytes of the values of all bodies, answers of servers and conversations\"} 1";
        assert!(figures.contains(count), "{figures}");
        let mut two = client(&gateway, "two");
        two.begin("bank");
        assert_eq!(two.call("bank", "balance", &json!({})), "100");
        gateway.stop();
    }
}

/// A conversation of many short values is full at fewer bytes than one of long texts.
#[test]
fn a_conversation_of_many_short_values_is_full_sooner() {
    let upstream = UpstreamDouble::new(|_| says("Hello yourself."));
    let config =
        config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
            + "[store]\nconversation-mib = 1\n";
    let home = GatewayHome::new(&config, POLICY);
    let (gateway, mut log) = home.start_with_log();
    let post = |name: &str, content: Value| {
        let body = json!({"model": "double", "messages": [{"role": "user", "content": content}]}).to_string();
        let key = format!("Bearer {KEY}");
        let headers = [("authorization", key.as_str()), ("x-flowgate-conversation", name)];
        gateway.post("/v1/chat/completions", &headers, &body)
    };
    let part = json!({"type": "text", "text": "a"});
    let long = Value::from("otters ".repeat(40_000));
    let many = Value::Array(vec![part; 10_000]);
    for (name, content) in [("long", &long), ("many", &many)] {
        assert_eq!(post(name, content.clone()).0, 200, "{name}");
    }
    assert_eq!(post("long", "And?".into()).0, 200);
    let (status, text) = post("many", "And?".into());
    assert!(status == 400 && text.contains("begin a new one"), "{status} {text}");
    let line = log.next("limit");
    assert_eq!(
        (&line["limit"], &line["setting"]),
        (
            &json!("memory of one conversation, which has many short values"),
            &json!("[store] conversation-mib")
        )
    );
    assert!(line["most"].as_u64() > Some(8 << 20), "the limit on memory, not that on bytes: {line}");
    gateway.stop();
}

/// Conversations in use share the budget with bodies: a short request of a large conversation is rejected while other
/// conversations take the budget, and answered once they have released it.
#[test]
fn conversations_in_use_share_one_budget() {
    let (release, held) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = std::sync::mpsc::channel::<()>();
    let (held, begun) = (std::sync::Mutex::new(held), std::sync::Mutex::new(begun));
    let upstream = UpstreamDouble::new(move |request| {
        if text_of(request).contains("HANG") {
            begun.lock().unwrap().send(()).unwrap();
            let _ = held.lock().unwrap().recv();
        }
        says("Hello yourself.")
    });
    let home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    let (gateway, mut log) = home.start_within(ServerLimits { values: 8 << 20, ..ServerLimits::default() });
    let post = |name: &str, content: Value| {
        let body = json!({"model": "double", "messages": [{"role": "user", "content": content}]}).to_string();
        let key = format!("Bearer {KEY}");
        let headers = [("authorization", key.as_str()), ("x-flowgate-conversation", name)];
        gateway.post("/v1/chat/completions", &headers, &body)
    };
    let parts = |text: String| Value::Array(vec![json!({"type": "text", "text": text}); 500]);
    for name in ["a", "b"] {
        for number in 0..5 {
            assert_eq!(post(name, parts(format!("{name}{number}"))).0, 200, "{name} {number}");
        }
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(|| post("a", "HANG".into()));
        has_begun.recv().unwrap();
        let (status, text) = post("b", "And?".into());
        assert!(status == 503 && text.contains("overloaded"), "{status} {text}");
        let line = log.next("limit");
        assert_eq!(
            (&line["setting"], &line["conversation"]),
            (&json!("--max-values"), &json!("b")),
            "{line}"
        );
        // A small conversation still has room.
        assert_eq!(post("c", "Hello".into()).0, 200);
        release.send(()).unwrap();
        assert_eq!(first.join().unwrap().0, 200);
    });
    assert_eq!(post("b", "And?".into()).0, 200);
    gateway.stop();
}
