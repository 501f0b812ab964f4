//! Tests that text of a trace cannot control the terminal.

use serde_json::json;

use crate::{file, flowgate, name, text};

/// Names and texts with control characters.
const TRICKS: [&str; 4] = ["\u{1b}[2J", "\u{1b}]0;title\u{7}", "\u{9b}31m", "over\r\u{202e}written"];

#[test]
fn commands_print_no_control_characters_of_a_trace() {
    let rule = "raise \"found\" if:\n    (call: ToolCall)\n";
    let labels = "lattice integrity: trusted < untrusted\nlabel m as trusted if:\n    (m: Message)\n    m.role == \"user\"\n";
    let policy = file("tricks.flow", labels.as_bytes());
    let rules = file("tricks-rules.flow", rule.as_bytes());
    for (number, trick) in TRICKS.into_iter().enumerate() {
        let call = |id: &str| {
            let function = json!({"name": format!("send{trick}"), "arguments": json!({"to": trick, trick: 1}).to_string()});
            json!({"role": "assistant", "content": trick, "tool_calls": [{"id": format!("{id}{trick}"), "type": "function", "function": function}]})
        };
        let answer =
            json!({"role": "tool", "tool_call_id": format!("c{trick}"), "content": format!("page {trick}")});
        let trace = json!([{"role": "user", "content": trick}, call("c"), answer, call("d")]);
        let trace = file(&format!("tricks-{number}.json"), trace.to_string().as_bytes());
        let (policy, rules, trace) = (name(&policy), name(&rules), name(&trace));
        for arguments in [
            &["check", policy, trace, "--content"][..],
            &["check", policy, trace, "--format", "json"],
            &["check", policy, trace, "--format", "jsonl"],
            &["check", policy, trace, "--format", "sarif"],
            &["explain", policy, trace, "--content"],
            &["explain", policy, trace, "--call", &format!("no{trick}")],
            &["analyze", rules, trace],
            &["analyze", rules, trace, "--format", "json"],
            &["replay", "--policy", policy, trace, "--list-permitted"],
        ] {
            let printed = text(&flowgate(arguments));
            assert!(!printed.trim().is_empty(), "{arguments:?}");
            let found =
                printed.chars().find(|c| (c.is_control() && !matches!(c, '\n' | '\t')) || *c == '\u{202e}');
            assert_eq!(found, None, "{arguments:?}\n{printed:?}");
        }
    }
}
