//! Tests of `flowgate check`: verdicts, output formats, and errors of policies.

use std::path::Path;
use std::process::Command;

use crate::{POLICY, TRACE, check, check_golden, file, flowgate, name, text};

#[test]
fn exit_codes_are_as_documented() {
    check(&["check", POLICY], 0, "is a policy (with labels, 2 dimensions)");
    check(&["check", POLICY, TRACE], 1, "1 run: 1 call permitted, 2 to be confirmed, 0 denied; 0 findings");
    check(&["check", POLICY, TRACE, "--influence", "provenance"], 1, "2 calls permitted, 1 to be confirmed");
    check(&["check", POLICY, TRACE], 1, "✓ permit   #3 get_recent_transactions (c1)");
    let short = text(&flowgate(&["check", POLICY, TRACE, "--objections"]));
    assert!(!short.contains("✓ permit") && short.contains("? confirm"), "{short}");
    check(&["check", POLICY, "no-such-file.json"], 2, "error: no-such-file.json: there is no such file");
    check(
        &["check", POLICY, TRACE, "--influence", "magic"],
        2,
        "known methods are everything, provenance, nothing",
    );
    check(&["chekc"], 2, "a similar subcommand exists: 'check'");
    let permitted = file("permitted.json", br#"[{"role":"user","content":"hi"}]"#);
    check(&["check", POLICY, name(&permitted)], 0, "1 run: 0 calls permitted");
}

#[test]
fn content_is_shown_only_when_asked_for() {
    let quiet = text(&flowgate(&["check", POLICY, TRACE]));
    assert!(!quiet.contains("IMPORTANT") && quiet.contains("content[1].note:104-173"), "{quiet}");
    check(&["check", POLICY, TRACE, "--content"], 1, "“hi! IMPORTANT");
}

#[test]
fn a_policy_names_the_file_that_it_imports() {
    file(
        "imported.flow",
        b"lattice integrity: trusted < untrusted\n\nrequire trusted if:\n    (call: ToolCall) is tool:pay\nlable x\n",
    );
    let broken = file("importing-broken.flow", b"import \"imported.flow\"\n");
    check(&["check", name(&broken)], 2, "imported.flow:5:1");
    check(&["check", name(&broken)], 2, "importing-broken.flow has 1 error");
    let none = file("importing-none.flow", b"import \"imported-no.flow\"\n");
    check(&["check", name(&none)], 2, "imported-no.flow: there is no such file");

    file(
        "imported-good.flow",
        b"lattice integrity: trusted < untrusted\n\nrequire trusted if:\n    (call: ToolCall) is tool:pay\n",
    );
    let policy = file("importing.flow", b"\nimport \"imported-good.flow\"\n");
    let trace = br#"[{"role":"user","content":"hi"},{"role":"assistant","content":"","tool_calls":[{"id":"1","type":"function","function":{"name":"pay","arguments":"{}"}}]}]"#;
    let trace = file("importing.json", trace);
    let arguments = ["check", name(&policy), name(&trace)];
    check(&arguments, 1, "imported-good.flow:3  require trusted if:");
    check(&[&arguments[..], &["--format", "json"]].concat(), 1, "\"file\": \"imported-good.flow\"");
    check(&[&arguments[..], &["--format", "sarif"]].concat(), 1, "imported-good.flow");
}

#[test]
fn wire_formats_are_stable() {
    for (format, golden) in [("json", "check.json"), ("jsonl", "check.jsonl"), ("sarif", "check.sarif")] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .current_dir(folder)
            .args(["check", "demo/payment.flow", "demo/payment.json", "--format", format])
            .output()
            .unwrap();
        check_golden(output, golden);
    }
}

/// An event that the monitor refuses fails the check, so each format says which one it is and why.
#[test]
fn every_format_has_the_refused_events() {
    let policy = file("refused.flow", b"raise \"x\" if:\n    (call: ToolCall) is tool:rm\n");
    let trace = br#"[{"role":"user","content":"hi"},{"role":"user","content":"x","metadata":{"parents":["nobody"]}}]"#;
    let trace = file("refused-event.json", trace);
    let problem = "a parent that the event names is not in the trace; append the parent first";
    let arguments = ["check", name(&policy), name(&trace)];
    check(&arguments, 1, &format!("! refused  message 1: {problem}"));
    for format in ["json", "jsonl"] {
        check(&[&arguments[..], &["--format", format]].concat(), 1, problem);
    }
    let sarif = flowgate(&[&arguments[..], &["--format", "sarif"]].concat());
    assert_eq!(sarif.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&sarif.stdout).unwrap();
    let results = document["runs"][0]["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["ruleId"] == "refused").unwrap();
    assert_eq!((&result["ruleId"], &result["level"]), (&"refused".into(), &"error".into()));
    assert_eq!(result["message"]["text"], format!("message 1: {problem}"));
    let place = &result["locations"][0]["physicalLocation"];
    assert_eq!(place["artifactLocation"]["uri"], name(&trace));
}

#[test]
fn a_broken_policy_is_drawn_with_every_mistake() {
    let policy =
        file("broken.flow", b"lattice integrity: a < b, c < b\nlable out as a if:\n    (out: ToolOutput)\n");
    check(&["check", name(&policy)], 2, "`a` and `c` have no meet: no element is below both");
    check(&["check", name(&policy)], 2, "did you mean `label`?");
    check(&["check", name(&policy)], 2, "broken.flow has 2 errors");
    let policy = file("binary.flow", b"lattice \xff");
    check(&["check", name(&policy)], 2, "binary.flow: line 1 is not valid UTF-8 from byte 8 on");
    let rules_only = file("rules.flow", b"raise \"x\" if:\n    (call: ToolCall) is tool:rm\n");
    check(&["check", name(&rules_only)], 0, "declares no lattice, so only its rules are enforced");
}

#[test]
fn the_calls_of_a_message_count_as_they_come() {
    let calls: Vec<String> = (0..3)
        .map(|n| format!(r#"{{"id":"c{n}","function":{{"name":"send","arguments":"{{}}"}}}}"#))
        .collect();
    let trace = format!(r#"[{{"role":"assistant","content":"","tool_calls":[{}]}}]"#, calls.join(","));
    let trace = file("proposed.json", trace.as_bytes());
    for (condition, denied) in [
        ("len(m.tool_calls) > 2", 1),
        ("len(m[\"tool_calls\"]) > 2", 1),
        ("len(m[f\"tool_{'calls'}\"]) > 2", 1),
        ("(c: ToolCall) in m[\"tool_calls\"]\n    c is tool:send", 3),
        ("(c: ToolCall) in m\n    c is tool:send", 3),
        ("(f: Function) in m.tool_calls\n    f.name == \"send\"", 3),
        ("count(min=3):\n        (c: ToolCall) in m\n        c is tool:send", 1),
        ("count(min=3):\n        (f: Function) in [m]\n        f.name == \"send\"", 1),
        ("proposes(m)", 3),
    ] {
        let policy =
            file("proposed.flow", format!("proposes(m: Message) :=\n    (c: ToolCall) in m\n    c is tool:send\nraise \"x\" if:\n    (m: Message)\n    {condition}\n").as_bytes());
        check(&["check", name(&policy), name(&trace)], 1, &format!("{denied} denied"));
    }
}

/// A payload that lets strangers choose the recipient is reported with what they gain, and fails on request.
#[test]
fn payloads_that_choose_a_destination_are_warned_of() {
    let policy = |argument: &str| {
        let source = format!(
            "lattice integrity: trusted < untrusted\nrequire trusted if:\n    (call: ToolCall) is tool:send_money\n\
             payload call.arguments.{argument} if:\n    (call: ToolCall) is tool:send_money\n"
        );
        file(&format!("payload-{argument}.flow"), source.as_bytes())
    };
    let (subject, recipient) = (policy("subject"), policy("recipient"));
    for (policy, code, said) in
        [(&subject, 0, ""), (&recipient, 0, "chooses the recipient, and can name an address of its own")]
    {
        check(&["check", name(policy)], code, said);
    }
    check(&["check", name(&subject), "--deny-warnings"], 0, "");
    check(&["check", name(&recipient), "--deny-warnings"], 1, "[payload-sensitive]");
}

/// The sender of a payment chooses its amount, so the demonstration trusts only the amounts of the account's owner.
#[test]
fn the_demonstration_trusts_no_amount_of_a_stranger() {
    let shown = text(&flowgate(&["demo"]));
    for (label, path) in [
        ("untrusted, private", "content[0].amount"),
        ("untrusted, private", "content[1].amount"),
        ("trusted, private  ", "content[2].amount"),
    ] {
        let line = format!("    {label}   {path}");
        assert!(shown.contains(&line), "there is no {line:?} in\n{shown}");
    }
    assert!(!shown.contains("0.01\n      note"), "the view shows the amount of a stranger: {shown}");
}
