//! Encrypts the content that a database stored without a key, or with an earlier key. The command `flowgate database
//! encrypt` calls [`encrypt_stored_content`]. A run decrypts every encrypted value, so it also finds altered ones.
//!
//! A batch of rows is one transaction. A value is replaced only if it has not changed since it was read, because
//! gateways can use a shared database during the run. If a run is interrupted, the next one continues it.

use std::sync::Arc;

use super::cipher::{ContentCipher, KeyRing, StoredContent, StoredDigest};
use super::place::{ContentPlace, DigestColumn};
use super::sealing_keys::sealed_parts;
use crate::config::GatewayConfig;
use crate::database::error::DatabaseError;
use crate::database::transaction::{Access, DynTransaction, SqlColumn, SqlRow};
use crate::database::{Database, DatabaseAddress};

/// The most rows of one transaction.
const BATCH: i64 = 32;

/// How many rows a run has read and encrypted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EncryptionReport {
    /// The rows that were read.
    pub rows: u64,
    /// The rows of which a value was encrypted.
    pub encrypted: u64,
    /// Whether the run was not interrupted: everything is encrypted then.
    pub is_complete: bool,
}

/// A table whose rows are encrypted.
#[derive(Debug, Clone, Copy)]
enum ContentTable {
    Conversations,
    Turns,
    Tenants,
    Shown,
    Questions,
    Grants,
}

impl ContentTable {
    const ALL: [Self; 6] =
        [Self::Conversations, Self::Turns, Self::Tenants, Self::Shown, Self::Questions, Self::Grants];

    /// Returns the name of the table in the database.
    fn name(self) -> &'static str {
        match self {
            Self::Conversations => "conversations",
            Self::Turns => "turns",
            Self::Tenants => "tenants",
            Self::Shown => "seen",
            Self::Questions => "questions",
            Self::Grants => "lasting_grants",
        }
    }

    /// Returns the statement that reads the rows after a [`RowCursor`]. In it, `?1` is the text of the cursor, `?2` and
    /// `?3` are its numbers, `?4` is 1 if no row was read yet, and `?5` is the greatest number of rows to return. The
    /// first three columns are the cursor of the row. A table whose key consists of numbers needs no `?4`: before the
    /// first row, the cursor has the number -1.
    fn select(self) -> &'static str {
        match self {
            Self::Conversations => {
                "SELECT '', id, 0, client, name, key FROM conversations WHERE id > ?2 ORDER BY id LIMIT ?5"
            }
            Self::Turns => {
                "SELECT '', conversation, number, client, name, inputs, turns.prefixes \
                 FROM turns JOIN conversations ON conversations.id = turns.conversation \
                 WHERE conversation > ?2 OR (conversation = ?2 AND number > ?3) ORDER BY conversation, number LIMIT ?5"
            }
            Self::Tenants => {
                "SELECT tenant, 0, 0, record FROM tenants WHERE tenant > ?1 OR ?4 = 1 ORDER BY tenant LIMIT ?5"
            }
            Self::Shown => {
                "SELECT client, number, 0, source, letters, label FROM seen \
                 WHERE client > ?1 OR (client = ?1 AND number > ?2) OR ?4 = 1 ORDER BY client, number LIMIT ?5"
            }
            Self::Questions => {
                "SELECT id, 0, 0, client, name, tenant, digest, content FROM questions \
                 WHERE id > ?1 OR ?4 = 1 ORDER BY id LIMIT ?5"
            }
            Self::Grants => {
                "SELECT id, 0, 0, client, tenant, content, matching FROM lasting_grants \
                 WHERE id > ?1 OR ?4 = 1 ORDER BY id LIMIT ?5"
            }
        }
    }
}

/// The key of the last row that was read, as a text and two numbers. Values that the table's key does not have are
/// empty or 0 ([`ContentTable::select`]).
#[derive(Debug, Clone)]
struct RowCursor {
    text: String,
    numbers: (i64, i64),
    /// Whether no row was read yet.
    is_first: bool,
}

/// Encrypts the values of one row, by the method for its table.
struct Rewriter<'r> {
    ring: &'r KeyRing,
    /// Whether values that are not encrypted are accepted although all should be.
    accepts_unsealed: bool,
}

/// Encrypts all content of the database of this configuration with the first key of the configuration. Calls `progress`
/// with the number of processed rows and of all rows; if it returns false, the run ends.
///
/// With `accepts_unsealed`, also accepts unencrypted values in a database in which everything was encrypted before.
/// Without it, such a value is an error. Returns `None` if the configuration has no keys.
///
/// # Errors
/// If the SQLite file is open in a gateway (a PostgreSQL database may be in use), the database cannot be opened, the
/// keys are not those of the database, or a value was altered.
pub fn encrypt_stored_content(
    config: &GatewayConfig,
    accepts_unsealed: bool,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<Option<EncryptionReport>, DatabaseError> {
    let store = &config.store;
    if store.encryption.is_empty() {
        return Ok(None);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(DatabaseError::Runtime)?.block_on(async {
        let database = Database::open_with_keys(&store.address, &store.encryption).await?;
        let is_file = matches!(store.address, DatabaseAddress::File(_));
        let work = async |database: &Database| {
            database.encrypt_all(accepts_unsealed, is_file, progress).await.map(Some)
        };
        database.close_after(work).await
    })
}

impl Database {
    /// Encrypts all content by the first key, and records that everything is encrypted. Repeats until a pass finds
    /// nothing to encrypt, since gateways may store further rows meanwhile. `accepts_unsealed` and `progress` are those
    /// of [`encrypt_stored_content`]. `is_file` says whether the database is a SQLite file, whose free pages have to be
    /// overwritten.
    pub(super) async fn encrypt_all(
        &self,
        accepts_unsealed: bool,
        is_file: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<EncryptionReport, DatabaseError> {
        let mut report = EncryptionReport::default();
        loop {
            let pass = self.encrypt_pass(accepts_unsealed, progress).await?;
            report.rows = pass.rows;
            report.encrypted += pass.encrypted;
            // `progress` has ended the run.
            if !pass.is_complete {
                return Ok(report);
            }
            if pass.encrypted == 0 {
                break;
            }
        }
        report.is_complete = true;
        // Even if this run has encrypted nothing: an earlier one may have ended before it overwrote the free pages.
        if is_file {
            self.overwrite_free_pages().await?;
        }
        self.complete_encryption().await?;
        Ok(report)
    }

    /// Reads all rows once, and encrypts the values that the first key has not sealed. `accepts_unsealed` and
    /// `progress` are those of [`encrypt_stored_content`]. The report is not complete if `progress` has ended the run.
    async fn encrypt_pass(
        &self,
        accepts_unsealed: bool,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<EncryptionReport, DatabaseError> {
        let total = self.count_rows().await?;
        let mut report = EncryptionReport::default();
        for table in ContentTable::ALL {
            // Before the first row: no number is negative.
            let mut cursor = RowCursor { text: String::new(), numbers: (-1, -1), is_first: true };
            loop {
                let cipher = Arc::clone(&self.cipher);
                let batch = self.run(Access::Transaction, move |tx| {
                    Box::pin(async move {
                        // Without keys there is nothing to encrypt.
                        let ContentCipher::Sealing(ring) = &*cipher else { return Ok(None) };
                        encrypt_batch(tx, table, cursor, &Rewriter { ring, accepts_unsealed }).await
                    })
                });
                let Some((last, rows, encrypted)) = batch.await? else { break };
                cursor = last;
                report.rows += rows;
                report.encrypted += encrypted;
                if !progress(report.rows, total) {
                    return Ok(report);
                }
            }
        }
        report.is_complete = true;
        Ok(report)
    }

    /// Returns the number of rows of all tables with content.
    async fn count_rows(&self) -> Result<u64, DatabaseError> {
        self.run(Access::Query, |tx| {
            Box::pin(async move {
                let mut total = 0;
                for table in ContentTable::ALL {
                    let sql = format!("SELECT COUNT(*) FROM {}", table.name());
                    let rows = tx.query(&sql, &[]).await?;
                    total += rows.first().map_or(Ok(0), |row| row.integer(0))?;
                }
                Ok(u64::try_from(total).unwrap_or(0))
            })
        })
        .await
    }

    /// Rewrites the SQLite file without its free pages, which still contain deleted and replaced values.
    async fn overwrite_free_pages(&self) -> Result<(), DatabaseError> {
        let run_unlimited = |sql: &'static str| {
            // Without the time limit of other operations, since a large file takes long.
            self.backend.run(
                Access::Statement,
                Box::new(move |tx| Box::pin(async move { tx.query(sql, &[]).await.map(drop) })),
            )
        };
        run_unlimited("VACUUM").await?;
        // Empties the write-ahead log, which still has old pages.
        run_unlimited("PRAGMA wal_checkpoint(TRUNCATE)").await
    }
}

/// Encrypts the next rows of a table after `cursor`. Returns the cursor after them, their number, and the number of
/// those that were encrypted; `None` if there are no more.
async fn encrypt_batch(
    tx: &mut DynTransaction<'_>,
    table: ContentTable,
    cursor: RowCursor,
    rewriter: &Rewriter<'_>,
) -> Result<Option<(RowCursor, u64, u64)>, DatabaseError> {
    let RowCursor { text, numbers, is_first } = cursor;
    let values =
        [(&text).into(), numbers.0.into(), numbers.1.into(), i64::from(is_first).into(), BATCH.into()];
    let mut rows = tx.query(table.select(), &values).await?;
    let Some(last) = rows.last_mut() else { return Ok(None) };
    // The first three columns of a row are its key.
    let text = last.text(0)?;
    let cursor =
        RowCursor { text: text.clone(), numbers: (last.integer(1)?, last.integer(2)?), is_first: false };
    // `last.text(0)` has taken the text out of the row, which is still to be encrypted.
    if let Some(first) = last.0.first_mut() {
        *first = SqlColumn::Text(text);
    }
    let mut encrypted = 0;
    for row in &mut rows {
        encrypted += u64::from(match table {
            ContentTable::Conversations => rewriter.conversation(tx, row).await?,
            ContentTable::Turns => rewriter.turn(tx, row).await?,
            ContentTable::Tenants => rewriter.tenant(tx, row).await?,
            ContentTable::Shown => rewriter.shown(tx, row).await?,
            ContentTable::Questions => rewriter.question(tx, row).await?,
            ContentTable::Grants => rewriter.grant(tx, row).await?,
        });
    }
    Ok(Some((cursor, u64::try_from(rows.len()).unwrap_or(u64::MAX), encrypted)))
}

impl Rewriter<'_> {
    /// Seals (encrypts) a stored value with the first key; returns `None` if that key has sealed it already. Every
    /// sealed value is opened (decrypted), so that an altered one is noticed.
    ///
    /// # Errors
    /// If the value was altered or moved, or is not sealed although all values should be.
    fn value(&self, stored: &str, place: &ContentPlace) -> Result<Option<StoredContent>, DatabaseError> {
        let is_accepted = self.accepts_unsealed && sealed_parts(stored).is_none();
        let text = if is_accepted { stored.to_owned() } else { self.ring.open(stored.to_owned(), place)? };
        if self.ring.is_current(stored) { Ok(None) } else { self.ring.seal(&text, place).map(Some) }
    }

    /// Seals the key of a conversation with the first encryption key, unless that key has sealed it already. This
    /// method and the following ones, one for each table, return whether they have written the row.
    async fn conversation(
        &self,
        tx: &mut DynTransaction<'_>,
        row: &mut SqlRow,
    ) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Columns 0 and 2 are constants, which only the cursor needs.
        let (id, client, name, old) = (row.integer(1)?, row.text(3)?, row.text(4)?, row.text(5)?);
        let Some(new) = self.value(&old, &ContentPlace::conversation_key(&client, &name))? else {
            return Ok(false);
        };
        let sql = "UPDATE conversations SET key = ?1 WHERE id = ?2 AND key = ?3";
        Ok(tx.execute(sql, &[(&new).into(), id.into(), (&old).into()]).await? > 0)
    }

    /// Seals (encrypts) the inputs of a turn, and replaces the digests of chat prefixes that were stored with it by
    /// their keyed form. Returns whether this method has written the row of the turn. Inputs that a gateway has
    /// replaced meanwhile, and a deleted turn, stay as they are. The column `prefixes` needs no such check, since a
    /// gateway never changes it after it has inserted the turn.
    async fn turn(&self, tx: &mut DynTransaction<'_>, row: &mut SqlRow) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Column 0 is a constant, which only the cursor needs.
        let (id, number) = (row.integer(1)?, row.integer(2)?);
        let (client, name, old, prefixes) = (row.text(3)?, row.text(4)?, row.text(5)?, row.text(6)?);
        // `None` if the inputs are sealed with the first key already.
        let new = self.value(&old, &ContentPlace::turn((&client, &name), id, number))?;
        // The digests are stored with spaces between them. An encrypted database stores them keyed.
        let prefixes: Vec<&str> = prefixes.split(' ').filter(|prefix| !prefix.is_empty()).collect();
        let keyed: Vec<StoredDigest> = prefixes
            .iter()
            .map(|prefix| self.ring.keyed(DigestColumn::ChatPrefix, &client, prefix))
            .collect();
        // The digests that are not stored in their keyed form yet, with that form.
        let changed: Vec<(&&str, &StoredDigest)> =
            prefixes.iter().zip(&keyed).filter(|(prefix, keyed)| **prefix != keyed.as_str()).collect();
        if new.is_none() && changed.is_empty() {
            return Ok(false);
        }
        // Locks the conversation: it is neither extended nor deleted until the end of this transaction.
        tx.execute("UPDATE conversations SET used = used WHERE id = ?1", &[id.into()]).await?;
        // Whether a row of the turn was written.
        let mut is_changed = false;
        if let Some(new) = &new {
            let sql = "UPDATE turns SET inputs = ?1 WHERE conversation = ?2 AND number = ?3 AND inputs = ?4";
            let values = [new.into(), id.into(), number.into(), (&old).into()];
            is_changed |= tx.execute(sql, &values).await? > 0;
        }
        for (old, new) in &changed {
            let sql =
                "UPDATE prefixes SET prefix = ?1 WHERE client = ?2 AND prefix = ?3 AND conversation = ?4";
            tx.execute(sql, &[(*new).into(), (&client).into(), (**old).into(), id.into()]).await?;
        }
        if !changed.is_empty() {
            let joined = StoredDigest::joined(&keyed);
            let sql = "UPDATE turns SET prefixes = ?1 WHERE conversation = ?2 AND number = ?3";
            is_changed |= tx.execute(sql, &[(&joined).into(), id.into(), number.into()]).await? > 0;
        }
        Ok(is_changed)
    }

    /// Seals (encrypts) the record of the labels of a tenant's stores; an empty text means that the tenant has no
    /// record. Returns whether this method has written the record.
    async fn tenant(&self, tx: &mut DynTransaction<'_>, row: &mut SqlRow) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Columns 1 and 2 are constants, which only the cursor needs.
        let (tenant, old) = (row.text(0)?, row.text(3)?);
        if old.is_empty() {
            return Ok(false);
        }
        let Some(new) = self.value(&old, &ContentPlace::tenant(&tenant))? else { return Ok(false) };
        let sql = "UPDATE tenants SET record = ?1 WHERE tenant = ?2 AND record = ?3";
        Ok(tx.execute(sql, &[(&new).into(), (&tenant).into(), (&old).into()]).await? > 0)
    }

    /// Seals (encrypts) a text that a client was shown, and its label. Returns whether this method has written one of
    /// them. A value that a gateway has changed meanwhile stays as it is.
    async fn shown(&self, tx: &mut DynTransaction<'_>, row: &mut SqlRow) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Column 2 is a constant, which only the cursor needs.
        let (client, number, source) = (row.text(0)?, row.integer(1)?, row.text(3)?);
        let (letters, label) = (row.text(4)?, row.text(5)?);
        let (text_place, label_place) = ContentPlace::shown(&client, number, &source);
        let mut is_changed = false;
        if let Some(new) = self.value(&letters, &text_place)? {
            let sql = "UPDATE seen SET letters = ?1 WHERE client = ?2 AND number = ?3 AND letters = ?4";
            let values = [(&new).into(), (&client).into(), number.into(), (&letters).into()];
            is_changed |= tx.execute(sql, &values).await? > 0;
        }
        if let Some(new) = self.value(&label, &label_place)? {
            let sql = "UPDATE seen SET label = ?1 WHERE client = ?2 AND number = ?3 AND label = ?4";
            let values = [(&new).into(), (&client).into(), number.into(), (&label).into()];
            is_changed |= tx.execute(sql, &values).await? > 0;
        }
        Ok(is_changed)
    }

    /// Seals (encrypts) the content of a question. Returns whether this method has written the content.
    async fn question(&self, tx: &mut DynTransaction<'_>, row: &mut SqlRow) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Columns 1 and 2 are constants, which only the cursor needs.
        let (id, client, name) = (row.text(0)?, row.text(3)?, row.text(4)?);
        let (tenant, digest, old) = (row.text(5)?, row.text(6)?, row.text(7)?);
        let place = ContentPlace::question(&id, (&client, &name, &tenant), &digest);
        let Some(new) = self.value(&old, &place)? else { return Ok(false) };
        let sql = "UPDATE questions SET content = ?1 WHERE id = ?2 AND content = ?3";
        Ok(tx.execute(sql, &[(&new).into(), (&id).into(), (&old).into()]).await? > 0)
    }

    /// Seals (encrypts) the content of a lasting grant, and keys the digest by which the grant is found. Returns
    /// whether this method has written one of them.
    async fn grant(&self, tx: &mut DynTransaction<'_>, row: &mut SqlRow) -> Result<bool, DatabaseError> {
        // The columns of `ContentTable::select`. Columns 1 and 2 are constants, which only the cursor needs.
        let (id, client, tenant) = (row.text(0)?, row.text(3)?, row.text(4)?);
        let (old, matching) = (row.text(5)?, row.text(6)?);
        let mut is_changed = false;
        if let Some(new) = self.value(&old, &ContentPlace::grant(&id, &client, &tenant))? {
            let sql = "UPDATE lasting_grants SET content = ?1 WHERE id = ?2 AND content = ?3";
            is_changed |= tx.execute(sql, &[(&new).into(), (&id).into(), (&old).into()]).await? > 0;
        }
        let new = self.ring.keyed(DigestColumn::GrantMatching, &client, &matching);
        if new.as_str() != matching {
            let sql = "UPDATE lasting_grants SET matching = ?1 WHERE id = ?2 AND matching = ?3";
            is_changed |= tx.execute(sql, &[(&new).into(), (&id).into(), (&matching).into()]).await? > 0;
        }
        Ok(is_changed)
    }
}
