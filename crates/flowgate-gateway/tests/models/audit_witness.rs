//! Tests of witnesses of the audit log: the heads that they receive, the losses that they detect, and the effect of
//! failed deliveries.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use flowgate_audit::{
    AuditLoss, LogExpectations, LogSummary, VerifyError, VerifyErrorKind, WitnessLine, WitnessRecord, verify,
};
use flowgate_gateway::recorder::accept_loss;
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config, until};
use crate::gullible;
use crate::servers::PEOPLE;
use crate::upstream::{UpstreamDouble, says};

const TRUSTED: &str = "user-messages = \"trust-unmarked-even-if-pasted\"";
const FILE: &str = "[audit]\nfile = \"audit.jsonl\"\n[audit.witness]\nfile = \"elsewhere/heads.jsonl\"\n";

fn home(upstream: &UpstreamDouble, more: &str) -> GatewayHome {
    let home = GatewayHome::new(&(config(&upstream.url, "chat-completions", TRUSTED) + more), POLICY);
    fs::create_dir(home.folder().join("elsewhere")).unwrap();
    home
}

fn work(home: &GatewayHome, conversations: usize) {
    let gateway = home.start();
    for number in 0..conversations {
        TestAgent::new(&gateway, FORMS[number % 3].0, false, KEY).says("Mail the page to Bob.");
    }
    gateway.stop();
}

fn heads(home: &GatewayHome) -> PathBuf {
    home.folder().join("elsewhere/heads.jsonl")
}

fn witness(path: &Path) -> WitnessRecord {
    WitnessRecord::read(BufReader::new(File::open(path).unwrap())).unwrap()
}

fn verified(home: &GatewayHome, witness: Option<&WitnessRecord>) -> Result<LogSummary, VerifyError> {
    let log = File::open(home.folder().join("audit.jsonl")).unwrap();
    verify(&mut BufReader::new(log), &LogExpectations { witness, ..LogExpectations::default() }, None)
}

/// Returns the files of the database and the log.
fn kept(home: &GatewayHome) -> Vec<(PathBuf, Vec<u8>)> {
    let files = fs::read_dir(home.folder()).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.is_file()).map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Restores these files.
fn put_back(home: &GatewayHome, files: &[(PathBuf, Vec<u8>)]) {
    // A file that is overwritten keeps its mode.
    let is_gone = |path: &PathBuf| files.iter().all(|(kept, _)| kept != path);
    for (path, _) in kept(home).into_iter().filter(|(path, _)| is_gone(path)) {
        fs::remove_file(path).unwrap();
    }
    for (path, bytes) in files {
        fs::write(path, bytes).unwrap();
    }
}

/// A log and a database that are restored together are consistent; only a witness of a later head detects it. The
/// gateway does not start until an operator accepts the loss.
#[test]
fn a_log_and_a_database_that_are_put_back_together_are_noticed() {
    let upstream = UpstreamDouble::new(gullible);
    for is_witnessed in [true, false] {
        let audit = if is_witnessed { FILE } else { "[audit]\nfile = \"audit.jsonl\"\n" };
        let mut home = home(&upstream, audit);
        work(&home, 2);
        if home.file().is_none() {
            // With PostgreSQL, the database is not in the folder.
            return;
        }
        let before = kept(&home);
        work(&home, 2);
        put_back(&home, &before);
        // The log is valid by itself.
        verified(&home, None).unwrap();
        if !is_witnessed {
            work(&home, 1);
            continue;
        }
        let knows = witness(&heads(&home));
        assert!(knows.rejected_lines().is_empty() && knows.partial_lines() == 0);
        let problem = verified(&home, Some(&knows)).unwrap_err();
        assert!(matches!(problem.what, VerifyErrorKind::Unseen(_)), "{problem}");
        let told = fs::read_to_string(heads(&home)).unwrap();
        let error = home.try_start().err().unwrap_or_default();
        assert!(
            error.contains("the witness has received line") && error.contains("audit accept-loss"),
            "{error}"
        );
        assert_eq!(fs::read_to_string(heads(&home)).unwrap(), told);

        // The loss is detected also if the log and the database were deleted.
        put_back(&home, &before);
        let key = home.folder().join("audit.key");
        put_back(
            &home,
            &before
                .iter()
                .filter(|(path, _)| {
                    !path.to_string_lossy().contains("flowgate.db") && !path.ends_with("audit.jsonl")
                })
                .cloned()
                .collect::<Vec<_>>(),
        );
        let error = home.try_start().err().unwrap_or_default();
        assert!(
            error.contains("the witness has received line") && error.contains("this log has 0 lines"),
            "{error}"
        );
        assert!(key.exists());

        // After the loss was accepted, the log is continued; the log and the witness record that, and the lost lines
        // are no longer expected.
        put_back(&home, &before);
        let lines = verified(&home, None).unwrap().lines;
        let loss = accept_loss(home.read(), "who has the key").unwrap();
        assert!(matches!(loss, Some(AuditLoss::Witness { lines: found, .. }) if found == lines), "{loss:?}");
        let log = fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
        assert!(log.contains("\"what\":\"log behind its witness\""), "{log}");
        assert_eq!(accept_loss(home.read(), "who has the key").unwrap(), None);
        work(&home, 1);
        let knows = witness(&heads(&home));
        let summary = verified(&home, Some(&knows)).unwrap();
        assert_eq!(summary.witnessed.unwrap().1, summary.end);
        assert_eq!(
            knows.accepted_losses(summary.key).map(|(log, since, _)| (log, since)).collect::<Vec<_>>(),
            [(summary.id, lines)]
        );
        // Without a witness, the loss is not detected.
        put_back(&home, &before);
        home.edit("[audit.witness]\nfile = \"elsewhere/heads.jsonl\"\n", "");
        work(&home, 1);
    }
}

/// Two gateways share a witness's file, and each is compared with the heads of its own log.
#[test]
fn two_gateways_have_one_witness() {
    let upstream = UpstreamDouble::new(gullible);
    let (one, mut other) = (home(&upstream, FILE), home(&upstream, FILE));
    let shared = one.folder().join("elsewhere/heads.jsonl");
    other.edit("elsewhere/heads.jsonl", &shared.display().to_string());
    let gateways = [one.start(), other.start()];
    for number in 0..6 {
        let mut agent = TestAgent::new(&gateways[number % 2], FORMS[number % 3].0, false, KEY);
        agent.says("Mail the page to Bob.");
    }
    gateways.into_iter().for_each(TestGateway::stop);
    let knows = witness(&shared);
    for home in [&one, &other] {
        let summary = verified(home, Some(&knows)).unwrap();
        assert_eq!(summary.witnessed.unwrap().1, summary.end);
        work(home, 1);
        let names: Vec<_> = knows.signed_by(summary.key).map(|(log, _)| log).collect();
        assert_eq!(names, [summary.id]);
    }
    // A loss of one log does not concern the other one.
    if one.file().is_some() {
        let before = kept(&one);
        work(&one, 1);
        put_back(&one, &before);
        assert!(one.try_start().err().unwrap_or_default().contains("the witness has received line"));
    }
    work(&other, 1);
}

/// A server that receives heads, with a configurable status.
struct HeadListener {
    url: String,
    heard: Arc<Mutex<Vec<(String, String)>>>,
    status: Arc<AtomicU16>,
}

impl HeadListener {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/heads", listener.local_addr().unwrap());
        let (heard, status): (Arc<Mutex<Vec<_>>>, _) = (Arc::default(), Arc::new(AtomicU16::new(204)));
        let (told, says) = (Arc::clone(&heard), Arc::clone(&status));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                let (mut length, mut key, mut line) = (0, String::new(), String::new());
                while reader.read_line(&mut line).unwrap_or(0) > 0 && !line.trim().is_empty() {
                    let lower = line.to_ascii_lowercase();
                    if let Some(value) = lower.strip_prefix("content-length:") {
                        length = value.trim().parse().unwrap();
                    }
                    if let Some(value) = lower.strip_prefix("authorization:") {
                        value.trim().clone_into(&mut key);
                    }
                    line.clear();
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                let status = says.load(Ordering::SeqCst);
                if status == 204 {
                    told.lock().unwrap().push((key, String::from_utf8(body).unwrap()));
                }
                let head = format!("HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
                let _ = stream.write_all(head.as_bytes());
            }
        });
        Self { url, heard, status }
    }

    fn heard(&self) -> Vec<(String, String)> {
        self.heard.lock().unwrap().clone()
    }
}

fn of_url(url: &str, more: &str) -> String {
    format!(
        "{PEOPLE}[audit]\nfile = \"audit.jsonl\"\n[audit.witness]\nurl = \"{url}\"\nkey-from = \"SECRET\"\n{more}"
    )
}

/// A server receives a head at start, after every few lines, and at the end; each is signed and matches the log.
#[test]
fn a_witness_server_receives_heads() {
    let (upstream, listener) = (UpstreamDouble::new(gullible), HeadListener::new());
    let home = home(&upstream, &of_url(&listener.url, "every = 4\n"));
    let gateway = home.start();
    assert!(until(|| !listener.heard().is_empty()), "told at the start");
    let count = |least: usize| until(|| listener.heard().len() >= least);
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail the page to Bob.");
    TestAgent::new(&gateway, FORMS[1].0, false, KEY).says("Mail the page to Bob.");
    assert!(count(2), "told after some lines");
    gateway.stop();
    let heard = listener.heard();
    let lines: String = heard.iter().map(|(_, line)| format!("{line}\n")).collect();
    let knows = WitnessRecord::read(lines.as_bytes()).unwrap();
    assert!(knows.rejected_lines().is_empty(), "{lines}");
    let summary = verified(&home, Some(&knows)).unwrap();
    let last = WitnessLine::read(heard.last().unwrap().1.as_bytes()).unwrap();
    assert_eq!((last.head, last.log, last.key), (summary.end, summary.id, summary.key), "told at the end");
    assert!(heard.iter().all(|(key, _)| key == "bearer secret"), "{heard:?}");
    assert!(!lines.contains("Bob") && !lines.contains("mallory"), "{lines}");
}

fn health(gateway: &TestGateway) -> (u16, Value) {
    let (status, body) = gateway.get("/health", KEY);
    (status, serde_json::from_str(&body).unwrap())
}

fn figure(gateway: &TestGateway, name: &str) -> u64 {
    let (_, figures) = gateway.get("/metrics", KEY);
    let line = figures.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{figures}")).parse().unwrap()
}

fn ask(gateway: &TestGateway) -> (u16, String) {
    let body = json!({"model": "double", "messages": [{"role": "user", "content": "Hello."}]});
    gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {KEY}"))], &body.to_string())
}

/// Failed deliveries are visible in the log, the metrics and `/health`. With `required`, no turn begins, people can
/// still freeze, and turns succeed once deliveries do.
#[test]
fn failed_deliveries_to_a_witness_are_visible() {
    for is_required in [true, false] {
        let (upstream, listener) = (UpstreamDouble::new(|_| says("Done.")), HeadListener::new());
        listener.status.store(500, Ordering::SeqCst);
        let more = if is_required { "required = true\nbehind-lines = 0\n" } else { "" };
        let home = home(&upstream, &of_url(&listener.url, more));
        let (gateway, mut lines) = home.start_with_log();
        let line = lines.next("failure");
        assert_eq!(line["witness"], "witness url", "{line}");
        assert!(line["message"].as_str().unwrap().contains("answered with the HTTP status 500"), "{line}");
        assert!(figure(&gateway, "flowgate_witness_failures_total") > 0);
        assert!(figure(&gateway, "flowgate_witness_behind_lines") > 0);
        let (status, said) = health(&gateway);
        assert_eq!(said["late"], json!(["witness url"]), "{said}");
        let failing = if is_required { json!(["witness url"]) } else { json!([]) };
        assert_eq!((status, &said["failing"]), (if is_required { 503 } else { 200 }, &failing), "{said}");
        let (status, said) = ask(&gateway);
        assert_eq!(status, if is_required { 503 } else { 200 }, "{said}");
        assert_eq!(said.contains("the witness of the audit log is too far behind"), is_required, "{said}");
        assert_eq!(upstream.shown().is_empty(), is_required);
        assert!(!said.contains(&listener.url));
        // Freezes do not wait for a witness.
        let freeze = json!({"kind": "client", "what": "other", "frozen": true});
        assert_eq!(PersonClient(&gateway, "ann").post("/api/v1/freezes", &freeze).0, 200);
        listener.status.store(204, Ordering::SeqCst);
        assert!(until(|| health(&gateway).1["late"] == json!([])));
        assert_eq!((health(&gateway).0, ask(&gateway).0), (200, 200));
        assert!(lines.next("remark")["message"].as_str().unwrap().contains("receives heads again"));
        gateway.stop();
    }
}

/// A required file that cannot be written keeps the gateway from starting; an optional one does not.
#[test]
fn a_required_file_is_there_at_the_start() {
    let upstream = UpstreamDouble::new(|_| says("Done."));
    let mut home = home(&upstream, &(FILE.to_owned() + "required = true\n"));
    home.edit("elsewhere/heads.jsonl", "nowhere/heads.jsonl");
    let error = home.try_start().err().unwrap_or_default();
    assert!(
        error.contains("nowhere/heads.jsonl cannot be read or written") && error.contains("[audit.witness]"),
        "{error}"
    );
    home.edit("required = true\n", "");
    let (gateway, mut lines) = home.start_with_log();
    assert_eq!(lines.next("failure")["witness"], "witness file");
    assert_eq!(ask(&gateway).0, 200);
    gateway.stop();
}

/// A partial line of a killed process and a forged line do not keep a gateway from starting; both are counted.
#[test]
fn lines_of_others_are_found() {
    let upstream = UpstreamDouble::new(gullible);
    let home = home(&upstream, FILE);
    work(&home, 1);
    let text = fs::read_to_string(heads(&home)).unwrap();
    let last = text.lines().last().unwrap();
    let forged = last.replace("\"lines\":", "\"lines\":9");
    fs::write(heads(&home), format!("{text}{forged}\n{}", last.get(..50).unwrap())).unwrap();
    work(&home, 1);
    let knows = witness(&heads(&home));
    assert_eq!(
        (knows.rejected_lines().len(), knows.partial_lines()),
        (1, 1),
        "{}",
        fs::read_to_string(heads(&home)).unwrap()
    );
    let summary = verified(&home, Some(&knows)).unwrap();
    assert_eq!(summary.witnessed.unwrap().1, summary.end);
}
