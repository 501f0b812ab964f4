//! Tests of the policy API of a gateway with clients: it is available to holders of its token, and to others only if
//! the configuration enables it.

use flowgate_gateway::http::access::{AccessControl, BearerToken};
use serde_json::json;

use crate::gateway::{GatewayHome, KEY, POLICY, config};

const TOKEN: &str = "token-of-the-policy-api";

#[test]
fn anonymous_callers_need_allow_anonymous_for_the_policy_api() {
    let token = || AccessControl::Token(BearerToken::new(TOKEN).unwrap());
    let open = "[policy-api]\nallow-anonymous = true\n";
    let policy = "raise \"no\" if:\n    (call: ToolCall)\n    call is tool:send\n";
    let trace = json!([{"role": "user", "content": "hello"}]);
    let routes = [
        ("/api/v1/policy/load", json!({"policy": policy})),
        ("/api/v1/policy/check", json!({"policy": policy, "messages": trace})),
        ("/api/v1/policy/check/batch", json!({"policies": [policy], "messages": trace})),
    ];
    let bearer = |key: &str| format!("Bearer {key}");
    // The configuration, the access control, the key that is sent, and the status.
    let rows = [
        ("", AccessControl::Local, "", 403),
        ("", AccessControl::Anonymous, "", 403),
        // Keys of clients and people are no tokens.
        ("", AccessControl::Local, KEY, 403),
        ("", AccessControl::Anonymous, "key-of-the-person-ann", 403),
        ("[policy-api]\n", AccessControl::Local, "", 403),
        (open, AccessControl::Local, "", 200),
        (open, AccessControl::Anonymous, "", 200),
        ("", token(), "", 401),
        ("", token(), KEY, 401),
        ("", token(), TOKEN, 200),
        (open, token(), "", 401),
    ];
    for (number, (setting, access, key, expected)) in rows.into_iter().enumerate() {
        let people = "[people.ann]\nkey-from = \"ann\"\nrole = \"admin\"\n";
        let text = config(
            "http://127.0.0.1:1/v1",
            "chat-completions",
            "user-messages = \"trust-unmarked-even-if-pasted\"",
        ) + people
            + setting;
        let gateway = GatewayHome::new(&text, POLICY).start_with_access(access);
        for (path, body) in &routes {
            let bearer = bearer(key);
            let headers = [("authorization", bearer.as_str())];
            let headers = if key.is_empty() { &[][..] } else { &headers[..] };
            let (status, said) = gateway.post(path, headers, &body.to_string());
            assert_eq!(status, expected, "{number} {path}: {said}");
            assert!(status != 403 || said.contains("[policy-api] allow-anonymous = true"), "{said}");
        }
        // The other routes are unaffected.
        assert_eq!(gateway.get("/health", KEY).0, 200, "{number}");
        assert_eq!(gateway.get("/v1/models", KEY).0, 200, "{number}");
        assert_eq!(gateway.get("/api/v1/approvals", "key-of-the-person-ann").0, 200, "{number}");
    }
}
