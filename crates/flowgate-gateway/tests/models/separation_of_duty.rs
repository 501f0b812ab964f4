//! Tests of labels over people: a call that depends on text with such a label runs after each of these people has
//! approved it over REST, as in the example of *Permissive Information-Flow Analysis for Large Language Models*,
//! section 2.1. An approval counts for the person who gave it.

use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::wire::Api;
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::gateway::{GatewayHome, KEY, TestAgent, TestGateway, config};
use crate::upstream::{UpstreamDouble, calls, says, text_of};

/// A payment that the contract asks for needs ann and bob.
const POLICY: &str = r#"
lattice duty: approvers

label message as bottom if:
    (message: Message)
    message.role in ["system", "user"]
label tool as bottom if:
    (tool: Tool)
label out.content as duty("ann", "bob") if:
    (out: ToolOutput) is tool:read
label out.content as duty() if:
    (out: ToolOutput) is tool:send
require top if:
    (call: ToolCall) is tool:read
require duty() if:
    (call: ToolCall) is tool:send
"#;

const PAYMENT: &str = r#"{"to":"eve","body":"100"}"#;

/// Reads the contract, and after that sends the payment as often as the user says.
fn pays(request: &Request) -> Completion {
    let text = text_of(request);
    if text.contains("\"send\"") {
        return says(if text.contains("refused") || text.contains("deny") { "I may not." } else { "Paid." });
    }
    if !text.contains("\"read\"") {
        return calls(&[("read", "{}")]);
    }
    let payments = if text.contains("twice") { 2 } else { 1 };
    calls(&vec![("send", PAYMENT); payments])
}

/// Returns a home with the approvers ann, bob and cy, all of the same tenant, and dan of another one.
fn home(upstream: &UpstreamDouble, wait: u32, policy: &str, more: &str) -> GatewayHome {
    let person = |name: &str, more: &str| {
        format!("[people.{name}]\nkey-from = \"{name}\"\nrole = \"approver\"\n{more}")
    };
    let people =
        person("ann", "") + &person("bob", "") + &person("cy", "") + &person("dan", "tenants = [\"x\"]\n");
    // The model sees the contract, so that what it writes then depends on it.
    let more = format!("method = \"everything\"\nuser-messages = \"trust-unmarked-even-if-pasted\"\n{more}");
    let text = config(&upstream.url, "chat-completions", &more);
    GatewayHome::new(
        &(text + &people + &format!("[audit]\nfile = \"audit.jsonl\"\n[approvals]\nwait-seconds = {wait}\n")),
        policy,
    )
}

/// Returns the question that is open for a person, and checks who must approve and who has.
fn open(person: &PersonClient<'_>, approved: &[&str], may_allow: bool) -> Value {
    let questions = person.open();
    assert_eq!(questions.len(), 1, "{questions:?}");
    let question = questions[0].clone();
    assert_eq!(question["approvers"], json!(["ann", "bob"]), "{question}");
    assert_eq!(question["approved_by"], json!(approved), "{question}");
    assert_eq!(question["call"]["approvers"], json!(["ann", "bob"]), "{question}");
    assert_eq!(question["you_may_allow"], may_allow, "{} {question}", person.1);
    assert_eq!(question["you_have_approved"], approved.contains(&person.1), "{} {question}", person.1);
    assert_eq!((&question["you_may_grant"], &question["you_may_decide"]), (&json!(false), &json!(true)));
    question
}

/// Checks the status of a decision, and that the answer contains `part`.
fn decides(person: &PersonClient<'_>, question: &Value, decision: &str, status: u16, part: &str) {
    let (found, body) = person.says(question, decision);
    assert_eq!((found, body.contains(part)), (status, true), "{} {decision}: {body}", person.1);
}

/// Asks in a chat, and returns the agent with the gateway's answer.
fn asks(gateway: &TestGateway, api: Api, task: &str) -> TestAgent {
    let mut agent = TestAgent::new(gateway, api, false, KEY);
    let said = agent.says(task);
    assert!(said.contains("ay `continue`"), "{said}");
    agent
}

#[test]
fn a_call_runs_when_everybody_has_approved() {
    for (api, _) in FORMS {
        let upstream = UpstreamDouble::new(pays);
        let home = home(&upstream, 0, POLICY, "");
        let gateway = home.start();
        let mut agent = asks(&gateway, api, "Pay the contract.");
        let [ann, bob, cy] = ["ann", "bob", "cy"].map(|name| PersonClient(&gateway, name));
        let question = open(&cy, &[], false);
        let summary = question["call"]["summary"].as_str().unwrap();
        assert!(summary.contains("It needs the approval of `ann` and `bob`."), "{summary}");
        // Whose approval is not needed cannot give it.
        decides(
            &cy,
            &question,
            "allow",
            403,
            "needs the approval of `ann`, `bob`, and you are not one of them",
        );
        let question = open(&bob, &[], true);
        decides(&bob, &question, "grant", 409, "for one call only");
        decides(&bob, &question, "grant-lasting", 409, "cannot be granted beyond its conversation");
        decides(&bob, &question, "allow", 200, "\"state\":\"open\"");
        decides(&bob, &question, "allow", 409, "it waits for the approval of `ann`");
        // One of two is not enough: the turn waits on.
        open(&bob, &["bob"], false);
        open(&cy, &["bob"], false);
        assert!(agent.says("continue").contains("ay `continue`"), "{api:?}");
        assert_eq!(agent.ran, ["read {}"], "{api:?}");
        let question = open(&ann, &["bob"], true);
        decides(&ann, &question, "allow", 200, "\"state\":\"allowed\"");
        assert_eq!(agent.says("continue"), "Paid.", "{api:?}");
        assert_eq!(agent.ran, ["read {}".to_owned(), format!("send {PAYMENT}")], "{api:?}");
        // Both decisions are in the audit log, each with its person.
        let log = std::fs::read_to_string(home.folder().join("audit.jsonl")).unwrap();
        let decided =
            |who: &str| log.lines().filter(|line| line.contains("\"decided\"") && line.contains(who)).count();
        assert_eq!((decided("\"ann\""), decided("\"bob\""), decided("\"cy\"")), (1, 1, 0), "{log}");
    }
}

#[test]
fn one_of_them_denies() {
    for (first, last) in [("ann", "bob"), ("bob", "cy")] {
        let upstream = UpstreamDouble::new(pays);
        let gateway = home(&upstream, 0, POLICY, "").start();
        let mut agent = asks(&gateway, Api::ChatCompletions, "Pay the contract.");
        let (first, last) = (PersonClient(&gateway, first), PersonClient(&gateway, last));
        decides(&first, &open(&first, &[], true), "allow", 200, "\"state\":\"open\"");
        decides(&last, &last.first(), "deny", 200, "\"state\":\"denied\"");
        assert_eq!(agent.says("continue"), "I may not.");
        assert_eq!(agent.ran, ["read {}"]);
    }
}

#[test]
fn approvals_survive_a_restart_and_cover_equal_calls() {
    let upstream = UpstreamDouble::new(pays);
    let home = home(&upstream, 0, POLICY, "");
    let gateway = home.start();
    let mut agent = asks(&gateway, Api::ChatCompletions, "Pay the contract twice.");
    let ann = PersonClient(&gateway, "ann");
    let question = open(&ann, &[], true);
    assert_eq!(question["call"]["times"], 2, "{question}");
    decides(&ann, &question, "allow", 200, "\"state\":\"open\"");
    gateway.stop();
    let gateway = home.start();
    agent.moves_to(&gateway);
    let bob = PersonClient(&gateway, "bob");
    decides(&bob, &open(&bob, &["ann"], true), "allow", 200, "\"state\":\"allowed\"");
    assert_eq!(agent.says("continue"), "Paid.");
    assert_eq!(agent.ran, ["read {}".to_owned(), format!("send {PAYMENT}"), format!("send {PAYMENT}")]);
    // The next payment needs both again.
    let mut other = asks(&gateway, Api::ChatCompletions, "Pay the contract, please.");
    open(&bob, &[], true);
    assert!(other.says("continue").contains("ay `continue`"));
    assert_eq!(other.ran, ["read {}"]);
}

/// A decision on several questions at once counts as if it had been sent alone.
#[test]
fn decisions_on_several_questions_count_for_their_person() {
    let upstream = UpstreamDouble::new(pays);
    let gateway = home(&upstream, 0, POLICY, "").start();
    let mut agent = asks(&gateway, Api::ChatCompletions, "Pay the contract.");
    for (name, status, state) in
        [("cy", 403, Value::Null), ("ann", 200, json!("open")), ("bob", 200, json!("allowed"))]
    {
        let person = PersonClient(&gateway, name);
        let question = person.first();
        let body =
            json!({"decisions": [{"id": question["id"], "decision": "allow", "digest": question["digest"]}]});
        let (_, body) = person.post("/api/v1/approvals", &body);
        let result = serde_json::from_str::<Value>(&body).unwrap()["results"][0].clone();
        assert_eq!(
            (&result["status"], &result["question"]["state"]),
            (&json!(status), &state),
            "{name}: {body}"
        );
    }
    assert_eq!(agent.says("continue"), "Paid.");
}

/// The owner of the client decides nothing, so what the owner must approve never runs; and a label that names nobody
/// is denied without a question.
#[test]
fn what_cannot_be_approved_does_not_run() {
    let upstream = UpstreamDouble::new(pays);
    let gateway = home(&upstream, 0, POLICY, "owner = \"ann\"").start();
    let mut agent = asks(&gateway, Api::ChatCompletions, "Pay the contract.");
    let [ann, bob] = ["ann", "bob"].map(|name| PersonClient(&gateway, name));
    decides(&ann, &ann.first(), "allow", 403, "another person has to decide");
    decides(&bob, &open(&bob, &[], true), "allow", 200, "\"state\":\"open\"");
    assert!(agent.says("continue").contains("ay `continue`"));
    assert_eq!(agent.ran, ["read {}"]);

    let unlabelled = POLICY.replace("as duty(\"ann\", \"bob\")", "as duty.top");
    let gateway = home(&upstream, 0, &unlabelled, "").start();
    let mut agent = TestAgent::new(&gateway, Api::ChatCompletions, false, KEY);
    assert_eq!(agent.says("Pay the contract."), "I may not.");
    assert_eq!(
        (agent.ran.as_slice(), PersonClient(&gateway, "bob").open().len()),
        (["read {}".to_owned()].as_slice(), 0)
    );
}
