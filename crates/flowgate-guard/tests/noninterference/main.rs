//! Noninterference: what somebody may see does not depend on what they may not see.
//!
//! Two runs of one conversation differ only in what does not flow to an observer's label: contents and types, lengths,
//! rows and keys, whether an answer is an error, whether a memory was retrieved, how many steps were taken above the
//! label. Policies, tools and texts are random, and the model is as bad as it can be: whatever it sees goes into the
//! calls that it makes, their order, number and arguments, into looks and slots. Nothing of the first run is
//! replayed in the second. The sequence of views, calls and questions at or below the label must be the same, byte for
//! byte.
//!
//! `FLOWGATE_NONINTERFERENCE_CASES` says how many cases are tried, `FLOWGATE_NONINTERFERENCE_SEED` where to begin.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::string_slice,
    reason = "a test"
)]

mod policy;
mod random;
mod run;
mod world;

use run::{Observed, Run};

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn what_is_hidden_decides_nothing_below_it() {
    let cases = number("FLOWGATE_NONINTERFERENCE_CASES", 400);
    let first = number("FLOWGATE_NONINTERFERENCE_SEED", 1);
    let (mut hid, mut looked, mut slots, mut visible) = (0, 0, 0, 0);
    for seed in first..first + cases {
        let case = Run::case(seed);
        let one = case.first();
        let two = case.second(&one);
        if let Some(difference) = Observed::difference(&one, &two) {
            if std::env::var("FLOWGATE_NONINTERFERENCE_DUMP").is_ok() {
                eprintln!("first\n{}second\n{}", one.dump(), two.dump());
            }
            panic!("seed {seed}, label {:?}\n{}\n{difference}", case.observer(), case.policy_text());
        }
        hid += u64::from(two.changed > 0);
        looked += u64::from(one.looks > 0);
        slots += u64::from(one.slots > 0);
        visible += u64::from(one.log.len() > 3);
    }
    eprintln!(
        "noninterference: {cases} cases from seed {first}; something hidden differed in {hid}, the model looked in {looked}, \
         used slots in {slots}, and more than three things were visible in {visible}"
    );
    // A test in which nothing is hidden, or nothing is seen, shows nothing.
    assert!(hid * 2 > cases && looked * 5 > cases && slots * 50 > cases && visible * 2 > cases);
}
