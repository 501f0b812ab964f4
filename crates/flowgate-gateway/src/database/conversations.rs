//! Conversations, and the records of tenants and clients.
//!
//! A gateway that extends a conversation holds a lease on it, so that concurrent requests are serialized across
//! gateways. A turn is persisted only if no other was persisted since, so that nothing is lost even if two gateways
//! hold the lease. Rows are locked in one order: questions, the tenant, the conversation, the client.

use std::sync::PoisonError;

use sqlx::{AssertSqlSafe, Row as _};

use super::{Database, DatabaseError, Transaction, with_timeout};

/// The duration of a lease in milliseconds, unless its holder renews it.
const HELD: i64 = 30_000;
/// The number of prefixes that one query looks up.
const CHUNK: usize = 64;
/// The number of longest prefixes that are looked up first; for a continued chat, one of these is found.
const FIRST: usize = 4;

/// A persisted conversation.
#[derive(Debug)]
pub(crate) struct OpenedConversation {
    /// Its number, which is never reused.
    pub(crate) id: i64,
    /// The key of its digests.
    pub(crate) key: String,
    /// The number of persisted turns.
    pub(crate) turns: i64,
    /// The bytes of all turns.
    pub(crate) bytes: i64,
    /// The journal, turn by turn, beyond the turns that the caller has.
    pub(crate) inputs: Vec<String>,
}

/// The whole journal of a conversation.
#[derive(Debug)]
pub(crate) struct ConversationJournal {
    /// The digest of the client's settings that the journal was written under.
    pub(crate) basis: String,
    /// The key of its digests.
    pub(crate) key: String,
    /// The journal, turn by turn.
    pub(crate) inputs: Vec<String>,
}

/// A turn to persist.
#[derive(Debug)]
pub(crate) struct PersistedTurn<'a> {
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    /// The number of the conversation.
    pub(crate) conversation: i64,
    /// Whether the conversation's time of last use is out of date.
    pub(crate) is_stale: bool,
    /// The number of turns persisted before.
    pub(crate) turns: i64,
    /// The bytes of those turns.
    pub(crate) bytes: i64,
    pub(crate) inputs: &'a str,
    /// The chat prefixes that belong to the conversation from now on, and those that no longer do.
    pub(crate) prefixes: &'a [String],
    pub(crate) forgotten: &'a [String],
    /// The longest prefix that belongs to the conversation now.
    pub(crate) longest: Option<&'a str>,
}

impl PersistedTurn<'_> {
    /// Returns the bytes of all turns, including this one.
    pub(super) fn bytes(&self) -> i64 {
        self.bytes.saturating_add(i64::try_from(self.inputs.len()).unwrap_or(i64::MAX))
    }
}

impl Database {
    /// Returns the conversation that a chat continues, if the cache knows it by the longest prefix of the chat.
    pub(crate) fn find_cached_by_chat(&self, client: &str, longest: &str) -> Option<String> {
        self.cache.chat(client, longest).filter(|_| !self.is_shared)
    }

    /// Returns the conversation that a chat continues: the only one of the client's that has the longest of these
    /// prefixes that any of them has. `prefixes` is sorted, the shortest first.
    pub(crate) async fn find_by_chat(
        &self,
        client: &str,
        prefixes: &[String],
    ) -> Result<Option<String>, DatabaseError> {
        let (others, longest) = prefixes.split_at(prefixes.len().saturating_sub(FIRST));
        for chunk in std::iter::once(longest).chain(others.rchunks(CHUNK)) {
            let sql = format!(
                "SELECT prefix, name FROM prefixes JOIN conversations ON conversations.id = prefixes.conversation \
                 WHERE prefixes.client = $1 AND prefix IN ({})",
                placeholders(2, chunk.len())
            );
            let mut query = sqlx::query(AssertSqlSafe(sql)).bind(client);
            for prefix in chunk {
                query = query.bind(prefix);
            }
            let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
            let mut known: Vec<(String, String)> = Vec::with_capacity(rows.len());
            for row in rows {
                known.push((row.try_get(0)?, row.try_get(1)?));
            }
            for prefix in chunk.iter().rev() {
                let mut names = known.iter().filter(|(known, _)| known == prefix).map(|(_, name)| name);
                match (names.next(), names.next()) {
                    (Some(name), None) => return Ok(Some(name.clone())),
                    (Some(_), Some(_)) => return Ok(None),
                    (None, _) => {}
                }
            }
        }
        Ok(None)
    }

    /// Opens a conversation and takes the lease; begins it anew if it does not exist or was kept on another basis.
    /// The first `known` turns are not read.
    ///
    /// # Errors
    /// [`DatabaseError::ConversationHeld`] if another gateway has the lease.
    pub(crate) async fn open_conversation(
        &self,
        (client, name): (&str, &str),
        basis: &str,
        key: &str,
        known: i64,
    ) -> Result<OpenedConversation, DatabaseError> {
        if let Some(turns) = self.turns.as_ref().filter(|_| known == 0)
            && let Some(id) = turns.begin((client, name), basis, key)?
        {
            return Ok(OpenedConversation {
                id,
                key: key.to_owned(),
                turns: 0,
                bytes: 0,
                inputs: Vec::new(),
            });
        }
        with_timeout(async {
            let mut tx = self.begin().await?;
            let (holder, until) = if self.is_shared { (self.holder.as_str(), HELD) } else { ("", 0) };
            let sql = "UPDATE conversations SET holder = $1, held_until = {now} + $2, used = {used} \
                       WHERE client = $3 AND name = $4 AND (holder = $1 OR held_until < {now} OR held_until > {now} + 4 * $2 OR $2 = 0) \
                       RETURNING basis, key, id";
            let take = sqlx::query(self.expand_statement(sql)).bind(holder).bind(until).bind(client).bind(name);
            if let Some(row) = take.fetch_optional(&mut *tx).await? {
                if row.try_get::<String, _>(0)? == basis {
                    let (key, id) = (row.try_get(1)?, row.try_get(2)?);
                    let sql = "SELECT number, bytes FROM turns WHERE conversation = $1 ORDER BY number DESC LIMIT 1";
                    let last = sqlx::query(sql).bind(id).fetch_optional(&mut *tx).await?;
                    let (turns, bytes) = match last {
                        Some(last) => (last.try_get::<i64, _>(0)? + 1, last.try_get(1)?),
                        None => (0, 0),
                    };
                    let inputs = inputs(&mut tx, id, known).await?;
                    tx.commit().await?;
                    return Ok(OpenedConversation { id, key, turns, bytes, inputs });
                }
                self.cache.forget_chat(client, name);
                delete_named(&mut tx, client, name).await?;
            }
            let sql = "INSERT INTO conversations (client, name, basis, key, used, holder, held_until) \
                       VALUES ($1, $2, $3, $4, {now}, $5, {now} + $6) ON CONFLICT DO NOTHING RETURNING id";
            let insert = sqlx::query(self.expand_statement(sql)).bind(client).bind(name).bind(basis).bind(key);
            let inserted = insert.bind(holder).bind(until).fetch_optional(&mut *tx).await?;
            let id = inserted.ok_or(DatabaseError::ConversationHeld)?.try_get(0)?;
            tx.commit().await?;
            Ok(OpenedConversation { id, key: key.to_owned(), turns: 0, bytes: 0, inputs: Vec::new() })
        })
        .await
    }

    /// Returns the whole journal of a conversation.
    pub(crate) async fn read_journal(
        &self,
        client: &str,
        name: &str,
    ) -> Result<Option<ConversationJournal>, DatabaseError> {
        with_timeout(async {
            let mut tx = self.begin().await?;
            let sql = "SELECT basis, key, id FROM conversations WHERE client = $1 AND name = $2";
            let row = sqlx::query(sql).bind(client).bind(name).fetch_optional(&mut *tx).await?;
            let Some(row) = row else { return Ok(None) };
            let inputs = inputs(&mut tx, row.try_get(2)?, 0).await?;
            Ok(Some(ConversationJournal { basis: row.try_get(0)?, key: row.try_get(1)?, inputs }))
        })
        .await
    }

    /// Returns whether a client has a conversation of this name.
    pub(crate) async fn has_conversation(&self, client: &str, name: &str) -> Result<bool, DatabaseError> {
        let query = sqlx::query("SELECT 1 FROM conversations WHERE client = $1 AND name = $2")
            .bind(client)
            .bind(name);
        with_timeout(async { Ok(query.fetch_optional(&self.pool).await?.is_some()) }).await
    }

    /// Releases the lease on a conversation in which nothing was done.
    pub(crate) async fn release_lease(&self, client: &str, name: &str) -> Result<(), DatabaseError> {
        if !self.is_shared {
            return Ok(());
        }
        let sql = "UPDATE conversations SET holder = '', held_until = 0 WHERE client = $1 AND name = $2 AND holder = $3";
        let query = sqlx::query(sql).bind(client).bind(name).bind(&self.holder);
        with_timeout(async { Ok(query.execute(&self.pool).await?) }).await?;
        Ok(())
    }

    /// Adds a conversation to those whose lease this gateway renews, or removes it. A lease that is not renewed
    /// expires, so no failure can block the conversation.
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

    /// Renews the leases of this gateway.
    pub(crate) async fn renew_leases(&self) -> Result<(), DatabaseError> {
        let held: Vec<(String, String)> = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.iter().cloned().collect()
        };
        for (client, name) in held {
            let sql = "UPDATE conversations SET held_until = {now} + $1 \
                       WHERE holder = $2 AND client = $3 AND name = $4 AND held_until > 0";
            let query =
                sqlx::query(self.expand_statement(sql)).bind(HELD).bind(&self.holder).bind(client).bind(name);
            with_timeout(async { Ok(query.execute(&self.pool).await?) }).await?;
        }
        Ok(())
    }

    /// Returns the conversations of a client that were used longest ago, beyond the `most` that it may have. `newest`
    /// is not one of them.
    pub(crate) async fn least_recently_used(
        &self,
        client: &str,
        newest: &str,
        most: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        let sql = "SELECT name FROM conversations WHERE client = $1 AND name <> $2 AND held_until < {now} \
                   ORDER BY used DESC LIMIT 1000 OFFSET $3";
        let (sql, from) = (self.expand_statement(sql), (most - 1).max(0));
        if let Some(turns) = &self.turns {
            return turns.conversation_names(sql.as_str(), (client, newest), from);
        }
        let query = sqlx::query(sql).bind(client).bind(newest).bind(from);
        let rows = with_timeout(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Deletes a conversation with its journal. The labels of its stores and the texts that its client was shown are
    /// kept.
    pub(crate) async fn delete_conversation(&self, client: &str, name: &str) -> Result<(), DatabaseError> {
        self.cache.forget_chat(client, name);
        with_timeout(async {
            let mut tx = self.begin().await?;
            delete_named(&mut tx, client, name).await?;
            tx.commit().await?;
            // A turn may have been persisted in between.
            self.cache.forget_chat(client, name);
            Ok(())
        })
        .await
    }

    /// Deletes the conversations that were not used for `age` milliseconds, and returns their number.
    pub(crate) async fn delete_unused(&self, age: i64) -> Result<u64, DatabaseError> {
        // In small batches, since a SQLite file has one writer at a time.
        let sql = "UPDATE conversations SET used = used \
                   WHERE id IN (SELECT id FROM conversations WHERE used < {now} - $1 AND held_until < {now} LIMIT 32) \
                   AND used < {now} - $1 AND held_until < {now} RETURNING id, client, name";
        let mut count = 0;
        loop {
            let deleted = with_timeout(async {
                let mut tx = self.begin().await?;
                let rows = sqlx::query(self.expand_statement(sql)).bind(age).fetch_all(&mut *tx).await?;
                for row in &rows {
                    let client: String = row.try_get(1)?;
                    self.cache.forget_chat(&client, &row.try_get::<String, _>(2)?);
                    delete(&mut tx, &client, row.try_get(0)?).await?;
                }
                tx.commit().await?;
                Ok(rows.len() as u64)
            })
            .await?;
            if deleted == 0 {
                return Ok(count);
            }
            count += deleted;
        }
    }

    /// Persists a turn without other effects, if none was persisted since. Requires a store that no other gateway
    /// uses.
    pub(crate) fn persist_turn_alone(&self, kept: &PersistedTurn<'_>) -> Result<(), DatabaseError> {
        let Some(turns) = &self.turns else { return Err(DatabaseError::Damaged("it is not one's own")) };
        let log = self.newer_head();
        let done = turns.persist(kept, log.as_ref(), |is_others| match kept.longest.filter(|_| !is_others) {
            Some(longest) => self.cache.set_chat(kept.client, kept.name, longest, kept.prefixes),
            None => self.cache.forget_prefixes(kept.client, kept.name, kept.prefixes),
        });
        match done {
            Ok(()) => self.set_recorded(log.as_ref()),
            Err(_) => self.cache.forget_chat(kept.client, kept.name),
        }
        done
    }

    /// Returns the record of a tenant's stores, if the cache knows it.
    pub(crate) fn cached_tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.cache.tenant(tenant).filter(|_| !self.is_shared)
    }

    /// Returns the record of a tenant's stores.
    pub(crate) async fn tenant(&self, tenant: &str) -> Result<Option<String>, DatabaseError> {
        if let Some(known) = self.cache.tenant(tenant).filter(|_| !self.is_shared) {
            return Ok(known);
        }
        let query = sqlx::query("SELECT record FROM tenants WHERE tenant = $1").bind(tenant);
        let row = with_timeout(async { Ok(query.fetch_optional(&self.pool).await?) }).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.filter(|record: &String| !record.is_empty()))
    }
}

/// Locks the record of a tenant's stores until the transaction ends, and returns it.
pub(crate) async fn lock_tenant(
    store: &Database,
    tx: &mut Transaction,
    tenant: &str,
) -> Result<Option<String>, DatabaseError> {
    if !store.is_shared {
        // In a file, the transaction is the only writer.
        if let Some(known) = store.cache.tenant(tenant) {
            return Ok(known);
        }
        let sql = "SELECT record FROM tenants WHERE tenant = $1";
        let row = sqlx::query(sql).bind(tenant).fetch_optional(&mut **tx).await?;
        let record = row.map(|row| row.try_get::<String, _>(0)).transpose()?;
        store.cache.set_tenant(tenant, record.clone());
        return Ok(record);
    }
    let sql = "INSERT INTO tenants (tenant, version, record) VALUES ($1, 1, '') \
               ON CONFLICT (tenant) DO UPDATE SET version = tenants.version + 1 RETURNING record";
    let row = sqlx::query(sql).bind(tenant).fetch_one(&mut **tx).await?;
    Ok(Some(row.try_get(0)?).filter(|record: &String| !record.is_empty()))
}

/// Persists the record of a tenant's stores.
pub(crate) async fn persist_tenant(
    store: &Database,
    tx: &mut Transaction,
    tenant: &str,
    record: &str,
) -> Result<(), DatabaseError> {
    store.cache.set_tenant(tenant, Some(record.to_owned()));
    let sql = "INSERT INTO tenants (tenant, version, record) VALUES ($1, 1, $2) \
               ON CONFLICT (tenant) DO UPDATE SET record = $2";
    sqlx::query(sql).bind(tenant).bind(record).execute(&mut **tx).await?;
    Ok(())
}

/// Inserts a turn if it is the next one.
const INSERT: &str = "INSERT INTO turns (conversation, number, bytes, prefixes, inputs) \
     SELECT $1, $2, $3, $4, $5 \
     WHERE $2 = 0 OR EXISTS (SELECT 1 FROM turns WHERE conversation = $1 AND number = $2 - 1) \
     ON CONFLICT DO NOTHING";

/// Persists a turn of a conversation, if none was persisted since, and releases the lease.
pub(crate) async fn persist_turn(
    store: &Database,
    tx: &mut Transaction,
    kept: &PersistedTurn<'_>,
) -> Result<(), DatabaseError> {
    let PersistedTurn { client, name, conversation, turns, inputs, prefixes, forgotten, .. } = kept;
    store.cache.forget_prefixes(client, name, prefixes);
    let holder = if store.is_shared { store.holder.as_str() } else { "" };
    let sql =
        "UPDATE conversations SET used = {used}, holder = '', held_until = 0 WHERE id = $1 AND holder = $2";
    let update = sqlx::query(store.expand_statement(sql)).bind(conversation).bind(holder);
    if update.execute(&mut **tx).await?.rows_affected() != 1 {
        return Err(DatabaseError::Overtaken);
    }
    let insert = sqlx::query(INSERT).bind(conversation).bind(turns).bind(kept.bytes());
    let insert = insert.bind(prefixes.join(" ")).bind(*inputs);
    if insert.execute(&mut **tx).await?.rows_affected() != 1 {
        return Err(DatabaseError::Overtaken);
    }
    for prefix in *forgotten {
        let sql = "DELETE FROM prefixes WHERE client = $1 AND prefix = $2 AND conversation = $3";
        sqlx::query(sql).bind(*client).bind(prefix).bind(conversation).execute(&mut **tx).await?;
    }
    for prefix in *prefixes {
        let sql =
            "INSERT INTO prefixes (client, prefix, conversation) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        sqlx::query(sql).bind(*client).bind(prefix).bind(conversation).execute(&mut **tx).await?;
    }
    super::persist_log_head_in(store, tx).await
}

/// Returns the journal of a conversation, turn by turn, from number `from` on.
async fn inputs(tx: &mut Transaction, id: i64, from: i64) -> Result<Vec<String>, DatabaseError> {
    let sql = "SELECT inputs FROM turns WHERE conversation = $1 AND number >= $2 ORDER BY number";
    let rows = sqlx::query(sql).bind(id).bind(from).fetch_all(&mut **tx).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

async fn delete_named(tx: &mut Transaction, client: &str, name: &str) -> Result<(), DatabaseError> {
    // From here on, no turn of it can be persisted.
    let sql = "UPDATE conversations SET used = used WHERE client = $1 AND name = $2 RETURNING id";
    match sqlx::query(sql).bind(client).bind(name).fetch_optional(&mut **tx).await? {
        Some(row) => delete(tx, client, row.try_get(0)?).await,
        None => Ok(()),
    }
}

/// Deletes a conversation whose row this transaction has locked.
async fn delete(tx: &mut Transaction, client: &str, id: i64) -> Result<(), DatabaseError> {
    let sql = "SELECT prefixes FROM turns WHERE conversation = $1 AND prefixes <> ''";
    let rows = sqlx::query(sql).bind(id).fetch_all(&mut **tx).await?;
    let rows: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let prefixes: Vec<&str> = rows.iter().flat_map(|row| row.split(' ')).collect();
    for chunk in prefixes.chunks(CHUNK) {
        let sql = format!(
            "DELETE FROM prefixes WHERE client = $1 AND conversation = $2 AND prefix IN ({})",
            placeholders(3, chunk.len())
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(client).bind(id);
        chunk.iter().fold(query, |query, prefix| query.bind(*prefix)).execute(&mut **tx).await?;
    }
    // Its turns are deleted with it.
    let sql = "DELETE FROM conversations WHERE id = $1";
    sqlx::query(sql).bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// Returns `count` placeholders for values, from number `first` on.
fn placeholders(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|number| format!("${number}")).collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;

    /// A lease that a gateway does not renew expires, also if the gateway could not release it.
    #[test]
    fn only_what_is_gone_on_with_is_held_on_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut store = Database::open(&DatabaseAddress::Memory).await.unwrap();
            for name in ["used", "left", "let go", "another's"] {
                store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
            }
            let hold = "UPDATE conversations SET holder = $1, held_until = $2 WHERE name = $3";
            for (holder, until, name) in [
                (store.holder.as_str(), 1, "used"),
                (store.holder.as_str(), 1, "left"),
                (store.holder.as_str(), 0, "let go"),
                ("another gateway", 1, "another's"),
            ] {
                sqlx::query(hold).bind(holder).bind(until).bind(name).execute(&store.pool).await.unwrap();
            }
            // The SQL of a shared database differs; the set of leases does not.
            store.is_shared = true;
            for name in ["used", "left", "let go", "another's"] {
                store.set_held("c", name, true);
            }
            store.set_held("c", "left", false);
            store.is_shared = false;
            store.renew_leases().await.unwrap();
            let sql = "SELECT name FROM conversations WHERE held_until > 1";
            let rows = sqlx::query(sql).fetch_all(&store.pool).await.unwrap();
            let held: Vec<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
            assert_eq!(held, ["used"]);
        });
    }

    /// All conversations that were not used for long are deleted, with their prefixes.
    #[tokio::test]
    async fn what_is_not_used_for_long_is_deleted() {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let keep = async |name: &str| {
            let conversation = store.open_conversation(("c", name), "basis", "key", 0).await.unwrap().id;
            let prefixes = [format!("prefix-{name}")];
            let kept = PersistedTurn {
                client: "c",
                name,
                conversation,
                is_stale: true,
                turns: 0,
                bytes: 0,
                inputs: "[]",
                prefixes: &prefixes,
                forgotten: &[],
                longest: None,
            };
            store.persist_turn_alone(&kept).unwrap();
        };
        for number in 0..70 {
            keep(&format!("old-{number}")).await;
        }
        keep("held").await;
        sqlx::query("UPDATE conversations SET used = 1").execute(&store.pool).await.unwrap();
        keep("new").await;
        let hold = "UPDATE conversations SET held_until = 9000000000000 WHERE name = 'held'";
        sqlx::query(hold).execute(&store.pool).await.unwrap();
        assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 70);
        assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 0);
        let sql = "SELECT name FROM conversations ORDER BY name";
        let left: Vec<String> = sqlx::query_scalar(sql).fetch_all(&store.pool).await.unwrap();
        assert_eq!(left, ["held", "new"]);
        let sql = "SELECT prefix FROM prefixes ORDER BY prefix";
        let left: Vec<String> = sqlx::query_scalar(sql).fetch_all(&store.pool).await.unwrap();
        assert_eq!(left, ["prefix-held", "prefix-new"]);
    }

    /// A turn updates the time of last use, but not every turn does.
    #[tokio::test]
    async fn a_turn_says_that_its_conversation_is_used_if_that_is_old() {
        let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
        let id = store.open_conversation(("c", "one"), "basis", "key", 0).await.unwrap().id;
        let used = async || -> i64 {
            sqlx::query_scalar("SELECT used FROM conversations").fetch_one(&store.pool).await.unwrap()
        };
        sqlx::query("UPDATE conversations SET used = 1").execute(&store.pool).await.unwrap();
        for (turns, is_stale) in [(0, false), (1, true)] {
            let kept = PersistedTurn {
                client: "c",
                name: "one",
                conversation: id,
                is_stale,
                turns,
                bytes: 0,
                inputs: "[]",
                prefixes: &[],
                forgotten: &[],
                longest: None,
            };
            store.persist_turn_alone(&kept).unwrap();
            assert_eq!(used().await > 1, is_stale);
        }
    }
}
