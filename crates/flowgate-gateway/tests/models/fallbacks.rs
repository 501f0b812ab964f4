//! Tests of further upstreams, which are asked if the one of a client cannot answer.

use serde_json::json;

use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::upstream::{UpstreamDouble, says};
use crate::upstream_failing::{FailingUpstreamDouble, http};

/// The settings of two upstreams; the client may ask the first one, and then the second one for `model`.
fn settings(first: &str, second: &str, fallback: &str) -> String {
    let more = format!("user-messages = \"trust-unmarked-even-if-pasted\"\n{fallback}");
    format!(
        "[upstreams.second]\nurl = \"{second}\"\nmodels = [\"other\"]\nkey-from = \"OTHER\"\n{}",
        config(first, "chat-completions", &more)
    )
}

const FALLBACK: &str = "fallback = [{ upstream = \"second\", model = \"other\" }]";

/// Sends one message, and returns the status and the answer.
fn ask(gateway: &TestGateway, is_streamed: bool) -> (u16, String) {
    let body = json!({"model": "double", "stream": is_streamed, "messages": [{"role": "user", "content": "Hello."}]});
    let key = format!("Bearer {KEY}");
    gateway.post("/v1/chat/completions", &[("authorization", &key)], &body.to_string())
}

/// A server that is down, busy or broken is replaced by the next one, which receives its own key and the name of its own
/// model. A server that rejects the request is not: the next one would reject it as well.
#[test]
fn another_upstream_answers_if_the_first_one_cannot() {
    let failing = FailingUpstreamDouble::new();
    for (head, is_replaced) in [
        ("503 down", true),
        ("500 broken", true),
        ("429 busy", true),
        ("400 wrong", false),
        ("401 unknown", false),
    ] {
        failing.sends(&[&http(head, "application/json", "{}")]);
        for is_streamed in [false, true] {
            let second = UpstreamDouble::new(|_| says("I am the second."));
            let gateway = TestGateway::configured(&settings(&failing.url, &second.url, FALLBACK), POLICY);
            let (status, text) = ask(&gateway, is_streamed);
            assert_eq!(
                status == 200 && text.contains("I am the second."),
                is_replaced,
                "{head}: {status} {text}"
            );
            assert_eq!(second.keys().len(), usize::from(is_replaced), "{head}");
            for body in second.bodies() {
                assert!(body.contains("\"model\":\"other\""), "{body}");
            }
        }
    }
}

/// An answer that has begun is not continued by another server: the client gets an error.
#[test]
fn an_answer_that_has_begun_is_not_replaced() {
    let failing = FailingUpstreamDouble::new();
    let delta =
        json!({"id": "a", "choices": [{"index": 0, "delta": {"role": "assistant", "content": "I be"}}]});
    // The body is shorter than announced, so the connection ends in the middle of the answer.
    failing.sends(&[&format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 4000\r\n\r\ndata: {delta}\n\n"
    )]);
    let second = UpstreamDouble::new(|_| says("I am the second."));
    let gateway = TestGateway::configured(&settings(&failing.url, &second.url, FALLBACK), POLICY);
    let (_, text) = ask(&gateway, true);
    assert!(!text.contains("I am the second."), "{text}");
    assert!(text.contains("error"), "{text}");
    assert_eq!(second.keys().len(), 0);
}

#[test]
fn an_upstream_that_cannot_take_over_is_an_error_of_the_configuration() {
    let check = |fallback: &str, expected: &str| {
        let text = settings("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", fallback);
        let text = text.replace(
            "[upstreams.second]",
            "[upstreams.passing]\nurl = \"http://127.0.0.1:3/v1\"\npass-key = true\n[upstreams.second]",
        );
        let error = GatewayHome::new(&text, POLICY).try_start().err().unwrap();
        assert!(error.contains(expected), "{error}");
    };
    check(
        "fallback = [{ upstream = \"third\" }]",
        "clients.agent: fallback: the configuration has no upstream `third`",
    );
    check(
        "fallback = [{ upstream = \"double\" }]",
        "`double` is the client's own upstream, which cannot replace itself: name another one",
    );
    check("fallback = [{ upstream = \"passing\" }]", "in [upstreams.passing], replace `pass-key`");
    check(
        "fallback = [{ upstream = \"second\", model = \"x\" }]",
        "`second` does not have the model `x`: name one of `models` in [upstreams.second]",
    );
}
