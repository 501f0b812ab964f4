//! Tests that clients that use the same name for their conversations share nothing, and that a full conversation is
//! closed on every route.

use serde_json::{Value, json};

use crate::approvals::{PersonClient, mails};
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestGateway, config};
use crate::mcp::AnswerForm;
use crate::servers::{self, bank, web};
use crate::upstream::{UpstreamDouble, says};

const NAME: &str = "shared";

fn ask(gateway: &TestGateway, key: &str, messages: &Value) -> (u16, Value) {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let body = json!({"model": "double", "messages": messages, "tools": [tool("read"), tool("send")]});
    let headers = [("authorization", &*format!("Bearer {key}")), ("x-flowgate-conversation", NAME)];
    let (status, text) = gateway.post("/v1/chat/completions", &headers, &body.to_string());
    (status, serde_json::from_str(&text).unwrap_or_default())
}

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn said(answer: &Value) -> String {
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

/// Two clients that use the same name have separate conversations, before and after a restart.
#[test]
fn two_clients_may_use_one_name() {
    let upstream = UpstreamDouble::new(|request| says(&format!("I heard {}.", request.messages.len())));
    let home = GatewayHome::new(
        &config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\""),
        POLICY,
    );
    for round in ["at once", "after a restart"] {
        let gateway = home.start();
        assert_eq!(ask(&gateway, KEY, &json!([user(&format!("My code is zebra, {round}."))])).0, 200);
        let (status, answer) = ask(&gateway, OTHER_KEY, &json!([user("Hello.")]));
        assert_eq!((status, said(&answer).as_str()), (200, "I heard 1."), "{round}");
        let shown = upstream.shown().pop().unwrap();
        assert!(shown.contains("Hello.") && !shown.contains("zebra"), "{round}: {shown}");
        // Each client continues its own conversation.
        let goes_on = json!({"role": "assistant", "content": "I heard 1."});
        let (_, answer) = ask(&gateway, OTHER_KEY, &json!([user("Hello."), goes_on, user("And now?")]));
        assert_eq!(said(&answer), "I heard 3.", "{round}");
        assert!(!upstream.shown().pop().unwrap().contains("zebra"), "{round}");
        gateway.stop();
    }
}

/// An approval for one client does not apply to another one that uses the same name; each has its own question.
#[test]
fn an_approval_is_of_one_client() {
    let upstream = UpstreamDouble::new(mails);
    let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n";
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
        + people;
    let policy = POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
    let gateway = GatewayHome::new(&text, &policy).start();
    let bob = PersonClient(&gateway, "bob");
    let mail = json!([user("Mail Bob.")]);
    let waits = |answer: &Value| said(answer).contains("a person has to allow");
    let (_, first) = ask(&gateway, KEY, &mail);
    assert!(waits(&first), "{first}");
    let question = bob.first();
    let (_, second) = ask(&gateway, OTHER_KEY, &mail);
    assert!(waits(&second), "{second}");
    let mut clients: Vec<Value> = bob.open().into_iter().map(|question| question["client"].clone()).collect();
    clients.sort_by_key(Value::to_string);
    assert_eq!((clients, &question["client"]), (vec![json!("agent"), json!("other")], &json!("agent")));
    assert_eq!(bob.says(&question, "allow").0, 200);
    let goes_on = |answer: &Value| {
        let said = json!({"role": "assistant", "content": said(answer)});
        json!([user("Mail Bob."), said, user("continue")])
    };
    let sends = |answer: &Value| {
        answer.to_string().contains("mallory") || answer.to_string().contains(r#""name":"send""#)
    };
    let (_, other) = ask(&gateway, OTHER_KEY, &goes_on(&second));
    assert!(waits(&other) && !sends(&other), "{other}");
    let (_, own) = ask(&gateway, KEY, &goes_on(&first));
    assert!(sends(&own), "{own}");
}

/// A full conversation rejects further chats and calls, also after a restart; another conversation does not.
#[test]
fn a_full_conversation_is_closed_on_every_route() {
    let upstream = UpstreamDouble::new(|_| says("Yes."));
    let (web, bank) = (web(AnswerForm::Json), bank(AnswerForm::Json));
    let store = "[store]\nconversation-mib = 1\n";
    let home = servers::home(&upstream.url, [&web, &bank], store, servers::POLICY);
    let mut gateway = home.start();
    let key = format!("Bearer {KEY}");
    let post = |gateway: &TestGateway, path: &str, name: &str, body: &Value| {
        gateway.post(path, &[("authorization", &key), ("x-flowgate-conversation", name)], &body.to_string())
    };
    let chat = |text: &str| json!({"model": "double", "messages": [user(text)]});
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(post(&gateway, "/mcp/bank", "long", &ping).0, 200);
    assert_eq!(post(&gateway, "/v1/chat/completions", "long", &chat(&"x".repeat(1_100_000))).0, 200);
    for restarted in [false, true] {
        if restarted {
            gateway.stop();
            gateway = home.start();
        }
        for (path, body) in [("/v1/chat/completions", chat("more")), ("/mcp/bank", ping.clone())] {
            let (status, text) = post(&gateway, path, "long", &body);
            assert!(text.contains("begin a new one"), "{path} {restarted}: {status} {text}");
            let other = post(&gateway, path, "other", &body);
            assert!(other.0 == 200 && !other.1.contains("begin a new one"), "{path} {restarted}: {other:?}");
        }
    }
}
