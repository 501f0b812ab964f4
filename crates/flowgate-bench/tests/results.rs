//! Verifies the recorded runs in the folder `results`: this program repeats each line. If a figure changes, the runs have to be
//! recorded again with the commands in `results/README.md`; another digest of the code is no difference.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;

use flowgate_bench::verify::verify;
use serde_json::Value;

/// Verifies the recorded run in a file of the folder.
fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let result = verify(&lines, None).unwrap();
    let advice = "record the run again, as results/README.md says";
    assert_eq!(result.differences, Vec::<String>::new(), "{name}: {advice}");
    assert!(result.repeated > 1, "{name}");
}

#[test]
fn agents_repeat() {
    check("agents.jsonl");
}

#[test]
fn detectors_repeat() {
    check("detectors.jsonl");
}

#[test]
fn games_repeat() {
    for name in ["games-gullible.jsonl", "games-immune.jsonl", "games-search.jsonl"] {
        check(name);
    }
}

#[test]
fn extended_games_repeat() {
    check("extended.jsonl");
}

#[test]
fn privacy_repeats() {
    check("privacy.jsonl");
}

/// A thousand attempts on each task had no effect under the default method, and the best attempts are part of the run.
#[test]
fn the_search_had_no_effect() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/games-search.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let searches: Vec<Value> = lines.filter(|line| line["type"] == "search").collect();
    assert_eq!(searches.len(), 24);
    for search in searches {
        assert_eq!(
            (search["defence"].as_str(), search["queries"].as_u64()),
            (Some("labels/lowest-first"), Some(1000))
        );
        assert!(
            search["executed_at"].is_null() && search["best_attempts"][0]["attack"].is_string(),
            "{search}"
        );
    }
}
