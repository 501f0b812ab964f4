//! Tests of the conditions under which an approval is stale, and of the audit records of approved calls:
//! `approval-used` for each that was released, and `approval-void` for each that was not.

use flowgate_lm::chat::{Completion, Request};
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::PersonClient;
use crate::audit_log::records;
use crate::gateway::{GatewayHome, KEY, POLICY, TestAgent, TestGateway, config, named, until};
use crate::mcp::{AnswerForm, McpServerDouble, text};
use crate::persisted_turns::tables;
use crate::servers;
use crate::upstream::{UpstreamDouble, calls, says, text_of};

const ASKS: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
/// A policy for a tool that writes and needs no approval.
const EDITS: &str = "require trusted if:\n    (call: ToolCall) is tool:edit\nlabel out.content as trusted if:\n    (out: ToolOutput) is tool:edit\n";
const PEOPLE: &str = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n[audit]\nfile = \"audit.jsonl\"\n";

fn home(upstream: &UpstreamDouble, declared: &str) -> GatewayHome {
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
        + PEOPLE;
    GatewayHome::new(&text, &format!("{POLICY}{declared}{EDITS}{ASKS}"))
}

/// Returns the number of calls of a tool in a chat.
fn made(request: &Request, tool: &str) -> usize {
    text_of(request).matches(&format!("name: \"{tool}\"")).count()
}

fn asked(request: &Request) -> usize {
    text_of(request).matches("user ").count()
}

/// Sends one mail for each message of the user.
fn mails_each(request: &Request) -> Completion {
    let asked = asked(request);
    match made(request, "send") < asked {
        true => calls(&[("read", "{}"), ("send", &format!(r#"{{"to":"bob","body":"mail {asked}"}}"#))]),
        false => says("Done."),
    }
}

/// Returns the numbers of decisions and of used approvals in the audit log, and the causes of void ones.
fn counted(home: &GatewayHome) -> (usize, usize, Vec<String>) {
    let records = records(home);
    let count = |kind: &str| records.iter().filter(|record| record.kind.name() == kind).count();
    let void = records.iter().filter(|record| record.kind.name() == "approval-void");
    let causes = void.map(|record| format!("{} {}", record.object["cause"], record.object["reasons"]));
    (count("decided"), count("approval-used"), causes.collect())
}

fn ran(agent: &TestAgent, tool: &str) -> usize {
    agent.ran.iter().filter(|call| call.starts_with(&format!("{tool} "))).count()
}

/// Parallel conversations of one client without declared stores do not make each other's approvals stale: every
/// approved call runs.
#[test]
fn parallel_conversations_do_not_make_approvals_stale() {
    for (api, _) in FORMS {
        let upstream = UpstreamDouble::new(mails_each);
        let home = home(&upstream, "");
        let gateway = home.start();
        let bob = PersonClient(&gateway, "bob");
        let mut agents: Vec<TestAgent> = (0..3).map(|_| TestAgent::new(&gateway, api, false, KEY)).collect();
        for round in 0..3 {
            for (number, agent) in agents.iter_mut().enumerate() {
                let said = agent.says(&format!("Mail Bob, {number} in round {round}."));
                assert!(said.contains("a person has to allow"), "{said}");
            }
            bob.open().iter().for_each(|question| assert_eq!(bob.says(question, "allow").0, 200));
            for agent in &mut agents {
                assert_eq!(agent.says("continue"), "Done.");
                assert_eq!(ran(agent, "send"), round + 1, "{api:?} {:?}", agent.ran);
            }
        }
        gateway.stop();
        assert_eq!(counted(&home), (9, 9, Vec::new()), "{api:?}");
    }
}

/// A second conversation edits a draft while a person is asked whether the first one may send it.
#[test]
fn an_answer_is_stale_if_what_it_refers_to_was_written_to() {
    let stored = "store drafts: written by edit, read by send, read\n";
    let others = "store drafts: written by edit, read by read\nstore mail: written by send\n";
    // The declarations, the content that the conversation has read, the arguments, the call of the other conversation,
    // and whether the approved call is released.
    let rows = [
        ("", "Draft 7 is for Bob.", r#"{"draft":7}"#, "edit", false),
        ("", r#"[{"id":"d-7","to":"Bob"}]"#, r#"{"draft":"d-7"}"#, "edit", false),
        ("", "Draft 7 is for Bob.", r#"{"draft":8}"#, "edit", true),
        ("", "Draft 7 is for Bob.", r#"{"draft":7}"#, "read", true),
        (stored, "Nothing.", r#"{"to":"bob"}"#, "edit", false),
        (stored, "Nothing.", r#"{"to":"bob"}"#, "read", true),
        (others, "Draft 7 is for Bob.", r#"{"draft":7}"#, "edit", true),
    ];
    for (number, (declared, page, sent, other, goes_out)) in rows.into_iter().enumerate() {
        for is_early in [false, true] {
            let upstream = UpstreamDouble::new(move |request| {
                let is_other = text_of(request).contains("Do it.");
                match (is_other, made(request, "read"), made(request, "send"), made(request, other)) {
                    (true, _, _, 0) => calls(&[(other, "{}")]),
                    (false, 0, ..) => calls(&[("read", "{}")]),
                    (false, _, 0, _) => calls(&[("send", sent)]),
                    _ => says("Done."),
                }
            });
            let home = home(&upstream, declared);
            let gateway = home.start();
            let bob = PersonClient(&gateway, "bob");
            let mut agents = [(); 2].map(|()| {
                let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
                agent.tools = named(&["read", "send", "edit"]);
                agent.page = page.to_owned();
                agent
            });
            agents[0].says("Send the draft.");
            let question = bob.first();
            let allow = || assert_eq!(bob.says(&question, "allow").0, 200);
            // The other conversation runs before or after the decision.
            if is_early {
                allow();
            }
            agents[1].says("Do it.");
            assert_eq!(ran(&agents[1], other), 1, "{number}");
            if !is_early {
                allow();
            }
            agents[0].says("continue");
            assert_eq!(ran(&agents[0], "send") == 1, goes_out, "{number} {is_early}");
            gateway.stop();
            let (decided, used, void) = counted(&home);
            assert_eq!(
                (decided, used, void.len()),
                (1, usize::from(goes_out), usize::from(!goes_out)),
                "{number}"
            );
            let is_stale = |cause: &String| {
                cause.starts_with("\"the call was refused when it was judged again\" [")
                    && cause.ends_with("\"stale\"]")
            };
            assert!(void.iter().all(is_stale), "{void:?}");
        }
    }
}

/// A write during the wait of a request makes its approval stale as well.
#[test]
fn a_write_during_the_wait_makes_an_approval_stale() {
    for (page, goes_out) in [("Draft 7 is for Bob.", false), ("Draft 8 is for Bob.", true)] {
        let upstream = UpstreamDouble::new(|request| {
            let is_other = text_of(request).contains("Do it.");
            match (is_other, made(request, "read"), made(request, "send"), made(request, "edit")) {
                (true, _, _, 0) => calls(&[("edit", "{}")]),
                (false, 0, ..) => calls(&[("read", "{}")]),
                (false, _, 0, _) => calls(&[("send", r#"{"draft":7}"#)]),
                _ => says("Done."),
            }
        });
        let mut home = home(&upstream, "");
        home.edit("wait-seconds = 0", "wait-seconds = 30");
        let gateway = home.start();
        let agent = || {
            let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
            agent.tools = named(&["read", "send", "edit"]);
            agent.page = page.to_owned();
            agent
        };
        let mut waiting = agent();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bob = PersonClient(&gateway, "bob");
                let question = bob.first();
                agent().says("Do it.");
                assert_eq!(bob.says(&question, "allow").0, 200);
            });
            waiting.says("Send the draft.");
        });
        assert_eq!(ran(&waiting, "send") == 1, goes_out, "{page}");
        gateway.stop();
        let (decided, used, void) = counted(&home);
        assert_eq!((decided, used, void.len()), (1, usize::from(goes_out), usize::from(!goes_out)), "{page}");
    }
}

/// An approved call that is not released is recorded as void, not as used.
#[test]
fn an_approval_is_used_when_its_call_goes_out() {
    type ApprovalAction = fn(&PersonClient<'_>, &mut TestAgent);
    let freeze = |bob: &PersonClient<'_>, frozen: bool| {
        let body = json!({"kind": "tool", "what": "send", "frozen": frozen});
        assert_eq!(bob.post("/api/v1/freezes", &body).0, 200);
    };
    let rows: [(ApprovalAction, usize, &[&str]); 3] = [
        (
            |_, agent| {
                agent.says("continue");
            },
            1,
            &[],
        ),
        (
            |_, agent| {
                agent.says("Never mind.");
            },
            0,
            &["\"the conversation continued without the answer\" []"],
        ),
        (
            |bob, agent| {
                let body = json!({"kind": "tool", "what": "send", "frozen": true});
                assert_eq!(bob.post("/api/v1/freezes", &body).0, 200);
                agent.says("continue");
            },
            0,
            &["\"an admin has frozen this tool: ask an admin to thaw it\" []"],
        ),
    ];
    for (number, (act, used, causes)) in rows.into_iter().enumerate() {
        let upstream = UpstreamDouble::new(|request| match text_of(request).contains("\"send\"") {
            true => says("Done."),
            false if text_of(request).contains("Never mind") => says("Fine."),
            false => calls(&[("send", r#"{"to":"bob"}"#)]),
        });
        let home = home(&upstream, "");
        let gateway = home.start();
        let bob = PersonClient(&gateway, "bob");
        let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
        agent.says("Mail Bob.");
        let question = bob.first();
        assert_eq!(bob.says(&question, "allow").0, 200);
        act(&bob, &mut agent);
        assert_eq!(ran(&agent, "send"), used, "{number}");
        freeze(&bob, true);
        let (_, body) = gateway
            .get(&format!("/api/v1/approvals/{}", question["id"].as_str().unwrap()), "key-of-the-person-bob");
        let state = if used == 1 { "used" } else { "void" };
        assert!(body.contains(&format!("\"state\":\"{state}\"")), "{number}: {body}");
        gateway.stop();
        let causes: Vec<String> = causes.iter().map(|cause| (*cause).to_owned()).collect();
        assert_eq!(counted(&home), (1, used, causes), "{number}");
    }
}

/// An approval that is not used in time is recorded as void; its question is deleted after the retention time.
#[test]
fn an_approval_that_is_not_used_in_time_is_void() {
    let upstream = UpstreamDouble::new(mails_each);
    let home = home(&upstream, "");
    let gateway = home.start();
    TestAgent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let bob = PersonClient(&gateway, "bob");
    let question = bob.first();
    assert_eq!(bob.says(&question, "allow").0, 200);
    gateway.stop();
    // Dates the question back beyond its expiry and the retention time.
    tables(&home, &["UPDATE questions SET asked = 1, expires = 2"]);
    // A gateway marks expired questions when it starts.
    let gateway = home.start();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    assert!(until(|| gateway.get(&path, "key-of-the-person-bob").0 == 404));
    // The record follows the deletion.
    assert!(until(|| !counted(&home).2.is_empty()));
    gateway.stop();
    assert_eq!(counted(&home), (1, 0, vec!["\"the approval was not used in time\" []".to_owned()]));
}

/// If the first call of a message is approved and the second one is never decided, neither is released, and the
/// approval is recorded as void.
#[test]
fn an_approved_call_of_an_abandoned_message_is_void() {
    let upstream = UpstreamDouble::new(|request| match text_of(request).contains("Never mind") {
        true => says("Fine."),
        false => calls(&[("send", r#"{"to":"bob"}"#), ("send", r#"{"to":"eve"}"#)]),
    });
    let home = home(&upstream, "");
    let gateway = home.start();
    let bob = PersonClient(&gateway, "bob");
    let mut agent = TestAgent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail both.");
    assert_eq!(bob.says(&bob.first(), "allow").0, 200);
    agent.says("continue");
    assert_eq!(bob.open().len(), 1);
    agent.says("Never mind.");
    assert_eq!(agent.ran, Vec::<String>::new());
    gateway.stop();
    let cause = "\"the conversation continued without the answer\" []".to_owned();
    assert_eq!(counted(&home), (1, 0, vec![cause]));
}

/// Runs an approval of a bank call that pays for a draft; `act` runs in between. Returns the calls that the server
/// received, and the home.
fn drafts(
    gateway: impl Fn(&GatewayHome) -> TestGateway,
    act: impl Fn(&TestGateway, &Value),
) -> (Vec<String>, GatewayHome) {
    let web = servers::web(AnswerForm::Json);
    let bank = McpServerDouble::new(AnswerForm::Json, &["balance", "pay", "edit"], |name, _| {
        text(if name == "pay" { "paid" } else { "draft 7" })
    });
    let balance = "    (call: ToolCall) is tool:bank/balance";
    let reads = format!("require untrusted if:\n{balance}");
    assert!(servers::POLICY.contains(&reads));
    let policy = format!(
        "{}{}require trusted if:\n    (call: ToolCall) is tool:bank/edit\n",
        servers::POLICY.replace(&reads, &format!("require top if:\n{balance}")),
        servers::ASKS
    );
    let more =
        servers::PEOPLE.to_owned() + "[approvals]\nwait-seconds = 0\n[audit]\nfile = \"audit.jsonl\"\n";
    let home = servers::home("http://127.0.0.1:1/v1", [&web, &bank], &more, &policy);
    let gateway = gateway(&home);
    // The initialization of a session may change state at the server, so it precedes the question.
    servers::client(&gateway, "two").begin("bank");
    let mut one = servers::client(&gateway, "one");
    one.begin("bank");
    one.call("bank", "balance", &json!({}));
    let bill = json!({"draft": 7});
    assert!(one.call("bank", "pay", &bill).contains("nobody has answered yet"));
    let ann = PersonClient(&gateway, "ann");
    assert_eq!(ann.says(&ann.first(), "allow").0, 200);
    act(&gateway, &bill);
    one.call("bank", "pay", &bill);
    gateway.stop();
    (bank.calls().into_iter().filter(|call| call.starts_with("pay")).collect(), home)
}

/// The same for calls of MCP servers outside the chat, which the client repeats after the approval.
#[test]
fn an_answer_about_a_call_of_a_server_is_stale_as_well() {
    let call = |conversation: &'static str, name: &'static str, arguments: Value| {
        move |gateway: &TestGateway, _: &Value| {
            servers::client(gateway, conversation).call("bank", name, &arguments);
        }
    };
    let (paid, home) = drafts(GatewayHome::start, call("two", "edit", json!({})));
    assert_eq!((paid.len(), counted(&home).1, counted(&home).2.len()), (0, 0, 1));
    let (paid, home) = drafts(GatewayHome::start, call("two", "balance", json!({})));
    assert_eq!((paid.len(), counted(&home)), (1, (1, 1, Vec::new())));
    let (paid, home) = drafts(GatewayHome::start, |_, _| {});
    assert_eq!((paid.len(), counted(&home)), (1, (1, 1, Vec::new())));
}
