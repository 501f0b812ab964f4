//! Tests of the name of a conversation, in requests and in responses of every kind.

use serde_json::{Value, json};

use crate::gateway::{KEY, TestGateway, config};
use crate::mcp::AnswerForm;
use crate::servers::{self, bank, web};
use crate::upstream::{UpstreamDouble, says};

const NAME: &str = "x-flowgate-conversation";
const NOWHERE: &str = "http://127.0.0.1:1/v1";

/// Sends a request with [`KEY`]; returns the status, the name of the conversation, and the body.
fn post(
    gateway: &TestGateway,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, Option<String>, String) {
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let mut request = agent.post(format!("http://{}{path}", gateway.address));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.send(body).unwrap();
    let names: Vec<_> = response.headers().get_all(NAME).iter().collect();
    assert!(names.len() < 2, "{names:?}");
    let name = names.first().map(|name| name.to_str().unwrap().to_owned());
    (response.status().as_u16(), name, response.body_mut().read_to_string().unwrap())
}

fn asks(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hello."}]})
}

/// A request that names two conversations is rejected: an intermediary could read the other name.
#[test]
fn a_request_names_one_conversation() {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let (web, bank) = (web(AnswerForm::Json), bank(AnswerForm::Json));
    let gateway = servers::home(&upstream.url, [&web, &bank], "", servers::POLICY).start();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let key = format!("Bearer {KEY}");
    let check = |names: &[&str], expected: u16| {
        for (path, body) in [("/v1/chat/completions", asks("double")), ("/mcp/bank", ping.clone())] {
            let mut headers = vec![("authorization", key.as_str()), ("content-type", "application/json")];
            headers.extend(names.iter().map(|name| (NAME, *name)));
            let (status, name, answer) = post(&gateway, path, &headers, &body.to_string());
            assert_eq!(status, expected, "{path} {names:?}: {answer}");
            match expected {
                200 => assert_eq!(name.as_deref(), names.first().copied(), "{path}"),
                _ => assert!(
                    answer.contains("`x-flowgate-conversation` ") && name.is_none(),
                    "{path} {answer}"
                ),
            }
        }
    };
    check(&["one"], 200);
    check(&["one", "two"], 400);
    check(&["one", "one"], 400);
    check(&["one", ""], 400);
    check(&[""], 400);
    check(&[&"n".repeat(129)], 400);
}

/// Every response names the conversation of its request, if it is known.
#[test]
fn refusals_name_the_conversation() {
    let gateway = TestGateway::new(NOWHERE, "chat-completions", "");
    let (key, json) = (format!("Bearer {KEY}"), "application/json");
    let check = |key: &str, kind: &str, body: &str, status: u16| {
        for path in ["/v1/chat/completions", "/v1/responses", "/v1/messages"] {
            let headers = [("authorization", key), ("content-type", kind), (NAME, "one")];
            let named = post(&gateway, path, &headers, body);
            let is_known = status != 401;
            assert_eq!(
                (named.0, named.1.as_deref()),
                (status, is_known.then_some("one")),
                "{path} {}",
                named.2
            );
            let other = post(&gateway, path, &headers[..2], body);
            assert_eq!((other.0, other.1), (status, None), "{path} {}", other.2);
        }
    };
    let input = |model: &str| {
        let mut body = asks(model);
        body["max_tokens"] = json!(9);
        body.to_string()
    };
    check("Bearer nobody", json, "{}", 401);
    check(&key, "text/plain", "{}", 415);
    check(&key, json, "{", 400);
    check(&key, json, "{}", 400);
    check(&key, json, &"x".repeat(9 << 20), 413);
    for (model, status) in [("unknown", 404), ("double", 502)] {
        let headers = [("authorization", key.as_str()), ("content-type", json), (NAME, "one")];
        for path in ["/v1/chat/completions", "/v1/messages"] {
            let named = post(&gateway, path, &headers, &input(model));
            assert_eq!((named.0, named.1.as_deref()), (status, Some("one")), "{path} {}", named.2);
            // An unnamed conversation receives a generated name.
            let (found, name, answer) = post(&gateway, path, &headers[..2], &input(model));
            assert_eq!((found, name.is_some_and(|name| name.len() == 32)), (status, true), "{path} {answer}");
        }
    }

    let text = config(NOWHERE, "chat-completions", "requests-per-minute = 1");
    let gateway = TestGateway::configured(&text, crate::gateway::POLICY);
    let headers = [("authorization", key.as_str()), ("content-type", json), (NAME, "one")];
    let told = [1, 2].map(|_| post(&gateway, "/v1/chat/completions", &headers, &input("double")));
    assert_eq!(told.map(|(status, name, _)| (status, name)), [502, 429].map(|s| (s, Some("one".to_owned()))));
}
