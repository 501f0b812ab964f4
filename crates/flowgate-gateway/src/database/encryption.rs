//! Encrypts the content that the database stores, with keys that the configuration names and the database does not
//! contain: what is read from a copy of the database, of its backups or of its disk then says who talked when and how
//! much, but not what was said.
//!
//! Each value is sealed by XChaCha20-Poly1305 under a random nonce, and is bound to its column and its row: a value that
//! was altered, or moved to another row or column, cannot be opened, and whatever needs it fails. Digests that are looked
//! up, and whose content could be found by trial, are replaced by keyed ones.
//!
//! * `keys`: parses the keys of the configuration.
//! * `place`: names the columns with content, and binds a value to its row.
//! * `cipher`: seals and opens values; only it makes a [`StoredContent`] and a [`StoredDigest`], without which no
//!   statement can write a [`Content`].
//! * `check`: compares the keys with the database when it is opened.
//! * `rewrite`: encrypts what was stored before there was a key, or under an earlier one (`flowgate database encrypt`).

mod check;
mod cipher;
mod keys;
mod place;
mod rewrite;
#[cfg(test)]
mod tests;

pub(crate) use cipher::Content;
pub(super) use cipher::{ContentCipher, StoredContent, StoredDigest};
pub use keys::{EncryptionKeyError, EncryptionKeys};
pub(super) use place::{ContentPlace, DigestColumn};
pub use rewrite::{EncryptionReport, encrypt_stored_content};
