//! Tests of questions to the person at the client: in a request, or in the answer to the call, which the client then
//! sends again.

use serde_json::{Value, json};

use flowgate_guard::approve::QuestionBudget;

use super::{POLICY, ProxySession, check, parsed, shown};
use crate::{ProxyAction, ProxySettings};

#[test]
fn a_person_is_asked_if_there_is_one() {
    let ask = |is_interactive: bool, answer: Value| {
        let mut session =
            ProxySession::with(ProxySettings { is_interactive, ..ProxySettings::new("files") }, POLICY);
        let params = json!({"capabilities": {"elicitation": {}}});
        session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
        session.server(&json!({"jsonrpc": "2.0", "id": 1, "result": {"capabilities": {}}}));
        session.list(&["read", "delete"]);
        session.call("read", "obey");
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "delete", "arguments": {"path": "a"}}});
        let out = session.client(&call);
        let question = parsed(&out).remove(0);
        if question.get("method").is_none() {
            return shown(&out);
        }
        // The server has not received the call, so it cannot answer it.
        assert!(matches!(
            session.server(&json!({"jsonrpc": "2.0", "id": 2, "result": {"content": []}}))[..],
            [ProxyAction::Note(_)]
        ));
        let said = session.client(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
        assert!(matches!(
            session.client(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}))[..],
            [ProxyAction::Note(_)]
        ));
        shown(&said)
    };
    check(ask(true, json!({"action": "accept"})), r#"tools/call {"name":"delete","arguments":{"path":"a"}}"#);
    check(ask(true, json!({"action": "decline"})), "refused: requirement");
    check(ask(true, json!({"action": true})), "refused: requirement");
    check(ask(false, json!({"action": "accept"})), "refused: requirement");
}

/// Returns a session with a client of the revision without sessions, which declares its capabilities in each
/// request.
fn retrying(is_interactive: bool) -> ProxySession {
    let mut session =
        ProxySession::with(ProxySettings { is_interactive, ..ProxySettings::new("files") }, POLICY);
    session.list(&["read", "delete"]);
    session.call("read", "obey");
    session
}

/// Returns a call of the tool `delete` by a client that can be asked. `more` has further parameters of the request.
fn delete(id: u64, path: &str, more: &Value) -> Value {
    let meta = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let mut params = json!({"name": "delete", "arguments": {"path": path}, "_meta": meta});
    for (key, value) in more.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

#[test]
fn a_call_is_repeated_with_the_decision_of_the_person() {
    let ask = |action: Value, path: &str, state: Option<&str>| {
        let mut session = retrying(true);
        let asked = parsed(&session.client(&delete(5, "a", &json!({})))).remove(0);
        let result = &asked["result"];
        assert_eq!((&asked["id"], &result["resultType"]), (&json!(5), &json!("input_required")), "{asked}");
        let name = result["requestState"].as_str().unwrap();
        let question = &result["inputRequests"][name];
        assert_eq!(question["method"], "elicitation/create", "{asked}");
        assert!(question["params"]["message"].as_str().unwrap().contains("Tool: files/delete"), "{asked}");
        let more =
            json!({"requestState": state.unwrap_or(name), "inputResponses": {name: {"action": action}}});
        let said = shown(&session.client(&delete(6, path, &more)));
        // A question can be answered only once.
        let again = shown(&session.client(&delete(7, "a", &more)));
        assert!(state.is_some() || again.contains("malformed"), "{again}");
        said
    };
    let sent = r#"tools/call {"name":"delete","_meta":{"io.modelcontextprotocol/clientCapabilities":{}},"arguments":{"path":"a"}}"#;
    check(ask(json!("accept"), "a", None), sent);
    check(ask(json!("decline"), "a", None), "refused: requirement");
    check(ask(json!(true), "a", None), "refused: requirement");
    check(ask(json!("accept"), "b", None), "refused: malformed");
    check(ask(json!("accept"), "a", Some("flowgate-999")), "refused: malformed");
}

/// A question says where the values come from that untrusted text may have chosen.
#[test]
fn a_question_states_the_evidence() {
    let mut session = retrying(true);
    let asked = parsed(&session.client(&delete(5, "old-notes.txt", &json!({})))).remove(0);
    let name = asked["result"]["requestState"].as_str().unwrap();
    let message = asked["result"]["inputRequests"][name]["params"]["message"].as_str().unwrap();
    let known = "What is known:\n* \"old-notes.txt\" is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show.";
    assert!(message.ends_with(known), "{message}");
}

/// After refusals in a row, or as many questions as a session may ask, the person is not asked any more: the agent gets
/// a refusal, and the operator a note. An approval ends the row.
#[test]
fn a_flood_of_questions_gets_refusals() {
    let may_ask = |actions: &[&str], questions: QuestionBudget| {
        let settings = ProxySettings { is_interactive: true, questions, ..ProxySettings::new("files") };
        let mut session = ProxySession::with(settings, POLICY);
        session.list(&["read", "delete"]);
        session.call("read", "obey");
        let mut id = 5;
        for action in actions {
            let asked = parsed(&session.client(&delete(id, "a", &json!({})))).remove(0);
            let name = asked["result"]["requestState"].as_str().unwrap_or_else(|| panic!("{asked}"));
            let more = json!({"requestState": name, "inputResponses": {name: {"action": action}}});
            session.client(&delete(id + 1, "a", &more));
            session.server(&json!({"jsonrpc": "2.0", "id": id + 1, "result": {"content": []}}));
            id += 2;
        }
        let said = session.client(&delete(id, "a", &json!({})));
        let is_noted = said
            .iter()
            .any(|action| matches!(action, ProxyAction::Note(note) if note.contains("not asked any more")));
        let says = format!("{said:?}");
        assert_eq!(
            is_noted,
            says.contains("no person was asked, because there were too many questions"),
            "{says}"
        );
        assert_ne!(is_noted, says.contains("input_required"), "{says}");
        !is_noted
    };
    let budget = |questions, refusals_in_row| QuestionBudget { questions, refusals_in_row };
    assert!(may_ask(&["decline", "decline"], budget(9, 3)));
    assert!(!may_ask(&["decline", "cancel", "decline"], budget(9, 3)));
    assert!(may_ask(&["decline", "decline", "accept", "decline"], budget(9, 3)));
    assert!(!may_ask(&["accept", "accept"], budget(2, 3)));
    let default = ProxySettings::new("files").questions;
    assert!(may_ask(&["decline"; 4], default));
    assert!(!may_ask(&["decline"; 5], default));
}

/// Returns a session with a client that is asked in separate requests, and not in the answers to its calls.
fn eliciting(settings: ProxySettings) -> ProxySession {
    let mut session = ProxySession::with(settings, POLICY);
    let params = json!({"capabilities": {"elicitation": {}}});
    session.client(&json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}));
    session.server(&json!({"jsonrpc": "2.0", "id": 1, "result": {"capabilities": {}}}));
    session.list(&["read", "delete"]);
    session.call("read", "obey");
    session
}

fn plain_delete(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": "delete", "arguments": {"path": "a"}}})
}

const FLOOD: &str = "no person was asked, because there were too many questions";

/// A question whose call is cancelled was shown, and counts as refused.
#[test]
fn cancelled_questions_count_as_refused() {
    let mut session = eliciting(ProxySettings { is_interactive: true, ..ProxySettings::new("files") });
    for id in 10..15 {
        assert_eq!(
            parsed(&session.client(&plain_delete(id))).remove(0)["method"],
            "elicitation/create",
            "{id}"
        );
        let params = json!({"requestId": id});
        session.client(&json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}));
    }
    let said = format!("{:?}", session.client(&plain_delete(15)));
    assert!(said.contains(FLOOD), "{said}");
}

/// Only a limited number of questions about parallel calls can be open. An answer makes room for another question.
#[test]
fn only_so_many_questions_are_open() {
    let mut session = eliciting(ProxySettings { is_interactive: true, ..ProxySettings::new("files") });
    let asked: Vec<Value> =
        (10..30).map(|id| parsed(&session.client(&plain_delete(id))).remove(0)["id"].clone()).collect();
    let said = format!("{:?}", session.client(&plain_delete(30)));
    assert!(said.contains(FLOOD), "{said}");
    let answer = json!({"jsonrpc": "2.0", "id": asked[0], "result": {"action": "decline"}});
    session.client(&answer);
    assert_eq!(parsed(&session.client(&plain_delete(31))).remove(0)["method"], "elicitation/create");
}

/// Proxies whose clients belong to one person can share a count.
#[test]
fn a_count_can_be_shared() {
    let settings = || ProxySettings { is_interactive: true, ..ProxySettings::new("files") };
    let (mut one, mut two) = (eliciting(settings()), eliciting(settings()));
    for id in 10..15 {
        let question = parsed(&one.client(&plain_delete(id))).remove(0);
        one.client(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}));
    }
    two.proxy.set_question_count(one.proxy.question_count());
    let said = format!("{:?}", two.client(&plain_delete(10)));
    assert!(said.contains(FLOOD), "{said}");
}

/// The client cannot answer a question that people elsewhere are asked.
#[test]
fn a_client_does_not_answer_for_people_elsewhere() {
    let mut session = eliciting(ProxySettings { asks_elsewhere: true, ..ProxySettings::new("files") });
    let asked = session.client(&plain_delete(10));
    let [ProxyAction::Ask(name)] = asked.as_slice() else { panic!("{asked:?}") };
    let said = session.client(&json!({"jsonrpc": "2.0", "id": name, "result": {"action": "accept"}}));
    assert!(matches!(said.as_slice(), [ProxyAction::Note(_)]), "{said:?}");
    assert!(session.proxy.question(name).is_some(), "it is still open");
}

#[test]
fn a_client_without_a_person_is_not_asked() {
    let mut session = retrying(false);
    check(shown(&session.client(&delete(5, "a", &json!({})))), "refused: requirement");
    // The oldest unanswered questions are dropped.
    let mut session = retrying(true);
    let first = parsed(&session.client(&delete(5, "a", &json!({})))).remove(0);
    for id in 6..80 {
        session.client(&delete(id, "a", &json!({})));
    }
    let name = first["result"]["requestState"].as_str().unwrap();
    let more = json!({"requestState": name, "inputResponses": {name: {"action": "accept"}}});
    check(shown(&session.client(&delete(90, "a", &more))), "refused: malformed");
}
