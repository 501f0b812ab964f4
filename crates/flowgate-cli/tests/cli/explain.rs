//! `flowgate explain`.

use crate::{POLICY, TRACE, check, file, name};

#[test]
fn an_explanation_ends_with_a_change_that_was_tried() {
    check(&["explain", POLICY, TRACE, "--call", "c3"], 1, "label out.content as trusted if:");
    check(&["explain", POLICY, TRACE, "--call", "c9"], 2, "no call has the id `c9`");
    check(&["explain", POLICY, TRACE, "--call", "c1"], 0, "✓ permit get_recent_transactions (c1)");
    check(
        &["explain", POLICY, TRACE, "--call", "c2", "--influence", "provenance"],
        1,
        "is_integer(call.arguments.amount)",
    );
    let undeclared = file(
        "undeclared.flow",
        b"lattice integrity: trusted < untrusted\nlabel m as untrusted if:\n    (m: Message)\n",
    );
    let trace = file(
        "undeclared.json",
        br#"[{"role":"user","content":"hi"},{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"my-tool","arguments":"{}"}}]}]"#,
    );
    check(&["explain", name(&undeclared), name(&trace)], 1, "(call: ToolCall) is tool:\"my-tool\"");
}
