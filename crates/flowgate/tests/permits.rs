//! Tests that a permit is valid for the state in which it was given: after any later event the call is judged again.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Attribution, CallDependency, Limits, Monitor, Outcome, Permit, ReasonKind, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Status, Tool, TraceEntry};
use serde_json::json;

const POLICY: &str = r#"
lattice integrity: trusted < untrusted

label message as trusted if:
    (message: Message)
    message.role == "user"
require top if:
    (call: ToolCall) is tool:r"read|note|check"
require untrusted if:
    (call: ToolCall) is tool:send
require untrusted if:
    (call: ToolCall) is tool:pay

raise "nothing is sent after something was read" if:
    (a: ToolCall) is tool:read
    (b: ToolCall) is tool:send
    a -> b
raise "nothing is sent after an alarm" if:
    (m: Message)
    (b: ToolCall) is tool:send
    m -> b
    m.content == "alarm"
raise "nothing is paid without a check" if:
    (b: ToolCall) is tool:pay
    not:
        (a: ToolCall) is tool:check
        a -> b
"#;

fn call(name: &str) -> Call {
    Call::from_json(name, Tool::local(name), "{}")
}

fn permit(monitor: &mut Monitor, name: &str) -> Permit {
    match monitor.judge(call(name)) {
        Verdict::Permit(permit) => permit,
        other => panic!("{name}: {other:?}"),
    }
}

fn session(limits: Limits) -> Monitor {
    let mut monitor = Monitor::with_limits(Arc::new(Policy::parse(POLICY).unwrap()), limits);
    // The first occurrence of a tool alone can change verdicts.
    monitor.declare_tools(&["read", "send", "note", "check", "pay"].map(Tool::local));
    monitor
}

fn says(text: &str) -> TraceEntry {
    TraceEntry::user(text)
}

#[test]
fn a_call_is_judged_again_after_anything_has_happened() {
    type Happening = fn(&mut Monitor);
    let rows: [(&str, Happening, bool); 8] = [
        ("nothing", |_| {}, true),
        ("a message", |monitor| drop(monitor.push(says("hello")).unwrap()), true),
        ("an alarm", |monitor| drop(monitor.push(says("alarm")).unwrap()), false),
        (
            "a call that ran",
            |monitor| {
                let read = permit(monitor, "read");
                drop(monitor.redeem(read).unwrap());
            },
            false,
        ),
        (
            "a call of a log",
            |monitor| drop(monitor.record(call("read").into(), &Attribution::everything())),
            false,
        ),
        (
            "another call that ran",
            |monitor| {
                let note = permit(monitor, "note");
                drop(monitor.redeem(note).unwrap());
            },
            true,
        ),
        ("a tool of this name", |monitor| monitor.declare_tools([&Tool::of("mail", "send")]), false),
        ("another tool", |monitor| monitor.declare_tools([&Tool::of("mail", "list")]), true),
    ];
    for (what, happen, runs) in rows {
        let mut monitor = session(Limits::default());
        let send = permit(&mut monitor, "send");
        happen(&mut monitor);
        assert_eq!(monitor.redeem(send).is_ok(), runs, "{what}");
    }
}

/// A permit that was given while another call was pending is judged again after that call is given up.
#[test]
fn a_call_is_judged_again_after_another_was_given_up() {
    for is_given_up in [false, true] {
        let mut monitor = session(Limits::default());
        let check = permit(&mut monitor, "check");
        let pay = permit(&mut monitor, "pay");
        if is_given_up {
            drop(check);
            assert!(monitor.redeem(pay).is_err());
        } else {
            assert!(monitor.redeem(pay).is_ok());
            drop(check);
        }
    }
}

/// Giving up or judging one call again does not affect the withdrawal of others.
#[test]
fn every_call_that_is_given_up_is_withdrawn() {
    let mut monitor = session(Limits::default());
    let permits = ["read", "note", "check"].map(|name| permit(&mut monitor, name));
    for permit in permits {
        let event = permit.event();
        drop(permit);
        monitor.push(says("hello")).unwrap();
        assert_eq!(monitor.trace().event(event).unwrap().status, Status::Withdrawn, "{event}");
    }
}

/// A recorded call that does not fit into the trace still counts.
#[test]
fn a_call_is_judged_again_after_one_that_has_no_place() {
    for (messages, another) in [(0, false), (0, true), (1, false), (1, true), (2, true)] {
        let mut monitor = session(Limits { events: 2 + messages, ..Limits::default() });
        monitor.push(says("hello")).unwrap();
        let note = permit(&mut monitor, "note");
        for _ in 0..messages {
            monitor.push(says("hello")).unwrap();
        }
        if another {
            let recorded = monitor.record(call("read").into(), &Attribution::everything());
            assert_eq!((recorded.outcome, recorded.event), (Outcome::Deny, None));
        }
        // In a full session, judging a call again denies it.
        assert_eq!(monitor.redeem(note).is_ok(), messages == 0 && !another, "{messages}");
    }
}

/// An answer to a recorded call that was not permitted counts as an answer without a call.
#[test]
fn an_answer_to_a_forbidden_recorded_call_answers_no_call() {
    for (before, is_permitted) in [("note", true), ("read", false)] {
        let mut monitor = session(Limits::default());
        for name in [before, "send"] {
            let outcome = monitor.record(call(name).into(), &Attribution::everything()).outcome;
            assert_eq!(outcome == Outcome::Deny, name == "send" && !is_permitted, "{before} {name}");
        }
        let (call_id, content) = ("send".to_owned(), json!("sent"));
        let (_, findings) = monitor.push(TraceEntry::tool_output(call_id, content)).unwrap();
        let kinds: Vec<ReasonKind> = findings.iter().map(|finding| finding.reason.kind).collect();
        let expected: &[ReasonKind] = if is_permitted { &[] } else { &[ReasonKind::Unsolicited] };
        assert_eq!(kinds, expected, "{before}");
    }
}

/// A call that depends on regions that its model was not shown is denied.
#[test]
fn a_call_that_depends_on_hidden_regions_is_denied() {
    for (decision, argument, expected) in [
        (CallDependency::Everything, CallDependency::Everything, vec![]),
        (CallDependency::Hidden, CallDependency::Everything, vec!["decision"]),
        (CallDependency::View(Label::BOTTOM), CallDependency::Hidden, vec!["arguments.to"]),
        (CallDependency::Hidden, CallDependency::Hidden, vec!["decision", "arguments.to"]),
    ] {
        let mut monitor = session(Limits::default());
        let (method, arguments) = ("test", vec![("to".to_owned(), argument)]);
        let attribution = Attribution { method, decision, arguments, hidden: 1 };
        let send = Call::from_json("1", Tool::local("send"), "{\"to\": \"bob\"}");
        let verdict = monitor.judge_entry(send.into(), attribution);
        let reasons = &verdict.judgement().reasons;
        assert!(reasons.iter().all(|reason| reason.kind == ReasonKind::Hidden), "{reasons:?}");
        let parts: Vec<&str> = reasons.iter().filter_map(|reason| reason.part.as_deref()).collect();
        assert_eq!(parts, expected);
        assert_eq!(matches!(verdict, Verdict::Deny(_)), !expected.is_empty());
    }
}
