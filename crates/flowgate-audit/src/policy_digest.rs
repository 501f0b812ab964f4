//! Computes the digest by which two programs find out that they enforce the same policy. The gateway states its digest
//! with the label of each call that it hands to a client, and `flowgate hook` compares that digest with the digest of
//! its own policy.

use flowgate::policy::Policy;
use sha2::{Digest as _, Sha256};

/// Returns the digest of a policy: of the texts of all its files with their names, in hexadecimal. The parameters of the
/// policy are not part of it.
pub fn policy_digest(policy: &Policy) -> String {
    let mut hash = Sha256::new();
    let mut add = |text: &str| {
        // The length comes first, so that no two lists of texts are hashed from the same bytes.
        hash.update(text.len().to_string());
        hash.update(":");
        hash.update(text);
    };
    for (name, text) in policy.files().files() {
        add(name.unwrap_or_default());
        add(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use flowgate::policy::Dialect;

    use super::*;

    /// Returns the digest of a policy. `files` are its files by their names: the first one is the policy, which can import
    /// the others.
    fn digest(files: &[(&str, &str)]) -> String {
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned()).ok_or_else(String::new)
        };
        let text = files.first().map(|(_, text)| *text).unwrap_or_default();
        policy_digest(&Policy::load(text, Dialect::Flowgate, read).map_err(drop).unwrap())
    }

    #[test]
    fn another_text_has_another_digest() {
        let main = "lattice integrity: trusted < untrusted\n";
        let comment = "lattice integrity: trusted < untrusted\n# a comment\n";
        let digests = [main, comment].map(|text| digest(&[("", text)]));
        assert_eq!(digests[0], digest(&[("", main)]));
        assert_ne!(digests[0], digests[1]);
        assert_eq!(digests[0].len(), 64);
    }
}
