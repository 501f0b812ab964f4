//! Tests of `flowgate bench detectors`: golden files of its table, and the exit code for rules that do not hold.

use crate::{check, check_golden, file, flowgate, name, text};

#[test]
fn the_table_of_detectors_is_stable() {
    for (arguments, golden) in [
        (&["bench", "detectors"][..], "bench-detectors.txt"),
        (&["bench", "detectors", "--format", "json"], "bench-detectors.jsonl"),
    ] {
        let output = flowgate(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        check_golden(output, golden);
    }
    check(&["bench", "detectors", "--help"], 0, "How to read the table:");
    check(&["bench", "detectors", "--content"], 0, "hidden: ZERO_WIDTH");
    check(&["bench", "detectors", "--policy", "no-such.flow"], 2, "no-such.flow: there is no such file");
    check(&["bench"], 2, "Usage: flowgate bench");
}

/// The figures depend on the policy: the paper's rule covers one way to request previews, and an empty policy stops
/// nothing.
#[test]
fn another_policy_gives_other_figures() {
    let listing = file(
        "listing.flow",
        b"raise \"x\" if:\n    (out: ToolOutput) -> (call: ToolCall)\n    out is tool:gsheets_read\n    call is tool:send_slack_message({link_preview: true})\n",
    );
    check(&["bench", "detectors", "--policy", name(&listing)], 1, "denied 0 of 15 injected messages");
    let nothing = file("nothing.flow", b"");
    let output = flowgate(&["bench", "detectors", "--policy", name(&nothing), "--format", "json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let last = String::from_utf8(output.stdout).unwrap();
    let figures: serde_json::Value = serde_json::from_str(last.lines().last().unwrap()).unwrap();
    let share = |key: &str| figures.get(key).and_then(|share| share.get("found")).cloned();
    assert_eq!(share("injected_messages_denied"), Some(0.into()), "{figures}");
    assert_eq!(share("honest_messages_with_preview_permitted"), Some(27.into()), "{figures}");
    assert_eq!(figures.get("rule_holds"), Some(&false.into()));
}
