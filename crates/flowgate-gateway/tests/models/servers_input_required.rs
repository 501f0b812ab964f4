//! Tests of servers that request input in their answers: the call can be continued at any gateway, and only by the
//! client that began it.

use flowgate_lm::chat::Request;
use serde_json::{Value, json};

use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, TestGateway};
use crate::mcp::{AnswerForm, McpServerDouble, McpTestClient, text};
use crate::servers::{PEOPLE, POLICY, client, home, web};
use crate::servers_attacked::{NOWHERE, answer, listed, turn};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const ASKING: &str = r#"
label message as trusted if:
    (message: Message)
    message.role == "mcp"
label out.content as trusted if:
    (out: ToolOutput) is tool:bank/elicitation/create
require trusted if:
    (call: ToolCall) is tool:bank/elicitation/create
"#;

/// Starts a bank that requests the account before it pays, and repeats the response.
fn asking() -> McpServerDouble {
    asking_at("trusted")
}

/// The same, with an answer whose label states this integrity.
fn asking_at(integrity: &'static str) -> McpServerDouble {
    McpServerDouble::answering(move |message| {
        let params = &message["params"];
        let result = match (listed(message), params.get("inputResponses")) {
            (Some(listed), _) => listed,
            (None, None) => json!({"resultType": "input_required", "requestState": "SEALED",
                "inputRequests": {"account": {"method": "elicitation/create", "params": {"message": "Which account?"}}}}),
            (None, Some(said)) => {
                let mut result = text(&format!(
                    "paid from {} {}",
                    said["account"]["content"]["n"], params["requestState"]
                ));
                result["resultType"] = json!("complete");
                result["_meta"] = json!({"ifc": {"integrity": integrity}});
                result
            }
        };
        ("text/event-stream", answer(message, &result))
    })
}

fn pay(id: u64, to: &str, more: &Value) -> Value {
    let can = json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}});
    let mut params = json!({"name": "pay", "arguments": {"to": to}, "_meta": can});
    for (key, value) in more.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
}

/// Requests a payment; returns the parameters with which the client continues the call.
fn asked(gateway: &TestGateway, conversation: &'static str) -> Value {
    let mut one = client(gateway, conversation);
    one.begin("bank");
    let told = one.send("bank", &pay(50, "bob", &json!({})), &[]).1.remove(0);
    let result = &told["result"];
    assert_eq!(result["inputRequests"]["account"]["params"]["message"], "Which account?", "{told}");
    assert!(!told.to_string().contains("SEALED"), "{told}");
    let said = json!({"account": {"action": "accept", "content": {"n": 7}}});
    json!({"requestState": result["requestState"], "inputResponses": said})
}

fn begun(more: &str) -> (GatewayHome, McpServerDouble, McpServerDouble) {
    let (web, bank) = (web(AnswerForm::Json), asking());
    let home = home(NOWHERE, [&web, &bank], more, &format!("{POLICY}{ASKING}"));
    (home, web, bank)
}

/// The call can be continued at another gateway that shares the store, and after a restart.
#[test]
fn a_call_comes_again_to_any_gateway() {
    let (home, _web, bank) = begun("");
    let gateway = home.start();
    let more = asked(&gateway, "one");
    gateway.stop();
    let gateway = home.start();
    let one = client(&gateway, "one");
    let told = one.send("bank", &pay(51, "bob", &more), &[]).1.remove(0);
    assert_eq!(told["result"]["content"][0]["text"], "paid from 7 \"SEALED\"", "{told}");
    let again = one.send("bank", &pay(52, "bob", &more), &[]).1.remove(0);
    assert!(again.to_string().contains("unknown or has expired"), "{again}");
    assert_eq!(bank.calls(), [r#"pay {"to":"bob"}"#, r#"pay {"to":"bob"}"#]);
}

/// The parameters are not valid for another call, another conversation or another server.
#[test]
fn input_parameters_are_valid_for_one_call_only() {
    let (home, web, bank) = begun("");
    let gateway = home.start();
    let more = asked(&gateway, "one");
    client(&gateway, "one").begin("web");
    client(&gateway, "two").begin("bank");
    let before = [web.count(), bank.count()];
    let check = |conversation: &'static str, server: &str, message: &Value| {
        let other = McpTestClient { gateway: &gateway, key: KEY, conversation, next: 0 };
        let told = other.send(server, message, &[]).1.remove(0).to_string();
        assert!(told.contains("unknown or has expired") || told.contains("a call of another tool"), "{told}");
    };
    check("one", "bank", &pay(60, "mallory", &more));
    let mut read = pay(60, "bob", &more);
    read["params"]["name"] = json!("read");
    check("one", "web", &read);
    check("two", "bank", &pay(60, "bob", &more));
    assert_eq!([web.count(), bank.count()], before);
    let told = client(&gateway, "one").send("bank", &pay(61, "bob", &more), &[]).1.remove(0);
    assert!(told.to_string().contains("paid from 7"), "{told}");
}

/// A response that an untrusted page could have influenced is not sent to the bank.
#[test]
fn a_response_carries_what_was_shown_before_it() {
    let (home, _web, bank) = begun("");
    let gateway = home.start();
    let more = asked(&gateway, "one");
    let mut one = client(&gateway, "one");
    one.begin("web");
    one.call("web", "read", &json!({}));
    let told = one.send("bank", &pay(51, "bob", &more), &[]).1.remove(0);
    assert!(
        told.to_string().contains("does not permit sending these `inputResponses` to the server"),
        "{told}"
    );
    assert_eq!(bank.calls().len(), 1);
}

/// A freeze that is ordered during a round stops the next call, and requested input that is frozen is not forwarded.
#[test]
fn a_freeze_stops_a_round() {
    for (what, asks) in [("bank/pay", true), ("bank/elicitation/create", false)] {
        let (home, _web, bank) = begun(PEOPLE);
        let gateway = home.start();
        let more = asks.then(|| asked(&gateway, "one"));
        let ann = PersonClient(&gateway, "ann");
        let freeze = |frozen: bool| {
            let body = json!({"kind": "tool", "what": what, "frozen": frozen});
            assert_eq!(ann.post("/api/v1/freezes", &body).0, 200);
        };
        freeze(true);
        let mut one = client(&gateway, "one");
        one.begin("bank");
        let calls = bank.calls().len();
        let told = one.send("bank", &pay(51, "bob", more.as_ref().unwrap_or(&json!({}))), &[]).1.remove(0);
        // A freeze before the call is sent is reported as such; a freeze of an answer is reported like any failure.
        let says = if asks { "has frozen this" } else { "no answer is shown" };
        assert!(told.to_string().contains(says), "{what}: {told}");
        assert_eq!(bank.calls().len() - calls, usize::from(!asks), "{what}");
        freeze(false);
        let told = one.send("bank", &pay(52, "bob", &json!({})), &[]).1.remove(0);
        assert_eq!(told["result"]["resultType"], "input_required", "{what}: {told}");
    }
}

/// A call that the chat has permitted may need rounds too. The output that the agent sends to its model carries the
/// label of the last answer, not that of the round.
#[test]
fn a_reported_output_carries_the_label_of_the_last_answer() {
    for (integrity, is_shown) in [("untrusted", false), ("trusted", true)] {
        let upstream =
            UpstreamDouble::new(|request: &Request| match text_of(request).contains("Never mind") {
                false => calls(&[("bank__pay", r#"{"to": "bob"}"#)]),
                true => says("Fine."),
            });
        let (web, bank) = (web(AnswerForm::Json), asking_at(integrity));
        let gateway = home(&upstream.url, [&web, &bank], "", &format!("{POLICY}{ASKING}")).start();
        let mut chat = Vec::new();
        client(&gateway, "one").begin("bank");
        let (_, ids) = turn(&gateway, &mut chat, "Pay Bob.");
        let more = asked(&gateway, "one");
        let told = client(&gateway, "one").send("bank", &pay(51, "bob", &more), &[]).1.remove(0);
        let said = told["result"]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains("paid from 7"), "{told}");
        chat.push(json!({"role": "tool", "tool_call_id": ids[0], "content": said}));
        turn(&gateway, &mut chat, "Never mind.");
        let last = upstream.shown().pop().unwrap();
        assert_eq!(last.contains("paid from 7"), is_shown, "{last}");
    }
}
