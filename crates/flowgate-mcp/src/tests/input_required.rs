//! Tests of servers that request input in their answers, and of clients that send the call again with their responses.

use flowgate::trace::EventBody;
use serde_json::{Value, json};

use super::{POLICY, ProxySession, check, parsed, shown};
use crate::{ProxyAction, ProxySettings};

/// Permits elicitations of the server, and labels the responses of the person.
const ASKING: &str = r#"
require untrusted, public if:
    (call: ToolCall) is tool:files/elicitation/create
label out.content as trusted, public if:
    (out: ToolOutput) is tool:files/elicitation/create
label out.content as trusted, public if:
    (out: ToolOutput) is tool:files/append
require untrusted, public if:
    (call: ToolCall) is tool:files/append
"#;

/// Returns a session whose policy permits elicitations of the server.
pub(super) fn asking(more: &str, is_interactive: bool) -> ProxySession {
    let policy = format!("{POLICY}{ASKING}{more}");
    let mut session =
        ProxySession::with(ProxySettings { is_interactive, ..ProxySettings::new("files") }, &policy);
    session.list(&["read", "write", "append", "size", "delete", "diary"]);
    session
}

/// Returns a request of a client that can provide input: answers to elicitations, and its roots. `more` has further
/// parameters of the request, such as those that continue a round.
fn request(id: u64, method: &str, params: &Value, more: &Value) -> Value {
    let can = json!({"elicitation": {}, "roots": {}});
    let mut params = params.clone();
    params["_meta"] = json!({"io.modelcontextprotocol/clientCapabilities": can});
    for (key, value) in more.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

pub(super) fn call(id: u64, name: &str, path: &str, more: &Value) -> Value {
    request(id, "tools/call", &json!({"name": name, "arguments": {"path": path}}), more)
}

/// Returns an answer of a server that requests input.
pub(super) fn wants(id: u64) -> Value {
    let question = json!({"method": "elicitation/create", "params": {"message": "Which?"}});
    json!({"jsonrpc": "2.0", "id": id, "result": {"resultType": "input_required", "inputRequests": {"which": question}, "requestState": "SEALED"}})
}

fn done(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": "done"}]}})
}

/// Calls a tool whose server requests input; returns the parameters with which the client continues the round.
fn asked(session: &mut ProxySession, id: u64, name: &str, path: &str) -> Value {
    let sent = session.client(&call(id, name, path, &json!({})));
    assert!(matches!(sent[..], [ProxyAction::Server(_)]), "{sent:?}");
    let answer = parsed(&session.server(&wants(id))).remove(0);
    assert!(!answer.to_string().contains("SEALED"), "{answer}");
    let result = &answer["result"];
    assert_eq!(result["inputRequests"]["which"]["params"]["message"], "Which?", "{answer}");
    json!({"requestState": result["requestState"], "inputResponses": {"which": {"action": "accept", "content": {"n": 1}}}})
}

#[test]
fn a_call_is_repeated_with_the_requested_input() {
    for (method, params) in [
        ("tools/call", json!({"name": "append", "arguments": {"path": "a"}})),
        ("resources/read", json!({"uri": "a"})),
    ] {
        let mut session = asking("", false);
        let first = parsed(&session.client(&request(1, method, &params, &json!({})))).remove(0);
        let answer = parsed(&session.server(&wants(1))).remove(0);
        assert_eq!(answer["result"]["resultType"], "input_required", "{answer}");
        let said = json!({"which": {"action": "accept", "content": {"n": 1}}});
        let more = json!({"requestState": answer["result"]["requestState"], "inputResponses": said});
        let mut again = parsed(&session.client(&request(2, method, &params, &more))).remove(0);
        // The parameters are the same, with the client's responses and the server's state added.
        assert_eq!(again["params"]["inputResponses"], said, "{again}");
        assert_eq!(again["params"]["requestState"], "SEALED", "{again}");
        let sent = again["params"].as_object_mut().unwrap();
        sent.remove("inputResponses");
        sent.remove("requestState");
        assert_eq!(again["params"], first["params"]);
        // The server may request input again before its final result.
        let answer = parsed(&session.server(&wants(2))).remove(0);
        let more = json!({"requestState": answer["result"]["requestState"], "inputResponses": said});
        assert!(matches!(session.client(&request(3, method, &params, &more))[..], [ProxyAction::Server(_)]));
        assert!(shown(&session.server(&done(3))).contains("done"));
    }
}

#[test]
fn several_inputs_are_answered_together() {
    let mut session = asking("", false);
    session.client(&call(1, "append", "a", &json!({})));
    let question = |text: &str| json!({"method": "elicitation/create", "params": {"message": text}});
    let inputs = json!({"which": question("Which?"), "when": question("When?")});
    let wants = json!({"jsonrpc": "2.0", "id": 1, "result": {"resultType": "input_required", "inputRequests": inputs, "requestState": "SEALED"}});
    let answer = parsed(&session.server(&wants)).remove(0);
    let accepted = |text: &str| json!({"action": "accept", "content": {"said": text}});
    let more = json!({
        "requestState": answer["result"]["requestState"],
        "inputResponses": {"which": accepted("this one"), "when": accepted("now")},
    });
    let repeated = parsed(&session.client(&call(2, "append", "a", &more))).remove(0);
    assert_eq!(repeated["params"]["inputResponses"], more["inputResponses"], "{repeated}");
    assert_eq!(repeated["params"]["requestState"], "SEALED");
}

/// The client's reference and responses are valid for one call, in one conversation, once.
#[test]
fn a_request_state_is_valid_once_for_its_call() {
    let refused = |name: &str, path: &str, change: &dyn Fn(&mut Value)| {
        let mut session = asking("", false);
        let right = asked(&mut session, 1, "append", "a");
        let mut more = right.clone();
        change(&mut more);
        check(shown(&session.client(&call(2, name, path, &more))), "refused: malformed");
        // A rejected attempt does not invalidate the round.
        assert!(matches!(session.client(&call(3, "append", "a", &right))[..], [ProxyAction::Server(_)]));
    };
    refused("append", "b", &|_| {});
    refused("read", "a", &|_| {});
    for state in [json!("SEALED"), json!("flowgate-999"), json!(2), Value::Null] {
        refused("append", "a", &|more| more["requestState"] = state.clone());
    }
    refused("append", "a", &|more| drop(more.as_object_mut().unwrap().remove("requestState")));
    refused("append", "a", &|more| more["inputResponses"] = json!([1]));
    refused("append", "a", &|more| more["inputResponses"]["other"] = json!({}));
    refused("append", "a", &|more| more["task"] = json!({"ttl": 1}));

    let mut session = asking("", false);
    let more = asked(&mut session, 1, "append", "a");
    let mut other = asking("", false);
    check(shown(&other.client(&call(1, "append", "a", &more))), "refused: malformed");
    assert!(matches!(session.client(&call(2, "append", "a", &more))[..], [ProxyAction::Server(_)]));
    check(shown(&session.client(&call(3, "append", "a", &more))), "refused: malformed");
    // The number of kept rounds is bounded; the oldest are dropped.
    let mut session = asking("", false);
    let first = asked(&mut session, 1, "append", "a");
    let last = (2..80).map(|id| asked(&mut session, id, "append", "a")).last().unwrap();
    check(shown(&session.client(&call(90, "append", "a", &first))), "refused: malformed");
    assert!(matches!(session.client(&call(91, "append", "a", &last))[..], [ProxyAction::Server(_)]));
}

/// Every influence on the client's responses must be permitted to flow to the server: the server's question, everything
/// that the client was shown in the meantime, and the responses themselves.
#[test]
fn responses_flow_to_the_server_only_if_every_influence_does() {
    let label = |label: &str, what: &str| format!("label {label}, public if:\n    {what}\n");
    let (mcp, answer) = (
        "(message: Message)\n    message.role == \"mcp\"",
        "(out: ToolOutput) is tool:files/elicitation/create",
    );
    let (untrusted, said) = (label("message as untrusted", mcp), label("out.content as trusted", answer));
    let trusted = label("message as trusted", mcp);
    let private = said.replace("public", "private");
    let whole = format!("{POLICY}{ASKING}");
    assert!(whole.contains(&untrusted) && whole.contains(&said));
    let again = |asks: &str, says: &str, name: &str, meanwhile: &[&str]| {
        let policy = whole.replace(&untrusted, asks).replace(&said, says);
        let mut session = ProxySession::with(ProxySettings::new("files"), &policy);
        session.list(&["read", "write", "append", "size", "diary"]);
        let more = asked(&mut session, 1, name, "a");
        for tool in meanwhile {
            assert!(session.call(tool, "dear diary").contains("diary"));
        }
        shown(&session.client(&call(2, name, "a", &more)))
    };
    for (asks, says, name, meanwhile, expected) in [
        (&trusted, &*said, "write", &[][..], "tools/call ..."),
        // The question is untrusted, so the response to it is as well.
        (&untrusted, &said, "write", &[], "refused: requirement"),
        // This policy does not label the response.
        (&trusted, "", "write", &[], "refused: malformed"),
        (&trusted, &private, "append", &[], "refused: malformed"),
        // The client was shown an answer after the question.
        (&trusted, &said, "append", &["diary"], "refused: malformed"),
        (&trusted, &said, "write", &["read"], "refused: requirement"),
        (&trusted, &said, "append", &["read"], "tools/call ..."),
        // The tool may receive anything, but the elicitation may not.
        (&trusted, &said, "size", &["diary"], "refused: malformed"),
    ] {
        check(again(asks, says, name, meanwhile), expected);
    }
}

/// An answer is refused as a whole if it requests undeclared input, input that the client does not support, or more
/// input than the limits permit.
#[test]
fn a_server_asks_for_nothing_more_than_it_may() {
    let more = "raise \"no passwords\" if:\n    (message: Message)\n    message.method == \"elicitation/create\"\n    \"hunter2\" in message.content.message\n";
    let answer = |can: Value, result: Value| {
        let mut session = asking(more, false);
        let meta = json!({"io.modelcontextprotocol/clientCapabilities": can});
        session.client(&call(1, "append", "a", &json!({"_meta": meta})));
        let out = session.server(&json!({"jsonrpc": "2.0", "id": 1, "result": result}));
        let shown = shown(&out);
        // The client may call again after the refusal.
        let again = session.client(&call(2, "append", "a", &json!({})));
        assert!(matches!(again[..], [ProxyAction::Server(_)]), "{again:?}");
        shown
    };
    let can = || json!({"elicitation": {}, "roots": {}, "sampling": {}});
    let ask = |method: &str, params: Value| json!({"resultType": "input_required", "inputRequests": {"a": {"method": method, "params": params}}});
    let question = json!({"method": "elicitation/create", "params": {"message": "Which?"}});
    let many = |count: usize| {
        let asked: serde_json::Map<String, Value> =
            (0..count).map(|key| (key.to_string(), question.clone())).collect();
        json!({"resultType": "input_required", "inputRequests": asked})
    };
    let state = |length: usize| json!({"resultType": "input_required", "requestState": "x".repeat(length)});
    check(
        answer(can(), ask("elicitation/create", json!({"message": "Which?"}))),
        "{\"resultType\":\"input_required\",...",
    );
    check(answer(json!({"roots": {}}), ask("elicitation/create", json!({}))), "refused: no-answer");
    check(answer(json!(1), ask("elicitation/create", json!({}))), "refused: no-answer");
    check(answer(can(), ask("sampling/createMessage", json!({}))), "refused: no-answer");
    check(answer(can(), ask("roots/list", json!({}))), "{\"resultType\":\"input_required\",...");
    check(answer(can(), ask("tools/call", json!({}))), "refused: no-answer");
    check(answer(can(), ask("elicitation/create", json!([]))), "refused: no-answer");
    check(answer(can(), ask("elicitation/create", json!({"message": "hunter2"}))), "refused: no-answer");
    check(answer(can(), many(16)), "{\"resultType\":\"input_required\",...");
    check(answer(can(), many(17)), "refused: no-answer");
    check(
        answer(can(), state(64 << 10)),
        "{\"resultType\":\"input_required\",\"requestState\":\"flowgate-...",
    );
    check(answer(can(), state((64 << 10) + 1)), "refused: no-answer");
    check(answer(can(), json!({"resultType": "input_required"})), "refused: no-answer");
    check(answer(can(), json!({"resultType": "input_required", "requestState": 3})), "refused: no-answer");
    check(answer(can(), json!({"resultType": "task", "content": []})), "refused: no-answer");
}

/// The number of rounds of one call is bounded.
#[test]
fn a_call_comes_again_so_often_and_no_more() {
    let mut session = asking("", false);
    let mut more = asked(&mut session, 1, "append", "a");
    for id in 2..16 {
        session.client(&call(id, "append", "a", &more));
        more["requestState"] =
            parsed(&session.server(&wants(id))).remove(0)["result"]["requestState"].clone();
    }
    assert!(matches!(session.client(&call(16, "append", "a", &more))[..], [ProxyAction::Server(_)]));
    check(shown(&session.server(&wants(16))), "refused: no-answer");
}

/// A person who is asked about a round sees the responses to the server, and the approval covers only these.
#[test]
fn a_person_sees_the_responses_to_the_server() {
    let mut session = asking("ask \"deletions\" if:\n    (call: ToolCall) is tool:files/append\n", true);
    let yes = |answer: &Value| {
        let name = answer["result"]["requestState"].as_str().unwrap().to_owned();
        json!({"requestState": name, "inputResponses": {name: {"action": "accept"}}})
    };
    let question = parsed(&session.client(&call(1, "append", "a", &json!({})))).remove(0);
    assert!(matches!(session.client(&call(2, "append", "a", &yes(&question)))[..], [ProxyAction::Server(_)]));
    let answer = parsed(&session.server(&wants(2))).remove(0);
    let said = json!({"which": {"action": "accept", "content": {"n": 1}}});
    let more = json!({"requestState": answer["result"]["requestState"], "inputResponses": said});
    let question = parsed(&session.client(&call(3, "append", "a", &more))).remove(0);
    let shown_to = question["result"]["inputRequests"].to_string();
    assert!(shown_to.contains("inputResponses") && !shown_to.contains("SEALED"), "{shown_to}");
    // The question is repeated until the call is sent; the responses cannot be changed.
    let other =
        json!({"requestState": more["requestState"], "inputResponses": {"which": {"action": "decline"}}});
    check(shown(&session.client(&call(4, "append", "a", &other))), "refused: malformed");
    let sent = parsed(&session.client(&call(5, "append", "a", &yes(&question)))).remove(0);
    let params = &sent["params"];
    assert_eq!((&params["inputResponses"], &params["requestState"]), (&said, &json!("SEALED")), "{sent}");
    check(shown(&session.client(&call(6, "append", "a", &more))), "refused: malformed");
}

/// Returns the label of the last event that `is_it` matches.
fn last_label(session: &ProxySession, is_it: impl Fn(&EventBody) -> bool) -> Vec<String> {
    let event = session.monitor.trace().events().iter().rfind(|event| is_it(&event.body)).unwrap();
    session.monitor.describe(&event.label)
}

/// Each requested input is a message with the label of the answer; the client's response carries the labels of
/// everything that the client was shown up to the response.
#[test]
fn rounds_carry_the_labels_of_everything_shown_before() {
    let is_asked = |body: &EventBody| matches!(body, EventBody::Message(message) if message.role == "mcp");
    let is_said = |body: &EventBody| matches!(body, EventBody::Output(output) if output.content.pointer("/content/n") == Some(&json!(1)));
    for (name, secrecy) in [("append", "public"), ("diary", "private")] {
        let mut session = asking("", false);
        session.client(&call(1, name, "a", &json!({})));
        session.server(&wants(1));
        assert_eq!(last_label(&session, is_asked), ["untrusted", secrecy], "{name}");
    }
    for (meanwhile, secrecy) in [("size", "public"), ("diary", "private")] {
        let mut session = asking("", false);
        let more = asked(&mut session, 1, "append", "a");
        assert!(session.call(meanwhile, "dear diary").contains("diary"));
        session.client(&call(2, "append", "a", &more));
        assert_eq!(last_label(&session, is_said), ["untrusted", secrecy], "{meanwhile}");
    }
}
