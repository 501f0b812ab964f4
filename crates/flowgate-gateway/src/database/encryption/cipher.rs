//! Defines [`ContentCipher`], by which the other files of `database` encrypt (*seal*) content before it is stored, and
//! decrypt (*open*) what they read. It also converts the digests by which rows with content are looked up: if the
//! database has a key, they are keyed, so that nobody without the key can find out by trial of which text a stored
//! digest is. Without a key, content and digests are stored as they are.
//!
//! A statement of SQL takes no [`Content`], so content cannot bypass the cipher by mistake: [`ContentCipher::seal`]
//! converts it to a [`StoredContent`], which a statement takes. [`ContentCipher::lookup`] converts a digest to a
//! [`StoredDigest`], in which form it is stored and looked up. `sealing_keys` defines the form of a sealed value.

use std::fmt;

use super::keys::{EncryptionKeys, mac};
use super::place::{ContentPlace, DigestColumn};
use super::sealing_keys::{SealingKeys, sealed_parts};
use crate::database::error::DatabaseError;
use crate::database::transaction::{SqlRow, SqlValue};
use crate::random;

/// The first letter of a keyed digest. A digest without a key is in hexadecimal, so it never begins with it.
const KEYED: char = 'k';

/// A text that must be sealed before it is stored. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Content(String);

impl Content {
    /// Returns the text.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the length of the text, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Converts the content to its text.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Content {
    /// Writes the length only: the text is content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.0.len())
    }
}

/// A content as it is stored: sealed, if the database has a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::database) struct StoredContent(String);

impl<'v> From<&'v StoredContent> for SqlValue<'v> {
    fn from(content: &'v StoredContent) -> Self {
        Self::Text(&content.0)
    }
}

/// A digest by which rows are looked up, as it is stored: keyed, if the database has a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::database) struct StoredDigest(String);

impl StoredDigest {
    /// Returns the digest as text.
    pub(in crate::database) fn as_str(&self) -> &str {
        &self.0
    }

    /// Joins several digests with spaces, as the column `turns.prefixes` stores them.
    pub(in crate::database) fn joined(digests: &[Self]) -> Self {
        let digests: Vec<&str> = digests.iter().map(Self::as_str).collect();
        Self(digests.join(" "))
    }
}

impl<'v> From<&'v StoredDigest> for SqlValue<'v> {
    fn from(digest: &'v StoredDigest) -> Self {
        Self::Text(&digest.0)
    }
}

/// Seals and opens the content of a database.
#[derive(Debug)]
pub(in crate::database) enum ContentCipher {
    /// The database has no key: content is stored as it is.
    Plain,
    /// The database has a key.
    Sealing(KeyRing),
}

/// The keys of a database. `Debug` shows none.
pub(in crate::database) struct KeyRing {
    /// The keys that seal and open content.
    ciphers: SealingKeys,
    /// The lookup key, by which digests are keyed. It stays the same when the keys of the configuration change.
    lookup: [u8; 32],
    /// Whether all content of the database is sealed, so that a value that is not sealed is damaged.
    is_complete: bool,
}

impl fmt::Debug for KeyRing {
    /// Writes no key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyRing").field("is_complete", &self.is_complete).finish_non_exhaustive()
    }
}

impl KeyRing {
    /// Creates a key ring from the keys of the configuration and the lookup key of the database. `is_complete` says
    /// whether all content of the database is sealed.
    pub(super) fn new(keys: &EncryptionKeys, lookup: [u8; 32], is_complete: bool) -> Self {
        // The text names the purpose of the derived keys; its last word is the version of the encryption.
        Self { ciphers: SealingKeys::new(keys, "flowgate database content 1"), lookup, is_complete }
    }

    /// Returns whether all content of the database is sealed.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns the lookup key.
    pub(super) fn lookup_key(&self) -> [u8; 32] {
        self.lookup
    }

    /// Returns whether a stored value is sealed by the first key, the one that seals new values.
    pub(super) fn is_current(&self, stored: &str) -> bool {
        self.ciphers.is_current(stored)
    }

    /// Seals a text for its place: encrypts it with the first key of the ring, so that it can only be opened at this
    /// place.
    ///
    /// # Errors
    /// If the operating system returns no random bytes, or the text cannot be encrypted ([`NOT_SEALED`]).
    pub(super) fn seal(&self, text: &str, place: &ContentPlace) -> Result<StoredContent, DatabaseError> {
        let nonce = random::bytes().map_err(|_| DatabaseError::NoRandomBytes)?;
        self.ciphers.seal(text, &place.bound, nonce).map(StoredContent).ok_or(NOT_SEALED)
    }

    /// Opens a value that was sealed for this place. Returns a value that is not sealed unchanged, as long as the
    /// database may have such values.
    ///
    /// # Errors
    /// If the value was altered or moved, its key is not in the ring, or it is not sealed although all content is.
    pub(super) fn open(&self, stored: String, place: &ContentPlace) -> Result<String, DatabaseError> {
        let column = place.column.name();
        if sealed_parts(&stored).is_none() {
            return if self.is_complete { Err(DatabaseError::Unsealed(column)) } else { Ok(stored) };
        }
        self.ciphers.open(&stored, &place.bound).ok_or(DatabaseError::Unreadable(column))
    }

    /// Returns the form in which a digest of a client's content is stored: an HMAC of it under the lookup key, after
    /// the character [`KEYED`], so that nobody without the key can compare it with the digest of a guessed text. A
    /// digest that has this form already is returned unchanged: `rewrite` passes the digests that are stored.
    pub(super) fn keyed(&self, column: DigestColumn, client: &str, digest: &str) -> StoredDigest {
        if digest.starts_with(KEYED) {
            return StoredDigest(digest.to_owned());
        }
        let parts = [column.name().as_bytes(), client.as_bytes(), digest.as_bytes()];
        StoredDigest(format!("{KEYED}{}", random::hex(&mac(&self.lookup, &parts))))
    }
}

/// The error if a text cannot be sealed: it has hundreds of gigabytes, or the key ring is empty.
const NOT_SEALED: DatabaseError = DatabaseError::Bug("a value cannot be encrypted");

impl ContentCipher {
    /// Returns the form in which a content is stored in its place: sealed (encrypted for this place), if the database
    /// has a key.
    ///
    /// # Errors
    /// If the content cannot be sealed, for example because the operating system returns no random bytes.
    pub(in crate::database) fn seal(
        &self,
        content: &Content,
        place: &ContentPlace,
    ) -> Result<StoredContent, DatabaseError> {
        match self {
            Self::Plain => Ok(StoredContent(content.0.clone())),
            Self::Sealing(keys) => keys.seal(&content.0, place),
        }
    }

    /// Returns the content of a stored value.
    ///
    /// # Errors
    /// If the value was altered or moved to this place, its key is not among those of the configuration, or it is not
    /// sealed although the whole database was.
    pub(in crate::database) fn open(
        &self,
        stored: String,
        place: &ContentPlace,
    ) -> Result<String, DatabaseError> {
        match self {
            Self::Plain => Ok(stored),
            Self::Sealing(keys) => keys.open(stored, place),
        }
    }

    /// Takes the stored value out of column `index` of a row, and opens it.
    ///
    /// # Errors
    /// As for [`Self::open`], or if the column is not text.
    pub(in crate::database) fn open_column(
        &self,
        row: &mut SqlRow,
        index: usize,
        place: &ContentPlace,
    ) -> Result<String, DatabaseError> {
        self.open(row.text(index)?, place)
    }

    /// Returns the form in which a digest of a content of `client` is stored in `column`: keyed, if the database has a
    /// key. Equal digests of different clients or columns then have different forms.
    pub(in crate::database) fn lookup(
        &self,
        column: DigestColumn,
        client: &str,
        digest: &str,
    ) -> StoredDigest {
        match self {
            Self::Plain => StoredDigest(digest.to_owned()),
            Self::Sealing(keys) => keys.keyed(column, client, digest),
        }
    }

    /// Returns all forms in which a digest may have been stored, to look it up: the form of [`Self::lookup`] and, as
    /// long as not all content is sealed, also the digest without a key.
    pub(in crate::database) fn lookups(
        &self,
        column: DigestColumn,
        client: &str,
        digest: &str,
    ) -> Vec<StoredDigest> {
        // Without keys (`Plain`), this is the digest without a key already.
        let mut forms = vec![self.lookup(column, client, digest)];
        if matches!(self, Self::Sealing(keys) if !keys.is_complete) {
            forms.push(StoredDigest(digest.to_owned()));
        }
        forms
    }
}
