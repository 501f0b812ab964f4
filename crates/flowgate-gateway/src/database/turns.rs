//! Stores turns, and for each tenant a record of the labels of its stores.
//!
//! A turn that changes only its conversation is one operation ([`Database::persist_turn`]). A turn that also uses or
//! voids approvals, changes external state or shows its client new texts is a turn *with effects*. It depends on what
//! other turns of its tenant have written before: [`Database::begin_turn`] returns the tenant's record, and no other
//! turn of this tenant changes the record until [`Database::finish_turn`]. `chat::conversations` calls all three.
//! `chat::turn_observer` commits a call that the provider runs during a turn ([`Database::commit_run`]).

#[cfg(test)]
pub(super) mod tests;

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::cache::DatabaseCache;
use super::encryption::{Content, ContentCipher, ContentPlace, DigestColumn, StoredContent, StoredDigest};
use super::error::DatabaseError;
use super::log_heads::{NewerLogHead, update_log_head};
use super::questions::{note_removed, use_approval, void_question};
use super::quotations::{NewShownTexts, ShownText, persist_shown_texts};
use super::transaction::{Access, DynTransaction, Operation, SqlValue, TurnTransaction};
use super::{Database, with_timeout};

/// How many carried turns one statement replaces: a conversation may have thousands of turns.
const CARRIED_CHUNK: usize = 64;

/// A turn to persist.
#[derive(Debug, Clone)]
pub(crate) struct PersistedTurn {
    pub(crate) client: String,
    pub(crate) name: String,
    /// The number of the conversation.
    pub(crate) conversation: i64,
    /// Whether the conversation's time of last use is out of date.
    pub(crate) is_stale: bool,
    /// The number of turns persisted before.
    pub(crate) turns: i64,
    /// The bytes of those turns.
    pub(crate) bytes: i64,
    /// The inputs of the turn in their stored form.
    pub(crate) inputs: Content,
    /// The digests of the beginnings of the chat (prefixes) by which the conversation is found from now on.
    pub(crate) prefixes: Vec<String>,
    /// The prefixes by which the conversation is no longer found.
    pub(crate) forgotten: Vec<String>,
    /// The longest of all prefixes by which the conversation is found.
    pub(crate) longest: Option<String>,
    /// The earlier turns in the form that they have under another policy, if the conversation was carried over to it
    /// and this is not persisted yet.
    pub(crate) carried: Option<CarriedTurns>,
}

/// All turns of a conversation in the form that they have under another policy. They replace the persisted turns.
#[derive(Debug, Clone)]
pub(crate) struct CarriedTurns {
    /// The digest of the client's settings, which include the other policy.
    pub(crate) config_fingerprint: String,
    /// The new key with which the conversation computes digests.
    pub(crate) key: Content,
    /// The inputs of each turn in their stored form.
    pub(crate) inputs: Vec<Content>,
}

impl PersistedTurn {
    /// Returns the bytes of all turns, including this one.
    fn total_bytes(&self) -> i64 {
        self.bytes.saturating_add(i64::try_from(self.inputs.len()).unwrap_or(i64::MAX))
    }
}

/// The approvals that a turn changes, by the ids of their questions.
#[derive(Debug, Clone, Default)]
pub(crate) struct TurnApprovals {
    /// The approvals that the turn uses.
    pub(crate) used: Vec<String>,
    /// The approvals whose calls did not run.
    pub(crate) void: Vec<String>,
    /// The withdrawn grants that the conversation does not contain any more.
    pub(crate) removed: Vec<String>,
}

/// A turn whose transaction has begun.
pub(crate) struct BegunTurn {
    transaction: Box<dyn TurnTransaction>,
    tenant: String,
    /// The record of the labels of the tenant's stores; `None` if the tenant has none.
    pub(crate) record: Option<String>,
    /// Whether the database has this record.
    pub(crate) is_persisted: bool,
}

impl fmt::Debug for BegunTurn {
    /// Writes the tenant only, since the record is content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BegunTurn").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}

impl Database {
    /// Persists a turn without effects: one that changes neither approvals, nor the labels of stores, nor the texts
    /// that its client was shown.
    ///
    /// # Errors
    /// [`DatabaseError::Overtaken`] if another turn of the conversation was persisted since the conversation was
    /// opened, the lease was lost, or the conversation was deleted; also if the database fails.
    pub(crate) async fn persist_turn(&self, turn: PersistedTurn) -> Result<(), DatabaseError> {
        let write = self.turn_write(turn);
        let log = write.log.clone();
        self.run(Access::Transaction, move |tx| Box::pin(async move { write.persist(tx).await })).await?;
        // Notes that the database now has this head of the audit log.
        self.set_recorded(log.as_ref());
        Ok(())
    }

    /// Begins the transaction of a turn with effects: a turn that uses or voids `approvals`, changes the labels of the
    /// tenant's stores or shows its client new texts. Returns the record of these labels, which no other turn changes
    /// until [`Self::finish_turn`].
    ///
    /// * PostgreSQL runs the statements at once: they use the approvals and lock the tenant's row, which is the record.
    /// * SQLite, whose only writer must not wait, runs them when the turn is finished, in the same transaction. Until
    ///   then a lock in this process protects the tenant, so the record is read separately.
    ///
    /// # Errors
    /// [`DatabaseError::Withdrawn`] if an approval was used, voided or has expired; with SQLite, `finish_turn` returns
    /// it.
    pub(crate) async fn begin_turn(
        &self,
        tenant: &str,
        approvals: TurnApprovals,
    ) -> Result<BegunTurn, DatabaseError> {
        let (is_shared, name, cipher) = (self.is_shared, tenant.to_owned(), Arc::clone(&self.cipher));
        let (record_sender, mut locked_record) = oneshot::channel();
        let statements: Operation = Box::new(move |tx| {
            Box::pin(async move {
                for id in &approvals.used {
                    use_approval(tx, id).await?;
                }
                for id in &approvals.void {
                    void_question(tx, id).await?;
                }
                for id in &approvals.removed {
                    note_removed(tx, id).await?;
                }
                if is_shared {
                    // Fails only if the caller no longer waits.
                    let _ = record_sender.send(lock_tenant(tx, &name, &cipher).await?);
                }
                Ok(())
            })
        });
        with_timeout(async {
            let transaction = self.backend.begin_turn(tenant, statements).await?;
            let record = match self.is_shared {
                // PostgreSQL has run the statements, so the record has been sent.
                true => locked_record.try_recv().map_err(|_| DatabaseError::Closed)?,
                false => self.tenant(tenant).await?,
            };
            if !self.is_shared {
                self.cache.add_tenant(tenant, record.clone());
            }
            let is_persisted = self.is_shared || self.cache.is_tenant_persisted(tenant);
            Ok(BegunTurn { transaction, tenant: tenant.to_owned(), record, is_persisted })
        })
        .await
    }

    /// Commits `begun`, the transaction of a call that runs before its turn is stored. `record` is the new record of
    /// the labels of the tenant's stores, if the record has changed.
    ///
    /// # Errors
    /// As for [`Self::begin_turn`].
    pub(crate) async fn commit_run(
        &self,
        begun: BegunTurn,
        record: Option<String>,
    ) -> Result<(), DatabaseError> {
        let BegunTurn { transaction, tenant, .. } = begun;
        // The record to cache; the records of a shared database are not cached.
        let new_record = record.clone().filter(|_| !self.is_shared).map(|record| (tenant.clone(), record));
        if let Some((tenant, record)) = &new_record {
            // The cache uses the new record even if the outcome of the write remains unknown: its labels are at least
            // as high as the earlier ones.
            self.cache.set_unconfirmed_tenant(tenant, record.clone());
        }
        let cipher = Arc::clone(&self.cipher);
        let statements: Operation = Box::new(move |tx| {
            Box::pin(async move {
                match record {
                    Some(record) => persist_tenant(tx, &tenant, record, &cipher).await,
                    None => Ok(()),
                }
            })
        });
        with_timeout(transaction.finish(statements)).await?;
        if let Some((tenant, record)) = &new_record {
            self.cache.confirm_tenant(tenant, record);
        }
        Ok(())
    }

    /// Persists a turn with effects (see [`Self::begin_turn`]), and commits `begun`, its transaction. `record` is the
    /// new record of the labels of its tenant's stores, if the record has changed; `shown` are the texts that its
    /// client was shown, if there are any. With `shown`, returns the texts that other gateways have persisted in the
    /// meantime, and the number that the next text will have; `None` without `shown`.
    ///
    /// # Errors
    /// As for [`Self::persist_turn`] and [`Self::begin_turn`].
    pub(crate) async fn finish_turn(
        &self,
        begun: BegunTurn,
        record: Option<String>,
        turn: PersistedTurn,
        shown: Option<NewShownTexts>,
    ) -> Result<Option<(Vec<ShownText>, i64)>, DatabaseError> {
        let BegunTurn { transaction, tenant, .. } = begun;
        // The record to cache; the records of a shared database are not cached.
        let new_record = record.clone().filter(|_| !self.is_shared).map(|record| (tenant.clone(), record));
        if let Some((tenant, record)) = &new_record {
            // The cache uses the new record even if the outcome of the write remains unknown: its labels are at least
            // as high as the earlier ones.
            self.cache.set_unconfirmed_tenant(tenant, record.clone());
        }
        let (write, cipher) = (self.turn_write(turn), Arc::clone(&self.cipher));
        let log = write.log.clone();
        let (others_sender, mut others_texts) = oneshot::channel();
        let statements: Operation = Box::new(move |tx| {
            Box::pin(async move {
                if let Some(record) = record {
                    persist_tenant(tx, &tenant, record, &cipher).await?;
                }
                write.persist(tx).await?;
                // Fails only if the caller no longer waits.
                let _ = others_sender.send(match &shown {
                    Some(shown) => Some(persist_shown_texts(tx, shown, &cipher).await?),
                    None => None,
                });
                Ok(())
            })
        });
        with_timeout(transaction.finish(statements)).await?;
        if let Some((tenant, record)) = &new_record {
            self.cache.confirm_tenant(tenant, record);
        }
        self.set_recorded(log.as_ref());
        others_texts.try_recv().map_err(|_| DatabaseError::Closed)
    }

    /// Collects everything that one transaction persists with a turn: the turn, the end of the lease of this gateway,
    /// and the newest head of the audit log.
    fn turn_write(&self, turn: PersistedTurn) -> TurnWrite {
        let holder = self.is_shared.then(|| self.holder.clone());
        let (cache, cipher) = (Arc::clone(&self.cache), Arc::clone(&self.cipher));
        TurnWrite { turn, holder, log: self.newer_head(), cache, cipher }
    }

    /// Returns the record of the labels of a tenant's stores from the cache, if the database is known to have it. The
    /// outer `None` means that this is not known, the inner one that the tenant has no record.
    pub(crate) fn persisted_tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.cached_tenant(tenant).filter(|_| self.cache.is_tenant_persisted(tenant))
    }

    /// Returns the record of the labels of a tenant's stores from the cache, unless other gateways may have changed it.
    /// The outer `None` means that the record is not known, the inner one that the tenant has none.
    fn cached_tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.cache.tenant(tenant).filter(|_| !self.is_shared)
    }

    /// Returns the record of the labels of a tenant's stores, from the cache if it is known there; `None` if the tenant
    /// has none, or only an empty one, which `lock_tenant` creates.
    pub(crate) async fn tenant(&self, tenant: &str) -> Result<Option<String>, DatabaseError> {
        if let Some(cached) = self.cached_tenant(tenant) {
            // `None` here: the cache knows that the tenant has no record.
            return Ok(cached);
        }
        let (tenant, cipher) = (tenant.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT record FROM tenants WHERE tenant = ?1";
                let mut rows = tx.query(sql, &[(&tenant).into()]).await?;
                let record = rows.first_mut().map(|row| row.text(0)).transpose()?;
                open_record(&tenant, record.unwrap_or_default(), &cipher)
            })
        })
        .await
    }
}

/// A turn, with everything that its transaction needs.
struct TurnWrite {
    turn: PersistedTurn,
    /// The holder of the lease, if other gateways use the database.
    holder: Option<String>,
    /// The head of the audit log, if it is newer than the one in the database.
    log: Option<NewerLogHead>,
    cache: Arc<DatabaseCache>,
    cipher: Arc<ContentCipher>,
}

impl TurnWrite {
    /// Persists the turn with its chat prefixes and the head of the audit log, and releases the lease. After the
    /// commit, caches the conversation by its longest prefix, if no other conversation has it.
    ///
    /// # Errors
    /// [`DatabaseError::Overtaken`] if another turn was persisted, the lease was lost or the conversation was deleted
    /// since the conversation was opened.
    async fn persist(self, tx: &mut DynTransaction<'_>) -> Result<(), DatabaseError> {
        let PersistedTurn { client, name, conversation, prefixes, carried, .. } = &self.turn;
        // The cache forgets the prefixes before the write: if the outcome of the write remains unknown, the cache must
        // not contradict the database.
        self.cache.forget_prefixes(client, name, prefixes);
        self.renew_use(tx).await?;
        if let Some(carried) = carried {
            carried.persist(tx, (client, name), *conversation, &self.cipher).await?;
        }
        let stored: Vec<StoredDigest> = prefixes
            .iter()
            .map(|prefix| self.cipher.lookup(DigestColumn::ChatPrefix, client, prefix))
            .collect();
        self.insert_turn(tx, &stored).await?;
        self.replace_prefixes(tx, &stored).await?;
        let may_cache = self.may_cache_chat(tx).await?;
        update_log_head(tx, self.log.as_ref()).await?;
        if may_cache {
            let Self { turn, cache, .. } = self;
            let PersistedTurn { client, name, prefixes, longest, .. } = turn;
            tx.on_commit(Box::new(move || {
                cache.set_chat(&client, &name, &longest.unwrap_or_default(), &prefixes);
            }));
        }
        Ok(())
    }

    /// Updates the conversation's time of last use, and releases the lease, if there is one.
    ///
    /// # Errors
    /// [`DatabaseError::Overtaken`] if the lease was lost or the conversation was deleted.
    async fn renew_use(&self, tx: &mut DynTransaction<'_>) -> Result<(), DatabaseError> {
        let conversation = self.turn.conversation;
        if let Some(holder) = &self.holder {
            // Every turn changes the row here, since it releases the lease. `{used}` keeps the stored time if that is
            // less than a minute old.
            let sql = "UPDATE conversations SET used = {used}, holder = '', held_until = 0 WHERE id = ?1 AND holder = ?2";
            if tx.execute(sql, &[conversation.into(), holder.into()]).await? != 1 {
                return Err(DatabaseError::Overtaken);
            }
        } else if self.turn.is_stale {
            // Without leases, the row is changed only if the stored time is out of date.
            let sql = "UPDATE conversations SET used = {now} WHERE id = ?1";
            tx.execute(sql, &[conversation.into()]).await?;
        }
        Ok(())
    }

    /// Inserts the row of the turn. `prefixes` are the new digests of beginnings of its chat, as they are stored.
    ///
    /// # Errors
    /// [`DatabaseError::Overtaken`] if the preceding turn is not persisted, if this turn is persisted already, or if
    /// the conversation was deleted.
    async fn insert_turn(
        &self,
        tx: &mut DynTransaction<'_>,
        prefixes: &[StoredDigest],
    ) -> Result<(), DatabaseError> {
        let PersistedTurn { client, name, turns, inputs, .. } = &self.turn;
        let (conversation, total) = (self.turn.conversation, self.turn.total_bytes());
        // The preceding turn must exist, and this one must not. A query of its own checks the first condition: SQLite
        // journals the pages that a statement changes if the statement may insert several rows, which takes time.
        let sql = "SELECT 1 FROM turns WHERE conversation = ?1 AND number = ?2 - 1";
        if *turns > 0 && tx.query(sql, &[conversation.into(), (*turns).into()]).await?.is_empty() {
            return Err(DatabaseError::Overtaken);
        }
        // The deletion of the conversation finds its prefixes by the column `prefixes`.
        let sql = "INSERT INTO turns (conversation, number, bytes, prefixes, inputs) \
                   VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT DO NOTHING";
        let prefixes = StoredDigest::joined(prefixes);
        let inputs = self.cipher.seal(inputs, &ContentPlace::turn((client, name), conversation, *turns))?;
        let values =
            [conversation.into(), (*turns).into(), total.into(), (&prefixes).into(), (&inputs).into()];
        match tx.execute(sql, &values).await {
            Ok(1) => Ok(()),
            // Another request has stored a turn of this number.
            Ok(_) => Err(DatabaseError::Overtaken),
            // The conversation was deleted.
            Err(error) if error.is_missing_reference() => Err(DatabaseError::Overtaken),
            Err(error) => Err(error),
        }
    }

    /// Deletes the prefixes (digests of beginnings of the chat) by which the conversation is no longer found, in every
    /// form in which they may have been stored, and inserts the new ones, `prefixes`, as they are stored now.
    async fn replace_prefixes(
        &self,
        tx: &mut DynTransaction<'_>,
        prefixes: &[StoredDigest],
    ) -> Result<(), DatabaseError> {
        let PersistedTurn { client, conversation, forgotten, .. } = &self.turn;
        for prefix in
            forgotten.iter().flat_map(|prefix| self.cipher.lookups(DigestColumn::ChatPrefix, client, prefix))
        {
            let sql = "DELETE FROM prefixes WHERE client = ?1 AND prefix = ?2 AND conversation = ?3";
            tx.execute(sql, &[client.into(), (&prefix).into(), (*conversation).into()]).await?;
        }
        for prefix in prefixes {
            let sql = "INSERT INTO prefixes (client, prefix, conversation) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            tx.execute(sql, &[client.into(), prefix.into(), (*conversation).into()]).await?;
        }
        Ok(())
    }

    /// Returns whether the cache may find the conversation by its longest prefix (the digest of a beginning of its
    /// chat): no other conversation of the client has that prefix in any stored form, and no other gateway uses the
    /// database. (With other gateways, the cache of chats is not used.)
    async fn may_cache_chat(&self, tx: &mut DynTransaction<'_>) -> Result<bool, DatabaseError> {
        let PersistedTurn { client, conversation, longest, .. } = &self.turn;
        // A turn has a holder only if other gateways use the database.
        let Some(longest) = longest.as_ref().filter(|_| self.holder.is_none()) else { return Ok(false) };
        let sql = "SELECT 1 FROM prefixes WHERE client = ?1 AND prefix = ?2 AND conversation <> ?3 LIMIT 1";
        for longest in self.cipher.lookups(DigestColumn::ChatPrefix, client, longest) {
            let values = [client.into(), (&longest).into(), (*conversation).into()];
            if !tx.query(sql, &values).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl CarriedTurns {
    /// Replaces the inputs of all persisted turns of the conversation with the number `conversation` by these inputs,
    /// in the form that they have under another policy. Also replaces the fingerprint and the key of the conversation.
    ///
    /// # Errors
    /// [`DatabaseError::Overtaken`] if one of the turns is not persisted, or the conversation was deleted.
    async fn persist(
        &self,
        tx: &mut DynTransaction<'_>,
        (client, name): (&str, &str),
        conversation: i64,
        cipher: &ContentCipher,
    ) -> Result<(), DatabaseError> {
        let sql = "UPDATE conversations SET basis = ?1, key = ?2 WHERE id = ?3";
        let key = cipher.seal(&self.key, &ContentPlace::conversation_key(client, name))?;
        let values = [(&self.config_fingerprint).into(), (&key).into(), conversation.into()];
        if tx.execute(sql, &values).await? != 1 {
            return Err(DatabaseError::Overtaken);
        }
        // Turns are numbered from 0.
        let (mut bytes, mut number): (i64, i64) = (0, 0);
        for chunk in self.inputs.chunks(CARRIED_CHUNK) {
            let mut sealed: Vec<StoredContent> = Vec::with_capacity(chunk.len());
            // `number` is here the number of the first turn of the chunk.
            for (inputs, turn) in chunk.iter().zip(number..) {
                sealed.push(cipher.seal(inputs, &ContentPlace::turn((client, name), conversation, turn))?);
            }
            // The statement receives a row for each turn: its number, the total of bytes up to it, and its inputs.
            let mut values = vec![conversation.into()];
            let mut rows = Vec::with_capacity(chunk.len());
            for (inputs, sealed) in chunk.iter().zip(&sealed) {
                // The column `bytes` of a turn is the total of all turns up to it.
                bytes = bytes.saturating_add(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
                let first = values.len();
                rows.push(format!("(?{}, ?{}, ?{})", first + 1, first + 2, first + 3));
                values.extend([SqlValue::from(number), bytes.into(), sealed.into()]);
                number += 1;
            }
            let sql = format!(
                "WITH carried(number, bytes, inputs) AS (VALUES {}) \
                 UPDATE turns SET bytes = carried.bytes, inputs = carried.inputs FROM carried \
                 WHERE turns.conversation = ?1 AND turns.number = carried.number",
                rows.join(", ")
            );
            if tx.execute(&sql, &values).await? != u64::try_from(chunk.len()).unwrap_or(u64::MAX) {
                return Err(DatabaseError::Overtaken);
            }
        }
        Ok(())
    }
}

/// Locks the record of the labels of a tenant's stores until the transaction ends, and returns it; `None` if the tenant
/// has none. The lock needs a row, so a tenant without one gets an empty record.
async fn lock_tenant(
    tx: &mut DynTransaction<'_>,
    tenant: &str,
    cipher: &ContentCipher,
) -> Result<Option<String>, DatabaseError> {
    // The change of `version` only serves to lock the row.
    let sql = "INSERT INTO tenants (tenant, version, record) VALUES (?1, 1, '') \
               ON CONFLICT (tenant) DO UPDATE SET version = tenants.version + 1 RETURNING record";
    let mut rows = tx.query(sql, &[tenant.into()]).await?;
    let record = rows
        .first_mut()
        .ok_or(DatabaseError::Bug("the database returned no row for a tenant that was just written"))?
        .text(0)?;
    open_record(tenant, record, cipher)
}

/// Decrypts the stored record of the labels of a tenant's stores. An empty record is one that [`lock_tenant`] has
/// created: nothing was written to the stores yet, so the result is `None`, as without a row. An empty record is not
/// encrypted, since a principal that can write it can delete the row as well.
fn open_record(
    tenant: &str,
    record: String,
    cipher: &ContentCipher,
) -> Result<Option<String>, DatabaseError> {
    if record.is_empty() {
        return Ok(None);
    }
    cipher.open(record, &ContentPlace::tenant(tenant)).map(Some)
}

/// Persists the record of the labels of a tenant's stores.
async fn persist_tenant(
    tx: &mut DynTransaction<'_>,
    tenant: &str,
    record: String,
    cipher: &ContentCipher,
) -> Result<(), DatabaseError> {
    // A new row has the version 1. The version has no meaning: `lock_tenant` changes it only to lock the row.
    let sql = "INSERT INTO tenants (tenant, version, record) VALUES (?1, 1, ?2) \
               ON CONFLICT (tenant) DO UPDATE SET record = ?2";
    let record = cipher.seal(&Content::from(record), &ContentPlace::tenant(tenant))?;
    tx.execute(sql, &[tenant.into(), (&record).into()]).await.map(drop)
}
