//! Defines the text of a virtual key: generates it, recognises it, computes its digest, and hides it in other texts.
//! The database has only the digests of the keys. `routes` makes keys, `chat::authentication` reads them, and
//! `recorder` and `log` hide them.
//!
//! The text is `fgk-` and 64 hexadecimal digits: 256 random bits of the operating system. A digest without a salt is
//! therefore enough: nobody can try all keys.

use std::borrow::Cow;
use std::fmt;

use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::random::{self, RandomError};

/// The beginning of every virtual key.
pub(crate) const PREFIX: &str = "fgk-";
/// The number of hexadecimal digits after the prefix.
const DIGITS: usize = 64;

/// The text of a virtual key. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct VirtualKeyText(String);

impl VirtualKeyText {
    /// Makes a new key.
    pub(crate) fn generate() -> Result<Self, RandomError> {
        random::bytes::<32>().map(|bytes| Self(format!("{PREFIX}{}", random::hex(&bytes))))
    }

    /// Parses a key; `None` if the text does not have the form of a virtual key.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        (digits.len() == DIGITS && digits.bytes().all(is_digit)).then(|| Self(text.to_owned()))
    }

    /// Returns the key itself, which is shown once.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the digest under which the key is stored, in hexadecimal.
    pub(crate) fn digest(&self) -> String {
        random::hex(&Sha256::digest(&self.0))
    }

    /// Returns whether `stored` is the digest of this key. The comparison takes constant time.
    pub(crate) fn has_digest(&self, stored: &str) -> bool {
        self.digest().as_bytes().ct_eq(stored.as_bytes()).into()
    }
}

impl fmt::Debug for VirtualKeyText {
    /// Does not write the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VirtualKeyText(..)")
    }
}

/// Replaces everything in a text that has the form of a virtual key by `[key]`, whether or not the key is valid.
pub(crate) fn redact(text: &str) -> Cow<'_, str> {
    let mut redacted = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(PREFIX) {
        // What follows the prefix is a key if it begins with enough digits.
        let length = after.bytes().take(DIGITS).take_while(|byte| is_digit(*byte)).count();
        redacted.push_str(before);
        redacted.push_str(if length == DIGITS { "[key]" } else { PREFIX });
        rest = if length == DIGITS { after.get(DIGITS..).unwrap_or_default() } else { after };
    }
    // Nothing was replaced.
    if redacted.is_empty() && rest.len() == text.len() {
        return Cow::Borrowed(text);
    }
    redacted.push_str(rest);
    Cow::Owned(redacted)
}

/// Returns whether a byte is a hexadecimal digit in lower case, as keys are written.
fn is_digit(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'a'..=b'f')
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIGITS_OF_ONE: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    #[test]
    fn only_whole_keys_are_read() {
        let check = |text: &str, expected: bool| {
            assert_eq!(VirtualKeyText::read(text).is_some(), expected, "{text}");
        };
        check(&format!("fgk-{DIGITS_OF_ONE}"), true);
        check(DIGITS_OF_ONE, false);
        check(&format!("fgk-{DIGITS_OF_ONE}0"), false);
        check(&format!("fgk-{}", DIGITS_OF_ONE.get(1..).unwrap()), false);
        check(&format!("fgk-{}", DIGITS_OF_ONE.to_uppercase()), false);
        check(&format!("fgk-{}é", DIGITS_OF_ONE.get(2..).unwrap()), false);
        check("fgk-", false);
        check("", false);
    }

    #[test]
    fn keys_are_different_and_known_by_their_digests() {
        let [one, other] = [(), ()].map(|()| VirtualKeyText::generate().unwrap());
        assert_ne!(one, other);
        assert_eq!(VirtualKeyText::read(one.expose()), Some(one.clone()));
        assert!(one.has_digest(&one.digest()));
        assert!(!one.has_digest(&other.digest()) && !one.has_digest(""));
        assert!(!one.digest().contains(one.expose().get(4..).unwrap()));
        assert_eq!(format!("{one:?}"), "VirtualKeyText(..)");
    }

    #[test]
    fn keys_are_hidden_in_texts() {
        let key = format!("fgk-{DIGITS_OF_ONE}");
        let check = |text: String, expected: String| assert_eq!(redact(&text), expected);
        check("nothing of it".to_owned(), "nothing of it".to_owned());
        check(String::new(), String::new());
        check(key.clone(), "[key]".to_owned());
        check(format!("a {key}, and {key}{key}é"), "a [key], and [key][key]é".to_owned());
        check(format!("fgk-{key}"), "fgk-[key]".to_owned());
        // The digits of a cut key tell nothing of use.
        let cut = format!("{}...", key.get(..30).unwrap());
        check(cut.clone(), cut);
        check("fgk-é".to_owned(), "fgk-é".to_owned());
    }
}
