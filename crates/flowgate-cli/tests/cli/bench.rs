//! Tests of `flowgate bench detectors` (golden files of its table, and the exit code for rules that do not hold) and of
//! `flowgate bench games` (its formats, and that a run repeats).

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

/// The tables are computed in each run, so their form is tested and not their numbers: the suite's own tests check these.
#[test]
#[cfg(feature = "bench")]
fn games_repeat_in_every_format() {
    let small =
        ["bench", "games", "--instances", "2", "--defence", "none", "--defence", "labels/lowest-first"];
    let run = |more: &[&str]| {
        let output = flowgate(&[&small[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    for format in ["text", "json", "jsonl", "csv"] {
        let first = run(&["--format", format]);
        assert_eq!(first, run(&["--format", format]), "{format}: the same seed, the same bytes");
        assert_ne!(first, "", "{format}");
    }
    let values = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let count = |lines: &[serde_json::Value], kind: &str| {
        lines.iter().filter(|line| line.get("type") == Some(&kind.into())).count()
    };
    let lines = values(&run(&["--format", "jsonl"]));
    // Two defences, three games, two pairs with two sides; the figures of each game and of all.
    assert_eq!((count(&lines, "manifest"), count(&lines, "execution"), count(&lines, "figures")), (1, 24, 8));
    let other = values(&run(&["--format", "jsonl", "--seed", "2"]));
    assert_ne!(lines.first(), other.first(), "the manifest names the seed");
    let without = lines.iter().all(|line| line.get("response").is_none());
    let content = values(&run(&["--format", "jsonl", "--content"]));
    let with = content.iter().filter(|line| line.get("response").is_some()).count();
    assert_eq!((without, with), (true, 24));
    let document: serde_json::Value = serde_json::from_str(&run(&["--format", "json"])).unwrap();
    let figures = document.get("figures").and_then(serde_json::Value::as_array).unwrap();
    assert_eq!((figures.len(), document.get("interrupted")), (8, Some(&false.into())));
    assert_eq!(run(&["--format", "csv"]).lines().count(), 9);
    let searched = values(&run(&["--format", "jsonl", "--queries", "3"]));
    assert_eq!((count(&searched, "search"), count(&searched, "execution")), (12, 24));
    assert!(run(&["--queries", "3"]).contains("at most 3 queries for each task"));
    assert!(run(&["--double", "immune"]).contains("model immune"));
    assert_ne!(run(&["--variant", "base64", "--format", "jsonl"]), run(&["--format", "jsonl"]));
    let shown = flowgate(&[&small[..], &["--progress", "always"]].concat());
    assert!(String::from_utf8_lossy(&shown.stderr).contains("100%"), "{}", text(&shown));
}

#[test]
#[cfg(feature = "bench")]
fn games_explain_themselves_and_refuse_what_they_cannot_measure() {
    check(&["bench", "games", "--help"], 0, "How to read the tables:");
    check(
        &["bench", "games", "--defence", "prayer"],
        2,
        "there is no defence `prayer`; use one of none, delimiter",
    );
    check(
        &["bench", "games", "--defence", "labels/tool-filter"],
        2,
        "a double chooses no tools; name a model",
    );
    check(
        &["bench", "games", "--variant", "rot13"],
        2,
        "there is no variant `rot13`; use one of paper, base64",
    );
    check(&["bench", "games", "--instances", "0"], 2, "0 is not in 1..=10000");
}
