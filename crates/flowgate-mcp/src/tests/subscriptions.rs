//! Tests of subscriptions: the client receives exactly the permitted notifications that it subscribed to.

use serde_json::{Value, json};

use super::{ProxySession, check, parsed, shown};
use crate::{ProxyAction, ProxySettings};

fn listen(id: &Value, notifications: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "subscriptions/listen", "params": {"notifications": notifications}})
}

fn tell(method: &str, id: &Value, mut params: Value) -> Value {
    params["_meta"] = json!({"io.modelcontextprotocol/subscriptionId": id, "text": "obey"});
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

#[test]
fn a_client_receives_its_subscribed_notifications() {
    let mut session = ProxySession::started();
    let wanted = json!({"toolsListChanged": true, "promptsListChanged": false, "text": "x", "resourceSubscriptions": ["a", 3]});
    let sent = session.client(&listen(&json!(5), &wanted));
    let only = json!({"toolsListChanged": true, "resourceSubscriptions": ["a"]});
    assert_eq!(parsed(&sent)[0]["params"], json!({"notifications": only}));
    let meta = |id: u64| json!({"io.modelcontextprotocol/subscriptionId": id});
    let mut hears = |method: &str, id: u64, params: Value, expected: Option<Value>| {
        let out = session.server(&tell(method, &json!(id), params));
        let expected = expected.map(|mut notification| {
            notification["_meta"] = meta(id);
            notification
        });
        assert_eq!(
            parsed(&out).first().map(|notification| notification["params"].clone()),
            expected,
            "{method} {id}"
        );
    };
    let more = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true, "x": "obey", "resourceSubscriptions": ["a", "obey"]}});
    hears("notifications/subscriptions/acknowledged", 5, more, Some(json!({"notifications": only})));
    hears("notifications/tools/list_changed", 5, json!({"text": "obey"}), Some(json!({})));
    hears(
        "notifications/resources/updated",
        5,
        json!({"uri": "a", "text": "obey"}),
        Some(json!({"uri": "a"})),
    );
    hears("notifications/resources/updated", 5, json!({"uri": "obey"}), None);
    hears("notifications/prompts/list_changed", 5, json!({}), None);
    hears("notifications/message", 5, json!({"data": "obey"}), None);
    hears("notifications/tools/list_changed", 6, json!({}), None);
    let end = json!({"jsonrpc": "2.0", "id": 5, "result": {"text": "obey", "_meta": {"x": "obey"}}});
    assert_eq!(
        parsed(&session.server(&end))[0]["result"],
        json!({"resultType": "complete", "_meta": meta(5)})
    );
    // The subscription has ended.
    let late = session.server(&tell("notifications/tools/list_changed", &json!(5), json!({})));
    assert!(matches!(late[..], [ProxyAction::Note(_)]), "{late:?}");
}

/// Each resource is judged as a `resources/subscribe` request.
#[test]
fn forbidden_resources_are_not_subscribed() {
    let mut session = ProxySession::started();
    check(session.call("diary", "dear diary"), "dear diary");
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["dear diary"]});
    let mut message = listen(&json!(5), &wanted);
    message["params"]["_meta"]["note"] = json!("dear diary");
    let sent = session.client(&message);
    let only = json!({"toolsListChanged": true, "resourceSubscriptions": []});
    assert_eq!(parsed(&sent)[0]["params"]["notifications"], only);
    assert!(!parsed(&sent)[0].to_string().contains("diary"), "{sent:?}");
    let many: Vec<String> = (0..65).map(|uri| uri.to_string()).collect();
    let sent = session.client(&listen(&json!(6), &json!({"resourceSubscriptions": many})));
    check(shown(&sent), "error -32001 the request subscribes to more than 64 resources...");
    check(
        shown(&session.client(&listen(&json!(7), &json!(true)))),
        "error -32600 the request has no object `notifications`...",
    );
}

/// Where the server receives generated request IDs, each client receives its own.
#[test]
fn each_client_receives_its_own_ids() {
    let settings = ProxySettings { id_word: Some("x".to_owned()), ..ProxySettings::new("files") };
    let mut session = ProxySession::with(settings, super::POLICY);
    for theirs in [json!("b"), json!(5)] {
        let sent = session.client(&listen(&theirs, &json!({"toolsListChanged": true})));
        let ours = parsed(&sent)[0]["id"].clone();
        let heard = session.server(&tell("notifications/tools/list_changed", &ours, json!({})));
        let meta = json!({"io.modelcontextprotocol/subscriptionId": theirs});
        assert_eq!(parsed(&heard)[0]["params"]["_meta"], meta);
        let end = session.server(&json!({"jsonrpc": "2.0", "id": ours, "result": {}}));
        let end = &parsed(&end)[0];
        assert_eq!((&end["id"], &end["result"]["_meta"]), (&theirs, &meta));
    }
}
