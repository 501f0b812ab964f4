//! Tests of the coverage on the page: which clients, servers and tools were seen, and what no statement of a policy
//! permits.

use flowgate_gateway::http::access::{AccessControl, BearerToken};
use serde_json::{Value, json};

use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, config};
use crate::mcp::{AnswerForm, McpTestClient};
use crate::page_conversations::{PEOPLE, get};
use crate::upstream::UpstreamDouble;
use crate::{FORMS, gullible, servers};

/// The coverage says what was seen of each client, what its policy leaves open, and who is a stranger.
#[test]
fn the_coverage_says_what_was_seen_and_what_no_statement_permits() {
    let upstream = UpstreamDouble::new(gullible);
    let policy = POLICY.replace("require top if:\n    (call: ToolCall) is tool:read\n", "");
    let text = config(&upstream.url, "chat-completions", "method = \"everything\"") + PEOPLE;
    let gateway = GatewayHome::new(&text, &policy).start();
    let client = |person: &str, name: &str| {
        let (status, coverage) = get(&gateway, person, "/ui/api/coverage");
        assert_eq!(status, 200, "{coverage}");
        let clients = coverage["clients"].as_array().unwrap();
        let client = clients.iter().find(|client| client["client"] == name).cloned();
        (coverage["strangers"].clone(), client.unwrap_or_default())
    };
    let (strangers, unseen) = client("all", "agent");
    assert_eq!((&strangers, &unseen["last"], &unseen["tools"]), (&json!(0), &Value::Null, &json!([])));
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("What is new?");
    assert_eq!(gateway.get("/v1/models", "a-key-that-nobody-has").0, 401);
    let (strangers, seen) = client("all", "agent");
    assert_eq!(strangers, 1);
    assert!(seen["first"].is_u64() && seen["last"].is_u64(), "{seen}");
    let tool = |name: &str| {
        let tools = seen["tools"].as_array().unwrap();
        tools.iter().find(|tool| tool["tool"] == name).cloned().unwrap_or_default()
    };
    // `read` has no requirement any more.
    assert_eq!(
        (&tool("read")["is_bounded"], &tool("read")["is_labelled"]),
        (&json!(false), &json!(true)),
        "{seen}"
    );
    assert_eq!(
        (&tool("send")["is_bounded"], &tool("send")["is_offered"]),
        (&json!(true), &json!(true)),
        "{seen}"
    );
    assert!(tool("read")["calls"].as_u64() >= Some(1), "{seen}");
    // The other client has sent nothing.
    assert_eq!(client("all", "other").1["last"], Value::Null);
    // The names of tools are for people who may read everything, and a person of another tenant sees nothing.
    assert_eq!(client("low", "agent").1["tools"], Value::Null);
    let (strangers, other) = client("eve", "agent");
    assert_eq!((strangers, other), (Value::Null, Value::Null));
    assert_eq!(get(&gateway, "nobody", "/ui/api/coverage").0, 401);
}

/// A server that the client uses, one that it uses only elsewhere, and one that it may not use. Calls of servers are
/// timed by client and tool.
#[test]
fn the_coverage_says_which_servers_were_used() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], PEOPLE, servers::POLICY);
    let token = AccessControl::Token(BearerToken::new("token-of-the-monitoring").unwrap());
    let gateway = home.start_with_access(token);
    let mut one = servers::client(&gateway, "one");
    one.begin("bank");
    assert_eq!(one.call("bank", "balance", &json!({})), "100");
    let other = McpTestClient { gateway: &gateway, key: OTHER_KEY, conversation: "one", next: 0 };
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(other.send("web", &ping, &[]).0, 404);
    let (_, coverage) = get(&gateway, "all", "/ui/api/coverage");
    let of = |name: &str| {
        coverage["clients"].as_array().unwrap().iter().find(|client| client["client"] == name).unwrap()
    };
    let used = |server: &str| {
        let servers = of("agent")["servers"].as_array().unwrap();
        servers.iter().find(|listed| listed["server"] == server).unwrap()["last"].is_u64()
    };
    assert!(used("bank") && !used("web"), "{coverage}");
    assert_eq!((&of("agent")["unknown_servers"], &of("other")["unknown_servers"]), (&json!(0), &json!(1)));
    let tools = of("agent")["tools"].as_array().unwrap();
    let tools: Vec<_> =
        tools.iter().map(|tool| (&tool["tool"], &tool["is_offered"], &tool["calls"])).collect();
    assert_eq!(
        tools,
        [(&json!("bank/balance"), &json!(true), &json!(1)), (&json!("bank/pay"), &json!(true), &json!(0))]
    );
    let (status, text) = gateway.get("/metrics", "token-of-the-monitoring");
    let line = r#"flowgate_tool_seconds_count{client="agent",tool="bank/balance"} 1"#;
    assert!(status == 200 && text.lines().any(|printed| printed == line), "{text}");
}
