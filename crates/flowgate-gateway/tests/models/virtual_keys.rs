//! Tests of virtual keys: who may make and revoke them, what they may be used for, and that the conversations of two of
//! them are separate.

use std::sync::{Arc, OnceLock};

use flowgate_lm::chat::Usage;
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::{PersonClient, home, mails};
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, until};
use crate::mcp::{self, AnswerForm, McpServerDouble, McpTestClient};
use crate::persisted_turns::tables;
use crate::servers::{self, bank, web};
use crate::upstream::{UpstreamDouble, calls, says};

const ROUTE: &str = "/api/v1/keys";

/// A made key.
struct MadeKey {
    id: String,
    key: String,
}

/// Makes a key of `agent` as the person bob, with `more` in the request.
fn make(gateway: &TestGateway, name: &str, more: &Value) -> MadeKey {
    let (status, made) = try_make(gateway, "bob", "agent", name, more);
    assert_eq!(status, 200, "{made}");
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    MadeKey { id: text("id"), key: text("key") }
}

fn try_make(
    gateway: &TestGateway,
    person: &'static str,
    client: &str,
    name: &str,
    more: &Value,
) -> (u16, Value) {
    let mut body = json!({"client": client, "name": name});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
    let (status, answer) = PersonClient(gateway, person).post(ROUTE, &body);
    (status, serde_json::from_str(&answer).unwrap())
}

fn revoke(gateway: &TestGateway, person: &'static str, id: &str) -> u16 {
    gateway.delete(&format!("{ROUTE}/{id}"), &PersonClient(gateway, person).key()).0
}

fn list(gateway: &TestGateway) -> Vec<Value> {
    let (status, answer) = gateway.get(ROUTE, &PersonClient(gateway, "bob").key());
    assert_eq!(status, 200, "{answer}");
    serde_json::from_str::<Value>(&answer).unwrap()["keys"].as_array().unwrap().clone()
}

/// Asks for an answer of `model`; returns the status and the reply.
fn ask(gateway: &TestGateway, key: &str, model: &str) -> (u16, String) {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "Hello?"}]});
    gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {key}"))], &body.to_string())
}

/// Returns a home with the people of [`home`], whose upstream answers with a greeting.
fn greeting() -> (UpstreamDouble, GatewayHome) {
    let upstream = UpstreamDouble::new(|_| says("Hello."));
    let home = home(&upstream, 0);
    (upstream, home)
}

/// An answer of a server is stopped while it arrives: the log says why, and does not say that a freeze did it if none did.
#[test]
fn the_log_says_why_an_answer_is_stopped() {
    for (is_revoked, expected) in [
        (
            true,
            "the answer of the MCP server is stopped: the key of this conversation was revoked, or has expired",
        ),
        (false, "the answer of the MCP server is stopped: an admin has frozen this server"),
    ] {
        let running = Arc::new(OnceLock::<(TestGateway, MadeKey)>::new());
        let of_server = Arc::clone(&running);
        let bank = McpServerDouble::new(AnswerForm::Json, &["balance"], move |_, _| {
            let (gateway, made) = of_server.get().unwrap();
            if is_revoked {
                assert_eq!(revoke(gateway, "bob", &made.id), 200);
            } else {
                let freeze = json!({"kind": "server", "what": "bank", "frozen": true});
                assert_eq!(PersonClient(gateway, "bob").post("/api/v1/freezes", &freeze).0, 200);
            }
            mcp::text("100")
        });
        let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n";
        let web = web(AnswerForm::Json);
        let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], people, servers::POLICY);
        let (gateway, mut log) = home.start_with_log();
        let made = make(&gateway, "ci", &json!({}));
        let key: &'static str = Box::leak(made.key.clone().into_boxed_str());
        let (gateway, _) = running.get_or_init(|| (gateway, made));
        let mut one = McpTestClient { gateway, key, conversation: "one", next: 0 };
        one.begin("bank");
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "balance"}});
        let (_, messages) = one.send("bank", &call, &[]);
        assert!(!format!("{messages:?}").contains("100"), "{messages:?}");
        let line = log.next("upstream");
        assert!(line["message"].as_str().unwrap().starts_with(expected), "{line}");
    }
}

/// A key works in every API, streamed or not, also after a restart, until it is revoked.
#[test]
fn a_key_stands_for_its_client_until_it_is_revoked() {
    let (upstream, home) = greeting();
    let mut gateway = home.start();
    let made = make(&gateway, "ci", &json!({}));
    assert!(made.key.starts_with("fgk-") && made.key.len() == 68);
    for (api, _) in FORMS {
        for streaming in [false, true] {
            let mut agent = TestAgent::new(&gateway, api, streaming, &made.key);
            assert_eq!(agent.says("Hello?"), "Hello.", "{api:?} {streaming}");
            assert_eq!(agent.says("Again?"), "Hello.", "{api:?} {streaming}");
        }
    }
    assert!(upstream.keys().iter().all(|key| !key.contains("fgk-")), "{:?}", upstream.keys());
    gateway.stop();
    gateway = home.start();
    if home.file().is_some() || home.database().is_some() {
        assert_eq!(ask(&gateway, &made.key, "double").0, 200);
        assert_eq!(gateway.get("/v1/models", &made.key).0, 200);
        assert_eq!(revoke(&gateway, "bob", &made.id), 200);
        for (status, answer) in [ask(&gateway, &made.key, "double"), gateway.get("/v1/models", &made.key)] {
            assert!(status == 401 && answer.contains("the key is not valid: it was revoked"), "{answer}");
        }
        assert_eq!(revoke(&gateway, "bob", &made.id), 404);
        // The other keys of the client still work, and the name is free.
        assert_eq!(ask(&gateway, KEY, "double").0, 200);
        assert_ne!(make(&gateway, "ci", &json!({})).key, made.key);
    }
}

/// Keys that are none, or no longer valid, are refused, and never passed on to an upstream.
#[test]
fn other_keys_are_refused() {
    let (upstream, home) = greeting();
    let gateway = home.start();
    let made = make(&gateway, "ci", &json!({}));
    let expiring = make(&gateway, "short", &json!({"expires": 4_000_000_000_000_u64}));
    assert_eq!(ask(&gateway, &expiring.key, "double").0, 200);
    tables(&home, &["UPDATE virtual_keys SET expires = 1 WHERE name = 'short'"]);
    let mut changed = made.key.clone();
    let last = changed.pop().unwrap();
    changed.push(if last == '0' { '1' } else { '0' });
    let hex = made.key.trim_start_matches("fgk-").to_owned();
    for (key, why) in [
        (changed, "the key is not valid"),
        (format!("fgk-{}", "0".repeat(64)), "the key is not valid"),
        (made.key.to_uppercase(), "no client of this gateway has this key"),
        (format!("{}0", made.key), "the key is not valid"),
        ("fgk-".to_owned(), "the key is not valid"),
        (hex, "no client of this gateway has this key"),
        (made.id, "no client of this gateway has this key"),
        (expiring.key, "the key has expired"),
    ] {
        let (status, answer) = ask(&gateway, &key, "double");
        assert!(status == 401 && answer.contains(why), "{key}: {status} {answer}");
    }
    assert_eq!(upstream.shown().len(), 1);
    let states: Vec<Value> = list(&gateway).iter().map(|key| key["state"].clone()).collect();
    assert!(states.contains(&json!("expired")) && states.contains(&json!("valid")), "{states:?}");
    // In the header of the gateway, too, and together with another key.
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello?"}]}).to_string();
    let send = |headers: &[(&str, &str)]| gateway.post("/v1/chat/completions", headers, &body);
    let bearer = format!("Bearer {}", made.key);
    assert_eq!(send(&[("x-flowgate-key", &made.key), ("authorization", "Bearer sk-provider")]).0, 200);
    assert_eq!(send(&[("x-api-key", &made.key)]).0, 200);
    let (status, answer) = send(&[("x-flowgate-key", KEY), ("authorization", &bearer)]);
    assert!(status == 401 && answer.contains("is a key of this gateway"), "{answer}");
    assert_eq!(send(&[("x-flowgate-key", "fgk-x"), ("authorization", &bearer)]).0, 401);
}

/// Only an admin of the client's tenant may make, see and revoke keys, and no key of a client is one of a person.
#[test]
fn only_an_admin_of_the_tenant_handles_keys() {
    let (_upstream, mut home) = greeting();
    home.edit(
        "[approvals]",
        "[people.max]\nkey-from = \"max\"\nrole = \"admin\"\ntenants = [\"bank\"]\n[approvals]",
    );
    home.edit("[clients.other]\n", "[clients.other]\ntenant = \"bank\"\n");
    let gateway = home.start();
    let made = make(&gateway, "ci", &json!({}));
    for (person, client, expected) in [
        ("vic", "agent", 403),
        ("ann", "agent", 403),
        ("eve", "other", 403),
        ("nobody", "agent", 401),
        ("max", "agent", 404),
        ("max", "nobody", 404),
        ("bob", "nobody", 404),
        ("max", "other", 200),
    ] {
        let (status, answer) = try_make(&gateway, person, client, "new", &json!({}));
        assert_eq!(status, expected, "{person} {client}: {answer}");
    }
    for (person, expected) in [("vic", 403), ("ann", 403), ("nobody", 401), ("max", 404)] {
        assert_eq!(revoke(&gateway, person, &made.id), expected, "{person}");
    }
    assert_eq!(revoke(&gateway, "bob", "0000000000000000"), 404);
    for (person, expected) in [("vic", 403), ("ann", 403), ("nobody", 401), ("max", 200), ("bob", 200)] {
        let (status, answer) = gateway.get(ROUTE, &PersonClient(&gateway, person).key());
        assert_eq!(status, expected, "{person}");
        assert_eq!(answer.contains("\"ci\""), person == "bob", "{person}: {answer}");
    }
    // A key of a client, virtual or not, is no key of a person.
    for key in [KEY, &made.key] {
        let authorization = format!("Bearer {key}");
        let body = json!({"client": "agent", "name": "more"}).to_string();
        assert_eq!(gateway.post(ROUTE, &[("authorization", &authorization)], &body).0, 401);
        assert_eq!(gateway.get(ROUTE, key).0, 401);
        assert_eq!(gateway.get("/api/v1/approvals", key).0, 401);
    }
    assert_eq!(list(&gateway).len(), 2);
}

/// What a request for a key may say, and the reply to anything else.
#[test]
fn requests_for_keys_are_checked() {
    let (_upstream, home) = greeting();
    let gateway = home.start();
    make(&gateway, "taken", &json!({}));
    for (name, more, expected, why) in [
        ("taken", json!({}), 409, "a key of this name"),
        ("", json!({}), 400, "name:"),
        ("  ", json!({}), 400, "name:"),
        ("a\nb", json!({}), 400, "name:"),
        (&"x".repeat(65), json!({}), 400, "name:"),
        ("a", json!({"expires": 1}), 400, "expires: the time is in the past"),
        ("a", json!({"expires": -1}), 400, "expires"),
        ("a", json!({"requests_per_minute": 0}), 400, "a limit of 0"),
        ("a", json!({"tokens_per_day": 0}), 400, "a limit of 0"),
        ("a", json!({"cost_per_day": 1.0}), 400, "no model has a price"),
        ("a", json!({"cost_per_day": -1.0}), 400, "cost_per_day: write a number above 0"),
        ("a", json!({"models": ["large"]}), 400, "this client may not ask for `large`"),
        ("a", json!({"tenant": "bank"}), 400, "does not have the form"),
        ("a", json!({"policy": "none.flow"}), 400, "does not have the form"),
        ("Ann's", json!({}), 400, "name:"),
        ("ann@example.org/é 1", json!({}), 200, ""),
    ] {
        let (status, answer) = try_make(&gateway, "bob", "agent", name, &more);
        assert_eq!(status, expected, "{name} {more}: {answer}");
        assert!(answer.to_string().contains(why), "{name} {more}: {answer}");
    }
    // Another client may have a key of the same name.
    assert_eq!(try_make(&gateway, "bob", "other", "taken", &json!({})).0, 200);
}

/// A reload that removes a client, or moves it to another tenant, ends its keys; a changed policy holds for them.
#[test]
fn a_key_follows_its_client_through_reloads() {
    let upstream = UpstreamDouble::new(mails);
    let mut home = home(&upstream, 0);
    let (gateway, _lines) = home.start_reloadable();
    let made = make(&gateway, "ci", &json!({}));
    let reload = || {
        assert_eq!(PersonClient(&gateway, "bob").post("/api/v1/policies/reload", &json!({})).0, 200);
    };
    let waits = || TestAgent::new(&gateway, FORMS[0].0, false, &made.key).says("Mail Bob.");
    assert!(waits().contains("a person has to allow"));
    home.policy(POLICY);
    reload();
    assert_eq!(waits(), "Done.");
    let refused = |why: &str| {
        let (status, answer) = ask(&gateway, &made.key, "double");
        assert!(status == 401 && answer.contains(why), "{status} {answer}");
        assert_eq!(list(&gateway).first().unwrap()["state"], "no-client");
    };
    home.edit("[clients.agent]\n", "[clients.agent]\ntenant = \"bank\"\n");
    home.save();
    reload();
    refused("the client of the key was removed from the configuration, or has another tenant now");
    home.edit("[clients.agent]\ntenant = \"bank\"\n", "[clients.renamed]\n");
    home.save();
    reload();
    refused("the client of the key was removed from the configuration, or has another tenant now");
    // The client is back, and so is its key.
    home.edit("[clients.renamed]\n", "[clients.agent]\n");
    home.save();
    reload();
    assert_eq!(ask(&gateway, &made.key, "double").0, 200);
}

/// The limits of a key apply in addition to those of its client, to this key alone.
#[test]
fn a_key_has_its_own_limits() {
    let upstream = UpstreamDouble::new(|_| {
        let mut completion = says("Hello.");
        completion.usage = Usage { input: 80, output: 20, cached: 0 };
        completion
    });
    let mut home = home(&upstream, 0);
    home.edit("[approvals]", "[prices]\ndouble = { input = 2.0, output = 10.0 }\n[approvals]");
    let (mut gateway, _log) = home.start_with_log();
    // 100 tokens cost 360 millionths.
    let rows = [
        (json!({"requests_per_minute": 2}), 2, "this key has sent too many requests in a minute"),
        (json!({"tokens_per_day": 101}), 2, "this key has used its budget of tokens for today"),
        (json!({"cost_per_day": 0.000_360}), 1, "this key has used its budget of cost for today"),
    ];
    let mut refused = Vec::new();
    for (number, (limits, answered, why)) in rows.into_iter().enumerate() {
        let made = make(&gateway, &format!("k{number}"), &limits);
        for _ in 0..answered {
            let (status, answer) = ask(&gateway, &made.key, "double");
            assert_eq!(status, 200, "{limits}: {answer}");
        }
        let (status, answer) = ask(&gateway, &made.key, "double");
        assert!(status == 429 && answer.contains(why), "{limits}: {status} {answer}");
        refused.push((made, why));
    }
    let free = make(&gateway, "free", &json!({}));
    assert_eq!((ask(&gateway, &free.key, "double").0, ask(&gateway, KEY, "double").0), (200, 200));
    // A restart gives no new budget.
    gateway.stop();
    gateway = home.start();
    if home.file().is_some() || home.database().is_some() {
        for (made, why) in refused.iter().skip(1) {
            let (status, answer) = ask(&gateway, &made.key, "double");
            assert!(status == 429 && answer.contains(why), "{status} {answer}");
        }
        // Without a price, nothing can be asked for with a limited cost.
        let priced = make(&gateway, "priced", &json!({"cost_per_day": 1.0}));
        let (status, answer) = ask(&gateway, &priced.key, "small");
        assert!(status == 403 && answer.contains("`small` has no price"), "{answer}");
        assert_eq!(ask(&gateway, &free.key, "small").0, 200);
    }
}

/// The budget of a client holds for all its keys together.
#[test]
fn a_key_spends_the_budget_of_its_client() {
    let upstream = UpstreamDouble::new(|_| {
        let mut completion = says("Hello.");
        completion.usage = Usage { input: 80, output: 20, cached: 0 };
        completion
    });
    let mut home = home(&upstream, 0);
    home.edit("owner = \"ann\"", "owner = \"ann\"\ntokens-per-day = 150\nrequests-per-minute = 5");
    let gateway = home.start();
    let [one, two] = ["one", "two"].map(|name| make(&gateway, name, &json!({"tokens_per_day": 1_000_000})));
    assert_eq!((ask(&gateway, &one.key, "double").0, ask(&gateway, &two.key, "double").0), (200, 200));
    for key in [&one.key, &two.key, KEY] {
        let (status, answer) = ask(&gateway, key, "double");
        assert!(status == 429 && answer.contains("this client has used its budget"), "{answer}");
    }
    // Its requests in a minute, too: five have been sent.
    let (status, answer) = ask(&gateway, &one.key, "double");
    assert!(status == 429 && answer.contains("this client has sent too many requests"), "{answer}");
}

/// A key for some models is refused for the others, and lists only its own.
#[test]
fn a_key_is_for_some_models() {
    let (upstream, home) = greeting();
    let gateway = home.start();
    let made = make(&gateway, "small", &json!({"models": ["small"]}));
    assert_eq!(ask(&gateway, &made.key, "small").0, 200);
    let (status, answer) = ask(&gateway, &made.key, "double");
    assert!(status == 404 && answer.contains("it may be used for: small"), "{status} {answer}");
    assert_eq!(upstream.shown().len(), 1);
    let models = |key: &str| {
        let (_, list) = gateway.get("/v1/models", key);
        (list.contains("\"id\":\"small\""), list.contains("\"id\":\"double\""))
    };
    assert_eq!((models(&made.key), models(KEY)), ((true, false), (true, true)));
    let embeddings = json!({"model": "double", "input": "Hello"}).to_string();
    let authorization = format!("Bearer {}", made.key);
    let (status, answer) = gateway.post("/v1/embeddings", &[("authorization", &authorization)], &embeddings);
    assert!(status == 404 && answer.contains("it may be used for"), "{status} {answer}");
}

/// Conversations of two keys of one client are separate, whether a name or the history of the chat identifies them.
#[test]
fn conversations_of_two_keys_are_separate() {
    let upstream = UpstreamDouble::new(|request| says(&format!("I heard {}.", request.messages.len())));
    let home = home(&upstream, 0);
    let gateway = home.start();
    let [one, two] = ["one", "two"].map(|name| make(&gateway, name, &json!({})));
    let user = |text: &str| json!({"role": "user", "content": text});
    let send = |key: &str, name: Option<&str>, messages: &Value| {
        let authorization = format!("Bearer {key}");
        let mut headers = vec![("authorization", authorization.as_str())];
        headers.extend(name.map(|name| ("x-flowgate-conversation", name)));
        // With a tool whose arguments must be trusted, what is not trusted is hidden.
        let send =
            json!({"type": "function", "function": {"name": "send", "parameters": {"type": "object"}}});
        let body = json!({"model": "double", "messages": messages, "tools": [send]}).to_string();
        let (status, told, answer) =
            gateway.post_for("/v1/chat/completions", &headers, &body, "x-flowgate-conversation");
        assert_eq!(status, 200, "{answer}");
        told.unwrap()
    };
    let keys = [one.key.as_str(), &two.key, KEY];
    // Three keys name one conversation alike: none is shown the messages of another, and each gets the name that it sent.
    for (key, code) in keys.iter().zip(["zebra", "otter", "heron"]) {
        assert_eq!(send(key, Some("shared"), &json!([user(&format!("My code is {code}."))])), "shared");
        let shown = upstream.shown().pop().unwrap();
        let seen = ["zebra", "otter", "heron"].map(|other| shown.contains(other));
        assert_eq!(seen, ["zebra", "otter", "heron"].map(|other| other == code), "{shown}");
    }
    // By history: each key continues its own conversation of the same chat.
    let begun: Vec<String> = keys.iter().map(|key| send(key, None, &json!([user("Hello.")]))).collect();
    assert!(begun.iter().all(|name| name.is_ascii() && !name.contains("fgk")), "{begun:?}");
    assert_eq!(begun.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{begun:?}");
    let model = json!({"role": "assistant", "content": "I heard 1."});
    for (key, name) in keys.iter().zip(&begun) {
        assert_eq!(&send(key, None, &json!([user("Hello."), model, user("And now?")])), name);
    }
    // A reply that only the conversation of another key could have produced is not trusted.
    let secret = json!([user("Begin."), {"role": "assistant", "content": "I heard 1."}, user("Go on.")]);
    send(&one.key, None, &json!([user("Begin.")]));
    send(&two.key, None, &secret);
    assert!(upstream.shown().pop().unwrap().contains("[hidden"), "{:?}", upstream.shown().pop());
    send(&one.key, None, &secret);
    assert!(!upstream.shown().pop().unwrap().contains("[hidden"), "{:?}", upstream.shown().pop());
}

/// An approval of a call applies to the conversation of one key, not to a conversation of the same name of another.
#[test]
fn an_approval_is_of_one_key() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, 0);
    let gateway = home.start();
    let keys = ["one", "two"].map(|name| make(&gateway, name, &json!({})));
    let [mut one, mut two] =
        [&keys[0], &keys[1]].map(|made| TestAgent::new(&gateway, FORMS[0].0, false, &made.key));
    assert!(one.says("Mail Bob.").contains("a person has to allow"));
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(question["client"], "agent");
    assert!(question["conversation"].as_str().unwrap().contains(&keys[0].id), "{question}");
    assert!(two.says("Mail Bob.").contains("a person has to allow"));
    assert_eq!(bob.says(&question, "allow").0, 200);
    assert!(two.says("continue").contains("a person has to allow"));
    assert_eq!(one.says("continue"), "Done.");
}

/// A key that is revoked while its turn waits for the model gets none of the calls of that turn.
#[test]
fn a_revoked_key_stops_its_turn() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, 60);
    let gateway = home.start();
    let made = make(&gateway, "ci", &json!({}));
    std::thread::scope(|scope| {
        let (gateway, key) = (&gateway, &made.key);
        let asked = scope.spawn(move || {
            let mut body = json!({"model": "double", "messages": [{"role": "user", "content": "Mail Bob."}]});
            let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
            body["tools"] = json!([tool("read"), tool("send")]);
            gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {key}"))], &body.to_string())
        });
        let bob = PersonClient(gateway, "bob");
        let question = bob.first();
        assert_eq!(revoke(gateway, "bob", &made.id), 200);
        assert_eq!(bob.says(&question, "allow").0, 200);
        let (status, answer) = asked.join().unwrap();
        assert!(
            status == 403 && answer.contains("the key of this conversation was revoked"),
            "{status} {answer}"
        );
    });
}

/// A key works at the MCP servers of its client, in conversations of its own, and no longer once it is revoked.
#[test]
fn a_key_works_at_the_servers_of_its_client() {
    let (web, bank) = (web(AnswerForm::Json), bank(AnswerForm::Json));
    let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n";
    let gateway = servers::home("http://127.0.0.1:1/v1", [&web, &bank], people, servers::POLICY).start();
    let keys = ["one", "two"].map(|name| make(&gateway, name, &json!({})));
    let send = |key: &str, server: &str, method: &str, params: &Value| {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let authorization = format!("Bearer {key}");
        let headers = [("authorization", authorization.as_str()), ("x-flowgate-conversation", "shared")];
        gateway.post_for(&format!("/mcp/{server}"), &headers, &body, "x-flowgate-conversation")
    };
    let pay = json!({"name": "pay", "arguments": {"to": "bob", "amount": 5}});
    let begin = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    for made in &keys {
        for server in ["web", "bank"] {
            let (status, name, answer) = send(&made.key, server, "initialize", &begin);
            assert_eq!((status, name.as_deref()), (200, Some("shared")), "{answer}");
            assert_eq!(send(&made.key, server, "tools/list", &json!({})).0, 200);
        }
    }
    // What the first key has read affects its own calls alone.
    let (_, _, page) = send(&keys[0].key, "web", "tools/call", &json!({"name": "read", "arguments": {}}));
    assert!(page.contains("MALLORY"), "{page}");
    let paid = |made: &MadeKey| send(&made.key, "bank", "tools/call", &pay).2.contains("paid");
    assert_eq!((paid(&keys[0]), paid(&keys[1])), (false, true));
    assert_eq!(revoke(&gateway, "bob", &keys[1].id), 200);
    let (status, _, answer) = send(&keys[1].key, "bank", "tools/call", &pay);
    assert!(status == 401 && answer.contains("the key is not valid"), "{answer}");
}

/// The key is in no list, log, audit log, metric or table, also if an agent sends it in a call.
#[test]
fn a_key_is_shown_once() {
    let upstream = UpstreamDouble::new(|request| {
        let key = request.messages.iter().find_map(|message| {
            let text = format!("{message:?}");
            text.find("fgk-").and_then(|at| text.get(at..at + 68).map(str::to_owned))
        });
        match key {
            Some(key) if request.messages.len() == 1 => {
                calls(&[("send", &json!({"to": "bob", "body": key}).to_string())])
            }
            _ => says("Done."),
        }
    });
    let mut home = home(&upstream, 0);
    home.edit("[approvals]", "[audit]\nfile = \"audit.jsonl\"\ncontent-days = 3\n[approvals]");
    home.policy(POLICY);
    let (gateway, lines) = home.start_with_log();
    let made = make(&gateway, "ci", &json!({}));
    let digits = made.key.trim_start_matches("fgk-").to_owned();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, &made.key);
    assert_eq!(agent.says(&format!("My key is {}.", made.key)), "Done.");
    assert!(agent.ran.first().unwrap().contains(&made.key));
    // A refused key, and one as the name of a conversation.
    ask(&gateway, &made.key.replace('a', "b"), "double");
    let body = json!({"model": "large", "messages": []}).to_string();
    let authorization = format!("Bearer {}", made.key);
    gateway.post(
        "/v1/chat/completions",
        &[("authorization", &authorization), ("x-flowgate-conversation", &made.key)],
        &body,
    );
    let listed = list(&gateway);
    let key = listed.first().unwrap();
    assert_eq!(
        (&key["name"], &key["client"], &key["made_by"]),
        (&json!("ci"), &json!("agent"), &json!("bob"))
    );
    let day = key["last_used"].as_u64().unwrap();
    assert!(day.is_multiple_of(86_400_000) && key["made"].as_u64().unwrap() < day + 2 * 86_400_000, "{key}");
    assert_eq!((&key["expires"], &key["models"]), (&Value::Null, &json!([])));
    let (_, metrics) = gateway.get("/metrics", KEY);
    assert_eq!(revoke(&gateway, "bob", &made.id), 200);
    let file = |name: &str| std::fs::read_to_string(home.folder().join(name)).unwrap();
    gateway.stop();
    let log = lines.rest();
    let (audit, contents) = (file("audit.jsonl"), file("audit.jsonl.content"));
    assert!(contents.contains("[key]"), "{contents}");
    for (place, text) in [
        ("list", json!(listed).to_string()),
        ("metrics", metrics),
        ("log", log),
        ("audit", audit),
        ("contents", contents),
    ] {
        assert!(!text.contains(&digits), "{place}: {text}");
    }
    let orders: Vec<String> = records(&home)
        .iter()
        .filter(|record| record.kind.name().starts_with("key-"))
        .map(|record| {
            format!(
                "{} {} {} {}",
                record.kind, record.object["client"], record.object["what"], record.object["who"]
            )
        })
        .collect();
    let what = format!("\"{} ci\"", made.id);
    assert_eq!(
        orders,
        [format!("key-made \"agent\" {what} \"bob\""), format!("key-revoked \"agent\" {what} \"bob\"")]
    );
}

/// A key that the database cannot store, or whose record the audit log cannot write, is not made.
#[test]
fn a_key_that_cannot_be_stored_is_not_made() {
    let (_upstream, mut home) = greeting();
    home.edit("[approvals]", "[audit]\nfile = \"audit.jsonl\"\n[approvals]");
    let gateway = home.start();
    let made = make(&gateway, "ci", &json!({}));
    tables(&home, &["ALTER TABLE virtual_keys RENAME TO keys_elsewhere"]);
    assert_eq!(try_make(&gateway, "bob", "agent", "new", &json!({})).0, 503);
    // Without the table, no key is accepted, and none is passed on.
    let (status, answer) = ask(&gateway, &made.key, "double");
    assert!(status >= 500, "{status} {answer}");
    tables(&home, &["ALTER TABLE keys_elsewhere RENAME TO virtual_keys"]);
    assert!(until(|| ask(&gateway, &made.key, "double").0 == 200));
    assert_eq!(list(&gateway).len(), 1);
}

/// With a shared database, a key that one gateway has made works at another one, until one of them revokes it.
#[test]
fn gateways_of_one_database_share_keys() {
    let (_upstream, home) = greeting();
    if !home.shares_its_store() {
        return;
    }
    let (one, two) = (home.start(), home.start());
    let made = make(&one, "ci", &json!({"requests_per_minute": 3}));
    assert_eq!((ask(&two, &made.key, "double").0, ask(&one, &made.key, "double").0), (200, 200));
    assert_eq!(ask(&two, &made.key, "double").0, 200);
    assert_eq!(ask(&one, &made.key, "double").0, 429);
    assert_eq!(revoke(&two, "bob", &made.id), 200);
    assert_eq!((ask(&one, &made.key, "double").0, ask(&two, &made.key, "double").0), (401, 401));
}
