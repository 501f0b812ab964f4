//! Tests of the model routes without sockets: how the work of a request grows with the number of its messages, and that
//! a cut-off request leaves no state.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;

use allocation_counter::AllocationInfo;
use axum::http::{HeaderMap, HeaderValue, header};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use super::{ModelRoutes, config, stream};
use crate::http::client_presence::ClientPresence;
use crate::http::value_budget::ValueBudget;
use crate::limits::{ServerLimits, estimated_memory};
use crate::log::OperatorLog;

const KEY: &str = "key-of-the-first-client";

const POLICY: &str = "
lattice integrity: trusted < untrusted

label message as trusted if:
    (message: Message)
    message.role in [\"system\", \"user\"]
label tool as trusted if:
    (tool: Tool)
label out.content as untrusted if:
    (out: ToolOutput) is tool:read

require top if:
    (call: ToolCall) is tool:read
require trusted if:
    (call: ToolCall) is tool:send
";

/// Starts a model server that always answers `ok`, on a thread for each connection, and returns its URL.
fn model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let message = json!({"role": "assistant", "content": "ok"});
    let choice = json!({"index": 0, "message": message, "finish_reason": "stop"});
    let body =
        json!({"id": "r", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]});
    let body = body.to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, body) = (stream.unwrap(), body.clone());
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    // Reads the head of a request for the length of its body, and skips the body.
                    let (mut line, mut length) = (String::new(), 0);
                    while reader.read_line(&mut line).unwrap_or(0) > 0 && !line.trim().is_empty() {
                        let value = line.to_ascii_lowercase();
                        if let Some(value) = value.strip_prefix("content-length:") {
                            length = value.trim().parse().unwrap();
                        }
                        line.clear();
                    }
                    // An empty `line` is the end of the connection; the line before a body is a line break.
                    if line.is_empty()
                        || std::io::copy(&mut (&mut reader).take(length), &mut std::io::sink()).is_err()
                    {
                        return;
                    }
                    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length:";
                    let _ = write!(stream, "{head} {}\r\n\r\n{body}", body.len());
                }
            });
        }
    });
    url
}

/// Opens model routes without sockets, with one client (`agent`) under [`POLICY`], whose upstream is [`model`].
async fn routes() -> ModelRoutes {
    let folder = std::env::temp_dir().join(format!(
        "flowgate-work-{}-{}",
        std::process::id(),
        crate::random::unguessable_name().unwrap()
    ));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("policy.flow"), POLICY).unwrap();
    let text = format!(
        "[upstreams.one]\nurl = \"{}\"\n[clients.agent]\nkey-from = \"KEY\"\nupstream = \"one\"\npolicy = \"policy.flow\"\n\
         user-messages = \"trust-unmarked-even-if-pasted\"\n[store]\nurl = \"memory\"\n",
        model()
    );
    let config = config::read(&text, &folder, &|_| Some(KEY.to_owned())).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    ModelRoutes::open(config, ValueBudget::new(64 << 30), OperatorLog::default()).await.unwrap()
}

/// Returns the body of a request whose chat has `count` results of tools.
fn answers(count: usize) -> String {
    let id = |number: usize| format!("call_{number}");
    let call = |number: usize| json!({"id": id(number), "type": "function", "function": {"name": "read", "arguments": "{}"}});
    let calls: Vec<Value> = (0..count).map(call).collect();
    let mut messages = vec![
        json!({"role": "user", "content": "Read."}),
        json!({"role": "assistant", "content": null, "tool_calls": calls}),
    ];
    let row = |number: usize| json!({"role": "tool", "tool_call_id": id(number), "content": format!("row {number} of a table")});
    messages.extend((0..count).map(row));
    body(&messages)
}

/// Returns the body of a request whose chat has `count` messages, alternately of the user and of the model.
fn dialogue(count: usize) -> String {
    let message = |number: usize| {
        let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
        json!({"role": role, "content": format!("line {number}")})
    };
    body(&(0..count).map(message).collect::<Vec<Value>>())
}

/// Returns the body of a request for chat completions with these messages and both tools of [`POLICY`].
fn body(messages: &[Value]) -> String {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    json!({"model": "m", "messages": messages, "tools": [tool("read"), tool("send")]}).to_string()
}

/// The allocations for 90,000 messages in one body are at most linear in those for 5,625: no allocation for a message
/// grows with the number of the others. The calling thread makes all allocations, so they can be counted there.
#[test]
fn work_grows_with_the_number_of_messages_and_no_faster() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let routes = Arc::new(runtime.block_on(routes()));
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {KEY}")).unwrap());
    // Answers a request with this body, and returns what was allocated meanwhile.
    let work = |text: &str| -> AllocationInfo {
        let received =
            runtime.block_on(routes.receive((Api::ChatCompletions, None), &headers, None)).unwrap();
        let (parts, _kept) = stream::reply_channel();
        let mut reply = None;
        let work = allocation_counter::measure(|| {
            let presence = ClientPresence::default();
            reply = runtime.block_on(routes.answer(&received, text.as_bytes(), &presence, parts));
        });
        assert_eq!(reply.unwrap().status.as_u16(), 200);
        work
    };
    // A first request creates the lazily created state, so that it is not counted.
    work(&answers(10));
    for (name, shape) in [("answers", answers as fn(usize) -> String), ("dialogue", dialogue)] {
        let (few, many) = (work(&shape(5_625)), work(&shape(90_000)));
        println!("{name}: {few:?} {many:?}");
        // Linear work grows sixteenfold, plus the overhead of trees and growing vectors; quadratic work would grow
        // 256-fold.
        let is_linear = many.count_total < 20 * few.count_total && many.bytes_total < 24 * few.bytes_total;
        assert!(is_linear, "{name}: {few:?} {many:?}");
    }
    // By default, the gateway refuses such a body before any of it is read, and names the option that allows it.
    assert!(estimated_memory(answers(90_000).as_bytes()) > ServerLimits::default().values / 4);
}

/// A request that ends between its use of a conversation and its storage, by a panic or a dropped future, leaves
/// nothing unstored in memory; the effects of a stored request remain.
#[tokio::test]
async fn a_request_that_is_cut_off_leaves_nothing_in_memory() {
    let routes = routes().await;
    let client = routes.clients.find_by_name("agent").unwrap();
    let found = routes.sessions.find_by_name(&client, "one");
    let presence = ClientPresence::default();
    for (is_stored, remains) in [(false, None), (true, Some("a record"))] {
        // A first request changes the conversation, and may end before it is stored.
        let mut held = routes.sessions.lock(&client, &found, &presence).await.unwrap();
        held.get().unwrap().recalled = Some("a record".to_owned());
        if is_stored {
            routes.sessions.persist(&client, &found, &mut held).await.unwrap();
        }
        drop(held);
        // The next request finds the change only if it was stored.
        let mut held = routes.sessions.lock(&client, &found, &presence).await.unwrap();
        assert_eq!(held.get().unwrap().recalled.as_deref(), remains, "{is_stored}");
        routes.sessions.persist(&client, &found, &mut held).await.unwrap();
    }
}

/// A request whose client has disconnected does not wait for its conversation.
#[tokio::test]
async fn a_request_without_a_client_does_not_wait_for_its_conversation() {
    let routes = routes().await;
    let client = routes.clients.find_by_name("agent").unwrap();
    let found = routes.sessions.find_by_name(&client, "one");
    let presence = ClientPresence::default();
    let _held = routes.sessions.lock(&client, &found, &presence).await.unwrap();
    let gone = ClientPresence::default();
    drop(gone.disconnect_on_drop());
    let refused = routes.sessions.lock(&client, &found, &gone).await.unwrap_err();
    assert_eq!(refused.status.as_u16(), 408);
}
