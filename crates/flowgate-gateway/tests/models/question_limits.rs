//! Tests of questions to people beyond the bounds: each is reported in the log, in the audit log and to the agent, and
//! no other client is affected.

use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::audit_log::{rechecked, records};
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, TestGateway, config};
use crate::mcp::{AnswerForm, McpTestClient};
use crate::servers;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const ASKS: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";

fn people(limits: &str) -> String {
    format!(
        "[people.ann]\nkey-from = \"ann\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n{limits}\n[audit]\nfile = \"audit.jsonl\"\n"
    )
}

/// Starts a model that sends mails and repeats the text of a refusal, and creates a home for it.
fn mails(upstream_form: &str, limits: &str) -> (UpstreamDouble, GatewayHome) {
    let upstream = UpstreamDouble::new(|request| {
        let shown = text_of(request);
        let refusal = shown.split("refused").nth(1).map(|rest| rest.chars().take(80).collect::<String>());
        match refusal {
            Some(refusal) => says(&format!("It says {refusal}")),
            None => calls(&[("send", r#"{"to":"bob","body":"hello"}"#)]),
        }
    });
    let text = config(&upstream.url, upstream_form, "user-messages = \"trust-unmarked-even-if-pasted\"")
        + &people(limits);
    let home = GatewayHome::new(&text, &(POLICY.to_owned() + ASKS));
    (upstream, home)
}

/// A question beyond the bound of its client is reported.
#[test]
fn a_question_without_room_is_reported() {
    for (api, name) in FORMS {
        let (_upstream, home) = mails(name, "open-questions = 2");
        let (gateway, mut log) = home.start_with_log();
        let mail = |key: &str, number: usize| {
            TestAgent::new(&gateway, api, false, key).says(&format!("Mail Bob, {number}."))
        };
        for number in 0..2 {
            assert!(mail(KEY, number).contains("a person has to allow"), "{number}");
        }
        let said = mail(KEY, 2);
        assert!(said.contains("no person was asked, because there were too many questions"), "{said}");
        let line = log.next("limit");
        assert_eq!(
            (&line["setting"], &line["most"], &line["client"]),
            (&json!("[approvals] open-questions"), &json!(2), &json!("agent"))
        );
        // The bound applies to each client, and a decision makes room.
        assert!(mail(OTHER_KEY, 3).contains("a person has to allow"));
        let ann = PersonClient(&gateway, "ann");
        assert_eq!(ann.says(&ann.first(), "deny").0, 200);
        let own = ann.open().iter().find(|question| question["client"] == "agent").cloned().unwrap();
        assert_eq!(ann.says(&own, "deny").0, 200);
        assert!(mail(KEY, 4).contains("a person has to allow"));
        gateway.stop();
        assert_eq!(unasked(&home), [json!(["agent", "send", "too many open questions of one client: 2"])]);
    }
}

/// The questions of one conversation do not take the room of another one of the same client.
#[test]
fn one_conversation_does_not_starve_the_others() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let policy = servers::POLICY.to_owned() + servers::ASKS;
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &people(""), &policy);
    let (gateway, mut log) = home.start_with_log();
    let mut stranger = servers::client(&gateway, "stranger");
    stranger.begin("bank");
    let mut honest = servers::client(&gateway, "honest");
    honest.begin("bank");
    let mut refused = 0;
    for number in 0..25 {
        let said = stranger.call("bank", "pay", &json!({"to": format!("mallory {number}")}));
        let is_refused = said.contains("no person was asked, because there were too many questions");
        assert!(is_refused || said.contains("nobody has answered yet"), "{said}");
        refused += usize::from(is_refused);
    }
    assert_eq!(refused, 5);
    let line = log.next("limit");
    assert_eq!(
        (&line["setting"], &line["conversation"]),
        (&json!("[approvals] open-questions-of-conversation"), &json!("stranger"))
    );
    assert!(honest.call("bank", "pay", &json!({"to": "bob"})).contains("nobody has answered yet"));
    // A repeated call finds its existing question.
    assert!(stranger.call("bank", "pay", &json!({"to": "mallory 1"})).contains("nobody has answered yet"));
    gateway.stop();
    let records = records(&home);
    assert_eq!(records.iter().filter(|record| record.kind.name() == "unasked").count(), 5);
}

/// The list of questions is bounded for each client, and the remaining ones are counted.
#[test]
fn a_client_with_many_questions_hides_no_others() {
    let (_upstream, home) = mails(FORMS[0].1, "");
    let gateway = home.start();
    let mail = |key: &str, number: usize| {
        let said = TestAgent::new(&gateway, FORMS[0].0, false, key).says(&format!("Mail Bob, {number}."));
        assert!(said.contains("a person has to allow"), "{said}");
    };
    mail(OTHER_KEY, 0);
    (1..=205).for_each(|number| mail(KEY, number));
    let (status, body) = gateway.get("/api/v1/approvals", "key-of-the-person-ann");
    let body: Value = serde_json::from_str(&body).unwrap();
    let of = |client: &str| {
        let questions = body["questions"].as_array().unwrap();
        questions.iter().filter(|question| question["client"] == client).count()
    };
    assert_eq!((status, of("other"), of("agent"), &body["left_out"]), (200, 1, 199, &json!(6)));
}

/// Returns the audit records of calls that nobody was asked about: the client, the tool and the cause of each.
fn unasked(home: &GatewayHome) -> Vec<Value> {
    records(home)
        .iter()
        .filter(|record| record.kind.name() == "unasked")
        .map(|record| json!([record.object["client"], record.object["tool"], record.object["cause"]]))
        .collect()
}

/// A limit on what people have been asked, and what is done to reach it: whether each question is denied, and whether
/// all of them are of one conversation.
struct ReachedLimit {
    settings: &'static str,
    setting: &'static str,
    what: &'static str,
    /// `allow` or `deny` for each question before the limit is reached.
    decisions: &'static [&'static str],
    is_one_conversation: bool,
}

/// When a conversation or a client has asked too much, or people have refused too much in a row, the agent gets a
/// refusal, the log a line, and the audit log a record, and nobody sees a question. That survives a restart.
#[test]
fn a_flood_of_questions_gets_refusals_and_an_alarm() {
    let rows = [
        ReachedLimit {
            settings: "questions-an-hour-of-conversation = 3",
            setting: "[approvals] questions-an-hour-of-conversation",
            what: "questions of one conversation in an hour",
            decisions: &["allow", "deny", "allow"],
            is_one_conversation: true,
        },
        ReachedLimit {
            settings: "questions-an-hour = 2",
            setting: "[approvals] questions-an-hour",
            what: "questions of one client in an hour",
            decisions: &["allow", "deny"],
            is_one_conversation: false,
        },
        ReachedLimit {
            settings: "questions-of-conversation = 2",
            setting: "[approvals] questions-of-conversation",
            what: "questions of one conversation",
            decisions: &["allow", "allow"],
            is_one_conversation: true,
        },
        ReachedLimit {
            settings: "",
            setting: "[approvals] refusals-in-a-row-of-conversation",
            what: "refused questions of one conversation in a row",
            decisions: &["deny", "allow", "deny", "deny", "deny", "deny", "deny"],
            is_one_conversation: true,
        },
        ReachedLimit {
            settings: "refusals-in-a-row = 3",
            setting: "[approvals] refusals-in-a-row",
            what: "refused questions of one client in a row",
            decisions: &["deny", "allow", "deny", "deny", "deny"],
            is_one_conversation: false,
        },
    ];
    for ReachedLimit { settings, setting, what, decisions, is_one_conversation } in rows {
        let bank = servers::bank(AnswerForm::Json);
        let web = servers::web(AnswerForm::Json);
        let policy = servers::POLICY.to_owned() + servers::ASKS;
        let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &people(settings), &policy);
        let mut asked = 0;
        let mut pay = |gateway: &TestGateway, conversation: &'static str| {
            let mut client = servers::client(gateway, conversation);
            client.begin("bank");
            asked += 1;
            client.call("bank", "pay", &json!({"to": format!("mallory {asked}")}))
        };
        let conversation = |number: usize| match is_one_conversation {
            true => "stranger",
            false => ["first", "second", "third", "fourth", "fifth", "last"].get(number).unwrap(),
        };
        let gateway = home.start();
        let ann = PersonClient(&gateway, "ann");
        for (number, decision) in decisions.iter().enumerate() {
            let said = pay(&gateway, conversation(number));
            assert!(said.contains("nobody has answered yet"), "{what}: {said}");
            assert_eq!(ann.says(&ann.first(), decision).0, 200, "{what}");
        }
        gateway.stop();
        let (gateway, mut log) = home.start_with_log();
        let said = pay(&gateway, conversation(decisions.len()));
        assert!(
            said.contains("no person was asked, because there were too many questions"),
            "{what}: {said}"
        );
        assert_eq!(PersonClient(&gateway, "ann").open(), Vec::<Value>::new(), "{what}");
        let line = log.next("limit");
        assert_eq!(
            (&line["level"], &line["setting"], &line["limit"], &line["conversation"]),
            (&json!("warn"), &json!(setting), &json!(what), &json!(conversation(decisions.len())))
        );
        if is_one_conversation {
            assert!(pay(&gateway, "another").contains("nobody has answered yet"), "{what}");
        }
        gateway.stop();
        let most = line["most"].as_u64().unwrap();
        assert_eq!(unasked(&home), [json!(["agent", "bank/pay", format!("too many {what}: {most}")])]);
    }
}

/// Calls a tool of a server, and answers each question to the person at the client with this action. Returns whether there
/// was a question, and the answer to the call.
fn call_at_client(
    client: &McpTestClient<'_>,
    (server, tool): (&str, &str),
    id: u64,
    action: &str,
) -> (bool, String) {
    let params = json!({"name": tool, "arguments": {"to": "bob"}});
    let message = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
    let mut is_asked = false;
    let messages = client.listen(server, &message, &mut |asked| {
        is_asked = true;
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": action}});
        assert_eq!(client.send(server, &answer, &[]).0, 202);
    });
    (is_asked, messages.last().unwrap().to_string())
}

/// The person at a client is asked about the calls of all servers within one budget. The replay of a stored session
/// does not diverge, and has the same count, so a restart does not renew it.
#[test]
fn a_restart_renews_no_questions_to_the_person_at_a_client() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let reading = "ask \"reading is confirmed\" if:\n    (call: ToolCall) is tool:web/read\n\
        label out.content as trusted if:\n    (out: ToolOutput) is tool:web/initialize\n";
    let policy = servers::POLICY.to_owned() + servers::ASKS + reading;
    let audit = "[audit]\nfile = \"audit.jsonl\"\n";
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], audit, &policy);
    let (pay, read) = (("bank", "pay"), ("web", "read"));
    let mut gateway = home.start();
    let mut client = servers::client(&gateway, "one");
    let can = json!({"protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}}, "clientInfo": {"name": "c", "version": "1"}});
    for server in ["bank", "web"] {
        client.begin(server);
        client.ask(server, "initialize", &can);
    }
    let mut id = 100;
    let mut check = |gateway: &TestGateway, what: (&str, &str), action: &str, expected: (bool, &str)| {
        id += 1;
        let client = servers::client(gateway, "one");
        let (is_asked, said) = call_at_client(&client, what, id, action);
        assert_eq!(is_asked, expected.0, "{id} {said}");
        assert!(said.contains(expected.1), "{id} {said}");
    };
    let refused = (true, "refused by a person");
    let unasked = (false, "no person was asked, because there were too many questions");
    for what in [pay, read, pay, pay] {
        check(&gateway, what, "decline", refused);
    }
    check(&gateway, pay, "accept", (true, "paid"));
    for what in [read, pay, pay] {
        check(&gateway, what, "cancel", refused);
    }
    // A restart in the middle of the row.
    gateway.stop();
    gateway = home.start();
    check(&gateway, read, "decline", refused);
    check(&gateway, pay, "decline", refused);
    check(&gateway, pay, "accept", unasked);
    check(&gateway, read, "accept", unasked);
    gateway.stop();
    gateway = home.start();
    check(&gateway, read, "accept", unasked);
    check(&gateway, pay, "accept", unasked);
    // Another conversation has a budget of its own.
    let mut other = servers::client(&gateway, "two");
    other.begin("bank");
    other.ask("bank", "initialize", &can);
    assert!(call_at_client(&other, pay, 500, "accept").0);
    gateway.stop();
    assert_eq!(bank.calls(), [r#"pay {"to":"bob"}"#, r#"pay {"to":"bob"}"#]);
    let report = rechecked(&home, &records(&home));
    assert_eq!((report.differ.len(), report.gone), (0, 0), "{report:?}");
    assert!(report.same > 10, "{report:?}");
}

/// The keys of a client count together: what people refuse to one key ends the questions of another one.
#[test]
fn another_key_of_a_client_does_not_evade_the_count() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let policy = servers::POLICY.to_owned() + servers::ASKS;
    let home =
        servers::home("http://127.0.0.1:1/v1", [&web, &bank], &people("refusals-in-a-row = 3"), &policy);
    let gateway = home.start();
    let ann = PersonClient(&gateway, "ann");
    let make_key = |name: &str| -> &'static str {
        let (status, body) = ann.post("/api/v1/keys", &json!({"client": "agent", "name": name}));
        assert_eq!(status, 200, "{body}");
        let made: Value = serde_json::from_str(&body).unwrap();
        Box::leak(made["key"].as_str().unwrap().to_owned().into_boxed_str())
    };
    let keys = [KEY, make_key("one"), make_key("two"), make_key("three")];
    let pay = |key: &'static str| {
        let mut client = McpTestClient { gateway: &gateway, key, conversation: "c", next: 0 };
        client.begin("bank");
        client.call("bank", "pay", &json!({"to": "mallory"}))
    };
    let (last, others) = keys.split_last().unwrap();
    for key in others {
        let said = pay(key);
        assert!(said.contains("nobody has answered yet"), "{said}");
        assert_eq!(ann.says(&ann.first(), "deny").0, 200);
    }
    let said = pay(last);
    assert!(said.contains("no person was asked, because there were too many questions"), "{said}");
    assert_eq!(ann.open(), Vec::<Value>::new());
}

/// Requests in parallel are not asked about beyond the limits: however they arrive, so many questions are stored.
#[test]
fn requests_in_parallel_do_not_evade_the_count() {
    let (web, bank) = (servers::web(AnswerForm::Json), servers::bank(AnswerForm::Json));
    let policy = servers::POLICY.to_owned() + servers::ASKS;
    let limits = "open-questions-of-conversation = 3\nquestions-an-hour = 5";
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &people(limits), &policy);
    let gateway = home.start();
    let conversations = ["one", "two", "three"];
    for conversation in conversations {
        servers::client(&gateway, conversation).begin("bank");
    }
    let mut said: Vec<String> = Vec::new();
    std::thread::scope(|scope| {
        let call = |number: usize| {
            let gateway = &gateway;
            let conversation = conversations[number % conversations.len()];
            scope.spawn(move || {
                let next = 1_000 + u64::try_from(number).unwrap();
                let mut client = McpTestClient { gateway, key: KEY, conversation, next };
                client.call("bank", "pay", &json!({"to": format!("mallory {number}")}))
            })
        };
        let running: Vec<_> = (0..18).map(call).collect();
        said.extend(running.into_iter().map(|call| call.join().unwrap()));
    });
    let asked = said.iter().filter(|said| said.contains("nobody has answered yet")).count();
    let unasked = said.iter().filter(|said| said.contains("no person was asked")).count();
    assert_eq!((asked, unasked), (5, 13), "{said:?}");
    let open = PersonClient(&gateway, "ann").open();
    let of = |name: &&str| open.iter().filter(|question| question["conversation"] == **name).count();
    assert_eq!(open.len(), 5);
    assert!(conversations.iter().all(|name| of(name) <= 3), "{open:?}");
}
