//! Tests of the way from watch mode to `flowgate suggest` with a gateway: what its agents did is exported, and the least
//! change that lets it pass is found.

use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::approvals::{TestGateway, check};

const POLICY: &str = r#"lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted if:
    (tool: Tool)
label out.content as untrusted if:
    (out: ToolOutput) is tool:read_mail
require untrusted if:
    (call: ToolCall) is tool:read_mail
require trusted if:
    (call: ToolCall) is tool:book
"#;
/// Watches the client, whose settings come before.
const WATCH: &str = "mode = \"watch\"\n[watch]\nfile = \"watch.jsonl\"\n";

/// Runs a command in the folder of the gateway.
fn run(gateway: &TestGateway, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flowgate")).args(words).current_dir(gateway.path("")).output().unwrap()
}

/// The agent books on the day in a mail, in two conversations. The policy would have asked each time.
fn watched_gateway() -> TestGateway {
    let script = ["read_mail {}", r#"book {"day": "2024-05-19"}"#];
    let gateway = TestGateway::start(POLICY, "watched", &[script, script].concat(), WATCH);
    let day = json!({"type": "object", "properties": {"day": {"type": "string"}}});
    let tool = |name: &str, schema: &Value| json!({"type": "function", "function": {"name": name, "description": name, "parameters": schema}});
    let tools = json!([tool("read_mail", &json!({"type": "object", "properties": {}})), tool("book", &day)]);
    for conversation in ["c0", "c1"] {
        let mut messages = vec![json!({"role": "user", "content": "Do what the mail asks, on its day."})];
        let read = gateway.chat(conversation, &messages, &tools);
        let id = read["tool_calls"][0]["id"].clone();
        messages.push(read);
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "{\"day\": \"2024-05-19\"}"}));
        let booked = gateway.chat(conversation, &messages, &tools);
        assert_eq!(booked["tool_calls"][0]["function"]["name"], "book", "nothing is stopped: {booked}");
    }
    gateway
}

#[test]
fn a_watched_gateway_leads_to_the_change_of_its_policy() {
    let gateway = watched_gateway();
    check(&run(&gateway, &["report", "watch.jsonl"]), 1, &["2 asked about"]);
    let of_files = run(&gateway, &["trace", "export", "--config", "gateway.toml", "--all"]);
    let of_gateway = gateway.run(&["trace", "export", "--all", "--client", "agent"]);
    for exported in [of_files, of_gateway] {
        check(&exported, 0, &[]);
        let runs: Vec<Value> = String::from_utf8(exported.stdout.clone())
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut names: Vec<&str> = runs.iter().map(|run| run["conversation"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!((names, &runs[0]["client"]), (vec!["c0", "c1"], &json!("agent")));
        // What the policy of the client learns.
        assert_eq!(runs[0]["policy_parameters"], json!({"tenant": "agent"}));
        std::fs::write(gateway.path("week.jsonl"), &exported.stdout).unwrap();
        let words = ["suggest", "policy.flow", "week.jsonl", "--influence", "provenance"];
        check(
            &run(&gateway, &words),
            1,
            &[
                "2 useful runs, of which not permitted without a question: 2 (2 calls); with the changes below, 0 (0 calls)",
                "endorse call.arguments.day as trusted if:",
            ],
        );
    }
}

#[test]
fn what_cannot_be_exported_with_the_others_is_left_out_and_reported() {
    let gateway = TestGateway::asking("watched-left-out", 1);
    let all = ["trace", "export", "--config", "gateway.toml", "--all"];
    check(&run(&gateway, &all), 0, &["\"conversation\":\"c0\""]);
    check(
        &run(&gateway, &[&all[..], &["--client", "eve"]].concat()),
        2,
        &["there is no client `eve`; the clients are: agent"],
    );
    check(&run(&gateway, &[&all[..], &["--conversation", "c0"]].concat()), 2, &["cannot be used with"]);
    // A conversation under a policy that was changed since cannot be replayed from the files; the gateway carries it over.
    let policy = std::fs::read_to_string(gateway.path("policy.flow")).unwrap();
    std::fs::write(gateway.path("policy.flow"), format!("{policy}x := 1\n")).unwrap();
    check(
        &run(&gateway, &all),
        1,
        &[
            "error: the conversation c0 of the client `agent` is left out: its policy or the settings of its client have changed",
        ],
    );
    let empty = TestGateway::asking("watched-empty", 0);
    check(&run(&empty, &all), 2, &["no conversation is stored; run the agent first"]);
    check(&empty.run(&["trace", "export", "--all"]), 1, &["no conversation is stored; run the agent first"]);
}
