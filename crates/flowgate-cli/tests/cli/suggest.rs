//! Tests of `flowgate suggest`: the changes let the useful calls pass, no recorded attack does more, and what must never be left to
//! the author of a text is not suggested.

use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::{check, file, flowgate, name, text};

const POLICY: &str = "\
lattice integrity: trusted < untrusted
label m as trusted if:
    (m: Message)
    m.role == \"user\"
label out.content as untrusted if:
    (out: ToolOutput) is tool:read_mail
require top if:
    (call: ToolCall) is tool:read_mail
require trusted if:
    (call: ToolCall) is tool:book
require trusted if:
    (call: ToolCall) is tool:pay
raise \"never\" if:
    (call: ToolCall) is tool:erase
";

/// Returns a run as one line: a mail is read, and then a tool is called with these arguments.
fn run(mail: &Value, tool: &str, arguments: &Value, attack: Option<&str>) -> String {
    let call = |id: &str, tool: &str, arguments: &Value| {
        json!({"role": "assistant", "content": null, "origin": if attack.is_some() && id == "c2" { "injection" } else { "user" },
               "tool_calls": [{"id": id, "type": "function", "function": {"name": tool, "arguments": arguments.to_string()}}]})
    };
    let messages = json!([
        {"role": "user", "content": "Do what the mail asks, on its day."},
        call("c1", "read_mail", &json!({})),
        {"role": "tool", "tool_call_id": "c1", "content": [mail]},
        call("c2", tool, arguments),
    ]);
    json!({"attack": attack.unwrap_or("none"), "messages": messages}).to_string() + "\n"
}

/// Returns the output of `flowgate suggest` for these runs, with the method `provenance`.
fn suggest(runs: &str, against: Option<&str>) -> (i32, String) {
    // Tests run at the same time, so each call has its own files.
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let number = CALLS.fetch_add(1, Ordering::Relaxed);
    let policy = file(&format!("suggest-{number}.flow"), POLICY.as_bytes());
    let traces = file(&format!("suggest-{number}.jsonl"), runs.as_bytes());
    let mut words = vec!["suggest", name(&policy), name(&traces), "--influence", "provenance"];
    let attacks = against.map(|attacks| file(&format!("suggest-{number}-attacks.jsonl"), attacks.as_bytes()));
    if let Some(attacks) = &attacks {
        words.extend(["--against", name(attacks)]);
    }
    let output = flowgate(&words);
    (output.status.code().unwrap(), text(&output))
}

/// Runs, attacks, the exit code, what is printed, and what is not.
type SuggestCase<'r> = (String, Option<String>, i32, &'r [&'r str], &'r [&'r str]);

#[test]
fn the_least_change_lets_useful_calls_pass() {
    let day = json!({"day": "2024-05-19"});
    let book = run(&day, "book", &day, None);
    let rows: [SuggestCase<'_>; 6] = [
        (
            format!("{book}{book}"),
            None,
            1,
            &[
                "2 useful runs, of which not permitted without a question: 2 (2 calls); with the changes below, 0 (0 calls)",
                "1. typed `endorse`; what an attacker gains: the choice of the date in `day`, and nothing else",
                "endorse call.arguments.day as trusted if:",
                "lets 2 further calls pass",
                "No recorded attack was given",
            ],
            &["payload", "Left as they are"],
        ),
        (
            run(&day, "read_mail", &json!({}), None),
            None,
            0,
            &["not permitted without a question: 0"],
            &["endorse"],
        ),
        // An account is never left to the author of a mail.
        (
            run(&json!({"iban": "DE89"}), "pay", &json!({"iban": "DE89"}), None),
            None,
            1,
            &["No change is suggested.", "Left as they are:", "pay (arguments.iban), 1 call:"],
            &["payload call", "endorse call", "as trusted if"],
        ),
        // A rule is not lifted.
        (
            run(&day, "erase", &json!({}), None),
            None,
            1,
            &["a rule stops the call: only a change of the rule would permit it"],
            &["endorse"],
        ),
        // A change that lets a recorded attack do more is not suggested.
        (
            book.clone(),
            Some(run(&json!({"day": "2024-12-24"}), "book", &json!({"day": "2024-12-24"}), Some("direct"))),
            1,
            &["each change that would permit the call lets a recorded attack do more"],
            &["1. typed"],
        ),
        // An attack for which the change is safe.
        (
            book,
            Some(run(&json!({"iban": "DE89"}), "pay", &json!({"iban": "DE89"}), Some("direct"))),
            1,
            &["None of 1 recorded attack does more with these changes than without.", "1. typed `endorse`"],
            &["Left as they are"],
        ),
    ];
    for (runs, attacks, code, says, never) in rows {
        let (found, said) = suggest(&runs, attacks.as_deref());
        assert_eq!(found, code, "{said}");
        says.iter().for_each(|expected| assert!(said.contains(expected), "no {expected:?} in {said}"));
        never.iter().for_each(|unwanted| assert!(!said.contains(unwanted), "{unwanted:?} in {said}"));
    }
}

/// The printed statements, added to the policy, let the calls pass in `flowgate replay`.
#[test]
fn the_printed_statements_are_those_that_were_tried() {
    let day = json!({"day": "2024-05-19"});
    let (_, said) = suggest(&run(&day, "book", &day, None), None);
    let statements: String = said
        .lines()
        .filter_map(|line| line.strip_prefix("  "))
        .filter(|line| line.starts_with("endorse") || line.starts_with("    "))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(statements.starts_with("endorse"), "{said}");
    let changed = file("suggest-changed.flow", format!("{POLICY}{statements}").as_bytes());
    let traces = file("suggest-tried.jsonl", run(&day, "book", &day, None).as_bytes());
    check(
        &["suggest", name(&changed), name(&traces), "--influence", "provenance"],
        0,
        "not permitted without a question: 0",
    );
}

#[test]
fn what_cannot_be_tried_is_refused() {
    let policy = file("suggest-refused.flow", POLICY.as_bytes());
    let line =
        "{\"time\":1,\"subject\":\"call\",\"tool\":\"book\",\"outcome\":\"deny\",\"reason\":\"why\"}\n";
    let watch_log = file("suggest-watch.jsonl", line.as_bytes());
    check(
        &["suggest", name(&policy), name(&watch_log)],
        2,
        "the file is a watch log, which has no content, so its calls cannot be judged again: give recorded traces",
    );
    check(&["report", name(&watch_log)], 1, "`flowgate suggest POLICY TRACES` finds the least changes");
    let attack = run(&json!({}), "pay", &json!({"iban": "DE89"}), Some("direct"));
    let attacks = file("suggest-only-attacks.jsonl", attack.as_bytes());
    check(&["suggest", name(&policy), name(&attacks)], 2, "the files have no useful run");
}
