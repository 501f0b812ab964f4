//! What a body takes in memory, against what is accounted for it: nobody makes the gateway take more by many short values.

#![expect(clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

use flowgate_gateway::access::Access;
use flowgate_gateway::ask::Asker;
use flowgate_gateway::limits::{Limits, weight};
use flowgate_gateway::log::Log;
use flowgate_gateway::model_routes::config as file;
use flowgate_gateway::server::{Config, Server};
use serde_json::{Value, json};

/// A figure of this process, in bytes.
fn figure(name: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

/// A gateway whose model cannot be reached.
async fn start(limits: Limits) -> String {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("policy.flow"), "lattice integrity: trusted < untrusted\n").unwrap();
    let text = "[upstreams.one]\nurl = \"http://127.0.0.1:9/v1\"\n[clients.agent]\nkey-from = \"KEY\"\nupstream = \"one\"\n\
                policy = \"policy.flow\"\ninteractive = true\n[store]\nurl = \"memory\"\n";
    let models = file::read(text, &folder, &|_| Some("the-key-of-the-client".to_owned())).unwrap();
    let (listen, dialect) = ("127.0.0.1:0".parse().unwrap(), flowgate::policy::Dialect::Flowgate);
    let (access, asker, log) = (Access::Local, Asker::default(), Log::default());
    let config = Config { listen, dialect, access, asker, models: Some(models), limits, log };
    let server = Server::bind(config).await.unwrap();
    let address = server.address();
    tokio::spawn(server.run(std::future::pending()));
    format!("http://{address}/v1/chat/completions")
}

async fn post(url: &str, body: &str) -> (u16, String) {
    let (url, body) = (url.to_owned(), body.to_owned());
    let ask = move || {
        let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
        let request = agent.post(url).header("content-type", "application/json");
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

/// Bodies in which there are many short values, in each place, and one with a single text.
fn shapes() -> Vec<(&'static str, String)> {
    let user = |content: Value| json!({"role": "user", "content": content});
    let many = |count: usize, one: Value| Value::Array(vec![one; count]);
    let hello = || json!([user("Hello.".into())]);
    let tool = |values: Value| {
        let parameters = json!({"type": "object", "x": values});
        json!([{"type": "function", "function": {"name": "read", "description": "", "parameters": parameters}}])
    };
    let answer = json!({"role": "tool", "tool_call_id": "x", "content": "a"});
    vec![
        ("one text", chat(&json!([user("x ".repeat(500_000).into())]), &Value::Null)),
        ("parts", chat(&json!([user(many(60_000, json!({"type": "text", "text": "a"})))]), &Value::Null)),
        ("messages", chat(&many(50_000, user("a".into())), &Value::Null)),
        ("answers", chat(&many(40_000, answer), &Value::Null)),
        ("numbers in a tool", chat(&hello(), &tool(many(800_000, json!(1))))),
        ("lists in a tool", chat(&hello(), &tool(many(500_000, json!([]))))),
    ]
}

/// What a body takes is no more than what is accounted for it, in whatever it is large. One that would take too much is refused before it is
/// read; one of as many bytes with fewer values is not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_takes_what_is_accounted_for_it() {
    let url = start(Limits { values: 16 << 30, ..Limits::default() }).await;
    post(&url, &chat(&json!([{"role": "user", "content": "Hello."}]), &Value::Null)).await;
    let mut beyond = Vec::new();
    for (name, body) in shapes() {
        let before = figure("VmRSS");
        // The peak is counted from now on.
        std::fs::write("/proc/self/clear_refs", "5").unwrap();
        let (status, text) = post(&url, &body).await;
        assert!(status < 500 || status == 502, "{name}: {status} {text}");
        let (took, accounted) = (figure("VmHWM").saturating_sub(before), weight(body.as_bytes()));
        println!("{name}: {status}, {} bytes, took {took}, accounted {accounted}", body.len());
        if took > accounted + (16 << 20) {
            beyond.push(format!("{name}: {took} bytes for {}, accounted {accounted}", body.len()));
        }
    }
    assert!(beyond.is_empty(), "{beyond:#?}");
    let url = start(Limits { values: 128 << 20, ..Limits::default() }).await;
    for (name, body) in shapes() {
        let (status, text) = post(&url, &body).await;
        let is_refused = status == 413 && text.contains("send fewer and longer messages and parts");
        assert_eq!(is_refused, name != "one text", "{name}: {status} {text}");
    }
}
