//! Implements [`Backend`], the trait that runs the operations of the database, for SQLite: for a file, which one
//! gateway owns, and for a database in memory. `database` opens it.
//!
//! SQLite has one writer at a time, and a second writer waits by polling. All operations that write therefore run on
//! one thread, in the order in which they arrive, and operations that only read run on a second thread. A database in
//! memory has a single connection, so one thread runs all operations.
//!
//! * `connection`: opens a connection, and runs operations in transactions.
//! * `thread`: runs a thread that owns a connection.
//! * `checkpoints`: runs the thread that checkpoints the write-ahead log.
//! * `migrations`: creates the tables.
//! * `file`: checks the owner, the permissions and the identity of the file.

mod checkpoints;
mod connection;
pub(crate) mod file;
mod migrations;
mod thread;

use std::collections::HashMap;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;

use self::checkpoints::CheckpointThread;
use self::connection::{DatabasePlace, SqliteConnection};
use self::file::LockedDatabaseFile;
use self::thread::SqliteThread;
use super::error::DatabaseError;
use super::transaction::{Access, Backend, Operation, OperationFuture, TurnTransaction};

/// An open SQLite database.
#[derive(Debug)]
pub(super) struct SqliteDatabase {
    /// Runs the operations that write, and without `reader` all operations.
    writer: Arc<SqliteThread>,
    /// Runs the operations that only read.
    reader: Option<SqliteThread>,
    /// The lock of each tenant, which a turn holds while it may change the labels of the tenant's stores.
    tenants: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
    /// The lock that keeps other gateways from the file.
    file: Option<LockedDatabaseFile>,
}

impl SqliteDatabase {
    /// Opens a file, and migrates its tables. Creates the file if it does not exist. It is an error if the file does
    /// not exist and its lock file, in the same folder, names a database: that database was there before, and is
    /// missing.
    ///
    /// # Errors
    /// If the file is in use, the named database is missing, or the file cannot be opened or migrated.
    pub(super) fn open_file(path: &Path) -> Result<Self, DatabaseError> {
        let file = LockedDatabaseFile::lock_database_file(path)?;
        let place = DatabasePlace::File(path.to_owned());
        let mut connection = SqliteConnection::open(place.clone())?;
        migrations::migrate(&mut connection)?;
        let checkpoints = CheckpointThread::begin(path)?;
        // Queries have a connection and a thread of their own, so that they wait for no transaction that writes.
        let reader = SqliteConnection::open(place)?;
        Ok(Self {
            writer: Arc::new(SqliteThread::start("database", connection, Some(checkpoints))?),
            reader: Some(SqliteThread::start("database-reads", reader, None)?),
            tenants: Mutex::default(),
            file: Some(file),
        })
    }

    /// Creates a database in memory. `name` distinguishes it from other databases in the memory of this process.
    pub(super) fn open_memory(name: &str) -> Result<Self, DatabaseError> {
        // SQLite shares a database in memory between connections if its name begins with a slash.
        let mut connection = SqliteConnection::open(DatabasePlace::Memory(format!("/{name}")))?;
        migrations::migrate(&mut connection)?;
        Self::with_one_thread(connection)
    }

    /// Opens a file for reading, also while a gateway uses it. A file that does not exist fails like one without tables
    /// ([`DatabaseError::SchemaOlder`]): a gateway has to be started first.
    pub(super) fn open_file_to_read(path: &Path) -> Result<Self, DatabaseError> {
        if !path.exists() {
            return Err(DatabaseError::SchemaOlder);
        }
        Self::with_one_thread(SqliteConnection::open(DatabasePlace::FileToRead(path.to_owned()))?)
    }

    /// Creates a database whose operations all run on one thread with this connection, without a lock on the file.
    fn with_one_thread(connection: SqliteConnection) -> Result<Self, DatabaseError> {
        let writer = Arc::new(SqliteThread::start("database", connection, None)?);
        Ok(Self { writer, reader: None, tenants: Mutex::default(), file: None })
    }
}

impl Backend for SqliteDatabase {
    /// Runs an operation that only reads on the thread `reader`, if there is one, so that it does not wait for writes.
    /// Runs every other operation on the thread `writer`.
    fn run(&self, access: Access, operation: Operation) -> OperationFuture<'_, ()> {
        let thread = match &self.reader {
            Some(reader) if !access.writes() => reader,
            _ => &*self.writer,
        };
        Box::pin(async move { thread.send(access, operation).await?.outcome().await })
    }

    /// Waits until no other turn of the tenant is in progress in this process, and then begins the turn. `first` are
    /// the first statements of its transaction.
    fn begin_turn<'b>(
        &'b self,
        tenant: &'b str,
        first: Operation,
    ) -> OperationFuture<'b, Box<dyn TurnTransaction>> {
        // One lock for each tenant, which a turn holds from here until `finish`.
        let lock = {
            let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(tenants.entry(tenant.to_owned()).or_default())
        };
        // `first` does not run before `finish`: its transaction would block the only writer for the whole turn.
        Box::pin(async move {
            let tenant = lock.lock_owned().await;
            let writer = Arc::clone(&self.writer);
            Ok(Box::new(SqliteTurn { tenant, writer, first }) as Box<dyn TurnTransaction>)
        })
    }

    /// Closes the connections, after the operations that were sent before.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async {
            // The last connection to be closed moves the write-ahead log into the file.
            if let Some(reader) = &self.reader {
                reader.close().await;
            }
            self.writer.close().await;
        })
    }

    /// Checks that the lock file names this database, whose identity is `name`, or no database yet. Accepts every name
    /// if there is no lock file.
    fn check_database(&self, name: &str) -> Result<(), DatabaseError> {
        self.file.as_ref().map_or(Ok(()), |file| file.check(name))
    }

    /// Writes `name`, the identity of the database, to the lock file, so that later starts expect this database. Does
    /// nothing for a database without a lock file.
    fn accept_database(&self, name: &str) -> Result<(), DatabaseError> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_database_name(name))
    }
}

/// The transaction of a turn. Its statements run all at once when it ends, so that the thread that writes never waits
/// for a turn.
struct SqliteTurn {
    /// The lock of the tenant, which excludes other turns of the tenant.
    tenant: OwnedMutexGuard<()>,
    writer: Arc<SqliteThread>,
    /// The operation with which the turn began.
    first: Operation,
}

impl TurnTransaction for SqliteTurn {
    /// Runs the statements of the begun turn and `last` in one transaction. Holds the lock of the tenant until they are
    /// in the queue of the thread that writes: this fixes their order before the tenant's next turn.
    fn finish(self: Box<Self>, last: Operation) -> OperationFuture<'static, ()> {
        let Self { tenant, writer, first } = *self;
        let both: Operation = Box::new(move |tx| {
            Box::pin(async move {
                first(&mut *tx).await?;
                last(tx).await
            })
        });
        Box::pin(async move {
            let sent = writer.send(Access::Transaction, both).await?;
            // The next turn of the tenant runs after this one.
            drop(tenant);
            sent.outcome().await
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Creates the tables of an earlier version, with rows.
    pub(in crate::database) fn create_earlier(path: &Path, count: usize, rows: &[&str]) {
        let mut connection = rusqlite::Connection::open(path).unwrap();
        migrations::migrate_to(&mut connection, count).unwrap();
        for sql in rows {
            connection.execute(sql, []).unwrap();
        }
    }
}
