//! Tests of lasting grants: a person answers a question for all conversations of a client, within the terms of the grant,
//! until it expires or is withdrawn, and only where the policy allows it.

use flowgate_lm::chat::{Completion, Message, Request};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::approvals::{self, PersonClient};
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, named};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// Pays once for each message of the user: the number of the message to the person whom it names.
fn pays(request: &Request) -> Completion {
    let is_user = |message: &&Message| matches!(message, Message::User(_));
    let paid = request.messages.iter().filter(|message| matches!(message, Message::Tool { .. })).count();
    if paid >= request.messages.iter().filter(is_user).count() {
        return says(if text_of(request).contains("refused") { "I may not." } else { "Done." });
    }
    let last = format!("{:?}", request.messages.iter().rfind(is_user));
    let amount: String = last.chars().filter(|c| c.is_ascii_digit() || *c == '.').collect();
    if last.contains("List") {
        return calls(&[("notes", "{}")]);
    }
    let to = ["Eve", "Ann"].into_iter().find(|name| last.contains(name)).unwrap_or("Bob").to_lowercase();
    let amount = amount.trim_matches('.');
    calls(&[("send", &format!("{{\"amount\":{amount},\"to\":\"{to}\"}}"))])
}

fn home(upstream: &UpstreamDouble, grant: &str) -> GatewayHome {
    let mut home = approvals::home(upstream, 0);
    home.edit("[approvals]", "[audit]\nfile = \"audit.jsonl\"\n[approvals]");
    home.policy(&policy(grant));
    home
}

fn policy(grant: &str) -> String {
    let rule = format!(
        "store mail: written by send\nask \"payments are confirmed\"{grant} if:\n    (call: ToolCall) is tool:send\n\
         role call.arguments.amount is amount if:\n    (call: ToolCall) is tool:send\n"
    );
    POLICY.to_owned() + &rule
}

fn agent(gateway: &TestGateway) -> TestAgent {
    TestAgent::new(gateway, Api::ChatCompletions, false, KEY)
}

/// Grants the only open question with these terms. Returns the status and the body.
fn grant(bob: &PersonClient<'_>, terms: &Value) -> (u16, String) {
    let question = bob.first();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let body = json!({"decision": "grant-lasting", "digest": question["digest"], "terms": terms});
    bob.post(&path, &body)
}

fn grants(gateway: &TestGateway, person: &'static str) -> Vec<Value> {
    let (status, body) = gateway.get("/api/v1/grants", &PersonClient(gateway, person).key());
    assert_eq!(status, 200, "{body}");
    serde_json::from_str::<Value>(&body).unwrap()["grants"].as_array().unwrap().clone()
}

const ASKED: &str = "ay `continue`";

#[test]
fn a_lasting_grant_covers_equal_calls_of_all_conversations() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, " grant 30 days");
    let gateway = home.start();
    let mut first = agent(&gateway);
    assert!(first.says("Pay Bob 5.").contains(ASKED));
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(question["you_may_grant_for"], "30 days");
    let (status, body) = grant(&bob, &json!({"days": 31}));
    assert_eq!((status, body.contains("at most 30 days: send fewer")), (409, true), "{body}");
    assert_eq!(grant(&bob, &json!({"days": 7})).0, 200);
    assert_eq!(first.says("continue"), "Done.");
    // The same call in the same and in another conversation, also after a restart.
    assert_eq!(first.says("Pay Bob 5 again."), "Done.");
    gateway.stop();
    let gateway = home.start();
    let mut second = agent(&gateway);
    assert_eq!(second.says("Hello, pay Bob 5."), "Done.");
    // Another value is a question.
    assert!(second.says("Pay Bob 6.").contains(ASKED));
    let bob = PersonClient(&gateway, "bob");
    assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    assert!(agent(&gateway).says("Pay Eve 5.").contains(ASKED));
    assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    let listed = grants(&gateway, "vic");
    assert_eq!(listed.len(), 1);
    assert_eq!(
        (&listed[0]["who"], &listed[0]["in_force"], &listed[0]["calls_today"]),
        (&json!("bob"), &json!(true), &json!(3))
    );
    assert_eq!(listed[0]["call"]["arguments"], json!({"amount": 5, "to": "bob"}));
    let week = listed[0]["expires"].as_i64().unwrap() - listed[0]["granted"].as_i64().unwrap();
    assert_eq!(week, 7 * 24 * 60 * 60 * 1000);
    // A person of another tenant sees nothing of it and cannot withdraw it.
    assert_eq!(grants(&gateway, "eve"), Vec::<Value>::new());
    let path = format!("/api/v1/grants/{}", listed[0]["id"].as_str().unwrap());
    let delete = |person: &'static str| gateway.delete(&path, &PersonClient(&gateway, person).key());
    assert_eq!(delete("eve").0, 404);
    assert_eq!(delete("vic").0, 403);
    assert_eq!(delete("bob").0, 200);
    assert_eq!(delete("bob").0, 404);
    assert!(agent(&gateway).says("Now pay Bob 5.").contains(ASKED));
    let log = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
    assert!(
        log.contains(r#""answer":"grant-lasting""#) && log.contains(r#""role":"lasting grant "#),
        "{log}"
    );
    let withdrawal = format!(r#""what":"lasting-grant {}""#, listed[0]["id"].as_str().unwrap());
    assert!(log.contains(&withdrawal), "{log}");
}

/// A call that a lasting grant has allowed waits until a person has decided about another call of the same message. The
/// grant is withdrawn meanwhile: the call does not run.
#[test]
fn a_withdrawn_grant_stops_a_call_that_waits_for_another() {
    for is_withdrawn in [false, true] {
        let upstream = UpstreamDouble::new(|request| match text_of(request).contains("Pay both.") {
            true => calls(&[("send", r#"{"amount":5,"to":"bob"}"#), ("send", r#"{"amount":7,"to":"eve"}"#)]),
            false => pays(request),
        });
        let home = home(&upstream, " grant always");
        let gateway = home.start();
        let bob = PersonClient(&gateway, "bob");
        let mut first = agent(&gateway);
        assert!(first.says("Pay Bob 5.").contains(ASKED));
        assert_eq!(grant(&bob, &json!({"days": 0})).0, 200);
        assert_eq!(first.says("continue"), "Done.");
        let ask = |texts: &[&str]| {
            let role = |at: usize| if at.is_multiple_of(2) { "user" } else { "assistant" };
            let messages: Vec<Value> = texts
                .iter()
                .enumerate()
                .map(|(at, text)| json!({"role": role(at), "content": text}))
                .collect();
            let tool =
                json!({"type": "function", "function": {"name": "send", "parameters": {"type": "object"}}});
            let body = json!({"model": "double", "messages": messages, "tools": [tool]}).to_string();
            gateway.post("/v1/chat/completions", &[("authorization", &format!("Bearer {KEY}"))], &body)
        };
        let (status, answer) = ask(&["Pay both."]);
        assert_eq!(status, 200, "{answer}");
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let waits = answer["choices"][0]["message"]["content"].as_str().unwrap();
        assert!(waits.contains(ASKED), "{waits}");
        // The grant has answered the question about Bob.
        let questions = bob.open();
        assert_eq!(questions.len(), 1, "{questions:?}");
        assert_eq!(questions[0]["call"]["arguments"]["to"], "eve");
        if is_withdrawn {
            let path = format!("/api/v1/grants/{}", grants(&gateway, "bob")[0]["id"].as_str().unwrap());
            assert_eq!(gateway.delete(&path, &bob.key()).0, 200);
        }
        assert_eq!(bob.says(&questions[0], "allow").0, 200);
        let (status, answer) = ask(&["Pay both.", waits, "continue"]);
        assert_eq!(status, if is_withdrawn { 409 } else { 200 }, "{answer}");
        for to in ["bob", "eve"] {
            assert_eq!(answer.contains(to), !is_withdrawn, "{answer}");
        }
    }
}

#[test]
fn a_change_of_the_policy_ends_a_lasting_grant() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, " grant always");
    let gateway = home.start();
    let mut first = agent(&gateway);
    assert!(first.says("Pay Bob 5.").contains(ASKED));
    assert_eq!(grant(&PersonClient(&gateway, "bob"), &json!({"days": 0})).0, 200);
    assert_eq!(grants(&gateway, "bob")[0]["expires"], Value::Null);
    assert_eq!(first.says("continue"), "Done.");
    gateway.stop();
    home.policy(&(policy(" grant always") + "# changed\n"));
    let gateway = home.start();
    assert!(agent(&gateway).says("Please pay Bob 5.").contains(ASKED));
    assert_eq!(grants(&gateway, "bob")[0]["in_force"], false);
}

#[test]
fn the_calls_and_the_sum_of_a_day_are_limited() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, " grant always");
    let gateway = home.start();
    let bob = PersonClient(&gateway, "bob");
    let mut first = agent(&gateway);
    assert!(first.says("Pay Bob 20.").contains(ASKED));
    // The question names what a sum may limit; the owner, who may give no grant, sees none.
    assert_eq!(bob.first()["grant_amounts"], json!(["amount"]));
    assert_eq!(PersonClient(&gateway, "ann").first()["grant_amounts"], json!([]));
    let sum = |most: f64| json!({"sum_a_day": {"argument": "amount", "most": most}});
    let (status, body) = grant(&bob, &sum(19.5));
    assert_eq!(
        (status, body.contains("the amount of this question alone is greater")),
        (409, true),
        "{body}"
    );
    let (status, body) = grant(&bob, &json!({"sum_a_day": {"argument": "to", "most": 5}}));
    assert_eq!((status, body.contains("name one of these: amount")), (409, true), "{body}");
    assert_eq!(grant(&bob, &sum(50.0)).0, 200);
    assert_eq!(first.says("continue"), "Done.");
    assert_eq!(first.says("Pay Bob 29.5 now."), "Done.");
    // 0.6 is more than what is left of 50, 0.5 is not.
    assert!(first.says("Pay Bob 0.6 as well.").contains(ASKED));
    assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    let mut second = agent(&gateway);
    assert_eq!(second.says("Also pay Bob 0.5."), "Done.");
    assert!(second.says("Pay Bob 0.01.").contains(ASKED));
    assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    assert!(agent(&gateway).says("Pay Eve 0.00.").contains(ASKED));
    // The same with a number of calls: the first one counts.
    assert_eq!(grant(&bob, &json!({"calls_a_day": 2})).0, 200);
    assert_eq!(agent(&gateway).says("Dear agent, pay Eve 0.00."), "Done.");
    assert!(agent(&gateway).says("Dear agent, now pay Eve 0.00.").contains(ASKED));
}

/// With `by class`, one decision covers all recipients that an `endorse` statement describes, here those that a tool of the
/// user lists: at most 50 a day to payees.
#[test]
fn a_grant_by_class_covers_the_listed_payees() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, " grant always by class");
    let payees = "store payees: written by nobody, read by notes
label out.content as trusted if:
    (out: ToolOutput) is tool:notes
require top if:
    (call: ToolCall) is tool:notes
endorse call.arguments.to as trusted if:
    (call: ToolCall) is tool:send
    call.arguments.to in tool:notes
";
    home.policy(&(policy(" grant always by class") + payees));
    let gateway = home.start();
    let bob = PersonClient(&gateway, "bob");
    let begins = || {
        let mut agent = agent(&gateway);
        agent.tools.extend(named(&["notes"]));
        agent.page = json!(["ann", "bob"]).to_string();
        agent
    };
    let deny = || assert_eq!(bob.says(&bob.first(), "deny").0, 200);
    let mut first = begins();
    assert_eq!(first.says("List the payees."), "Done.");
    assert!(first.says("Pay Ann 20.").contains(ASKED));
    assert_eq!(bob.first()["grant_leaves_open"], json!(["to"]));
    assert_eq!(grant(&bob, &json!({"sum_a_day": {"argument": "amount", "most": 50}})).0, 200);
    assert_eq!(first.says("continue"), "Done.");
    assert_eq!(first.says("Pay Bob 10."), "Done.");
    let mut second = begins();
    assert_eq!(second.says("List them, please."), "Done.");
    assert_eq!(second.says("Pay Bob 15."), "Done.");
    // Only 5 are left, and Eve is no payee.
    assert!(second.says("Pay Bob 6.").contains(ASKED));
    deny();
    assert!(second.says("Pay Eve 1.").contains(ASKED));
    deny();
    // In a conversation that has not listed the payees, nothing describes the recipient.
    assert!(begins().says("Dear agent, pay Bob 1.").contains(ASKED));
}

#[test]
fn a_question_without_the_right_scope_has_no_lasting_grant() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, " grant conversation");
    let gateway = home.start();
    let bob = PersonClient(&gateway, "bob");
    assert!(agent(&gateway).says("Pay Bob 5.").contains(ASKED));
    let question = bob.first();
    assert_eq!((&question["you_may_grant_for"], &question["grant_amounts"]), (&Value::Null, &json!([])));
    let (status, body) = grant(&bob, &json!({}));
    assert_eq!((status, body.contains("neither `grant N days` nor `grant always`")), (409, true), "{body}");
    let question = bob.first();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    let (status, body) =
        bob.post(&path, &json!({"decision": "allow", "digest": question["digest"], "terms": {"days": 1}}));
    assert_eq!((status, body.contains("only the decision `grant-lasting`")), (400, true), "{body}");
    let (status, body) = grant(&bob, &json!({"weeks": 1}));
    assert_eq!((status, body.contains("`calls_a_day`")), (400, true), "{body}");
    // The owner of the client decides nothing.
    assert_eq!(grant(&PersonClient(&gateway, "ann"), &json!({})).0, 403);
}
