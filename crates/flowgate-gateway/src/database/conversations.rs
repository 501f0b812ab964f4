//! Finds, opens and deletes conversations in the database, and leases them to gateways. `chat::conversations` and the
//! page call it.
//!
//! A gateway that extends a conversation holds a lease on it, so that requests of one conversation wait for each other
//! across gateways. Two columns of the conversation's row name the gateway and the end of the lease. A turn is
//! persisted only if no other turn was persisted since the conversation was opened, so nothing is lost even if two
//! gateways believe that they hold the lease. To exclude deadlocks, all transactions lock rows in this order:
//! questions, the tenant, the conversation, the client.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, PoisonError};

use super::Database;
use super::encryption::{Content, ContentCipher, ContentPlace, DigestColumn, StoredDigest};
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction, SqlRow, SqlValue};

/// The duration of a lease in milliseconds, unless its holder renews it.
const LEASE: i64 = 30_000;
/// The most prefixes that one query looks up or deletes.
const CHUNK: usize = 64;
/// The number of longest prefixes that the first query looks up: it finds a chat that was continued as usual.
const FIRST_CHUNK: usize = 4;

/// A persisted conversation whose lease this gateway has taken.
#[derive(Debug)]
pub(crate) struct OpenedConversation {
    /// Its number, which is never reused.
    pub(crate) id: i64,
    /// The digest of the client's settings that its journal was written under.
    pub(crate) config_fingerprint: String,
    /// The key with which the conversation computes digests of calls, in hexadecimal.
    pub(crate) key: String,
    /// The number of persisted turns.
    pub(crate) turns: i64,
    /// The total size of the journal in bytes.
    pub(crate) bytes: i64,
    /// The inputs of each turn, without the turns that the caller has already.
    pub(crate) inputs: Vec<String>,
}

/// The whole journal of a conversation.
#[derive(Debug)]
pub(crate) struct ConversationJournal {
    /// The number of the conversation, which is never reused.
    pub(crate) id: i64,
    /// The digest of the client's settings that the journal was written under.
    pub(crate) config_fingerprint: String,
    /// The key with which the conversation computes digests of calls, in hexadecimal.
    pub(crate) key: String,
    /// The inputs of each turn.
    pub(crate) inputs: Vec<String>,
}

/// A conversation in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListedConversation {
    /// Its number, which is never reused; newer conversations have greater numbers.
    pub(crate) id: i64,
    pub(crate) client: String,
    pub(crate) name: String,
    /// The time of last use, in milliseconds since 1970, accurate to one or two minutes.
    pub(crate) used: i64,
    /// The number of persisted turns.
    pub(crate) turns: i64,
}

impl Database {
    /// Returns the conversation that a chat continues, if the cache knows it by the longest prefix of the chat (the
    /// digest of a beginning of it). Always `None` if other gateways use the database, since the cache does not see
    /// their changes.
    pub(crate) fn find_cached_by_chat(&self, client: &str, longest: &str) -> Option<String> {
        self.cache.chat(client, longest).filter(|_| !self.is_shared)
    }

    /// Returns the conversation that a chat with these prefixes (digests of its beginnings, the shortest first)
    /// continues: the conversation with the longest stored prefix. `None` if no prefix is stored, or several
    /// conversations of the client have the longest one. Searches in chunks, the longest prefixes first. The first
    /// chunk is small, since usually one of the longest prefixes is stored.
    pub(crate) async fn find_by_chat(
        &self,
        client: &str,
        prefixes: &[String],
    ) -> Result<Option<String>, DatabaseError> {
        // The longest prefixes are at the end of the list, so the chunks are taken from there.
        let (shorter, longest) = prefixes.split_at(prefixes.len().saturating_sub(FIRST_CHUNK));
        for chunk in std::iter::once(longest).chain(shorter.rchunks(CHUNK)) {
            let forms = |prefix: &String| self.cipher.lookups(DigestColumn::ChatPrefix, client, prefix);
            let chunk: Vec<Vec<StoredDigest>> = chunk.iter().map(forms).collect();
            let client = client.to_owned();
            let chunk_match = self.run(Access::Query, move |tx| {
                Box::pin(async move { find_in_chunk(tx, &client, &chunk).await })
            });
            match chunk_match.await? {
                ChatMatch::Absent => {}
                ChatMatch::Only(name) => return Ok(Some(name)),
                ChatMatch::Ambiguous => return Ok(None),
            }
        }
        Ok(None)
    }

    /// Opens a conversation and takes the lease; creates it if it does not exist. `config_fingerprint` is the digest of
    /// the client's settings, and `key` is the key for digests if the conversation is created. The first `known` turns,
    /// which the caller has in memory, are not read; but all turns are read if the conversation was stored under
    /// another fingerprint.
    ///
    /// # Errors
    /// [`DatabaseError::ConversationHeld`] if another gateway has the lease; also if the database fails.
    pub(crate) async fn open_conversation(
        &self,
        (client, name): (&str, &str),
        config_fingerprint: &str,
        key: &str,
        known: i64,
    ) -> Result<OpenedConversation, DatabaseError> {
        let (holder, lease_millis) = self.lease();
        let new = NewConversation {
            client: client.to_owned(),
            name: name.to_owned(),
            config_fingerprint: config_fingerprint.to_owned(),
            key: Content::from(key),
            holder,
            lease_millis,
        };
        let (is_shared, cipher) = (self.is_shared, Arc::clone(&self.cipher));
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // Without other gateways, a conversation of which nothing is in memory is usually new. The insertion is
                // tried first, which saves a query.
                if !is_shared
                    && known == 0
                    && let Some(opened) = new.insert(tx, &cipher).await?
                {
                    return Ok(opened);
                }
                let NewConversation { client, name, config_fingerprint, holder, lease_millis, .. } = &new;
                // `basis` is the column of the fingerprint. Takes the lease if it is free, expired, or ends so far in
                // the future that the clock must have been set back since; or if no other gateway uses the database (?2
                // = 0). `{used}` is the present time, or the stored time if that is less than a minute old.
                let sql = "UPDATE conversations SET holder = ?1, held_until = {now} + ?2, used = {used} \
                           WHERE client = ?3 AND name = ?4 AND (holder = ?1 OR held_until < {now} OR held_until > {now} + 4 * ?2 OR ?2 = 0) \
                           RETURNING basis, key, id";
                let values = [holder.into(), (*lease_millis).into(), client.into(), name.into()];
                if let Some(row) = tx.query(sql, &values).await?.first_mut() {
                    let (stored_fingerprint, id) = (row.text(0)?, row.integer(2)?);
                    let key = cipher.open_column(row, 1, &ContentPlace::conversation_key(client, name))?;
                    let known = if stored_fingerprint == *config_fingerprint { known } else { 0 };
                    let opened = OpenedConversation {
                        id,
                        config_fingerprint: stored_fingerprint,
                        key,
                        turns: 0,
                        bytes: 0,
                        inputs: Vec::new(),
                    };
                    return read_opened(tx, (client, name), opened, known, &cipher).await;
                }
                // The conversation does not exist or, if it cannot be inserted, another gateway has its lease.
                new.insert(tx, &cipher).await?.ok_or(DatabaseError::ConversationHeld)
            })
        })
        .await
    }

    /// Returns the holder and the duration in milliseconds of a new lease; an empty name and 0 if no other gateway uses
    /// the database, since a lease is not needed then.
    fn lease(&self) -> (String, i64) {
        if self.is_shared { (self.holder.clone(), LEASE) } else { (String::new(), 0) }
    }

    /// Returns the whole journal of a conversation; `None` if the client has no conversation of this name.
    pub(crate) async fn read_journal(
        &self,
        client: &str,
        name: &str,
    ) -> Result<Option<ConversationJournal>, DatabaseError> {
        let (client, name, cipher) = (client.to_owned(), name.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Snapshot, move |tx| {
            Box::pin(async move {
                let sql = "SELECT basis, key, id FROM conversations WHERE client = ?1 AND name = ?2";
                let mut rows = tx.query(sql, &[(&client).into(), (&name).into()]).await?;
                let Some(row) = rows.first_mut() else { return Ok(None) };
                let id = row.integer(2)?;
                // From turn 0 on: all turns.
                let inputs = read_inputs(tx, (&client, &name), id, 0, &cipher).await?;
                let key = cipher.open_column(row, 1, &ContentPlace::conversation_key(&client, &name))?;
                Ok(Some(ConversationJournal { id, config_fingerprint: row.text(0)?, key, inputs }))
            })
        })
        .await
    }

    /// Returns the id of a conversation, which is never reused, and how many turns of it are persisted; `None` if the
    /// client has no conversation of this name. No turn is read.
    pub(crate) async fn conversation_length(
        &self,
        client: &str,
        name: &str,
    ) -> Result<Option<(i64, i64)>, DatabaseError> {
        let (client, name) = (client.to_owned(), name.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // Turns are numbered from 0.
                let sql = "SELECT id, (SELECT COALESCE(MAX(number) + 1, 0) FROM turns WHERE conversation = conversations.id) \
                           FROM conversations WHERE client = ?1 AND name = ?2";
                let mut rows = tx.query(sql, &[(&client).into(), (&name).into()]).await?;
                rows.first_mut().map(|row| Ok((row.integer(0)?, row.integer(1)?))).transpose()
            })
        })
        .await
    }

    /// Returns at most `most` conversations of all clients, the newest first: those whose id is less than `before`. The
    /// callers read the list of all conversations in such parts.
    pub(crate) async fn newest_conversations(
        &self,
        before: i64,
        most: i64,
    ) -> Result<Vec<ListedConversation>, DatabaseError> {
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // Turns are numbered from 0.
                let sql = "SELECT id, client, name, used, \
                           (SELECT COALESCE(MAX(number) + 1, 0) FROM turns WHERE conversation = conversations.id) \
                           FROM conversations WHERE id < ?1 ORDER BY id DESC LIMIT ?2";
                let listed = |row: &mut SqlRow| {
                    let (id, client, name) = (row.integer(0)?, row.text(1)?, row.text(2)?);
                    Ok(ListedConversation { id, client, name, used: row.integer(3)?, turns: row.integer(4)? })
                };
                tx.query(sql, &[before.into(), most.into()]).await?.iter_mut().map(listed).collect()
            })
        })
        .await
    }

    /// Returns whether a client has a conversation of this name.
    pub(crate) async fn has_conversation(&self, client: &str, name: &str) -> Result<bool, DatabaseError> {
        let (client, name) = (client.to_owned(), name.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                let sql = "SELECT 1 FROM conversations WHERE client = ?1 AND name = ?2";
                Ok(!tx.query(sql, &[(&client).into(), (&name).into()]).await?.is_empty())
            })
        })
        .await
    }

    /// Releases the lease on a conversation if no turn was persisted: a persisted turn releases the lease in its own
    /// transaction. Does nothing if no other gateway uses the database, since there are no leases then.
    pub(crate) async fn release_lease(&self, client: &str, name: &str) -> Result<(), DatabaseError> {
        if !self.is_shared {
            return Ok(());
        }
        let (client, name, holder) = (client.to_owned(), name.to_owned(), self.holder.clone());
        self.run(Access::Statement, move |tx| {
            Box::pin(async move {
                let sql = "UPDATE conversations SET holder = '', held_until = 0 WHERE client = ?1 AND name = ?2 AND holder = ?3";
                tx.execute(sql, &[(&client).into(), (&name).into(), (&holder).into()]).await.map(drop)
            })
        })
        .await
    }

    /// Sets whether this gateway renews the lease on a conversation. A lease that is not renewed expires, so no failure
    /// can block the conversation. Does nothing if no other gateway uses the database, since there are no leases then.
    pub(crate) fn set_held(&self, client: &str, name: &str, is_held: bool) {
        if !self.is_shared {
            return;
        }
        let key = (client.to_owned(), name.to_owned());
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if is_held {
            held.insert(key);
        } else {
            held.remove(&key);
        }
    }

    /// Renews the leases that this gateway holds. If the renewal of one lease fails, the others are renewed
    /// nevertheless, and the failure is returned at the end.
    pub(crate) async fn renew_leases(&self) -> Result<(), DatabaseError> {
        let held: Vec<(String, String)> = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.iter().cloned().collect()
        };
        let mut outcome = Ok(());
        for (client, name) in held {
            let holder = self.holder.clone();
            let renewed = self.run(Access::Statement, move |tx| {
                Box::pin(async move {
                    // A lease that was released meanwhile (`held_until` is 0) is not taken again.
                    let sql = "UPDATE conversations SET held_until = {now} + ?1 \
                               WHERE holder = ?2 AND client = ?3 AND name = ?4 AND held_until > 0";
                    let values = [LEASE.into(), (&holder).into(), (&client).into(), (&name).into()];
                    tx.execute(sql, &values).await.map(drop)
                })
            });
            // The other leases are renewed even if this one is not.
            outcome = outcome.and(renewed.await);
        }
        outcome
    }

    /// Returns the conversations to delete so that the client keeps the `most` conversations that were used last.
    /// `newest`, the conversation in use now, is one of those to keep. A conversation whose lease is held is never
    /// returned, and does not count towards `most`. Returns at most 1000, those that were used longest ago first: a
    /// later call returns the rest.
    pub(crate) async fn least_recently_used(
        &self,
        client: &str,
        newest: &str,
        most: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let (client, newest) = (client.to_owned(), newest.to_owned());
        self.run(Access::Query, move |tx| {
            Box::pin(async move {
                // SQLite requires a limit before an offset: this one is the greatest number, so it limits nothing.
                let sql = "SELECT name FROM (SELECT name, used FROM conversations WHERE client = ?1 AND name <> ?2 \
                           AND held_until < {now} ORDER BY used DESC LIMIT 9223372036854775807 OFFSET ?3) AS surplus \
                           ORDER BY used LIMIT 1000";
                // `newest` is not among the rows, and is one of the `most` conversations that stay.
                let values = [(&client).into(), (&newest).into(), (most - 1).max(0).into()];
                tx.query(sql, &values).await?.iter_mut().map(|row| row.text(0)).collect()
            })
        })
        .await
    }

    /// Deletes a conversation with its journal. The labels of its tenant's stores and the texts that its client was
    /// shown stay, since other conversations depend on them.
    pub(crate) async fn delete_conversation(&self, client: &str, name: &str) -> Result<(), DatabaseError> {
        let (cache, client, name) = (Arc::clone(&self.cache), client.to_owned(), name.to_owned());
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // The cache forgets the conversation within the transaction: a turn that was persisted earlier can no
                // longer add the conversation to the cache. The cache forgets it before the deletion: if the outcome of
                // the deletion remains unknown, the cache must not name a conversation that may be gone.
                cache.forget_chat(&client, &name);
                delete_named(tx, &client, &name).await
            })
        })
        .await
    }

    /// Deletes the conversations that were not used for `age` milliseconds, and returns their number.
    pub(crate) async fn delete_unused(&self, age: i64) -> Result<u64, DatabaseError> {
        let mut count = 0;
        loop {
            let cache = Arc::clone(&self.cache);
            // In small batches, so that turns do not wait for long.
            let deleted = self.run(Access::Transaction, move |tx| {
                Box::pin(async move {
                    // The update changes nothing, but locks the rows, so that no gateway opens these conversations
                    // meanwhile. The conditions are checked once more on the locked rows, which may have changed.
                    let sql = "UPDATE conversations SET used = used \
                               WHERE id IN (SELECT id FROM conversations WHERE used < {now} - ?1 AND held_until < {now} LIMIT 32) \
                               AND used < {now} - ?1 AND held_until < {now} RETURNING id, client, name";
                    let mut rows = tx.query(sql, &[age.into()]).await?;
                    for row in &mut rows {
                        let client = row.text(1)?;
                        cache.forget_chat(&client, &row.text(2)?);
                        delete(tx, &client, row.integer(0)?).await?;
                    }
                    Ok(rows.len() as u64)
                })
            });
            match deleted.await? {
                0 => return Ok(count),
                deleted => count += deleted,
            }
        }
    }
}

/// The outcome of looking up the prefixes of a chat.
#[derive(Debug, PartialEq, Eq)]
enum ChatMatch {
    /// No conversation has one of the prefixes.
    Absent,
    /// The conversation that alone has the longest stored prefix.
    Only(String),
    /// Several conversations have the longest stored prefix.
    Ambiguous,
}

/// Finds the longest of these prefixes (sorted, the shortest first) that a conversation of the client has, and returns
/// whether one conversation or several have it. Each prefix is a list of the forms in which it can be stored: while a
/// database is being encrypted, one conversation can have it in one form, and another in the other form.
async fn find_in_chunk(
    tx: &mut DynTransaction<'_>,
    client: &str,
    chunk: &[Vec<StoredDigest>],
) -> Result<ChatMatch, DatabaseError> {
    let forms: Vec<&StoredDigest> = chunk.iter().flatten().collect();
    let sql = format!(
        "SELECT prefix, name FROM prefixes JOIN conversations ON conversations.id = prefixes.conversation \
         WHERE prefixes.client = ?1 AND prefix IN ({})",
        placeholders(2, forms.len())
    );
    let mut values = vec![SqlValue::from(client)];
    values.extend(forms.into_iter().map(SqlValue::from));
    let mut rows = tx.query(&sql, &values).await?;
    let pair = |row: &mut SqlRow| Ok((row.text(0)?, row.text(1)?));
    let stored: Vec<(String, String)> = rows.iter_mut().map(pair).collect::<Result<_, DatabaseError>>()?;
    // From the longest prefix on.
    for forms in chunk.iter().rev() {
        let is_form = |stored: &str| forms.iter().any(|form| form.as_str() == stored);
        let names = stored.iter().filter(|(stored, _)| is_form(stored)).map(|(_, name)| name.as_str());
        // A conversation that has the prefix in both forms counts once.
        let names: BTreeSet<&str> = names.collect();
        match (names.first(), names.len()) {
            (Some(name), 1) => return Ok(ChatMatch::Only((*name).to_owned())),
            (Some(_), _) => return Ok(ChatMatch::Ambiguous),
            (None, _) => {}
        }
    }
    Ok(ChatMatch::Absent)
}

/// A conversation to create, with its first lease.
struct NewConversation {
    client: String,
    name: String,
    config_fingerprint: String,
    key: Content,
    /// The gateway that takes the lease; empty if no lease is needed.
    holder: String,
    /// The duration of the lease; 0 if no lease is needed.
    lease_millis: i64,
}

impl NewConversation {
    /// Inserts the conversation, without turns; returns `None` if the client has a conversation of this name already.
    async fn insert(
        &self,
        tx: &mut DynTransaction<'_>,
        cipher: &ContentCipher,
    ) -> Result<Option<OpenedConversation>, DatabaseError> {
        let Self { client, name, config_fingerprint, key, holder, lease_millis } = self;
        // `basis` is the column of the fingerprint. Without a lease (?6 = 0), `held_until` is 0.
        let sql = "INSERT INTO conversations (client, name, basis, key, used, holder, held_until) \
                   VALUES (?1, ?2, ?3, ?4, {now}, ?5, CASE WHEN ?6 = 0 THEN 0 ELSE {now} + ?6 END) \
                   ON CONFLICT DO NOTHING RETURNING id";
        let sealed = cipher.seal(key, &ContentPlace::conversation_key(client, name))?;
        let lease = *lease_millis;
        let values = [
            client.into(),
            name.into(),
            config_fingerprint.into(),
            (&sealed).into(),
            holder.into(),
            lease.into(),
        ];
        let rows = tx.query(sql, &values).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let (id, config_fingerprint, key) =
            (row.integer(0)?, config_fingerprint.clone(), key.as_str().to_owned());
        Ok(Some(OpenedConversation { id, config_fingerprint, key, turns: 0, bytes: 0, inputs: Vec::new() }))
    }
}

/// Completes an opened conversation: counts its turns and bytes, and reads its inputs from turn `known` on. `whose` are
/// its client and its name.
async fn read_opened(
    tx: &mut DynTransaction<'_>,
    whose: (&str, &str),
    opened: OpenedConversation,
    known: i64,
    cipher: &ContentCipher,
) -> Result<OpenedConversation, DatabaseError> {
    // Turns are numbered from 0, and the column `bytes` of a turn is the total of all turns up to it.
    let sql = "SELECT number, bytes FROM turns WHERE conversation = ?1 ORDER BY number DESC LIMIT 1";
    let (turns, bytes) = match tx.query(sql, &[opened.id.into()]).await?.first() {
        Some(last) => (last.integer(0)? + 1, last.integer(1)?),
        None => (0, 0),
    };
    let inputs = read_inputs(tx, whose, opened.id, known, cipher).await?;
    Ok(OpenedConversation { turns, bytes, inputs, ..opened })
}

/// Returns the inputs of each turn of a conversation from turn number `from` on. `whose` are its client and its name.
async fn read_inputs(
    tx: &mut DynTransaction<'_>,
    whose: (&str, &str),
    id: i64,
    from: i64,
    cipher: &ContentCipher,
) -> Result<Vec<String>, DatabaseError> {
    let sql = "SELECT inputs, number FROM turns WHERE conversation = ?1 AND number >= ?2 ORDER BY number";
    let inputs = |row: &mut SqlRow| {
        let place = ContentPlace::turn(whose, id, row.integer(1)?);
        cipher.open_column(row, 0, &place)
    };
    tx.query(sql, &[id.into(), from.into()]).await?.iter_mut().map(inputs).collect()
}

/// Deletes the conversation of this name of a client, if there is one.
async fn delete_named(tx: &mut DynTransaction<'_>, client: &str, name: &str) -> Result<(), DatabaseError> {
    // Locks the row: from here on, no turn of the conversation can be persisted.
    let sql = "UPDATE conversations SET used = used WHERE client = ?1 AND name = ?2 RETURNING id";
    match tx.query(sql, &[client.into(), name.into()]).await?.first() {
        Some(row) => delete(tx, client, row.integer(0)?).await,
        None => Ok(()),
    }
}

/// Deletes a conversation, whose row this transaction has locked, with its prefixes and turns.
async fn delete(tx: &mut DynTransaction<'_>, client: &str, id: i64) -> Result<(), DatabaseError> {
    // The column `prefixes` of a turn has the prefixes that were stored with the turn, with spaces between them.
    let sql = "SELECT prefixes FROM turns WHERE conversation = ?1 AND prefixes <> ''";
    let mut rows = tx.query(sql, &[id.into()]).await?;
    let rows: Vec<String> = rows.iter_mut().map(|row| row.text(0)).collect::<Result<_, _>>()?;
    let prefixes: Vec<&str> = rows.iter().flat_map(|row| row.split(' ')).collect();
    for chunk in prefixes.chunks(CHUNK) {
        let sql = format!(
            "DELETE FROM prefixes WHERE client = ?1 AND conversation = ?2 AND prefix IN ({})",
            placeholders(3, chunk.len())
        );
        let mut values = vec![SqlValue::from(client), id.into()];
        values.extend(chunk.iter().map(|prefix| SqlValue::from(*prefix)));
        tx.execute(&sql, &values).await?;
    }
    // The foreign key deletes the turns together with the row.
    tx.execute("DELETE FROM conversations WHERE id = ?1", &[id.into()]).await?;
    Ok(())
}

/// Returns the text of `count` parameters of a statement, numbered from `first` on, such as `?2, ?3`.
fn placeholders(first: usize, count: usize) -> String {
    let parameters: Vec<String> = (first..first + count).map(|number| format!("?{number}")).collect();
    parameters.join(", ")
}
