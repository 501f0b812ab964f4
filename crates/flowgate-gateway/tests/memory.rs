//! Compares the memory that requests take with the gateway's estimate, for bodies of many short values in particular.
//!
//! A counting allocator measures live bytes, which depend neither on the system nor on other processes.

#![expect(clippy::unwrap_used, reason = "tests")]

use flowgate_gateway::config as file;
use flowgate_gateway::http::access::AccessControl;
use flowgate_gateway::http::server::{HttpServer, ServeConfig};
use flowgate_gateway::limits::{ServerLimits, estimated_memory};
use flowgate_gateway::log::OperatorLog;
use flowgate_gateway::predicates::PredicateSources;
use peak_alloc::PeakAlloc;
use serde_json::{Value, json};

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The allocator counts for the whole process, so only one test runs at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Starts a gateway whose upstream is unreachable; returns the URL of its chat route.
async fn start(limits: ServerLimits) -> String {
    start_with(limits, "").await
}

/// The same with additional settings of the store.
async fn start_with(limits: ServerLimits, store: &str) -> String {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("policy.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
    let text = "[upstreams.one]\nurl = \"http://127.0.0.1:9/v1\"\n[clients.agent]\nkey-from = \"KEY\"\nupstream = \"one\"\n\
                policy = \"policy.flow\"\nuser-messages = \"trust-unmarked-even-if-pasted\"\n[store]\nurl = \"memory\"\n";
    let models =
        file::read(&(text.to_owned() + store), &folder, &|_| Some("the-key-of-the-client".to_owned()))
            .unwrap();
    let (listen, dialect) = ("127.0.0.1:0".parse().unwrap(), flowgate::policy::Dialect::Flowgate);
    let (access, predicate_sources, log) =
        (AccessControl::Local, PredicateSources::default(), OperatorLog::default());
    let config = ServeConfig {
        listen,
        dialect,
        access,
        predicate_sources,
        models: Some(models),
        loader: None,
        limits,
        log,
    };
    let server = HttpServer::bind(config).await.unwrap();
    let address = server.address();
    tokio::spawn(server.run(std::future::pending()));
    format!("http://{address}/v1/chat/completions")
}

async fn post(url: &str, body: &str) -> (u16, String) {
    post_in(url, "", body).await
}

/// Sends a request of a named conversation, or of an unnamed one if the name is empty.
async fn post_in(url: &str, conversation: &str, body: &str) -> (u16, String) {
    let (url, body, conversation) = (url.to_owned(), body.to_owned(), conversation.to_owned());
    let ask = move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(url).header("content-type", "application/json");
        let request = match conversation.as_str() {
            "" => request,
            name => request.header("x-flowgate-conversation", name),
        };
        let mut response =
            request.header("authorization", "Bearer the-key-of-the-client").send(body).unwrap();
        (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

fn chat(messages: &Value, tools: &Value) -> String {
    let body = match tools {
        Value::Null => json!({"model": "double", "messages": messages}),
        _ => json!({"model": "double", "messages": messages, "tools": tools}),
    };
    body.to_string()
}

/// The shapes of which a limit on values tells as much as `short words`.
const LONG_TEXTS: [&str; 7] =
    ["letters", "markup", "lines", "Cyrillic", "ligatures", "escaped ligatures", "base64"];

/// Returns bodies of long texts, and bodies with many short values in various places.
fn shapes() -> Vec<(&'static str, String)> {
    let user = |content: Value| json!({"role": "user", "content": content});
    let many = |count: usize, one: Value| Value::Array(vec![one; count]);
    let hello = || json!([user("Hello.".into())]);
    let tool = |values: Value| {
        let parameters = json!({"type": "object", "x": values});
        json!([{"type": "function", "function": {"name": "read", "description": "", "parameters": parameters}}])
    };
    let answer = json!({"role": "tool", "tool_call_id": "x", "content": "a"});
    let long = |one: &str| chat(&json!([user(one.repeat(400_000 / one.len()).into())]), &Value::Null);
    vec![
        ("short words", long("x ")),
        ("letters", long("x")),
        ("markup", long("<b>x</b>")),
        ("lines", long("- one line of text\n")),
        ("Cyrillic", long("\u{434}\u{430} ")),
        ("ligatures", long("\u{337f}")),
        ("escaped ligatures", long("&#13183;")),
        ("base64", long("d2lyZSA1MDAgRVVSIHRvIE1hbGxvcnkg")),
        ("parts", chat(&json!([user(many(60_000, json!({"type": "text", "text": "a"})))]), &Value::Null)),
        ("messages", chat(&many(50_000, user("a".into())), &Value::Null)),
        ("answers", chat(&many(40_000, answer), &Value::Null)),
        ("numbers in a tool", chat(&hello(), &tool(many(800_000, json!(1))))),
        ("lists in a tool", chat(&hello(), &tool(many(500_000, json!([]))))),
    ]
}

/// A body takes at most the estimated memory, whatever its shape. A body whose estimate exceeds the limit is rejected
/// before it is parsed; a body of the same size with fewer values is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_takes_what_is_accounted_for_it() {
    let _alone = ALONE.lock().await;
    let url = start(ServerLimits { values: 16 << 30, ..ServerLimits::default() }).await;
    post(&url, &chat(&json!([{"role": "user", "content": "Hello."}]), &Value::Null)).await;
    let mut beyond = Vec::new();
    for (name, body) in shapes() {
        let before = HEAP.current_usage();
        HEAP.reset_peak_usage();
        let (status, text) = post(&url, &body).await;
        assert!(status < 500 || status == 502, "{name}: {status} {text}");
        let (took, accounted) = (HEAP.peak_usage().saturating_sub(before), estimated_memory(body.as_bytes()));
        println!("{name}: {status}, {} bytes, took {took}, accounted {accounted}", body.len());
        if took > accounted + (4 << 20) {
            beyond.push(format!("{name}: {took} bytes for {}, accounted {accounted}", body.len()));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
    let url = start(ServerLimits { values: 128 << 20, ..ServerLimits::default() }).await;
    // One long text stands for all of them: they differ in what their accepted request takes.
    for (name, body) in shapes().into_iter().filter(|(name, _)| !LONG_TEXTS.contains(name)) {
        let (status, text) = post(&url, &body).await;
        let is_refused = status == 413 && text.contains("send fewer and longer messages and parts");
        let is_long_text = body.matches("\"text\"").count() == 0 && body.matches("{").count() < 4;
        assert_eq!(is_refused, !is_long_text, "{name}: {status} {text}");
    }
}

/// Conversations in memory stay within their limit, whatever their shape.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_conversations_take_what_they_may() {
    let _alone = ALONE.lock().await;
    let url =
        start_with(ServerLimits { values: 16 << 30, ..ServerLimits::default() }, "memory-mib = 64\n").await;
    let mut beyond = Vec::new();
    for (name, body) in [
        (
            "parts",
            chat(
                &json!([{"role": "user", "content": vec![json!({"type": "text", "text": "a"}); 20_000]}]),
                &Value::Null,
            ),
        ),
        (
            "messages",
            chat(&Value::Array(vec![json!({"role": "user", "content": "a"}); 20_000]), &Value::Null),
        ),
        (
            "answers",
            chat(
                &Value::Array(vec![json!({"role": "tool", "tool_call_id": "x", "content": "a"}); 20_000]),
                &Value::Null,
            ),
        ),
    ] {
        let mut sizes = Vec::new();
        for number in 0..10 {
            let (status, text) = post_in(&url, &format!("{name} {number}"), &body).await;
            assert_eq!(status, 502, "{name}: {text}");
            sizes.push(HEAP.current_usage() >> 20);
        }
        println!("{name}: {sizes:?} MiB");
        // The first two conversations include the constant memory of the gateway.
        let grown = sizes.last().unwrap().saturating_sub(*sizes.get(1).unwrap());
        if grown > 64 + 48 {
            beyond.push(format!("{name}: {grown} MiB"));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
}
