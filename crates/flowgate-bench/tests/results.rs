//! Verifies the recorded runs in the folder `results`: this program repeats each line. If a figure changes, the runs have to be
//! recorded again with the commands in `results/README.md`; another digest of the code is no difference.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::path::Path;
use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_bench::agents::{self, Guard};
use flowgate_bench::detectors::{self, learned};
use flowgate_bench::games::adaptive::{SearchSettings, search};
use flowgate_bench::games::extended::{ExtendedGame, ExtendedSuite};
use flowgate_bench::games::{Defence, GameSuite, ModelDouble, Runner, extended_manifest, manifest};
use flowgate_bench::verify::{VerifySettings, verify};
use serde_json::Value;

/// Returns the lines of the recorded run in a file of the folder.
fn recorded(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results").join(name);
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Verifies the recorded run in a file of the folder.
fn check(name: &str) {
    let lines = recorded(name);
    let result = verify(&lines, VerifySettings::default()).unwrap();
    let advice = "record the run again, as results/README.md says";
    assert_eq!(result.differences, Vec::<String>::new(), "{name}: {advice}");
    assert!(result.repeated > 1, "{name}");
}

/// The digests of prompts and tasks in the manifests are those that this program computes. The tests below say so as well, but
/// they repeat whole runs.
#[test]
fn the_manifests_have_the_digests_of_this_program() {
    let (suite, standard) = (GameSuite::generate(1, 8), Defence::standard());
    let extended = ExtendedSuite { seed: 1, seeds: 1, instances: 8 };
    let (gullible, immune, curious) = (ModelDouble::Gullible, ModelDouble::Immune, ModelDouble::Curious);
    let of_extended =
        extended_manifest(&extended, &ExtendedGame::all(), &ExtendedSuite::defences(), &gullible);
    let mut differences = Vec::new();
    for (name, manifest) in [
        ("games-gullible.jsonl", manifest(&suite, &standard, &gullible)),
        ("games-immune.jsonl", manifest(&suite, &standard, &immune)),
        ("games-curious.jsonl", manifest(&suite, &standard, &curious)),
        ("games-search.jsonl", manifest(&suite, &standard, &gullible)),
        ("extended.jsonl", of_extended),
        ("agents.jsonl", agents::manifest(1, &Guard::ALL)),
    ] {
        let lines = recorded(name);
        let sums = &lines.first().unwrap()["sha256"];
        for field in ["prompts", "tasks", "policy"] {
            if sums[field] != manifest["sha256"][field] {
                differences.push(format!("{name}: {field} is now {}", manifest["sha256"][field]));
            }
        }
    }
    assert_eq!(differences, Vec::<String>::new());
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
    for name in ["games-gullible.jsonl", "games-immune.jsonl", "games-curious.jsonl", "games-search.jsonl"] {
        check(name);
    }
}

#[test]
fn extended_games_repeat() {
    check("extended.jsonl");
}

/// The lines of the defence `attention` need a local model, so they are not repeated here. They must be of the code of the
/// screener that this program has: `flowgate bench privacy` in a program with the feature `local` records them again.
#[test]
fn privacy_repeats() {
    check("privacy.jsonl");
}

/// Returns the lines of the recorded attack search.
fn recorded_searches() -> Vec<Value> {
    let mut lines = recorded("games-search.jsonl");
    lines.retain(|line| line["type"] == "search");
    lines
}

/// A thousand attempts on each task had no effect under any label defence, and the best attempts are part of the run.
#[test]
fn the_search_had_no_effect() {
    let searches = recorded_searches();
    assert_eq!(searches.len(), 13 * 24);
    for search in searches.iter().filter(|search| search["defence"].as_str().unwrap().starts_with("labels/"))
    {
        assert_eq!(search["queries"].as_u64(), Some(1000), "{search}");
        assert!(
            search["executed_at"].is_null() && search["best_attempts"][0]["attack"].is_string(),
            "{search}"
        );
    }
}

/// A search repeats. It is repeated on the first task of each game, since the whole run takes minutes.
#[test]
fn searches_repeat() {
    let recorded = recorded_searches();
    let suite = GameSuite::generate(1, 1);
    let double = ModelDouble::Gullible;
    let runner = Runner::new(&double, None).unwrap();
    let settings = SearchSettings { queries: 1000, author: None };
    for name in ["none", "filter", "provenance", "combined", "labels/lowest-first"] {
        let defence = Defence::parse(name).unwrap();
        let searches = search(&suite, &runner, defence, settings, &mut || false).unwrap().unwrap();
        assert_eq!(searches.len(), 3, "{name}");
        for search in searches {
            let again = search.to_json("gullible");
            assert!(recorded.contains(&again), "{name}: not as recorded: {again}");
        }
    }
}
