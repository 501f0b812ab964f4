//! Tests of failing servers behind the gateway: the client receives one message for all failures, and the outcome
//! carries the label of the tool.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::gateway::{KEY, TestGateway};
use crate::mcp::{McpServerDouble, McpTestClient, text};
use crate::servers::{PEOPLE, client, home};
use crate::servers_attacked::{NOWHERE, answer};

/// The policy: notes are private, and posts and the sizes of notes are public.
const POLICY: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private

label message as trusted, public if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted, public if:
    (tool: Tool)
label out.content as trusted, private if:
    (out: ToolOutput) is tool:web/note
label out.content as trusted, public if:
    (out: ToolOutput) is tool:web/size
label out.content as trusted, public if:
    (out: ToolOutput) is tool:bank/*

require trusted, private if:
    (call: ToolCall) is tool:web/*
require trusted, public else deny if:
    (call: ToolCall) is tool:bank/post_public
"#;

/// The response of the notes server to a call: its content type and body, or all bytes of the response.
type FailingAnswer = Arc<dyn Fn(&Value) -> (&'static str, String) + Send + Sync>;

fn listed(message: &Value, names: &[&str]) -> Option<Value> {
    let tool = |name: &&str| json!({"name": name, "inputSchema": {"type": "object"}});
    match message["method"].as_str()? {
        "initialize" => Some(json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}})),
        "tools/list" => Some(json!({"tools": names.iter().map(tool).collect::<Vec<_>>()})),
        _ => None,
    }
}

/// A notes server with a configurable failure, and a server for posts.
struct ServerPair {
    web: McpServerDouble,
    bank: McpServerDouble,
    fails: Arc<Mutex<FailingAnswer>>,
}

fn servers() -> ServerPair {
    let fails: Arc<Mutex<FailingAnswer>> =
        Arc::new(Mutex::new(Arc::new(|message| ("text/event-stream", answer(message, &text("a note"))))));
    let failing = Arc::clone(&fails);
    let web = McpServerDouble::answering(move |message| match listed(message, &["note", "size"]) {
        Some(result) => ("text/event-stream", answer(message, &result)),
        None => {
            let fail = Arc::clone(&failing.lock().unwrap());
            fail(message)
        }
    });
    let bank = McpServerDouble::answering(|message| {
        let result = listed(message, &["post_public"]).unwrap_or_else(|| text("posted"));
        ("text/event-stream", answer(message, &result))
    });
    ServerPair { web, bank, fails }
}

fn call(tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": 50, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
}

/// Returns whether a public post is permitted.
fn posts(one: &mut McpTestClient<'_>) -> bool {
    one.call("bank", "post_public", &json!({"text": "x"})) == "posted"
}

fn begin<'g>(gateway: &'g TestGateway, conversation: &'static str) -> McpTestClient<'g> {
    let mut one = client(gateway, conversation);
    one.begin("web");
    one.begin("bank");
    one
}

/// Returns the ways for the answer to a call to fail; the text of a private note could determine which occurs.
fn failures() -> Vec<(String, FailingAnswer)> {
    let raw =
        |head: &str, body: &str| format!("HTTP/1.1 {head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let fixed =
        |kind: &'static str, body: String| -> FailingAnswer { Arc::new(move |_| (kind, body.clone())) };
    let mut all: Vec<(String, FailingAnswer)> = Vec::new();
    for status in [
        201, 202, 204, 301, 307, 400, 401, 403, 404, 405, 408, 409, 413, 418, 429, 500, 502, 503, 504, 529,
        599,
    ] {
        for kind in ["text/plain", "application/json", "text/event-stream"] {
            let head = format!(
                "{status} private\r\nretry-after: 4803\r\nlocation: /private\r\nmcp-session-id: private\r\ncontent-type: {kind}"
            );
            all.push((format!("{status} {kind}"), fixed("raw", raw(&head, "private note"))));
        }
    }
    // JSON and events that cannot be parsed, or answer another request. `ID` is replaced by the ID of the call.
    let bodies = [
        r#"{"jsonrpc":"2.0","id":ID,"result":{"note":1,"note":2}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"private \ud800"}]}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"private"#,
        r#"{"jsonrpc":"2.0","id":"another","result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","id":null,"result":{"content":[]}}"#,
        r#"{"jsonrpc":"2.0","result":{"content":[]}}"#,
        r#"[{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}]"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":"private"}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":"private"}}"#,
        r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"private"}}"#,
        r#"{"jsonrpc":"2.0","id":ID}"#,
        "private note",
        "",
    ];
    for body in bodies {
        all.push((
            format!("json {body}"),
            Arc::new(move |message| ("application/json", body.replace("ID", &message["id"].to_string()))),
        ));
        all.push((
            format!("events {body}"),
            Arc::new(move |message| {
                ("text/event-stream", format!("data: {}\n\n", body.replace("ID", &message["id"].to_string())))
            }),
        ));
        all.push((
            format!("400 with json {body}"),
            Arc::new(move |message| {
                let body = body.replace("ID", &message["id"].to_string());
                ("raw", format!("HTTP/1.1 400 x\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len()))
            }),
        ));
    }
    let large = "x".repeat(5 << 20);
    let more: [(&str, FailingAnswer); 8] = [
        ("garbage events", fixed("text/event-stream", ": private\nid: private\nretry: 1\nnonsense\n\n\u{0}\n\n".to_owned())),
        ("another kind of body", fixed("text/html", "<b>private</b>".to_owned())),
        ("reset at once", fixed("raw", String::new())),
        ("garbage in place of HTTP", fixed("raw", "private\r\n\r\n".to_owned())),
        ("cut off in the head", fixed("raw", "HTTP/1.1 200 OK\r\ncontent-".to_owned())),
        ("cut off in the body", fixed("raw", "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 4803\r\n\r\n{\"private".to_owned())),
        ("cut off in an event", fixed("raw", "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 4803\r\n\r\ndata: {\"private".to_owned())),
        ("too large", Arc::new(move |message| ("application/json", json!({"jsonrpc": "2.0", "id": message["id"], "result": text(&large)}).to_string()))),
    ];
    all.extend(more.map(|(which, failing)| (which.to_owned(), failing)));
    all
}

/// After each failure, the client receives the same status and body, and its label is exactly that of the tool.
#[test]
fn every_failure_of_a_call_looks_alike_and_has_a_label() {
    let ServerPair { web, bank, fails } = servers();
    let mut home = home(NOWHERE, [&web, &bank], "", POLICY);
    home.edit("mcp = [", "requests-per-minute = 100000\nmcp = [");
    let gateway = home.start();
    let mut told: Option<(u16, Vec<Value>)> = None;
    for (number, (which, failing)) in failures().into_iter().enumerate() {
        *fails.lock().unwrap() = failing;
        for (tool, may_post) in [("note", false), ("size", true)] {
            let name: &'static str = format!("{number} {tool}").leak();
            let mut one = begin(&gateway, name);
            assert!(posts(&mut one), "{which}");
            let heard = one.send("web", &call(tool), &[]);
            assert!(!format!("{heard:?}").contains("private"), "{which}: {heard:?}");
            assert_eq!(*told.get_or_insert_with(|| heard.clone()), heard, "{which} {tool}");
            assert_eq!(posts(&mut one), may_post, "{which} {tool}");
        }
    }
    let (status, said) = told.unwrap();
    assert_eq!((status, &said[0]["result"]["isError"]), (200, &json!(true)), "{said:?}");
}

/// A notification or a permitted request in place of the answer is a failure of the call.
#[test]
fn a_notification_in_place_of_the_answer_is_a_failure() {
    let asks = "label message as trusted, public if:\n    (message: Message)\n    message.role == \"mcp\"\n";
    let rows = [
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#,
        r#"{"jsonrpc":"2.0","id":9,"method":"roots/list"}"#,
        r#"{"jsonrpc":"2.0","id":9,"method":"sampling/createMessage","params":{"text":"private"}}"#,
    ];
    for said in rows {
        for (tool, may_post) in [("note", false), ("size", true)] {
            let ServerPair { web, bank, fails } = servers();
            *fails.lock().unwrap() = Arc::new(move |_| ("application/json", said.to_owned()));
            let gateway = home(NOWHERE, [&web, &bank], "", &format!("{POLICY}{asks}")).start();
            let mut one = begin(&gateway, "one");
            let (status, heard) = one.send("web", &call(tool), &[("accept", "text/event-stream")]);
            let [first, last] = heard.as_slice() else { panic!("{said} {tool}: {heard:?}") };
            assert_eq!((status, first["method"].is_string()), (200, true), "{said} {tool}: {heard:?}");
            assert_eq!((&last["id"], &last["result"]["isError"]), (&json!(50), &json!(true)), "{heard:?}");
            assert_eq!(posts(&mut one), may_post, "{said} {tool}");
        }
    }
}

/// An unknown MCP session is the only failure with its own status, since clients begin a new session after it; its
/// body and label are those of every failure.
#[test]
fn an_unknown_session_has_its_own_status() {
    let ServerPair { web, bank, fails } = servers();
    let gateway = home(NOWHERE, [&web, &bank], "", POLICY).start();
    *fails.lock().unwrap() =
        Arc::new(|_| ("raw", "HTTP/1.1 404 x\r\ncontent-length: 7\r\n\r\nprivate".to_owned()));
    for (tool, may_post) in [("note", false), ("size", true)] {
        let mut one = begin(&gateway, tool);
        let (status, heard) = one.send("web", &call(tool), &[("mcp-session-id", "s1")]);
        assert_eq!((status, &heard[0]["result"]["isError"]), (404, &json!(true)), "{heard:?}");
        assert_eq!(posts(&mut one), may_post, "{tool}");
    }
}

/// A client that cancels a call or disconnects knows how long the server took, so its label is raised.
#[test]
fn a_cancelled_call_raises_the_label_of_its_client() {
    for leaves in [true, false] {
        for (tool, may_post) in [("note", false), ("size", true)] {
            let ServerPair { web, bank, fails } = servers();
            let gateway = home(NOWHERE, [&web, &bank], "", POLICY).start();
            let (asked, is_asked) = std::sync::mpsc::channel();
            let (answers, is_over) = std::sync::mpsc::channel::<()>();
            let (asked, is_over) = (Mutex::new(asked), Mutex::new(is_over));
            *fails.lock().unwrap() = Arc::new(move |message| {
                asked.lock().unwrap().send(()).unwrap();
                let _ = is_over.lock().unwrap().recv();
                ("text/event-stream", answer(message, &text("a note")))
            });
            let mut one = begin(&gateway, "one");
            assert!(posts(&mut one));
            if leaves {
                one.leave("web", &call(tool), &mut || is_asked.recv().unwrap());
            } else {
                let second = client(&gateway, "one");
                std::thread::scope(|scope| {
                    let waits = scope.spawn(|| second.send("web", &call(tool), &[]));
                    is_asked.recv().unwrap();
                    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 50}});
                    assert_eq!(one.send("web", &cancel, &[]).0, 202);
                    let (_, heard) = waits.join().unwrap();
                    assert!(!format!("{heard:?}").contains("a note"), "{heard:?}");
                });
            }
            // The gateway notices the disconnect after a while.
            let begun = std::time::Instant::now();
            let mut may = posts(&mut one);
            while may != may_post && begun.elapsed().as_secs() < 60 {
                std::thread::sleep(std::time::Duration::from_millis(50));
                may = posts(&mut one);
            }
            assert_eq!(may, may_post, "{tool} {leaves}");
            drop(answers);
        }
    }
}

/// The outcome of a call is stored although its client has left and the gateway is stopped: the next gateway knows that
/// the server was asked.
#[test]
fn the_outcome_of_a_call_is_stored_without_its_client() {
    for (tool, may_post) in [("note", false), ("size", true)] {
        let ServerPair { web, bank, fails } = servers();
        let home = home(NOWHERE, [&web, &bank], "", POLICY);
        let gateway = home.start();
        let (asked, is_asked) = std::sync::mpsc::channel();
        let (answers, is_over) = std::sync::mpsc::channel::<()>();
        let (asked, is_over) = (Mutex::new(asked), Mutex::new(is_over));
        *fails.lock().unwrap() = Arc::new(move |message| {
            asked.lock().unwrap().send(()).unwrap();
            let _ = is_over.lock().unwrap().recv();
            ("text/event-stream", answer(message, &text("a note")))
        });
        let mut one = begin(&gateway, "one");
        assert!(posts(&mut one));
        one.leave("web", &call(tool), &mut || is_asked.recv().unwrap());
        // The gateway waits for the exchange, which the server has not answered yet.
        gateway.stop();
        drop(answers);
        let gateway = home.start();
        assert_eq!(posts(&mut client(&gateway, "one")), may_post, "{tool}");
    }
}

/// A freeze of the server, the tool, the conversation or the client withholds an answer that is pending.
#[test]
fn a_freeze_withholds_a_pending_answer() {
    let rows = [
        ("tool", json!({"kind": "tool", "what": "web/note"}), false),
        ("another tool", json!({"kind": "tool", "what": "web/size"}), true),
        ("server", json!({"kind": "server", "what": "web"}), false),
        ("conversation", json!({"kind": "conversation", "what": "agent/one"}), false),
        ("client", json!({"kind": "client", "what": "agent"}), false),
        ("another server", json!({"kind": "server", "what": "bank"}), true),
    ];
    for (which, freeze, is_heard) in rows {
        let ServerPair { web, bank, fails } = servers();
        let gateway = Arc::new(home(NOWHERE, [&web, &bank], PEOPLE, POLICY).start());
        let one = begin(&gateway, "one");
        let (inner, freeze) = (Arc::clone(&gateway), Mutex::new(freeze));
        *fails.lock().unwrap() = Arc::new(move |message| {
            let mut body = freeze.lock().unwrap().clone();
            body["frozen"] = json!(true);
            let (status, said) = crate::approvals::PersonClient(&inner, "ann").post("/api/v1/freezes", &body);
            assert_eq!(status, 200, "{said}");
            ("text/event-stream", answer(message, &text("a private note")))
        });
        let (_, heard) = one.send("web", &call("note"), &[]);
        assert_eq!(format!("{heard:?}").contains("private"), is_heard, "{which}: {heard:?}");
        assert!(!heard.is_empty(), "{which}");
        *fails.lock().unwrap() = Arc::new(|_| ("", String::new()));
    }
}

/// An answer that a freeze withholds is an outcome: after the freeze is reverted, later calls carry the label of the
/// tool's answers.
#[test]
fn an_answer_that_was_stopped_has_the_label_of_its_tool() {
    for (kind, what) in [
        ("tool", None),
        ("server", Some("web")),
        ("conversation", Some("agent/one")),
        ("client", Some("agent")),
    ] {
        for (tool, may_post) in [("note", false), ("size", true)] {
            let ServerPair { web, bank, fails } = servers();
            let gateway = Arc::new(home(NOWHERE, [&web, &bank], PEOPLE, POLICY).start());
            let mut one = begin(&gateway, "one");
            assert!(posts(&mut one));
            let what = what.map_or_else(|| format!("web/{tool}"), str::to_owned);
            let inner = Arc::clone(&gateway);
            let freeze = move |gateway: &TestGateway, frozen: bool| {
                let body = json!({"kind": kind, "what": what, "frozen": frozen});
                let (status, said) =
                    crate::approvals::PersonClient(gateway, "ann").post("/api/v1/freezes", &body);
                assert_eq!(status, 200, "{said}");
            };
            let freezes = freeze.clone();
            *fails.lock().unwrap() = Arc::new(move |message| {
                freezes(&inner, true);
                ("text/event-stream", answer(message, &text("a private note")))
            });
            let (_, heard) = one.send("web", &call(tool), &[]);
            assert!(!format!("{heard:?}").contains("private"), "{kind} {tool}: {heard:?}");
            freeze(&gateway, false);
            assert_eq!(posts(&mut one), may_post, "{kind} {tool}");
            *fails.lock().unwrap() = Arc::new(|_| ("", String::new()));
        }
    }
}

/// A failure in one conversation does not raise the label of another one.
#[test]
fn a_failure_in_one_conversation_is_none_in_another() {
    let ServerPair { web, bank, fails } = servers();
    let gateway = home(NOWHERE, [&web, &bank], "", POLICY).start();
    *fails.lock().unwrap() = Arc::new(|_| ("raw", String::new()));
    let mut one = begin(&gateway, "one");
    one.send("web", &call("note"), &[]);
    let mut two = McpTestClient { gateway: &gateway, key: KEY, conversation: "two", next: 0 };
    two.begin("bank");
    assert_eq!((posts(&mut one), posts(&mut two)), (false, true));
}
