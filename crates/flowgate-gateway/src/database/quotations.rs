//! Stores the texts that clients were shown, with their labels, so that the guard recognises quotations of these texts
//! also after a restart and at other gateways. Also stores texts that users typed before any tool returned them: these
//! remain the users' own, so quoting them raises no label. `turns` stores the texts. `chat`, and the replays of stored
//! conversations for people, read them; `chat` also lists and clears them for an admin.
//!
//! Each text has a source: the tool or the conversation that it is from. If the texts of one source exceed the limit of
//! the guard's history for one source, the oldest ones are deleted. Texts outlive the conversations, and are deleted
//! after a configured time.

use std::ops::Range;
use std::sync::Arc;

use super::Database;
use super::encryption::{Content, ContentCipher, ContentPlace};
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction, SqlRow};

/// A normalized text that a client was shown or that its user typed, with its source and its label in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownText {
    pub(crate) source: String,
    pub(crate) label: Content,
    pub(crate) text: Content,
}

/// The texts of a client.
#[derive(Debug, Default)]
pub(crate) struct ShownTexts {
    pub(crate) texts: Vec<ShownText>,
    /// The number of the last text plus 1.
    pub(crate) next: i64,
    /// Whether any text was ever forgotten.
    pub(crate) has_forgotten: bool,
    /// How often an admin has cleared texts. A gateway that has read texts at a smaller number drops them.
    pub(crate) cleared: i64,
}

/// The amount of text that is stored of one source of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceUsage {
    pub(crate) source: String,
    /// The number of texts.
    pub(crate) texts: i64,
    /// The number of characters of all texts.
    pub(crate) characters: i64,
    /// The times at which the oldest and the newest were persisted, in milliseconds since 1970; 0 if unknown.
    pub(crate) oldest: i64,
    pub(crate) newest: i64,
}

/// The texts that a client was shown in a turn, to be persisted with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewShownTexts {
    pub(crate) client: String,
    /// The number of the first text that the caller does not know.
    pub(crate) from: i64,
    pub(crate) texts: Vec<ShownText>,
    /// The sources that exceeded their limit, each with the most characters that may be stored of it.
    pub(crate) full: Vec<(String, i64)>,
}

impl Database {
    /// Returns the texts that a client was shown, from number `from` on.
    pub(crate) async fn shown_texts(&self, client: &str, from: i64) -> Result<ShownTexts, DatabaseError> {
        let (client, cipher) = (client.to_owned(), Arc::clone(&self.cipher));
        self.run(Access::Snapshot, move |tx| {
            Box::pin(async move {
                let sql = "SELECT forgotten, cleared FROM clients WHERE client = ?1";
                let (forgotten, cleared) = match tx.query(sql, &[(&client).into()]).await?.first() {
                    Some(row) => (row.integer(0)?, row.integer(1)?),
                    None => (0, 0),
                };
                let (texts, next) = read(tx, &client, from..i64::MAX, &cipher).await?;
                Ok(ShownTexts { texts, next, has_forgotten: forgotten > 0, cleared })
            })
        })
        .await
    }

    /// Returns how much text of each source of a client is stored, and how often texts of the client were forgotten:
    /// deleted to make room or because of their age, or cleared by an admin.
    pub(crate) async fn source_usages(&self, client: &str) -> Result<(Vec<SourceUsage>, i64), DatabaseError> {
        let client = client.to_owned();
        self.run(Access::Snapshot, move |tx| {
            Box::pin(async move {
                // `kept` is the column of the time of insertion, whose name a released migration fixes.
                let sql = "SELECT source, CAST(COUNT(*) AS BIGINT), CAST(SUM(characters) AS BIGINT), MIN(kept), MAX(kept) \
                           FROM seen WHERE client = ?1 GROUP BY source ORDER BY source";
                let usage = |row: &mut SqlRow| {
                    Ok(SourceUsage {
                        source: row.text(0)?,
                        texts: row.integer(1)?,
                        characters: row.integer(2)?,
                        oldest: row.integer(3)?,
                        newest: row.integer(4)?,
                    })
                };
                let mut rows = tx.query(sql, &[(&client).into()]).await?;
                let usages = rows.iter_mut().map(usage).collect::<Result<_, DatabaseError>>()?;
                let sql = "SELECT forgotten FROM clients WHERE client = ?1";
                let rows = tx.query(sql, &[(&client).into()]).await?;
                Ok((usages, rows.first().map_or(Ok(0), |row| row.integer(0))?))
            })
        })
        .await
    }

    /// Deletes the stored texts of one source of a client (a tool, for example), or of all its sources if `source` is
    /// `None`, and returns their number. Quotations of these texts are not recognised any more. Counts the deletion in
    /// two columns: `forgotten` says that the stored texts are not complete, and `cleared` makes every gateway drop the
    /// texts in its memory.
    pub(crate) async fn clear_shown_texts(
        &self,
        client: &str,
        source: Option<&str>,
    ) -> Result<u64, DatabaseError> {
        let (client, source) = (client.to_owned(), source.map(storable_source));
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // Locks the client's row: a transaction that adds a text waits.
                let sql = "INSERT INTO clients (client, seen, forgotten, cleared) VALUES (?1, 0, 1, 1) \
                           ON CONFLICT (client) DO UPDATE SET forgotten = clients.forgotten + 1, cleared = clients.cleared + 1";
                tx.execute(sql, &[(&client).into()]).await?;
                match &source {
                    Some(source) => {
                        let sql = "DELETE FROM seen WHERE client = ?1 AND source = ?2";
                        tx.execute(sql, &[(&client).into(), source.into()]).await
                    }
                    None => tx.execute("DELETE FROM seen WHERE client = ?1", &[(&client).into()]).await,
                }
            })
        })
        .await
    }

    /// Deletes the texts that were persisted more than `age` milliseconds ago, and counts for their clients that texts
    /// were forgotten (`forgotten`). The column `kept` has the time at which a text was persisted, or 0 if that is
    /// unknown. A text whose time is unknown, or in the future because the clock was set back, counts as persisted now.
    pub(crate) async fn delete_old_shown_texts(&self, age: i64) -> Result<(), DatabaseError> {
        self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // The backend replaces `{now}` by its time. Clocks may differ by a minute (60,000 ms).
                tx.execute("UPDATE seen SET kept = {now} WHERE kept = 0 OR kept > {now} + 60000", &[])
                    .await?;
                // Runs before the deletion, since the statement finds the clients by the texts to be deleted.
                let sql = "UPDATE clients SET forgotten = forgotten + 1 \
                           WHERE client IN (SELECT client FROM seen WHERE kept < {now} - ?1)";
                tx.execute(sql, &[age.into()]).await?;
                tx.execute("DELETE FROM seen WHERE kept < {now} - ?1", &[age.into()]).await.map(drop)
            })
        })
        .await
    }
}

/// Persists the texts that a client was shown in a turn, and deletes the oldest texts of the sources that exceed their
/// limit (`new.full`). Returns the texts that other gateways have persisted since number `new.from`, and the number
/// that the next text will have.
pub(super) async fn persist_shown_texts(
    tx: &mut DynTransaction<'_>,
    new: &NewShownTexts,
    cipher: &ContentCipher,
) -> Result<(Vec<ShownText>, i64), DatabaseError> {
    let NewShownTexts { client, from: first_unknown, texts, full } = new;
    let count = i64::try_from(texts.len()).unwrap_or(i64::MAX);
    let sql = "INSERT INTO clients (client, seen) VALUES (?1, ?2) \
               ON CONFLICT (client) DO UPDATE SET seen = clients.seen + ?2 RETURNING seen";
    let rows = tx.query(sql, &[client.into(), count.into()]).await?;
    let no_row = DatabaseError::Bug("the database returned no row for a client that was just written");
    let next = rows.first().ok_or(no_row)?.integer(0)?;
    // The new texts have the numbers from `first_new` on; other gateways have stored those from `first_unknown` on.
    let first_new = next - count;
    let (others, _) = if *first_unknown < first_new {
        read(tx, client, *first_unknown..first_new, cipher).await?
    } else {
        (Vec::new(), first_new)
    };
    for (number, ShownText { source, label, text }) in (first_new..).zip(texts) {
        // `letters` is the column of the normalised text, whose name a released migration fixes.
        let sql = "INSERT INTO seen (client, number, source, label, letters, characters, kept) \
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, {now})";
        let source = storable_source(source);
        let characters = i64::try_from(text.as_str().chars().count()).unwrap_or(i64::MAX);
        let (text_place, label_place) = ContentPlace::shown(client, number, &source);
        let (text, label) = (cipher.seal(text, &text_place)?, cipher.seal(label, &label_place)?);
        let values = [
            client.into(),
            number.into(),
            (&source).into(),
            (&label).into(),
            (&text).into(),
            characters.into(),
        ];
        tx.execute(sql, &values).await?;
    }
    for (source, limit) in full {
        trim_shown_texts(tx, client, source, *limit).await?;
    }
    Ok((others, next))
}

/// Replaces NUL characters in the name of a source, since PostgreSQL rejects texts with them: clients choose the names
/// of their tools freely.
fn storable_source(source: &str) -> String {
    source.replace('\0', "\u{fffd}")
}

/// Deletes the oldest texts of a source of a client, so that at most `most` characters are left. Counts that texts of
/// the client were forgotten, even if the database has no more than `most` characters and nothing is deleted: the
/// caller names only sources of which its gateway has forgotten texts in memory.
async fn trim_shown_texts(
    tx: &mut DynTransaction<'_>,
    client: &str,
    source: &str,
    most: i64,
) -> Result<(), DatabaseError> {
    // The query adds the lengths from the newest text to the oldest, and deletes the texts beyond the limit.
    let sql = "DELETE FROM seen WHERE client = ?1 AND source = ?2 AND number IN ( \
               SELECT number FROM (SELECT number, SUM(characters) OVER (ORDER BY number DESC) AS total \
               FROM seen WHERE client = ?1 AND source = ?2) AS counted WHERE counted.total > ?3)";
    // The source in its stored form, without NUL characters.
    let source = storable_source(source);
    tx.execute(sql, &[client.into(), (&source).into(), most.into()]).await?;
    let sql = "UPDATE clients SET forgotten = forgotten + 1 WHERE client = ?1";
    tx.execute(sql, &[client.into()]).await.map(drop)
}

/// Reads the texts of a client whose numbers are in the range. Also returns the number of the last text plus 1, or the
/// start of the range if there is no text.
async fn read(
    tx: &mut DynTransaction<'_>,
    client: &str,
    Range { start: from, end: to }: Range<i64>,
    cipher: &ContentCipher,
) -> Result<(Vec<ShownText>, i64), DatabaseError> {
    let sql = "SELECT source, label, letters, number FROM seen \
               WHERE client = ?1 AND number >= ?2 AND number < ?3 ORDER BY number";
    let mut rows = tx.query(sql, &[client.into(), from.into(), to.into()]).await?;
    let (mut texts, mut next) = (Vec::with_capacity(rows.len()), from);
    for row in &mut rows {
        let (source, number) = (row.text(0)?, row.integer(3)?);
        let (text_place, label_place) = ContentPlace::shown(client, number, &source);
        let label = cipher.open_column(row, 1, &label_place)?.into();
        let text = cipher.open_column(row, 2, &text_place)?.into();
        texts.push(ShownText { source, label, text });
        next = number + 1;
    }
    Ok((texts, next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;
    use crate::database::postgres::tests::create_database;

    fn text(source: &str, letters: &str) -> ShownText {
        ShownText { source: source.to_owned(), label: "[]".into(), text: letters.into() }
    }

    async fn persist(
        store: &Database,
        client: &str,
        from: i64,
        texts: &[ShownText],
        full: &[(String, i64)],
    ) -> (Vec<ShownText>, i64) {
        let (texts, full) = (texts.to_vec(), full.to_vec());
        let new = NewShownTexts { client: client.to_owned(), from, texts, full };
        let cipher = Arc::clone(&store.cipher);
        let operation = store.run(Access::Transaction, move |tx| {
            Box::pin(async move { persist_shown_texts(tx, &new, &cipher).await })
        });
        operation.await.unwrap()
    }

    async fn check(place: &DatabaseAddress) {
        let store = Database::open(place).await.unwrap();
        let keep =
            async |client: &str, from: i64, new: &[ShownText]| persist(&store, client, from, new, &[]).await;
        let sources = async |client: &str| -> Vec<(String, i64, i64)> {
            let (held, _) = store.source_usages(client).await.unwrap();
            held.into_iter().map(|held| (held.source, held.texts, held.characters)).collect()
        };
        let all = [text("a", "1234567890"), text("b", "12345"), text("a", "123456"), text("user", "own")];
        assert_eq!(keep("c", 0, all.get(..2).unwrap()).await, (Vec::new(), 2));
        assert_eq!(keep("c", 1, all.get(2..).unwrap()).await, (vec![text("b", "12345")], 4));
        assert_eq!(keep("d", 0, all.get(..1).unwrap()).await.1, 1);
        let recalled = store.shown_texts("c", 0).await.unwrap();
        assert_eq!((recalled.texts.as_slice(), recalled.next), (&all[..], 4));
        assert!(!recalled.has_forgotten && recalled.cleared == 0);
        let of = |source: &str, texts: i64, letters: i64| (source.to_owned(), texts, letters);
        assert_eq!(sources("c").await, [of("a", 2, 16), of("b", 1, 5), of("user", 1, 3)]);
        // The oldest texts of this source are deleted, and none of another.
        persist(&store, "c", 4, &[], &[("a".to_owned(), 10)]).await;
        assert_eq!(sources("c").await, [of("a", 1, 6), of("b", 1, 5), of("user", 1, 3)]);
        assert!(store.shown_texts("c", 0).await.unwrap().has_forgotten);
        assert_eq!(store.clear_shown_texts("c", Some("a")).await.unwrap(), 1);
        assert_eq!(sources("c").await, [of("b", 1, 5), of("user", 1, 3)]);
        assert_eq!(store.shown_texts("c", 0).await.unwrap().cleared, 1);
        // Old texts are deleted as well; a text without a time is dated now.
        store.delete_old_shown_texts(3_600_000).await.unwrap();
        assert_eq!(sources("c").await.len(), 2);
        store.execute_for_test("UPDATE seen SET kept = 5 WHERE source = 'b'").await.unwrap();
        store.execute_for_test("UPDATE seen SET kept = 0 WHERE source = 'user'").await.unwrap();
        store.delete_old_shown_texts(3_600_000).await.unwrap();
        assert_eq!(sources("c").await, [of("user", 1, 3)]);
        assert_eq!(store.clear_shown_texts("c", None).await.unwrap(), 1);
        assert_eq!(sources("d").await, [of("a", 1, 10)]);
        assert_eq!(store.clear_shown_texts("nobody", None).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn what_clients_were_shown_is_kept_by_source() {
        check(&DatabaseAddress::Memory).await;
    }

    #[tokio::test]
    async fn postgres_keeps_it_as_well() {
        let Some(url) = create_database("quotations").await else { return };
        check(&DatabaseAddress::Postgres(url)).await;
    }
}
