//! Defines the Ed25519 key with which the writer of a log signs its heads and the lines for witnesses, and the public
//! half of the key, which suffices to verify them. [`AuditLog`](super::AuditLog) owns the key; `key_file` reads it from
//! a file.

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};

use super::line_hash::{hex, parse_hex};

/// The signing key. `Debug` does not print it.
#[derive(Clone)]
pub struct AuditKey(SigningKey);

impl fmt::Debug for AuditKey {
    /// Writes a constant in place of the key, which must not reach a log or an error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// The public key that verifies signatures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditPublicKey(VerifyingKey);

impl AuditKey {
    /// Derives the key from its seed, the 32 random bytes that a key file contains.
    pub fn from_seed(seed: [u8; 32]) -> Self {
        Self(SigningKey::from_bytes(&seed))
    }

    /// Returns the public half of the key, which verifies its signatures.
    pub fn public_key(&self) -> AuditPublicKey {
        AuditPublicKey(self.0.verifying_key())
    }

    /// Returns the signature of a message.
    pub(super) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl AuditPublicKey {
    /// Parses the printed form: 64 lower-case hexadecimal digits, with optional space around them. `None` if the text
    /// has another form, or is no valid key.
    pub fn parse(text: &str) -> Option<Self> {
        VerifyingKey::from_bytes(&parse_hex(text.trim())?).ok().map(Self)
    }

    /// Returns whether `signature` is a signature of the message by this key.
    pub(super) fn has_signed(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        self.0.verify_strict(message, &Signature::from_bytes(signature)).is_ok()
    }
}

impl fmt::Display for AuditPublicKey {
    /// Writes the key as 64 lower-case hexadecimal digits, which [`Self::parse`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0.as_bytes()))
    }
}
