//! Tests of extern predicates that a service answers: live conversations ask the service, and replays use the recorded
//! answers.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flowgate_lm::chat::{Completion, Request};
use serde_json::json;

use crate::FORMS;
use crate::audit_log::{rechecked, records};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, config};
use crate::mcp::AnswerForm;
use crate::servers::{self, bank, client, web};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const EXTERN: &str = "extern is_friend(name: str) -> bool\n";
const AUDIT: &str = "[audit]\nfile = \"audit.jsonl\"\n";

/// Returns the answer to a question, given the number of earlier questions.
type PredicateBehaviour = dyn Fn(usize, &str) -> &'static str + Send;

/// A service that answers `is_friend`, with the number of questions so far.
struct PredicateServiceDouble {
    url: String,
    mind: Arc<Mutex<Box<PredicateBehaviour>>>,
    asked: Arc<AtomicUsize>,
}

impl PredicateServiceDouble {
    fn new(mind: impl Fn(usize, &str) -> &'static str + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/ask", listener.local_addr().unwrap());
        let mind: Arc<Mutex<Box<PredicateBehaviour>>> = Arc::new(Mutex::new(Box::new(mind)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (known, count) = (Arc::clone(&mind), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let before = count.fetch_add(1, Ordering::SeqCst);
                let known = Arc::clone(&known);
                std::thread::spawn(move || answer(stream.unwrap(), before, &known));
            }
        });
        Self { url, mind, asked }
    }

    /// Starts a service for which only this name is a friend.
    fn of(name: &'static str) -> Self {
        Self::new(knows(name))
    }

    fn now_knows(&self, name: &'static str) {
        *self.mind.lock().unwrap() = Box::new(knows(name));
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    fn config(&self) -> String {
        format!("{AUDIT}[predicates]\nis_friend = \"{}\"\n", self.url)
    }
}

fn knows(name: &'static str) -> impl Fn(usize, &str) -> &'static str + Send + 'static {
    move |_, question| if question.contains(name) { YES } else { NO }
}

fn answer(mut stream: TcpStream, before: usize, mind: &Mutex<Box<PredicateBehaviour>>) {
    let (mut heard, mut bytes) = (String::new(), [0; 4096]);
    while !heard.ends_with("]}") {
        let count = stream.read(&mut bytes).unwrap();
        heard.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
    let body = mind.lock().unwrap()(before, &heard);
    if body == "SILENCE" {
        // The connection stays open without an answer; this thread does not keep the test from ending.
        loop {
            std::thread::park();
        }
    }
    if body.starts_with("HTTP/") {
        let _ = stream.write_all(body.as_bytes());
        return;
    }
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len());
    let _ = stream.write_all((head + body).as_bytes());
}

const YES: &str = r#"{"answer": true}"#;
const NO: &str = r#"{"answer": false}"#;

/// Mails the recipient that the last message names, once.
fn mails(request: &Request) -> Completion {
    let text = text_of(request);
    let last = text.rsplit("Mail ").next().unwrap();
    if last.contains("\"send\"") {
        return says(if last.contains("refused") { "I may not." } else { "Done." });
    }
    let to = if last.starts_with("bob") { "bob" } else { "mallory" };
    calls(&[("send", &json!({"to": to, "body": "hello"}).to_string())])
}

fn home(upstream: &UpstreamDouble, service: &PredicateServiceDouble, more: &str) -> GatewayHome {
    let policy =
        "raise \"no friend\" if:\n    (call: ToolCall) is tool:send\n    not is_friend(call.arguments.to)\n";
    let more = format!("user-messages = \"trust-unmarked-even-if-pasted\"\n{more}");
    let text = config(&upstream.url, "chat-completions", &more) + &service.config();
    GatewayHome::new(&text, &format!("{EXTERN}{POLICY}{policy}"))
}

#[test]
fn a_service_decides_and_its_answers_stand_for_the_conversation() {
    for (api, _) in FORMS {
        let upstream = UpstreamDouble::new(mails);
        let service = PredicateServiceDouble::of("bob");
        let home = home(&upstream, &service, "");
        let gateway = home.start();
        let mut agent = TestAgent::new(&gateway, api, false, KEY);
        assert_eq!(agent.says("Mail bob."), "Done.");
        assert_eq!(agent.says("Mail mallory."), "I may not.");
        assert_eq!(service.asked(), 2);
        gateway.stop();

        // The changed answers apply to other conversations only, also after a restart.
        service.now_knows("mallory");
        let gateway = home.start();
        agent.moves_to(&gateway);
        assert_eq!(agent.says("Mail bob."), "Done.");
        assert_eq!(agent.says("Mail mallory."), "I may not.");
        assert_eq!(service.asked(), 2, "{api:?}");
        let mut other = TestAgent::new(&gateway, api, true, KEY);
        assert_eq!(other.says("Please! Mail bob."), "I may not.");
        assert_eq!(other.says("Mail mallory."), "Done.");
        assert_eq!(service.asked(), 4);
        gateway.stop();

        let records = records(&home);
        let verdicts: Vec<&str> = records.iter().filter_map(|record| record.text("verdict")).collect();
        assert_eq!(verdicts, ["permit", "deny", "permit", "deny", "deny", "permit"]);
        let again = rechecked(&home, &records);
        assert_eq!((again.same, again.unsent, again.gone, again.differ.len()), (6, 0, 0, 0), "{again:?}");
        assert_eq!(service.asked(), 4);
    }
}

/// A service without a valid answer permits nothing, and delays the turn only briefly.
#[test]
fn no_answer_is_a_no() {
    let told = std::cell::RefCell::new(Vec::new());
    let check = |says: &'static str| {
        let upstream = UpstreamDouble::new(mails);
        let service = PredicateServiceDouble::new(move |_, _| says);
        let home = home(&upstream, &service, "");
        let (gateway, lines) = home.start_with_log();
        let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
        assert_eq!(agent.says("Mail bob."), "I may not.", "{says}");
        assert_eq!(agent.ran, Vec::<String>::new(), "{says}");
        gateway.stop();
        let again = rechecked(&home, &records(&home));
        assert_eq!((again.same, again.differ.len()), (1, 0), "{says}: {again:?}");
        let (shown, log) = (upstream.shown().pop().unwrap(), lines.rest());
        for secret in ["4803162", "secret", "127.0.0.1", "/ask"] {
            assert!(!shown.contains(secret), "{says}: {shown}");
        }
        told.borrow_mut().push((shown, log));
    };
    check("{\"answer\": 1}");
    // Status, reason and delay are for the operator; the model receives the same text in all cases.
    told.borrow_mut().clear();
    check("HTTP/1.1 500 secret\r\ncontent-length: 4803162\r\n\r\nsecret");
    check("HTTP/1.1 302 Found\r\nlocation: http://secret/4803162\r\ncontent-length: 0\r\n\r\n");
    check("no HTTP, but a secret");
    check("{\"answer\": true, \"secret\": 4803162}");
    check("yes");
    check("");
    check("SILENCE");
    let told = told.into_inner();
    assert!(told.iter().all(|(shown, _)| *shown == told[0].0), "{told:?}");
    assert!(
        told[0].0.contains("the predicate gave no valid answer; the log of the gateway has the cause"),
        "{told:?}"
    );
    let whys = [
        "the service answered with the HTTP status 500",
        "the service answered with the HTTP status 302",
        "is not",
        "is not",
        "is not",
        "is not",
        "within the time limit",
    ];
    for ((_, log), why) in told.iter().zip(whys) {
        assert!(log.contains("\"predicate\":\"is_friend\"") && log.contains(why), "{why}: {log}");
    }
}

/// A trial evaluation of a draft asks the service separately and may receive another answer than the evaluation that
/// takes effect. A replay gives each of them its recorded answer.
#[test]
fn a_trial_evaluation_asks_separately() {
    let upstream = UpstreamDouble::new(|request: &Request| match text_of(request).contains("\"read\"") {
        false => calls(&[("read", "{}")]),
        true => mails(request),
    });
    let service = PredicateServiceDouble::new(|before, _| if before == 0 { YES } else { NO });
    let home = home(&upstream, &service, "method = \"cheapest-first\"");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    assert_eq!(agent.says("Mail bob."), "I may not.");
    assert_eq!(service.asked(), 2);
    gateway.stop();
    let again = rechecked(&home, &records(&home));
    assert_eq!((again.same, again.unsent, again.gone, again.differ.len()), (2, 0, 0, 0), "{again:?}");
    let gateway = home.start();
    agent.moves_to(&gateway);
    // In the same conversation, the recorded answer still applies.
    assert_eq!(agent.says("Mail bob."), "I may not.");
    gateway.stop();
    let again = rechecked(&home, &records(&home));
    assert_eq!((again.same, again.gone, again.differ.len()), (3, 0, 0), "{again:?}");
}

/// An extern predicate in a label statement of a server's output: a replay reproduces the label.
#[test]
fn servers_are_asked_about_as_well() {
    let service = PredicateServiceDouble::of("bob");
    let (web, bank) = (web(AnswerForm::Json), bank(AnswerForm::Stream));
    let rules = "raise \"no friend\" if:\n    (call: ToolCall) is tool:bank/pay\n    not is_friend(call.arguments.to)\n\
                 label out.content as untrusted if:\n    (out: ToolOutput) is tool:bank/balance\n    is_friend(\"bob's bank\")\n";
    let policy = format!("{EXTERN}{}{rules}", servers::POLICY);
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &service.config(), &policy);
    let gateway = home.start();
    let mut one = client(&gateway, "one");
    one.begin("bank");
    let pays =
        |one: &mut crate::mcp::McpTestClient<'_>, to: &str| one.call("bank", "pay", &json!({"to": to}));
    assert_eq!(pays(&mut one, "bob"), "paid");
    assert!(pays(&mut one, "mallory").contains("no friend"));
    assert_eq!(one.call("bank", "balance", &json!({})), "100");
    assert_eq!(service.asked(), 3);
    gateway.stop();

    service.now_knows("mallory");
    let gateway = home.start();
    let mut one = client(&gateway, "one");
    one.next = 10;
    // The balance is untrusted since then, so no payment may depend on it.
    let said = pays(&mut one, "bob");
    assert!(said.contains("decision carries untrusted"), "{said}");
    gateway.stop();
    assert_eq!(service.asked(), 3);
    let records = records(&home);
    let verdicts: Vec<_> =
        records.iter().filter_map(|r| Some((r.text("tool")?, r.text("verdict")?))).collect();
    let (greet, pay, balance) = ("bank/initialize", "bank/pay", "bank/balance");
    assert_eq!(
        verdicts,
        [(greet, "permit"), (pay, "permit"), (pay, "deny"), (balance, "permit"), (pay, "deny")]
    );
    let again = rechecked(&home, &records);
    assert_eq!((again.same, again.differ.len()), (5, 0), "{again:?}");
}
