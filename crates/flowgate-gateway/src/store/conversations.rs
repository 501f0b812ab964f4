//! Conversations, and what is known of tenants and clients.
//!
//! Who goes on with a conversation holds it for a while, so that requests wait for each other wherever they arrive; and a
//! turn is kept only if no other was kept since, so that nothing is lost even if two should hold it. Rows are locked in one
//! order: questions, the tenant, the conversation, the client.

use std::sync::PoisonError;

use sqlx::{AssertSqlSafe, Row as _};

use super::{Store, StoreError, Transaction, within};

/// How long nobody else goes on with a conversation, in milliseconds, if its holder is not heard of.
const HELD: i64 = 30_000;
/// How many prefixes are looked up at once.
const CHUNK: usize = 64;
/// How many of the longest are looked up before the others: of a chat that goes on, one of these is known.
const FIRST: usize = 4;

/// A conversation as it is kept.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its number: no other conversation ever has it.
    pub(crate) id: i64,
    /// The key of its digests.
    pub(crate) key: String,
    /// How many turns were kept.
    pub(crate) turns: i64,
    /// Bytes of all turns.
    pub(crate) bytes: i64,
    /// What was put in, turn by turn, beyond those that were known.
    pub(crate) inputs: Vec<String>,
}

/// All that was put into a conversation.
#[derive(Debug)]
pub(crate) struct Past {
    /// Under what it is held.
    pub(crate) basis: String,
    /// The key of its digests.
    pub(crate) key: String,
    /// What was put in, turn by turn.
    pub(crate) inputs: Vec<String>,
}

/// A turn that is to be kept.
#[derive(Debug)]
pub(crate) struct Kept<'a> {
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    /// Its number.
    pub(crate) conversation: i64,
    /// Whether it was said long ago that it is used.
    pub(crate) is_stale: bool,
    /// How many turns were kept before.
    pub(crate) turns: i64,
    /// Bytes of those.
    pub(crate) bytes: i64,
    pub(crate) inputs: &'a str,
    /// What chats begin with that belong here from now on, and no longer.
    pub(crate) prefixes: &'a [String],
    pub(crate) forgotten: &'a [String],
    /// The longest that belongs here now.
    pub(crate) longest: Option<&'a str>,
}

impl Kept<'_> {
    /// Bytes of all turns, with this one.
    pub(super) fn bytes(&self) -> i64 {
        self.bytes.saturating_add(i64::try_from(self.inputs.len()).unwrap_or(i64::MAX))
    }
}

impl Store {
    /// The conversation that a chat goes on with, if it is known without asking: this is the longest prefix of the chat.
    pub(crate) fn of_known_chat(&self, client: &str, longest: &str) -> Option<String> {
        self.cache.chat(client, longest).filter(|_| !self.is_shared)
    }

    /// The conversation that a chat goes on with: the only one of the client's that has the longest of these prefixes that
    /// any has. The shortest comes first.
    pub(crate) async fn of_chat(
        &self,
        client: &str,
        prefixes: &[String],
    ) -> Result<Option<String>, StoreError> {
        let (others, longest) = prefixes.split_at(prefixes.len().saturating_sub(FIRST));
        for chunk in std::iter::once(longest).chain(others.rchunks(CHUNK)) {
            let sql = format!(
                "SELECT prefix, name FROM prefixes JOIN conversations ON conversations.id = prefixes.conversation \
                 WHERE prefixes.client = $1 AND prefix IN ({})",
                places(2, chunk.len())
            );
            let mut query = sqlx::query(AssertSqlSafe(sql)).bind(client);
            for prefix in chunk {
                query = query.bind(prefix);
            }
            let rows = within(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
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

    /// Opens a conversation, and begins it if it is not there or was held on another basis. `known` turns are not read again.
    /// From now on it is held.
    pub(crate) async fn open_conversation(
        &self,
        (client, name): (&str, &str),
        basis: &str,
        key: &str,
        known: i64,
    ) -> Result<Opened, StoreError> {
        if let Some(turns) = self.turns.as_ref().filter(|_| known == 0)
            && let Some(id) = turns.begin((client, name), basis, key)?
        {
            return Ok(Opened { id, key: key.to_owned(), turns: 0, bytes: 0, inputs: Vec::new() });
        }
        within(async {
            let mut tx = self.begin().await?;
            let (holder, until) = if self.is_shared { (self.holder.as_str(), HELD) } else { ("", 0) };
            let sql = "UPDATE conversations SET holder = $1, held_until = {now} + $2, used = {used} \
                       WHERE client = $3 AND name = $4 AND (holder = $1 OR held_until < {now} OR held_until > {now} + 4 * $2 OR $2 = 0) \
                       RETURNING basis, key, id";
            let take = sqlx::query(self.timed(sql)).bind(holder).bind(until).bind(client).bind(name);
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
                    return Ok(Opened { id, key, turns, bytes, inputs });
                }
                self.cache.forget_chat(client, name);
                delete_named(&mut tx, client, name).await?;
            }
            let sql = "INSERT INTO conversations (client, name, basis, key, used, holder, held_until) \
                       VALUES ($1, $2, $3, $4, {now}, $5, {now} + $6) ON CONFLICT DO NOTHING RETURNING id";
            let insert = sqlx::query(self.timed(sql)).bind(client).bind(name).bind(basis).bind(key);
            let inserted = insert.bind(holder).bind(until).fetch_optional(&mut *tx).await?;
            let id = inserted.ok_or(StoreError::Held)?.try_get(0)?;
            tx.commit().await?;
            Ok(Opened { id, key: key.to_owned(), turns: 0, bytes: 0, inputs: Vec::new() })
        })
        .await
    }

    /// All that was put into a conversation.
    pub(crate) async fn past(&self, client: &str, name: &str) -> Result<Option<Past>, StoreError> {
        within(async {
            let mut tx = self.begin().await?;
            let sql = "SELECT basis, key, id FROM conversations WHERE client = $1 AND name = $2";
            let row = sqlx::query(sql).bind(client).bind(name).fetch_optional(&mut *tx).await?;
            let Some(row) = row else { return Ok(None) };
            let inputs = inputs(&mut tx, row.try_get(2)?, 0).await?;
            Ok(Some(Past { basis: row.try_get(0)?, key: row.try_get(1)?, inputs }))
        })
        .await
    }

    /// Whether a client has a conversation of this name.
    pub(crate) async fn has_conversation(&self, client: &str, name: &str) -> Result<bool, StoreError> {
        let query = sqlx::query("SELECT 1 FROM conversations WHERE client = $1 AND name = $2")
            .bind(client)
            .bind(name);
        within(async { Ok(query.fetch_optional(&self.pool).await?.is_some()) }).await
    }

    /// Lets others go on with a conversation that nothing was done in.
    pub(crate) async fn let_go(&self, client: &str, name: &str) -> Result<(), StoreError> {
        if !self.is_shared {
            return Ok(());
        }
        let sql = "UPDATE conversations SET holder = '', held_until = 0 WHERE client = $1 AND name = $2 AND holder = $3";
        let query = sqlx::query(sql).bind(client).bind(name).bind(&self.holder);
        within(async { Ok(query.execute(&self.pool).await?) }).await?;
        Ok(())
    }

    /// From now on, or no longer, this gateway goes on with a conversation. What it does not go on with is not held on to, and so
    /// anybody's after a while, whatever has failed.
    pub(crate) fn note_held(&self, client: &str, name: &str, is_held: bool) {
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

    /// Goes on holding what this gateway goes on with.
    pub(crate) async fn hold_on(&self) -> Result<(), StoreError> {
        let held: Vec<(String, String)> = {
            let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
            held.iter().cloned().collect()
        };
        for (client, name) in held {
            let sql = "UPDATE conversations SET held_until = {now} + $1 \
                       WHERE holder = $2 AND client = $3 AND name = $4 AND held_until > 0";
            let query = sqlx::query(self.timed(sql)).bind(HELD).bind(&self.holder).bind(client).bind(name);
            within(async { Ok(query.execute(&self.pool).await?) }).await?;
        }
        Ok(())
    }

    /// The conversations of a client that were used longest ago, beyond as many as it may have. `newest` is not one of them.
    pub(crate) async fn surplus(
        &self,
        client: &str,
        newest: &str,
        most: i64,
    ) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT name FROM conversations WHERE client = $1 AND name <> $2 AND held_until < {now} \
                   ORDER BY used DESC LIMIT 1000 OFFSET $3";
        let (sql, from) = (self.timed(sql), (most - 1).max(0));
        if let Some(turns) = &self.turns {
            return turns.names(sql.as_str(), (client, newest), from);
        }
        let query = sqlx::query(sql).bind(client).bind(newest).bind(from);
        let rows = within(async { Ok(query.fetch_all(&self.pool).await?) }).await?;
        Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
    }

    /// Deletes a conversation with all that was put into it. What its stores carry and what its client was shown is still
    /// known.
    pub(crate) async fn delete_conversation(&self, client: &str, name: &str) -> Result<(), StoreError> {
        self.cache.forget_chat(client, name);
        within(async {
            let mut tx = self.begin().await?;
            delete_named(&mut tx, client, name).await?;
            tx.commit().await?;
            // A turn may have been kept meanwhile.
            self.cache.forget_chat(client, name);
            Ok(())
        })
        .await
    }

    /// Deletes the conversations that were not used for so many milliseconds; how many.
    pub(crate) async fn delete_unused(&self, age: i64) -> Result<u64, StoreError> {
        // Few at a time, since nobody else can write to a file meanwhile.
        let sql = "UPDATE conversations SET used = used \
                   WHERE id IN (SELECT id FROM conversations WHERE used < {now} - $1 AND held_until < {now} LIMIT 32) \
                   AND used < {now} - $1 AND held_until < {now} RETURNING id, client, name";
        let mut count = 0;
        loop {
            let deleted = within(async {
                let mut tx = self.begin().await?;
                let rows = sqlx::query(self.timed(sql)).bind(age).fetch_all(&mut *tx).await?;
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

    /// Keeps a turn from which nothing else follows, if none was kept since. Only a store of one's own does.
    pub(crate) fn keep_alone(&self, kept: &Kept<'_>) -> Result<(), StoreError> {
        let Some(turns) = &self.turns else { return Err(StoreError::Damaged("it is not one's own")) };
        let log = self.beyond();
        let done = turns.keep(kept, log.as_ref(), |is_others| match kept.longest.filter(|_| !is_others) {
            Some(longest) => self.cache.set_chat(kept.client, kept.name, longest, kept.prefixes),
            None => self.cache.forget_prefixes(kept.client, kept.name, kept.prefixes),
        });
        match done {
            Ok(()) => self.note_known(log.as_ref()),
            Err(_) => self.cache.forget_chat(kept.client, kept.name),
        }
        done
    }

    /// What the stores of a tenant carry, if it is known without asking.
    pub(crate) fn known_tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.cache.tenant(tenant).filter(|_| !self.is_shared)
    }

    /// What the stores of a tenant carry.
    pub(crate) async fn tenant(&self, tenant: &str) -> Result<Option<String>, StoreError> {
        if let Some(known) = self.cache.tenant(tenant).filter(|_| !self.is_shared) {
            return Ok(known);
        }
        let query = sqlx::query("SELECT record FROM tenants WHERE tenant = $1").bind(tenant);
        let row = within(async { Ok(query.fetch_optional(&self.pool).await?) }).await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.filter(|record: &String| !record.is_empty()))
    }
}

/// Takes the record of a tenant's stores: until the transaction ends nobody else has it.
pub(crate) async fn take_tenant(
    store: &Store,
    tx: &mut Transaction,
    tenant: &str,
) -> Result<Option<String>, StoreError> {
    if !store.is_shared {
        // Who is in a transaction is alone.
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

/// Keeps the record of a tenant's stores.
pub(crate) async fn keep_tenant(
    store: &Store,
    tx: &mut Transaction,
    tenant: &str,
    record: &str,
) -> Result<(), StoreError> {
    store.cache.set_tenant(tenant, Some(record.to_owned()));
    let sql = "INSERT INTO tenants (tenant, version, record) VALUES ($1, 1, $2) \
               ON CONFLICT (tenant) DO UPDATE SET record = $2";
    sqlx::query(sql).bind(tenant).bind(record).execute(&mut **tx).await?;
    Ok(())
}

/// Keeps a turn if it is the next one.
const INSERT: &str = "INSERT INTO turns (conversation, number, bytes, prefixes, inputs) \
     SELECT $1, $2, $3, $4, $5 \
     WHERE $2 = 0 OR EXISTS (SELECT 1 FROM turns WHERE conversation = $1 AND number = $2 - 1) \
     ON CONFLICT DO NOTHING";

/// Keeps a turn of a conversation, if none was kept since, and lets others go on with it.
pub(crate) async fn keep_turn(
    store: &Store,
    tx: &mut Transaction,
    kept: &Kept<'_>,
) -> Result<(), StoreError> {
    let Kept { client, name, conversation, turns, inputs, prefixes, forgotten, .. } = kept;
    store.cache.forget_prefixes(client, name, prefixes);
    let holder = if store.is_shared { store.holder.as_str() } else { "" };
    let sql =
        "UPDATE conversations SET used = {used}, holder = '', held_until = 0 WHERE id = $1 AND holder = $2";
    let update = sqlx::query(store.timed(sql)).bind(conversation).bind(holder);
    if update.execute(&mut **tx).await?.rows_affected() != 1 {
        return Err(StoreError::Overtaken);
    }
    let insert = sqlx::query(INSERT).bind(conversation).bind(turns).bind(kept.bytes());
    let insert = insert.bind(prefixes.join(" ")).bind(*inputs);
    if insert.execute(&mut **tx).await?.rows_affected() != 1 {
        return Err(StoreError::Overtaken);
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
    super::keep_log(store, tx).await
}

/// What was put into a conversation, turn by turn, from number `from` on.
async fn inputs(tx: &mut Transaction, id: i64, from: i64) -> Result<Vec<String>, StoreError> {
    let sql = "SELECT inputs FROM turns WHERE conversation = $1 AND number >= $2 ORDER BY number";
    let rows = sqlx::query(sql).bind(id).bind(from).fetch_all(&mut **tx).await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

async fn delete_named(tx: &mut Transaction, client: &str, name: &str) -> Result<(), StoreError> {
    // From here on, nobody keeps a turn of it.
    let sql = "UPDATE conversations SET used = used WHERE client = $1 AND name = $2 RETURNING id";
    match sqlx::query(sql).bind(client).bind(name).fetch_optional(&mut **tx).await? {
        Some(row) => delete(tx, client, row.try_get(0)?).await,
        None => Ok(()),
    }
}

/// Deletes a conversation that nobody keeps a turn of meanwhile.
async fn delete(tx: &mut Transaction, client: &str, id: i64) -> Result<(), StoreError> {
    let sql = "SELECT prefixes FROM turns WHERE conversation = $1 AND prefixes <> ''";
    let rows = sqlx::query(sql).bind(id).fetch_all(&mut **tx).await?;
    let rows: Vec<String> = rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
    let prefixes: Vec<&str> = rows.iter().flat_map(|row| row.split(' ')).collect();
    for chunk in prefixes.chunks(CHUNK) {
        let sql = format!(
            "DELETE FROM prefixes WHERE client = $1 AND conversation = $2 AND prefix IN ({})",
            places(3, chunk.len())
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(client).bind(id);
        chunk.iter().fold(query, |query, prefix| query.bind(*prefix)).execute(&mut **tx).await?;
    }
    // Its turns with it.
    let sql = "DELETE FROM conversations WHERE id = $1";
    sqlx::query(sql).bind(id).execute(&mut **tx).await?;
    Ok(())
}

/// So many places for values, from number `first` on.
fn places(first: usize, count: usize) -> String {
    let places: Vec<String> = (first..first + count).map(|number| format!("${number}")).collect();
    places.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Place;

    /// Others get a conversation after a while whose gateway does not go on with it, also if it could not let it go.
    #[test]
    fn only_what_is_gone_on_with_is_held_on_to() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut store = Store::open(&Place::Memory).await.unwrap();
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
            // A database that is shared speaks another language; who is noted is the same.
            store.is_shared = true;
            for name in ["used", "left", "let go", "another's"] {
                store.note_held("c", name, true);
            }
            store.note_held("c", "left", false);
            store.is_shared = false;
            store.hold_on().await.unwrap();
            let sql = "SELECT name FROM conversations WHERE held_until > 1";
            let rows = sqlx::query(sql).fetch_all(&store.pool).await.unwrap();
            let held: Vec<String> = rows.iter().map(|row| row.try_get(0).unwrap()).collect();
            assert_eq!(held, ["used"]);
        });
    }

    /// However many were not used for long, they are gone, with what they began with.
    #[tokio::test]
    async fn what_is_not_used_for_long_is_deleted() {
        let store = Store::open(&Place::Memory).await.unwrap();
        let keep = async |name: &str| {
            let conversation = store.open_conversation(("c", name), "basis", "key", 0).await.unwrap().id;
            let prefixes = [format!("prefix-{name}")];
            let kept = Kept {
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
            store.keep_alone(&kept).unwrap();
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

    /// It is said of a conversation that it is used, but not with every turn.
    #[tokio::test]
    async fn a_turn_says_that_its_conversation_is_used_if_that_is_old() {
        let store = Store::open(&Place::Memory).await.unwrap();
        let id = store.open_conversation(("c", "one"), "basis", "key", 0).await.unwrap().id;
        let used = async || -> i64 {
            sqlx::query_scalar("SELECT used FROM conversations").fetch_one(&store.pool).await.unwrap()
        };
        sqlx::query("UPDATE conversations SET used = 1").execute(&store.pool).await.unwrap();
        for (turns, is_stale) in [(0, false), (1, true)] {
            let kept = Kept {
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
            store.keep_alone(&kept).unwrap();
            assert_eq!(used().await > 1, is_stale);
        }
    }
}
