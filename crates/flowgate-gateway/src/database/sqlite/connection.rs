//! Opens a connection to SQLite, and runs operations on it: all statements of an operation in one transaction, or each
//! statement by itself, as the [`Access`] of the operation says. `thread` owns the connection.

use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, OpenFlags, ToSql, params_from_iter};

use crate::database::error::DatabaseError;
use crate::database::transaction::{
    Access, Operation, OperationFuture, SqlColumn, SqlRow, SqlValue, Transaction, expand_statement,
};

/// The settings of every connection.
const PRAGMAS: [&str; 6] = [
    "PRAGMA journal_mode = WAL",
    // A crash of the program loses nothing; a crash of the machine may lose the last turns, but never a part of one.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    // For other programs, such as one that makes a backup: this gateway has one writer.
    "PRAGMA busy_timeout = 10000",
    // In pages: 128 MiB. The thread of `checkpoints` checkpoints earlier, but the write-ahead log restarts only while
    // no connection writes.
    "PRAGMA wal_autocheckpoint = 32768",
    // A log that grew beyond this is truncated when it restarts; the truncating connection waits for the disk.
    "PRAGMA journal_size_limit = 67108864",
];
/// The settings of a connection that only reads.
const READ_PRAGMAS: [&str; 1] = ["PRAGMA busy_timeout = 10000"];
/// The number of prepared statements that a connection caches: more than the gateway has.
const STATEMENTS: usize = 128;
/// The SQL for the time of the database, in milliseconds since 1970.
const NOW: &str = "CAST(unixepoch('subsec') * 1000 AS INTEGER)";

/// The file or the memory that a connection opens.
#[derive(Debug, Clone)]
pub(super) enum DatabasePlace {
    /// A file that is read and written.
    File(PathBuf),
    /// A file that is only read.
    FileToRead(PathBuf),
    /// A database in memory, which ends with its last connection.
    Memory(String),
}

impl DatabasePlace {
    /// Opens the connection and applies the settings of [`PRAGMAS`], or of [`READ_PRAGMAS`] if it only reads.
    pub(super) fn connect(&self) -> Result<Connection, DatabaseError> {
        // Each connection is used by one thread, so SQLite needs no mutex.
        let write = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let read = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match self {
            Self::File(path) => Connection::open_with_flags(path, write)?,
            Self::FileToRead(path) => Connection::open_with_flags(path, read)?,
            // `memdb` is the file system of SQLite that keeps a database in memory.
            Self::Memory(name) => {
                Connection::open_with_flags_and_vfs(name, write | OpenFlags::SQLITE_OPEN_CREATE, "memdb")?
            }
        };
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        let pragmas: &[&str] = if matches!(self, Self::FileToRead(_)) { &READ_PRAGMAS } else { &PRAGMAS };
        for pragma in pragmas {
            // Some pragmas return a row, which is not needed.
            connection.prepare(pragma)?.query([])?.next()?;
        }
        Ok(connection)
    }
}

/// A connection that is in no transaction between operations.
#[derive(Debug)]
pub(super) struct SqliteConnection {
    /// Where the connection was opened, to open it again.
    place: DatabasePlace,
    pub(super) connection: Connection,
}

impl SqliteConnection {
    /// Opens a connection, and notes where, so that it can be opened again after a failed rollback.
    pub(super) fn open(place: DatabasePlace) -> Result<Self, DatabaseError> {
        let connection = place.connect()?;
        Ok(Self { place, connection })
    }

    /// Runs an operation, and rolls back its transaction if it fails. `is_abandoned` returns whether the caller has
    /// stopped waiting: a transaction that is abandoned at its end is not committed.
    pub(super) fn run(
        &mut self,
        access: Access,
        operation: Operation,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<(), DatabaseError> {
        // Rolls back what an earlier operation left open, if its own rollback failed.
        self.end_transaction()?;
        let result = self.run_once(access, operation, is_abandoned);
        // If the rollback fails, the next operation tries again.
        let _ = self.end_transaction();
        result
    }

    /// Runs an operation once, in a transaction if `access` requires one, and then the actions that wait for the
    /// commit. Leaves a failed or discarded transaction open; [`Self::run`] rolls it back. A transaction whose caller
    /// no longer waits (`is_abandoned`) is not committed and fails.
    fn run_once(
        &mut self,
        access: Access,
        operation: Operation,
        is_abandoned: &dyn Fn() -> bool,
    ) -> Result<(), DatabaseError> {
        match access {
            // Takes the write lock first: a transaction that reads before it takes this lock fails if another program
            // writes in between.
            Access::Transaction => self.execute("BEGIN IMMEDIATE")?,
            Access::Snapshot => self.execute("BEGIN")?,
            Access::Query | Access::Statement => {}
        }
        let connection = &mut self.connection;
        let mut statements =
            SqliteTransaction { connection, is_discarded: false, on_commit_actions: Vec::new() };
        block_on(operation(&mut statements))?;
        let SqliteTransaction { is_discarded, on_commit_actions, .. } = statements;
        // `run` rolls the open transaction back.
        if is_discarded {
            return Ok(());
        }
        if access.is_transaction() {
            if is_abandoned() {
                return Err(DatabaseError::Timeout);
            }
            self.execute("COMMIT")?;
        }
        on_commit_actions.into_iter().for_each(|action| action());
        Ok(())
    }

    /// Executes a statement without values, such as `COMMIT`.
    fn execute(&self, sql: &str) -> Result<(), DatabaseError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }

    /// Rolls back an open transaction. A connection whose rollback failed, as it can when the disk is full, is closed
    /// and replaced: it would reject every further operation and block other programs.
    fn end_transaction(&mut self) -> Result<(), DatabaseError> {
        if !self.connection.is_autocommit() && self.connection.execute_batch("ROLLBACK").is_err() {
            self.connection = self.place.connect()?;
        }
        Ok(())
    }
}

/// The statements of an operation.
struct SqliteTransaction<'c> {
    connection: &'c mut Connection,
    /// Whether the operation wants its changes to be rolled back.
    is_discarded: bool,
    /// The actions that run after the commit.
    on_commit_actions: Vec<Box<dyn FnOnce() + Send>>,
}

impl SqliteTransaction<'_> {
    /// Runs a statement, in which `expand_statement` replaces placeholders such as `{now}`, to its end, and returns its
    /// rows.
    fn rows(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<Vec<SqlRow>, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&expand_statement(sql, NOW))?;
        let columns = statement.column_count();
        let mut result = Vec::new();
        let mut cursor = statement.query(params_from_iter(values))?;
        // All rows are read, since a statement that writes takes effect only with its last row.
        while let Some(row) = cursor.next()? {
            let column = |index| match row.get_ref(index)? {
                ValueRef::Null => Ok(SqlColumn::Null),
                ValueRef::Integer(value) => Ok(SqlColumn::Integer(value)),
                ValueRef::Text(text) => Ok(SqlColumn::Text(String::from_utf8_lossy(text).into_owned())),
                ValueRef::Real(_) | ValueRef::Blob(_) => Err(DatabaseError::Damaged(
                    "a column has a number with a fraction or bytes instead of text or an integer",
                )),
            };
            result.push(SqlRow((0..columns).map(column).collect::<Result<_, _>>()?));
        }
        Ok(result)
    }

    /// Runs a statement, in which `expand_statement` replaces placeholders such as `{now}`, and returns the number of
    /// rows that it changed.
    fn change(&self, sql: &str, values: &[SqlValue<'_>]) -> Result<u64, DatabaseError> {
        let mut statement = self.connection.prepare_cached(&expand_statement(sql, NOW))?;
        Ok(u64::try_from(statement.execute(params_from_iter(values))?).unwrap_or(u64::MAX))
    }
}

impl Transaction for SqliteTransaction<'_> {
    /// Runs the statement at once; the returned future is ready.
    fn query<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, Vec<SqlRow>> {
        Box::pin(std::future::ready(self.rows(sql, values)))
    }

    /// Runs the statement at once; the returned future is ready.
    fn execute<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, u64> {
        Box::pin(std::future::ready(self.change(sql, values)))
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

impl ToSql for SqlValue<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            SqlValue::Integer(value) => ToSqlOutput::from(*value),
            SqlValue::Text(value) => ToSqlOutput::from(*value),
        })
    }
}

/// Wakes a thread that waits in [`block_on`].
struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    /// Wakes the thread that waits in [`block_on`].
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs an operation to its end on this thread. Its statements run at once, when their futures are created. The thread
/// therefore sleeps only while the operation waits for a [step of its caller](crate::database::caller_step).
fn block_on<T>(mut operation: Pin<Box<dyn Future<Output = T> + Send + '_>>) -> T {
    let waker = Arc::new(ThreadWaker(std::thread::current())).into();
    let mut context = Context::from_waker(&waker);
    loop {
        match operation.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}
