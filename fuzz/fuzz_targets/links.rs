//! No reader finds an address in a cleaned text that was not permitted, and the result of cleaning does not
//! depend on the division into pieces.

#![no_main]

mod fixed;
#[path = "../../crates/flowgate-guard/tests/links/readers.rs"]
mod readers;

use flowgate_guard::links::{Cleaner, clean};
use libfuzzer_sys::fuzz_target;
use readers::{PermittedHosts, found};

fuzz_target!(|text: &str| {
    let mut permitted = PermittedHosts::default();
    let (cleaned, _) = clean(text, &mut |url| permitted.judge(url));
    let problems = found(&cleaned, &permitted.0);
    assert!(problems.is_empty(), "{cleaned:?}: {problems:?}");
    let (mut cleaner, mut pieces) = (Cleaner::default(), String::new());
    let size = 1 + text.len() % 7;
    for piece in text.chars().collect::<Vec<_>>().chunks(size) {
        let piece: String = piece.iter().collect();
        pieces.push_str(&cleaner.push(&piece, &mut |url| permitted.judge(url)));
        assert!(cleaned.starts_with(&pieces));
    }
    pieces.push_str(&cleaner.finish(&mut |url| permitted.judge(url)));
    assert_eq!(pieces, cleaned);
});
