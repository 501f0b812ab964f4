//! Differential tests of the link cleaner: in a cleaned hostile text no reader finds an address that was not
//! permitted.
//!
//! `compat/links` runs the same texts through other renderers.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "tests")]

mod generate;
#[path = "../noninterference/random.rs"]
#[expect(dead_code, reason = "shared with another test")]
mod random;
mod readers;

use flowgate_guard::links::{Cleaner, LinkDecision, clean};
use readers::{PermittedHosts, found};

/// Returns the range of seeds.
fn cases() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let seed = number("FLOWGATE_LINKS_SEED").unwrap_or(0);
    seed..seed + number("FLOWGATE_LINKS_CASES").unwrap_or(8_000)
}

#[test]
fn no_reader_finds_an_address_that_was_not_permitted() {
    let (mut hostile, mut led) = (0, 0);
    let mut failures = Vec::new();
    for seed in cases() {
        let text = generate::text(seed);
        let mut permitted = PermittedHosts::default();
        let (cleaned, _) = clean(&text, &mut |url| permitted.judge(url));
        let problems = found(&cleaned, &permitted.0);
        if !problems.is_empty() {
            failures.push(format!("seed {seed}: {text:?} becomes {cleaned:?}: {problems:?}"));
        }
        hostile += u64::from(!found(&text, &permitted.0).is_empty());
        led += u64::from(!permitted.0.is_empty());
        // Cleaning is stable when it is repeated, and independent of the division into pieces.
        let mut again = PermittedHosts::default();
        let (twice, _) = clean(&cleaned, &mut |url| again.judge(url));
        if !found(&twice, &again.0).is_empty() {
            failures.push(format!("seed {seed}, again: {cleaned:?} becomes {twice:?}"));
        }
        let mut cleaner = Cleaner::default();
        let mut pieces = String::new();
        for piece in text.chars() {
            pieces.push_str(&cleaner.push(&piece.to_string(), &mut |url| permitted.judge(url)));
        }
        pieces.push_str(&cleaner.finish(&mut |url| permitted.judge(url)));
        assert_eq!(pieces, cleaned, "seed {seed} in pieces");
    }
    let (count, failed) = (cases().count() as u64, failures.len());
    assert!(failures.is_empty(), "{failed} of {count}:\n{}", failures[..failed.min(25)].join("\n"));
    // The generated texts are hostile enough: most lead somewhere before cleaning, and many contain a
    // permitted address.
    assert!(
        hostile * 10 > count * 6 && led * 10 > count * 2,
        "{hostile} hostile, {led} permitted of {count}"
    );
}

/// The readers find the addresses that they are meant to find.
#[test]
fn the_readers_find_addresses() {
    for text in [
        "[x](https://good.example/a)(https://evil.example/x)",
        "a@evil.com",
        "xmpp:a@b",
        "evil.com/x",
        "www.evil",
        "//evil",
        "<b>",
        "[x][y]\n\n[y]: z",
        "[[a]]",
        "evil&period;com",
        "evil\u{ff0e}com",
        "ev\u{200b}il.c\u{ad}om",
        "a\\@evil.com",
    ] {
        assert!(!found(text, &[].into()).is_empty(), "{text}");
    }
    assert_eq!(
        found("see https://good.example/a and b", &["https://good.example/a".to_owned()].into()),
        [""; 0]
    );
    let mut answer = |_: &str| LinkDecision::Refused;
    assert_eq!(clean("plain words", &mut answer).0, "plain words");
}
