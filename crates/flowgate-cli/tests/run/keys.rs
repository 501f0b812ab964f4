//! Tests of `flowgate keys` against a running gateway.

use serde_json::Value;

use crate::approvals::{TestGateway, check, text};

/// A key is made, listed without its text, and revoked; the standard output of `create` has the key alone.
#[test]
fn keys_are_made_listed_and_revoked() {
    let gateway = TestGateway::asking("keys", 0);
    let admin = |words: &[&str]| gateway.run_as("the-key-of-bob-the-admin", words);
    check(&admin(&["keys", "list"]), 0, &["0 keys"]);
    let made =
        admin(&["keys", "create", "agent", "ci", "--days", "30", "--tokens-per-day", "1000", "--model", "m"]);
    check(&made, 0, &["the gateway cannot show this key again; `flowgate keys revoke "]);
    let printed = String::from_utf8(made.stdout).unwrap();
    let key = printed.trim_end();
    assert!(key.starts_with("fgk-") && key.len() == 68 && printed.ends_with('\n'), "{printed:?}");
    gateway.ask_with(key, "c1", "200");
    let listed = admin(&["keys", "list"]);
    check(&listed, 0, &["agent", "ci", "valid", "bob", "1000 tokens/day, m", "1 key"]);
    assert!(!text(&listed).contains(key.get(4..).unwrap()), "{}", text(&listed));
    let listed: Value = serde_json::from_slice(&admin(&["keys", "list", "--format", "json"]).stdout).unwrap();
    let id = listed["keys"][0]["id"].as_str().unwrap();
    // Ann is an approver.
    check(&gateway.run(&["keys", "list"]), 1, &["this request needs the role admin"]);
    check(&gateway.run(&["keys", "revoke", id]), 1, &["this request needs the role admin"]);
    check(&admin(&["keys", "create", "agent", "ci"]), 1, &["the client has a key of this name"]);
    check(&admin(&["keys", "create", "nobody", "ci"]), 1, &["there is no client of this name"]);
    check(&admin(&["keys", "create", "agent", "x", "--days", "0"]), 2, &["--days"]);
    check(&admin(&["keys", "revoke", id]), 0, &[&format!("{id}: revoked")]);
    check(&admin(&["keys", "revoke", id]), 1, &["there is no key with this id"]);
    gateway.ask_with(key, "c1", "401");
}
