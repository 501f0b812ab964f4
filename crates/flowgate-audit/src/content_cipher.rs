//! Defines [`ContentCipher`], the trait by which the writer and the readers of contents encrypt and decrypt them. The
//! program that owns the keys implements the trait: the gateway does so with the keys that encrypt its database.

use std::fmt;

/// The number of characters of a key's id that messages show.
const MAX_ID: usize = 16;

/// Encrypts and decrypts contents. A sealed text has the form `FORM:KEY:DATA`: the version of the form, the id of the
/// key in hexadecimal digits, and the encrypted text.
pub trait ContentCipher: fmt::Debug + Send + Sync {
    /// Encrypts a text such that it can be decrypted only with the same `place`, which identifies where the text is
    /// stored. Returns `None` if the text cannot be encrypted, for example because the operating system has no random
    /// bytes.
    fn seal(&self, text: &str, place: &[u8]) -> Option<String>;

    /// Decrypts a text that was encrypted for this place.
    ///
    /// # Errors
    /// If the key is not one of this cipher's, or the text was altered or encrypted for another place.
    fn open(&self, sealed: &str, place: &[u8]) -> Result<String, ContentOpenError>;

    /// Returns the ids of the keys, the one that encrypts first, with commas between them. They do not reveal the keys.
    fn key_ids(&self) -> String;
}

/// The reason why a sealed content cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ContentOpenError {
    /// The content was encrypted with a key that the cipher does not have.
    OtherKey,
    /// The content was altered, or moved from another place.
    Altered,
}

impl fmt::Display for ContentOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OtherKey => "the content is encrypted with another key: give that key as well",
            Self::Altered => "the content was altered or moved: restore the file from a copy",
        })
    }
}

impl std::error::Error for ContentOpenError {}

/// Returns the id of the key of a sealed text, for messages. The text comes from a file that may have been changed, so
/// only the hexadecimal digits of the id are returned, and at most [`MAX_ID`] of them.
pub(super) fn key_id(sealed: &str) -> String {
    let id = sealed.split(':').nth(1).unwrap_or_default();
    id.chars().filter(char::is_ascii_hexdigit).take(MAX_ID).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A cipher for tests, which hides a text by reversing it and binds it to its place by a digest.
    #[derive(Debug)]
    pub(crate) struct TestCipher(pub(crate) &'static [&'static str]);

    impl TestCipher {
        fn bound(key: &str, text: &str, place: &[u8]) -> String {
            let all = [key.as_bytes(), text.as_bytes(), place].join(&0);
            crate::LineHash::of_line(&all).to_string()
        }
    }

    impl ContentCipher for TestCipher {
        fn seal(&self, text: &str, place: &[u8]) -> Option<String> {
            let key = self.0.first()?;
            let hidden: String = text.chars().rev().collect();
            Some(format!("test1:{key}:{}{hidden}", Self::bound(key, text, place)))
        }

        fn open(&self, sealed: &str, place: &[u8]) -> Result<String, ContentOpenError> {
            let mut parts = sealed.splitn(3, ':').skip(1);
            let (key, data) = parts.next().zip(parts.next()).ok_or(ContentOpenError::Altered)?;
            if !self.0.contains(&key) {
                return Err(ContentOpenError::OtherKey);
            }
            let (bound, hidden) = data.split_at_checked(64).ok_or(ContentOpenError::Altered)?;
            let text: String = hidden.chars().rev().collect();
            if bound == Self::bound(key, &text, place) { Ok(text) } else { Err(ContentOpenError::Altered) }
        }

        fn key_ids(&self) -> String {
            self.0.join(", ")
        }
    }

    #[test]
    fn the_id_of_a_key_is_shown_without_other_text() {
        for (sealed, expected) in [
            ("fg1:00ff:abc", "00ff"),
            ("fg1:\u{1b}[2Jab:x", "2ab"),
            ("fg1", ""),
            ("fg1:0123456789abcdef0123:x", "0123456789abcdef"),
        ] {
            assert_eq!(key_id(sealed), expected, "{sealed:?}");
        }
    }
}
