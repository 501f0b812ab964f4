//! Questions about several calls of one message: all are asked at once, and equal calls with one question.

use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::approvals::{self, PersonClient};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent};
use crate::upstream::{UpstreamDouble, calls, says};

const BOB: &str = r#"{"to":"bob","body":"hello"}"#;
const EVE: &str = r#"{"to":"eve","body":"hello"}"#;

/// Sends two equal mails to Bob and one to Eve in one message, once for each message of the user.
fn mails(request: &Request) -> Completion {
    let users = request.messages.iter().filter(|message| matches!(message, Message::User(_))).count();
    let sent = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    if sent >= users * 3 { says("Done.") } else { calls(&[("send", BOB), ("send", BOB), ("send", EVE)]) }
}

fn home(upstream: &UpstreamDouble, rules: &str) -> GatewayHome {
    let home = approvals::home(upstream, 0);
    home.policy(&format!("{POLICY}store mail: written by send\n{rules}"));
    home
}

const EACH: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";

/// Returns the open question about a mail to this recipient.
fn about(questions: &[Value], to: &str) -> Value {
    let found = questions.iter().find(|question| question["call"]["arguments"]["to"] == to);
    found.unwrap_or_else(|| panic!("no question about {to}: {questions:?}")).clone()
}

#[test]
fn all_questions_of_a_message_are_open_at_once_and_equal_calls_share_one() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    let answer = agent.says("Mail Bob twice, and Eve.");
    assert!(answer.contains("ay `continue`") && answer.contains("and 1 more"), "{answer}");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    assert_eq!(questions.len(), 2, "{questions:?}");
    let (twice, once) = (about(&questions, "bob"), about(&questions, "eve"));
    assert_eq!((&twice["call"]["times"], &once["call"]["times"]), (&2.into(), &Value::Null));
    let summary = twice["call"]["summary"].as_str().unwrap();
    assert!(summary.contains("makes this call 2 times"), "{summary}");
    assert_eq!((&twice["turn"], &once["turn"]), (&0.into(), &0.into()));
    assert_eq!(bob.says(&twice, "allow").0, 200);
    // The calls wait until all are decided.
    assert!(agent.says("continue").contains("ay `continue`"));
    assert_eq!(agent.ran, Vec::<String>::new());
    assert_eq!(bob.open().len(), 1);
    assert_eq!(bob.says(&once, "allow").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(agent.ran, [format!("send {BOB}"), format!("send {BOB}"), format!("send {EVE}")]);
    // The answers are used: the same calls of the next message are asked about again.
    assert!(agent.says("Again.").contains("ay `continue`"));
    assert_eq!(bob.open().len(), 2);
}

#[test]
fn a_refusal_covers_all_equal_calls_and_nothing_else() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    assert_eq!(bob.says(&about(&questions, "bob"), "deny").0, 200);
    assert_eq!(bob.says(&about(&questions, "eve"), "allow").0, 200);
    agent.says("continue");
    assert_eq!(agent.ran, [format!("send {EVE}")]);
}

/// A call whose question was announced may be judged differently: here, nobody is asked about a mail to Eve after a mail to
/// Bob was refused.
#[test]
fn an_announced_question_that_is_not_asked_is_void() {
    let upstream = UpstreamDouble::new(mails);
    let rules = "ask \"mails to bob are confirmed\" if:\n    (call: ToolCall) is tool:send({to: \"bob\"})\n\
                 ask \"after bob\" if:\n    (first: ToolCall) -> (call: ToolCall)\n    \
                 first is tool:send({to: \"bob\"})\n    call is tool:send({to: \"eve\"})\n";
    let home = home(&upstream, rules);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    assert_eq!(questions.len(), 2, "{questions:?}");
    assert_eq!(bob.says(&about(&questions, "bob"), "deny").0, 200);
    agent.says("continue");
    assert_eq!(agent.ran, [format!("send {EVE}")]);
    assert_eq!(bob.open(), Vec::<Value>::new());
}

/// Sends decisions on several questions in one request. Returns the status and the body.
fn decide(bob: &PersonClient<'_>, decisions: &[Value]) -> (u16, Value) {
    let (status, body) = bob.post("/api/v1/approvals", &json!({"decisions": decisions}));
    (status, serde_json::from_str(&body).unwrap())
}

fn decision(question: &Value, decision: &str) -> Value {
    json!({"id": question["id"], "digest": question["digest"], "decision": decision})
}

#[test]
fn all_questions_of_a_turn_are_decided_in_one_request() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    let decisions =
        [decision(&about(&questions, "bob"), "deny"), decision(&about(&questions, "eve"), "allow")];
    let (status, body) = decide(&bob, &decisions);
    assert_eq!((status, &body["decided"]), (200, &2.into()), "{body}");
    let states = ["denied", "allowed"].map(Value::from);
    assert_eq!(
        [&body["results"][0], &body["results"][1]].map(|one| one["question"]["state"].clone()),
        states
    );
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(agent.ran, [format!("send {EVE}")]);
}

/// A decision that is bound to another digest, or comes after another decision, has no effect; the other decisions of the
/// request have theirs.
#[test]
fn each_of_several_decisions_has_its_own_result() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    let (to_bob, to_eve) = (about(&questions, "bob"), about(&questions, "eve"));
    let changed = json!({"id": to_bob["id"], "digest": to_eve["digest"], "decision": "allow"});
    let unknown = json!({"id": "nothing", "digest": "", "decision": "deny"});
    let (status, body) = decide(&bob, &[changed, unknown, decision(&to_eve, "allow")]);
    assert_eq!((status, &body["decided"]), (200, &1.into()), "{body}");
    let results = body["results"].as_array().unwrap();
    let statuses: Vec<&Value> = results.iter().map(|result| &result["status"]).collect();
    assert_eq!(statuses, [409, 404, 200]);
    assert!(results[0]["detail"].as_str().unwrap().contains("does not match"), "{body}");
    let (_, body) = decide(&bob, &[decision(&to_eve, "deny"), decision(&to_bob, "grant")]);
    assert_eq!([&body["results"][0]["status"], &body["results"][1]["status"]], [409, 409]);
    assert_eq!(bob.open().len(), 1);
}

#[test]
fn an_invalid_list_of_decisions_decides_nothing() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    TestAgent::new(&gateway, Api::ChatCompletions, false, KEY).says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let questions = bob.open();
    let allow = decision(&questions[0], "allow");
    let mut misspelt = decision(&questions[1], "allow");
    misspelt["terms_"] = json!({});
    let rows = [
        (vec![], "has 0 decisions: send between 1 and 100"),
        (vec![allow.clone(), allow.clone()], "occurs twice"),
        (vec![allow; 101], "has 101 decisions"),
        (vec![decision(&questions[0], "allow"), misspelt], "unknown field `terms_`"),
    ];
    for (decisions, expected) in rows {
        let (status, body) = decide(&bob, &decisions);
        assert_eq!(status, 400, "{body}");
        assert!(body["detail"].as_str().unwrap().contains(expected), "{body}");
    }
    assert_eq!(bob.open().len(), 2);
    // The owner of the client may not decide.
    let (_, body) = decide(&PersonClient(&gateway, "ann"), &[decision(&questions[0], "allow")]);
    assert_eq!((&body["decided"], &body["results"][0]["status"]), (&0.into(), &403.into()));
}

/// A person who denies all announced questions at once is not asked about them again when their calls are judged, and
/// the next message of the model has questions of its own.
#[test]
fn a_call_that_was_denied_in_advance_is_not_asked_about_again() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob twice, and Eve.");
    let bob = PersonClient(&gateway, "bob");
    let deny_all = |questions: &[Value]| {
        let decisions: Vec<Value> = questions.iter().map(|question| decision(question, "deny")).collect();
        let (status, body) = decide(&bob, &decisions);
        assert_eq!((status, &body["decided"]), (200, &2.into()), "{body}");
    };
    deny_all(&bob.open());
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(bob.open(), Vec::<Value>::new());
    assert!(agent.says("Again.").contains("ay `continue`"));
    assert_eq!(bob.open().len(), 2);
    assert_eq!(agent.ran, Vec::<String>::new());
}

/// Sends the same mail to Bob in each of two messages.
fn mail_again(request: &Request) -> Completion {
    let sent = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    if sent >= 2 { says("Done.") } else { calls(&[("send", BOB)]) }
}

/// A denial covers the calls of its message: if the model then makes an equal call in another message of the same turn, a
/// person is asked about that call.
#[test]
fn a_denial_does_not_answer_for_the_next_message_of_the_model() {
    let upstream = UpstreamDouble::new(mail_again);
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob.");
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&about(&bob.open(), "bob"), "deny").0, 200);
    assert!(agent.says("continue").contains("ay `continue`"));
    assert_eq!(bob.says(&about(&bob.open(), "bob"), "allow").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(agent.ran, [format!("send {BOB}")]);
}

/// Sends a mail to Bob, one to Eve and the first one again in one message.
fn mails_in_turn(request: &Request) -> Completion {
    let sent = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    if sent >= 3 { says("Done.") } else { calls(&[("send", BOB), ("send", EVE), ("send", BOB)]) }
}

/// Equal calls with another one between them share a question, also if the questions are decided one after the other, so
/// that the turn waits in between. A refusal covers them as well, and nothing covers the same call of another message.
#[test]
fn equal_calls_that_are_not_adjacent_share_one_question() {
    for (is_decided_at_once, answer) in [(true, "allow"), (false, "allow"), (true, "deny"), (false, "deny")] {
        let upstream = UpstreamDouble::new(mails_in_turn);
        let home = home(&upstream, EACH);
        let gateway = home.start();
        let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
        agent.says("Mail Bob, Eve and Bob.");
        let bob = PersonClient(&gateway, "bob");
        let questions = bob.open();
        assert_eq!(questions.len(), 2, "{questions:?}");
        let (twice, once) = (about(&questions, "bob"), about(&questions, "eve"));
        assert_eq!((&twice["call"]["times"], &once["call"]["times"]), (&2.into(), &Value::Null));
        assert_eq!(bob.says(&twice, answer).0, 200);
        if !is_decided_at_once {
            assert!(agent.says("continue").contains("ay `continue`"));
            assert_eq!(bob.open().len(), 1, "{answer}");
        }
        assert_eq!(bob.says(&once, "allow").0, 200);
        agent.says("continue");
        let (to_bob, to_eve) = (format!("send {BOB}"), format!("send {EVE}"));
        let ran = if answer == "allow" { vec![to_bob.clone(), to_eve, to_bob] } else { vec![to_eve] };
        assert_eq!(agent.ran, ran, "{is_decided_at_once} {answer}");
        assert_eq!(bob.open(), Vec::<Value>::new(), "{is_decided_at_once} {answer}");
    }
}

/// What covers a further call of a message does not cover an equal call after the conversation has continued.
#[test]
fn an_answer_for_several_calls_ends_with_its_message() {
    let upstream = UpstreamDouble::new(|request| {
        let users = request.messages.iter().filter(|message| matches!(message, Message::User(_))).count();
        match users {
            1 => calls(&[("send", BOB), ("send", EVE), ("send", BOB)]),
            _ => calls(&[("send", BOB)]),
        }
    });
    let home = home(&upstream, EACH);
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    agent.says("Mail Bob, Eve and Bob.");
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&about(&bob.open(), "bob"), "allow").0, 200);
    assert!(agent.says("continue").contains("ay `continue`"));
    // The user does not wait for the question about Eve.
    assert!(agent.says("Only mail Bob.").contains("ay `continue`"));
    assert_eq!(about(&bob.open(), "bob")["call"]["times"], Value::Null);
    assert_eq!(agent.ran, Vec::<String>::new());
}
