//! Tests of `flowgate approvals` and `flowgate explain --question` against a running gateway, whose agent asks for mails.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::{Value, json};

use crate::program::{DOUBLES, ModelServerDouble, file, folder};

const KEY: &str = "the-key-of-ann-herself";
const AGENT_KEY: &str = "the-key-of-this-agent";
const POLICY: &str = r#"lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
    message.role in ["system", "user"]
label tool as trusted if:
    (tool: Tool)
label out.content as trusted if:
    (out: ToolOutput) is tool:send_mail
require trusted if:
    (call: ToolCall) is tool:send_mail
ask "mails are confirmed" grant conversation if:
    (call: ToolCall) is tool:send_mail
store mail: written by send_mail
"#;
/// A mail that Ann and Bob must both approve.
const DUTY_POLICY: &str = r#"lattice duty: approvers
label message as bottom if:
    (message: Message)
    message.role == "system"
label message as duty("ann", "bob") if:
    (message: Message)
    message.role == "user"
label tool as bottom if:
    (tool: Tool)
label out.content as duty() if:
    (out: ToolOutput) is tool:send_mail
require duty() if:
    (call: ToolCall) is tool:send_mail
store mail: written by send_mail
"#;
const BOB: &str = "the-key-of-bob-the-admin";
const CY: &str = "the-key-of-cy-herself";
/// A call whose body clears the screen of a terminal, if it is printed as it is.
const SEND: &str = r#"send_mail {"to": "eve", "body": "hello\u001b[2J\nallow it"}"#;

/// A running gateway, whose agent has asked some questions; Ann and Cy are approvers, and Bob is an admin.
pub(crate) struct TestGateway {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Drop for TestGateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl TestGateway {
    /// Starts a gateway, and has its agent ask as many questions, each in its own conversation. The model can answer once
    /// more.
    pub(crate) fn asking(name: &str, questions: usize) -> Self {
        Self::asking_under(POLICY, name, questions)
    }

    /// Does the same under this policy.
    fn asking_under(policy: &str, name: &str, questions: usize) -> Self {
        let gateway = Self::start(policy, name, &vec![SEND; questions + 1], "");
        for number in 0..questions {
            gateway.ask(&format!("c{number}"));
        }
        gateway
    }

    /// Starts a gateway whose model follows this script. `settings` are further tables of the configuration, after those of
    /// the client.
    pub(crate) fn start(policy: &str, name: &str, script: &[&str], settings: &str) -> Self {
        let folder = folder(name);
        let model = ModelServerDouble::new(script);
        file(&folder, "policy.flow", policy);
        file(&folder, "person.key", KEY);
        file(&folder, "admin.key", BOB);
        file(&folder, "cy.key", CY);
        file(&folder, "agent.key", AGENT_KEY);
        let config = format!(
            "[upstreams.double]\nurl = \"{}\"\n[clients.agent]\nkey-file = \"agent.key\"\nupstream = \"double\"\npolicy = \"policy.flow\"\n\
             user-messages = \"trust-unmarked-even-if-pasted\"\nmethod = \"everything\"\n{settings}[people.ann]\nkey-file = \"person.key\"\nrole = \"approver\"\n[people.bob]\nkey-file = \"admin.key\"\nrole = \"admin\"\n\
             [people.cy]\nkey-file = \"cy.key\"\nrole = \"approver\"\n\
             [approvals]\nwait-seconds = 0\n[store]\nurl = \"sqlite:gateway.db\"\n",
            model.url
        );
        let config = file(&folder, "gateway.toml", &config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", &config]).env_remove("FLOWGATE_TOKEN");
        command.current_dir(&folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(log.read_line(&mut line).unwrap() > 0, "{said}");
            let found = line.split("listening on ").nth(1).and_then(|rest| rest.split(';').next());
            if let Some(address) = found {
                break address.to_owned();
            }
            said.push_str(&line);
        };
        // The gateway must not wait for a reader of its log.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Self { child, address, folder }
    }

    /// Sends a request of the agent, whose call is asked about.
    fn ask(&self, conversation: &str) {
        self.ask_with(AGENT_KEY, conversation, "200");
    }

    /// Sends this request with a key, and checks the status of the answer.
    pub(crate) fn ask_with(&self, key: &str, conversation: &str, status: &str) {
        let word = json!({"type": "string"});
        let body = json!({
            "model": "m",
            "messages": [{"role": "user", "content": "Mail Eve."}],
            "tools": [{"type": "function", "function": {
                "name": "send_mail", "description": "sends", "parameters": {"type": "object", "properties": {"to": word, "body": word}},
            }}],
        })
        .to_string();
        self.post(
            key,
            "/v1/chat/completions",
            &format!("x-flowgate-conversation: {conversation}\r\n"),
            &body,
            status,
        );
    }

    /// Puts another policy in force, as Bob.
    fn change_policy(&self, policy: &str) {
        file(&self.folder, "policy.flow", policy);
        self.post(BOB, "/api/v1/policies/reload", "", "{}", "200");
    }

    /// Returns the path of a file in the folder of the gateway.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Sends these messages of the agent with these tools, and returns the message of the model.
    pub(crate) fn chat(&self, conversation: &str, messages: &[Value], tools: &Value) -> Value {
        let body = json!({"model": "m", "messages": messages, "tools": tools}).to_string();
        let header = format!("x-flowgate-conversation: {conversation}\r\n");
        let answer = self.post(AGENT_KEY, "/v1/chat/completions", &header, &body, "200");
        let body = answer.split_once("\r\n\r\n").unwrap().1;
        let body: Value = serde_json::from_str(body).unwrap();
        body["choices"][0]["message"].clone()
    }

    /// Sends a body with a key and with these further headers, checks the status of the answer, and returns the answer.
    fn post(&self, key: &str, path: &str, headers: &str, body: &str, status: &str) -> String {
        let host = self.address.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(host).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nAuthorization: Bearer {key}\r\n\
             {headers}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
        answer
    }

    /// Returns a command with the address of the gateway and the key of Ann.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        self.complete(&mut command, words);
        command
    }

    fn complete(&self, command: &mut Command, words: &[&str]) {
        command.args(words).args(["--gateway", &self.address]).current_dir(&self.folder);
        command.env("FLOWGATE_PERSON_KEY", KEY).stdin(Stdio::null());
    }

    /// Runs a command with the key of another person.
    pub(crate) fn run_as(&self, key: &str, words: &[&str]) -> Output {
        self.command(words).env("FLOWGATE_PERSON_KEY", key).output().unwrap()
    }

    pub(crate) fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command at a terminal; `steps` lists the expected outputs and what is typed after them.
    fn at_terminal(&self, words: &[&str], steps: &Value) -> (Option<i32>, String) {
        let mut command = Command::new("python3");
        command.arg(format!("{DOUBLES}/terminal.py")).arg(steps.to_string());
        command.arg(env!("CARGO_BIN_EXE_flowgate")).args(["--color", "never"]);
        self.complete(&mut command, words);
        let output = command.output().unwrap();
        (output.status.code(), text(&output))
    }

    /// Returns the open questions.
    fn open(&self) -> Vec<Value> {
        let output = self.run(&["approvals", "list", "--format", "json"]);
        let listed: Value = serde_json::from_slice(&output.stdout).unwrap();
        listed["questions"].as_array().unwrap().clone()
    }

    fn id(&self) -> String {
        self.open()[0]["id"].as_str().unwrap().to_owned()
    }
}

pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
        .replace("\r\n", "\n")
}

pub(crate) fn check(output: &Output, code: i32, parts: &[&str]) {
    let said = text(output);
    assert_eq!(output.status.code(), Some(code), "{said}");
    for part in parts {
        assert!(said.contains(part), "{part:?} is not in\n{said}");
    }
    assert!(!said.contains('\u{1b}'), "{said:?}");
}

#[test]
fn questions_are_listed_shown_and_explained() {
    let gateway = TestGateway::asking("approvals-shown", 1);
    let id = gateway.id();
    check(
        &gateway.run(&["approvals", "list"]),
        0,
        &[&id, "send_mail  asked by agent, conversation c0", "1 question open"],
    );
    check(&gateway.run(&["approvals", "list", "--state", "denied"]), 0, &["0 questions denied"]);
    let parts = [
        "agent wants to call send_mail",
        "why you are asked:\n  - mails are confirmed",
        "what would be sent:\n",
        "  body:\n    │ hello\\u{1b}[2J\n    │ allow it\n",
        "  to:\n    │ eve\n",
        "you may allow it once, allow equal calls of the conversation, deny it",
    ];
    check(&gateway.run(&["approvals", "show", &id]), 0, &parts);
    let shown = gateway.run(&["approvals", "show", &id, "--format", "json"]);
    let question: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!((&question["state"], &question["call"]["tool"]), (&json!("open"), &json!("send_mail")));
    check(&gateway.run(&["approvals", "show", "../freezes"]), 1, &["there is no question of this id"]);
    // The verdict is in the stored conversation.
    let explained = gateway.run(&["explain", "--question", &id, "--content"]);
    check(&explained, 1, &[parts[1], "the policy asks: mails are confirmed (line 11 of the policy)"]);
    check(&gateway.run(&["explain", "--question", "nothing"]), 2, &["there is no question of this id"]);
    // Under another policy, the gateway has no verdict of the earlier one.
    gateway.change_policy(&format!("{POLICY}# Another one.\n"));
    let explained = gateway.run(&["explain", "--question", &id]);
    check(&explained, 1, &["the gateway shows no verdict of the earlier policy: the audit log has it"]);
}

#[test]
fn what_cannot_be_asked_is_reported() {
    let gateway = TestGateway::asking("approvals-failing", 0);
    let with = |words: &[&str], key: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command
            .args(words)
            .current_dir(&gateway.folder)
            .env_remove("FLOWGATE_PERSON_KEY")
            .stdin(Stdio::null());
        command.envs(key.map(|key| ("FLOWGATE_PERSON_KEY", key))).output().unwrap()
    };
    let list = |address: &str, key: Option<&str>| with(&["approvals", "list", "--gateway", address], key);
    check(
        &list(&gateway.address, None),
        2,
        &["there is no key of a person: set the environment variable FLOWGATE_PERSON_KEY"],
    );
    check(
        &list(&gateway.address, Some("the-key-of-nobody")),
        1,
        &["the request has no valid key of a person"],
    );
    check(&list(&gateway.address, Some(" ")), 2, &["FLOWGATE_PERSON_KEY: the key is empty"]);
    check(&list("http://127.0.0.1:1", Some(KEY)), 2, &["http://127.0.0.1:1: there is no connection"]);
    check(&list("ftp://here", Some(KEY)), 2, &["`ftp://here` is not the address of a gateway"]);
    check(&list("127.0.0.1:8000", Some(KEY)), 2, &["write it as http://127.0.0.1:8000"]);
    let with_file = ["approvals", "list", "--gateway", &gateway.address, "--key-file", "person.key"];
    check(&with(&with_file, None), 0, &["0 questions open"]);
    check(&with(&with_file, Some(KEY)), 2, &["the key is given twice"]);
    check(
        &with(&["approvals", "watch", "--gateway", &gateway.address], Some("the-key-of-nobody")),
        1,
        &["no valid key"],
    );
    check(
        &with(&["approvals", "watch", "--gateway", "http://127.0.0.1:1"], Some(KEY)),
        2,
        &["there is no connection"],
    );
    check(&with(&["explain", "--question", "q", "x.flow"], Some(KEY)), 2, &["cannot be used with"]);
    check(&with(&["explain", "x.flow"], None), 2, &["required"]);
}

/// Nothing is allowed unseen: at the terminal, a person confirms what is shown; a program names the digest of it.
#[test]
fn a_call_is_allowed_after_it_was_shown() {
    let gateway = TestGateway::asking("approvals-allowed", 3);
    let id = gateway.id();
    check(&gateway.run(&["approvals", "allow", &id]), 2, &["nothing is allowed unseen"]);
    check(&gateway.run(&["approvals", "allow", &id, "--digest", "0"]), 1, &["does not match the question"]);
    assert_eq!(gateway.open().len(), 3);

    let ask = "allow this call once? [y/N] ";
    let (code, shown) = gateway.at_terminal(&["approvals", "allow", &id], &json!([[ask, "\n"]]));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("hello\\u{1b}[2J") && shown.contains("nothing is decided"), "{shown}");
    let lasting = ["approvals", "allow", &id, "--lasting", "--days", "3"];
    let (code, shown) = gateway.at_terminal(&lasting, &json!([]));
    assert_eq!(code, Some(1), "{shown}");
    assert!(
        shown.contains("the policy says neither `grant N days` nor `grant always` for this question"),
        "{shown}"
    );
    assert_eq!(gateway.open().len(), 3);
    let (code, shown) = gateway.at_terminal(&["approvals", "allow", &id], &json!([[ask, "y\n"]]));
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("send_mail: allowed, decided by ann"), "{shown}");
    check(&gateway.run(&["approvals", "deny", &id]), 1, &["the question is no longer open"]);
    check(&gateway.run(&["approvals", "list", "--state", "allowed"]), 0, &[&id, "allowed, decided by ann"]);

    // A program that has read the question names its digest.
    let question = &gateway.open()[0];
    let (id, digest) = (question["id"].as_str().unwrap(), question["digest"].as_str().unwrap());
    check(
        &gateway.run(&["approvals", "allow", id, "--conversation", "--digest", digest, "--format", "json"]),
        0,
        &["\"granted\": true", "\"decided_by\": \"ann\""],
    );
    let id = gateway.id();
    check(&gateway.run(&["approvals", "deny", &id]), 0, &["send_mail: denied, decided by ann"]);
    assert_eq!(gateway.open().len(), 0);
}

/// A lasting grant with a sum a day covers other amounts, until the sum of the day is used up.
#[test]
fn a_lasting_grant_has_a_sum_a_day() {
    let policy = POLICY.replace("grant conversation", "grant always")
        + "role call.arguments.body is amount if:\n    (call: ToolCall) is tool:send_mail\n";
    let send = |amount: &str| format!(r#"send_mail {{"to": "eve", "body": "{amount}"}}"#);
    let script = ["20", "30", "1"].map(send);
    let gateway = TestGateway::start(&policy, "approvals-sum", &script.each_ref().map(String::as_str), "");
    gateway.ask("c0");
    let id = gateway.id();
    let shown = "you may allow it once, allow equal calls of the conversation, \
                 allow equal calls from now on (always; a sum a day can limit body), deny it\n";
    check(&gateway.run(&["approvals", "show", &id]), 0, &[shown]);
    let allow = |sum: &'static str| ["approvals", "allow", &id, "--lasting", "--sum-a-day", sum];
    let form = "write the name of an argument and a number, such as `amount=50`";
    check(&gateway.run(&allow("body")), 2, &[form]);
    check(&gateway.run(&["approvals", "allow", &id, "--sum-a-day", "body=50"]), 2, &["--lasting"]);
    let (code, shown) = gateway.at_terminal(&allow("to=50"), &json!([]));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("has no argument `to` that the policy calls an amount"), "{shown}");
    assert!(shown.contains("--sum-a-day can name body"), "{shown}");
    let asks = "until the grant is withdrawn, with any body up to a sum of 50.5 a day? [y/N] ";
    let words = [&allow("body=50.5")[..], &["--days", "0"]].concat();
    let (code, shown) = gateway.at_terminal(&words, &json!([[asks, "y\n"]]));
    assert_eq!(code, Some(0), "{shown}");

    gateway.ask("c1");
    assert_eq!(gateway.open().len(), 0);
    // Only 0.5 is left.
    gateway.ask("c2");
    let question = &gateway.open()[0];
    let (id, digest) = (question["id"].as_str().unwrap(), question["digest"].as_str().unwrap());
    let allow = ["approvals", "allow", id, "--lasting", "--digest", digest, "--sum-a-day"];
    let with = |sum| gateway.run(&[&allow[..], &[sum]].concat());
    check(&with("body=0.5"), 1, &["the amount of this question alone is greater"]);
    check(&with("body=1"), 0, &["send_mail: allowed, decided by ann"]);
    let parts = ["until it is withdrawn; body 50 of 50.5 today\n", "2 grants\n", "  to:\n    │ eve\n"];
    check(&gateway.run(&["approvals", "grants"]), 0, &parts);
}

/// What was allowed for the rest of a conversation is listed and withdrawn; then equal calls are asked about again.
#[test]
fn grants_are_listed_and_withdrawn() {
    let gateway = TestGateway::asking("approvals-grants", 1);
    check(&gateway.run(&["approvals", "grants"]), 0, &["0 grants\n"]);
    let question = &gateway.open()[0];
    let (id, digest) = (question["id"].as_str().unwrap(), question["digest"].as_str().unwrap());
    let allow = ["approvals", "allow", id, "--conversation", "--digest", digest];
    check(&gateway.run(&allow), 0, &["send_mail: allowed, decided by ann"]);
    let listed = gateway.run(&["approvals", "grants", "--format", "json"]);
    let grants: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let grant = grants["grants"][0]["id"].as_str().unwrap();
    let parts = [
        &format!("{grant}  send_mail of agent, allowed by ann\n"),
        ", for the rest of the conversation c0\n",
        "  body:\n    │ hello\\u{1b}[2J\n    │ allow it\n",
        "1 grant\n",
    ];
    check(&gateway.run(&["approvals", "grants"]), 0, &parts);
    check(&gateway.run(&["approvals", "withdraw", "../freezes"]), 1, &["there is no "]);
    check(&gateway.run(&["approvals", "withdraw", grant]), 0, &[&format!("{grant}: withdrawn\n")]);
    check(&gateway.run(&["approvals", "withdraw", grant]), 1, &["there is no "]);
    check(&gateway.run(&["approvals", "grants"]), 0, &["0 grants\n"]);
    // Under another policy, a grant covers nothing.
    gateway.ask("c1");
    let question = &gateway.open()[0];
    let (id, digest) = (question["id"].as_str().unwrap(), question["digest"].as_str().unwrap());
    check(&gateway.run(&["approvals", "allow", id, "--conversation", "--digest", digest]), 0, &[]);
    gateway.change_policy(&format!("{POLICY}# Another one.\n"));
    check(&gateway.run(&["approvals", "grants"]), 0, &["    not in force: the policy or the settings"]);
}

/// A command that runs until it is ended; ended on drop.
struct RunningWatch(Child);

impl Drop for RunningWatch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn questions_are_watched_and_answered() {
    let gateway = TestGateway::asking("approvals-watched", 2);
    // For programs: a line for each open question, and for each that changes.
    let mut command = gateway.command(&["approvals", "watch", "--format", "json"]);
    let mut watch = RunningWatch(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap() };
    let seen = [next(), next()];
    assert!(seen.iter().all(|question| question["state"] == "open"), "{seen:?}");

    // At a terminal, each open question is answered; the second one later.
    let ask = "a allow once, c allow for the conversation, d deny, Enter later: ";
    let steps = json!([[ask, "x\n"], [ask, "d\n"], [ask, "\u{4}"]]);
    let (code, shown) = gateway.at_terminal(&["approvals", "watch"], &steps);
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown.matches("agent wants to call send_mail").count(), 2, "{shown}");
    assert_eq!(gateway.open().len(), 1);
    let denied = next();
    assert_eq!((&denied["state"], &denied["decided_by"]), (&json!("denied"), &json!("ann")));
}

/// A person learns whose approval a question still waits for, and why an approval does not count.
#[test]
fn a_call_of_several_people_says_who_has_approved() {
    let gateway = TestGateway::asking_under(DUTY_POLICY, "approvals-duty", 1);
    let mut command = gateway.command(&["approvals", "watch"]);
    let mut watch = RunningWatch(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(watch.0.stdout.take().unwrap()).lines();
    let mut next = |part: &str| lines.find(|line| line.as_ref().unwrap().contains(part)).unwrap().unwrap();
    let may = next("you may ");
    assert_eq!(may, "you may allow it once, deny it");

    let question = &gateway.open()[0];
    let (id, digest) = (question["id"].as_str().unwrap(), question["digest"].as_str().unwrap());
    let waits = "    waits for the approval of ann, bob\n";
    check(&gateway.run(&["approvals", "list"]), 0, &[waits, "1 question open"]);
    let (show, allow) = (["approvals", "show", id], ["approvals", "allow", id, "--digest", digest]);
    // Cy is none of them.
    let of_cy = ["waits for the approval of ann, bob\n", "your approval does not count; you may deny it\n"];
    check(&gateway.run_as(CY, &show), 0, &of_cy);
    check(&gateway.run_as(CY, &allow), 1, &["needs the approval of `ann`, `bob`, and yours counts for none"]);

    let noted = "send_mail: your approval is noted: approved by bob, waits for the approval of ann\n";
    check(&gateway.run_as(BOB, &allow), 0, &[noted]);
    let waits = "approved by bob, waits for the approval of ann";
    // `watch` prints the approval before the next question.
    gateway.ask("c1");
    assert_eq!(next("send_mail"), format!("send_mail: {waits}"));
    check(&gateway.run(&["approvals", "list"]), 0, &[&format!("    {waits}\n")]);
    check(&gateway.run_as(BOB, &show), 0, &[waits, "you have approved it; you may deny it\n"]);
    check(&gateway.run(&show), 0, &[waits, "\nyou may allow it once, deny it\n"]);
    let again = "you have approved this question already: it waits for the approval of `ann`";
    check(&gateway.run_as(BOB, &allow), 1, &[again]);
    // At a terminal, the objection comes before the person is asked.
    let (code, shown) = gateway.at_terminal(&["approvals", "allow", id, "--lasting"], &json!([]));
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("is answered for one call only"), "{shown}");

    let allowed = "send_mail: allowed, approved by bob, ann";
    check(&gateway.run(&allow), 0, &[allowed]);
    assert_eq!(next("send_mail: "), allowed);
    check(
        &gateway.run(&["approvals", "list", "--state", "allowed"]),
        0,
        &["    allowed, approved by bob, ann\n"],
    );
}

/// The trace of a conversation comes from the running gateway, for the person with the key.
#[test]
fn a_trace_is_exported_from_a_running_gateway() {
    let gateway = TestGateway::asking("approvals-trace", 1);
    // Waits until the turn is stored, which is before the agent has its answer.
    let words = ["trace", "export", "--client", "agent", "--conversation"];
    let exported = gateway.run(&[&words[..], &["c0"]].concat());
    let parameters = "{\"policy_parameters\":{\"tenant\":\"agent\"}}\n";
    check(&exported, 0, &[parameters, "\"content\":\"Mail Eve.\"", "\"name\":\"send_mail\""]);
    let of_files = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["trace", "export", "--config", "gateway.toml", "--client", "agent", "--conversation", "c0"])
        .current_dir(&gateway.folder)
        .output()
        .unwrap();
    check(&of_files, 0, &[parameters, "\"content\":\"Mail Eve.\""]);
    let trace = gateway.folder.join("c0.jsonl");
    std::fs::write(&trace, &exported.stdout).unwrap();
    let read = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["check", "policy.flow", "c0.jsonl"])
        .current_dir(&gateway.folder)
        .output()
        .unwrap();
    check(&read, 0, &["1 run: "]);
    check(
        &gateway.run(&[&words[..], &["nothing"]].concat()),
        1,
        &["error: there is no conversation of this name"],
    );
    check(&gateway.run_as("a-wrong-key", &[&words[..], &["c0"]].concat()), 1, &["error: "]);
    let both = gateway.run(&[&words[..], &["c0", "--config", "gateway.toml"]].concat());
    check(&both, 2, &["cannot be used with"]);
}

/// A login link opens the page once; it is printed for the person with a key, and at the start at a terminal alone.
#[test]
fn a_login_link_is_printed() {
    let gateway = TestGateway::asking("approvals-link", 0);
    let made = gateway.run(&["login-link"]);
    check(&made, 0, &[&format!("{}/ui/#link/", gateway.address)]);
    let link = String::from_utf8(made.stdout).unwrap();
    let token = link.trim().rsplit('/').next().unwrap().to_owned();
    let take = |token: &str| {
        let host = gateway.address.strip_prefix("http://").unwrap();
        let mut stream = std::net::TcpStream::connect(host).unwrap();
        let request = format!(
            "POST /ui/api/session HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nx-flowgate-login-link: {token}\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let answer = take(&token);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"person\":\"ann\""), "{answer}");
    assert!(take(&token).starts_with("HTTP/1.1 401"));
    check(&gateway.run_as("a-wrong-key", &["login-link"]), 1, &["error: "]);

    // The other gateway has a database of its own.
    let config = gateway.folder.join("other.toml");
    let text_of_first = std::fs::read_to_string(gateway.folder.join("gateway.toml")).unwrap();
    std::fs::write(&config, text_of_first.replace("gateway.db", "other.db")).unwrap();
    let serve = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
        command.args(["serve", "--listen", "127.0.0.1:0", "--config", config.to_str().unwrap()]).args(more);
        command.current_dir(&gateway.folder).stdin(Stdio::null()).env_remove("FLOWGATE_TOKEN");
        command.output().unwrap()
    };
    check(&serve(&["--login-link", "eve"]), 2, &["other.toml: --login-link: there is no `[people.eve]`"]);
    check(
        &serve(&["--login-link", "ann"]),
        2,
        &["--login-link: the standard error is not a terminal, so the link would be kept in a log"],
    );
    // At a terminal: one line, once. Ctrl-C ends the gateway then.
    let mut command = Command::new("python3");
    command.arg(format!("{DOUBLES}/terminal.py")).arg(json!([["/ui/#link/", "\u{3}"]]).to_string());
    command.args([env!("CARGO_BIN_EXE_flowgate"), "--color", "never", "serve", "--listen", "127.0.0.1:0"]);
    command.args(["--config", config.to_str().unwrap(), "--login-link", "ann"]);
    let output = command.current_dir(&gateway.folder).stdin(Stdio::null()).output().unwrap();
    check(&output, 0, &["note: login link of ann, for one login within five minutes: http://127.0.0.1:"]);
    let said = text(&output);
    let token = said.split("/ui/#link/").nth(1).unwrap().get(..64).unwrap().to_owned();
    assert_eq!(said.matches(&token).count(), 1, "{said}");
}
