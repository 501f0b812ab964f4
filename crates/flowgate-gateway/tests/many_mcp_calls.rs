//! Tests that many calls of MCP servers in flight are all answered, and that none costs a thread.
//!
//! The test counts the threads of its process, and is therefore the only one of its program.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::net::SocketAddr;
use std::sync::Arc;

use flowgate_gateway::config as file;
use flowgate_gateway::http::access::AccessControl;
use flowgate_gateway::http::server::{HttpServer, ServeConfig};
use flowgate_gateway::limits::ServerLimits;
use flowgate_gateway::log::OperatorLog;
use flowgate_gateway::predicates::PredicateSources;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

const KEY: &str = "the-key-of-the-client";
/// The number of conversations, and of calls in each of them.
const CONVERSATIONS: usize = 5;
const CALLS: usize = 100;
/// The number of threads that may begin during the calls, whatever their number: of the runtimes and of the database.
const OTHER_THREADS: usize = 40;

/// An MCP server that answers no call before it is released.
#[derive(Debug)]
struct SlowServer {
    address: SocketAddr,
    /// The number of calls that have arrived.
    calls: watch::Sender<usize>,
    is_released: watch::Sender<bool>,
}

impl SlowServer {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self { address, calls: watch::Sender::new(0), is_released: watch::Sender::new(false) };
        let server = Arc::new(server);
        let accepting = Arc::clone(&server);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = Arc::clone(&accepting);
                tokio::spawn(async move { server.serve(stream).await });
            }
        });
        server
    }

    async fn serve(&self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        while let Some((_, body)) = read_message(&mut stream).await {
            let message: Value = serde_json::from_str(&body).unwrap();
            let tools = json!([{"name": "wait", "inputSchema": {"type": "object"}}]);
            let result = match message["method"].as_str() {
                Some("initialize") => json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}}),
                Some("tools/list") => json!({"tools": tools}),
                _ => {
                    self.calls.send_modify(|calls| *calls += 1);
                    self.is_released.subscribe().wait_for(|is_released| *is_released).await.unwrap();
                    json!({"content": [{"type": "text", "text": "done"}]})
                }
            };
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
            let answer = format!("{head}content-length: {}\r\n\r\n{answer}", answer.len());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    }
}

/// Reads the head and the body of an HTTP message; `None` at the end of the connection.
async fn read_message(stream: &mut BufReader<TcpStream>) -> Option<(String, String)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap() == 0 {
            return None;
        }
    }
    let lower = head.to_ascii_lowercase();
    let (_, length) = lower.split_once("content-length: ")?;
    let mut body = vec![0; length.lines().next()?.parse().unwrap()];
    stream.read_exact(&mut body).await.unwrap();
    Some((head, String::from_utf8(body).unwrap()))
}

async fn start_gateway(server: &SlowServer) -> SocketAddr {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("many-mcp-calls");
    std::fs::create_dir_all(&folder).unwrap();
    let policy = "lattice integrity: trusted < untrusted\nrequire untrusted if:\n    (call: ToolCall) is tool:slow/*\n";
    std::fs::write(folder.join("policy.flow"), policy).unwrap();
    let text = format!(
        "[mcp.slow]\nurl = \"http://{}/mcp\"\n[clients.agent]\nkey-from = \"KEY\"\npolicy = \"policy.flow\"\nmcp = [\"slow\"]\n\
         parallel = 1000\nrequests-per-minute = 10000\n[store]\nurl = \"memory\"\n",
        server.address
    );
    let models = file::read(&text, &folder, &|_| Some(KEY.to_owned())).unwrap();
    let config = ServeConfig {
        listen: "127.0.0.1:0".parse().unwrap(),
        dialect: flowgate::policy::Dialect::Flowgate,
        access: AccessControl::Local,
        predicate_sources: PredicateSources::default(),
        models: Some(models),
        loader: None,
        // All connections come from one address, and some have not shown their key yet.
        limits: ServerLimits { connections_of_address: 0, ..ServerLimits::default() },
        log: OperatorLog::default(),
    };
    let gateway = HttpServer::bind(config).await.unwrap();
    let address = gateway.address();
    tokio::spawn(gateway.run(std::future::pending()));
    address
}

/// Sends a message to the gateway; returns the head and the body of the answer.
async fn ask(gateway: SocketAddr, conversation: usize, id: usize, method: &str, params: Value) -> String {
    let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string();
    let mut stream = BufReader::new(TcpStream::connect(gateway).await.unwrap());
    let head = format!(
        "POST /mcp/slow HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\naccept: application/json\r\n\
         content-type: application/json\r\nx-flowgate-conversation: {conversation}\r\ncontent-length: {}\r\n\r\n{message}",
        message.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let (head, body) = read_message(&mut stream).await.unwrap();
    format!("{head}{body}")
}

/// Returns the number of threads of this process.
fn threads() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let count = status.lines().find_map(|line| line.strip_prefix("Threads:")).unwrap();
    count.trim().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_in_flight_cost_no_threads() {
    let server = SlowServer::start().await;
    let gateway = start_gateway(&server).await;
    for conversation in 0..CONVERSATIONS {
        let greeting = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        ask(gateway, conversation, 1, "initialize", greeting).await;
        let listed = ask(gateway, conversation, 2, "tools/list", json!({})).await;
        assert!(listed.contains("wait"), "{listed}");
    }
    let before = threads();
    let mut calls = JoinSet::new();
    for number in 0..CONVERSATIONS * CALLS {
        let call = json!({"name": "wait", "arguments": {}});
        calls.spawn(ask(gateway, number % CONVERSATIONS, 10 + number, "tools/call", call));
    }
    let mut arrived = server.calls.subscribe();
    tokio::select! {
        arrived = arrived.wait_for(|arrived| *arrived == CONVERSATIONS * CALLS) => drop(arrived.unwrap()),
        early = calls.join_next() => panic!("an answer before its call was answered: {early:?}"),
    }
    let during = threads();
    server.is_released.send_replace(true);
    let answers = calls.join_all().await;
    assert_eq!(answers.len(), CONVERSATIONS * CALLS);
    for answer in answers {
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""text":"done""#), "{answer}");
    }
    assert!(during <= before + OTHER_THREADS, "{before} threads before the calls, {during} during them");
}
