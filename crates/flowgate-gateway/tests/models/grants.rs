//! Tests of approvals for the rest of a conversation: they survive a restart, cover equal calls, are given only where
//! the policy lets a person give them, and are withdrawn by an admin.

use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use serde_json::json;

use crate::approvals::{self, PersonClient};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const MAIL: &str = r#"{"to":"bob","body":"hello"}"#;
const OTHER: &str = r#"{"to":"eve","body":"hello"}"#;

/// Sends one mail for each message of the user: to Eve if the message names her, else to Bob.
fn mails(request: &Request) -> Completion {
    let is_user = |message: &&Message| matches!(message, Message::User(_));
    let sent = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    if sent >= request.messages.iter().filter(is_user).count() {
        return says(if text_of(request).contains("refused") { "I may not." } else { "Done." });
    }
    let last = request.messages.iter().rfind(is_user);
    let names_eve = last.is_some_and(|message| format!("{message:?}").contains("Eve"));
    calls(&[("send", if names_eve { OTHER } else { MAIL })])
}

fn home(upstream: &UpstreamDouble, grant: &str) -> GatewayHome {
    let home = approvals::home(upstream, 0);
    let rule = format!(
        "store mail: written by send\nask \"mails are confirmed\"{grant} if:\n    (call: ToolCall) is tool:send\n"
    );
    home.policy(&(POLICY.to_owned() + &rule));
    home
}

#[test]
fn a_grant_covers_equal_calls_of_its_conversation() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    assert!(agent.says("Mail Bob.").contains("ay `continue`"));
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(question["you_may_grant"], true);
    let (status, body) = bob.says(&question, "grant");
    assert_eq!((status, body.contains("\"granted\":true")), (200, true), "{body}");
    assert_eq!(agent.says("continue"), "Done.");
    // The same call again, without a question, also after a restart.
    assert_eq!(agent.says("Again."), "Done.");
    gateway.stop();
    let gateway = home.start();
    agent.moves_to(&gateway);
    assert_eq!(agent.says("And again."), "Done.");
    assert_eq!(agent.ran, [format!("send {MAIL}"), format!("send {MAIL}"), format!("send {MAIL}")]);
    // Another recipient is another question.
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.open(), Vec::<serde_json::Value>::new());
    assert!(agent.says("Mail Eve.").contains("ay `continue`"));
    assert_eq!(bob.first()["call"]["arguments"]["to"], "eve");
    // Another conversation has none of it.
    let mut other = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    assert!(other.says("Please mail Bob.").contains("ay `continue`"));
}

#[test]
fn a_question_that_cannot_be_granted_is_answered_for_one_call() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, "");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    assert!(agent.says("Mail Bob.").contains("ay `continue`"));
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(question["you_may_grant"], false);
    let (status, body) = bob.says(&question, "grant");
    assert_eq!((status, body.contains("for one call only")), (409, true), "{body}");
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let (status, body) = bob.post(&path, &json!({"decision": "perhaps", "digest": question["digest"]}));
    assert_eq!((status, body.contains("`grant`")), (400, true), "{body}");
    assert_eq!(bob.says(&question, "allow").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    assert!(agent.says("Again.").contains("ay `continue`"));
}

#[test]
fn an_admin_withdraws_what_was_granted() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    let bob = PersonClient(&gateway, "bob");
    let grant = |agent: &mut TestAgent, request: &str| {
        assert!(agent.says(request).contains("ay `continue`"));
        let question = bob.first();
        assert_eq!(bob.says(&question, "grant").0, 200);
        assert_eq!(agent.says("continue"), "Done.");
        question["conversation"].as_str().unwrap().to_owned()
    };
    let what = format!("agent/{}", grant(&mut agent, "Mail Bob."));
    assert_eq!(agent.says("Again."), "Done.");
    let freeze = |what: &str, frozen: bool| {
        bob.post("/api/v1/freezes", &json!({"kind": "grants", "what": what, "frozen": frozen}))
    };
    let (status, body) = freeze("agent/none", true);
    assert_eq!((status, body.contains("no conversation of this name")), (404, true), "{body}");
    assert_eq!(freeze(&what, true).0, 200);
    // The grant is withdrawn, and so is one that is given from now on.
    grant(&mut agent, "And again.");
    grant(&mut agent, "Once more.");
    assert_eq!(freeze(&what, false).0, 200);
    // What was withdrawn stays so.
    grant(&mut agent, "And now.");
    assert_eq!(agent.says("At last."), "Done.");
}
