//! Verifies the recorded runs in the folder `results`: this program repeats each line. If a figure changes, the runs have to be
//! recorded again with the commands in `results/README.md`; another digest of the code is no difference.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_bench::detectors::{self, learned};
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
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        write_detectors();
    }
    check("detectors.jsonl");
}

/// Records the run of the detectors again, as `flowgate bench detectors --format jsonl` does.
fn write_detectors() {
    let policy = Arc::new(Policy::parse(detectors::POLICY).unwrap());
    let rows = detectors::rows().unwrap();
    let judged = detectors::JudgedRow::all(&policy, &rows, &mut || false).unwrap();
    let figures = detectors::DetectorFigures::of(&judged);
    let manifest = detectors::manifest(1, detectors::BUILTIN, detectors::POLICY);
    let lines = detectors::report::lines(&judged, &figures, detectors::BUILTIN, 1);
    let text: String = std::iter::once(&manifest).chain(&lines).map(|line| format!("{line}\n")).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/detectors.jsonl");
    std::fs::write(path, text).unwrap();
}

/// The weights that ship are those of `flowgate bench train-detector --seed 1`, and have learned both kinds of texts.
#[test]
fn the_detector_that_ships_repeats() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/injection-classifier.bin");
    let trained = learned::train(1, &mut || false).unwrap();
    let figures = learned::measure(&trained, 1);
    println!("{}", figures.to_json());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, trained.to_bytes()).unwrap();
    }
    let weights = std::fs::read(path).unwrap();
    assert!(trained.to_bytes() == weights, "run this test with UPDATE_GOLDEN=1");
    assert!(weights.len() < 20_000, "{}", weights.len());
    let learned::HeldOutFigures { found, flagged } = figures;
    assert_eq!((found.of, flagged.of), (learned::MEASURED_TEXTS / 2, learned::MEASURED_TEXTS / 2));
    assert!(found.hits * 10 > found.of * 5 && flagged.hits * 10 < flagged.of * 3, "{found:?} {flagged:?}");
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

/// Returns the lines of the type `figures` of a recorded run, over all tasks.
fn figures(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(name);
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines.filter(|line| line["type"] == "figures" && line["tasks"] == "all").collect()
}

/// Returns a rate of a line as a document writes it, such as `3/37`.
fn counted(line: &Value, name: &str) -> String {
    format!("{}/{}", line[format!("{name}_count")], line[format!("{name}_of")])
}

/// Each table that a document takes from a recorded run has the figures of the run.
#[test]
fn documents_have_the_recorded_figures() {
    let document = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::fs::read_to_string(path).unwrap()
    };
    let readme = document("README.md");
    let check = |text: &str, row: String| assert!(text.lines().any(|line| line == row), "no row {row}");
    for (name, defence) in [
        ("unguarded", "unguarded"),
        ("AgentDojo's tool filter, no policy", "tool-filter"),
        ("confirm always", "confirm-acting"),
        ("everything (naive tainting)", "everything"),
        ("judge (RTBAS)", "judge"),
        ("provenance", "provenance"),
        ("**lowest first**", "lowest-first"),
    ] {
        let all = figures("agents.jsonl");
        let line = all.iter().find(|line| line["defence"] == defence).unwrap();
        let uses = ["needs_nothing_hidden", "passes_it_on", "reads_it_to_the_user", "decides_by_it"];
        let unasked =
            uses.map(|name| format!("{}/{}", line[format!("{name}_unasked")], line[format!("{name}_of")]));
        let calls = line["relative_model_calls"].as_f64().unwrap();
        let [harmed, questions] =
            ["harmed_count", "questions_under_attack"].map(|name| line[name].to_string());
        check(&readme, format!("| {name} | {harmed} | {questions} | {} | {calls:.2} |", unasked.join(", ")));
    }
    let privacy = document("docs/privacy-suite.md");
    let all = figures("privacy.jsonl");
    assert_eq!(all.len(), 19);
    for line in all {
        let rates = [
            "false_negatives",
            "false_positives",
            "exact_categories",
            "exact_categories_private",
            "utility_refused",
            "utility_allowed",
        ];
        let cells = rates.map(|name| counted(&line, name)).join(" | ");
        check(&privacy, format!("| `{}` | {cells} |", line["defence"].as_str().unwrap()));
    }
}
