//! Tests of human decisions over REST: while a request waits or after it has ended, in every API, and across restarts
//! of the gateway.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::FORMS;
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, PATIENCE, POLICY, TestAgent, TestGateway, config, until};
use crate::persisted_turns::tables;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const MAIL: &str = r#"{"to":"bob","body":"hello"}"#;

/// Sends a mail to Bob and reports the outcome.
pub(crate) fn mails(request: &Request) -> Completion {
    if text_of(request).contains("\"send\"") {
        return says(if text_of(request).contains("refused") { "I may not." } else { "Done." });
    }
    calls(&[("read", "{}"), ("send", MAIL)])
}

/// Returns a home in which every mail needs an approval; ann and bob are approvers, vic is a viewer, and ann owns the
/// agent.
pub(crate) fn home(upstream: &UpstreamDouble, wait: u32) -> GatewayHome {
    let people = format!(
        "[people.ann]\nkey-from = \"ann\"\nrole = \"approver\"\n[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n\
         [people.vic]\nkey-from = \"vic\"\nrole = \"viewer\"\n[people.eve]\nkey-from = \"eve\"\nrole = \"approver\"\ntenants = [\"bank\"]\n\
         [approvals]\nwait-seconds = {wait}\n"
    );
    let text = config(
        &upstream.url,
        "chat-completions",
        "user-messages = \"trust-unmarked-even-if-pasted\"\nowner = \"ann\"",
    ) + &people;
    let policy = POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
    GatewayHome::new(&text, &policy)
}

/// A person, as a client of the approval routes.
pub(crate) struct PersonClient<'g>(pub(crate) &'g TestGateway, pub(crate) &'static str);

impl PersonClient<'_> {
    pub(crate) fn key(&self) -> String {
        format!("key-of-the-person-{}", self.1)
    }

    pub(crate) fn open(&self) -> Vec<Value> {
        let (status, body) = self.0.get("/api/v1/approvals", &self.key());
        assert_eq!(status, 200, "{body}");
        serde_json::from_str::<Value>(&body).unwrap()["questions"].as_array().unwrap().clone()
    }

    /// Waits for the first question.
    pub(crate) fn first(&self) -> Value {
        let mut question = Value::Null;
        until(|| {
            question = self.open().pop().unwrap_or_default();
            !question.is_null()
        });
        question
    }

    pub(crate) fn says(&self, question: &Value, decision: &str) -> (u16, String) {
        let body = json!({"decision": decision, "digest": question["digest"]}).to_string();
        let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
        self.0.post(&path, &[("authorization", &format!("Bearer {}", self.key()))], &body)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.0.post(path, &[("authorization", &format!("Bearer {}", self.key()))], &body.to_string())
    }
}

/// A request waits for the decision and then receives the permitted call.
#[test]
fn a_request_waits_for_a_decision() {
    for decision in ["allow", "deny"] {
        for (api, _) in FORMS {
            let upstream = UpstreamDouble::new(mails);
            let gateway = home(&upstream, 20).start();
            let mut agent = TestAgent::new(&gateway, api, true, KEY);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let bob = PersonClient(&gateway, "bob");
                    let question = bob.first();
                    assert_eq!(question["call"]["tool"], "send");
                    assert_eq!(question["call"]["arguments"], serde_json::from_str::<Value>(MAIL).unwrap());
                    assert_eq!(question["call"]["reasons"], json!(["mails are confirmed"]));
                    let summary =
                        "This call of send sends to \"bob\". A rule of the policy asks: mails are confirmed.";
                    assert_eq!(question["call"]["summary"], summary);
                    assert_eq!(bob.says(&question, decision).0, 200);
                });
                let said = agent.says("Mail Bob.");
                let mut ran = vec!["read {}".to_owned()];
                match decision {
                    "allow" => {
                        ran.push(format!("send {MAIL}"));
                        assert_eq!(said, "Done.");
                    }
                    _ => assert_eq!(said, "I may not."),
                }
                assert_eq!(agent.ran, ran, "{api:?} {decision}");
            });
        }
    }
}

/// A conversation that starts over under its name counts its turns from 0 again. An approval in the earlier one does not
/// fit an equal call of the new one.
#[test]
fn an_approval_does_not_fit_a_recreated_conversation() {
    let upstream = UpstreamDouble::new(|_| calls(&[("send", MAIL)]));
    let home = home(&upstream, 0);
    let ask = |gateway: &TestGateway, texts: &[&str]| {
        let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
        let messages: Vec<Value> =
            texts.iter().enumerate().map(|(at, text)| json!({"role": role(at), "content": text})).collect();
        let tools =
            json!([{"type": "function", "function": {"name": "send", "parameters": {"type": "object"}}}]);
        let body = json!({"model": "double", "messages": messages, "tools": tools}).to_string();
        let headers = [("authorization", &*format!("Bearer {KEY}")), ("x-flowgate-conversation", "one")];
        let (status, body) = gateway.post("/v1/chat/completions", &headers, &body);
        assert_eq!(status, 200, "{body}");
        let answer: Value = serde_json::from_str(&body).unwrap();
        let message = &answer["choices"][0]["message"];
        (message["content"].as_str().unwrap_or_default().to_owned(), message.get("tool_calls").is_some())
    };
    let gateway = home.start();
    let (waits, _) = ask(&gateway, &["Mail Bob."]);
    assert!(waits.contains("ay `continue`"), "{waits}");
    let bob = PersonClient(&gateway, "bob");
    let earlier = bob.first();
    assert_eq!(bob.says(&earlier, "allow").0, 200);
    gateway.stop();
    assert_eq!(tables(&home, &["DELETE FROM conversations"]), 1);
    let gateway = home.start();
    let (waits, has_calls) = ask(&gateway, &["Mail Bob."]);
    assert!(waits.contains("ay `continue`") && !has_calls, "{waits}");
    let later = PersonClient(&gateway, "bob").first();
    assert_eq!((&later["turn"], &later["call"]), (&earlier["turn"], &earlier["call"]));
    assert_ne!(later["digest"], earlier["digest"]);
    let (waits, has_calls) = ask(&gateway, &["Mail Bob.", &waits, "continue"]);
    assert!(waits.contains("ay `continue`") && !has_calls, "{waits}");
}

/// While decisions cannot be read, the request waits, and the log says so once.
#[test]
fn a_decision_that_cannot_be_read_is_reported() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, 300);
    let (gateway, mut log) = home.start_with_log();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let bob = PersonClient(&gateway, "bob");
            let question = bob.first();
            tables(&home, &["ALTER TABLE questions RENAME TO questions_elsewhere"]);
            let line = log.next("failure");
            assert_eq!((&line["client"], &line["question"]), (&json!("agent"), &question["id"]), "{line}");
            let message = line["message"].as_str().unwrap();
            assert!(
                message.starts_with("the decision of a question cannot be read, so its call waits: "),
                "{line}"
            );
            // Longer than the gateway waits between two readings.
            std::thread::sleep(Duration::from_secs(2));
            tables(&home, &["ALTER TABLE questions_elsewhere RENAME TO questions"]);
            assert_eq!(bob.says(&question, "allow").0, 200);
        });
        assert_eq!(agent.says("Mail Bob."), "Done.");
    });
    gateway.stop();
    assert_eq!(log.rest().matches("the decision of a question cannot be read").count(), 1);
}

/// The turn ends, the gateway restarts, the question is decided, the gateway restarts again, and a message of the user
/// continues the turn.
#[test]
fn a_turn_continues_after_a_decision() {
    for (api, _) in FORMS {
        for (decision, word) in [("allow", "continue"), ("deny", "continue"), ("allow", "Never mind.")] {
            let upstream = UpstreamDouble::new(mails);
            let home = home(&upstream, 0);
            let gateway = home.start();
            let mut agent = TestAgent::new(&gateway, api, false, KEY);
            let said = agent.says("Mail Bob.");
            assert!(said.contains("say `continue`") || said.contains("Say `continue`"), "{said}");
            // Nothing of the message is released before all of it is judged.
            assert_eq!(agent.ran, Vec::<String>::new());
            gateway.stop();

            let gateway = home.start();
            let bob = PersonClient(&gateway, "bob");
            let question = bob.first();
            assert!(said.contains(question["id"].as_str().unwrap()), "{said}");
            assert_eq!(bob.says(&question, decision).0, 200);
            gateway.stop();

            let gateway = home.start();
            agent.moves_to(&gateway);
            let asked = upstream.shown().len();
            let said = agent.says(word);
            let at = format!("{api:?} {decision} {word}");
            match (decision, word) {
                ("allow", "Never mind.") => assert_eq!(agent.ran.len(), 0, "{at}: {said}"),
                ("allow", _) => {
                    assert_eq!(
                        (agent.ran.as_slice(), said.as_str()),
                        (["read {}".to_owned(), format!("send {MAIL}")].as_slice(), "Done."),
                        "{at}"
                    );
                    // The model is not asked for the call again.
                    assert_eq!(upstream.shown().len(), asked + 1, "{at}");
                }
                _ => assert_eq!(
                    (agent.ran.as_slice(), said.as_str()),
                    (["read {}".to_owned()].as_slice(), "I may not."),
                    "{at}"
                ),
            }
            let (status, body) = gateway.get(
                &format!("/api/v1/approvals/{}", question["id"].as_str().unwrap()),
                "key-of-the-person-bob",
            );
            let state = match (decision, word) {
                ("deny", _) => "denied",
                (_, "Never mind.") => "void",
                _ => "used",
            };
            assert_eq!(
                (status, body.contains(&format!("\"state\":\"{state}\""))),
                (200, true),
                "{at}: {body}"
            );
        }
    }
}

/// Which roles may see, decide and freeze, and which questions cannot be decided.
#[test]
fn a_role_limits_what_a_person_may_do() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let [ann, bob, vic, eve] = ["ann", "bob", "vic", "eve"].map(|name| PersonClient(&gateway, name));
    let question = vic.first();
    let may =
        |person: &PersonClient<'_>| person.open().first().map(|question| question["you_may_decide"].clone());
    assert_eq!(
        [&ann, &bob, &vic, &eve].map(may),
        [Some(json!(false)), Some(json!(true)), Some(json!(false)), None]
    );
    let check = |person: &PersonClient<'_>, question: &Value, status: u16, text: &str| {
        let (got, body) = person.says(question, "allow");
        assert_eq!((got, body.contains(text)), (status, true), "{}: {body}", person.1);
    };
    check(&vic, &question, 403, "this request needs the role approver, but this person has the role viewer");
    check(&ann, &question, 403, "the owner of a client cannot decide its questions");
    check(&eve, &question, 404, "there is no question of this id");
    check(&PersonClient(&gateway, "nobody"), &question, 401, "valid key of a person");
    let mut other = question.clone();
    other["digest"] = json!("00");
    check(&bob, &other, 409, "fetch the question again");
    let (status, body) = bob.post(
        &format!("/api/v1/approvals/{}", question["id"].as_str().unwrap()),
        &json!({"decision": "allow"}),
    );
    assert_eq!((status, body.contains("missing field `digest`")), (400, true), "{body}");
    check(&bob, &question, 200, "\"decided_by\":\"bob\"");
    check(&bob, &question, 409, "you have allowed it already");
    // Keys of clients do not authenticate people, nor vice versa.
    for key in [KEY, OTHER_KEY] {
        assert_eq!(gateway.get("/api/v1/approvals", key).0, 401);
    }
    assert_eq!(gateway.get("/v1/models", "key-of-the-person-bob").0, 401);
    assert_eq!(gateway.get("/api/v1/approvals?state=none", &bob.key()).0, 400);
}

/// A listener receives every question and decision.
#[test]
fn a_listener_receives_questions_and_decisions() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    let listen = |last: Option<&str>| {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let last = last.map(|last| format!("Last-Event-ID: {last}\r\n")).unwrap_or_default();
        let head = "GET /api/v1/approvals/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer key-of-the-person-vic\r\n";
        write!(stream, "{head}{last}\r\n").unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        BufReader::new(stream)
    };
    let next = |lines: &mut BufReader<TcpStream>| {
        let mut id = String::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            if let Some(number) = line.strip_prefix("id: ") {
                id = number.trim().to_owned();
            }
            if let Some(data) = line.strip_prefix("data: ") {
                return (id, serde_json::from_str::<Value>(data).unwrap());
            }
        }
    };
    let mut listener = listen(None);
    // The keep-alive shows that the stream is open.
    let mut line = String::new();
    while !line.contains("still here") {
        line.clear();
        listener.read_line(&mut line).unwrap();
    }
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let (asked, question) = next(&mut listener);
    assert_eq!(question["state"], "open");
    assert_eq!(PersonClient(&gateway, "bob").says(&question, "deny").0, 200);
    assert_eq!(next(&mut listener).1["state"], "denied");
    // A listener that reconnects receives the changes since its last event.
    assert_eq!(next(&mut listen(Some(&asked))).1["state"], "denied");
    assert_eq!(next(&mut listen(Some("0"))).1["state"], "denied");
}

/// A person of another tenant sees nothing of a question: neither in a list, nor by its name, nor as an event.
#[test]
fn a_person_of_another_tenant_sees_no_question() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let question = PersonClient(&gateway, "vic").first();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let heard = |name: &str| {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let head = "GET /api/v1/approvals/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0\r\n";
        write!(stream, "{head}Authorization: Bearer key-of-the-person-{name}\r\n\r\n").unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        let (mut lines, mut text) = (BufReader::new(stream), String::new());
        // Events of the past precede the keep-alive.
        while !text.contains("still here") {
            assert!(lines.read_line(&mut text).unwrap() > 0, "{text}");
        }
        text.contains("data: ")
    };
    for (name, is_theirs) in [("vic", true), ("eve", false)] {
        let person = PersonClient(&gateway, name);
        let (status, body) = gateway.get(&path, &person.key());
        assert_eq!(
            (status, body.contains("hello")),
            if is_theirs { (200, true) } else { (404, false) },
            "{name}"
        );
        assert_eq!((person.open().len(), heard(name)), (usize::from(is_theirs), is_theirs), "{name}");
    }
}

/// Asks a question with these settings of the webhook, and denies it. Returns the requests that the webhook received: the
/// first about the question, and the first after it that differs. A message may be delivered twice.
fn notifications(settings: &str) -> [(String, Value); 2] {
    let hook = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = UpstreamDouble::new(mails);
    let people = format!(
        "[people.bob]\nkey-from = \"bob\"\nrole = \"approver\"\n[approvals]\nwait-seconds = 0\n\
         webhook = \"http://{}/flowgate\"\n{settings}\n",
        hook.local_addr().unwrap()
    );
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
        + &people;
    let policy = POLICY.to_owned() + "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
    let (gateway, log) = GatewayHome::new(&text, &policy).start_with_log();
    let (heard, messages) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for stream in hook.incoming() {
            let (mut stream, mut read, mut buffer) = (stream.unwrap(), Vec::new(), [0; 4096]);
            while !read.ends_with(b"}") {
                let count = stream.read(&mut buffer).unwrap();
                read.extend_from_slice(&buffer[..count]);
            }
            stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").unwrap();
            if heard.send(String::from_utf8(read).unwrap()).is_err() {
                return;
            }
        }
    });
    let next = || {
        let text = messages.recv_timeout(PATIENCE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(!body.contains("hello"), "{body}");
        (head.to_owned(), serde_json::from_str::<Value>(body).unwrap())
    };
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let asked = next();
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    let decided = loop {
        let message = next();
        if message.1 != asked.1 {
            break message;
        }
    };
    gateway.stop();
    // The first message was completed before the second one was sent.
    let log = log.rest();
    assert!(!log.contains("webhook"), "{log}");
    [asked, decided]
}

/// A webhook receives a signed message without content for each question and decision. The log reports nothing if it
/// accepts them.
#[test]
fn a_webhook_receives_questions_and_decisions() {
    let [asked, decided] = notifications("webhook-secret-from = \"SECRET\"");
    for (head, _) in [&asked, &decided] {
        let signature = head.lines().find_map(|line| line.strip_prefix("x-flowgate-signature: ")).unwrap();
        assert!(signature.starts_with("t=1") && signature.contains(",v1="), "{signature}");
    }
    let (asked, decided) = (asked.1, decided.1);
    assert_eq!(
        (&asked["type"], &asked["tool"], &asked["state"]),
        (&json!("question.asked"), &json!("send"), &json!("open"))
    );
    assert_eq!(
        (&decided["type"], &decided["id"], &decided["state"], &decided["decided_by"]),
        (&json!("question.decided"), &asked["id"], &json!("denied"), &json!("bob"))
    );
}

/// The webhooks of chats receive a sentence with a link to the page, in their own form and without a signature.
#[test]
fn a_chat_receives_a_sentence() {
    let page = "page = \"https://gateway.example/ui/\"";
    let link = "https://gateway.example/ui/#questions";
    let [slack, decided] = notifications(&format!("webhook-format = \"slack\"\n{page}"));
    assert!(!slack.0.contains("x-flowgate-signature"), "{}", slack.0);
    let text = slack.1["text"].as_str().unwrap();
    assert!(
        text.starts_with("Flowgate: the call of send by agent waits for a decision (conversation "),
        "{text}"
    );
    assert!(text.ends_with(&format!(" <{link}|Open the page>")), "{text}");
    let text = decided.1["text"].as_str().unwrap();
    assert!(text.contains("was decided by bob: denied"), "{text}");
    let [teams, _] = notifications(&format!("webhook-format = \"teams\"\n{page}"));
    let card = &teams.1["attachments"][0]["content"];
    assert_eq!((&teams.1["type"], &card["type"]), (&json!("message"), &json!("AdaptiveCard")));
    assert!(card["body"][0]["text"].as_str().unwrap().contains("the call of send by agent waits"), "{card}");
    assert_eq!(card["actions"][0]["url"], link);
}

/// If no person may decide, no person is asked: the call does not run, and the log names the missing configuration.
#[test]
fn a_call_that_no_person_may_decide_does_not_run() {
    let upstream = UpstreamDouble::new(mails);
    let mut home = home(&upstream, 20);
    // Ann owns the client, and Eve belongs to another tenant.
    home.edit("role = \"admin\"", "role = \"viewer\"");
    let (gateway, mut log) = home.start_with_log();
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    assert_eq!(agent.says("Mail Bob."), "I may not.");
    assert_eq!(agent.ran, ["read {}"]);
    let line = log.next("remark");
    assert!(
        line["message"].as_str().unwrap().contains("no person is configured who may decide for this client"),
        "{line}"
    );
    assert_eq!(PersonClient(&gateway, "vic").open(), Vec::<Value>::new());
}

/// A request without a person's key is rejected before its body is read.
#[test]
fn the_body_of_a_request_without_a_key_is_not_read() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    for path in
        ["/api/v1/approvals/none", "/api/v1/freezes", "/api/v1/quotations/clear", "/api/v1/audit/forget"]
    {
        let mut stream = TcpStream::connect(gateway.address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: 100\r\n\r\n"
        );
        // The body is never sent.
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        assert!(line.starts_with("HTTP/1.1 401"), "{path}: {line}");
    }
}

/// Sends the request of a named conversation; returns the response.
fn ask(gateway: &TestGateway) -> String {
    let mut stream = send(gateway);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn send(gateway: &TestGateway) -> TcpStream {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object"}}});
    let messages = [json!({"role": "user", "content": "Mail."})];
    let body =
        json!({"model": "double", "messages": messages, "tools": [tool("read"), tool("send")]}).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n\
         X-Flowgate-Conversation: one\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

/// A repeated request of a named conversation returns the status of the same question.
#[test]
fn the_same_request_again_asks_for_the_answer() {
    let upstream = UpstreamDouble::new(mails);
    let gateway = home(&upstream, 0).start();
    for _ in 0..3 {
        assert!(ask(&gateway).contains("a person has to allow"));
    }
    let bob = PersonClient(&gateway, "bob");
    // Only one question was asked.
    let [question] = bob.open().try_into().unwrap();
    assert_eq!(bob.says(&question, "allow").0, 200);
    assert!(ask(&gateway).contains("\"send\""));
    assert_eq!(upstream.shown().len(), 1);
}

/// A question survives the disconnect of its request: the repeated request finds it, and the approval is used once.
#[test]
fn an_answer_is_not_lost_and_not_used_twice() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, 20);
    let gateway = home.start();
    // The client disconnects while the question is open.
    let stream = send(&gateway);
    let question = PersonClient(&gateway, "bob").first();
    drop(stream);
    // The gateway notices the disconnect.
    gateway.waits_for_connections(1);
    // The turn ends shortly after its connection.
    std::thread::sleep(std::time::Duration::from_secs(2));
    assert_eq!(PersonClient(&gateway, "bob").says(&question, "allow").0, 200);
    gateway.stop();
    let gateway = home.start();
    assert!(ask(&gateway).contains("\"send\""), "the answer was lost");
    // The same call is a new question.
    let _waits = send(&gateway);
    let again = PersonClient(&gateway, "bob").first();
    assert_ne!(again["id"], question["id"]);
}

/// Two calls of one message are asked together; the answer to one of them does not apply to the other.
#[test]
fn an_answer_is_for_its_own_question() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("\"send\"") {
        true => says("Done."),
        false => calls(&[("send", MAIL), ("send", r#"{"to":"eve","body":"hello"}"#)]),
    });
    let gateway = home(&upstream, 0).start();
    let bob = PersonClient(&gateway, "bob");
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail both.");
    let open = bob.open();
    let about = |to: &str| open.iter().find(|question| question["call"]["arguments"]["to"] == to).unwrap();
    assert_eq!(open.len(), 2);
    assert_eq!(bob.says(about("bob"), "allow").0, 200);
    agent.says("continue");
    assert_eq!(agent.ran, Vec::<String>::new());
    let second = bob.first();
    assert_eq!(second["id"], about("eve")["id"]);
    // The continued turn uses the first approval; the second call is denied.
    assert_eq!(bob.says(&second, "deny").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(agent.ran, [format!("send {MAIL}")]);
}

/// Two identical calls in succession are one question, which says so; with another call between them, they are two.
#[test]
fn the_same_call_twice_is_one_question() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("\"send\"") {
        true => says("Done."),
        false => calls(&[("send", MAIL), ("send", MAIL)]),
    });
    let gateway = home(&upstream, 0).start();
    let bob = PersonClient(&gateway, "bob");
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail twice.");
    assert_eq!(agent.ran, Vec::<String>::new());
    let question = bob.first();
    assert_eq!((bob.open().len(), &question["call"]["times"]), (1, &json!(2)));
    assert_eq!(bob.says(&question, "allow").0, 200);
    agent.says("continue");
    assert_eq!(agent.ran, [format!("send {MAIL}"), format!("send {MAIL}")]);

    let other = r#"{"to":"eve","body":"hello"}"#;
    let upstream = UpstreamDouble::new(move |request| match text_of(request).contains("\"send\"") {
        true => says("Done."),
        false => calls(&[("send", MAIL), ("send", other), ("send", MAIL)]),
    });
    let gateway = home(&upstream, 0).start();
    let bob = PersonClient(&gateway, "bob");
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail Bob, Eve and Bob.");
    assert_eq!(agent.ran, Vec::<String>::new());
    let questions = bob.open();
    let times = questions.iter().filter_map(|question| question["call"]["times"].as_u64());
    assert_eq!((questions.len(), times.collect::<Vec<_>>()), (2, vec![2]));
    for question in &questions {
        assert_eq!(bob.says(question, "allow").0, 200);
    }
    agent.says("continue");
    assert_eq!(agent.ran, [format!("send {MAIL}"), format!("send {other}"), format!("send {MAIL}")]);
}
