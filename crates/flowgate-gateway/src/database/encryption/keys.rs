//! Defines the keys with which stored content is encrypted ([`EncryptionKeys`]). Parses their text, which `config`
//! reads from an environment variable or a file, and derives from each key its id for messages and a separate key for
//! each purpose.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::random;

/// The length of a key, in bytes.
const KEY_BYTES: usize = 32;
/// The most keys: one that encrypts, and those that it has replaced.
pub(crate) const MAX_KEYS: usize = 16;

/// The keys of the stored content: the first one encrypts, and all of them decrypt. Without keys, content is stored as
/// it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EncryptionKeys(Vec<EncryptionKey>);

/// A key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct EncryptionKey([u8; KEY_BYTES]);

impl fmt::Debug for EncryptionKey {
    /// Writes the id of the key, which does not reveal the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionKey({})", self.id())
    }
}

/// The reason why the text of the keys is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptionKeyError {
    /// The text has no key.
    Empty,
    /// The key with this number, counted from 1, is malformed.
    Form(usize),
    /// The key with this number is equal to an earlier one.
    Repeated(usize),
    /// There are more than `MAX_KEYS` keys.
    TooMany,
}

impl fmt::Display for EncryptionKeyError {
    /// Writes what is wrong with the keys and how to correct it, without a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("there is no key: write one from `openssl rand -base64 32`"),
            Self::Form(number) => write!(
                f,
                "key {number} is not 32 bytes in base64 or hexadecimal: write one from `openssl rand -base64 32`"
            ),
            Self::Repeated(number) => {
                write!(f, "key {number} is the same as an earlier one: remove one of them")
            }
            Self::TooMany => write!(
                f,
                "there are more than {MAX_KEYS} keys: remove those with which nothing is encrypted any more, \
                 after `flowgate database encrypt`"
            ),
        }
    }
}

impl std::error::Error for EncryptionKeyError {}

impl EncryptionKeys {
    /// Parses keys, with white space between them: each is 32 bytes in base64 or hexadecimal.
    ///
    /// # Errors
    /// If there is no key or more than [`MAX_KEYS`], or a key is malformed or occurs twice.
    pub(crate) fn read(text: &str) -> Result<Self, EncryptionKeyError> {
        let mut keys: Vec<EncryptionKey> = Vec::new();
        for (index, word) in text.split_whitespace().enumerate() {
            let number = index + 1;
            if number > MAX_KEYS {
                return Err(EncryptionKeyError::TooMany);
            }
            let decoded = random::from_hex::<KEY_BYTES>(word)
                .or_else(|| STANDARD.decode(word).ok()?.try_into().ok())
                .ok_or(EncryptionKeyError::Form(number))?;
            let key = EncryptionKey(decoded);
            if keys.contains(&key) {
                return Err(EncryptionKeyError::Repeated(number));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(EncryptionKeyError::Empty) } else { Ok(Self(keys)) }
    }

    /// Returns whether there are no keys: content is then stored as it is.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys, the one that encrypts first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &EncryptionKey> {
        self.0.iter()
    }

    /// Returns the ids of the keys, for messages.
    pub(super) fn ids(&self) -> String {
        let ids: Vec<String> = self.0.iter().map(EncryptionKey::id).collect();
        ids.join(", ")
    }
}

impl EncryptionKey {
    /// Derives a key for one purpose, such as the encryption of content.
    pub(super) fn derived(&self, purpose: &str) -> [u8; KEY_BYTES] {
        mac(&self.0, &[purpose.as_bytes()])
    }

    /// Returns the id of the key: 16 hexadecimal digits that do not reveal the key.
    pub(super) fn id(&self) -> String {
        let mut id = random::hex(&self.derived("flowgate database key id 1"));
        id.truncate(16);
        id
    }
}

/// Returns the HMAC-SHA256 of a list of byte strings under a key. Each is preceded by its length, so that two different
/// lists never have the same bytes.
pub(super) fn mac(key: &[u8; KEY_BYTES], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC accepts a key of any length, so it does not fail.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_base64_and_hexadecimal() {
        let hex = "00".repeat(32);
        let base64 = STANDARD.encode([1; 32]);
        let many: String = (0..17_u8).map(|n| random::hex(&[n; 32]) + "\n").collect();
        let check = |text: &str, expected: Result<usize, EncryptionKeyError>| {
            assert_eq!(EncryptionKeys::read(text).map(|keys| keys.0.len()), expected, "{text}");
        };
        check(&hex, Ok(1));
        check(&format!(" {base64}\n{hex}\n"), Ok(2));
        check(&many.replace(&random::hex(&[16; 32]), ""), Ok(16));
        check(&many, Err(EncryptionKeyError::TooMany));
        check("", Err(EncryptionKeyError::Empty));
        check(" \n", Err(EncryptionKeyError::Empty));
        check(&format!("{hex} {hex}"), Err(EncryptionKeyError::Repeated(2)));
        // The same key in another notation.
        check(&format!("{hex} {}", STANDARD.encode([0; 32])), Err(EncryptionKeyError::Repeated(2)));
        check(&format!("{hex} secret"), Err(EncryptionKeyError::Form(2)));
        check(&"0".repeat(63), Err(EncryptionKeyError::Form(1)));
        check(&STANDARD.encode([1; 16]), Err(EncryptionKeyError::Form(1)));
        check(&STANDARD.encode([1; 33]), Err(EncryptionKeyError::Form(1)));
    }

    #[test]
    fn keys_are_not_shown() {
        let keys = EncryptionKeys::read(&"ab".repeat(32)).unwrap();
        let shown = format!("{keys:?} {}", keys.ids());
        assert!(!shown.contains("abab") && !shown.contains("171"), "{shown}");
        assert_eq!(keys.ids().len(), 16);
        for error in [EncryptionKeyError::Form(1), EncryptionKeyError::Empty, EncryptionKeyError::TooMany] {
            let text = error.to_string();
            assert!(text.contains("key") && !text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn no_two_lists_of_parts_have_one_digest() {
        let key = [7; 32];
        assert_ne!(mac(&key, &[b"ab", b"c"]), mac(&key, &[b"a", b"bc"]));
        assert_ne!(mac(&key, &[b"ab"]), mac(&key, &[b"ab", b""]));
        assert_ne!(mac(&key, &[b"ab"]), mac(&[8; 32], &[b"ab"]));
    }
}
