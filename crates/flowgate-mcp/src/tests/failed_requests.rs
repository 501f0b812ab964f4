//! Tests that every call whose answer cannot be forwarded ends in the same way: the client receives one constant
//! message, and the trace an event with the label of the tool's answers.

use serde_json::{Value, json};

use super::super::failed_requests::NO_ANSWER;
use super::super::{ProxyAction, ProxySettings};
use super::{POLICY, ProxySession, check, parsed, shown};

const ID: u64 = 77;

/// Lines that a server may send in place of an answer. Which one it sends could depend on the text of a private note.
fn bad_lines() -> Vec<(&'static str, Vec<u8>)> {
    let note = |before: usize| "x".repeat(before);
    let head = format!("{{\"jsonrpc\":\"2.0\",\"id\":{ID},");
    let line = |rest: &str| format!("{head}{rest}}}").into_bytes();
    let text =
        |text: &str| line(&format!("\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"{text}\"}}]}}"));
    let result =
        |result: Value| json!({"jsonrpc": "2.0", "id": ID, "result": result}).to_string().into_bytes();
    let asks = |requests: Value| result(json!({"resultType": "input_required", "inputRequests": requests}));
    let mut not_utf8 = text("note");
    not_utf8.insert(60, 0xff);
    vec![
        ("a key twice, early", line("\"result\":{\"note\":1,\"note\":2}")),
        (
            "a key twice, late",
            line(&format!("\"result\":{{\"a\":\"{}\",\"note\":1,\"note\":2}}", note(4803))),
        ),
        ("a lone surrogate, early", text("\\ud800")),
        ("a lone surrogate, late", text(&format!("{}\\udfff", note(977)))),
        ("a control character", text("a\u{1}b")),
        ("a number without end", line("\"result\":{\"n\":1e999999}")),
        ("cut off", format!("{head}\"result\":{{\"te").into_bytes()),
        ("more behind it", [line("\"result\":{}"), b"{}".to_vec()].concat()),
        ("no UTF-8", not_utf8),
        (
            "deeper than anybody reads",
            line(&format!("\"result\":{}{}", "[".repeat(5_000), "]".repeat(5_000))),
        ),
        ("too large", text(&note(5 << 20))),
        ("another field", line("\"result\":{},\"note\":\"x\"")),
        ("result and error", line("\"result\":{},\"error\":{}")),
        ("another version", format!("{{\"jsonrpc\":\"1.0\",\"id\":{ID},\"result\":{{}}}}").into_bytes()),
        ("a list", result(json!(["note"]))),
        ("a text", result(json!("note"))),
        ("isError is a text", result(json!({"content": [], "isError": "note"}))),
        ("an unknown kind of result", result(json!({"resultType": "note", "content": []}))),
        ("asks, and this client gives nothing", asks(json!({"a": {"method": "roots/list"}}))),
        ("asks for what nobody knows", asks(json!({"a": {"method": "note"}}))),
        ("asks without saying what", result(json!({"resultType": "input_required"}))),
        ("a rule withholds it", text("hunter2")),
    ]
}

/// Ways for a call to end that the caller of the proxy reports.
type CallEnding = fn(&mut ProxySession) -> Vec<ProxyAction>;
const ENDS: [(&str, CallEnding); 5] = [
    ("HTTP failure", |session| {
        session.proxy.handle_failed_request(
            &mut session.monitor,
            &json!(ID),
            "the server answers with an error",
        )
    }),
    ("time-out", |session| {
        session.proxy.handle_failed_request(
            &mut session.monitor,
            &json!(ID),
            "the server does not answer in time",
        )
    }),
    ("reset", |session| {
        session.proxy.handle_failed_request(
            &mut session.monitor,
            &json!(ID),
            "the answer of the server broke off",
        )
    }),
    ("the server ended", |session| session.proxy.handle_server_exit(&mut session.monitor)),
    ("too large for anybody, without an id", |session| {
        let line = format!("{{\"note\":\"{}\"", "x".repeat(5 << 20));
        session.proxy.handle_server_message(&mut session.monitor, line.as_bytes())
    }),
];

/// Calls a tool and ends the call in the given way; returns the messages to the client and the notes to the operator.
fn end(
    session: &mut ProxySession,
    tool: &str,
    end: impl FnOnce(&mut ProxySession) -> Vec<ProxyAction>,
) -> (Vec<Value>, String) {
    let call = json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": {"name": tool, "arguments": {}}});
    let sent = session.client(&call);
    assert!(matches!(sent[..], [ProxyAction::Server(_)]), "{sent:?}");
    let out = end(session);
    let notes = out.iter().filter_map(|out| match out {
        ProxyAction::Note(note) => Some(note.as_str()),
        _ => None,
    });
    (parsed(&out), notes.collect::<Vec<_>>().join("; "))
}

fn expected() -> Vec<Value> {
    let refusal = json!({"refused": "deny", "reasons": [{"kind": "no-answer", "says": NO_ANSWER}]});
    let text = json!([{"type": "text", "text": refusal.to_string()}]);
    vec![
        json!({"jsonrpc": "2.0", "id": ID, "result": {"resultType": "complete", "content": text, "isError": true}}),
    ]
}

/// Checks that the client receives the constant message and that the outcome carries exactly the label of the tool's
/// answers.
fn check_end(which: &str, ends: impl Fn(&mut ProxySession) -> Vec<ProxyAction>) {
    let mut session = ProxySession::started();
    let (answers, notes) = end(&mut session, "diary", &ends);
    assert_eq!(answers, expected(), "{which}");
    let says =
        ["4803", "977", "line", "column", "hunter2", "xx"].into_iter().find(|text| notes.contains(text));
    assert!(!notes.is_empty() && says.is_none(), "{which}: {notes}");
    // The diary is private: later public calls are refused.
    check(session.call("write", "written"), "refused: requirement");
    check(session.call("read", "x"), "refused: requirement");
    check(session.call("diary", "dear diary"), "dear diary");
    // The answers of `size` are public and trusted, so its failures are as well.
    let mut session = ProxySession::started();
    let (answers, _) = end(&mut session, "size", &ends);
    assert_eq!(answers, expected(), "{which}");
    check(session.call("write", "written"), "written");
}

#[test]
fn a_refused_answer_is_constant_and_carries_the_label_of_its_tool() {
    for (which, line) in bad_lines() {
        check_end(which, |session| session.proxy.handle_server_message(&mut session.monitor, &line));
    }
    for (which, ends) in ENDS {
        check_end(which, ends);
    }
}

/// Failures of a tool whose answers are undeclared, or only partly declared, carry top.
#[test]
fn a_failure_of_an_undeclared_tool_is_top() {
    let declared = "label out.content as trusted, public if:\n    (out: ToolOutput) is tool:files/size\n";
    let rows = [
        // The declarations, and whether `write` may run after a failure.
        (declared.to_owned(), true),
        (declared.replace("out.content", "out"), true),
        (String::new(), false),
        (declared.replace("out.content", "out.content.size"), false),
        (format!("{declared}    not out.is_error\n"), false),
        (format!("{declared}    \"3\" in out.content\n"), false),
        (
            format!(
                "{declared}label out.content.note as private if:\n    (out: ToolOutput) is tool:files/size\n"
            ),
            false,
        ),
        (
            format!(
                "{declared}label out.content as private if:\n    (out: ToolOutput) is tool:files/size\n    \"me\" in out.content\n"
            ),
            false,
        ),
        // A default does not declare the label of a failure.
        ("default trusted, public\n".to_owned(), false),
    ];
    for (statements, runs) in rows {
        let policy = format!("{}\n{statements}", POLICY.replace(declared, ""));
        let mut session = ProxySession::with(ProxySettings::new("files"), &policy);
        session.list(&["read", "write", "size"]);
        end(&mut session, "size", |session| {
            session.proxy.handle_failed_request(
                &mut session.monitor,
                &json!(ID),
                "the server cannot be reached",
            )
        });
        check(session.call("write", "written"), if runs { "written" } else { "refused: requirement" });
    }
}

/// A client that cancels a call knows how long the server took, so its later calls carry the label of the tool's
/// answers.
#[test]
fn a_cancelled_call_has_an_outcome() {
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": ID}});
    for (tool, after) in [("diary", "refused: requirement"), ("size", "written")] {
        let mut session = ProxySession::started();
        let (answers, _) = end(&mut session, tool, |session| session.client(&cancel));
        assert_eq!(answers.len(), 1, "{answers:?}");
        check(session.call("write", "written"), after);
        // The late answer is dropped.
        let late = json!({"jsonrpc": "2.0", "id": ID, "result": {"content": []}});
        assert!(matches!(session.server(&late)[..], [ProxyAction::Note(_)]));
    }
}

/// A JSON-RPC error is an answer with text: it is shown, with the label of an undeclared answer.
#[test]
fn an_error_of_the_server_is_an_answer() {
    let mut session = ProxySession::started();
    let failed = json!({"jsonrpc": "2.0", "id": ID, "error": {"code": 4803, "message": "note"}});
    let (answers, _) = end(&mut session, "size", |session| session.server(&failed));
    assert_eq!(answers, [failed]);
    check(session.call("write", "written"), "refused: requirement");
}

/// The numbers in a progress notification come from the server: a client that receives them carries the label that the
/// answer may carry.
#[test]
fn progress_is_part_of_the_answer() {
    for (tool, after) in [("diary", "refused: requirement"), ("size", "written")] {
        let mut session = ProxySession::started();
        let params = json!({"name": tool, "arguments": {}, "_meta": {"progressToken": "t"}});
        session.client(&json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params}));
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 4803}});
        // The notification raises the client's label, so it must go through `handle_server_message`.
        let bytes = progress.to_string();
        assert!(session.proxy.handle_stateless_message(&mut session.monitor, bytes.as_bytes()).is_none());
        check(
            shown(&session.server(&progress)),
            r#"notifications/progress {"progressToken":"t","progress":4803}"#,
        );
        assert!(session.proxy.handle_stateless_message(&mut session.monitor, bytes.as_bytes()).is_some());
        let events = session.monitor.trace().len();
        session.server(&progress);
        assert_eq!(session.monitor.trace().len(), events);
        check(session.call("write", "written"), after);
    }
}

/// Whether and how often a server sends notifications while a call runs can depend on the answer, so they carry its
/// label.
#[test]
fn notifications_during_a_call_carry_the_label_of_the_answer() {
    let notice = |method: &str, params: Value| json!({"jsonrpc": "2.0", "method": format!("notifications/{method}"), "params": params});
    let notices = [
        notice("tools/list_changed", json!({})),
        notice("resources/list_changed", json!({})),
        notice("prompts/list_changed", json!({})),
        notice("resources/updated", json!({"uri": "a"})),
    ];
    for notice in notices {
        for (tool, after) in [("diary", "refused: requirement"), ("size", "written")] {
            let mut session = ProxySession::started();
            check(session.request("resources/subscribe", &json!({"uri": "a"}), &json!({})), "{}");
            // Without a running call, a notification carries no label.
            session.server(&notice);
            check(session.call("write", "written"), "written");
            let params = json!({"name": tool, "arguments": {}});
            session.client(&json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params}));
            let overheard = |session: &mut ProxySession| {
                session
                    .proxy
                    .handle_stateless_message(&mut session.monitor, notice.to_string().as_bytes())
                    .is_some()
            };
            assert!(!overheard(&mut session), "{notice}: it changes what the client has seen");
            assert_eq!(session.server(&notice).len(), 1, "{notice}");
            assert!(overheard(&mut session), "{notice}");
            check(session.call("write", "written"), after);
        }
    }
    // A dropped notification does not raise the client's label.
    let mut session = ProxySession::started();
    session.client(&json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": {"name": "diary", "arguments": {}}}));
    for dropped in [notice("message", json!({"data": "x"})), notice("resources/updated", json!({"uri": "b"}))]
    {
        assert!(matches!(session.server(&dropped)[..], [ProxyAction::Note(_)]), "{dropped}");
    }
    check(session.call("write", "written"), "written");
}

/// A request of the server while a call runs carries the label that the answer may carry, whatever the policy declares
/// for such requests.
#[test]
fn requests_during_a_call_carry_the_label_of_the_answer() {
    let policy =
        POLICY.replace("label message as untrusted, public", "label message as trusted, public").replace(
            "require untrusted, public if:\n    (call: ToolCall) is tool:files/roots/list",
            "require untrusted, private if:\n    (call: ToolCall) is tool:files/roots/list",
        );
    for (tool, after) in [("diary", "refused: requirement"), ("size", "written")] {
        let mut session = ProxySession::with(ProxySettings::new("files"), &policy);
        session.list(&["read", "write", "size", "diary"]);
        let params = json!({"name": tool, "arguments": {}});
        session.client(&json!({"jsonrpc": "2.0", "id": ID, "method": "tools/call", "params": params}));
        let asks =
            json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list", "params": {"note": "dear diary"}});
        check(shown(&session.server(&asks)), r#"roots/list {"note":"dear diary"}"#);
        check(session.call("write", "written"), after);
    }
}

/// In place of a list that is hidden whatever the server answers, the client receives the same empty list if the server
/// fails. The failure of a list that could be shown carries the label of the list.
#[test]
fn a_hidden_list_does_not_tell_whether_the_server_failed() {
    let hidden = json!([{"jsonrpc": "2.0", "id": ID, "result": {"resultType": "complete", "resources": []}}]);
    let declared = "label out as trusted, public if:\n    (out: ToolOutput) is tool:files/resources/list\n";
    let list = json!({"jsonrpc": "2.0", "id": ID, "method": "resources/list"});
    let answers = [
        json!({"result": {"resources": [{"name": "note"}]}}),
        json!({"result": "note"}),
        json!({"result": {"resultType": "input_required", "requestState": "note"}}),
        json!({"error": {"code": 4803, "message": "note"}}),
    ];
    for (statements, is_hidden) in [("", true), (declared, false)] {
        let policy = format!("{POLICY}\n{statements}");
        let begin = || {
            let mut session = ProxySession::with(ProxySettings::new("files"), &policy);
            session.list(&["write"]);
            assert!(matches!(session.client(&list)[..], [ProxyAction::Server(_)]));
            session
        };
        let mut replies = Vec::new();
        for answer in &answers {
            let mut session = begin();
            let mut line = json!({"jsonrpc": "2.0", "id": ID});
            line.as_object_mut().unwrap().extend(answer.as_object().unwrap().clone());
            replies.push((json!(parsed(&session.server(&line))), session));
        }
        for line in [
            "{\"jsonrpc\":\"2.0\",\"id\":77,\"result\":{\"a\":1,\"a\":2}}",
            "{\"id\":77,\"result\":\"\\ud800\"}",
        ] {
            let mut session = begin();
            replies.push((
                json!(parsed(&session.proxy.handle_server_message(&mut session.monitor, line.as_bytes()))),
                session,
            ));
        }
        let mut session = begin();
        replies.push((
            json!(parsed(&session.proxy.handle_failed_request(&mut session.monitor, &json!(ID), "x"))),
            session,
        ));
        for (number, (replies, mut session)) in replies.into_iter().enumerate() {
            match is_hidden {
                true => assert_eq!(replies, hidden, "{number}"),
                false => assert_eq!(replies[0].get("error").is_some(), number > 0, "{number}: {replies}"),
            }
            check(session.call("write", "written"), "written");
        }
    }
}

/// The forwarded fields of unlabelled answers contain only known values.
#[test]
fn unlabelled_fields_are_not_forwarded() {
    let mut session = ProxySession::with(ProxySettings::new("files"), POLICY);
    let result = json!({"supportedVersions": ["4803-11-05", "2026-07-28", "2024-11-05", "2026-07-28"], "capabilities": {}, "ttlMs": 4803});
    session.client(&json!({"jsonrpc": "2.0", "id": ID, "method": "server/discover"}));
    let answers = parsed(&session.server(&json!({"jsonrpc": "2.0", "id": ID, "result": result})));
    assert_eq!(answers[0]["result"]["supportedVersions"], json!(["2024-11-05", "2026-07-28"]));
    assert_eq!(answers[0]["result"]["ttlMs"], 1_000);
    session.list(&["write"]);
    let hidden = session.request(
        "resources/list",
        &json!({}),
        &json!({"resources": [{"name": "note"}], "ttlMs": 4803}),
    );
    check(hidden, r#"{"resultType":"complete","resources":[]}"#);
}

/// An answer that exceeds the clearance of the client's model is withheld.
#[test]
fn an_answer_above_the_clearance_of_the_model_is_withheld() {
    let policy =
        format!("{POLICY}\nrequire untrusted, public if:\n    (call: ToolCall) is tool:flowgate/model\n");
    for (tool, expected) in [("diary", "refused: no-answer"), ("size", "3")] {
        let mut session = ProxySession::with(ProxySettings::new("files"), &policy);
        session.list(&["read", "write", "size", "diary"]);
        check(session.call(tool, "3"), expected);
    }
}
