//! Encrypts the contents that are kept next to the audit log, with the keys of the database. The recorder passes the
//! cipher to the log, and the command line passes it to the reader of contents. The command `flowgate database encrypt`
//! also encrypts the stored contents with the first key ([`encrypt_audit_contents`]).

use std::fmt;
use std::sync::Arc;

use flowgate_audit::{AuditError, ContentCipher, ContentOpenError, seal_contents};

use super::keys::EncryptionKeys;
use super::sealing_keys::{SealingKeys, sealed_parts};
use crate::config::GatewayConfig;
use crate::random;

/// The cipher of contents next to the audit log.
struct AuditContentCipher {
    keys: SealingKeys,
    /// The ids of the keys, for messages.
    ids: String,
}

impl fmt::Debug for AuditContentCipher {
    /// Writes the ids of the keys, which do not reveal them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuditContentCipher").field("ids", &self.ids).finish_non_exhaustive()
    }
}

impl ContentCipher for AuditContentCipher {
    /// Encrypts a content with the first key for its place, such that it cannot be decrypted at another one.
    fn seal(&self, text: &str, place: &[u8]) -> Option<String> {
        self.keys.seal(text, place, random::bytes().ok()?)
    }

    /// Decrypts a content. Tells an unknown key from an altered content, since the operator can add a missing key.
    fn open(&self, sealed: &str, place: &[u8]) -> Result<String, ContentOpenError> {
        let (key, _) = sealed_parts(sealed).ok_or(ContentOpenError::Altered)?;
        if !self.keys.has_key(key) {
            return Err(ContentOpenError::OtherKey);
        }
        self.keys.open(sealed, place).ok_or(ContentOpenError::Altered)
    }

    fn key_ids(&self) -> String {
        self.ids.clone()
    }
}

impl EncryptionKeys {
    /// Returns the cipher of the contents next to the audit log. Returns `None` if there are no keys: contents are then
    /// not encrypted.
    pub fn audit_content_cipher(&self) -> Option<Arc<dyn ContentCipher>> {
        // The text names the purpose of the derived keys; its last word is the version of the encryption.
        let keys = SealingKeys::new(self, "flowgate audit content 1");
        (!self.is_empty())
            .then(|| Arc::new(AuditContentCipher { keys, ids: self.ids() }) as Arc<dyn ContentCipher>)
    }
}

/// Encrypts the contents next to the audit log of a configuration with the first key of the configuration: the contents
/// that were not encrypted, and those that were encrypted with earlier keys. Returns their number; `None` without an
/// audit log or keys.
///
/// # Errors
/// If a gateway has the log open, a file cannot be read or written, or a content cannot be opened by the keys.
pub fn encrypt_audit_contents(config: &GatewayConfig) -> Result<Option<u64>, AuditError> {
    let (Some(audit), Some(cipher)) = (&config.audit, config.store.encryption.audit_content_cipher()) else {
        return Ok(None);
    };
    seal_contents(&audit.file, &*cipher).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cipher(keys: &[u8]) -> Arc<dyn ContentCipher> {
        let text: Vec<String> = keys.iter().map(|key| random::hex(&[*key; 32])).collect();
        EncryptionKeys::read(&text.join(" ")).unwrap().audit_content_cipher().unwrap()
    }

    #[test]
    fn a_content_is_opened_at_its_place_by_its_key() {
        let sealed = cipher(&[1]).seal("a secret", b"here").unwrap();
        assert!(!sealed.contains("secret"));
        assert_eq!(cipher(&[1]).open(&sealed, b"here").unwrap(), "a secret");
        assert_eq!(cipher(&[2, 1]).open(&sealed, b"here").unwrap(), "a secret");
        assert_eq!(cipher(&[2]).open(&sealed, b"here"), Err(ContentOpenError::OtherKey));
        for (sealed, place) in [
            (sealed.clone(), "there"),
            (sealed.get(..sealed.len() - 8).unwrap().to_owned(), "here"),
            (sealed.replacen("fg1:", "fg2:", 1), "here"),
            ("{}".to_owned(), "here"),
            (String::new(), "here"),
        ] {
            let opened = cipher(&[1]).open(&sealed, place.as_bytes());
            assert_eq!(opened, Err(ContentOpenError::Altered), "{sealed} {place}");
        }
        assert!(EncryptionKeys::default().audit_content_cipher().is_none());
        // The keys of two purposes differ, so a value of the database is not a content.
        let of_database =
            SealingKeys::new(&EncryptionKeys::read(&random::hex(&[1; 32])).unwrap(), "another purpose");
        assert_eq!(of_database.open(&sealed, b"here"), None);
        let shown = format!("{:?}", cipher(&[0xab]));
        assert!(shown.contains(&cipher(&[0xab]).key_ids()) && !shown.contains("abab"), "{shown}");
    }
}
