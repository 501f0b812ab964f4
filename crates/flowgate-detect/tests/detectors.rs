//! Tests the accuracy of the detectors over the labelled corpus in `tests/corpus`.
//!
//! Each line of the corpus is a text with the findings that it contains; lines without findings test for
//! false alarms. The corpus was written by hand before the patterns, and contains lines that they miss. The
//! minimum values are a little below the measured ones, so that a regression fails the test. `cargo test -p
//! flowgate-detect --test detectors -- --nocapture` prints the tables.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, reason = "tests")]
#![expect(clippy::print_stdout, reason = "the tables are what the test is read for")]

use std::collections::{BTreeMap, BTreeSet};

use flowgate_detect::{
    Finding, MAX_FINDINGS, fuzzy, injection, licence, markup, moderation, personal, personal_data, python,
    secrets, shell, topic, unicode,
};
use proptest::prelude::*;
use serde_json::Value;

/// Hits, false alarms and misses of one kind.
#[derive(Default, Clone, Copy)]
struct DetectionCount {
    hit: usize,
    alarm: usize,
    miss: usize,
}

impl DetectionCount {
    fn precision(self) -> f64 {
        self.hit as f64 / (self.hit + self.alarm).max(1) as f64
    }

    fn recall(self) -> f64 {
        self.hit as f64 / (self.hit + self.miss).max(1) as f64
    }
}

#[derive(Default)]
struct CountTable(BTreeMap<String, DetectionCount>);

impl CountTable {
    fn of(&mut self, kind: &str) -> &mut DetectionCount {
        self.0.entry(kind.to_owned()).or_default()
    }

    fn all(&self) -> DetectionCount {
        self.0.values().fold(DetectionCount::default(), |all, count| DetectionCount {
            hit: all.hit + count.hit,
            alarm: all.alarm + count.alarm,
            miss: all.miss + count.miss,
        })
    }

    /// Prints the table, and checks that precision and recall over all kinds reach their minimum values.
    fn check(self, name: &str, precision: f64, recall: f64) {
        let row = |kind: &str, c: DetectionCount| {
            println!(
                "{kind:<28}{:>6.2}{:>8.2}{:>6}{:>7}{:>6}",
                c.precision(),
                c.recall(),
                c.hit,
                c.alarm,
                c.miss
            );
        };
        println!("\n{name:<28}{:>6}{:>8}{:>6}{:>7}{:>6}", "prec.", "recall", "hits", "alarms", "miss");
        self.0.iter().for_each(|(kind, count)| row(kind, *count));
        let all = self.all();
        row("all", all);
        assert!(all.precision() >= precision, "{name}: precision {}", all.precision());
        assert!(all.recall() >= recall, "{name}: recall {}", all.recall());
    }
}

fn rows(corpus: &str) -> Vec<Value> {
    corpus.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn strings(row: &Value, field: &str) -> BTreeSet<String> {
    row[field].as_array().unwrap().iter().map(|kind| kind.as_str().unwrap().to_owned()).collect()
}

/// Counts findings with spans: a finding is a hit if it has the kind and overlaps the labelled text.
fn spans(corpus: &str, find: fn(&str) -> Vec<Finding>) -> CountTable {
    let mut table = CountTable::default();
    for row in rows(corpus) {
        let text = row["text"].as_str().unwrap();
        let mut found = find(text);
        for gold in row["gold"].as_array().unwrap() {
            let (kind, part) = (gold[0].as_str().unwrap(), gold[1].as_str().unwrap());
            let start = text.find(part).unwrap();
            let hit = |f: &Finding| f.kind == kind && f.span.start < start + part.len() && start < f.span.end;
            match found.iter().position(hit) {
                Some(at) => {
                    found.remove(at);
                    table.of(kind).hit += 1;
                }
                None => {
                    println!("missed {kind} {part:?} in {text:?}");
                    table.of(kind).miss += 1;
                }
            }
        }
        for finding in found {
            println!("alarm {} {:?} in {text:?}", finding.kind, &text[finding.span.clone()]);
            table.of(finding.kind).alarm += 1;
        }
    }
    table
}

/// Counts the kinds of each text. An additional kind in a text with labels is no false alarm: a label names
/// the most severe kind.
fn kinds(corpus: &str, field: &str, find: impl Fn(&str) -> BTreeSet<String>) -> CountTable {
    let mut table = CountTable::default();
    for row in rows(corpus) {
        let text = row["text"].as_str().unwrap();
        let (expected, found) = (strings(&row, field), find(text));
        for kind in &expected {
            if found.contains(kind) {
                table.of(kind).hit += 1;
            } else {
                println!("missed {kind} in {text:?}");
                table.of(kind).miss += 1;
            }
        }
        if expected.is_empty() {
            for kind in found {
                println!("alarm {kind} in {text:?}");
                table.of(&kind).alarm += 1;
            }
        }
    }
    table
}

#[test]
fn data_about_people() {
    spans(include_str!("corpus/personal.jsonl"), personal::all_findings).check("personal", 0.98, 0.94);
}

#[test]
fn secret_keys() {
    spans(include_str!("corpus/secrets.jsonl"), |text| secrets(text).collect()).check("secrets", 0.98, 0.93);
}

#[test]
fn shell_commands() {
    let find = |text: &str| shell::find(text).iter().map(|issue| issue.kind.as_str().to_owned()).collect();
    kinds(include_str!("corpus/shell.jsonl"), "kinds", find).check("shell", 0.98, 0.94);
}

#[test]
fn prompt_injections() {
    let mut table = CountTable::default();
    for row in rows(include_str!("corpus/injection.jsonl")) {
        let text = row["text"].as_str().unwrap();
        let found = injection::find(text).score > 0.5;
        let count = table.of("injection");
        match (row["injection"].as_bool().unwrap(), found) {
            (true, true) => count.hit += 1,
            (true, false) => count.miss += 1,
            (false, true) => count.alarm += 1,
            (false, false) => continue,
        }
        if row["injection"] != found {
            println!("{} {text:?}", if found { "alarm" } else { "missed" });
        }
    }
    table.check("injection", 0.94, 0.90);
}

#[test]
fn moderated_texts() {
    let find = |text: &str| {
        let scores = moderation::scores(text);
        scores.into_iter().filter(|(_, score)| *score > 0.5).map(|(category, _)| category).collect()
    };
    kinds(include_str!("corpus/moderation.jsonl"), "categories", find).check("moderation", 0.97, 0.94);
}

/// Runs every detector on a text, and checks the invariants of the findings.
fn total(text: &str) {
    let shell =
        shell::find(text).into_iter().map(|issue| Finding { kind: issue.kind.as_str(), span: issue.span });
    let markup = markup::parse(text);
    let links = markup.links.iter().chain(&markup.images);
    let findings: Vec<Vec<Finding>> = vec![
        personal_data(text).collect(),
        personal::all_findings(text),
        secrets(text).collect(),
        shell.collect(),
        python::python_code(text, false).unsafe_calls,
        python::python_code(text, true).unsafe_calls,
        unicode::find_hidden(text),
        injection::find(text).findings,
        licence::find(text),
        moderation::find(text),
        topic::find(text),
        links.map(|link| Finding { kind: "link", span: link.span.clone() }).collect(),
        fuzzy::find(text, "system prompt", 0.7)
            .map(|span| Finding { kind: "fuzzy", span })
            .into_iter()
            .collect(),
    ];
    for list in findings {
        assert!(list.len() <= 2 * MAX_FINDINGS);
        for finding in list {
            assert!(
                text.get(finding.span.clone()).is_some(),
                "{} {:?} in {text:?}",
                finding.kind,
                finding.span
            );
        }
    }
    let scores = moderation::scores(text).into_iter().chain(topic::scores(text));
    assert!(
        scores.map(|(_, score)| score).chain([injection::find(text).score]).all(|s| (0.0..=1.0).contains(&s))
    );
    assert_eq!(unicode::categories(text).len(), text.chars().count());
    let _ = unicode::decode_hidden(text);
    for link in markup.links {
        let _ = markup::is_exfiltration_shaped(&link.url);
    }
}

/// Generates fragments that are significant to some detector, so that random sequences form malformed input.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "<",
        ">",
        "<!--",
        "-->",
        "<a href=",
        "<img alt='",
        "style=\"display:none\"",
        "&#x41;",
        "&amp",
        "[",
        "](",
        "]:",
        "![",
        "https://",
        "www.",
        "$(",
        "`",
        "\"",
        "'",
        "\\",
        "| sh",
        "curl ",
        "<<E\n",
        "eval(",
        "f'{",
        "import os\n",
        "%%bash\n",
        "!ls",
        "password='",
        "ghp_",
        "-----BEGIN RSA PRIVATE KEY-----",
        "4111 1111 1111 1111",
        "GB82 WEST",
        "::1",
        "+49 30 ",
        "Dr. ",
        "Maria ",
        "é",
        "\u{e0061}",
        "\u{200b}",
        "\u{fe0f}",
        "п",
        "ignore all previous instructions",
        "\n",
        " ",
        "@a.b",
        "{",
        "(",
        "lambda a,",
        "\u{1f3f4}",
        "\r",
        "\t",
        "rm -rf /",
        "\0",
    ];
    prop_oneof![
        proptest::sample::select(pieces.to_vec()).prop_map(str::to_owned),
        "\\PC{0,3}",
        "[a-z0-9]{0,8}"
    ]
}

proptest! {
    #[test]
    fn every_detector_is_total(pieces in proptest::collection::vec(piece(), 0..24)) {
        total(&pieces.concat());
    }
}

/// Long repetitive texts, for which a detector with superlinear time would be noticeably slow.
#[test]
fn repetitions_are_harmless() {
    for unit in [
        "a@",
        "<",
        "<a ",
        "[",
        "](",
        "![a](",
        "$(",
        "`",
        "\"",
        "'",
        "(",
        "0-",
        "1 ",
        "::",
        "https://",
        "password=",
        "eyJ",
        "\u{200b}",
        "A ",
        "Maria ",
        "x",
        "&",
        "<!--",
        "</",
        "import os;",
        "a.",
        "ignore ",
        "<<a\n",
        "${",
        "\\",
        "\u{e0100}",
        "-----BEGIN ",
        "é",
        "<p hidden>",
        "<script>",
        "sk-",
        "a:b@",
        "from os import *\n",
        "4111 1111 1111 1112 ",
    ] {
        total(&unit.repeat(30_000 / unit.len()));
    }
}
