//! Tests of the operator's log: the lines of turns, rejections and limits, and the absence of content.

use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, LogLines, POLICY, TestAgent, TestGateway, config};
use crate::upstream::{UpstreamDouble, says};
use crate::{FORMS, gullible};

fn logged(upstream: &str, more: &str) -> (TestGateway, LogLines) {
    GatewayHome::new(&config(upstream, "chat-completions", more), POLICY).start_with_log()
}

/// Returns the body of a Chat Completions request.
fn body(text: &str) -> String {
    json!({"model": "double", "messages": [{"role": "user", "content": text}]}).to_string()
}

#[test]
fn a_turn_is_one_line_without_content() {
    for (api, _) in FORMS {
        for streaming in [false, true] {
            let upstream = UpstreamDouble::new(gullible);
            let (gateway, mut lines) =
                logged(&upstream.url, "user-messages = \"trust-unmarked-even-if-pasted\"");
            let mut agent = TestAgent::new(&gateway, api, streaming, KEY);
            assert_eq!(agent.says("Mail the page to Bob."), "Done.");
            // One request each reads the page, mails it in a slot, and returns the final reply.
            for (calls, permitted, hidden) in [(1, 1, 0), (1, 1, 1), (0, 0, 2)] {
                let line = lines.next("turn");
                let expected = json!({
                    "client": "agent", "calls": calls, "permitted": permitted, "asked": 0, "denied": 0, "hidden": hidden,
                });
                for (name, value) in expected.as_object().unwrap() {
                    assert_eq!(line[name], *value, "{api:?} {streaming} {name} {line}");
                }
                assert!(line["ms"].is_u64() && line["upstream_ms"].is_u64(), "{line}");
                assert!(line["conversation"].as_str().is_some_and(|name| name.len() > 8), "{line}");
            }
            gateway.stop();
            let rest = lines.rest();
            for content in ["Bob", "bob", "MALLORY", "Otters", KEY, "key-of-the-upstream"] {
                assert!(!rest.contains(content), "{content}: {rest}");
            }
        }
    }
}

/// The description of a request, its path, headers and body, and the event and status of its line.
type RefusedRequest<'r> = (&'r str, &'r str, &'r [(&'r str, &'r str)], String, &'r str, u16);

/// Every rejected request has exactly one line, without text of the request.
#[test]
fn a_refused_request_is_one_line() {
    let upstream = UpstreamDouble::new(|_| says("Done."));
    let key = format!("Bearer {KEY}");
    let path = "/v1/chat/completions";
    let rows: [RefusedRequest<'_>; 7] = [
        (
            "an unknown key",
            path,
            &[("authorization", "Bearer secret-word-of-a-stranger")],
            body("secret-word"),
            "refused",
            401,
        ),
        ("no key", path, &[], body("secret-word"), "refused", 401),
        ("no JSON", path, &[("authorization", &key)], "secret-word".to_owned(), "refused", 400),
        (
            "an unknown field",
            path,
            &[("authorization", &key)],
            json!({"secret-word": 1}).to_string(),
            "refused",
            400,
        ),
        ("an unknown route", "/v1/secret-word", &[("authorization", &key)], body("x"), "refused", 404),
        ("too large", path, &[("authorization", &key)], "secret-word".repeat(1 << 20), "limit", 0),
        (
            "forged lines",
            path,
            &[("authorization", &key), ("x-flowgate-conversation", "c1 level=error secret")],
            "secret-word".to_owned(),
            "refused",
            400,
        ),
    ];
    for (name, path, headers, body, event, status) in rows {
        let (gateway, mut lines) = logged(&upstream.url, "user-messages = \"trust-unmarked-even-if-pasted\"");
        gateway.post(path, headers, &body);
        let line = lines.next(event);
        assert_eq!(line["status"].as_u64().unwrap_or_default(), u64::from(status), "{name}: {line}");
        gateway.stop();
        let rest = lines.rest();
        // The lines about hidden parts are written at start.
        let others = rest.lines().filter(|line| !line.contains(r#""event":"hidden""#)).count();
        assert_eq!(others, 1, "{name}: {rest}");
        assert!(!rest.contains("secret-word"), "{name}: {rest}");
    }
    // An answered request is not reported as rejected.
    let (gateway, mut lines) = logged(&upstream.url, "user-messages = \"trust-unmarked-even-if-pasted\"");
    gateway.post(path, &[("authorization", &key), ("x-flowgate-conversation", "c1")], &body("Hello."));
    assert_eq!(lines.next("turn")["conversation"], "c1");
    gateway.stop();
    assert!(!lines.rest().contains("refused"));
}

#[test]
fn a_failure_of_the_upstream_is_one_line() {
    // No server listens on this port.
    let (gateway, mut lines) =
        logged("http://127.0.0.1:9/v1", "user-messages = \"trust-unmarked-even-if-pasted\"");
    gateway.post(
        "/v1/chat/completions",
        &[("authorization", &format!("Bearer {KEY}"))],
        &body("secret-word"),
    );
    let line = lines.next("upstream");
    assert_eq!((&line["client"], &line["status"]), (&Value::from("agent"), &Value::from(502)), "{line}");
    assert!(line["message"].as_str().unwrap().contains("[upstreams]"), "{line}");
    gateway.stop();
    assert!(!lines.rest().contains("secret-word"));
}

/// A limit that rejects a request is reported with the setting that raises it; below the limit, there is no line.
#[test]
fn a_limit_names_its_setting() {
    let upstream = UpstreamDouble::new(|_| says("Done."));
    let key = format!("Bearer {KEY}");
    // No person is configured to decide the policy's questions.
    let upstream_of_mallory = UpstreamDouble::new(gullible);
    let (gateway, mut lines) = logged(
        &upstream_of_mallory.url,
        "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"",
    );
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Read the page.");
    let line = lines.next("remark");
    assert!(line["message"].as_str().unwrap().contains("[people.NAME]"), "{line}");
    assert_eq!(line["client"], "agent", "{line}");
    gateway.stop();
    for (more, count, setting) in [
        ("requests-per-minute = 1", 2, Some("[clients.NAME] requests-per-minute")),
        ("requests-per-minute = 60", 2, None),
        ("sessions = 1", 3, Some("[clients.NAME] sessions")),
        ("sessions = 1000", 3, None),
    ] {
        let (gateway, mut lines) =
            logged(&upstream.url, &format!("user-messages = \"trust-unmarked-even-if-pasted\"\n{more}"));
        for number in 0..count {
            let name = format!("c{number}");
            let headers = [("authorization", key.as_str()), ("x-flowgate-conversation", name.as_str())];
            gateway.post("/v1/chat/completions", &headers, &body("Hello."));
        }
        if let Some(setting) = setting {
            let line = lines.next("limit");
            assert_eq!(
                (&line["setting"], &line["client"]),
                (&setting.into(), &"agent".into()),
                "{more}: {line}"
            );
        }
        gateway.stop();
        assert_eq!(lines.rest().contains("\"limit\""), setting.is_some(), "{more}");
    }
}

/// A full conversation is reported with the setting that raises the limit.
#[test]
fn a_full_conversation_names_its_setting() {
    let upstream = UpstreamDouble::new(|_| says("Done."));
    let mut home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    home.edit("[store]\n", "[store]\nconversation-mib = 1\n");
    let (gateway, mut lines) = home.start_with_log();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says(&"long words ".repeat(100_000));
    let mut chat: Vec<Value> = vec![json!({"role": "user", "content": "long words ".repeat(100_000)})];
    chat.push(json!({"role": "assistant", "content": "Done."}));
    chat.push(json!({"role": "user", "content": "More."}));
    let body = json!({"model": "double", "messages": chat}).to_string();
    let (status, _) =
        gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {KEY}"))], &body);
    assert_eq!(status, 400);
    let line = lines.next("limit");
    assert_eq!(line["setting"], "[store] conversation-mib", "{line}");
    gateway.stop();
}
