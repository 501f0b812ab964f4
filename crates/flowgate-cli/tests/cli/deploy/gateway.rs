//! Runs a gateway with the configuration of the systemd unit, and compares what it exports and logs with the alerts and
//! the dashboard.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, ChildStderr, Command, Stdio};

use flowgate_gateway::log::LogEvent;
use flowgate_gateway::openapi;
use flowgate_lm::chat::{Completion, Stop, ToolCall};
use flowgate_lm::wire::{AnswerStorage, Api, ONLY_FUNCTIONS, ResponseHead};
use serde_json::{Value, json};

use super::queries::{self, KnownNames};
use super::{InstalledUnit, read, yaml};

/// A statement by which a person is asked about every mail.
const ASK: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send_mail\n";

/// A running gateway, killed on drop.
struct RunningGateway {
    process: Child,
    lines: BufReader<ChildStderr>,
    address: String,
}

impl Drop for RunningGateway {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl RunningGateway {
    /// Starts the gateway of the unit on a free port, and waits until it listens.
    fn start(unit: &InstalledUnit) -> Self {
        let mut words = unit.arguments();
        let listen = words.iter().position(|word| word == "--listen").unwrap();
        words[listen + 1] = "127.0.0.1:0".to_owned();
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(words).env_remove("FLOWGATE_TOKEN").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stderr.take().unwrap());
        let mut gateway = Self { process, lines, address: String::new() };
        let line = gateway.line(|line| line.contains("listening on "));
        let (_, rest) = line.split_once("http://").unwrap();
        gateway.address = rest.split(';').next().unwrap().to_owned();
        gateway
    }

    /// Waits for a line of the standard error.
    fn line(&mut self, is_meant: impl Fn(&str) -> bool) -> String {
        let mut before = String::new();
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the gateway ended: {before}");
            if is_meant(&line) {
                return line;
            }
            before += &line;
        }
    }

    /// Waits for a line of the log, and returns its fields.
    fn logged(&mut self, event: &str) -> Value {
        let line = self.line(|line| line.contains(&format!("\"event\":\"{event}\"")));
        serde_json::from_str(&line).unwrap()
    }

    /// Sends a request with a key. Returns the status and the body.
    fn send(&self, method: &str, path: &str, key: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// Starts a double of a model, which sends a mail. Returns its address.
fn model() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let call = ToolCall {
        id: "x1".to_owned(),
        name: "send_mail".to_owned(),
        arguments: r#"{"to": "ann", "body": "hello"}"#.to_owned(),
    };
    let completion = Completion { stop: Stop::Calls, calls: vec![call], ..Completion::default() };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 0 && !line.trim().is_empty() {
                let lower = line.to_ascii_lowercase();
                if let Some(value) = lower.strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            let request: Value = serde_json::from_slice(&body).unwrap();
            let head = ResponseHead {
                id: "r",
                model: "double",
                created: 0,
                tools: &ONLY_FUNCTIONS,
                storage: AnswerStorage::NotStored,
            };
            let (kind, text) = if request["stream"] == true {
                let events = Api::ChatCompletions.encode_stream(&completion, head, false);
                ("text/event-stream", events.iter().map(|event| event.encode()).collect())
            } else {
                ("application/json", Api::ChatCompletions.encode_response(&completion, head).to_string())
            };
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n", text.len());
            let _ = stream.get_mut().write_all(format!("{head}connection: close\r\n\r\n{text}").as_bytes());
        }
    });
    url
}

/// Returns the labels of the metrics in a text of Prometheus, by the name of the metric.
fn metrics(text: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut labels: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = line.split_at(line.find([' ', '{']).unwrap());
        let named = labels.entry(name.to_owned()).or_default();
        // A name of a label ends before `="`, and begins after a brace or a comma.
        let mut parts: Vec<&str> = rest.split("=\"").collect();
        parts.pop();
        named.extend(parts.iter().filter_map(|part| part.rsplit(['{', ',']).next()).map(str::to_owned));
    }
    labels
}

/// Adds the fields of a line to those of its log.
fn add_fields(known: &mut KnownNames, job: &str, line: &Value) {
    let fields = line.as_object().unwrap().keys().cloned();
    known.labels.entry(job.to_owned()).or_default().extend(fields);
}

/// Runs the gateway of the unit through a turn that asks, an answer, a refused request and a limit that is reached, and returns the
/// names and values of its metrics, its log and its audit log.
fn known_names() -> KnownNames {
    let unit = InstalledUnit::new("metrics");
    let configuration = read("deploy/gateway.toml").replace("https://api.openai.com/v1", &model());
    let (before, after) = configuration.split_once("pinned = ").unwrap();
    unit.configure(&format!(
        "{before}requests-per-minute = 2\ntokens-per-day = 100000\npinned = {after}\n[approvals]\nwait-seconds = 0\n\
         [clients.tools]\nkey-file = \"tools.key\"\npolicy = \"policy.flow\"\nmcp = [\"bank\"]\n\
         [mcp.bank]\nurl = \"http://127.0.0.1:1/mcp\"\n"
    ));
    std::fs::write(unit.folder.join("tools.key"), "key-of-tools-0123456789").unwrap();
    let policy = unit.folder.join("policy.flow");
    std::fs::write(&policy, std::fs::read_to_string(&policy).unwrap() + ASK).unwrap();
    let mut gateway = RunningGateway::start(&unit);
    let key = |name: &str| format!("key-of-{name}-0123456789");
    // The probes need no key.
    for path in ["/health", "/api/openapi.json"] {
        assert_eq!(gateway.send("GET", path, "none", "").0, 200, "{path}");
    }
    let body = json!({
        "model": "double",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Mail ann.", "flowgate": {"source": "typed"}}]}],
        "tools": [{"type": "function", "function": {"name": "send_mail", "parameters": {"type": "object", "properties": {}}}}],
    });
    let turn = gateway.send("POST", "/v1/chat/completions", &key("assistant"), &body.to_string());
    assert_eq!(turn.0, 200, "{}", turn.1);
    let mut known = KnownNames::default();
    let turn = gateway.logged("turn");
    assert_eq!((&turn["asked"], &turn["questions"]), (&json!(1), &json!(1)), "{turn}");
    add_fields(&mut known, "flowgate", &turn);
    assert_eq!(gateway.send("POST", "/v1/chat/completions", &key("assistant"), "no JSON").0, 400);
    add_fields(&mut known, "flowgate", &gateway.logged("refused"));
    assert_eq!(gateway.send("POST", "/v1/chat/completions", &key("assistant"), &body.to_string()).0, 429);
    add_fields(&mut known, "flowgate", &gateway.logged("limit"));

    // A call of a server is timed, also if the server does not answer.
    let call =
        r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pay", "arguments": {}}}"#;
    let called = gateway.send("POST", "/mcp/bank", &key("tools"), call);
    assert!(called.1.contains("jsonrpc"), "{called:?}");

    let (_, questions) = gateway.send("GET", "/api/v1/approvals", &key("ann"), "");
    let question = serde_json::from_str::<Value>(&questions).unwrap()["questions"][0].clone();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let decision = json!({"decision": "deny", "digest": question["digest"]}).to_string();
    assert_eq!(gateway.send("POST", &path, &key("ann"), &decision).0, 200, "{question}");
    let audit = std::fs::read_to_string(unit.folder.join("state/audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    lines.iter().for_each(|line| add_fields(&mut known, "flowgate-audit", line));

    assert_eq!(gateway.send("GET", "/metrics", "none", "").0, 401);
    let (status, exported) = gateway.send("GET", "/metrics", &key("token"), "");
    assert_eq!(status, 200, "{exported}");
    known.labels.extend(metrics(&exported));
    let names = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect::<BTreeSet<_>>();
    let document: Value = serde_json::from_str(openapi::DOCUMENT).unwrap();
    let routes = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let gateway_page = read("docs/gateway.md");
    let (_, limits) = gateway_page.split_once("\n## Limits\n").unwrap();
    let limits = limits.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let events = [
        LogEvent::Turn,
        LogEvent::Exchange,
        LogEvent::Hidden,
        LogEvent::Certificate,
        LogEvent::Configuration,
        LogEvent::Refused,
        LogEvent::Upstream,
        LogEvent::Limit,
        LogEvent::Remark,
        LogEvent::Failure,
    ];
    let kinds = lines.iter().filter_map(|line| line["kind"].as_str()).collect();
    known.values = BTreeMap::from([
        ("route", names(routes)),
        ("limit", names(limits)),
        ("event", names(events.into_iter().map(LogEvent::name).collect())),
        ("kind", names(kinds)),
        ("level", names(vec!["info", "warn", "error"])),
    ]);
    known
}

/// Returns the metrics without the parts that a histogram has.
fn families<'n>(names: impl Iterator<Item = &'n String>) -> BTreeSet<&'n str> {
    let metrics = names.filter(|name| name.starts_with("flowgate_"));
    metrics
        .map(|name| {
            let parts = ["_bucket", "_sum", "_count"];
            parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name)
        })
        .collect()
}

/// The dashboard and the alerts name only what the gateway exports and logs, and the dashboard shows every metric.
#[test]
fn alerts_and_panels_use_what_the_gateway_exports() {
    let known = known_names();
    let alerts = yaml::documents(&read("deploy/prometheus-alerts.yml"));
    let rules = alerts[0]["groups"][0]["rules"].as_array().unwrap();
    let page = read("docs/operations.md");
    let (_, table) = page.split_once("\n| alert |").unwrap();
    let table = table.split("\n\n").next().unwrap();
    let mut described: BTreeSet<&str> =
        table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        let used = queries::check(rule["expr"].as_str().unwrap(), &known, false);
        let used = used.unwrap_or_else(|error| panic!("{name}: {error}"));
        let summary = rule["annotations"]["summary"].as_str().unwrap();
        assert_eq!(used.missing_label(summary), None, "{name}: {summary}");
        assert!(described.remove(name), "docs/operations.md does not describe {name}");
    }
    assert!(described.is_empty(), "there are no alerts {described:?}");

    let dashboard: Value = serde_json::from_str(&read("deploy/grafana-dashboard.json")).unwrap();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let sources: BTreeMap<String, &str> = variables
        .iter()
        .map(|one| (format!("${{{}}}", one["name"].as_str().unwrap()), one["query"].as_str().unwrap()))
        .collect();
    let (mut ids, mut shown) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: the number occurs twice");
        if panel["type"] == "row" {
            continue;
        }
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let source = sources[target["datasource"]["uid"].as_str().unwrap()];
            assert_eq!(target["datasource"]["type"], source, "{title}");
            let used = queries::check(target["expr"].as_str().unwrap(), &known, source == "loki");
            let used = used.unwrap_or_else(|error| panic!("{title}: {error}"));
            let legend = target["legendFormat"].as_str().unwrap_or_default();
            assert_eq!(used.missing_label(legend), None, "{title}: {legend}");
            shown.extend(used.sources);
        }
    }
    assert_eq!(families(shown.iter()), families(known.labels.keys()), "the metrics that the dashboard shows");
}

/// `systemctl reload` sends SIGHUP: a changed policy is then in force, and a broken one is not.
#[cfg(unix)]
#[test]
fn a_hangup_reloads_the_policies() {
    let unit = InstalledUnit::new("reload");
    unit.configure(&read("deploy/gateway.toml").replace("https://api.openai.com/v1", &model()));
    let policy = unit.folder.join("policy.flow");
    let text = std::fs::read_to_string(&policy).unwrap();
    let mut gateway = RunningGateway::start(&unit);
    let hangup = |gateway: &RunningGateway| {
        let id = gateway.process.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    };
    std::fs::write(&policy, "label nonsense").unwrap();
    hangup(&gateway);
    let line = gateway.line(|line| line.contains("was not reloaded"));
    assert!(line.contains("policy.flow:1:") && line.contains("the present one stays in force"), "{line}");
    std::fs::write(&policy, text + ASK).unwrap();
    hangup(&gateway);
    let reloaded = gateway.logged("configuration");
    assert_eq!(reloaded["changed"], "assistant", "{reloaded}");
}
