//! Questions about several calls of one message: all are asked at once, and equal calls with one question.

use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use serde_json::Value;

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
