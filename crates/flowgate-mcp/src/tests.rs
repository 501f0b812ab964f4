//! Tests of the MCP proxy: the messages of each side and the resulting output. Each attack has a benign variant that
//! must pass.

mod ambiguous;
mod carry_over;
mod elicitation;
mod failed_requests;
mod input_required;
mod label_floors;
mod listing;
mod random_messages;
mod subscriptions;
mod watching;

use std::sync::Arc;

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use serde_json::{Value, json};

use super::{Proxy, ProxyAction, ProxyLimits, ProxySettings};

const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label tool as trusted, public if:
    (tool: Tool) is tool:files/*

label message as untrusted, public if:
    (message: Message)
    message.role == "mcp"

label out.content as untrusted, public if:
    (out: ToolOutput) is tool:files/read
label out.content as trusted, public if:
    (out: ToolOutput) is tool:files/write
label out.content as trusted, public if:
    (out: ToolOutput) is tool:files/size
label out.content as trusted, private if:
    (out: ToolOutput) is tool:files/diary
label out.content as untrusted, public if:
    (out: ToolOutput) is tool:files/resources/read
label out.content as trusted, public if:
    (out: ToolOutput) is tool:files/resources/subscribe

require untrusted, public if:
    (call: ToolCall) is tool:files/read
require top if:
    (call: ToolCall) is tool:files/size
require trusted, public else deny if:
    (call: ToolCall) is tool:files/write
require trusted, public if:
    (call: ToolCall) is tool:files/delete
require untrusted, private if:
    (call: ToolCall) is tool:files/diary
require untrusted, public if:
    (call: ToolCall) is tool:files/resources/*
require untrusted, public if:
    (call: ToolCall) is tool:files/roots/list

raise "no orders in descriptions" if:
    (tool: Tool)
    "IMPORTANT" in tool.description

raise "no passwords" if:
    (out: ToolOutput)
    "hunter2" in out.content
"#;

/// A client and a server with the proxy between them.
struct ProxySession {
    proxy: Proxy,
    monitor: Monitor,
}

impl ProxySession {
    fn with(settings: ProxySettings, policy: &str) -> Self {
        let monitor = Monitor::new(Arc::new(Policy::parse(policy).unwrap()));
        Self { proxy: Proxy::new(settings), monitor }
    }

    /// Returns a session whose client has listed the tools.
    fn started() -> Self {
        let mut session = Self::with(ProxySettings::new("files"), POLICY);
        session.list(&["read", "write", "size", "delete", "diary"]);
        session
    }

    fn client(&mut self, message: &Value) -> Vec<ProxyAction> {
        self.proxy.handle_client_message(&mut self.monitor, message.to_string().as_bytes())
    }

    fn server(&mut self, message: &Value) -> Vec<ProxyAction> {
        self.proxy.handle_server_message(&mut self.monitor, message.to_string().as_bytes())
    }

    /// Lists tools with these names; returns the names that the client receives.
    fn list(&mut self, names: &[&str]) -> Vec<String> {
        let tools: Vec<Value> = names.iter().map(|name| tool(name, "does it")).collect();
        self.list_tools(&json!({"tools": tools}))
    }

    fn list_tools(&mut self, result: &Value) -> Vec<String> {
        let id = self.proxy.next_number() + 1_000;
        self.client(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/list"}));
        names(&self.server(&json!({"jsonrpc": "2.0", "id": id, "result": result})))
    }

    /// Calls a tool; the server answers with a text if it receives the call. Returns what the client receives.
    fn call(&mut self, name: &str, answer: &str) -> String {
        self.call_for(name, &json!({"content": [{"type": "text", "text": answer}]}))
    }

    fn call_for(&mut self, name: &str, result: &Value) -> String {
        self.request("tools/call", &json!({"name": name, "arguments": {"path": "a"}}), result)
    }

    /// Sends a request of the client; the server answers with `result` if it receives the request. Returns what the
    /// client receives, in the form of [`shown`].
    fn request(&mut self, method: &str, params: &Value, result: &Value) -> String {
        let id = self.proxy.next_number() + 2_000;
        let sent = self.client(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        match sent.as_slice() {
            [ProxyAction::Server(_)] => {
                shown(&self.server(&json!({"jsonrpc": "2.0", "id": id, "result": result})))
            }
            other => shown(other),
        }
    }
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}

/// Returns the messages to the client and to the server; other actions are left out.
fn parsed(out: &[ProxyAction]) -> Vec<Value> {
    let texts = out.iter().filter_map(|out| match out {
        ProxyAction::Client(text) | ProxyAction::Server(text) => Some(text),
        ProxyAction::Note(_)
        | ProxyAction::Pins(_)
        | ProxyAction::Ask(_)
        | ProxyAction::Unapproved { .. } => None,
    });
    texts.map(|text| serde_json::from_str(text).unwrap()).collect()
}

fn names(out: &[ProxyAction]) -> Vec<String> {
    let tools = parsed(out).pop().unwrap()["result"]["tools"].clone();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

/// Returns the output in a short form.
fn shown(out: &[ProxyAction]) -> String {
    let one = |message: &Value| {
        if let Some(method) = message.get("method") {
            return format!("{} {}", method.as_str().unwrap(), message["params"]);
        }
        if let Some(error) = message.get("error") {
            return format!("error {} {}", error["code"], error["message"].as_str().unwrap_or_default());
        }
        let result = &message["result"];
        let text = result["content"][0]["text"].as_str().map_or_else(|| result.to_string(), str::to_owned);
        match text.starts_with("{\"refused\"") {
            true => {
                let refused: Value = serde_json::from_str(&text).unwrap();
                format!("refused: {}", refused["reasons"][0]["kind"].as_str().unwrap_or_default())
            }
            false => text,
        }
    };
    parsed(out).iter().map(one).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn check(found: impl Into<String>, expected: &str) {
    let found = found.into();
    match expected.strip_suffix("...") {
        Some(start) => assert!(found.starts_with(start), "{found}"),
        None => assert_eq!(found, expected),
    }
}

#[test]
fn a_read_text_restricts_later_writes() {
    let mut session = ProxySession::started();
    check(session.call("write", "written"), "written");
    check(session.call("read", "obey me"), "obey me");
    check(session.call("write", "written"), "refused: requirement");
    check(session.call("size", "3"), "3");
    // The refused call is not recorded as done.
    let calls = session.monitor.trace().events().iter().filter(|event| event.tool().is_some());
    assert_eq!(calls.filter(|event| event.status == flowgate::trace::Status::Done).count(), 3);
}

#[test]
fn private_text_reaches_no_public_tool() {
    let mut session = ProxySession::started();
    check(session.call("diary", "dear diary"), "dear diary");
    check(session.call("read", "x"), "refused: requirement");
    check(session.call("diary", "again"), "again");
}

#[test]
fn the_sent_call_is_the_judged_call() {
    let mut session = ProxySession::started();
    let call = br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","arguments":{ "b":1.0, "a":"\u0041" },"note":"kept","_meta":{"x":1}}}"#;
    let sent = session.proxy.handle_client_message(&mut session.monitor, call);
    let expected = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write","note":"kept","_meta":{"x":1},"arguments":{"b":1.0,"a":"A"}}}"#;
    assert_eq!(sent, [ProxyAction::Server(expected.to_owned())]);
    let answer = r#"{"jsonrpc":"2.0", "id":1,"result":{"content":[{"type":"text","text":"ok"}]}}"#;
    let sent = session.proxy.handle_server_message(&mut session.monitor, answer.as_bytes());
    assert_eq!(sent, [ProxyAction::Client(answer.to_owned())]);
    let twice = br#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"write","arguments":{"to":"a","to":"b"}}}"#;
    let sent = session.proxy.handle_client_message(&mut session.monitor, twice);
    check(shown(&sent), "error -32600 the message is not JSON that all parsers read alike: duplicate key...");
    assert_eq!(parsed(&sent)[0]["id"], 2);
}

#[test]
fn batches_and_malformed_messages_are_refused() {
    let mut session = ProxySession::started();
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "write"}});
    check(shown(&session.client(&json!([call]))), "error -32600 batches are not supported...");
    check(shown(&session.client(&call)), "tools/call {\"name\":\"write\",\"arguments\":{}}");
    for method in ["tasks/list", "tasks/result", "logging/setLevel", "x"] {
        let asked = json!({"jsonrpc": "2.0", "id": method, "method": method});
        check(
            shown(&session.client(&asked)),
            "error -32601 Flowgate does not forward requests with this method; use another method of MCP",
        );
    }
    let task = json!({"name": "write", "arguments": {}, "task": {"ttl": 1}});
    check(session.request("tools/call", &task, &json!({})), "refused: malformed");
    check(
        session.request("tools/call", &json!({"name": "write", "arguments": [1]}), &json!({})),
        "refused: malformed",
    );
    check(session.request("ping", &json!({"x": 1}), &json!({"text": "obey"})), "{}");
}

#[test]
fn ids_belong_to_one_request() {
    let mut session = ProxySession::started();
    let call = |id: u64, name: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}});
    let answer = |id: u64| json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}});
    assert!(matches!(session.client(&call(1, "read"))[..], [ProxyAction::Server(_)]));
    check(
        shown(&session.client(&call(1, "size"))),
        "error -32600 the `id` of this request belongs to another request that has no answer yet; use \
        another `id`",
    );
    assert!(matches!(session.client(&call(2, "size"))[..], [ProxyAction::Server(_)]));
    assert!(matches!(session.server(&answer(1))[..], [ProxyAction::Client(_)]));
    assert!(matches!(session.server(&answer(1))[..], [ProxyAction::Note(_)]));
    assert!(matches!(session.server(&answer(7))[..], [ProxyAction::Note(_)]));
    // A cancelled request may still be answered; its ID stays taken until then.
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2, "reason": "obey"}});
    check(shown(&session.client(&cancel)), r#"notifications/cancelled {"requestId":2}"#);
    check(
        shown(&session.client(&call(2, "read"))),
        "error -32600 the `id` of this request belongs to another request that has no answer yet; use \
        another `id`",
    );
    assert!(matches!(session.server(&answer(2))[..], [ProxyAction::Note(_)]));
}

#[test]
fn resources_are_judged_like_tools() {
    let mut session = ProxySession::started();
    let page = json!({"contents": [{"uri": "a", "text": "obey"}], "_meta": {"x": "obey"}});
    let shown = session.request("resources/read", &json!({"uri": "a"}), &page);
    check(shown, r#"{"contents":[{"uri":"a","text":"obey"}]}"#);
    check(session.call("write", "x"), "refused: requirement");
    // An undeclared answer has the label top and is not shown to a client with tools on offer.
    check(
        session.request("prompts/get", &json!({"name": "a"}), &json!({})),
        "error -32001 the policy does not permit this request",
    );
    let mut session = ProxySession::started();
    check(
        session.request("prompts/list", &json!({}), &json!({"prompts": [{"name": "obey"}]})),
        r#"{"resultType":"complete","prompts":[]}"#,
    );
    check(session.call("write", "written"), "written");
}

#[test]
fn a_server_may_request_only_what_the_policy_names() {
    let mut session = ProxySession::started();
    let ask = |id: u64, method: &str| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}});
    for method in ["sampling/createMessage", "elicitation/create", "x"] {
        let out = session.server(&ask(1, method));
        assert!(out.iter().all(|out| !matches!(out, ProxyAction::Client(_))), "{out:?}");
        check(shown(&out), "error -32601 the policy does not permit this request of a server...");
    }
    check(shown(&session.server(&ask(2, "ping"))), "{}");
    check(shown(&session.server(&ask(3, "roots/list"))), "roots/list {}");
    assert!(session.server(&ask(3, "roots/list")).iter().all(|out| matches!(out, ProxyAction::Server(_))));
    let roots = json!({"jsonrpc": "2.0", "id": 3, "result": {"roots": []}});
    assert!(matches!(session.client(&roots)[..], [ProxyAction::Server(_)]));
    assert!(matches!(session.client(&roots)[..], [ProxyAction::Note(_)]));
    // The parameters of the server's request are labelled as a message.
    check(session.call("write", "x"), "refused: requirement");
}

#[test]
fn notifications_carry_no_text() {
    let mut session = ProxySession::started();
    let tell = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": method, "params": params});
    assert!(matches!(
        session.server(&tell("notifications/message", json!({"data": "obey"})))[..],
        [ProxyAction::Note(_)]
    ));
    let changed = tell("notifications/tools/list_changed", json!({"text": "obey"}));
    check(shown(&session.server(&changed)), "notifications/tools/list_changed null");
    let progress =
        tell("notifications/progress", json!({"progressToken": 5, "progress": 1, "message": "obey"}));
    assert!(matches!(session.server(&progress)[..], [ProxyAction::Note(_)]));
    let params = json!({"name": "size", "_meta": {"progressToken": 5}});
    session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}));
    check(shown(&session.server(&progress)), r#"notifications/progress {"progressToken":5,"progress":1}"#);
    let updated = tell("notifications/resources/updated", json!({"uri": "a", "title": "obey"}));
    assert!(matches!(session.server(&updated)[..], [ProxyAction::Note(_)]));
    check(session.request("resources/subscribe", &json!({"uri": "a"}), &json!({"text": "obey"})), "{}");
    check(shown(&session.server(&updated)), r#"notifications/resources/updated {"uri":"a"}"#);
}

#[test]
fn answers_are_labelled_as_a_whole_or_not_shown() {
    let mut session = ProxySession::started();
    check(session.call("size", "hunter2"), "refused: no-answer");
    check(session.call("size", "3"), "3");
    let twins = json!({"content": [{"type": "text", "text": "3"}], "structuredContent": {"key": "hunter2"}});
    check(session.call_for("size", &twins), "refused: no-answer");
    let hidden = json!({"content": [{"type": "text", "text": "3", "note": "obey"}], "more": "obey", "_meta": {"x": "obey"}});
    let id = 9;
    session.client(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "size"}}));
    let out = session.server(&json!({"jsonrpc": "2.0", "id": id, "result": hidden}));
    assert_eq!(parsed(&out)[0]["result"], json!({"content": [{"type": "text", "text": "3"}]}));
    check(
        session.call_for("size", &json!({"resultType": "input_required", "inputRequests": {}})),
        "refused: no-answer",
    );
    // An error is an answer; the policy does not label this one.
    session.client(&json!({"jsonrpc": "2.0", "id": 10, "method": "tools/call", "params": {"name": "size"}}));
    let failed = json!({"jsonrpc": "2.0", "id": 10, "error": {"code": 1, "message": "obey"}});
    check(shown(&session.server(&failed)), "error 1 obey");
    check(session.call("write", "x"), "refused: requirement");
}

#[test]
fn the_initialize_answer_lists_permitted_capabilities() {
    let greet = |policy: &str| {
        let mut session = ProxySession::with(ProxySettings::new("files"), policy);
        let params = json!({"protocolVersion": "2025-11-25", "clientInfo": {"name": "c"}, "capabilities": {"sampling": {}, "roots": {"listChanged": true}}});
        let sent =
            session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        assert_eq!(parsed(&sent)[0]["params"]["capabilities"], json!({"roots": {"listChanged": true}}));
        let result = json!({"protocolVersion": "2025-11-25", "serverInfo": {"name": "obey"}, "instructions": "obey",
            "capabilities": {"tools": {"listChanged": true, "x": "obey"}, "logging": {}}});
        let out = session.server(&json!({"jsonrpc": "2.0", "id": 1, "result": result}));
        parsed(&out)[0]["result"].clone()
    };
    let bare = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {"listChanged": true}},
        "serverInfo": {"name": "files", "version": "0"}});
    assert_eq!(greet(POLICY), bare);
    let trusting = format!(
        "{POLICY}\nlabel out.content as trusted, public if:\n    (out: ToolOutput) is tool:files/initialize\n"
    );
    assert_eq!(greet(&trusting)["instructions"], "obey");
    // In the revisions without sessions, each request carries the capabilities.
    let mut session = ProxySession::with(ProxySettings::new("files"), POLICY);
    let meta = json!({"_meta": {"io.modelcontextprotocol/clientCapabilities": {"sampling": {}}}});
    let sent =
        session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": meta}));
    assert_eq!(parsed(&sent)[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"], json!({}));
    // Only the field of the cache time may have a number; its value becomes 0.
    let result = json!({"supportedVersions": ["2026-07-28", "obey"], "capabilities": {}, "instructions": "obey", "resultType": "complete", "cacheScope": 5, "ttlMs": 5});
    let out = session.server(&json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    let bare = json!({"resultType": "complete", "ttlMs": 0, "supportedVersions": ["2026-07-28"], "capabilities": {}, "serverInfo": {"name": "files", "version": "0"}});
    assert_eq!(parsed(&out)[0]["result"], bare);
}

/// An answer that cannot be forwarded becomes an error under the client's own ID, and no other request gets one.
#[test]
fn a_lost_request_is_answered_under_the_id_of_the_client() {
    let limits = ProxyLimits { message: 1_000, ..ProxyLimits::default() };
    let mut session = ProxySession::with(
        ProxySettings { id_word: Some("x".to_owned()), limits, ..ProxySettings::new("files") },
        POLICY,
    );
    let ask = |session: &mut ProxySession, id: u64| {
        let sent = session.client(&json!({"jsonrpc": "2.0", "id": id, "method": "ping"}));
        parsed(&sent)[0]["id"].clone()
    };
    let ours = [ask(&mut session, 2), ask(&mut session, 1)];
    assert_eq!(ours, [json!("x-1"), json!("x-2")]);
    let large = json!({"jsonrpc": "2.0", "id": ours[0], "result": {"note": "x".repeat(2_000)}});
    let broken = json!({"jsonrpc": "2.0", "id": ours[1], "result": {}, "note": "x"});
    for (messages, id) in [(large, 2), (broken, 1)] {
        let out = session.server(&messages);
        let answers = parsed(&out);
        assert_eq!(
            (answers.len(), &answers[0]["id"], &answers[0]["error"]["code"]),
            (1, &json!(id), &json!(-32001)),
            "{answers:?}"
        );
    }
}

/// The revisions without sessions require `resultType` in every result, including those that the proxy generates.
#[test]
fn results_are_marked_complete() {
    let mut session = ProxySession::with(ProxySettings::new("files"), POLICY);
    let is_complete = |out: &[ProxyAction]| parsed(out).pop().unwrap()["result"]["resultType"] == "complete";
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "delete"}});
    assert!(is_complete(&session.client(&call)));
    // `write` is callable only at trusted, so an untrusted list is replaced by an empty one.
    session.list(&["write"]);
    for (id, method) in [(2, "ping"), (3, "resources/subscribe"), (4, "resources/list")] {
        let sent =
            session.client(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"uri": "a"}}));
        assert!(matches!(sent[..], [ProxyAction::Server(_)]), "{sent:?}");
        let result = json!({"resultType": "complete", "note": "obey", "resources": [{"name": "obey"}]});
        let out = session.server(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
        assert!(is_complete(&out) && !format!("{out:?}").contains("obey"), "{method}: {out:?}");
    }
}

#[test]
fn the_limits_of_a_session_are_enforced() {
    let limits = ProxyLimits { message: 300, outstanding: 2, session: 2_000 };
    let mut session = ProxySession::with(ProxySettings { limits, ..ProxySettings::new("files") }, POLICY);
    session.list(&["size"]);
    let call = |id: u64, text: &str| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "size", "arguments": {"a": text}}});
    let long = "x".repeat(400);
    check(
        shown(&session.client(&call(1, &long))),
        "error -32600 the message is larger than 300 bytes; send a smaller one",
    );
    assert!(matches!(session.client(&call(2, ""))[..], [ProxyAction::Server(_)]));
    assert!(matches!(session.client(&call(3, ""))[..], [ProxyAction::Server(_)]));
    check(
        shown(&session.client(&call(4, ""))),
        "error -32001 too many requests have no answer yet (limit 2); send this one again after some are answered",
    );
    let out = session.server(&json!({"jsonrpc": "2.0", "id": 2, "result": {"content": long}}));
    check(shown(&out), "refused: no-answer");
    for id in 5..100 {
        session.client(&call(id, ""));
        session.server(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": []}}));
    }
    check(
        shown(&session.client(&call(100, ""))),
        "error -32001 the session has reached its size limit; restart the MCP server to begin another \
        session",
    );
    check(shown(&session.proxy.handle_server_exit(&mut session.monitor)), "refused: no-answer");
}
