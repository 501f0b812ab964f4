//! Applies the migrations of the schema to a SQLite database, when `sqlite` opens it. The applied migrations are
//! recorded in the table and the format of sqlx, since earlier versions of the gateway used that crate.

use std::collections::BTreeMap;

use rusqlite::{Connection, params};
use sha2::{Digest as _, Sha384};

use super::connection::SqliteConnection;
use crate::database::error::{DatabaseError, MigrationError};
use crate::database::migrations::MIGRATIONS;

/// The statement that creates the table of applied migrations, in the format of sqlx.
const RECORDS: &str = "CREATE TABLE IF NOT EXISTS _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
)";

/// Applies all migrations of this program that were not applied before.
///
/// # Errors
/// If a newer version has migrated the tables, an applied migration differs from the one of this program, or a
/// statement fails.
pub(super) fn migrate(connection: &mut SqliteConnection) -> Result<(), DatabaseError> {
    migrate_to(&mut connection.connection, MIGRATIONS.len())
}

/// Applies the migrations among the first `count` that were not applied before, each in one transaction with its
/// record.
///
/// # Errors
/// If the database has a migration that this program does not know, or one that was applied in part; nothing is changed
/// in these two cases. Also if a migration was applied with other statements, or a statement fails; the migrations
/// before it stay applied.
pub(super) fn migrate_to(connection: &mut Connection, count: usize) -> Result<(), DatabaseError> {
    connection.execute_batch(RECORDS)?;
    // Reads which migrations were applied, and the checksums of their statements.
    let mut applied = BTreeMap::new();
    {
        let mut select = connection.prepare("SELECT version, checksum, success FROM _sqlx_migrations")?;
        let mut rows = select.query([])?;
        while let Some(row) = rows.next()? {
            let (version, checksum, success): (i64, Vec<u8>, bool) = (row.get(0)?, row.get(1)?, row.get(2)?);
            if !success {
                return Err(DatabaseError::Migration(MigrationError::Partial(version)));
            }
            applied.insert(version, checksum);
        }
    }
    if applied.keys().any(|version| !MIGRATIONS.iter().any(|(known, ..)| known == version)) {
        return Err(DatabaseError::SchemaNewer);
    }
    for (version, name, sql) in MIGRATIONS.iter().take(count) {
        let sql = sql
            // The parts of the SQL that differ between SQLite and PostgreSQL.
            .replace("{number}", "INTEGER PRIMARY KEY AUTOINCREMENT")
            .replace("{in_one_place}", "WITHOUT ROWID");
        let checksum = Sha384::digest(&sql).to_vec();
        // Skips an applied migration, and refuses one that was applied with other statements.
        match applied.get(version) {
            Some(applied_checksum) if *applied_checksum == checksum => continue,
            Some(_) => return Err(DatabaseError::Migration(MigrationError::Changed(*version))),
            None => {}
        }
        // Applies the migration and records it.
        let failed = |error| DatabaseError::Migration(MigrationError::Sqlite(*version, error));
        let migration = connection.transaction().map_err(failed)?;
        migration.execute_batch(&sql).map_err(failed)?;
        let insert = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
                      VALUES (?1, ?2, TRUE, ?3, 0)";
        migration.execute(insert, params![version, name, checksum]).map_err(failed)?;
        migration.commit().map_err(failed)?;
    }
    Ok(())
}
