//! Tests of `flowgate analyze`: the printed matches of rules, and the exit codes.

use crate::{check, file, name};

#[test]
fn analyze_reports_findings_with_positions() {
    let policy = "raise Violation(\"a key\", n=1) if:\n    (m: Message)\n    input.word in m.content\n";
    let policy = file("word.flow", policy.as_bytes());
    let lines = "{\"role\":\"user\",\"content\":\"hi\"}\n{\"role\":\"user\",\"content\":\"my ké key\"}\n";
    let trace = file("word.jsonl", lines.as_bytes());
    let (policy, trace) = (name(&policy), name(&trace));
    check(&["analyze", policy, trace, "--param", "word=key"], 1, "messages.1.content:6-9");
    check(&["analyze", policy, trace, "--param", "word=key"], 1, "raise a key\n    n = 1\n");
    check(&["analyze", policy, trace, "--param", "word=lock"], 0, "1 run: 0 matches");
    check(
        &["analyze", policy, trace, "--param", "word=key", "--format", "json"],
        1,
        "\"messages.1.content:6-9\"",
    );
    check(&["analyze", policy, trace], 2, "the parameter `input.word` is not given; add --param word=VALUE");
    check(&["analyze", policy, trace, "--param", "word"], 2, "write it as NAME=VALUE");
    let old = file("old.flow", b"raise \"x\" if:\n    (m: Message)\n    [m.role]\n");
    check(&["analyze", name(&old), trace], 1, "2 matches");
    check(&["analyze", name(&old), trace, "--compat"], 0, "0 matches");
}
