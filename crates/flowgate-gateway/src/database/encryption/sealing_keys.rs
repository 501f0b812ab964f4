//! Defines [`SealingKeys`], which encrypt and decrypt texts for one purpose: they are derived from the keys of the
//! configuration and the name of the purpose. `cipher` uses them for the database, and `audit_content` for the contents
//! next to the audit log.
//!
//! A sealed text is `fg1:KEY:DATA`: the id of its key, and in base64 the nonce, the ciphertext and the tag.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use super::keys::{EncryptionKey, EncryptionKeys};

/// The beginning of a sealed text, with the version of its form.
const MARK: &str = "fg1:";
/// The length of a nonce, in bytes. Random nonces of this length do not repeat.
const NONCE_BYTES: usize = 24;

/// Ciphers with the ids of their keys: the first one seals, all of them open.
pub(super) struct SealingKeys(Vec<(String, XChaCha20Poly1305)>);

impl SealingKeys {
    /// Derives the keys for `purpose`, a text that no other purpose has.
    pub(super) fn new(keys: &EncryptionKeys, purpose: &str) -> Self {
        let cipher = |key: &EncryptionKey| (key.id(), XChaCha20Poly1305::new(&key.derived(purpose).into()));
        Self(keys.iter().map(cipher).collect())
    }

    /// Returns whether a text is sealed by the first key, the one that seals new texts.
    pub(super) fn is_current(&self, sealed: &str) -> bool {
        let key = sealed_parts(sealed).map(|(key, _)| key);
        self.0.first().is_some_and(|(first, _)| key == Some(first))
    }

    /// Returns whether one of the keys has this id.
    pub(super) fn has_key(&self, id: &str) -> bool {
        self.0.iter().any(|(known, _)| known == id)
    }

    /// Encrypts a text with the first key under this random nonce, such that it can be opened only with the same
    /// `place`. `None` if there is no key, or the text has hundreds of gigabytes.
    pub(super) fn seal(&self, text: &str, place: &[u8], nonce: [u8; NONCE_BYTES]) -> Option<String> {
        let (key, cipher) = self.0.first()?;
        let payload = Payload { msg: text.as_bytes(), aad: place };
        let encrypted = cipher.encrypt(&XNonce::from(nonce), payload).ok()?;
        let mut sealed = format!("{MARK}{key}:");
        STANDARD.encode_string([nonce.as_slice(), &encrypted].concat(), &mut sealed);
        Some(sealed)
    }

    /// Decrypts a text that was sealed for the place `place`. Returns `None` if the text is not sealed, was altered or
    /// moved, or was sealed with a key that is not among these keys.
    pub(super) fn open(&self, sealed: &str, place: &[u8]) -> Option<String> {
        let (key, data) = sealed_parts(sealed)?;
        let (_, cipher) = self.0.iter().find(|(id, _)| id == key)?;
        // The data is the nonce and the encrypted text, in base64.
        let data = STANDARD.decode(data).ok()?;
        let (nonce, encrypted) = data.split_first_chunk::<NONCE_BYTES>()?;
        let payload = Payload { msg: encrypted, aad: place };
        String::from_utf8(cipher.decrypt(&XNonce::from(*nonce), payload).ok()?).ok()
    }
}

/// Splits a sealed value into the id of its key and its data; `None` if the value is not sealed. Content of the
/// database that is not sealed never has this form: JSON and hexadecimal keys begin with other characters, and a
/// normalized text has no word that mixes alphabetic characters and symbols.
pub(super) fn sealed_parts(stored: &str) -> Option<(&str, &str)> {
    stored.strip_prefix(MARK)?.split_once(':')
}
