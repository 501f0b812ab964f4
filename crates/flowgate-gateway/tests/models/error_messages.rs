//! Tests of the error messages to agents and people when a part of the operator's system fails: a few constants,
//! without paths, addresses, SQL, or messages of the system, the database or a server. The details are in the log.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, POLICY, TestGateway, config};
use crate::mcp::AnswerForm;
use crate::persisted_turns::tables;
use crate::servers::{self, PEOPLE, bank, client, web};
use crate::upstream::{UpstreamDouble, calls, says};
use crate::{asking, requests};

const TRUSTED: &str = "user-messages = \"trust-unmarked-even-if-pasted\"";
const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\ncontent-days = 9\n";

const STORE: &str = "the gateway's database failed, and the request was not stored; a call that was already sent to an MCP server may have run: check that before you send it again; the log of the gateway has the reason";
const UNRECORDED: &str = "the request was not stored, since the audit log cannot be written; a call that was \
    already sent to an MCP server may have run: check that before you send it again; the log of the gateway \
    has the reason";
const MODEL: &str = "the model's server sent no answer that can be forwarded: try again later, or ask the operator of \
    the gateway; the log of the gateway has the reason";
const SERVER: &str =
    "no answer is shown: the server sent none that can be forwarded, or the policy withholds it";

/// Texts that no error message may contain, in addition to the folder of the gateway.
const SECRETS: [&str; 10] = [
    "os error",
    "Is a directory",
    "No such",
    "flowgate.db",
    "audit.jsonl",
    "SQL",
    "no such table",
    "code 1",
    "127.0.0.1",
    "Connection refused",
];

/// Renames tables, so that every request fails in the store.
fn break_store(home: &GatewayHome) {
    let sql = &[
        "ALTER TABLE turns RENAME TO turns_elsewhere",
        "ALTER TABLE questions RENAME TO questions_elsewhere",
        "ALTER TABLE freezes RENAME TO freezes_elsewhere",
        "ALTER TABLE seen RENAME TO seen_elsewhere",
    ];
    tables(home, sql);
}

/// Replaces the file of contents by a folder, so that writing to it fails.
fn break_audit(home: &GatewayHome) {
    let contents = home.folder().join("audit.jsonl.content");
    let _ = std::fs::remove_file(&contents);
    std::fs::create_dir(contents).unwrap();
}

/// Returns the error messages in a response, wherever they are.
fn told(body: &str) -> Vec<String> {
    let events = body.lines().filter_map(|line| line.strip_prefix("data: "));
    let mut all: Vec<Value> = events.filter_map(|data| serde_json::from_str(data).ok()).collect();
    all.extend(serde_json::from_str::<Value>(body).ok());
    let mut found = Vec::new();
    all.iter().for_each(|one| collect(one, &mut found));
    found
}

fn collect(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            let own = ["message", "detail", "text"].iter().filter_map(|name| object.get(*name)?.as_str());
            found.extend(own.map(str::to_owned));
            object.values().for_each(|inner| collect(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| collect(inner, found)),
        _ => {}
    }
}

fn check(at: &str, home: &GatewayHome, body: &str, expected: &str) {
    let folder = home.folder().display().to_string();
    for secret in SECRETS.iter().copied().chain([folder.as_str()]) {
        assert!(!body.contains(secret), "{at}: {secret} in {body}");
    }
    let told = told(body);
    assert!(!told.is_empty(), "{at}: {body}");
    assert!(told.iter().all(|one| one == expected), "{at}: {told:?}");
}

/// In every API, streamed or not, before the model's request and after its answer.
#[test]
fn failures_of_the_store_and_the_audit_log_have_constant_messages() {
    type BreakAction = fn(&GatewayHome);
    let rows: [(&str, BreakAction, bool, &str); 3] = [
        ("store, before", break_store, false, STORE),
        ("store, after", break_store, true, STORE),
        ("audit log, after", break_audit, true, UNRECORDED),
    ];
    let key = format!("Bearer {KEY}");
    for (which, breaks, is_late, expected) in rows {
        for (path, body) in requests("x") {
            for streams in [false, true] {
                let at = format!("{which} {path} {streams}");
                let home: Arc<std::sync::Mutex<Option<Arc<GatewayHome>>>> = Arc::default();
                let broken = Arc::clone(&home);
                let upstream = UpstreamDouble::new(move |_| {
                    if let Some(home) = broken.lock().unwrap().take() {
                        breaks(&home);
                    }
                    calls(&[("send", r#"{"to": "bob", "body": "Hello."}"#)])
                });
                let text = config(&upstream.url, "chat-completions", TRUSTED) + AUDIT;
                let one = Arc::new(GatewayHome::new(&text, POLICY));
                let (gateway, lines) = one.start_with_log();
                match is_late {
                    true => *home.lock().unwrap() = Some(Arc::clone(&one)),
                    false => breaks(&one),
                }
                let (path, body) = asking(path, &body, streams);
                let (status, answer) = gateway.post(&path, &[("authorization", &key)], &body.to_string());
                assert!(status == 503 || streams, "{at}: {status} {answer}");
                check(&at, &one, &answer, expected);
                gateway.stop();
                let log = lines.rest();
                assert!(log.contains("\"detail\""), "{at}: {log}");
                let names_file = log.contains("audit.jsonl.content");
                assert_eq!(names_file, expected == UNRECORDED, "{at}: {log}");
            }
        }
    }
}

/// The same for calls of MCP servers, and for servers that cannot be reached.
#[test]
fn failures_of_mcp_servers_have_constant_messages() {
    let (web, bank) = (web(AnswerForm::Json), bank(AnswerForm::Stream));
    let begin = |breaks: &dyn Fn(&GatewayHome, &TestGateway)| {
        let home = servers::home(
            "http://127.0.0.1:1/v1",
            [&web, &bank],
            &format!("{PEOPLE}{AUDIT}"),
            servers::POLICY,
        );
        let (gateway, lines) = home.start_with_log();
        let mut one = client(&gateway, "one");
        one.begin("web");
        breaks(&home, &gateway);
        let call = json!({"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "read", "arguments": {}}});
        let (status, heard) = one.send("web", &call, &[]);
        gateway.stop();
        (home, status, Value::from(heard).to_string(), lines.rest())
    };
    let (home, status, heard, log) = begin(&|home, _| break_store(home));
    assert_eq!(status, 503, "{heard}");
    check("store", &home, &heard, STORE);
    assert!(log.contains("\"detail\""), "{log}");
    let (home, status, heard, log) = begin(&|home, gateway| {
        // A deletion of content makes the log open the file of contents again.
        PersonClient(gateway, "ann").post("/api/v1/audit/forget", &json!({"client": "agent"}));
        break_audit(home);
    });
    assert_eq!(status, 503, "{heard}");
    check("audit log", &home, &heard, UNRECORDED);
    assert!(log.contains("audit.jsonl.content"), "{log}");

    let mut home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], "", servers::POLICY);
    home.edit(&web.url, "http://127.0.0.1:9/mcp");
    let (gateway, lines) = home.start_with_log();
    let hello = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let (_, heard) = client(&gateway, "one").send("web", &hello, &[]);
    check("server", &home, &Value::from(heard).to_string(), SERVER);
    gateway.stop();
    assert!(lines.rest().contains("the MCP server cannot be reached"));
}

/// An upstream that is unreachable, and one whose errors contain internals.
#[test]
fn failures_of_model_servers_have_a_constant_message() {
    let key = format!("Bearer {KEY}");
    let home = GatewayHome::new(&config("http://127.0.0.1:9/v1", "chat-completions", TRUSTED), POLICY);
    let gateway = home.start();
    for (path, body) in requests("x") {
        for streams in [false, true] {
            let (path, body) = asking(path, &body, streams);
            let (status, answer) = gateway.post(&path, &[("authorization", &key)], &body.to_string());
            assert_eq!(status, 502, "{path} {streams}: {answer}");
            check(&path, &home, &answer, MODEL);
        }
    }
}

/// People receive the same constants as agents.
#[test]
fn people_receive_constant_failure_messages() {
    let upstream = UpstreamDouble::new(|_| says("Done."));
    let text = config(&upstream.url, "chat-completions", TRUSTED) + PEOPLE + AUDIT;
    let routes: [(&str, Option<Value>); 6] = [
        ("/api/v1/approvals", None),
        ("/api/v1/approvals/none", None),
        ("/api/v1/approvals/none", Some(json!({"decision": "allow", "digest": "d"}))),
        ("/api/v1/freezes", None),
        ("/api/v1/quotations/clear", Some(json!({"client": "agent"}))),
        ("/api/v1/audit/forget", Some(json!({"client": "agent"}))),
    ];
    for (path, body) in routes {
        let home = GatewayHome::new(&text, POLICY);
        let (gateway, lines) = home.start_with_log();
        let expected = match path {
            "/api/v1/audit/forget" => {
                break_audit(&home);
                UNRECORDED
            }
            _ => {
                break_store(&home);
                STORE
            }
        };
        let (status, answer) = ask(&gateway, path, body.as_ref());
        assert_eq!(status, 503, "{path}: {answer}");
        check(path, &home, &answer, expected);
        gateway.stop();
        let log = lines.rest();
        assert!(log.contains("\"detail\""), "{path}: {log}");
    }
}

fn ask(gateway: &TestGateway, path: &str, body: Option<&Value>) -> (u16, String) {
    match body {
        None => gateway.get(path, "key-of-the-person-ann"),
        Some(body) => PersonClient(gateway, "ann").post(path, body),
    }
}
