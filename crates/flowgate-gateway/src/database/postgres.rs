//! Implements [`Backend`], the trait that runs the operations of the database, for PostgreSQL. Any number of gateways
//! can share a PostgreSQL database. `database` opens it if the configuration names the address of a server.

use std::borrow::Cow;
use std::pin::Pin;
use std::time::Duration;

use sqlx_core::column::Column as _;
use sqlx_core::connection::Connection as _;
use sqlx_core::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx_core::pool::PoolConnection;
use sqlx_core::query::{Query, query};
use sqlx_core::raw_sql::raw_sql;
use sqlx_core::row::Row as _;
use sqlx_core::sql_str::{AssertSqlSafe, SqlSafeStr as _};
use sqlx_core::type_info::TypeInfo as _;
use sqlx_core::value::ValueRef as _;
use sqlx_postgres::{PgArguments, PgConnection, PgPool, PgPoolOptions, PgRow, PgTransaction, Postgres};

use super::error::{DatabaseError, MigrationError, PATIENCE};
use super::migrations::MIGRATIONS;
use super::transaction::{
    Access, Backend, Operation, OperationFuture, SqlColumn, SqlRow, SqlValue, Transaction, TurnTransaction,
    expand_statement,
};

/// The most connections of one gateway.
const CONNECTIONS: u32 = 16;
/// The time for which [`Backend::close`] waits for connections in use.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The SQL for the time of the database, in milliseconds since 1970.
const NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)";

/// A pool of connections.
#[derive(Debug)]
pub(super) struct PostgresDatabase(PgPool);

impl PostgresDatabase {
    /// Opens a pool of connections, each with time limits on its statements. A connection that has failed, or whose
    /// transaction has not ended when it is returned, is not used again. One that was idle for 5 minutes, or is 30
    /// minutes old, is closed.
    pub(super) async fn connect(url: &str) -> Result<Self, DatabaseError> {
        let options = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .acquire_timeout(PATIENCE)
            .test_before_acquire(true)
            .idle_timeout(Duration::from_secs(300))
            .max_lifetime(Duration::from_secs(1800))
            .after_connect(|connection, _| Box::pin(limit_times(connection)))
            .after_release(|connection, _| Box::pin(is_reusable(connection)));
        Ok(Self(options.connect(url).await?))
    }

    /// Applies the migrations that were not applied before. Gateways that start at the same time migrate one after
    /// the other.
    ///
    /// # Errors
    /// If a newer version has migrated the tables, or a migration fails.
    pub(super) async fn migrate(&self) -> Result<(), DatabaseError> {
        let mut connection = self.0.acquire().await?;
        // Migrating a large database may take long, and waits for other gateways that migrate it.
        raw_sql("SET statement_timeout = 0; SET lock_timeout = 0").execute(&mut *connection).await?;
        let migrated = migrator(MIGRATIONS.len()).run(&mut *connection).await.map_err(|error| match error {
            MigrateError::VersionMissing(_) => DatabaseError::SchemaNewer,
            error => DatabaseError::Migration(MigrationError::Postgres(error)),
        });
        // The connection returns to the pool, whose connections have limits.
        limit_times(&mut connection).await?;
        migrated
    }
}

/// Sets time limits on statements, on waiting for locks, and on idle transactions of a connection. Without them, a
/// statement for which the gateway no longer waits, or whose connection has failed, could hold its locks for hours.
async fn limit_times(connection: &mut PgConnection) -> Result<(), sqlx_core::Error> {
    let limit = PATIENCE.as_millis();
    let sql = format!(
        "SET statement_timeout = {limit}; SET lock_timeout = {limit}; \
         SET idle_in_transaction_session_timeout = {limit}"
    );
    raw_sql(AssertSqlSafe(sql)).execute(connection).await.map(drop)
}

/// Returns the first `count` migrations in the SQL of PostgreSQL. The gateway applies all of them; tests apply fewer,
/// to create the tables of an earlier version.
fn migrator(count: usize) -> Migrator {
    let migrations = MIGRATIONS.iter().take(count).map(|(version, name, sql)| {
        // `{number}` is the type of a key that numbers its rows, and `{in_one_place}` an option that only SQLite has.
        let sql = sql
            .replace("{number}", "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY")
            .replace("{in_one_place}", "");
        let sql = AssertSqlSafe(sql).into_sql_str();
        // `false`: the migration runs in a transaction.
        Migration::new(*version, (*name).into(), MigrationType::Simple, sql, false)
    });
    Migrator::with_migrations(migrations.collect())
}

/// Returns whether the pool can use a returned connection again: whether the connection is in no transaction. The pool
/// closes every other connection.
async fn is_reusable(connection: &mut PgConnection) -> Result<bool, sqlx_core::Error> {
    if !connection.is_in_transaction() {
        return Ok(true);
    }
    // The rollback of a dropped transaction may still be in progress.
    let answered = tokio::time::timeout(PATIENCE, connection.ping()).await;
    Ok(matches!(answered, Ok(Ok(()))) && !connection.is_in_transaction())
}

impl Backend for PostgresDatabase {
    /// Runs an operation on a connection of the pool, in a transaction if `access` requires one.
    fn run(&self, access: Access, operation: Operation) -> OperationFuture<'_, ()> {
        Box::pin(async move {
            if access.is_transaction() {
                return finish(self.0.begin().await?, operation).await;
            }
            let mut connection: PoolConnection<Postgres> = self.0.acquire().await?;
            // Outside a transaction, each statement is committed by itself. So the actions that wait for a commit run
            // after the last statement.
            let mut statements = PostgresTransaction::new(&mut connection);
            operation(&mut statements).await?;
            statements.on_commit_actions.into_iter().for_each(|action| action());
            Ok(())
        })
    }

    /// Begins the transaction of a turn, and runs `first` in it at once.
    fn begin_turn<'b>(
        &'b self,
        _: &'b str,
        first: Operation,
    ) -> OperationFuture<'b, Box<dyn TurnTransaction>> {
        Box::pin(async move {
            // The tenant's name is not needed: `first` locks the tenant's row until the transaction ends.
            let mut turn = self.0.begin().await?;
            first(&mut PostgresTransaction::new(&mut turn)).await?;
            Ok(Box::new(PostgresTurn(turn)) as Box<dyn TurnTransaction>)
        })
    }

    /// Closes the connections after their operations have ended, at most after [`CLOSE_TIMEOUT`].
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        // After the time limit, the process ends with open connections; the server rolls back what they have begun.
        Box::pin(async { drop(tokio::time::timeout(CLOSE_TIMEOUT, self.0.close()).await) })
    }

    /// Does nothing: a server has no lock file that names the expected database.
    fn check_database(&self, _: &str) -> Result<(), DatabaseError> {
        Ok(())
    }

    /// Does nothing: a server has no lock file that could name this database.
    fn accept_database(&self, _: &str) -> Result<(), DatabaseError> {
        Ok(())
    }
}

/// The transaction of a turn, with the locks that its first statements took.
struct PostgresTurn(PgTransaction<'static>);

impl TurnTransaction for PostgresTurn {
    /// Runs the last operation of the turn. Then commits the transaction, or rolls it back if the operation has failed
    /// or has discarded it.
    fn finish(self: Box<Self>, last: Operation) -> OperationFuture<'static, ()> {
        Box::pin(finish(self.0, last))
    }
}

/// Runs an operation in a transaction. Then commits the transaction and runs the actions that wait for the commit, or
/// rolls it back if the operation has discarded it. An error drops the transaction, and with that rolls it back.
async fn finish(mut transaction: PgTransaction<'static>, operation: Operation) -> Result<(), DatabaseError> {
    let mut statements = PostgresTransaction::new(&mut transaction);
    operation(&mut statements).await?;
    let PostgresTransaction { is_discarded, on_commit_actions, .. } = statements;
    if is_discarded {
        transaction.rollback().await?;
    } else {
        transaction.commit().await?;
        on_commit_actions.into_iter().for_each(|action| action());
    }
    Ok(())
}

/// The statements of an operation on one connection.
struct PostgresTransaction<'c> {
    connection: &'c mut PgConnection,
    /// Whether the operation wants its changes to be rolled back.
    is_discarded: bool,
    /// The actions that run after the commit.
    on_commit_actions: Vec<Box<dyn FnOnce() + Send>>,
}

impl<'c> PostgresTransaction<'c> {
    /// Begins an operation on a connection.
    fn new(connection: &'c mut PgConnection) -> Self {
        Self { connection, is_discarded: false, on_commit_actions: Vec::new() }
    }
}

impl Transaction for PostgresTransaction<'_> {
    fn query<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, Vec<SqlRow>> {
        Box::pin(async move {
            let rows = statement(sql, values).fetch_all(&mut *self.connection).await?;
            rows.iter().map(read_row).collect()
        })
    }

    fn execute<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, u64> {
        Box::pin(
            async move { Ok(statement(sql, values).execute(&mut *self.connection).await?.rows_affected()) },
        )
    }

    /// Marks the transaction, which is then rolled back at its end.
    fn discard(&mut self) {
        self.is_discarded = true;
    }

    /// Keeps the action until the transaction is committed.
    fn on_commit(&mut self, action: Box<dyn FnOnce() + Send>) {
        self.on_commit_actions.push(action);
    }
}

/// Builds a statement in the syntax of PostgreSQL, with its values.
fn statement<'v>(sql: &str, values: &[SqlValue<'v>]) -> Query<'v, Postgres, PgArguments> {
    let sql: Cow<'_, str> = expand_statement(sql, NOW);
    // `?1` is written `$1` in PostgreSQL. A statement must contain no other question mark.
    let query = query(AssertSqlSafe(sql.replace('?', "$")));
    values.iter().fold(query, |query, value| match value {
        SqlValue::Integer(value) => query.bind(*value),
        SqlValue::Text(value) => query.bind(*value),
    })
}

/// Converts a row of PostgreSQL, whose integers have several types, to the form that both backends share.
fn read_row(row: &PgRow) -> Result<SqlRow, DatabaseError> {
    let read = |index: usize, kind: &str| -> Result<SqlColumn, DatabaseError> {
        if row.try_get_raw(index)?.is_null() {
            return Ok(SqlColumn::Null);
        }
        match kind {
            "INT8" => Ok(SqlColumn::Integer(row.try_get(index)?)),
            "INT4" => Ok(SqlColumn::Integer(i64::from(row.try_get::<i32, _>(index)?))),
            // The other columns of the tables are text.
            _ => Ok(SqlColumn::Text(row.try_get(index)?)),
        }
    };
    let columns = row.columns().iter().enumerate();
    let columns = columns.map(|(index, column)| read(index, column.type_info().name()));
    Ok(SqlRow(columns.collect::<Result<_, _>>()?))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates a database on the server of the tests, and returns its address; `None` if there is no such server.
    pub(in crate::database) async fn create_database(test: &str) -> Option<String> {
        let url = std::env::var("FLOWGATE_TEST_POSTGRES").ok()?;
        let name = format!("{test}_{}", std::process::id());
        let mut connection = PgConnection::connect(&url).await.unwrap();
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        query(create).execute(&mut connection).await.unwrap();
        let (server, _) = url.rsplit_once('/').unwrap();
        Some(format!("{server}/{name}"))
    }

    /// Creates the tables of an earlier version, which had `count` migrations, with rows.
    pub(in crate::database) async fn create_earlier(url: &str, count: usize, rows: &[&'static str]) {
        let mut connection = PgConnection::connect(url).await.unwrap();
        migrator(count).run(&mut connection).await.unwrap();
        for sql in rows {
            query(*sql).execute(&mut connection).await.unwrap();
        }
        connection.close().await.unwrap();
    }
}
