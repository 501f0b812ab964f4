//! Tests, with random sequences of messages from client and server, that free text of a server reaches the client only
//! through the trace, where it has a label, and that the number of pending requests stays within its limit.

use serde_json::{Value, json};

use super::{POLICY, ProxySession, tool};
use crate::{ProxyAction, ProxyLimits, ProxySettings};

/// Returns messages of both sides: well-formed ones, ones without some field, and truncated ones.
pub(super) fn messages() -> Vec<String> {
    let mut messages: Vec<Value> = Vec::new();
    let params = json!({"name": "read", "uri": "a", "arguments": {"a": 1}, "_meta": {"progressToken": 1}, "requestId": 1,
        "progressToken": 1, "progress": 1, "capabilities": {"elicitation": {}}, "cursor": "page-2", "notifications": {"toolsListChanged": true, "resourceSubscriptions": ["a", "b"]}});
    let methods = [
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "resources/read",
        "resources/list",
        "resources/subscribe",
        "prompts/get",
        "sampling/createMessage",
        "roots/list",
        "subscriptions/listen",
        "notifications/subscriptions/acknowledged",
        "notifications/tools/list_changed",
        "notifications/cancelled",
        "notifications/progress",
        "notifications/resources/updated",
        "x",
    ];
    for method in methods {
        messages.push(json!({"jsonrpc": "2.0", "method": method, "params": params}));
        for id in [1, 2] {
            messages.push(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
            let mut bare = params.clone();
            bare.as_object_mut().unwrap().remove("cursor");
            messages.push(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": bare}));
        }
    }
    for id in [1, 2] {
        let can = json!({"progressToken": 1, "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "roots": {}}});
        let more = json!({"name": "read", "arguments": {"a": 1}, "_meta": can});
        messages.push(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": more}));
        let mut again = more.clone();
        (again["requestState"], again["inputResponses"]) = (json!("flowgate-3"), json!({"a": {"roots": []}}));
        messages.push(json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": again}));
        let asks = json!({"resultType": "input_required", "inputRequests": {"a": {"method": "roots/list", "params": {"x": "SECRET"}}}, "requestState": "SEALED"});
        messages.push(json!({"jsonrpc": "2.0", "id": id, "result": asks}));
        let meta = json!({"io.modelcontextprotocol/subscriptionId": id});
        messages.push(json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "a", "_meta": meta, "text": "SECRET"}}));
    }
    for id in [json!(1), json!(2), json!("flowgate-1"), json!("flowgate-2"), json!(null)] {
        messages.push(json!({"jsonrpc": "2.0", "id": id, "result": {"action": "accept"}}));
        messages.push(json!({"jsonrpc": "2.0", "id": id, "result": {"tools": [tool("read", "a"), tool("delete", "a")], "nextCursor": "c"}}));
        messages.push(json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "SECRET"}], "isError": 1}}));
        messages.push(
            json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "SECRET"}]}}),
        );
        messages.push(json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": "SECRET"}}));
    }
    messages
        .iter()
        .map(Value::to_string)
        .chain(["".into(), "[]".into(), "{\"id\":1".into(), "[{\"id\":2}]".into()])
        .collect()
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig { cases: 300, ..Default::default() })]

    /// For any sequence of messages, free text of the server reaches the client only if the trace contains it as an
    /// event.
    #[test]
    fn free_text_reaches_the_client_only_through_the_trace(
        choices in proptest::collection::vec((proptest::bool::ANY, 0..1_000_usize, 0..400_usize), 1..60),
    ) {
        let texts = messages();
        let limits = ProxyLimits { outstanding: 3, ..ProxyLimits::default() };
        let mut session = ProxySession::with(ProxySettings { is_interactive: true, limits, ..ProxySettings::new("files") }, POLICY);
        for (is_client, which, cut) in choices {
            let whole = &texts[which % texts.len()];
            // Most messages are not truncated.
            let bytes = if cut < 40 { &whole.as_bytes()[..cut.min(whole.len())] } else { whole.as_bytes() };
            let out = match is_client {
                true => session.proxy.handle_client_message(&mut session.monitor, bytes),
                false => session.proxy.handle_server_message(&mut session.monitor, bytes),
            };
            let is_sent = out.iter().any(|out| matches!(out, ProxyAction::Client(text) if text.contains("SECRET")));
            // The event is an answer, or a request of the server, which is judged as a call.
            let last = session.monitor.trace().events().last();
            let holds = |event: &flowgate::trace::Event| format!("{:?}", event.body).contains("SECRET");
            proptest::prop_assert!(!is_sent || last.is_some_and(holds));
            let is_out = |out: &ProxyAction| matches!(out, ProxyAction::Client(text) if text.contains("SEALED"));
            proptest::prop_assert!(!out.iter().any(is_out));
            proptest::prop_assert!(session.proxy.client_requests.len() <= 3 && session.proxy.outgoing_requests.len() <= 3);
        }
        session.proxy.handle_server_exit(&mut session.monitor);
        proptest::prop_assert!(session.proxy.client_requests.is_empty());
    }
}
