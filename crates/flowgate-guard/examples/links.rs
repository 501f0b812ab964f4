//! Writes hostile texts and what becomes of them, as JSON lines, for renderers that are not written in Rust: `compat/links`.
//!
//! `cargo run -p flowgate-guard --example links -- CASES SEED`, or with `-` for the texts of standard input, each a JSON string in a
//! line of its own.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program for tests"
)]

#[path = "../tests/links/generate.rs"]
mod generate;
#[path = "../tests/noninterference/random.rs"]
#[expect(dead_code, reason = "shared with tests")]
mod random;

use std::collections::BTreeSet;

use flowgate_guard::links::{LinkDecision, clean};
use serde_json::json;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "-") {
        for (number, line) in std::io::stdin().lines().enumerate() {
            let text: String = serde_json::from_str(&line.expect("a line")).expect("a JSON string");
            write(number as u64, &text);
        }
        return;
    }
    let mut numbers = arguments.iter().map(|text| text.parse::<u64>().expect("a number"));
    let (cases, seed) = (numbers.next().unwrap_or(1_000), numbers.next().unwrap_or(0));
    for seed in seed..seed + cases {
        write(seed, &generate::text(seed));
    }
}

fn write(seed: u64, text: &str) {
    let mut permitted = BTreeSet::new();
    let mut judge = |url: &str| {
        let hosts = ["https://good.example/", "http://good.example/", "https://good.example:8080/"];
        let is_good = hosts.iter().any(|host| url.starts_with(host)) || url == "mailto:ann@good.example";
        if is_good {
            permitted.insert(url.to_owned());
        }
        if is_good { LinkDecision::Permitted } else { LinkDecision::Refused }
    };
    let (cleaned, _) = clean(text, &mut judge);
    println!("{}", json!({"seed": seed, "text": text, "cleaned": cleaned, "permitted": permitted}));
}
