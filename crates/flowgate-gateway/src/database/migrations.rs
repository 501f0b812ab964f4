//! Lists the migrations that create the tables of the database, and checks that the tables have the schema of this
//! program. Each backend applies the migrations when a gateway opens the database.

use std::cmp::Ordering;

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, SqlColumn};

/// The migrations in order: number, name and SQL. A migration that has been released never changes. Each backend
/// replaces `{number}` (the type of a key that numbers its rows) and `{in_one_place}` (an option that stores the rows
/// in the index of the key) by its own SQL.
pub(super) const MIGRATIONS: [(i64, &str, &str); 14] = [
    (1, "conversations", include_str!("../../migrations/1_conversations.sql")),
    (2, "questions", include_str!("../../migrations/2_questions.sql")),
    (3, "tools", include_str!("../../migrations/3_tools.sql")),
    (4, "numbers", include_str!("../../migrations/4_numbers.sql")),
    (5, "audit logs", include_str!("../../migrations/5_audit_logs.sql")),
    (6, "quotations", include_str!("../../migrations/6_quotations.sql")),
    (7, "request quotas", include_str!("../../migrations/7_request_quotas.sql")),
    (8, "grants", include_str!("../../migrations/8_grants.sql")),
    (9, "lasting grants", include_str!("../../migrations/9_lasting_grants.sql")),
    (10, "spending", include_str!("../../migrations/10_spending.sql")),
    (11, "virtual keys", include_str!("../../migrations/11_virtual_keys.sql")),
    (12, "encryption", include_str!("../../migrations/12_encryption.sql")),
    (13, "conversation grants", include_str!("../../migrations/13_conversation_grants.sql")),
    (14, "approvers", include_str!("../../migrations/14_approvers.sql")),
];

impl Database {
    /// Checks that the newest applied migration is the newest one of this program; changes nothing.
    ///
    /// # Errors
    /// [`DatabaseError::SchemaOlder`] if migrations are missing or there are no tables, [`DatabaseError::SchemaNewer`]
    /// if a newer program has migrated the tables; also if the database fails.
    pub(super) async fn check_schema(&self) -> Result<(), DatabaseError> {
        let version = self.run(Access::Query, |tx| {
            Box::pin(async move {
                let rows = tx.query("SELECT MAX(version) FROM _sqlx_migrations", &[]).await?;
                Ok(match rows.first().and_then(|row| row.0.first()) {
                    Some(SqlColumn::Integer(version)) => Some(*version),
                    _ => None,
                })
            })
        });
        let version = match version.await {
            Ok(version) => version,
            Err(error) if error.is_missing_table() => None,
            Err(error) => return Err(error),
        };
        let newest = MIGRATIONS.last().map(|(version, ..)| *version);
        // `None`, no applied migration, is less than every number.
        match version.cmp(&newest) {
            Ordering::Less => Err(DatabaseError::SchemaOlder),
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(DatabaseError::SchemaNewer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;
    use crate::database::postgres::tests as postgres;
    use crate::database::sqlite;

    /// A conversation of each of two clients, and one without turns.
    const OLD: [&str; 3] = [
        "INSERT INTO conversations (client, name, basis, key, turns, bytes, used, holder, held_until) \
         VALUES ('c', 'one', 'b', 'k1', 2, 5, 7, '', 0), ('d', 'one', 'b', 'k2', 1, 2, 8, '', 0), ('c', 'none', 'b', 'k3', 0, 0, 9, '', 0)",
        "INSERT INTO turns (client, name, number, inputs) \
         VALUES ('c', 'one', 0, 'i0'), ('c', 'one', 1, 'ü1'), ('d', 'one', 0, 'j0')",
        "INSERT INTO prefixes (client, prefix, name) \
         VALUES ('c', 'p0', 'one'), ('c', 'p1', 'one'), ('d', 'p0', 'one')",
    ];

    async fn check(place: &DatabaseAddress) {
        // First there is no file, then there are no tables, then older ones.
        for count in [0, 3] {
            assert!(matches!(Database::read(place).await, Err(DatabaseError::SchemaOlder)));
            let rows: &[_] = if count == 0 { &[] } else { &OLD };
            match place {
                DatabaseAddress::Postgres(url) => postgres::create_earlier(url, count, rows).await,
                _ => sqlite::tests::create_earlier(place.file().unwrap(), count, rows),
            }
        }
        assert!(matches!(Database::read(place).await, Err(DatabaseError::SchemaOlder)));

        let store = Database::open(place).await.unwrap();
        Database::read(place).await.unwrap();
        for (client, name, key, inputs) in [
            ("c", "one", "k1", vec!["i0", "ü1"]),
            ("d", "one", "k2", vec!["j0"]),
            ("c", "none", "k3", vec![]),
        ] {
            let past = store.read_journal(client, name).await.unwrap().unwrap();
            assert_eq!(
                (past.key.as_str(), past.inputs),
                (key, inputs.iter().map(|one| (*one).into()).collect())
            );
        }
        let opened = store.open_conversation(("c", "one"), "b", "k", 0).await.unwrap();
        assert_eq!((opened.turns, opened.bytes, opened.inputs.len()), (2, 5, 2));
        for (client, prefix, name) in [("c", "p1", Some("one")), ("d", "p0", Some("one")), ("d", "p1", None)]
        {
            let found = store.find_by_chat(client, &[prefix.to_owned()]).await.unwrap();
            assert_eq!(found.as_deref(), name, "{client} {prefix}");
        }
        // Nothing of the first remains, and all of the second.
        store.delete_conversation("c", "one").await.unwrap();
        let count = async |sql: &str| -> i64 {
            store.query_for_test(sql).await.unwrap().first().unwrap().integer(0).unwrap()
        };
        assert_eq!(count("SELECT COUNT(*) FROM prefixes").await, 1);
        assert_eq!(count("SELECT COUNT(*) FROM turns").await, 1);
        let again = store.open_conversation(("c", "one"), "b", "k", 0).await.unwrap();
        assert!(again.id > opened.id, "{again:?}");
        // All of them were used long ago, except the new one.
        assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 2);
        assert_eq!(count("SELECT COUNT(*) FROM prefixes").await, 0);
        assert_eq!(count("SELECT COUNT(*) FROM conversations").await, 1);

        store.execute_for_test("UPDATE _sqlx_migrations SET version = 1000 WHERE version = 8").await.unwrap();
        drop(store);
        assert!(matches!(Database::read(place).await, Err(DatabaseError::SchemaNewer)));
        assert!(matches!(Database::open(place).await, Err(DatabaseError::SchemaNewer)));
    }

    #[tokio::test]
    async fn what_was_kept_when_conversations_had_no_numbers_is_still_there() {
        let file = std::env::temp_dir().join(format!("flowgate-numbers-{}.db", std::process::id()));
        check(&DatabaseAddress::File(file.clone())).await;
        for more in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{more}", file.display()));
        }
        let Some(url) = postgres::create_database("numbers").await else { return };
        check(&DatabaseAddress::Postgres(url)).await;
    }
}
