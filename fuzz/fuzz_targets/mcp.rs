//! Arbitrary messages between an MCP client and a server, in any order: the server receives only judged
//! calls, serialised from the judged form; no request of the client is answered twice; and text that the
//! policy withholds does not reach the client.

#![no_main]

mod bytes;
mod fixed;
mod json;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock};

use bytes::Choices;
use flowgate::json::Numbers;
use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate::trace::{EventBody, EventId, Status};
use flowgate_mcp::{Proxy, ProxyAction, ProxyLimits, ProxySettings, Revision};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

static POLICY: LazyLock<Arc<Policy>> = LazyLock::new(|| {
    let source = r#"
lattice integrity: trusted < untrusted
label tool as trusted if:
    (tool: Tool) is tool:files/*
label message as untrusted if:
    (message: Message)
    message.role == "mcp"
label out as trusted if:
    (out: ToolOutput) is tool:files/write
label out as trusted if:
    (out: ToolOutput) is tool:files/resources/list
label out as trusted if:
    (out: ToolOutput) is tool:files/initialize
require untrusted if:
    (call: ToolCall) is tool:files/read
require untrusted if:
    (call: ToolCall) is tool:files/resources/*
require untrusted if:
    (call: ToolCall) is tool:files/prompts/*
require untrusted if:
    (call: ToolCall) is tool:files/initialize
require trusted if:
    (call: ToolCall) is tool:files/delete
require trusted else deny if:
    (call: ToolCall) is tool:files/write
require untrusted if:
    (call: ToolCall) is tool:files/sampling/createMessage
require trusted if:
    (call: ToolCall) is tool:files/roots/list
raise "withheld" if:
    (out: ToolOutput)
    "SECRET" in f"{out.content} {out.structured}"
raise "withheld" if:
    (tool: Tool)
    "SECRET" in f"{tool.name} {tool.description} {tool.inputSchema}"
raise "withheld" if:
    (message: Message)
    message.role == "mcp"
    "SECRET" in f"{message.content}"
"#;
    Arc::new(Policy::parse(source).unwrap_or_else(|diagnostics| panic!("{diagnostics:?}")))
});

const MARK: &str = "SECRET";
/// The placeholder for generated text.
const PLACE: &str = "TEXT";

fuzz_target!(|bytes: &[u8]| {
    let mut choices = Choices::new(bytes);
    let mut run = ProxyRun::new(&mut choices);
    while !choices.are_spent() {
        run.act(&mut choices);
    }
    for out in run.proxy.handle_server_exit(&mut run.monitor) {
        run.check(&out, None);
    }
});

struct ProxyRun {
    proxy: Proxy,
    monitor: Monitor,
    /// The number of open requests of the client, by the printed id.
    waits: BTreeMap<String, usize>,
    /// Cancelled requests, which may still be answered.
    cancelled: BTreeMap<String, usize>,
    /// The calls that were sent.
    sent: BTreeSet<EventId>,
}

/// Marks a client's message that is not a request but may be rejected at once.
struct ImmediateAnswer;

impl ProxyRun {
    fn new(choices: &mut Choices<'_>) -> Self {
        let settings = ProxySettings {
            is_interactive: choices.below(2) == 0,
            limits: ProxyLimits { outstanding: 3, message: 4_000, session: 200_000 },
            ..ProxySettings::new("files")
        };
        let monitor = Monitor::new(Arc::clone(&POLICY));
        Self {
            proxy: Proxy::new(settings),
            monitor,
            waits: BTreeMap::new(),
            cancelled: BTreeMap::new(),
            sent: BTreeSet::new(),
        }
    }

    fn act(&mut self, choices: &mut Choices<'_>) {
        let is_client = choices.below(2) == 0;
        let mut message = said(choices);
        for _ in 0..choices.below(3) {
            json::edit(&mut message, choices);
        }
        let mut text = message.to_string();
        if !is_client {
            text = text.replace(PLACE, choices.of(&[MARK, "SECR\\u0045T", "plain"]));
        }
        let mut bytes = text.into_bytes();
        match choices.below(24) {
            0 => bytes.truncate(bytes.len().saturating_sub(choices.below(64))),
            1 => bytes.extend(choices.text(4).into_bytes()),
            2 => bytes.insert(bytes.len() / 2, b'\n'),
            _ => {}
        }
        if !is_client {
            for out in self.proxy.handle_server_message(&mut self.monitor, &bytes) {
                self.check(&out, None);
            }
            return;
        }
        let asked = request(&bytes);
        if let Some(id) = cancels(&bytes) {
            *self.cancelled.entry(id.clone()).or_default() += self.waits.remove(&id).unwrap_or(0);
        }
        let out = self.proxy.handle_client_message(&mut self.monitor, &bytes);
        // If an id is in use, the earlier request stays open.
        let is_taken =
            out.iter().any(|out| matches!(out, ProxyAction::Client(line) if parsed(line)["id"].is_null()));
        let unread = asked.is_none().then_some(ImmediateAnswer);
        if let Some(id) = asked.filter(|_| !is_taken) {
            *self.waits.entry(id).or_default() += 1;
        }
        for out in &out {
            self.check(out, unread.as_ref());
        }
    }

    fn check(&mut self, out: &ProxyAction, unread: Option<&ImmediateAnswer>) {
        match out {
            ProxyAction::Client(line) => self.check_client(line, unread),
            ProxyAction::Server(line) => self.check_server(line),
            ProxyAction::Note(note) => assert!(note.len() < 100_000),
            ProxyAction::Pins(_) => {}
            ProxyAction::Ask(_) | ProxyAction::Unapproved { .. } => panic!("nobody is asked elsewhere"),
        }
    }

    fn check_client(&mut self, line: &str, unread: Option<&ImmediateAnswer>) {
        let message = parsed(line);
        assert!(!message.to_string().contains(MARK), "it is withheld: {line}");
        if message.get("method").is_some() || message["id"].is_null() {
            return;
        }
        let id = message["id"].to_string();
        match self.waits.get_mut(&id) {
            Some(waits @ 1..) => {
                // The client may just have answered a question about the request.
                let is_unread = unread.is_some() && message["error"]["code"] == -32600;
                assert!(!is_unread, "another message's id is answered: {line}");
                *waits -= 1;
            }
            _ if self.cancelled.get(&id).is_some_and(|count| *count > 0) => {
                self.cancelled.entry(id).and_modify(|count| *count -= 1);
            }
            _ => assert!(unread.is_some() && message.get("error").is_some(), "nobody waits for it: {line}"),
        }
    }

    fn check_server(&mut self, line: &str) {
        let message = parsed(line);
        let Some(method) = message.get("method").and_then(Value::as_str) else { return };
        assert_eq!(message.to_string(), line, "it is printed anew");
        // Initialisation is passed on; it, and messages without an id, contain only numbers.
        if ["initialize", "server/discover"].contains(&method) {
            return;
        }
        if message.get("id").is_none() || ["ping", "tools/list"].contains(&method) {
            assert!(line.len() < 1_000, "it says nothing: {line}");
            return;
        }
        let trace = self.monitor.trace();
        let ran = |event: &usize| {
            let event = trace.events().get(*event);
            event.is_some_and(|event| event.tool().is_some() && event.status == Status::Done)
        };
        let last = (0..trace.len()).rev().find(ran).map(EventId).expect("a call that was judged");
        assert!(self.sent.insert(last), "one verdict, one call: {line}");
        let Some(EventBody::Call(call)) = trace.event(last).map(|event| &event.body) else {
            panic!("only calls have tools")
        };
        let arguments = Value::Object(call.arguments.clone().expect("what was sent could be read"));
        let params = &message["params"];
        let name = if method == "tools/call" { params["name"].as_str() } else { Some(method) };
        assert_eq!(call.tool.server.as_deref(), Some("files"));
        match method {
            "tools/call" => {
                assert_eq!(name, Some(&*call.tool.name));
                assert_eq!(params["arguments"], arguments, "what is sent is what was judged");
            }
            _ => {
                assert!(method.starts_with(&*call.tool.name) || call.tool.name.contains('/'), "{line}");
                for (key, value) in arguments.as_object().into_iter().flatten() {
                    assert_eq!(&params[key], value, "what is sent is what was judged");
                }
            }
        }
    }
}

/// Parses a message with a strict parser.
fn parsed(line: &str) -> Value {
    assert!(!line.contains(['\n', '\r']), "one line: {line:?}");
    flowgate::json::parse(line, Numbers::Any).unwrap_or_else(|error| panic!("{error}: {line}"))
}

/// Returns the id of a client's request, if a strict parser accepts it.
fn request(bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.trim();
    let message = flowgate::json::parse(text, Numbers::Exact).ok()?;
    let id = message.get("id")?;
    let known = ["jsonrpc", "id", "method", "params"];
    let is_request = bytes.len() <= 4_000
        && message["jsonrpc"] == "2.0"
        && message["method"].is_string()
        && message.get("params").is_none_or(Value::is_object)
        && message.as_object()?.keys().all(|key| known.contains(&key.as_str()));
    (is_request && (id.is_string() || id.is_i64() || id.is_u64()) && id.to_string().len() <= 256)
        .then(|| id.to_string())
}

/// Returns the id of the request that a client's message cancels.
fn cancels(bytes: &[u8]) -> Option<String> {
    let message: Value = serde_json::from_slice(bytes).ok()?;
    (message["method"] == "notifications/cancelled").then(|| message["params"]["requestId"].to_string())
}

/// Methods that no revision has for requests: notifications, and a request of tasks.
#[rustfmt::skip]
const OTHER_METHODS: [&str; 5] = [
    "notifications/cancelled", "notifications/progress", "notifications/resources/updated", "notifications/message",
    "tasks/list",
];

/// Generates a valid message.
fn said(choices: &mut Choices<'_>) -> Value {
    let id =
        choices.of(&["1", "2", "\"a\"", "\"flowgate-1\"", "\"flowgate-2\"", "\"flowgate-3\"", "\"TEXT\""]);
    let id: Value = serde_json::from_str(id).expect("an id");
    let block = json!({"type": "text", "text": PLACE});
    match choices.below(14) {
        0..=4 => {
            let methods: Vec<&str> = flowgate_mcp::client_methods()
                .chain(flowgate_mcp::server_request_methods())
                .chain(OTHER_METHODS)
                .collect();
            let method = choices.of(&methods);
            let params = json!({"name": choices.of(&["read", "write", "delete", "TEXT"]), "uri": "a", "_meta": {"progressToken": 1},
                "arguments": {"path": choices.of(&["a", "b"]), "n": 1.5}, "progressToken": 1, "progress": 1, "message": PLACE,
                "requestId": choices.of(&[1, 2]), "reason": PLACE, "capabilities": {"elicitation": {}, "roots": {}, "sampling": {}},
                "messages": [{"role": "user", "content": block}], "protocolVersion": Revision::V2025_06_18.date()});
            let mut message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
            if method.starts_with("notifications/") {
                message.as_object_mut().map(|fields| fields.remove("id"));
            }
            message
        }
        5 | 6 => {
            let tool = |name: &str| json!({"name": name, "description": PLACE, "inputSchema": {"type": "object", "title": PLACE}});
            let tools = [tool("read"), tool("write"), tool("delete"), tool(PLACE)];
            json!({"jsonrpc": "2.0", "id": id, "result": {"tools": tools, "nextCursor": PLACE, "_meta": {"a": PLACE}}})
        }
        7..=9 => {
            let result = json!({"content": [block, {"type": "resource", "resource": {"uri": PLACE, "text": PLACE}}],
                "structuredContent": {"a": PLACE}, "isError": choices.below(2) == 0, "_meta": {"a": PLACE}, "extra": PLACE});
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        }
        10 => {
            let result = json!({"contents": [{"uri": PLACE, "text": PLACE}], "resources": [{"uri": PLACE}], "prompts": [{"name": PLACE}],
                "messages": [{"role": "user", "content": block}], "completion": {"values": [PLACE]}, "action": "accept",
                "content": {}, "roots": [{"uri": "file:///a"}]});
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        }
        11 => {
            let result = json!({"protocolVersion": Revision::V2025_06_18.date(), "capabilities": {"tools": {"listChanged": true}, "resources": {"subscribe": true},
                "experimental": {"TEXT": {}}}, "serverInfo": {"name": PLACE, "version": PLACE}, "instructions": PLACE});
            json!({"jsonrpc": "2.0", "id": id, "result": result})
        }
        12 => json!({"jsonrpc": "2.0", "id": id, "error": {"code": 1, "message": PLACE, "data": PLACE}}),
        _ => json!({"jsonrpc": "2.0", "id": id, "result": {}}),
    }
}
