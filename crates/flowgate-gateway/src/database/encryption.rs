//! Encrypts the content that the database stores, with keys of the configuration, which the database does not contain.
//! A copy of the database, of its backups or of its disk then reveals who talked when and how much, but not the texts.
//! The other modules of `database` seal and open every column with content through this one.
//!
//! To *seal* a value is to encrypt it with XChaCha20-Poly1305 under a random nonce, bound to its column and its row: a
//! value that was altered, or moved to another row or column, cannot be opened, and the operation that needs it fails.
//! Rows are looked up by digests of content. The database stores these digests keyed, since the content of a digest
//! without a key could be guessed by trial.
//!
//! * `keys`: parses the keys of the configuration.
//! * `place`: names the columns with content, and binds a value to its row.
//! * `cipher`: seals and opens values; only it creates a [`StoredContent`] or a [`StoredDigest`], the only types by
//!   which a statement can write content.
//! * `sealing_keys`: encrypts and decrypts texts with the keys of one purpose.
//! * `audit_content`: encrypts the contents that are kept next to the audit log.
//! * `check`: compares the keys with the database when it is opened.
//! * `rewrite`: encrypts what was stored before there was a key, or under an earlier one (`flowgate database encrypt`).

mod audit_content;
mod check;
mod cipher;
mod keys;
mod place;
mod rewrite;
mod sealing_keys;
#[cfg(test)]
mod tests;

pub use audit_content::encrypt_audit_contents;
pub(crate) use cipher::Content;
pub(super) use cipher::{ContentCipher, StoredContent, StoredDigest};
pub use keys::{EncryptionKeyError, EncryptionKeys};
pub(super) use place::{ContentPlace, DigestColumn};
pub use rewrite::{EncryptionReport, encrypt_stored_content};
