//! What makes an answer of a person stale, and what the audit log says of approved calls: `approval-used` for each that went out, and
//! `approval-void` for each that did not.

use flowgate_lm::chat::{Completion, Request};
use serde_json::{Value, json};

use crate::FORMS;
use crate::approvals::Person;
use crate::audited::records;
use crate::gateway::{Agent, Gateway, Home, KEY, POLICY, config, named, until};
use crate::kept::tables;
use crate::mcp::{Form, Server, text};
use crate::servers;
use crate::upstream::{Upstream, calls, says, text_of};

const ASKS: &str = "ask \"mails are confirmed\" if:\n    (call: ToolCall) is tool:send\n";
/// A tool that writes, and that nobody is asked about.
const EDITS: &str = "require trusted if:\n    (call: ToolCall) is tool:edit\nlabel out.content as trusted if:\n    (out: ToolOutput) is tool:edit\n";
const PEOPLE: &str = "[people.bob]\nkey-from = \"bob\"\nrole = \"admin\"\n[approvals]\nwait-seconds = 0\n[audit]\nfile = \"audit.jsonl\"\n";

fn home(upstream: &Upstream, declared: &str) -> Home {
    let text = config(&upstream.url, "chat-completions", "user-messages = \"trust-unmarked-even-if-pasted\"")
        + PEOPLE;
    Home::new(&text, &format!("{POLICY}{declared}{EDITS}{ASKS}"))
}

/// How many calls of a tool a text of a chat has.
fn made(request: &Request, tool: &str) -> usize {
    text_of(request).matches(&format!("name: \"{tool}\"")).count()
}

fn asked(request: &Request) -> usize {
    text_of(request).matches("user ").count()
}

/// One mail for each message of the user.
fn mails_each(request: &Request) -> Completion {
    let asked = asked(request);
    match made(request, "send") < asked {
        true => calls(&[("read", "{}"), ("send", &format!(r#"{{"to":"bob","body":"mail {asked}"}}"#))]),
        false => says("Done."),
    }
}

/// How often each kind stands in the log, and what it says of approved calls that did not run.
fn counted(home: &Home) -> (usize, usize, Vec<String>) {
    let records = records(home);
    let count = |kind: &str| records.iter().filter(|record| record.kind == kind).count();
    let void = records.iter().filter(|record| record.kind == "approval-void");
    let causes = void.map(|record| format!("{} {}", record.object["cause"], record.object["reasons"]));
    (count("decided"), count("approval-used"), causes.collect())
}

fn ran(agent: &Agent, tool: &str) -> usize {
    agent.ran.iter().filter(|call| call.starts_with(&format!("{tool} "))).count()
}

/// Three conversations of one client ask at the same time, nobody has declared any store, and each call runs that was allowed.
#[test]
fn parallel_conversations_do_not_make_approvals_stale() {
    for (api, _) in FORMS {
        let upstream = Upstream::new(mails_each);
        let home = home(&upstream, "");
        let gateway = home.start();
        let bob = Person(&gateway, "bob");
        let mut agents: Vec<Agent> = (0..3).map(|_| Agent::new(&gateway, api, false, KEY)).collect();
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

/// A draft of one conversation is edited in another one, while a person is asked whether it may be sent.
#[test]
fn an_answer_is_stale_if_what_it_refers_to_was_written_to() {
    let stored = "store drafts: written by edit, read by send, read\n";
    let others = "store drafts: written by edit, read by read\nstore mail: written by send\n";
    // What is declared, what the conversation has read, what is sent, what the other conversation does, and whether it goes out.
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
            let upstream = Upstream::new(move |request| {
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
            let bob = Person(&gateway, "bob");
            let mut agents = [(); 2].map(|()| {
                let mut agent = Agent::new(&gateway, FORMS[0].0, false, KEY);
                agent.tools = named(&["read", "send", "edit"]);
                agent.page = page.to_owned();
                agent
            });
            agents[0].says("Send the draft.");
            let question = bob.first();
            let allow = || assert_eq!(bob.says(&question, "allow").0, 200);
            // The other conversation is there before or after the decision.
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
            let is_stale =
                |cause: &String| cause.starts_with("\"judged again\" [") && cause.ends_with("\"stale\"]");
            assert!(void.iter().all(is_stale), "{void:?}");
        }
    }
}

/// What is written while the request still waits for the person counts as well.
#[test]
fn what_is_written_while_a_request_waits_is_seen() {
    for (page, goes_out) in [("Draft 7 is for Bob.", false), ("Draft 8 is for Bob.", true)] {
        let upstream = Upstream::new(|request| {
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
            let mut agent = Agent::new(&gateway, FORMS[0].0, false, KEY);
            agent.tools = named(&["read", "send", "edit"]);
            agent.page = page.to_owned();
            agent
        };
        let mut waiting = agent();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let bob = Person(&gateway, "bob");
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

/// A call that a person has allowed and that does not go out is not said to have gone out.
#[test]
fn an_approval_is_used_when_its_call_goes_out() {
    type Act = fn(&Person<'_>, &mut Agent);
    let freeze = |bob: &Person<'_>, frozen: bool| {
        let body = json!({"kind": "tool", "what": "send", "frozen": frozen});
        assert_eq!(bob.post("/api/v1/freezes", &body).0, 200);
    };
    let rows: [(Act, usize, &[&str]); 3] = [
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
            &["\"the conversation went on without the answer\" []"],
        ),
        (
            |bob, agent| {
                let body = json!({"kind": "tool", "what": "send", "frozen": true});
                assert_eq!(bob.post("/api/v1/freezes", &body).0, 200);
                agent.says("continue");
            },
            0,
            &["\"this tool is stopped by its operator\" []"],
        ),
    ];
    for (number, (act, used, causes)) in rows.into_iter().enumerate() {
        let upstream = Upstream::new(|request| match text_of(request).contains("\"send\"") {
            true => says("Done."),
            false if text_of(request).contains("Never mind") => says("Fine."),
            false => calls(&[("send", r#"{"to":"bob"}"#)]),
        });
        let home = home(&upstream, "");
        let gateway = home.start();
        let bob = Person(&gateway, "bob");
        let mut agent = Agent::new(&gateway, FORMS[0].0, false, KEY);
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

/// An approval that is not used in time is void, and the log says so. Its question is deleted when it is old.
#[test]
fn an_approval_that_is_not_used_in_time_is_void() {
    let upstream = Upstream::new(mails_each);
    let home = home(&upstream, "");
    let gateway = home.start();
    Agent::new(&gateway, FORMS[0].0, false, KEY).says("Mail Bob.");
    let bob = Person(&gateway, "bob");
    let question = bob.first();
    assert_eq!(bob.says(&question, "allow").0, 200);
    gateway.stop();
    // All of that was long ago.
    tables(&home, &["UPDATE questions SET asked = 1, expires = 2"]);
    // A gateway marks what has expired when it begins.
    let gateway = home.start();
    let path = format!("/api/v1/approvals/{}", question["id"].as_str().unwrap());
    assert!(until(|| gateway.get(&path, "key-of-the-person-bob").0 == 404));
    // Recording comes after deleting.
    assert!(until(|| !counted(&home).2.is_empty()));
    gateway.stop();
    assert_eq!(counted(&home), (1, 0, vec!["\"the approval was not used in time\" []".to_owned()]));
}

/// The first of two calls of a message is allowed, and the second one never decided: neither goes out, and the log says so.
#[test]
fn an_approved_call_whose_message_is_given_up_is_void() {
    let upstream = Upstream::new(|request| match text_of(request).contains("Never mind") {
        true => says("Fine."),
        false => calls(&[("send", r#"{"to":"bob"}"#), ("send", r#"{"to":"eve"}"#)]),
    });
    let home = home(&upstream, "");
    let gateway = home.start();
    let bob = Person(&gateway, "bob");
    let mut agent = Agent::new(&gateway, FORMS[0].0, false, KEY);
    agent.says("Mail both.");
    assert_eq!(bob.says(&bob.first(), "allow").0, 200);
    agent.says("continue");
    assert_eq!(bob.open().len(), 1);
    agent.says("Never mind.");
    assert_eq!(agent.ran, Vec::<String>::new());
    gateway.stop();
    let cause = "\"the conversation went on without the answer\" []".to_owned();
    assert_eq!(counted(&home), (1, 0, vec![cause]));
}

/// A server of drafts and of mails, in front of which people decide.
fn drafts(gateway: impl Fn(&Home) -> Gateway, act: impl Fn(&Gateway, &Value)) -> (Vec<String>, Home) {
    let web = servers::web(Form::Json);
    let bank = Server::new(Form::Json, &["balance", "pay", "edit"], |name, _| {
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
    // What greets a server may change something there, too.
    servers::client(&gateway, "two").begin("bank");
    let mut one = servers::client(&gateway, "one");
    one.begin("bank");
    one.call("bank", "balance", &json!({}));
    let bill = json!({"draft": 7});
    assert!(one.call("bank", "pay", &bill).contains("nobody has answered yet"));
    let ann = Person(&gateway, "ann");
    assert_eq!(ann.says(&ann.first(), "allow").0, 200);
    act(&gateway, &bill);
    one.call("bank", "pay", &bill);
    gateway.stop();
    (bank.calls().into_iter().filter(|call| call.starts_with("pay")).collect(), home)
}

/// The same of calls of servers beside the chat, which come again when they are allowed.
#[test]
fn an_answer_about_a_call_of_a_server_is_stale_as_well() {
    let call = |conversation: &'static str, name: &'static str, arguments: Value| {
        move |gateway: &Gateway, _: &Value| {
            servers::client(gateway, conversation).call("bank", name, &arguments);
        }
    };
    let (paid, home) = drafts(Home::start, call("two", "edit", json!({})));
    assert_eq!((paid.len(), counted(&home).1, counted(&home).2.len()), (0, 0, 1));
    let (paid, home) = drafts(Home::start, call("two", "balance", json!({})));
    assert_eq!((paid.len(), counted(&home)), (1, (1, 1, Vec::new())));
    let (paid, home) = drafts(Home::start, |_, _| {});
    assert_eq!((paid.len(), counted(&home)), (1, (1, 1, Vec::new())));
}
