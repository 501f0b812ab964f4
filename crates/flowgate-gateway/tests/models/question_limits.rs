//! Tests of questions to people beyond the bounds: each is reported in the log, in the audit log and to the agent, and
//! no other client is affected.

use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, OTHER_KEY, POLICY, TestAgent, TestGateway, config};
use crate::mcp::AnswerForm;
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
