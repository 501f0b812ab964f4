//! Defines [`Secret`], a key (of a client or an upstream, for example) whose `Debug` does not show it: keys must appear
//! in no log and no message. `config` creates a [`Secret`] for each key that it reads. [`add_keys`] adds keys to a list
//! of keys to be removed from texts; `log` and `recorder` have such lists.

use std::fmt;

use subtle::ConstantTimeEq as _;

/// The least length of a key that is hidden in texts, in bytes.
const MIN_HIDDEN: usize = 8;

/// A key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps the text of a key.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns `text` with each occurrence of this key replaced by a constant. Keys shorter than [`MIN_HIDDEN`] are
    /// not replaced, since they would match unrelated text.
    pub(crate) fn redacted_from(&self, text: &str) -> String {
        if self.0.len() < MIN_HIDDEN { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }

    /// Returns the key itself, in order to send it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the length, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bytes of the key.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }

    /// Returns whether `given` is this key. The time of the comparison reveals at most the length of the key.
    pub(crate) fn matches(&self, given: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(given).into()
    }
}

impl fmt::Debug for Secret {
    /// Does not write the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Adds keys to the list of keys to remove from texts, each once. Longer keys come first: otherwise the removal of a
/// key that is a prefix of a longer one would leave the rest of the longer one visible.
pub(crate) fn add_keys(removed_keys: &mut Vec<Secret>, keys: &[Secret]) {
    for key in keys {
        if !removed_keys.contains(key) {
            removed_keys.push(key.clone());
        }
    }
    removed_keys.sort_by_key(|key| std::cmp::Reverse(key.len()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_added_once_and_the_longer_ones_first() {
        let keys = ["aaaaaaaa", "bbbbbbbb", "aaaaaaaa-longer"].map(Secret::new);
        let mut known = Vec::new();
        for _ in 0..3 {
            add_keys(&mut known, &keys);
        }
        let found: Vec<&str> = known.iter().map(Secret::expose).collect();
        assert_eq!(found, ["aaaaaaaa-longer", "aaaaaaaa", "bbbbbbbb"]);
    }
}
