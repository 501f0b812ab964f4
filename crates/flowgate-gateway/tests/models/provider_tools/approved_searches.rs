//! Tests of searches by the provider that a person approves. Each runs once, at the party that ran it when it was
//! declared (the provider or the client), and with the restrictions of its declaration. It does not run after the
//! approval was withdrawn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use flowgate_lm::chat::Message;
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use super::{APIS, MORE, SEARCH, ask, body, declares_search, searches};
use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::persisted_turns::tables;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// A person is asked about a search if the policy says so; the approval is used by the search that runs.
#[test]
fn an_approved_search_runs_once() {
    const ASK: &str = "ask \"searches are confirmed\" if:\n    (call: ToolCall) is tool:web_search\n";
    // What the audit log has when the provider searches.
    let (home, at_search) = (Arc::new(OnceLock::<GatewayHome>::new()), Arc::new(OnceLock::<String>::new()));
    let (home_of_double, at_search_of_double) = (Arc::clone(&home), Arc::clone(&at_search));
    let upstream = UpstreamDouble::new(move |request| {
        if text_of(request).contains("Search the web") {
            let home = home_of_double.get().unwrap();
            // The database has the use of the approval, too.
            assert_eq!(tables(home, &["SELECT COUNT(*) FROM questions WHERE state = 'used'"]), 1);
            let text = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
            at_search_of_double.set(text).unwrap();
        }
        searches(request)
    });
    let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n\
         [audit]\nfile = \"audit.jsonl\"\n";
    let text = config(&upstream.url, "messages", MORE) + people;
    let home = home.get_or_init(|| GatewayHome::new(&text, &format!("{POLICY}{SEARCH}{ASK}")));
    let gateway = home.start();
    let (status, answer) = ask(&gateway, Api::Messages, &["Search."]);
    assert!(status == 200 && answer.contains("ay `continue`"), "{answer}");
    assert!(!upstream.bodies().iter().any(|body| declares_search(body)));
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(question["call"]["arguments"]["query"], "otters");
    assert_eq!(bob.says(&question, "allow").0, 200);
    let waits: Value = serde_json::from_str(&answer).unwrap();
    let waits = waits["content"][0]["text"].as_str().unwrap();
    let (status, answer) = ask(&gateway, Api::Messages, &["Search.", waits, "continue"]);
    assert!(status == 200 && answer.contains("Done."), "{answer}");
    assert_eq!(upstream.bodies().iter().filter(|body| declares_search(body)).count(), 1);
    assert_eq!(bob.open(), Vec::<Value>::new());
    let audit = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    // The use of the approval is recorded before the search, and not again at the end of the turn.
    for audit in [&audit, at_search.get().unwrap()] {
        assert_eq!(audit.matches("\"kind\":\"approval-used\"").count(), 1, "{audit}");
    }
}

/// What a request declares under the name of the search: nothing, a function of the client, or the provider's tool.
#[derive(Clone, Copy, PartialEq, Debug)]
enum DeclaredSearch {
    Nothing,
    OfTheClient,
    OfTheProvider,
}

/// Returns the path and the body of the request of [`body`], with this declaration in place of the provider's search.
fn body_with(api: Api, texts: &[&str], declared: DeclaredSearch) -> (&'static str, String) {
    let (path, body) = body(api, texts);
    let mut body: Value = serde_json::from_str(&body).unwrap();
    let tools = body["tools"].as_array_mut().unwrap();
    let schema = json!({"type": "object"});
    match declared {
        DeclaredSearch::OfTheProvider => {}
        DeclaredSearch::Nothing => drop(tools.remove(0)),
        DeclaredSearch::OfTheClient => {
            tools[0] = match api {
                Api::Messages => json!({"name": "web_search", "input_schema": schema}),
                Api::GenerateContent => {
                    json!({"functionDeclarations": [{"name": "web_search", "parametersJsonSchema": schema}]})
                }
                _ => json!({"type": "function", "name": "web_search", "parameters": schema, "strict": false}),
            };
        }
    }
    (path, body.to_string())
}

/// Returns the text of the gateway's answer in the form of `api`.
fn answer_text(api: Api, answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let pointer = match api {
        Api::Messages => "/content/0/text",
        Api::GenerateContent => "/candidates/0/content/parts/0/text",
        _ => "/output/0/content/0/text",
    };
    answer.pointer(pointer).and_then(Value::as_str).unwrap_or_else(|| panic!("{answer}")).to_owned()
}

/// A person decides about a search, and the request that continues the turn declares the search in another way. An
/// approved search of the provider then never reaches the client, and one of the client never reaches the provider.
#[test]
fn an_approved_search_runs_where_it_was_declared_or_not_at_all() {
    use DeclaredSearch::{Nothing, OfTheClient, OfTheProvider};
    const ASK: &str = "ask \"searches are confirmed\" if:\n    (call: ToolCall) is tool:web_search\n";
    // What the first and the second request declare, and how often the provider and the client search.
    let rows = [
        (OfTheProvider, OfTheProvider, 1, 0),
        (OfTheProvider, Nothing, 0, 0),
        (OfTheProvider, OfTheClient, 0, 0),
        (OfTheClient, OfTheClient, 0, 1),
        (OfTheClient, OfTheProvider, 0, 1),
        (OfTheClient, Nothing, 0, 1),
    ];
    for (api, name) in APIS {
        for (first, second, at_provider, at_client) in rows {
            let at = format!("{name}: {first:?}, then {second:?}");
            let upstream = UpstreamDouble::new(searches);
            let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n\
                 [audit]\nfile = \"audit.jsonl\"\n";
            let home = GatewayHome::new(
                &(config(&upstream.url, name, MORE) + people),
                &format!("{POLICY}{SEARCH}{ASK}"),
            );
            let gateway = home.start();
            let key = format!("Bearer {KEY}");
            let send = |texts: &[&str], declared: DeclaredSearch| {
                let (path, body) = body_with(api, texts, declared);
                gateway.post(path, &[("authorization", &key)], &body)
            };
            let (status, answer) = send(&["Search."], first);
            assert!(status == 200 && answer.contains("ay `continue`"), "{at}: {answer}");
            let bob = PersonClient(&gateway, "bob");
            assert_eq!(bob.says(&bob.first(), "allow").0, 200, "{at}");
            let (status, answer) = send(&["Search.", &answer_text(api, &answer), "continue"], second);
            assert_eq!(status, 200, "{at}: {answer}");
            let bodies = upstream.bodies();
            let ran = bodies.iter().filter(|body| declares_search(body)).count();
            assert_eq!(
                (ran, usize::from(answer.contains("web_search"))),
                (at_provider, at_client),
                "{at}: {answer}"
            );
            let audit = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
            let used = audit.matches("\"kind\":\"approval-used\"").count();
            assert_eq!(used, at_provider + at_client, "{at}: {audit}");
            if used == 0 {
                assert!(audit.contains("does not declare it: declare it in every request"), "{at}: {audit}");
                assert!(answer.contains("Done."), "{at}: {answer}");
            }
        }
    }
}

/// A person decides about a search, and the request that continues the turn permits pages of other domains: the search
/// runs with the restrictions of the request that began the turn, or not at all.
#[test]
fn an_approved_search_keeps_its_restrictions() {
    const ASK: &str = "ask \"searches are confirmed\" if:\n    (call: ToolCall) is tool:web_search\n";
    let (one, other) = (Some("a.example"), Some("b.example"));
    // The only domain that the first and the second request permit, and whether the search runs.
    let rows =
        [(one, one, true), (one, None, false), (one, other, false), (None, one, false), (None, None, true)];
    for (api, name) in APIS {
        for (first, second, runs) in rows {
            let at = format!("{name}: {first:?}, then {second:?}");
            // Gemini's form has no field for it.
            if api == Api::GenerateContent && (first, second) != (None, None) {
                continue;
            }
            let upstream = UpstreamDouble::new(searches);
            let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n\
                 [audit]\nfile = \"audit.jsonl\"\n";
            let home = GatewayHome::new(
                &(config(&upstream.url, name, MORE) + people),
                &format!("{POLICY}{SEARCH}{ASK}"),
            );
            let gateway = home.start();
            let key = format!("Bearer {KEY}");
            let send = |texts: &[&str], domain: Option<&str>| {
                let (path, body) = body(api, texts);
                let mut body: Value = serde_json::from_str(&body).unwrap();
                let domains = domain.map(|domain| json!([domain]));
                match (api, domains) {
                    (_, None) => {}
                    (Api::Messages, Some(domains)) => body["tools"][0]["allowed_domains"] = domains,
                    (_, Some(domains)) => body["tools"][0]["filters"] = json!({"allowed_domains": domains}),
                }
                gateway.post(path, &[("authorization", &key)], &body.to_string())
            };
            let (status, answer) = send(&["Search."], first);
            assert!(status == 200 && answer.contains("ay `continue`"), "{at}: {answer}");
            let bob = PersonClient(&gateway, "bob");
            assert_eq!(bob.says(&bob.first(), "allow").0, 200, "{at}");
            let (status, answer) = send(&["Search.", &answer_text(api, &answer), "continue"], second);
            assert!(status == 200 && answer.contains("Done."), "{at}: {answer}");
            assert!(!answer.contains("web_search"), "{at}: {answer}");
            let bodies = upstream.bodies();
            let ran: Vec<&String> = bodies.iter().filter(|body| declares_search(body)).collect();
            assert_eq!(ran.len(), usize::from(runs), "{at}: {bodies:#?}");
            assert!(
                ran.iter().all(|body| first.is_none_or(|domain| body.contains(domain))),
                "{at}: {ran:#?}"
            );
            let audit = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
            assert_eq!(audit.contains("with restrictions that differ from"), !runs, "{at}: {audit}");
        }
    }
}

/// Creates a double of a model's server whose model makes two equal searches in one message. The double calls
/// `withdraw` whenever it runs a search.
fn searches_twice(withdraw: impl Fn() + Send + Sync + 'static) -> UpstreamDouble {
    UpstreamDouble::new(move |request| {
        if text_of(request).contains("Search the web") {
            withdraw();
            return says("Otters are back.");
        }
        match request.messages.iter().any(|message| matches!(message, Message::Tool { .. })) {
            true => says("Done."),
            false => calls(&[("web_search", r#"{"query": "otters"}"#); 2]),
        }
    })
}

/// Has the person `bob` withdraw all grants.
fn withdraw_all(gateway: &TestGateway) {
    let bob = PersonClient(gateway, "bob");
    let (status, body) = gateway.get("/api/v1/grants", &bob.key());
    assert_eq!(status, 200, "{body}");
    let listed: Value = serde_json::from_str(&body).unwrap();
    for grant in listed["grants"].as_array().unwrap() {
        let path = format!("/api/v1/grants/{}", grant["id"].as_str().unwrap());
        assert_eq!(gateway.delete(&path, &bob.key()).0, 200);
    }
}

/// One grant allows two equal searches of one message. It is withdrawn while the first one runs: the second does not.
#[test]
fn a_search_does_not_run_after_its_grant_is_withdrawn() {
    for (scope, decision) in [("always", "grant-lasting"), ("conversation", "grant")] {
        for is_withdrawn in [false, true] {
            let at = format!("{scope}, withdrawn {is_withdrawn}");
            let gateway = Arc::new(OnceLock::<TestGateway>::new());
            let (running, is_granted) = (Arc::clone(&gateway), Arc::new(AtomicBool::new(false)));
            let is_due = Arc::clone(&is_granted);
            let upstream = searches_twice(move || {
                if is_withdrawn && is_due.load(Ordering::Relaxed) {
                    withdraw_all(running.get().unwrap());
                }
            });
            let people =
                "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n";
            let ask_rule = format!(
                "store web: written by web_search\n\
                 ask \"searches are confirmed\" grant {scope} if:\n    (call: ToolCall) is tool:web_search\n"
            );
            let home = GatewayHome::new(
                &(config(&upstream.url, "messages", MORE) + people),
                &format!("{POLICY}{SEARCH}{ask_rule}"),
            );
            let gateway = gateway.get_or_init(|| home.start());
            let searches = || upstream.bodies().iter().filter(|body| declares_search(body)).count();
            let (status, answer) = ask(gateway, Api::Messages, &["Search."]);
            assert!(status == 200 && answer.contains("ay `continue`"), "{at}: {answer}");
            let waits = answer_text(Api::Messages, &answer);
            let bob = PersonClient(gateway, "bob");
            assert_eq!(bob.says(&bob.first(), decision).0, 200, "{at}");
            // A grant for the conversation permits both searches of this turn, and is withdrawn between them. A lasting
            // grant is tested in the next conversation.
            is_granted.store(scope == "conversation", Ordering::Relaxed);
            let (status, answer) = ask(gateway, Api::Messages, &["Search.", &waits, "continue"]);
            assert!(status == 200 && answer.contains("Done."), "{at}: {answer}");
            let mut before = 0;
            if scope == "always" {
                before = searches();
                assert_eq!(before, 2, "{at}: {:#?}", upstream.shown());
                is_granted.store(true, Ordering::Relaxed);
                let (status, answer) = ask(gateway, Api::Messages, &["Search again, please."]);
                assert!(status == 200 && answer.contains("Done."), "{at}: {answer}");
            }
            let expected = if is_withdrawn { 1 } else { 2 };
            assert_eq!(searches() - before, expected, "{at}: {:#?}", upstream.shown());
        }
    }
}

/// A consent that is withdrawn after the turn has begun stops a search that was permitted, since the search could
/// depend on it.
#[test]
fn a_search_does_not_run_after_a_consent_is_withdrawn() {
    let policy = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, public if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted, public if:
    (tool: Tool)
label out.content as untrusted, public if:
    (out: ToolOutput) is tool:web_search
require trusted, private if:
    (call: ToolCall) is tool:web_search
consent private for call.arguments.query if:
    (call: ToolCall) is tool:web_search
"#;
    for is_withdrawn in [false, true] {
        let gateway = Arc::new(OnceLock::<TestGateway>::new());
        let running = Arc::clone(&gateway);
        let upstream = UpstreamDouble::new(move |request| {
            let is_first = !request.messages.iter().any(|message| matches!(message, Message::Tool { .. }));
            if is_withdrawn && is_first && !text_of(request).contains("Search the web") {
                let bob = PersonClient(running.get().unwrap(), "bob");
                let switch = |what: &str| {
                    bob.post("/api/v1/freezes", &json!({"kind": "consent", "what": what, "frozen": true}))
                };
                let (_, problem) = switch("agent:1");
                let name = problem.split("are: ").nth(1).unwrap().split([',', '"']).next().unwrap();
                assert_eq!(switch(name).0, 200);
            }
            searches(request)
        });
        let people = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n";
        let home = GatewayHome::new(&(config(&upstream.url, "messages", MORE) + people), policy);
        let gateway = gateway.get_or_init(|| home.start());
        let (status, answer) = ask(gateway, Api::Messages, &["Search."]);
        assert!(status == 200 && answer.contains("Done."), "{answer}");
        let count = upstream.bodies().iter().filter(|body| declares_search(body)).count();
        assert_eq!(count, usize::from(!is_withdrawn), "{:#?}", upstream.shown());
    }
}
