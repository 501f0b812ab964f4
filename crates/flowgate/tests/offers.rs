//! Tests of what is known of tools before any call: the highest label at which a model may call them, and the label
//! that their answers may carry.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::{Monitor, Verdict};
use flowgate::policy::Policy;
use flowgate::trace::{Call, Tool, TraceEntry};
use serde_json::json;

const LATTICES: &str = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n";

fn session(policy: &str) -> Monitor {
    let source = format!("{LATTICES}{policy}");
    let policy = Policy::parse(&source).map_err(|problems| format!("{source}\n{problems:?}")).unwrap();
    Monitor::new(Arc::new(policy))
}

/// Returns all labels, from the least to the greatest, with two-character names.
fn labels(monitor: &mut Monitor) -> [(&'static str, Label); 4] {
    let mut label = |integrity: &str, secrecy: &str| {
        monitor.from_names(&json!({"integrity": integrity, "secrecy": secrecy}))
    };
    [
        ("tp", label("trusted", "public")),
        ("up", label("untrusted", "public")),
        ("ts", label("trusted", "private")),
        ("us", label("untrusted", "private")),
    ]
}

fn letters(monitor: &mut Monitor, label: &Label) -> &'static str {
    labels(monitor).into_iter().find(|(_, known)| known == label).unwrap().0
}

const SEND: &str = "\n    (call: ToolCall) is tool:send\n";

#[test]
fn requirements_say_how_much_a_model_may_be_shown() {
    let always = |label: &str| format!("require {label} if:{SEND}");
    let sometimes = |label: &str| format!("require {label} if:{SEND}    \"me\" in call.arguments.to\n");
    let argument = |label: &str| format!("require {label} for call.arguments.to if:{SEND}");
    let other = "require top if:\n    (call: ToolCall) is tool:list\n".to_owned();
    // The policy, whether it mentions the tool, the strictest label, and the labels at which some call may be
    // permitted.
    for (policy, speaks, strictest, permits) in [
        (String::new(), false, "tp", "tp"),
        (other.clone(), false, "tp", "tp"),
        (always("top"), true, "us", "tp up ts us"),
        (always("trusted, private"), true, "ts", "tp ts"),
        (always("private"), true, "ts", "tp ts"),
        (always("untrusted, public"), true, "up", "tp up"),
        (sometimes("untrusted, private"), true, "tp", "tp up ts us"),
        (sometimes("trusted, private"), true, "tp", "tp up ts us"),
        (always("trusted, private") + &sometimes("untrusted, private"), true, "ts", "tp ts"),
        (always("untrusted, private") + &sometimes("trusted, private"), true, "ts", "tp up ts us"),
        (always("untrusted, private") + &argument("trusted"), true, "ts", "tp ts"),
        (argument("untrusted, private"), true, "tp", "tp up ts us"),
        (always("trusted, private") + &always("untrusted, public"), true, "tp", "tp"),
    ] {
        let mut monitor = session(&policy);
        let send = Tool::local("send");
        assert_eq!(monitor.has_requirement(&send), speaks, "{policy}");
        let label = monitor.strictest_requirement([&send]);
        assert_eq!(letters(&mut monitor, &label), strictest, "{policy}");
        let all = labels(&mut monitor);
        let permitted =
            all.iter().filter(|(_, label)| monitor.may_permit(&send, label)).map(|(name, _)| *name);
        assert_eq!(permitted.collect::<Vec<_>>().join(" "), permits, "{policy}");
        // Without a rule and conditions, which can fail, a decision that flows to the requirement is permitted for any
        // arguments.
        let has_conditions = policy.contains("\"me\" in");
        for (name, at) in all {
            let permits_any = at.flows_to(&label) && !has_conditions;
            assert_eq!(monitor.permits_any(&send, &at), permits_any, "{policy} {name}");
        }
    }
    let mut monitor = session(&(always("trusted, private") + &other));
    for (tools, expected) in
        [(vec![], "us"), (vec!["send"], "ts"), (vec!["list"], "us"), (vec!["list", "send"], "ts")]
    {
        let tools: Vec<Tool> = tools.into_iter().map(Tool::local).collect();
        let label = monitor.strictest_requirement(&tools);
        assert_eq!(letters(&mut monitor, &label), expected, "{tools:?}");
    }
}

#[test]
fn offered_tools_are_stopped_by_rules() {
    let rule =
        |action: &str, lines: &str| format!("{action} \"x\" if:\n    {}\n", lines.replace('\n', "\n    "));
    // The rule, whether it never affects a call of `send`, and whether it can stop replies of the model.
    for (rule, permits_any, stops_replies) in [
        (String::new(), true, false),
        (rule("raise", "(call: ToolCall) is tool:send"), false, false),
        (rule("ask", "(call: ToolCall) is tool:send"), false, false),
        (rule("log", "(call: ToolCall) is tool:send"), true, false),
        (rule("raise", "(call: ToolCall) is tool:list"), true, false),
        (rule("raise", "(call: ToolCall)\ncall.arguments.to == \"bob\""), false, false),
        (rule("raise", "(out: ToolOutput) is tool:send"), true, false),
        (rule("raise", "(m: Message)\n\"x\" in m.content"), true, true),
        (rule("raise", "(m: Message)\nm.role == \"assistant\""), true, true),
        (rule("raise", "(m: Message)\nm.role == \"user\""), true, false),
        (rule("log", "(m: Message)\n\"x\" in m.content"), true, false),
        (rule("raise", "(m: Message)\nlen(m.tool_calls) > 3"), false, true),
        (rule("raise", "input.stopped == 1"), false, true),
    ] {
        let monitor = session(&format!("require top if:{SEND}{rule}"));
        assert_eq!(monitor.permits_any(&Tool::local("send"), &Label::BOTTOM), permits_any, "{rule}");
        assert_eq!(monitor.may_stop_replies(), stops_replies, "{rule}");
    }
}

#[test]
fn statements_speak_of_tools_by_server_and_name() {
    let bank = Tool::of("bank", "list");
    for (pattern, is_named) in [
        ("bank/list", true),
        ("bank/*", true),
        ("list", false),
        ("*", false),
        ("mail/list", false),
        ("bank/pay", false),
    ] {
        let monitor = session(&format!("require top if:\n    (call: ToolCall) is tool:{pattern}\n"));
        assert_eq!(monitor.is_named(&bank), is_named, "{pattern}");
        assert!(!monitor.is_named(&Tool::local("list")), "{pattern}");
        assert!(!monitor.labels_outputs(&bank) && !monitor.labels_messages());
        assert!(!monitor.labels_description(&bank), "{pattern}");
    }
    let answers = session("label out.content as trusted if:\n    (out: ToolOutput) is tool:bank/list\n");
    assert!(answers.labels_outputs(&bank) && !answers.labels_outputs(&Tool::of("bank", "pay")));
    assert!(!answers.labels_messages() && !answers.labels_description(&bank));
    // A label for all tools names none.
    for (pattern, is_named) in
        [("bank/list", true), ("list", true), ("bank/*", true), ("*", false), ("r\".*\"", false)]
    {
        let policy = format!("label out.content as trusted if:\n    (out: ToolOutput) is tool:{pattern}\n");
        assert_eq!(session(&policy).labels_outputs_by_name(&bank), is_named, "{pattern}");
    }
    let all = session("label out.content as trusted if:\n    (out: ToolOutput)\n");
    assert!(all.labels_outputs(&bank) && !all.labels_outputs_by_name(&bank));
    let messages = session("label m as trusted if:\n    (m: Message)\n");
    assert!(messages.labels_messages() && !messages.labels_outputs(&bank));
    let described = session("label t as trusted if:\n    (t: Tool) is tool:bank/list\n");
    assert!(described.labels_description(&bank) && !described.labels_description(&Tool::of("bank", "pay")));
    assert!(!described.labels_messages());
}

/// The clearance of an endpoint is declared by its name, and not for one argument.
#[test]
fn an_endpoint_is_cleared_by_name() {
    let own = |pattern: &str, target: &str| {
        format!("require trusted, private{target} if:\n    (call: ToolCall) is tool:{pattern}\n")
    };
    let argument = " for call.arguments.text";
    for (policy, expected) in [
        (String::new(), None),
        (own("flowgate/reader", ""), Some("ts")),
        (own("flowgate/other", ""), None),
        (own("*", ""), None),
        (own("flowgate/reader", argument), None),
        (own("flowgate/reader", "") + &own("*", argument), Some("ts")),
    ] {
        let mut monitor = session(&policy);
        let cleared = monitor.clearance("reader").map(|label| letters(&mut monitor, &label));
        assert_eq!(cleared, expected, "{policy}");
    }
}

fn call(id: &str, name: &str) -> Call {
    Call::from_json(id, Tool::local(name), "{}")
}

fn run(monitor: &mut Monitor, id: &str, name: &str) {
    let Verdict::Permit(permit) = monitor.judge(call(id, name)) else { panic!("{name}") };
    assert!(monitor.redeem(permit).is_ok());
}

/// A failed call carries the greatest label that an answer of the tool can carry.
#[test]
fn a_failure_carries_the_most_of_any_answer() {
    const LIST: &str = "\n    (out: ToolOutput) is tool:list\n";
    let label = |target: &str, label: &str| format!("label {target} as {label} if:{LIST}");
    let sometimes =
        |target: &str, label: &str| format!("label {target} as {label} if:{LIST}    \"x\" in out.content\n");
    for (policy, expected) in [
        (String::new(), "us"),
        (label("out.content", "trusted, public"), "tp"),
        (label("out", "trusted, public"), "tp"),
        (label("out.content", "trusted"), "ts"),
        (label("out.content", "untrusted, public"), "up"),
        (label("out.content.name", "trusted, public"), "us"),
        (label("out.content[*].name", "trusted, public"), "us"),
        (label("capture(out.content, r\"Rating: (?<rating>[0-9])\", \"rating\")", "trusted, public"), "us"),
        (sometimes("out.content", "trusted, public"), "us"),
        (label("out.content", "trusted, public") + &sometimes("out.content", "untrusted"), "up"),
        (label("out.content", "trusted, public") + &label("out.content.name", "private"), "ts"),
    ] {
        let mut monitor = session(&format!("require top if:\n    (call: ToolCall) is tool:list\n{policy}"));
        run(&mut monitor, "1", "list");
        let carried = monitor.failure_label("1");
        assert_eq!(letters(&mut monitor, &carried), expected, "{policy}");
        // Nothing is known about a call that is not running.
        let other = monitor.failure_label("2");
        assert_eq!(letters(&mut monitor, &other), "us", "{policy}");
        let pending = monitor.judge(call("3", "list"));
        let carried = monitor.failure_label("3");
        assert_eq!(letters(&mut monitor, &carried), "us", "{policy}");
        drop(pending);
        monitor.declare_tools([&Tool::of("mail", "list")]);
        let carried = monitor.failure_label("1");
        let ambiguous = if policy.is_empty() { expected } else { "us" };
        assert_eq!(letters(&mut monitor, &carried), ambiguous, "{policy}");
    }
}

/// An answer that a rule can stop carries the greatest label of its tool's answers; other answers carry
/// nothing in addition.
#[test]
fn an_answer_carries_more_where_a_rule_can_stop_it() {
    let rule = |lines: &str| format!("raise \"x\" if:\n    {}\n", lines.replace('\n', "\n    "));
    for (rule, expected) in [
        (String::new(), "tp"),
        (rule("(out: ToolOutput) is tool:list\n\"x\" in out.content"), "up"),
        (rule("(out: ToolOutput)\n\"x\" in out.content"), "up"),
        (rule("(out: ToolOutput) is tool:read\n\"x\" in out.content"), "tp"),
        (rule("(call: ToolCall)\ncall.arguments.to == \"bob\""), "tp"),
        (rule("(out: ToolOutput) is tool:list\n(call: ToolCall) is tool:send\nout -> call"), "tp"),
        // The rule reads outputs in a predicate only, so that an output after the call completes a match.
        (
            "was_listed(call: ToolCall) :=\n    (out: ToolOutput) is tool:list\n    call.arguments.to in out.content\n"
                .to_owned()
                + &rule("(call: ToolCall) is tool:send\nwas_listed(call)"),
            "us",
        ),
        // A predicate about its argument alone reads no output.
        (
            "is_to_bob(call: ToolCall) :=\n    call.arguments.to == \"bob\"\n".to_owned()
                + &rule("(call: ToolCall)\nis_to_bob(call)"),
            "tp",
        ),
    ] {
        let policy =
            format!("label out.content as untrusted, public if:\n    (out: ToolOutput) is tool:list\n{rule}");
        let mut monitor = session(&policy);
        let floor = monitor.output_floor(&Tool::local("list"));
        assert_eq!(letters(&mut monitor, &floor), expected, "{rule}");
    }
}

/// A model that was shown more may write to a store: texts from that store carry the label from then on,
/// whether a write happened or not.
#[test]
fn a_possible_write_raises_the_label_of_a_store() {
    let note = |label: &str| format!("require {label} if:\n    (call: ToolCall) is tool:note\n");
    for (policy, below, expected) in [
        (note("untrusted, public"), "tp", "up"),
        (note("untrusted, public"), "up", "tp"),
        // A tool that requires trusted and public input is not called by such a model.
        (String::new(), "tp", "tp"),
        // A harmless tool writes to no store.
        (note("top"), "tp", "tp"),
    ] {
        let read = "label out.content as trusted, public if:\n    (out: ToolOutput) is tool:read\nrequire top if:\n    (call: ToolCall) is tool:read\n";
        let mut monitor = session(&format!("{policy}{read}"));
        monitor.declare_tools(&["note", "read"].map(Tool::local));
        let all = labels(&mut monitor);
        let label = |name: &str| all.iter().find(|(known, _)| *known == name).unwrap().1;
        monitor.raise_stores_for_view(&label(below), &label("up"));
        run(&mut monitor, "1", "read");
        let (call_id, content) = ("1".to_owned(), json!("text"));
        let (event, _) = monitor.push(TraceEntry::tool_output(call_id, content)).unwrap();
        let carried = monitor.trace().event(event).unwrap().label;
        assert_eq!(letters(&mut monitor, &carried), expected, "{policy} {below}");
    }
}

#[test]
fn exceeded_dimensions_are_described() {
    let mut monitor = session("");
    let [least, untrusted, private, most] = labels(&mut monitor).map(|(_, label)| label);
    for (label, upper, expected) in [
        (least, least, vec![]),
        (most, least, vec!["untrusted", "private"]),
        (most, untrusted, vec!["private"]),
        (untrusted, private, vec!["untrusted"]),
        (private, most, vec![]),
    ] {
        assert_eq!(monitor.describe_excess(&label, &upper), expected);
    }
}
