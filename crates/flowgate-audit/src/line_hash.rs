//! Defines the hashes that chain the lines of a log and identify contents, and their hexadecimal form. The modules that
//! write, read and verify logs share [`LineHash`].

use std::fmt;

use sha2::{Digest, Sha256};

/// A SHA-256 hash: of a line without its line feed, or of a salted content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineHash([u8; 32]);

impl LineHash {
    /// The 32 zero bytes that the first line of a log has as the hash of its previous line.
    pub const NONE: Self = Self([0; 32]);

    /// Returns the hash of one line.
    pub fn of_line(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    /// Returns the hash of a salt followed by a content.
    pub(super) fn salted(salt: &[u8; 32], content: &str) -> Self {
        Self(Sha256::new().chain_update(salt).chain_update(content).finalize().into())
    }

    /// Parses 64 lower-case hexadecimal digits; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        parse_hex(text).map(Self)
    }
}

impl fmt::Display for LineHash {
    /// Writes the hash as 64 lower-case hexadecimal digits, which [`Self::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// Returns bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Parses exactly the output of [`hex`] for `N` bytes; `None` for any other text, such as capital digits: with two
/// spellings of one value, a line could be changed undetected.
pub(super) fn parse_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<Vec<u8>>>()?.try_into().ok()
}
