//! Tests of approvals for the rest of a conversation: they survive a restart, cover equal calls, are given only where
//! the policy lets a person give them, are listed, and are withdrawn: all of a conversation by an admin, and one of them by
//! an approver.

use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::approvals::{self, PersonClient};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway};
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
    let mut home = approvals::home(upstream, 0);
    home.edit("[approvals]", "[audit]\nfile = \"audit.jsonl\"\n[approvals]");
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

/// Returns the conversation grants as this person is shown them.
fn listed(gateway: &TestGateway, person: &'static str) -> Vec<Value> {
    let (status, body) = gateway.get("/api/v1/grants", &PersonClient(gateway, person).key());
    assert_eq!(status, 200, "{body}");
    let grants = serde_json::from_str::<Value>(&body).unwrap()["grants"].as_array().unwrap().clone();
    assert!(grants.iter().all(|grant| grant["kind"] == "conversation"), "{grants:?}");
    grants
}

/// Lets the agent ask with this message, grants the question for the conversation, and lets the agent continue.
fn ask_and_grant(gateway: &TestGateway, agent: &mut TestAgent, message: &str) {
    assert!(agent.says(message).contains("ay `continue`"), "{message}");
    let bob = PersonClient(gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "grant").0, 200, "{message}");
    assert_eq!(agent.says("continue"), "Done.", "{message}");
}

#[test]
fn an_approver_withdraws_one_grant() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    ask_and_grant(&gateway, &mut agent, "Mail Bob.");
    ask_and_grant(&gateway, &mut agent, "Mail Eve.");
    let both = listed(&gateway, "vic");
    let to = |grant: &Value| grant["call"]["arguments"]["to"].as_str().unwrap().to_owned();
    assert_eq!(both.iter().map(to).collect::<Vec<_>>(), ["eve", "bob"], "{both:?}");
    for grant in &both {
        assert_eq!(
            (&grant["who"], &grant["client"], &grant["in_force"]),
            (&json!("bob"), &json!("agent"), &json!(true))
        );
        assert!(grant["policy"].as_str().is_some_and(|digest| digest.len() >= 32), "{grant}");
        assert!(grant["conversation"].as_str().is_some_and(|name| !name.is_empty()), "{grant}");
    }
    // A person of another tenant sees nothing of it and cannot withdraw it, and neither can a viewer.
    assert_eq!(listed(&gateway, "eve"), Vec::<Value>::new());
    let id = both[1]["id"].as_str().unwrap();
    let path = format!("/api/v1/grants/{id}");
    let delete =
        |gateway: &TestGateway, person| gateway.delete(&path, &PersonClient(gateway, person).key()).0;
    assert_eq!((delete(&gateway, "eve"), delete(&gateway, "vic")), (404, 403));
    assert_eq!(agent.says("Again to Bob."), "Done.");
    assert_eq!((delete(&gateway, "ann"), delete(&gateway, "ann")), (200, 404));
    assert_eq!(listed(&gateway, "bob").iter().map(to).collect::<Vec<_>>(), ["eve"]);
    // The withdrawal survives a restart, and leaves the other grant in force.
    gateway.stop();
    let gateway = home.start();
    agent.moves_to(&gateway);
    assert_eq!(agent.says("Again to Eve."), "Done.");
    // What is granted again stays in force.
    ask_and_grant(&gateway, &mut agent, "Once more to Bob.");
    assert_eq!(agent.says("And to Bob."), "Done.");
    assert_eq!(listed(&gateway, "bob").iter().map(to).collect::<Vec<_>>(), ["bob", "eve"]);
    gateway.stop();
    let gateway = home.start();
    agent.moves_to(&gateway);
    assert_eq!(agent.says("At last to Bob."), "Done.");
    let log = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    assert!(log.contains(&format!(r#""what":"conversation-grant {id} of agent/"#)), "{log}");
}

/// The owner of a client, who decides none of its questions, lists and withdraws what others have granted: that only
/// leads to questions, which others decide.
#[test]
fn the_owner_of_a_client_withdraws_a_grant_and_gives_none() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    let ann = PersonClient(&gateway, "ann");
    let decides_nothing = |decisions: &[&str]| {
        for decision in decisions {
            let (status, body) = ann.says(&ann.first(), decision);
            assert_eq!((status, body.contains("cannot decide its questions")), (403, true), "{body}");
        }
    };
    assert!(agent.says("Mail Bob.").contains("ay `continue`"));
    decides_nothing(&["grant", "allow", "deny"]);
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "grant").0, 200);
    assert_eq!(agent.says("continue"), "Done.");
    assert_eq!(agent.says("Again."), "Done.");
    let grants = listed(&gateway, "ann");
    assert_eq!(grants.iter().map(|grant| &grant["who"]).collect::<Vec<_>>(), ["bob"]);
    let path = format!("/api/v1/grants/{}", grants[0]["id"].as_str().unwrap());
    assert_eq!(gateway.delete(&path, &ann.key()).0, 200);
    assert!(agent.says("And again.").contains("ay `continue`"));
    decides_nothing(&["grant", "allow"]);
    assert_eq!(agent.ran.len(), 2);
}

/// A grant that was given and not used yet is withdrawn as well: the call asks again.
#[test]
fn a_grant_that_is_not_used_yet_is_withdrawn() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    assert!(agent.says("Mail Bob.").contains("ay `continue`"));
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "grant").0, 200);
    let path = format!("/api/v1/grants/{}", listed(&gateway, "bob")[0]["id"].as_str().unwrap());
    assert_eq!(gateway.delete(&path, &bob.key()).0, 200);
    assert_eq!(agent.says("continue"), "I may not.");
    assert_eq!(agent.ran, Vec::<String>::new());
    assert_eq!(listed(&gateway, "bob"), Vec::<Value>::new());
}

/// A conversation that continues under another policy has no grants.
#[test]
fn a_change_of_the_policy_ends_a_grant() {
    let upstream = UpstreamDouble::new(mails);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    ask_and_grant(&gateway, &mut agent, "Mail Bob.");
    gateway.stop();
    let policy = std::fs::read_to_string(home.folder().join("policy.flow")).unwrap();
    home.policy(&(policy + "# changed\n"));
    let gateway = home.start();
    agent.moves_to(&gateway);
    assert_eq!(listed(&gateway, "bob")[0]["in_force"], false);
    assert!(agent.says("Again.").contains("ay `continue`"));
}
