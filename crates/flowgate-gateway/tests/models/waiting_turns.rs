//! Tests of the machine-readable status of a turn that waits for a person, and of the content of its question by
//! clearance.

use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::{PersonClient, mails};
use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::mcp::AnswerForm;
use crate::servers;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const ASKS: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
const PEOPLE: &str = "[people.bob]\nkey-from = \"bob\"\nrole = \"approver\"\n[approvals]\nwait-seconds = 0\n";

/// Sends one message; returns the headers and the body of the response.
fn ask(gateway: &TestGateway, api: Api, streams: bool, says: &str) -> (Vec<(String, String)>, String) {
    let schema = json!({"type": "object"});
    let chat = json!([{"role": "user", "content": says}]);
    let function = |name: &str| json!({"name": name, "description": name, "parameters": schema});
    let named = ["read", "send"];
    let (path, body) = match api {
        Api::ChatCompletions => {
            let tools: Vec<Value> =
                named.iter().map(|name| json!({"type": "function", "function": function(name)})).collect();
            let body = json!({"model": "double", "stream": streams, "messages": chat, "tools": tools});
            ("/v1/chat/completions", body)
        }
        Api::Responses => {
            let tool = |name: &&str| json!({"type": "function", "name": name, "parameters": schema, "strict": false});
            let tools: Vec<Value> = named.iter().map(tool).collect();
            let body =
                json!({"model": "double", "stream": streams, "store": false, "input": chat, "tools": tools});
            ("/v1/responses", body)
        }
        Api::Messages => {
            let tools: Vec<Value> =
                named.iter().map(|name| json!({"name": name, "input_schema": schema})).collect();
            let body = json!({"model": "double", "stream": streams, "max_tokens": 100, "messages": chat, "tools": tools});
            ("/v1/messages", body)
        }
        Api::GenerateContent => {
            let functions: Vec<Value> = named.iter().map(|name| function(name)).collect();
            let path = match streams {
                true => "/v1beta/models/double:streamGenerateContent?alt=sse",
                false => "/v1beta/models/double:generateContent",
            };
            let contents = json!([{"role": "user", "parts": [{"text": says}]}]);
            (path, json!({"contents": contents, "tools": [{"functionDeclarations": functions}]}))
        }
    };
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let request =
        agent.post(format!("http://{}{path}", gateway.address)).header("content-type", "application/json");
    let mut response =
        request.header("authorization", format!("Bearer {KEY}")).send(body.to_string()).unwrap();
    let headers = response.headers().iter();
    let headers =
        headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned())).collect();
    (headers, response.body_mut().read_to_string().unwrap())
}

/// A waiting turn reports its status in headers and in a field, in every API, streamed or not; other turns do not.
#[test]
fn a_waiting_turn_reports_its_status() {
    for (api, name) in FORMS {
        for streams in [false, true] {
            let upstream = UpstreamDouble::new(|request| match text_of(request).contains("Mail") {
                true => mails(request),
                false => says("Hello."),
            });
            let home = GatewayHome::new(
                &(config(&upstream.url, name, "user-messages = \"trust-unmarked-even-if-pasted\"") + PEOPLE),
                &(POLICY.to_owned() + ASKS),
            );
            let gateway = home.start();
            let at = format!("{api:?} {streams}");
            let header = |headers: &[(String, String)], wanted: &str| {
                headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone())
            };
            let field = |body: &str| -> Value {
                let last = match streams {
                    false => body.to_owned(),
                    true => {
                        let mut events = body.lines().filter_map(|line| line.strip_prefix("data: "));
                        events.rfind(|data| *data != "[DONE]").unwrap().to_owned()
                    }
                };
                serde_json::from_str::<Value>(&last).unwrap()["flowgate"].clone()
            };
            let (headers, body) = ask(&gateway, api, streams, "Mail Bob.");
            let question = PersonClient(&gateway, "bob").first();
            let id = question["id"].as_str().unwrap();
            assert_eq!(header(&headers, "x-flowgate-status").as_deref(), Some("waiting"), "{at}: {body}");
            assert_eq!(header(&headers, "x-flowgate-question").as_deref(), Some(id), "{at}: {body}");
            assert_eq!(field(&body), json!({"status": "waiting", "question": id}), "{at}: {body}");
            let (headers, body) = ask(&gateway, api, streams, "Hello.");
            assert_eq!(header(&headers, "x-flowgate-status"), None, "{at}");
            assert_eq!(field(&body), Value::Null, "{at}: {body}");
        }
    }
}

/// The same for a call of an MCP server.
#[test]
fn a_waiting_server_call_reports_its_status() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let more = servers::PEOPLE.to_owned() + "[approvals]\nwait-seconds = 0\n";
    let policy = servers::POLICY.to_owned() + servers::ASKS;
    let gateway = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &more, &policy).start();
    let mut one = servers::client(&gateway, "one");
    one.begin("bank");
    let call = |name: &str, id: u64| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": {}}});
    let result = |messages: Vec<Value>| messages[0]["result"]["_meta"].clone();
    let meta = result(one.send("bank", &call("pay", 100), &[]).1);
    let id = PersonClient(&gateway, "ann").first()["id"].clone();
    assert_eq!(meta, json!({"flowgate/status": "waiting", "flowgate/question": id}));
    assert_eq!(result(one.send("bank", &call("balance", 101), &[]).1), Value::Null);
}

/// A policy under which messages of users are private, and sending private text needs a decision of a person.
const SECRETS: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, private if:
    (message: Message)
    message.role == "user"
label tool as trusted, public if:
    (tool: Tool)
label out.content as trusted, public if:
    (out: ToolOutput)
require trusted, public if:
    (call: ToolCall) is tool:send
"#;

/// People read what their clearance covers, and can allow only questions that they read in full; they can deny any.
#[test]
fn people_read_what_their_clearance_covers() {
    let mail = |request: &flowgate_lm::chat::Request| match text_of(request).contains("\"send\"") {
        true => says("Done."),
        false => calls(&[("send", r#"{"to":"bob","body":"the code is zebra"}"#)]),
    };
    let person = |name: &str, may_read: &str| {
        format!("[people.{name}]\nkey-from = \"{name}\"\nrole = \"approver\"\n{may_read}\n")
    };
    let people = person("ann", "may-read = \"public\"")
        + &person("bob", "")
        + &person("carl", "may-read = \"private\"")
        + "[approvals]\nwait-seconds = 0\n";
    let upstream = UpstreamDouble::new(mail);
    let text = config(
        &upstream.url,
        "chat-completions",
        "user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"",
    ) + &people;
    let gateway = GatewayHome::new(&text, SECRETS).start();
    let [ann, bob, carl] = ["ann", "bob", "carl"].map(|name| PersonClient(&gateway, name));
    for (decision, who) in [("allow", &bob), ("allow", &carl), ("deny", &ann)] {
        let mut agent = crate::gateway::TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
        agent.says(&format!("Send the code zebra to Bob, {decision} {}.", who.1));
        let question = ann.first();
        assert_eq!((&question["you_may_decide"], &question["you_may_allow"]), (&json!(true), &json!(false)));
        assert_eq!((&question["call"]["tool"], &question["state"]), (&json!("send"), &json!("open")));
        assert!(!question.to_string().contains("zebra"), "{question}");
        assert_eq!(question["call"]["arguments"], "[hidden: your clearance does not cover this]");
        let (_, one) = gateway
            .get(&format!("/api/v1/approvals/{}", question["id"].as_str().unwrap()), "key-of-the-person-ann");
        assert!(!one.contains("zebra"), "{one}");
        for person in [&bob, &carl] {
            let shown = person.first();
            assert_eq!(shown["call"]["arguments"]["body"], "the code is zebra");
            assert!(shown["call"].get("flowgate").is_none() && shown["you_may_allow"] == true, "{shown}");
        }
        let (status, body) = ann.says(&question, "allow");
        assert_eq!((status, body.contains("your clearance does not cover")), (403, true), "{body}");
        let (status, body) = who.says(&question, decision);
        assert_eq!((status, who.1 == "ann" && body.contains("zebra")), (200, false), "{body}");
        agent.says("continue");
        assert_eq!(agent.ran.len(), usize::from(decision == "allow"), "{decision} {}", who.1);
    }
}
