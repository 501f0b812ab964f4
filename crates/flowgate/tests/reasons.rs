//! Tests of the reasons of a verdict: each statement is reported once for each part of a call, and approved reasons
//! are not reported again.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use flowgate::monitor::{Monitor, Outcome, Reason, ReasonKind, Verdict};
use flowgate::policy::{Action, Policy};
use flowgate::trace::{Call, Tool, TraceEntry};
use serde_json::{Map, Value, json};

fn session(policy: &str) -> Monitor {
    Monitor::new(Arc::new(Policy::parse(policy).unwrap()))
}

fn says(monitor: &mut Monitor, text: &str) {
    monitor.push(TraceEntry::user(text)).unwrap();
}

fn call(id: &str, name: &str, arguments: &Value) -> Call {
    Call::from_json(id, Tool::local(name), &arguments.to_string())
}

/// Returns the subject of each reason: the part, and the text of the statement.
fn about(policy: &str, reasons: &[Reason]) -> Vec<(String, String)> {
    let statement = |reason: &Reason| {
        let text = reason.statement.clone().and_then(|span| policy.get(span)).unwrap_or_default();
        text.lines().next().unwrap_or_default().to_owned()
    };
    reasons.iter().map(|reason| (reason.part.clone().unwrap_or_default(), statement(reason))).collect()
}

const STRICT: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
require untrusted, private if:
    (call: ToolCall) is tool:send
require trusted for call.arguments.to if:
    (call: ToolCall) is tool:send
require public for call.arguments.to if:
    (call: ToolCall) is tool:send
require public for call.arguments.body if:
    (call: ToolCall) is tool:send
"#;

#[test]
fn each_part_is_reported_once_for_each_statement() {
    let mut monitor = session(STRICT);
    says(&mut monitor, "Nobody labels this, so it is untrusted and private.");
    let arguments = json!({"to": ["bob", {"name": "ann"}], "body": [["all"], "of", "it"]});
    let verdict = monitor.judge(call("1", "send", &arguments));
    let expected = [
        ("arguments.body", "require public for call.arguments.body if:"),
        ("arguments.to", "require public for call.arguments.to if:"),
        ("arguments.to", "require trusted for call.arguments.to if:"),
        ("decision", "require public for call.arguments.body if:"),
        ("decision", "require public for call.arguments.to if:"),
        ("decision", "require trusted for call.arguments.to if:"),
    ];
    let mut told = about(STRICT, &verdict.judgement().reasons);
    told.sort();
    let told: Vec<(&str, &str)> = told.iter().map(|(part, text)| (part.as_str(), text.as_str())).collect();
    assert_eq!(told, expected);
}

/// Programs can read from a reason what is carried, what is permitted, and which part of it is confidential.
#[test]
fn a_reason_has_the_carried_and_the_permitted_label() {
    let policy = "\
lattice integrity: trusted < untrusted
lattice secrecy: public < private
require trusted, public if:
    (call: ToolCall) is tool:send
";
    let mut monitor = session(policy);
    says(&mut monitor, "Nobody labels this, so it is untrusted and private.");
    let verdict = monitor.judge(call("1", "send", &json!({})));
    let [reason] = verdict.judgement().reasons.as_slice() else { panic!("{:?}", verdict.judgement()) };
    assert_eq!(reason.label, ["untrusted", "private"]);
    assert_eq!(reason.required, ["trusted", "public"]);
    assert_eq!(reason.categories, ["private"]);
}

/// A person is shown all matches of a rule, so a rule with more matches than can be shown denies; a rule that
/// only records does not.
#[test]
fn matches_that_cannot_be_shown_cannot_be_approved() {
    let lattices =
        "lattice integrity: trusted < untrusted\nrequire top if:\n    (call: ToolCall) is tool:send\n";
    for (action, count, outcome) in [
        ("ask", 99, Outcome::Confirm),
        ("ask", 100, Outcome::Deny),
        ("ask", 150, Outcome::Deny),
        ("log", 150, Outcome::Permit),
    ] {
        let rule = |name: &str| {
            format!("{action} \"{name}\" if:\n    (m: Message) -> (call: ToolCall)\n    call is tool:send\n")
        };
        let mut monitor = session(&format!("{lattices}{}", rule("after a message")));
        (0..count).for_each(|_| says(&mut monitor, "hello"));
        let verdict = monitor.judge(call("1", "send", &json!({})));
        assert_eq!(verdict.judgement().outcome(), outcome, "{action} {count}");
        // The limit applies to each rule separately.
        let mut monitor = session(&format!("{lattices}{}{}", rule("after a message"), rule("after another")));
        (0..count / 2).for_each(|_| says(&mut monitor, "hello"));
        let verdict = monitor.judge(call("1", "send", &json!({})));
        let expected = if action == "log" { Outcome::Permit } else { Outcome::Confirm };
        assert_eq!(verdict.judgement().outcome(), expected, "{action} {count}, two rules");
    }
}

const CONSENTED: &str = r#"
lattice integrity: trusted < untrusted
lattice secrecy: public < private
lattice origin: inside < outside
label message as trusted, private, outside if:
    (message: Message)
    message.role == "user"
require trusted, private, outside if:
    (call: ToolCall) is tool:send
require public for call.arguments.to if:
    (call: ToolCall) is tool:send
require public, inside for call.arguments.body if:
    (call: ToolCall) is tool:send
consent private for call.arguments.to if:
    (call: ToolCall) is tool:send
consent private for call.arguments.body if:
    (call: ToolCall) is tool:send
consent outside for call.arguments.body if:
    (call: ToolCall) is tool:send
"#;

#[test]
fn each_consent_is_reported_once_for_each_part() {
    let mut monitor = session(CONSENTED);
    says(&mut monitor, "Send it.");
    let arguments = json!({"to": ["bob", "ann"], "body": [["all"], "of", "it"], "at": "once"});
    let verdict = monitor.judge(call("1", "send", &arguments));
    let judgement = verdict.judgement();
    let consents: Vec<Reason> =
        judgement.notes.iter().filter(|note| note.kind == ReasonKind::Consent).cloned().collect();
    let mut told = about(CONSENTED, &consents);
    told.sort();
    let told: Vec<(&str, &str)> = told.iter().map(|(part, text)| (part.as_str(), text.as_str())).collect();
    let expected = [
        ("arguments.body", "consent outside for call.arguments.body if:"),
        ("arguments.body", "consent private for call.arguments.body if:"),
        ("arguments.to", "consent private for call.arguments.to if:"),
    ];
    assert_eq!(told, expected, "{:?}", judgement.reasons);
    let labels: Vec<&[String]> = consents.iter().map(|consent| consent.label.as_slice()).collect();
    assert!(
        labels.iter().all(|label| matches!(label, [one] if one == "private" || one == "outside")),
        "{labels:?}"
    );
}

/// The number of arguments of a call is limited.
#[test]
fn a_call_has_only_so_many_arguments() {
    for (count, is_too_much) in [(999, false), (1_000, false), (1_001, true), (1_002, true)] {
        let mut monitor = session("log \"a call\" if:\n    (call: ToolCall)\n");
        let arguments: Map<String, Value> =
            (0..count).map(|number| (format!("a{number}"), json!(1))).collect();
        let verdict = monitor.judge(call("1", "send", &Value::Object(arguments)));
        let told = verdict.judgement().reasons.iter().any(|reason| {
            reason.kind == ReasonKind::Limit && reason.message.contains("more than 1000 arguments")
        });
        assert_eq!(told, is_too_much, "{count}");
        assert_eq!(matches!(verdict, Verdict::Deny(_)), is_too_much, "{count}");
    }
}

/// A rule that only records gives no reason against a call.
#[test]
fn a_rule_that_records_gives_no_reason_against_a_call() {
    for (action, outcome) in [("log", Outcome::Permit), ("ask", Outcome::Confirm), ("raise", Outcome::Deny)] {
        let mut monitor = session(&format!("{action} \"a call\" if:\n    (call: ToolCall)\n"));
        let verdict = monitor.judge(call("1", "send", &json!({})));
        let judgement = verdict.judgement();
        let is_note = outcome == Outcome::Permit;
        assert_eq!((judgement.reasons.len(), judgement.notes.len()), if is_note { (0, 1) } else { (1, 0) });
        assert!(judgement.notes.iter().all(|note| note.action == Action::Log));
        assert_eq!(judgement.outcome(), outcome);
    }
}

/// An approval covers what the person was shown: this rule with these events. The position of the call does
/// not matter.
#[test]
fn an_approval_covers_the_shown_events() {
    // A harmless tool writes to no store, so no store changes.
    let harmless = "lattice integrity: trusted < untrusted\nrequire top if:\n    (call: ToolCall) is tool:r\"read|send\"\n";
    let rule = "ask \"sent after reading\" if:\n    (a: ToolCall) is tool:read\n    (b: ToolCall) is tool:send\n    a -> b\n";
    for (reads, talks, is_covered) in [(0, 0, true), (0, 3, true), (1, 0, false), (1, 2, false)] {
        let mut monitor = session(&format!("{harmless}{rule}"));
        let read = |monitor: &mut Monitor, id: &str| {
            let Verdict::Permit(permit) = monitor.judge(call(id, "read", &json!({}))) else { panic!("{id}") };
            assert!(monitor.redeem(permit).is_ok());
        };
        read(&mut monitor, "r");
        let Verdict::Confirm(question) = monitor.judge(call("s", "send", &json!({}))) else { panic!() };
        (0..talks).for_each(|_| says(&mut monitor, "hello"));
        (0..reads).for_each(|number| read(&mut monitor, &format!("r{number}")));
        let store = "state that the call refers to has changed";
        match monitor.approve(question) {
            Ok(permit) => assert!(is_covered && monitor.redeem(permit).is_ok(), "{reads} {talks}"),
            Err(denial) => {
                let why = denial.judgement().reasons.last().unwrap().message.clone();
                assert!(!is_covered && !why.contains(store), "{reads} {talks}: {why}");
            }
        }
    }
}
