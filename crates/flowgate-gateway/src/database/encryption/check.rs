//! Checks, when a database is opened, that the configuration has the key with which the database is encrypted, and
//! begins to encrypt a database that has no key yet. [`Database`] calls it.
//!
//! The table `encryption` of an encrypted database has one row: the *lookup key*, by which digests are keyed, sealed by
//! a key of the configuration. Only the right key can open it, and only in the database for which it was sealed.

use std::sync::Arc;

use super::cipher::{ContentCipher, KeyRing, StoredContent};
use super::keys::EncryptionKeys;
use super::place::ContentPlace;
use super::sealing_keys::sealed_parts;
use crate::database::Database;
use crate::database::error::DatabaseError;
use crate::database::transaction::{Access, DynTransaction};
use crate::random;

/// The first word of the sealed row if all content of the database is sealed.
const COMPLETE: &str = "complete";
/// The first word of the sealed row if the database may have content from before there was a key.
const PARTIAL: &str = "partial";

/// The error if the row of the table `encryption` does not have the form that [`seal_lookup_key`] writes.
const DAMAGED: DatabaseError = DatabaseError::Damaged("the table `encryption` has no valid key");

impl Database {
    /// Sets the cipher of the database from the keys of the configuration. With `may_begin`, begins to encrypt an
    /// unencrypted database if there are keys; its earlier content stays unencrypted until `flowgate database encrypt`.
    ///
    /// # Errors
    /// If the database is encrypted and the key is missing or another one, if the database fails or is damaged, or if
    /// the system returned no random bytes.
    pub(in crate::database) async fn load_encryption(
        &mut self,
        keys: &EncryptionKeys,
        may_begin: bool,
    ) -> Result<(), DatabaseError> {
        let keys = keys.clone();
        let access = if may_begin { Access::Transaction } else { Access::Snapshot };
        let cipher = self.run(access, move |tx| {
            Box::pin(async move {
                let mut rows = tx.query("SELECT id FROM identity", &[]).await?;
                let damaged = DatabaseError::Damaged("the table `identity` has no row");
                let identity = rows.first_mut().ok_or(damaged)?.text(0)?;
                // The lookup key is sealed for this database, so that it cannot be moved to another one.
                let place = ContentPlace::lookup_key(&identity);
                // An encrypted database: its lookup key is opened.
                if let Some(sealed) = read_sealed(tx).await? {
                    return open_lookup_key(sealed, &keys, &place).map(ContentCipher::Sealing);
                }
                if keys.is_empty() || !may_begin {
                    return Ok(ContentCipher::Plain);
                }
                // Begins to encrypt with a new lookup key. Everything is sealed only if there is no content yet.
                let lookup = random::bytes().map_err(|_| DatabaseError::NoRandomBytes)?;
                let ring = KeyRing::new(&keys, lookup, is_empty(tx).await?);
                let sealed = seal_lookup_key(&ring, ring.is_complete(), &place)?;
                let sql = "INSERT INTO encryption (one, sealed) VALUES (1, ?1) ON CONFLICT DO NOTHING";
                tx.execute(sql, &[(&sealed).into()]).await?;
                // Another gateway may have begun at the same time: its lookup key then counts, and not the new one.
                let sealed = read_sealed(tx).await?.ok_or(DAMAGED)?;
                open_lookup_key(sealed, &keys, &place).map(ContentCipher::Sealing)
            })
        });
        self.cipher = Arc::new(cipher.await?);
        Ok(())
    }

    /// Returns whether the database has a key, but may still have content that is not encrypted.
    pub(crate) fn is_partly_encrypted(&self) -> bool {
        matches!(&*self.cipher, ContentCipher::Sealing(ring) if !ring.is_complete())
    }

    /// Records that all content of the database is sealed (encrypted) by the key that seals now. Does nothing without a
    /// key.
    pub(super) async fn complete_encryption(&self) -> Result<(), DatabaseError> {
        let (cipher, identity) = (Arc::clone(&self.cipher), self.identity.clone());
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                let ContentCipher::Sealing(ring) = &*cipher else { return Ok(()) };
                // `true`: the stored key then says that all content is sealed.
                let sealed = seal_lookup_key(ring, true, &ContentPlace::lookup_key(&identity))?;
                let sql = "UPDATE encryption SET sealed = ?1 WHERE one = 1";
                tx.execute(sql, &[(&sealed).into()]).await.map(drop)
            })
        })
        .await
    }
}

/// Returns the sealed (encrypted) lookup key, by which the digests in the database are keyed; `None` if the database is
/// not encrypted.
async fn read_sealed(tx: &mut DynTransaction<'_>) -> Result<Option<String>, DatabaseError> {
    let mut rows = tx.query("SELECT sealed FROM encryption WHERE one = 1", &[]).await?;
    rows.first_mut().map(|row| row.text(0)).transpose()
}

/// Returns whether the database has no content yet, sealed (encrypted) or not.
///
/// # Errors
/// If content is sealed, although the row of the table `encryption` is missing. Someone has removed the row, and the
/// database must not pass for one that was never encrypted.
async fn is_empty(tx: &mut DynTransaction<'_>) -> Result<bool, DatabaseError> {
    // The tables with content, and a column of each that is sealed. A sealed value begins with `fg1:`. The table
    // `turns` is left out: a turn has a row in `conversations`, so a database without conversations has no turns.
    // Sealed turns of a conversation whose key is not sealed yet are not noticed here.
    let columns = [
        ("conversations", "key"),
        ("tenants", "record"),
        ("seen", "letters"),
        ("questions", "content"),
        ("lasting_grants", "content"),
    ];
    for (table, column) in columns {
        let sql = format!("SELECT 1 FROM {table} WHERE {column} LIKE 'fg1:%' LIMIT 1");
        if !tx.query(&sql, &[]).await?.is_empty() {
            return Err(DatabaseError::Damaged(
                "content is encrypted, but the table `encryption` has no row",
            ));
        }
    }
    for (table, _) in columns {
        if !tx.query(&format!("SELECT 1 FROM {table} LIMIT 1"), &[]).await?.is_empty() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Seals (encrypts) the lookup key, by which digests are keyed, together with the statement whether all content of the
/// database is sealed.
fn seal_lookup_key(
    ring: &KeyRing,
    is_complete: bool,
    place: &ContentPlace,
) -> Result<StoredContent, DatabaseError> {
    let state = if is_complete { COMPLETE } else { PARTIAL };
    ring.seal(&format!("{state} {}", random::hex(&ring.lookup_key())), place)
}

/// Opens (decrypts) the sealed lookup key, by which digests are keyed, and returns the key ring of the database.
///
/// # Errors
/// If the key that sealed it is not among `keys`, or the row was altered or is from another database.
fn open_lookup_key(
    sealed: String,
    keys: &EncryptionKeys,
    place: &ContentPlace,
) -> Result<KeyRing, DatabaseError> {
    let (id, _) = sealed_parts(&sealed).ok_or(DAMAGED)?;
    // The id comes from the database; another text must not get into messages.
    let id = id.chars().filter(char::is_ascii_hexdigit).take(16).collect::<String>();
    if keys.is_empty() {
        return Err(DatabaseError::EncryptionKeyMissing { id });
    }
    if !keys.iter().any(|key| key.id() == id) {
        return Err(DatabaseError::EncryptionKeyOther { id, given: keys.ids() });
    }
    // A ring only for opening this value, which needs no lookup key. `true`: the value must be sealed.
    let opened = KeyRing::new(keys, [0; 32], true).open(sealed, place)?;
    // The opened text is `STATE KEY`, where the state says whether all content of the database is sealed.
    let (state, lookup) = opened.split_once(' ').ok_or(DAMAGED)?;
    let lookup = random::from_hex(lookup).ok_or(DAMAGED)?;
    match state {
        COMPLETE => Ok(KeyRing::new(keys, lookup, true)),
        PARTIAL => Ok(KeyRing::new(keys, lookup, false)),
        _ => Err(DAMAGED),
    }
}
