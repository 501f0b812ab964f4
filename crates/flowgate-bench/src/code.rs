//! Identifies the code of this program in the manifest of a run. `build.rs` computes the digest of the sources of the
//! monitor, the detectors, the methods, the models' wire formats and the suites.
//!
//! The digest says which code recorded a run. It decides nothing: [`verify`](crate::verify) compares the figures, and
//! reports another digest as a note.

use serde_json::Value;

/// Returns the digest as a JSON text; null if the program was built where the sources of the other crates were not found.
pub(crate) fn code_digest() -> Value {
    match env!("FLOWGATE_SOURCES_SHA256") {
        "" => Value::Null,
        digest => digest.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkout_has_a_digest() {
        let digest = code_digest();
        let digest = digest.as_str().unwrap();
        assert!(digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()), "{digest}");
    }
}
