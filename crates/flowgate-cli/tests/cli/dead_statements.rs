//! Tests of the warnings about names in a policy that do not occur in the traces, about empty traces and about unknown
//! roles; on request, each is an error.

use crate::{POLICY, TRACE, check, file, flowgate, name, text};

const RUN: &str = r#"[
  {"role":"user","content":"refund it"},
  {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function",
    "function":{"name":"read_mail","arguments":"{\"folder\": \"inbox\"}"}}]},
  {"role":"tool","tool_call_id":"c1","content":"[{\"from\": \"ann\"}]"},
  {"role":"assistant","content":null,"tool_calls":[{"id":"c2","type":"function",
    "function":{"name":"refund","arguments":"{\"amount\": 5}"}}]},
  {"role":"tool","tool_call_id":"c2","content":"done"}]"#;

/// A condition, the code and the message of its warning, and the suggested name.
const DEAD: &[(&str, &str, &str, &str)] = &[
    ("(call: ToolCall) is tool:refnd", "unused-tool", "no tool in the traces matches `tool:refnd`", "refund"),
    (
        "(out: ToolOutput) is tool:read_mail\n    (row: dict) in out.content\n    row.fro == \"eve\"",
        "unused-field",
        "the field `fro` does not occur in the traces",
        "from",
    ),
    (
        "(m: Message)\n    m.role == \"asistant\"",
        "unused-role",
        "no message in the traces has the role `asistant`",
        "assistant",
    ),
    (
        "(call: ToolCall) is tool:refund\n    call.arguments.get(\"amuont\", 0) > 100",
        "unused-argument",
        "the argument `amuont` does not occur in the traces",
        "amount",
    ),
];

fn policy(line: &str) -> std::path::PathBuf {
    let digest = line.bytes().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)));
    file(&format!("dead-{digest}.flow"), format!("raise \"x\" if:\n    {line}\n").as_bytes())
}

#[test]
fn dead_statements_are_reported_and_can_be_denied() {
    let run = file("refund.json", RUN.as_bytes());
    for (line, code, message, near) in DEAD {
        let dead = policy(line);
        let alive = policy(
            &line
                .replace("refnd", "refund")
                .replace("fro ", "from ")
                .replace("asistant", "user")
                .replace("amuont", "amount"),
        );
        for (command, kinds) in [
            (&["check", name(&dead), name(&run)][..], 2),
            (&["replay", "--policy", name(&dead), name(&run)], 1),
        ] {
            let said = text(&flowgate(command));
            assert!(said.contains(message) && said.contains(code), "{command:?} {said}");
            assert!(said.contains(&format!("did you mean `{near}`?")), "{command:?} {said}");
            check(command, 0, message);
            check(&[command, &["--deny-warnings"]].concat(), 1, message);
            let formats = ["json", "sarif"];
            for format in formats.iter().take(kinds) {
                let output = flowgate(&[command, &["--format", format]].concat());
                let printed = String::from_utf8(output.stdout).unwrap();
                assert!(
                    printed.contains(message) && printed.contains(code),
                    "{command:?} {format} {printed}"
                );
            }
        }
        // The same condition with the suggested name causes no warning.
        for command in
            [&["check", name(&alive), name(&run)][..], &["replay", "--policy", name(&alive), name(&run)]]
        {
            let said = text(&flowgate(command));
            assert!(!said.contains("unused-"), "{command:?} {said}");
        }
        check(&["replay", "--policy", name(&alive), name(&run), "--deny-warnings"], 0, "");
    }
}

/// A name occurs if any of the traces contains it.
#[test]
fn a_name_of_any_trace_occurs() {
    let run = file("refund.json", RUN.as_bytes());
    let other = file("other.json", br#"[{"role":"user","content":"hi"}]"#);
    let alive = policy("(call: ToolCall) is tool:refund\n    call.arguments.amount > 100");
    check(
        &["check", name(&alive), name(&other), "--deny-warnings"],
        1,
        "no tool in the traces matches `tool:refund`",
    );
    check(&["check", name(&alive), name(&other), name(&run), "--deny-warnings"], 0, "2 runs");
    check(&["replay", "--policy", name(&alive), name(&other), name(&run), "--deny-warnings"], 0, "");
    // Surplus warnings are counted.
    let many: String = (0..30)
        .map(|n| format!("raise \"x\" if:\n    (c: ToolCall) is tool:{}\n", "q".repeat(n + 20)))
        .collect();
    let many = file("many.flow", many.as_bytes());
    check(&["check", name(&many), name(&run)], 0, "has 20 further names that do not occur in the traces");
}

#[test]
fn empty_traces_and_odd_roles_are_warnings() {
    let plain = policy("(m: Message)\n    m.content == \"nothing\"");
    for (name_of, content) in
        [("empty.json", "[]"), ("blank.json", "\n"), ("nothing.json", ""), ("run.json", "{\"messages\": []}")]
    {
        let empty = file(name_of, content.as_bytes());
        check(
            &["check", name(&plain), name(&empty)],
            0,
            "has no messages, so nothing was judged in it; give a trace with messages [empty-trace]",
        );
        check(&["check", name(&plain), name(&empty), "--deny-warnings"], 1, "has no messages");
    }
    let odd = file("odd.json", br#"[{"role":"asistant","content":"hi"}]"#);
    check(
        &["check", name(&plain), name(&odd)],
        0,
        "the traces have messages of the unknown role `asistant`; known roles are assistant, ",
    );
    check(&["check", name(&plain), name(&odd), "--deny-warnings"], 1, "[unknown-role]");
    check(&["replay", "--policy", name(&plain), name(&odd), "--deny-warnings"], 1, "[unknown-role]");
    let hi = file("hi.json", br#"[{"role":"user","content":"hi"}]"#);
    check(&["check", name(&plain), name(&hi), "--deny-warnings"], 0, "1 run");
}

/// An unknown role in a policy is a warning without any trace.
#[test]
fn a_misspelled_role_needs_no_trace() {
    let wrong = policy("(m: Message)\n    m.role == \"asistant\"");
    check(&["check", name(&wrong)], 0, "`asistant` is not a role of messages");
    check(&["check", name(&wrong), "--deny-warnings"], 1, "did you mean `assistant`?");
    check(&["check", POLICY, "--deny-warnings"], 0, "is a policy");
    check(&["check", POLICY, TRACE, "--deny-warnings"], 1, "2 to be confirmed");
}
