//! Tests that messages are refused if a parser that ignores case would confuse one of their field names with another.

use serde_json::{Value, json};

use super::super::{ProxyAction, ProxySettings};
use super::{POLICY, ProxySession, shown};

/// Returns a session whose tool `read` declares its arguments.
fn declared() -> ProxySession {
    let mut session = ProxySession::with(ProxySettings::new("files"), POLICY);
    let properties =
        json!({"path": {"type": "string"}, "line_count": {}, "filter": {"properties": {"owner": {}}}});
    let read = json!({"name": "read", "inputSchema": {"type": "object", "properties": properties}});
    session.list_tools(&json!({"tools": [read, {"name": "delete"}]}));
    session
}

fn calls(session: &mut ProxySession, params: &Value) -> Vec<ProxyAction> {
    session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}))
}

#[test]
fn an_argument_has_one_name_for_every_reader() {
    let rows = [
        (json!({"path": "a", "line_count": 1, "filter": {"owner": "me", "note": 1}}), true),
        (json!({"path": "a", "other": 1}), true),
        (json!({"Path": "b"}), false),
        (json!({"path": "a", "PATH": "b"}), false),
        (json!({"lineCount": 1}), false),
        (json!({"line-count": 1}), false),
        (json!({"filter": {"Owner": "you"}}), false),
        (json!({"other": {"x": 1, "X": 2}}), false),
    ];
    for (arguments, runs) in rows {
        let out = calls(&mut declared(), &json!({"name": "read", "arguments": arguments}));
        assert_eq!(matches!(out[..], [ProxyAction::Server(_)]), runs, "{arguments} {out:?}");
        if !runs {
            assert_eq!(shown(&out), "refused: malformed", "{arguments}");
        }
    }
    // For a tool without declared arguments, only names that occur twice are rejected.
    for (arguments, runs) in [(json!({"Path": "b"}), true), (json!({"Path": "b", "path": "a"}), false)] {
        let out = calls(&mut declared(), &json!({"name": "delete", "arguments": arguments}));
        assert_eq!(matches!(out[..], [ProxyAction::Server(_)]), runs, "{arguments} {out:?}");
    }
}

/// Parameters in addition to the arguments are forwarded, so their names must be unambiguous too: some servers read
/// `Name` as the name of the tool.
#[test]
fn a_parameter_has_one_name_for_every_reader() {
    let rows = [
        (json!({"name": "read", "arguments": {}, "note": 1}), true),
        (json!({"name": "read", "Name": "delete", "arguments": {}}), false),
        (json!({"name": "read", "arguments": {}, "ARGUMENTS": {"path": "b"}}), false),
        (json!({"name": "read", "arguments": {}, "note": 1, "Note": 2}), false),
        (json!({"name": "read", "arguments": {}, "request_state": "x"}), false),
    ];
    for (params, runs) in rows {
        let out = calls(&mut declared(), &params);
        assert_eq!(matches!(out[..], [ProxyAction::Server(_)]), runs, "{params} {out:?}");
        if !runs {
            assert!(
                shown(&out).starts_with("error -32600 the parameters of the request are ambiguous"),
                "{params} {out:?}"
            );
        }
    }
    let mut session = declared();
    let read =
        |params: Value| json!({"jsonrpc": "2.0", "id": 2, "method": "resources/read", "params": params});
    assert!(matches!(session.client(&read(json!({"uri": "a", "URI": "b"})))[..], [ProxyAction::Client(_)]));
    assert!(matches!(session.client(&read(json!({"uri": "a"})))[..], [ProxyAction::Server(_)]));
}
