//! The tables of the store, as a sequence of migrations.

use std::cmp::Ordering;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::{AnyPool, AssertSqlSafe, SqlSafeStr as _};

use super::DatabaseError;

/// The migrations in order. A migration that has been released never changes.
const MIGRATIONS: [(i64, &str, &str); 6] = [
    (1, "conversations", include_str!("../../migrations/1_conversations.sql")),
    (2, "questions", include_str!("../../migrations/2_questions.sql")),
    (3, "tools", include_str!("../../migrations/3_tools.sql")),
    (4, "numbers", include_str!("../../migrations/4_numbers.sql")),
    (5, "audit logs", include_str!("../../migrations/5_audit_logs.sql")),
    (6, "quotations", include_str!("../../migrations/6_quotations.sql")),
];

/// Migrates the tables of a PostgreSQL database or of a SQLite file.
pub(super) async fn run(pool: &AnyPool, is_postgres: bool) -> Result<(), DatabaseError> {
    first(MIGRATIONS.len(), is_postgres).run(pool).await.map_err(|error| match error {
        MigrateError::VersionMissing(_) => DatabaseError::SchemaNewer,
        error => DatabaseError::Migration(error),
    })
}

/// Checks that the tables are those of this program; changes nothing.
pub(super) async fn check(pool: &AnyPool) -> Result<(), DatabaseError> {
    let sql = "SELECT MAX(version) FROM _sqlx_migrations";
    let version: Option<i64> = match sqlx::query_scalar(sql).fetch_one(pool).await {
        Ok(version) => version,
        // The table of migrations does not exist.
        Err(sqlx::Error::Database(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let newest = MIGRATIONS.last().map(|(version, ..)| *version);
    match version.cmp(&newest) {
        Ordering::Less => Err(DatabaseError::SchemaOlder),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(DatabaseError::SchemaNewer),
    }
}

/// Returns the first `count` migrations. Braces stand for what the databases spell differently.
fn first(count: usize, is_postgres: bool) -> Migrator {
    let (number, in_one_place) = match is_postgres {
        true => ("BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY", ""),
        false => ("INTEGER PRIMARY KEY AUTOINCREMENT", "WITHOUT ROWID"),
    };
    let migrations = MIGRATIONS.iter().take(count).map(|(version, name, sql)| {
        let sql = AssertSqlSafe(sql.replace("{number}", number).replace("{in_one_place}", in_one_place));
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql.into_sql_str(), false)
    });
    Migrator::with_migrations(migrations.collect())
}

#[cfg(test)]
mod tests {
    use sqlx::{AnyConnection, Connection as _};

    use super::super::{Database, DatabaseAddress, DatabaseError};
    use super::first;

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
        sqlx::any::install_default_drivers();
        let url = place.url("");
        // First there is no file, then there are no tables.
        assert!(place.is_shared() || matches!(Database::read(place).await, Err(DatabaseError::SchemaOlder)));
        let mut old = AnyConnection::connect(&url).await.unwrap();
        assert!(matches!(Database::read(place).await, Err(DatabaseError::SchemaOlder)));
        first(3, place.is_shared()).run(&mut old).await.unwrap();
        for sql in OLD {
            sqlx::query(sql).execute(&mut old).await.unwrap();
        }
        old.close().await.unwrap();
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
        let count = async |sql: &'static str| -> i64 {
            sqlx::query_scalar(sql).fetch_one(&store.pool).await.unwrap()
        };
        assert_eq!(count("SELECT COUNT(*) FROM prefixes").await, 1);
        assert_eq!(count("SELECT COUNT(*) FROM turns").await, 1);
        let again = store.open_conversation(("c", "one"), "b", "k", 0).await.unwrap();
        assert!(again.id > opened.id, "{again:?}");
        // All of them were used long ago, except the new one.
        assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 2);
        assert_eq!(count("SELECT COUNT(*) FROM prefixes").await, 0);
        assert_eq!(count("SELECT COUNT(*) FROM conversations").await, 1);

        sqlx::query("UPDATE _sqlx_migrations SET version = 1000 WHERE version = 6")
            .execute(&store.pool)
            .await
            .unwrap();
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
        let Ok(url) = std::env::var("FLOWGATE_TEST_POSTGRES") else { return };
        let name = format!("numbers_{}", std::process::id());
        let mut connection = AnyConnection::connect(&url).await.unwrap();
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::query(create).execute(&mut connection).await.unwrap();
        let (server, _) = url.rsplit_once('/').unwrap();
        check(&DatabaseAddress::Postgres(format!("{server}/{name}"))).await;
    }
}
