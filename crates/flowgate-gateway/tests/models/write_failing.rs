//! Tests of failures of the store or the audit log after a model or a server has answered: nothing of that answer
//! reaches the client.
//!
//! The double breaks one of them before it answers. After the repair, the same request succeeds, which shows that
//! nothing else withheld the answer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use flowgate_lm::chat::Completion;
use serde_json::{Value, json};

use crate::approvals::PersonClient;
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::mcp::{self, McpServerDouble, McpTestClient, text};
use crate::persisted_turns::tables;
use crate::servers::{self, PEOPLE, client, home as home_of};
use crate::servers_attacked::{NOWHERE, answer};
use crate::upstream::{UpstreamDouble, calls, says};

/// The log keeps contents, whose file is opened for the first entry.
const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\ncontent-days = 9\n";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WriteFault {
    /// The table of turns is missing.
    Store,
    /// Contents cannot be written.
    Audit,
}

impl WriteFault {
    fn begin(self, home: &GatewayHome) {
        match self {
            Self::Store => drop(tables(home, &["ALTER TABLE turns RENAME TO turns_elsewhere"])),
            Self::Audit => {
                let contents = contents(home.folder());
                let _ = std::fs::remove_file(&contents);
                std::fs::create_dir(contents).unwrap();
            }
        }
    }

    fn end(self, home: &GatewayHome) {
        match self {
            Self::Store => drop(tables(home, &["ALTER TABLE turns_elsewhere RENAME TO turns"])),
            Self::Audit => std::fs::remove_dir(contents(home.folder())).unwrap(),
        }
    }
}

fn contents(folder: &Path) -> PathBuf {
    folder.join("audit.jsonl.content")
}

/// An action that a double runs once, when it receives a request.
type OneTimeWriteAction = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn take(once: &OneTimeWriteAction) {
    let what = once.lock().unwrap().take();
    what.into_iter().for_each(|what| what());
}

fn set(once: &OneTimeWriteAction, what: impl FnOnce() + Send + 'static) {
    *once.lock().unwrap() = Some(Box::new(what));
}

/// Returns a chat in which the model's message is next, with one tool, in every API.
pub(crate) fn chats() -> [(&'static str, Value); 3] {
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let said = json!([{"role": "user", "content": "Read the file."}]);
    [
        (
            "/v1/chat/completions",
            json!({"model": "double", "messages": said, "tools": [{"type": "function", "function": {"name": "read", "parameters": schema}}]}),
        ),
        (
            "/v1/responses",
            json!({"model": "double", "input": said, "store": false, "tools": [{"type": "function", "name": "read", "parameters": schema, "strict": false}]}),
        ),
        (
            "/v1/messages",
            json!({"model": "double", "max_tokens": 100, "messages": said, "tools": [{"name": "read", "input_schema": schema}]}),
        ),
    ]
}

pub(crate) fn ask(gateway: &TestGateway, path: &str, body: &Value, stream: bool) -> (u16, String) {
    let key = format!("Bearer {KEY}");
    let headers = [("authorization", key.as_str()), ("x-flowgate-conversation", "one")];
    let mut body = body.clone();
    body["stream"] = json!(stream);
    gateway.post(path, &headers, &body.to_string())
}

/// In every API, streamed or not: no byte of an answer that could not be stored or recorded is sent, except streamed
/// text that was released before the failure.
#[test]
fn an_unstored_call_of_the_model_is_not_sent() {
    for fault in [WriteFault::Store, WriteFault::Audit] {
        for (path, body) in chats() {
            for stream in [false, true] {
                let at = format!("{fault:?} {path} stream {stream}");
                let once = OneTimeWriteAction::default();
                let asked = Arc::clone(&once);
                let upstream = UpstreamDouble::new(move |_| {
                    take(&asked);
                    let text = "A heron.".to_owned();
                    Completion { text, ..calls(&[("read", r#"{"path": "otter"}"#)]) }
                });
                let text = config(
                    &upstream.url,
                    "chat-completions",
                    "user-messages = \"trust-unmarked-even-if-pasted\"",
                ) + AUDIT;
                let home = Arc::new(GatewayHome::new(&text, POLICY));
                let gateway = home.start();
                let broken = Arc::clone(&home);
                set(&once, move || fault.begin(&broken));
                let (status, told) = ask(&gateway, path, &body, stream);
                assert_eq!(upstream.shown().len(), 1, "{at}: {told}");
                for secret in ["otter", "\"read\"", "tool_use", "function_call", "[DONE]", "message_stop"] {
                    assert!(!told.contains(secret), "{at}: {secret} in {told}");
                }
                let has_begun = stream && status == 200;
                assert!(has_begun || (status == 503 && !told.contains("heron")), "{at}: {status} {told}");
                assert!(told.contains("error"), "{at}: {told}");
                fault.end(&home);
                let (status, told) = ask(&gateway, path, &body, stream);
                assert!(status == 200 && told.contains("otter") && told.contains("heron"), "{at}: {told}");
                gateway.stop();
            }
        }
    }
}

/// A reply without a call has no record in the audit log, but the turn is stored before it is sent, except for streamed
/// text that no rule can stop.
#[test]
fn an_unstored_text_of_the_model_is_not_sent() {
    let rule = "raise \"no passwords\" if:\n    (m: Message)\n    m.role == \"assistant\"\n    \"hunter2\" in m.content\n";
    assert!(POLICY.contains(rule));
    let free = POLICY.replace(rule, "");
    for (path, body) in chats() {
        for (stream, policy, is_released) in
            [(false, POLICY, false), (true, POLICY, false), (false, &free, false), (true, &free, true)]
        {
            let at = format!("{path} {stream} {is_released}");
            let once = OneTimeWriteAction::default();
            let asked = Arc::clone(&once);
            let upstream = UpstreamDouble::new(move |_| {
                take(&asked);
                says("A heron. Or two.")
            });
            let text = config(
                &upstream.url,
                "chat-completions",
                "user-messages = \"trust-unmarked-even-if-pasted\"",
            );
            let home = Arc::new(GatewayHome::new(&text, policy));
            let gateway = home.start();
            let broken = Arc::clone(&home);
            set(&once, move || WriteFault::Store.begin(&broken));
            let (status, told) = ask(&gateway, path, &body, stream);
            assert_eq!(told.contains("heron"), is_released, "{at}: {told}");
            assert!(told.contains("error") && (is_released || status == 503), "{at}: {status} {told}");
            WriteFault::Store.end(&home);
            let (status, told) = ask(&gateway, path, &body, stream);
            assert!(status == 200 && told.contains("heron"), "{at}: {status} {told}");
            gateway.stop();
        }
    }
}

const ASKS: &str = "ask \"reads are confirmed\" if:\n    (call: ToolCall) is tool:read\n";
const WAIT: &str = "[approvals]\nwait-seconds = 0\n";
const UNRECORDED: &str = "the request was not stored, since the audit log cannot be written";

/// Returns the digests of the questions in the audit log.
fn asked(home: &GatewayHome) -> Vec<Value> {
    let records = records(home);
    records
        .iter()
        .filter(|record| record.kind.name() == "asked")
        .map(|record| record.object["digest"].clone())
        .collect()
}

/// A question that cannot be recorded is not asked: the call cannot be approved, the turn fails with a constant
/// message, and the log contains the reason. After the repair, the same request asks the question.
#[test]
fn a_question_that_is_not_recorded_is_not_open() {
    for (path, body) in chats() {
        for stream in [false, true] {
            let at = format!("{path} stream {stream}");
            let once = OneTimeWriteAction::default();
            let broken = Arc::clone(&once);
            let upstream = UpstreamDouble::new(move |_| {
                take(&broken);
                calls(&[("read", r#"{"path": "otter"}"#)])
            });
            let text = config(
                &upstream.url,
                "chat-completions",
                "user-messages = \"trust-unmarked-even-if-pasted\"",
            ) + PEOPLE
                + WAIT
                + AUDIT;
            let home = Arc::new(GatewayHome::new(&text, &(POLICY.to_owned() + ASKS)));
            let (gateway, mut log) = home.start_with_log();
            let ann = PersonClient(&gateway, "ann");
            let breaks = Arc::clone(&home);
            set(&once, move || WriteFault::Audit.begin(&breaks));
            let (status, told) = ask(&gateway, path, &body, stream);
            assert!(status == 503 && told.contains(UNRECORDED), "{at}: {status} {told}");
            assert!(!told.contains("otter"), "{at}: {told}");
            // The deletion of expired content may fail before, and is reported as well.
            let is_of_request = |line: &Value| {
                line["detail"].as_str().is_some_and(|detail| detail.contains("audit.jsonl.content"))
            };
            while !is_of_request(&log.next("failure")) {}
            assert_eq!((ann.open(), upstream.shown().len()), (Vec::new(), 1), "{at}");
            WriteFault::Audit.end(&home);
            let (status, told) = ask(&gateway, path, &body, stream);
            assert!(status == 200 && told.contains("a person has to allow"), "{at}: {status} {told}");
            let [question] = ann.open().try_into().unwrap();
            gateway.stop();
            assert_eq!(asked(&home), [question["digest"].clone()], "{at}");
        }
    }
}

/// The same for a call of an MCP server, and for a tool that waits for approval.
#[test]
fn a_question_about_a_server_that_is_not_recorded_is_not_open() {
    for tools in ["first", "approved"] {
        let (web, bank) = (servers::web(mcp::AnswerForm::Json), servers::bank(mcp::AnswerForm::Json));
        let policy = servers::POLICY.to_owned() + servers::ASKS;
        let mut home = home_of(NOWHERE, [&web, &bank], &format!("{PEOPLE}{WAIT}{AUDIT}"), &policy);
        home.edit("prefix = \"mcp__bank__\"", &format!("prefix = \"mcp__bank__\"\ntools = \"{tools}\""));
        let (gateway, mut log) = home.start_with_log();
        let ann = PersonClient(&gateway, "ann");
        let mut one = client(&gateway, "one");
        let listing = json!({"jsonrpc": "2.0", "id": 50, "method": "tools/list", "params": {}});
        let paying = json!({"jsonrpc": "2.0", "id": 51, "method": "tools/call", "params": {"name": "pay", "arguments": {"to": "bob"}}});
        let message = match tools {
            "first" => {
                one.begin("bank");
                paying
            }
            _ => {
                one.begin("web");
                one.ask("bank", "initialize", &json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}));
                listing
            }
        };
        // A deletion of content makes the log open the file of contents again.
        assert_eq!(ann.post("/api/v1/audit/forget", &json!({"client": "agent"})).0, 200);
        WriteFault::Audit.begin(&home);
        let (status, told) = one.send("bank", &message, &[]);
        let told = Value::from(told).to_string();
        assert!(status == 503 && told.contains(UNRECORDED), "{tools}: {status} {told}");
        assert_eq!((ann.open(), bank.calls()), (Vec::new(), Vec::new()), "{tools}");
        let line = log.next("failure");
        assert!(line["detail"].as_str().unwrap().contains("audit.jsonl.content"), "{tools}: {line}");
        WriteFault::Audit.end(&home);
        let (status, told) = one.send("bank", &message, &[]);
        assert_eq!(status, 200, "{tools}: {told:?}");
        let mut open: Vec<Value> = ann.open().iter().map(|question| question["digest"].clone()).collect();
        assert_eq!(open.len(), if tools == "first" { 1 } else { 2 }, "{tools}: {told:?}");
        gateway.stop();
        let mut asked = asked(&home);
        open.sort_by_key(Value::to_string);
        asked.sort_by_key(Value::to_string);
        assert_eq!(asked, open, "{tools}");
    }
}

/// The policy: notes are private, posts are public, and a server may elicit input from the user.
const NOTES: &str = r#"
lattice secrecy: public < private

label message as public if:
    (message: Message)
    message.role in ["system", "user", "mcp"]
label tool as public if:
    (tool: Tool)
label out.content as private if:
    (out: ToolOutput) is tool:web/note
label out.content as public if:
    (out: ToolOutput) is tool:bank/*

require private if:
    (call: ToolCall) is tool:web/note
require private if:
    (call: ToolCall) is tool:web/elicitation/create
require public else deny if:
    (call: ToolCall) is tool:bank/post_public
"#;

fn listed(message: &Value, name: &str) -> Option<Value> {
    match message["method"].as_str()? {
        "initialize" => Some(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})),
        "tools/list" => Some(json!({"tools": [{"name": name, "inputSchema": {"type": "object"}}]})),
        _ => None,
    }
}

fn call() -> Value {
    let can =
        json!({"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}, "progressToken": "t"});
    json!({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": {"name": "note", "arguments": {}, "_meta": can}})
}

/// The response of a server to a call: its content type and body.
type AnswerBody = fn(&Value) -> (&'static str, String);

fn asking() -> Value {
    json!({"jsonrpc": "2.0", "id": "ask", "method": "elicitation/create", "params": {"message": "an otter?", "requestedSchema": {"type": "object", "properties": {}}}})
}

const FORMS: [(&str, AnswerBody); 6] = [
    ("json", |message| {
        let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": text("an otter")});
        ("application/json", answer.to_string())
    }),
    ("stream", |message| ("text/event-stream", answer(message, &text("an otter")))),
    ("error", |message| {
        let answer =
            json!({"jsonrpc": "2.0", "id": message["id"], "error": {"code": 1, "message": "an otter"}});
        ("application/json", answer.to_string())
    }),
    ("progress before it", |message| {
        let token = message.pointer("/params/_meta/progressToken");
        let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": token, "progress": 4803162}});
        ("text/event-stream", format!("data: {progress}\n\n{}", answer(message, &text("an otter"))))
    }),
    ("a question before it", |message| {
        ("text/event-stream", format!("data: {}\n\n{}", asking(), answer(message, &text("an otter"))))
    }),
    ("a question in it", |message| {
        let question = json!({"method": "elicitation/create", "params": {"message": "an otter?"}});
        let result = json!({"resultType": "input_required", "inputRequests": {"which": question}, "requestState": "s"});
        ("text/event-stream", answer(message, &result))
    }),
];

fn posts(one: &mut McpTestClient<'_>) -> bool {
    one.call("bank", "post_public", &json!({})) == "posted"
}

/// The client receives the same failure for every answer that was not stored or not recorded. A request of the server
/// is recorded; its answer is stored.
#[test]
fn an_unstored_answer_of_a_server_is_not_sent() {
    for fault in [WriteFault::Store, WriteFault::Audit] {
        let mut failure: Option<(u16, String)> = None;
        for (which, form) in FORMS {
            if fault == WriteFault::Audit && !which.contains("question") {
                continue;
            }
            let at = format!("{fault:?} {which}");
            let once = OneTimeWriteAction::default();
            let asked = Arc::clone(&once);
            let web = McpServerDouble::answering(move |message| match listed(message, "note") {
                Some(result) => ("text/event-stream", answer(message, &result)),
                None => {
                    take(&asked);
                    form(message)
                }
            });
            let bank = McpServerDouble::answering(|message| {
                let result = listed(message, "post_public").unwrap_or_else(|| text("posted"));
                ("text/event-stream", answer(message, &result))
            });
            let home = Arc::new(home_of(NOWHERE, [&web, &bank], &format!("{PEOPLE}{AUDIT}"), NOTES));
            let gateway = Arc::new(home.start());
            let mut one = client(&gateway, "one");
            one.begin("web");
            one.begin("bank");
            assert!(posts(&mut one), "{at}");
            let (broken, inner): (_, Arc<TestGateway>) = (Arc::clone(&home), Arc::clone(&gateway));
            set(&once, move || {
                if fault == WriteFault::Audit {
                    // A deletion of content makes the log open the file of contents again.
                    let whose = json!({"client": "agent"});
                    let (status, said) = PersonClient(&inner, "ann").post("/api/v1/audit/forget", &whose);
                    assert_eq!(status, 200, "{said}");
                }
                fault.begin(&broken);
            });
            let (status, told) = one.send("web", &call(), &[]);
            // The path of the home differs between rows.
            let told = Value::from(told).to_string().replace(&home.folder().display().to_string(), "");
            assert!(!told.contains("otter") && !told.contains("4803162"), "{at}: {told}");
            assert!(!told.contains("result") && told.contains("error"), "{at}: {told}");
            assert!(once.lock().unwrap().is_none(), "{at}");
            assert_eq!(*failure.get_or_insert_with(|| (status, told.clone())), (status, told), "{at}");
            fault.end(&home);
            // Nothing was shown, so the label was not raised; the repeated call is answered and raises it.
            assert!(posts(&mut one), "{at}");
            let (status, told) = one.send("web", &call(), &[]);
            assert!(
                status == 200 && Value::from(told.clone()).to_string().contains("otter"),
                "{at}: {told:?}"
            );
            assert!(!posts(&mut one), "{at}");
        }
    }
}
