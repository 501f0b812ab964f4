//! Tests of the evaluations of policies on stored conversations: how often each statement applied, and which verdicts an
//! edited policy would change. A person who may not read every text gets neither.

use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config};
use crate::page_conversations::{get, home};
use crate::persisted_turns::tables;
use crate::upstream::UpstreamDouble;
use crate::{FORMS, gullible};

const PEOPLE: &str = "[people.ann]\nkey-from = \"ann\"\nrole = \"approver\"\n\
     [people.vic]\nkey-from = \"vic\"\nrole = \"viewer\"\n\
     [people.low]\nkey-from = \"low\"\nrole = \"approver\"\nmay-read = \"trusted\"\n\
     [people.eve]\nkey-from = \"eve\"\nrole = \"admin\"\ntenants = [\"bank\"]\n";
const DRY_RUN: &str = "/api/v1/policies/dry-run";
const USAGE: &str = "/api/v1/policies/usage?client=agent";

/// Returns the numbers of conversations in an answer: these, and 0 of every other one.
fn numbers(some: &[(&str, usize)]) -> Value {
    let mut all =
        json!({"replayed": 0, "carried_over": 0, "not_carried_over": 0, "too_large": 0, "diverged": 0});
    for (name, number) in some {
        all[name] = json!(number);
    }
    all
}

fn post(gateway: &TestGateway, person: &str, body: &Value) -> (u16, Value) {
    let key = format!("Bearer key-of-the-person-{person}");
    let (status, text) = gateway.post(DRY_RUN, &[("authorization", &key)], &body.to_string());
    (status, serde_json::from_str(&text).unwrap())
}

fn dry_run(gateway: &TestGateway, policy: &str) -> Value {
    let (status, answer) = post(gateway, "ann", &json!({"client": "agent", "policy": policy}));
    assert_eq!(status, 200, "{answer}");
    answer
}

#[test]
fn statements_are_counted_in_stored_conversations() {
    let upstream = UpstreamDouble::new(gullible);
    let gateway = home(&upstream, PEOPLE).start();
    let (status, list) = get(&gateway, "vic", "/api/v1/policies");
    assert_eq!(status, 200);
    let entry =
        |client: &str| json!({"client": client, "tenant": client, "file": "policy.flow", "mode": "enforce"});
    assert!(list["policies"].as_array().unwrap().contains(&entry("agent")), "{list}");
    for _ in 0..2 {
        TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    }
    let counts = |person: &str, query: &str| -> (Value, Vec<(String, Value)>) {
        let (status, usage) = get(&gateway, person, &format!("{USAGE}{query}"));
        assert_eq!(status, 200, "{usage}");
        let statements = usage["statements"].as_array().unwrap().iter().map(|statement| {
            let name = format!("{} {}", statement["kind"].as_str().unwrap(), statement["line"]);
            (name, json!([statement["applied"], statement["objected"], statement["failed"]]))
        });
        (usage.clone(), statements.collect())
    };
    let (usage, statements) = counts("vic", "&last=1");
    assert_eq!(usage["files"], json!([{"path": null, "text": POLICY}]));
    assert_eq!(usage["conversations"], numbers(&[("replayed", 1)]));
    let of = |statements: &[(String, Value)], name: &str| {
        statements.iter().find(|(known, _)| known == name).map(|(_, counts)| counts.clone())
    };
    // The call of `read`, and the payment, which a person is asked about.
    assert_eq!(of(&statements, "require 14"), Some(json!([1, 0, 0])), "{statements:?}");
    assert_eq!(of(&statements, "require 16"), Some(json!([1, 1, 0])), "{statements:?}");
    assert_eq!(of(&statements, "payload 18"), Some(json!([1, 0, 0])), "{statements:?}");
    assert_eq!(of(&statements, "raise 20"), Some(json!([0, 0, 0])), "{statements:?}");
    // No mail was sent, so nothing labelled an answer of it.
    assert_eq!(of(&statements, "label 11"), Some(json!([0, 0, 0])), "{statements:?}");
    assert_eq!(of(&statements, "label 9"), Some(json!([1, 0, 0])), "{statements:?}");
    let (usage, statements) = counts("ann", "");
    assert_eq!((&usage["conversations"]["replayed"], &usage["calls"]), (&json!(2), &json!(4)));
    assert_eq!(of(&statements, "require 16"), Some(json!([2, 2, 0])), "{statements:?}");
    // Counts depend on texts that a lower clearance does not cover.
    let (usage, statements) = counts("low", "");
    assert_eq!((&usage["conversations"], &usage["calls"]), (&Value::Null, &Value::Null));
    assert!(statements.iter().all(|(_, counts)| *counts == json!([null, null, null])), "{statements:?}");

    let rows = [
        ("eve", USAGE, 404),
        ("ann", "/api/v1/policies/usage", 400),
        ("ann", "/api/v1/policies/usage?client=nobody", 404),
        ("ann", "/api/v1/policies/usage?client=agent&last=0", 400),
        ("ann", "/api/v1/policies/usage?client=agent&last=51", 400),
        ("nobody", "/api/v1/policies", 401),
        ("nobody", USAGE, 401),
    ];
    for (person, path, expected) in rows {
        let (status, answer) = get(&gateway, person, path);
        assert_eq!(status, expected, "{person} {path}: {answer}");
    }
    assert_eq!(get(&gateway, "eve", "/api/v1/policies").1, json!({"policies": []}));
}

#[test]
fn a_dry_run_lists_the_verdicts_that_would_change() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let changes = |policy: &str| -> Vec<[String; 3]> {
        let answer = dry_run(&gateway, policy);
        assert_eq!((&answer["errors"], &answer["differing"]), (&json!([]), &json!(0)), "{answer}");
        assert_eq!(
            (&answer["conversations"]["replayed"], &answer["calls"]),
            (&json!(1), &json!(2)),
            "{answer}"
        );
        let words = |value: &Value| value.as_str().unwrap().to_owned();
        let listed = answer["changes"].as_array().unwrap().iter();
        let listed: Vec<[String; 3]> = listed
            .map(|change| {
                [
                    words(&change["tool"]),
                    words(&change["before"]["outcome"]),
                    words(&change["after"]["outcome"]),
                ]
            })
            .collect();
        assert_eq!(answer["changed"], listed.len());
        listed
    };
    let row = |tool: &str, before: &str, after: &str| [tool.to_owned(), before.to_owned(), after.to_owned()];
    assert_eq!(changes(POLICY), Vec::<[String; 3]>::new());
    let denies = POLICY.replace("require trusted if:", "require trusted else deny if:");
    assert_eq!(changes(&denies), [row("send", "asked", "refused")]);
    let trusts = POLICY.replace("as untrusted if:", "as trusted if:");
    assert_eq!(changes(&trusts), [row("send", "asked", "permitted")]);
    let asks = format!("{POLICY}ask \"reading\" if:\n    (call: ToolCall) is tool:read\n");
    assert_eq!(changes(&asks), [row("read", "permitted", "asked")]);

    // What a change shows: the call, why, and where the statement is.
    let answer = dry_run(&gateway, &asks);
    let change = &answer["changes"][0];
    let line = asks.lines().position(|line| line.starts_with("ask")).unwrap() + 1;
    assert_eq!(change["after"]["reasons"], json!([{"message": "reading", "file": null, "line": line}]));
    assert_eq!(change["before"]["reasons"], json!([]));
    let answer = dry_run(&gateway, &denies);
    assert!(answer["changes"][0]["arguments"].as_str().unwrap().contains("mallory"), "{answer}");
    let (_, list) = get(&gateway, "ann", "/ui/api/conversations");
    assert_eq!(answer["changes"][0]["conversation"], list["conversations"][0]["conversation"]);

    // A rule on answers: that of `read` would be withheld.
    let stops =
        format!("{POLICY}raise \"no otters\" if:\n    (out: ToolOutput)\n    \"Otters\" in out.content\n");
    let answer = dry_run(&gateway, &stops);
    assert_eq!((&answer["stopped_before"], &answer["stopped_after"]), (&json!(0), &json!(1)), "{answer}");

    // Nothing has changed by that.
    let (_, trace) = get(&gateway, "ann", USAGE);
    assert_eq!(trace["files"][0]["text"], POLICY);
}

/// After a change of the policy, the conversations of before are judged as their next requests would find them: with
/// the calls that ran, and without those that the earlier policy stopped.
#[test]
fn conversations_of_an_earlier_policy_are_judged_under_the_present_one() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    gateway.stop();

    home.policy(&POLICY.replace("as untrusted if:", "as trusted if:"));
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let carried = numbers(&[("replayed", 2), ("carried_over", 1)]);
    // In the first conversation, `read` ran, and `send` was asked about. In the second one, where pages are trusted, the
    // model was given `send` and `read` after that.
    let asks = format!("{POLICY}ask \"reading\" if:\n    (call: ToolCall) is tool:read\n");
    let answer = dry_run(&gateway, &asks);
    assert_eq!((&answer["conversations"], &answer["calls"]), (&carried, &json!(4)), "{answer}");
    let changes = answer["changes"].as_array().unwrap().iter().map(|change| {
        let outcome = |side: &str| change[side]["outcome"].as_str().unwrap().to_owned();
        format!("{}: {}, then {}", change["tool"].as_str().unwrap(), outcome("before"), outcome("after"))
    });
    let changes: Vec<String> = changes.collect();
    let [read, send] = ["read", "send"].map(|tool| format!("{tool}: permitted, then asked"));
    let expected = [&read, &send, &read, &read].map(String::clone);
    assert_eq!(changes, expected);
    assert_eq!(answer["differing"], 0);
    let (_, usage) = get(&gateway, "ann", USAGE);
    assert_eq!((&usage["conversations"], &usage["calls"]), (&carried, &json!(4)), "{usage}");
    // The present policy has labelled the pages of both conversations.
    let pages = usage["statements"].as_array().unwrap().iter().find(|statement| statement["line"] == 9);
    assert_eq!(pages.unwrap()["applied"], 3, "{usage}");
    // Nothing was stored by that.
    assert_eq!(get(&gateway, "ann", USAGE).1, usage);
    gateway.stop();
    home.policy(POLICY);
    let gateway = home.start();
    assert_eq!(dry_run(&gateway, POLICY)["conversations"], carried);
}

/// A conversation that cannot be judged is left out, and another one takes its place.
#[test]
fn a_conversation_that_is_left_out_does_not_count_towards_the_number() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, PEOPLE);
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("And what is new now?");
    gateway.stop();
    home.policy(&format!("{POLICY}\nx := 1\n"));
    // Replaces the inputs of the newest conversation.
    let replace = |inputs: &str| {
        let newest = "conversation = (SELECT MAX(id) FROM conversations)";
        let sql: &str = format!("UPDATE turns SET inputs = '{inputs}' WHERE number = 0 AND {newest}").leak();
        assert_eq!(tables(&home, vec![sql].leak()), 1);
    };
    let judged = |gateway: &TestGateway, last: usize| {
        let body = json!({"client": "agent", "policy": POLICY, "last": last});
        let (status, answer) = post(gateway, "ann", &body);
        assert_eq!(status, 200, "{answer}");
        (answer["conversations"].clone(), answer["calls"].clone())
    };
    let gateway = home.start();
    for (last, found) in [(1, 1), (20, 2)] {
        let expected = numbers(&[("replayed", found), ("carried_over", found)]);
        assert_eq!(judged(&gateway, last), (expected, json!(found)));
    }
    gateway.stop();
    // The newest one cannot be carried over any more.
    replace("damaged");
    let gateway = home.start();
    let left_out = |reason: &'static str| numbers(&[("replayed", 1), ("carried_over", 1), (reason, 1)]);
    for last in [1, 20] {
        assert_eq!(judged(&gateway, last), (left_out("not_carried_over"), json!(1)));
    }
    // The newest one is larger than what is judged.
    gateway.stop();
    replace(&"x".repeat((4 << 20) + 1));
    let gateway = home.start();
    assert_eq!(judged(&gateway, 1), (left_out("too_large"), json!(1)));
}

#[test]
fn a_dry_run_reports_errors_as_the_compiler_does() {
    let upstream = UpstreamDouble::new(gullible);
    let gateway = home(&upstream, PEOPLE).start();
    let answer = dry_run(&gateway, &POLICY.replace("untrusted if:", "untrustd if:"));
    let error = &answer["errors"][0];
    assert_eq!((&error["line"], &answer["conversations"]), (&json!(9), &Value::Null), "{answer}");
    assert!(error["message"].as_str().unwrap().contains("untrustd"), "{answer}");
    assert!(error["help"].as_str().unwrap().contains("untrusted"), "{answer}");
    let answer = dry_run(&gateway, "import \"other.flow\"\n");
    assert!(
        answer["errors"][0]["message"].as_str().unwrap().contains("the policy has no file of this path"),
        "{answer}"
    );

    let body = |policy: &str| json!({"client": "agent", "policy": policy});
    let rows = [
        ("vic", body(POLICY), 403, "needs the role approver"),
        ("low", body(POLICY), 403, "ask a person who may read everything for the dry run"),
        ("eve", body(POLICY), 404, "there is no client of this name"),
        ("nobody", body(POLICY), 401, "no valid key of a person"),
        ("ann", json!({"client": "nobody", "policy": POLICY}), 404, "there is no client of this name"),
        ("ann", json!({"policy": POLICY}), 400, "the body of the request is not `{\"client\": NAME, "),
        ("ann", json!({"client": "agent", "policy": POLICY, "last": 0}), 400, "from 1 to 50"),
        ("ann", json!({"client": "agent", "policy": POLICY, "more": 1}), 400, "unknown field `more`"),
        ("ann", body(&" ".repeat((1 << 20) + 1)), 413, "1048576 bytes: shorten it, or move statements"),
    ];
    for (person, body, expected, says) in rows {
        let (status, answer) = post(&gateway, person, &body);
        assert_eq!(status, expected, "{person}: {answer}");
        assert!(answer["detail"].as_str().unwrap().contains(says), "{answer}");
    }
}

/// In watch mode, the verdicts are those of the policy that is not in force.
#[test]
fn a_watched_client_is_evaluated_under_its_own_policy() {
    let upstream = UpstreamDouble::new(gullible);
    let more = "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"\nmode = \"watch\"";
    let text = config(&upstream.url, "chat-completions", more) + PEOPLE + "[watch]\nfile = \"watch.jsonl\"\n";
    let gateway = GatewayHome::new(&text, POLICY).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    let (_, usage) = get(&gateway, "ann", USAGE);
    assert_eq!((&usage["mode"], &usage["files"][0]["text"]), (&json!("watch"), &json!(POLICY)));
    let send =
        usage["statements"].as_array().unwrap().iter().find(|statement| statement["line"] == 16).unwrap();
    assert_eq!((&send["applied"], &send["objected"]), (&json!(1), &json!(1)), "{usage}");
    let answer = dry_run(&gateway, &POLICY.replace("require trusted if:", "require top if:"));
    assert_eq!((&answer["changed"], &answer["differing"]), (&json!(1), &json!(0)), "{answer}");
}

/// A step that was shown only what flows to its label depends on that, and not on what was hidden from it.
#[test]
fn hidden_text_changes_no_verdict() {
    let upstream = UpstreamDouble::new(gullible);
    let trust = "user-messages = \"trust-unmarked-even-if-pasted\"";
    let text = config(&upstream.url, "chat-completions", trust) + PEOPLE;
    let gateway = GatewayHome::new(&text, POLICY).start();
    assert_eq!(TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail the page to Bob."), "Done.");
    let changed = |policy: &str| {
        let answer = dry_run(&gateway, policy);
        assert_eq!(answer["differing"], 0, "{answer}");
        answer["changed"].clone()
    };
    assert_eq!(changed(POLICY), 0);
    // The body is a slot with the page: without `payload`, it must be trusted as well.
    let strict = POLICY.replace("payload call.arguments.body if:\n    (call: ToolCall) is tool:send\n", "");
    assert_eq!(changed(&strict), 1);
    assert_eq!(changed(&strict.replace("as untrusted if:", "as trusted if:")), 0);
}
