//! Tests of `flowgate labels`: the labels of the demonstration's run, as text and as JSON.

use serde_json::Value;

use crate::{POLICY, TRACE, check, check_golden, file, flowgate, name};

#[test]
fn each_field_has_its_label_and_its_line() {
    // The paths of the files are those of this machine.
    let output = flowgate(&["labels", POLICY, TRACE]);
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let text = text.replace(POLICY, "payment.flow").replace(TRACE, "payment.json");
    check_golden(std::process::Output { stdout: text.into_bytes(), ..output }, "labels.txt");
}

#[test]
fn programs_read_the_same() {
    let output = flowgate(&["labels", POLICY, TRACE, "--format", "json", "--event", "4"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let events = document["runs"][0]["events"].as_array().unwrap();
    assert_eq!(events.len(), 1);
    let field = |path: &str| {
        let fields = events[0]["fields"].as_array().unwrap();
        fields.iter().find(|field| field["path"] == path).unwrap().clone()
    };
    assert_eq!(field("content[1].from")["label"], serde_json::json!(["trusted", "private"]));
    let source = std::fs::read_to_string(POLICY).unwrap();
    let line = field("content[1].from")["statements"][0]["line"].as_u64().unwrap();
    let statement = source.lines().nth(usize::try_from(line).unwrap() - 1).unwrap();
    assert!(statement.starts_with("label "), "{statement}");
    assert_eq!(field("content[1].note")["statements"], serde_json::json!([]));
}

#[test]
fn untrusted_text_is_escaped_and_mistakes_are_named() {
    let trace = file("labels-hostile.json", br#"[{"role": "user", "content": "a\u001b[2Jb"}]"#);
    check(&["labels", POLICY, name(&trace)], 0, "a\\u{1b}[2Jb");
    check(
        &["labels", POLICY, TRACE, "--event", "99"],
        2,
        "there is no event 99; leave out --event to list all",
    );
    check(&["labels", POLICY, name(&file("labels-bad.json", b"{"))], 2, "labels-bad.json: ");
}

/// A label that depends on a parameter is the one of the given value.
#[test]
fn parameters_are_those_of_the_command_line() {
    let policy = "lattice integrity: trusted < untrusted\nlabel message as trusted if:\n    (message: Message)\n    message.role == input.word\n";
    let policy = file("labels-param.flow", policy.as_bytes());
    let trace = file("labels-param.json", br#"[{"role": "user", "content": "hi"}]"#);
    let label = |parameter: &str| {
        let words = ["labels", name(&policy), name(&trace), "--format", "json", "--param", parameter];
        let output = flowgate(&words);
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        document["runs"][0]["events"][0]["fields"][0]["label"].clone()
    };
    assert_eq!(label("word=user"), serde_json::json!(["trusted"]));
    assert_eq!(label("word=system"), serde_json::json!(["untrusted"]));
    check(
        &["labels", name(&policy), name(&trace), "--param", "word"],
        2,
        "the parameter has no `=`; write it as NAME=VALUE",
    );
}
