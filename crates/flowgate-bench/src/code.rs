//! Identifies the code of this program in the manifest of a run, by digests that `build.rs` computes. The suites put
//! `code_digest` into their manifests: the digest of the sources of the monitor, the detectors, the methods, the
//! models' wire formats and the suites.
//!
//! This digest says which code recorded a run. It decides nothing: [`verify`](crate::verify) compares the figures,
//! and adds a note if the digest differs from that of the program. `screener_digest` is the exception: `verify`
//! compares it in place of figures that only a program with a local model can repeat.

use serde_json::Value;

/// Returns the digest of the sources as a JSON text. It is null if the build did not find the sources of the other
/// crates.
pub(crate) fn code_digest() -> Value {
    text_or_null(env!("FLOWGATE_SOURCES_SHA256"))
}

/// Returns the digest of the code of the screener *attention* as a JSON text, without the comments and tests of its
/// files. It is null if the build did not find these files.
///
/// A program without a local model cannot repeat the figures of this screener, so [`verify`](crate::verify) compares
/// this digest instead. If the recorded digest is another one, other code recorded the figures, and this is reported
/// as a difference.
pub(crate) fn screener_digest() -> Value {
    text_or_null(env!("FLOWGATE_SCREENER_SHA256"))
}

/// Returns a digest as a JSON text; null if it is empty.
fn text_or_null(digest: &str) -> Value {
    if digest.is_empty() { Value::Null } else { digest.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_has_a_digest() {
        for digest in [code_digest(), screener_digest()] {
            let digest = digest.as_str().unwrap();
            assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
        }
        assert_ne!(code_digest(), screener_digest());
    }
}
