//! Tests of freezes: an admin stops a tool, a client or a server, or withdraws a standing consent.

use flowgate_lm::chat::Request;
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::{PersonClient, home, mails};
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, TestAgent, config};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// A freeze takes effect at once and affects only its target.
#[test]
fn a_freeze_stops_only_its_target() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("\"read\"") {
        true => says("I have read it."),
        false => calls(&[("read", "{}")]),
    });
    let gateway = home(&upstream, 0).start();
    let admin = PersonClient(&gateway, "bob");
    let ask = |key: &str, name: &str| {
        let tools =
            json!([{"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}]);
        let body =
            json!({"model": "double", "messages": [{"role": "user", "content": "Read."}], "tools": tools});
        let headers = [("authorization", &*format!("Bearer {key}")), ("x-flowgate-conversation", name)];
        let (status, body) = gateway.post("/v1/chat/completions", &headers, &body.to_string());
        (status, body.contains("\"tool_calls\""))
    };
    assert_eq!(ask(KEY, "one"), (200, true));
    let switch = |kind: &str, what: &str, frozen: bool| {
        let body = json!({"kind": kind, "what": what, "frozen": frozen, "in_advance": what == "send"});
        assert_eq!(admin.post("/api/v1/freezes", &body).0, 200, "{kind} {what}");
    };
    for (kind, what, one, two, other) in [
        ("tool", "read", (200, false), (200, false), (200, false)),
        ("tool", "send", (200, true), (200, true), (200, true)),
        ("conversation", "agent/one", (403, false), (200, true), (200, true)),
        ("client", "agent", (403, false), (403, false), (200, true)),
    ] {
        switch(kind, what, true);
        // A person of another tenant sees no freeze of a client or a conversation.
        for (name, sees) in [("bob", true), ("vic", true), ("eve", kind == "tool")] {
            let (status, listed) = gateway.get("/api/v1/freezes", &PersonClient(&gateway, name).key());
            let found = (status, listed.contains(&format!("\"what\":\"{what}\"")));
            assert_eq!(found, (200, sees), "{name} {kind} {what}: {listed}");
        }
        let found = (ask(KEY, "one"), ask(KEY, "two"), ask(OTHER_KEY, "one"));
        assert_eq!(found, (one, two, other), "{kind} {what}");
        switch(kind, what, false);
        assert_eq!(ask(KEY, "one"), (200, true), "{kind} {what}");
    }
    let post = |body: Value| {
        let (status, body) = admin.post("/api/v1/freezes", &body);
        (status, serde_json::from_str::<Value>(&body).unwrap())
    };
    // The response names the frozen targets; an unknown name is rejected unless the request declares that it will exist
    // later.
    for (kind, what, matched) in [
        ("client", "agent", json!({"clients": ["agent"]})),
        ("conversation", "agent/one", json!({"conversations": ["agent/one"]})),
        ("tool", "read", json!({"tools": ["read"], "clients": ["agent", "other"]})),
    ] {
        for frozen in [true, false] {
            let (status, body) = post(json!({"kind": kind, "what": what, "frozen": frozen}));
            assert_eq!((status, &body["matched"]), (200, &matched), "{kind} {what} {body}");
        }
    }
    for (kind, what, can_come, why) in [
        (
            "client",
            "agnet",
            false,
            "the configuration has no client of this name; known ones are: agent, other",
        ),
        (
            "client",
            "Agent",
            false,
            "the configuration has no client of this name; known ones are: agent, other",
        ),
        ("client", "", false, "the configuration has no client of this name"),
        ("conversation", "one", false, "a conversation is named CLIENT/NAME"),
        ("conversation", "nobody/one", false, "a conversation is named CLIENT/NAME"),
        ("conversation", "agent/three", true, "the client `agent` has no conversation of this name"),
        ("tool", "raed", true, "no agent has offered a tool of this name"),
        ("tool", "Read", true, "no agent has offered a tool of this name"),
        ("tool", "bank/pay", false, "the configuration has no server `bank`"),
        ("tool", "", false, "`what` is empty: write the name of the tool, or SERVER/NAME"),
        ("server", "bank", false, "the configuration has no server of this name; known ones are: none"),
    ] {
        let (status, body) = post(json!({"kind": kind, "what": what, "frozen": true}));
        let says = body["detail"].as_str().unwrap();
        assert_eq!((status, says.contains(why)), (404, true), "{kind} {what} {says}");
        assert_eq!(says.contains("in_advance"), can_come, "{kind} {what} {says}");
        let (status, body) = post(json!({"kind": kind, "what": what, "frozen": true, "in_advance": true}));
        assert_eq!(status, if can_come { 200 } else { 404 }, "{kind} {what} {body}");
        assert!(!can_come || body["matched"] == json!({}), "{kind} {what} {body}");
        if can_come {
            assert_eq!(post(json!({"kind": kind, "what": what, "frozen": false})).0, 200);
        }
    }
    let body = json!({"kind": "tool", "what": "read", "frozen": true});
    assert_eq!(PersonClient(&gateway, "ann").post("/api/v1/freezes", &body).0, 403);
}

/// A judged call whose message is not released yet is stopped by a freeze, and a used approval does not apply to a
/// later turn.
#[test]
fn a_freeze_stops_a_call_that_waits() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    let bob = PersonClient(&gateway, "bob");
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail Bob.");
    assert_eq!(bob.says(&bob.first(), "allow").0, 200);
    let switch = |frozen: bool| {
        let body = json!({"kind": "tool", "what": "read", "frozen": frozen});
        assert_eq!(bob.post("/api/v1/freezes", &body).0, 200);
    };
    switch(true);
    agent.chat.push(flowgate_lm::chat::Message::User(vec!["continue".into()]));
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Mail Bob."}, {"role": "assistant", "content": agent.chat.get(1).map(text)}, {"role": "user", "content": "continue"}]});
    let headers = [("authorization", &*format!("Bearer {KEY}"))];
    let (status, answer) = gateway.post("/v1/chat/completions", &headers, &body.to_string());
    assert_eq!((status, answer.contains("an admin has frozen this tool")), (403, true), "{answer}");
    switch(false);
    // The turn has ended, so the same call is a new question.
    agent.chat.truncate(0);
    agent.says("Mail Bob again.");
    assert_eq!(bob.first()["state"], "open");
}

fn text(message: &flowgate_lm::chat::Message) -> String {
    match message {
        flowgate_lm::chat::Message::Assistant { text, .. } => text.clone(),
        other => format!("{other:?}"),
    }
}

/// A consent that is withdrawn between the judgement of a call and its release stops the call.
#[test]
fn a_consent_withdrawn_before_release_stops_the_call() {
    for is_withdrawn in [false, true] {
        let upstream =
            UpstreamDouble::new(|request: &Request| match text_of(request).matches("\"read\"").count() {
                0 => calls(&[("read", "{}")]),
                _ if text_of(request).contains("name: \"send\"") => says("Done."),
                _ => calls(&[
                    ("send", r#"{"to": "bob", "body": {"$slot": {"regions": ["h1"]}}}"#),
                    ("send", r#"{"to": "ann", "body": "hello"}"#),
                ]),
            });
        let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n";
        let text =
            config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
                + people;
        let asks = "ask \"mails to Ann are confirmed\" if:\n    (call: ToolCall) is tool:send\n    call.arguments.to == \"ann\"\n";
        let gateway = GatewayHome::new(&text, &(CONSENTS.to_owned() + asks)).start();
        let bob = PersonClient(&gateway, "bob");
        let switch = |what: &str| {
            bob.post("/api/v1/freezes", &json!({"kind": "consent", "what": what, "frozen": true}))
        };
        let (_, problem) = switch("agent:3");
        let name = problem.split("are: ").nth(1).unwrap().split([',', '"']).next().unwrap().to_owned();
        let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
        agent.page = "4111".to_owned();
        agent.says("Mail it to Bob, and greet Ann.");
        assert_eq!(bob.says(&bob.first(), "allow").0, 200);
        if is_withdrawn {
            assert_eq!(switch(&name).0, 200);
        }
        let agent = std::sync::Mutex::new(agent);
        // The outcome may be an error or another answer; the call must not be released.
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            agent.lock().unwrap().says("continue");
        }));
        let agent = agent.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_sent = agent.ran.iter().any(|call| call.contains("4111"));
        assert_eq!(is_sent, !is_withdrawn, "{:?}", agent.ran);
    }
}

/// A policy with a private page that a standing consent permits in the body of a mail.
const CONSENTS: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, public if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted, public if:
    (tool: Tool)
label out.content as trusted, private if:
    (out: ToolOutput) is tool:read
label out.content as trusted, public if:
    (out: ToolOutput) is tool:send
require trusted, private if:
    (call: ToolCall) is tool:read
require trusted, public else deny if:
    (call: ToolCall) is tool:send
payload call.arguments.body if:
    (call: ToolCall) is tool:send
consent private for call.arguments.body if:
    (call: ToolCall) is tool:send
"#;

/// The withdrawal of a standing consent takes effect at once, also in an existing conversation, and can be reverted.
#[test]
fn a_consent_can_be_withdrawn_and_restored() {
    let upstream = UpstreamDouble::new(|request: &Request| {
        let shown = text_of(request);
        match (
            shown.matches("\"read\"").count(),
            shown.matches("name: \"send\"").count(),
            shown.matches("user ").count(),
        ) {
            (0, ..) => calls(&[("read", "{}")]),
            (_, sent, asked) if sent < asked => {
                calls(&[("send", r#"{"to": "bob", "body": {"$slot": {"regions": ["h1"]}}}"#)])
            }
            _ => says("Done."),
        }
    });
    let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n";
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
        + people;
    let gateway = GatewayHome::new(&text, CONSENTS).start();
    let bob = PersonClient(&gateway, "bob");
    let switch = |what: &str, frozen: bool| {
        bob.post("/api/v1/freezes", &json!({"kind": "consent", "what": what, "frozen": frozen}))
    };
    let (status, problem) = switch("agent:3", true);
    let name = problem.split("are: ").nth(1).unwrap().split([',', '"']).next().unwrap();
    assert!(status == 404 && name.starts_with("agent:20-"), "{problem}");
    // A withdrawal for another client with the same policy has no effect here.
    assert_eq!(switch(&name.replacen("agent", "other", 1), true).0, 200);
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.page = "4111".to_owned();
    let sent = |agent: &mut TestAgent, frozen: bool| {
        assert_eq!(switch(name, frozen).0, if frozen || !agent.ran.is_empty() { 200 } else { 404 });
        agent.ran = vec![String::new()];
        agent.says("Mail it to Bob.");
        agent.ran.iter().any(|call| call.contains("4111"))
    };
    assert!(sent(&mut agent, false));
    assert!(!sent(&mut agent, true));
    assert!(sent(&mut agent, false));
}
