//! Tests of the lower bounds of an answer's label: the label that the server states in `_meta.ifc`; the greatest label
//! of the tool's answers, if a rule can withhold the answer; and top for error texts. The bounds apply to subsequent
//! calls even if the answer is withheld.

use serde_json::{Value, json};

use super::super::ProxySettings;
use super::input_required::{asking, call, wants};
use super::{POLICY, ProxySession, check, parsed, shown};

/// Resources and lists may be read and are trusted, so that only `_meta.ifc` makes a difference.
fn policy() -> String {
    let declared =
        "label out.content as untrusted, public if:\n    (out: ToolOutput) is tool:files/resources/read\n";
    assert!(POLICY.contains(declared));
    let lists =
        "label out.content as trusted, public if:\n    (out: ToolOutput) is tool:files/resources/list\n";
    format!("{}{lists}", POLICY.replace(declared, &declared.replace("untrusted", "trusted")))
}

fn begin(policy: &str) -> ProxySession {
    let mut session = ProxySession::with(ProxySettings::new("files"), policy);
    session.list(&["write", "size"]);
    session
}

fn with_ifc(result: &Value, ifc: &Value) -> Value {
    let mut result = result.clone();
    if !ifc.is_null() {
        result["_meta"] = json!({"ifc": ifc});
    }
    result
}

/// Values of `_meta.ifc`, and whether a trusted and public write is permitted afterwards.
fn words() -> [(Value, bool); 7] {
    [
        (Value::Null, true),
        (json!({}), true),
        (json!({"integrity": "trusted", "confidentiality": "public"}), true),
        (json!({"integrity": "untrusted"}), false),
        (json!({"confidentiality": ["ann"]}), false),
        (json!({"integrity": 3}), false),
        (json!("public"), false),
    ]
}

fn expect_write(session: &mut ProxySession, runs: bool, at: &str) {
    let found = session.call("write", "written");
    assert_eq!(found, if runs { "written" } else { "refused: requirement" }, "{at}");
}

/// Every kind of answer carries at least the label that its server states, whether it is shown or a rule withholds it.
#[test]
fn an_answer_carries_at_least_the_label_of_its_server() {
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]});
    let tool = ("tools/call", json!({"name": "size", "arguments": {}}));
    let read = ("resources/read", json!({"uri": "a"}));
    let rows = [
        ("shown", &tool, text("3"), "3"),
        ("withheld by a rule", &tool, text("hunter2"), "refused: no-answer"),
        ("a resource", &read, json!({"contents": [{"uri": "a", "text": "b"}]}), "{\"contents\"..."),
        ("a withheld resource", &read, json!({"contents": [], "hunter2": "b"}), "error -32001 ..."),
        ("nothing", &("resources/subscribe", json!({"uri": "a"})), json!({}), "{..."),
    ];
    for (which, (method, params), result, expected) in rows {
        for (ifc, runs) in words() {
            let mut session = begin(&policy());
            check(session.request(method, params, &with_ifc(&result, &ifc)), expected);
            expect_write(&mut session, runs, &format!("{which} {ifc}"));
        }
    }
}

/// A list is hidden if its label would make one of the tools on offer uncallable.
#[test]
fn a_list_that_carries_too_much_is_hidden() {
    for (ifc, is_shown) in words() {
        let mut session = begin(&policy());
        let result = with_ifc(&json!({"resources": [{"name": "otter"}]}), &ifc);
        let answer = session.request("resources/list", &json!({}), &result);
        assert_eq!(answer.contains("otter"), is_shown, "{ifc}: {answer}");
        expect_write(&mut session, true, &format!("list {ifc}"));
    }
}

/// Input that a server requests carries at least the label that the server states for the answer.
#[test]
fn requested_input_carries_at_least_the_label_of_its_server() {
    for (ifc, _) in words() {
        let mut session = asking("", false);
        session.client(&call(1, "append", "a", &json!({})));
        let mut question = wants(1);
        question["result"] = with_ifc(&question["result"], &ifc);
        let answer = parsed(&session.server(&question)).remove(0);
        // The policy permits public questions only; they may be untrusted.
        let is_private = ifc.get("confidentiality") == Some(&json!(["ann"])) || ifc == "public";
        assert_eq!(answer["result"]["resultType"] == "input_required", !is_private, "{ifc}: {answer}");
        check(session.call("read", "x"), if is_private { "refused: requirement" } else { "x" });
    }
}

/// If a rule can withhold an answer, the fact that it was shown or withheld depends on its content: in both cases the
/// call's outcome carries the greatest label that answers of this tool may carry.
#[test]
fn an_answer_that_a_rule_can_stop_carries_the_most_of_its_tool() {
    let rule = "raise \"no passwords\" if:\n    (out: ToolOutput)\n    \"hunter2\" in out.content\n";
    assert!(POLICY.contains(rule));
    let private = "label out.content as trusted, private if:\n    (out: ToolOutput) is tool:files/size\n    \"me\" in out.content\n";
    let rows = [
        ("nothing can stop it", POLICY.replace(rule, private), "3", "3", true),
        ("what the statement speaks of", POLICY.replace(rule, private), "me", "me", false),
        ("a rule can stop it", format!("{POLICY}{private}"), "3", "3", false),
        ("a rule stops it", format!("{POLICY}{private}"), "hunter2", "refused: no-answer", false),
        ("all of its answers are public", POLICY.to_owned(), "hunter2", "refused: no-answer", true),
    ];
    for (which, policy, answer, expected, runs) in rows {
        let mut session = begin(&policy);
        check(session.call("size", answer), expected);
        expect_write(&mut session, runs, which);
    }
}

/// Under `default trusted`, an undeclared answer is trusted and an error text is not; a message that answers no request
/// is dropped.
#[test]
fn a_default_does_not_declare_errors() {
    let declared = "label out.content as trusted, public if:\n    (out: ToolOutput) is tool:files/size\n";
    assert!(POLICY.contains(declared));
    let undeclared = format!("{}\ndefault trusted, public\n", POLICY.replace(declared, ""));
    let of_errors = declared.to_owned() + "    out.is_error\n";
    let text = json!([{"type": "text", "text": "otter"}]);
    let answers = [
        ("an answer", json!({"result": {"content": text}}), true, true),
        ("an answer without error", json!({"result": {"content": text, "isError": false}}), true, true),
        ("an error text", json!({"result": {"content": text, "isError": true}}), false, true),
        ("an error of the server", json!({"error": {"code": 1, "message": "otter"}}), false, true),
        ("data of an error", json!({"error": {"code": 1, "message": "", "data": "otter"}}), false, true),
    ];
    for (which, answer, runs, runs_declared) in answers {
        for (policy, runs) in
            [(undeclared.clone(), runs), (format!("{undeclared}{of_errors}"), runs_declared)]
        {
            let mut session = begin(&policy);
            let sent = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "size", "arguments": {}}});
            session.client(&sent);
            let mut answer = answer.clone();
            answer["jsonrpc"] = json!("2.0");
            answer["id"] = json!(7);
            let actions = session.server(&answer);
            assert!(format!("{actions:?}").contains("otter"), "{which}: {actions:?}");
            expect_write(&mut session, runs, which);
            // A second answer under the same ID, or one under an unused ID, answers no request.
            for id in [7, 99] {
                answer["id"] = json!(id);
                let (events, actions) = (session.monitor.trace().len(), session.server(&answer));
                assert_eq!(
                    (shown(&actions), session.monitor.trace().len()),
                    (String::new(), events),
                    "{which}"
                );
            }
            expect_write(&mut session, runs, which);
        }
    }
}
