//! The store: persists conversations, the labels of tenants' stores, what clients were shown, and questions to
//! people.
//!
//! The store is one SQLite file for one gateway, or a PostgreSQL database that any number of gateways share. Of a
//! conversation, the [journal](flowgate_guard::journal) is kept; the conversation is replayed from it on demand. A
//! turn is persisted before its answer is sent, in one transaction with everything that follows from it; a turn that
//! cannot be persisted is not answered.
//!
//! * `address`: the address of the store.
//! * `migrations`: its tables.
//! * `conversations`: conversations, and the records of tenants and clients.
//! * `questions`: questions to people, and freezes.
//! * `quotations`: texts that clients were shown.
//! * `tools`: approved tools of servers.
//! * `cache`: facts that need no query.
//! * `turn_connection`: a separate connection for most turns.
//! * `probe`: whether the store is writable.
//! * `client_messages`: the constant messages that clients receive when the store fails.
//! * `log_heads`: the heads of audit logs.
//! * `sqlite_file`: ownership, permissions and identity of a SQLite file.

mod address;
mod cache;
mod client_messages;
mod conversations;
mod freezes;
pub(crate) mod log_heads;
mod migrations;
mod probe;
mod questions;
mod quotations;
pub(crate) mod sqlite_file;
mod tools;
mod turn_connection;

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, AssertSqlSafe, Connection as _, SqlSafeStr as _, SqlStr};

pub use address::{DatabaseAddress, DatabaseAddressError};
pub(crate) use cache::Freeze;
pub(crate) use conversations::{
    ConversationJournal, OpenedConversation, PersistedTurn, lock_tenant, persist_tenant, persist_turn,
};
pub(crate) use log_heads::persist_log_head_in;
pub(crate) use questions::{
    AskOutcome, DecideError, HIDDEN_MEMBER, MOST_OFFERED, NewQuestion, OpenQuestionLimits, QuestionState,
    StoredQuestion, TURN_OF_TOOL_OFFER, TURN_OUTSIDE_CHAT, use_approval, void_approval,
};
pub(crate) use quotations::{ShownText, persist_shown_texts, trim_shown_texts};
pub(crate) use tools::ToolOffer;

/// A transaction. It rolls back when it is dropped without a commit.
pub(crate) type Transaction = sqlx::Transaction<'static, sqlx::Any>;

/// The time limit of one database operation.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time for which a stop waits for connections in use.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// The size of the connection pool for a PostgreSQL database.
const CONNECTIONS: u32 = 16;

/// An open store.
#[derive(Debug)]
pub(crate) struct Database {
    pool: AnyPool,
    /// Whether other gateways use the store too.
    is_shared: bool,
    /// Whether the store is in memory and ends with this process.
    is_memory: bool,
    /// The identity of the database.
    database: String,
    /// The identity of this gateway among those that share the store.
    holder: String,
    cache: cache::DatabaseCache,
    /// The connection for most turns; present if this gateway alone uses the store.
    turns: Option<turn_connection::TurnConnection>,
    /// The audit log of this gateway, if it writes one.
    log: std::sync::OnceLock<log_heads::TrackedAuditLog>,
    /// The outcome of the last write probe.
    probe: tokio::sync::Mutex<Option<probe::ProbeResult>>,
    /// The conversations that this gateway holds; used for a shared store only.
    held: Mutex<HashSet<(String, String)>>,
    /// The lock that keeps other gateways from the SQLite file of this one.
    file: Option<sqlite_file::LockedDatabaseFile>,
}

/// The reason why a store operation failed.
#[derive(Debug)]
pub enum DatabaseError {
    /// The database returned an error.
    Database(sqlx::Error),
    /// SQLite returned an error on the connection for turns.
    Turn(rusqlite::Error),
    /// A migration failed.
    Migration(sqlx::migrate::MigrateError),
    /// The tables are older than this program, or do not exist.
    SchemaOlder,
    /// The tables are newer than this program.
    SchemaNewer,
    /// The database did not answer in time.
    Timeout,
    /// Another gateway uses the file.
    FileInUse(String),
    /// The lock file names a database, and there is none.
    DatabaseMissing(String),
    /// The lock file names another database than the one that is there.
    DatabaseSwapped(String),
    /// The file cannot be locked.
    Lock(String, std::io::Error),
    /// Another request extended the conversation in the meantime, or it was deleted.
    Overtaken,
    /// The approval was used, withdrawn or expired in the meantime.
    Withdrawn,
    /// Another request holds the conversation.
    ConversationHeld,
    /// A thread cannot be started.
    Runtime(std::io::Error),
    /// The audit log cannot be written.
    Audit(String),
    /// A required witness of the audit log is too far behind.
    Unwitnessed,
    /// The stored data is not what was written.
    Damaged(&'static str),
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A database's error message may quote the row.
            Self::Database(sqlx::Error::Database(error)) => match error.code() {
                Some(code) => write!(f, "the database failed with code {code}"),
                None => f.write_str("the database failed"),
            },
            Self::Database(error) => write!(f, "the database failed: {error}"),
            Self::Turn(error) => match error.sqlite_error() {
                Some(error) => {
                    write!(f, "the database failed with code {}", error.extended_code)
                }
                None => f.write_str("the database failed"),
            },
            Self::Migration(error) => write!(f, "the database cannot be migrated: {error}"),
            Self::SchemaOlder => f.write_str(
                "the database schema is outdated: start the gateway once, which migrates it",
            ),
            Self::SchemaNewer => f.write_str("the database schema is that of a newer version of flowgate: use that version"),
            Self::Timeout => write!(f, "the database did not answer within {} s", PATIENCE.as_secs()),
            Self::FileInUse(path) => write!(
                f,
                "{path} is in use by another gateway: give each its own file, or all of them one PostgreSQL database"
            ),
            Self::DatabaseMissing(path) => write!(
                f,
                "{path}: the database is missing, and with it the labels of stores and clients: restore it from a \
                 copy; or remove {path}.lock, to begin with an empty one"
            ),
            Self::DatabaseSwapped(path) => write!(
                f,
                "{path}: this is not the database that {path}.lock names, and it may lack the labels of stores and clients: restore the \
                 right one; or remove {path}.lock, to go on with this one"
            ),
            Self::Lock(path, error) => write!(f, "{path} cannot be locked: {error}"),
            Self::Overtaken => {
                f.write_str("another request extended the conversation in the meantime: try again")
            }
            Self::Withdrawn => f.write_str(
                "an approval was used, withdrawn or expired in the meantime: try again",
            ),
            Self::ConversationHeld => f.write_str(
                "another request holds the conversation: try again when it is answered",
            ),
            Self::Runtime(error) => write!(f, "no thread can be started: {error}"),
            Self::Audit(error) => write!(f, "nothing is done that cannot be recorded: {error}"),
            Self::Unwitnessed => f.write_str(
                "no turn begins while the witness of the audit log is too far behind: look at [audit.witness]",
            ),
            Self::Damaged(what) => write!(f, "the stored data is damaged: {what}"),
        }
    }
}

impl std::error::Error for DatabaseError {}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Turn(error)
    }
}

impl From<sqlx::Error> for DatabaseError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Database {
    /// Opens a store and migrates its tables; creates the file if there is none.
    ///
    /// # Errors
    /// If the file is in use, missing or replaced, or the database cannot be opened or migrated.
    pub(crate) async fn open(place: &DatabaseAddress) -> Result<Self, DatabaseError> {
        sqlx::any::install_default_drivers();
        let file = place.file().map(sqlite_file::LockedDatabaseFile::lock_database_file).transpose()?;
        let is_shared = place.is_shared();
        let options = AnyPoolOptions::new()
            .max_connections(if is_shared { CONNECTIONS } else { 1 })
            .acquire_timeout(PATIENCE)
            // A local file does not disconnect, and a test takes as long as a query.
            .test_before_acquire(is_shared)
            // A memory database ends with its only connection.
            .idle_timeout(is_shared.then_some(Duration::from_secs(300)))
            .max_lifetime(is_shared.then_some(Duration::from_secs(1800)))
            .after_release(|connection, _| Box::pin(is_reusable(connection)));
        let options = if is_shared {
            options
        } else {
            options.after_connect(|connection, _| Box::pin(set_up(connection)))
        };
        let holder =
            crate::random::name().map_err(|_| DatabaseError::Damaged("the system gives no random bytes"))?;
        let memory = format!("/{holder}");
        let pool = with_timeout(async { Ok(options.connect(&place.url(&memory)).await?) }).await?;
        let set_up = async {
            // Gateways that start at the same time migrate one after the other.
            migrations::run(&pool, is_shared).await?;
            let turns = turn_connection::TurnConnection::open(place, &memory)?;
            let database = identity(&pool, &holder).await?;
            if let Some(file) = &file {
                file.check(&database)?;
            }
            Ok((turns, database))
        };
        let (turns, database) = match set_up.await {
            Ok(opened) => opened,
            Err(error) => {
                close_pool(&pool).await;
                return Err(error);
            }
        };
        Ok(Self {
            database,
            pool,
            is_shared,
            is_memory: matches!(place, DatabaseAddress::Memory),
            holder,
            cache: cache::DatabaseCache::default(),
            turns,
            log: std::sync::OnceLock::new(),
            probe: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            file,
        })
    }

    /// Opens a store for reading, also while a gateway uses it.
    pub(crate) async fn read(place: &DatabaseAddress) -> Result<Self, DatabaseError> {
        sqlx::any::install_default_drivers();
        let options = AnyPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
        if place.file().is_some_and(|file| !file.exists()) {
            return Err(DatabaseError::SchemaOlder);
        }
        let url = place.url("").replace("?mode=rwc", "?mode=ro");
        let pool = with_timeout(async { Ok(options.connect(&url).await?) }).await?;
        if let Err(error) = with_timeout(migrations::check(&pool)).await {
            close_pool(&pool).await;
            return Err(error);
        }
        Ok(Self {
            database: String::new(),
            pool,
            is_shared: place.is_shared(),
            is_memory: matches!(place, DatabaseAddress::Memory),
            holder: String::new(),
            cache: cache::DatabaseCache::default(),
            turns: None,
            log: std::sync::OnceLock::new(),
            probe: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            file: None,
        })
    }

    /// Closes the connections. When this returns, SQLite writes no more to the files, and an operator can replace them, unless a
    /// connection was in use for [`CLOSE_TIMEOUT`];
    /// a connection that is only dropped is closed later, on a thread of its own.
    pub(crate) async fn close(&self) {
        close_pool(&self.pool).await;
        if let Some(turns) = &self.turns {
            turns.close();
        }
    }

    /// Runs `work`, and closes the connections afterwards.
    pub(crate) async fn close_after<T>(
        &self,
        work: impl AsyncFnOnce(&Self) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let done = work(self).await;
        self.close().await;
        done
    }

    /// Returns whether other gateways use the store too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Records this database in the lock file as the expected one.
    pub(crate) fn accept_database(&self) -> Result<(), DatabaseError> {
        self.file.as_ref().map_or(Ok(()), |file| file.write_database_name(&self.database))
    }

    /// Returns whether the store is in memory and ends with this process.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    pub(crate) async fn begin(&self) -> Result<Transaction, DatabaseError> {
        with_timeout(async {
            Ok(match &self.turns {
                // A transaction that reads before it writes fails if a turn is persisted in between: take the write
                // lock first.
                Some(_) => self.pool.begin_with("BEGIN IMMEDIATE").await?,
                None => self.pool.begin().await?,
            })
        })
        .await
    }

    /// Expands the placeholders of a statement. `{now}` is the time of the database, since the clocks of gateways may
    /// differ. `{used}` is the time of last use of a conversation that is used now, updated at most once a minute so
    /// that its index entry seldom changes. `{stands}` holds for a question that has not expired, `{over}` for one
    /// that has; a question from the future counts as expired, since its age is unknown after the clock was set back.
    fn expand_statement(&self, sql: &str) -> SqlStr {
        let now = if self.is_shared {
            "CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)"
        } else {
            "CAST(unixepoch('subsec') * 1000 AS INTEGER)"
        };
        let sql = sql
            .replace("{stands}", "(expires > {now} AND asked <= {now} + 60000)")
            .replace("{over}", "(expires <= {now} OR asked > {now} + 60000)")
            .replace("{used}", "CASE WHEN abs({now} - used) > 60000 THEN {now} ELSE used END")
            .replace("{now}", now);
        AssertSqlSafe(sql).into_sql_str()
    }
}

/// Closes all connections of a pool. After [`CLOSE_TIMEOUT`], the process ends with an open connection; the next start
/// recovers what was committed.
async fn close_pool(pool: &AnyPool) {
    let _ = tokio::time::timeout(CLOSE_TIMEOUT, pool.close()).await;
}

/// Waits for the database, at most for [`PATIENCE`].
pub(crate) async fn with_timeout<T>(
    work: impl Future<Output = Result<T, DatabaseError>>,
) -> Result<T, DatabaseError> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(DatabaseError::Timeout))
}

/// The settings of every SQLite connection.
const PRAGMAS: [&str; 6] = [
    "PRAGMA journal_mode = WAL",
    // A crash of the program loses nothing; a crash of the machine may lose the last turns, but never a part of one.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA busy_timeout = 10000",
    // In pages: 128 MiB. The thread beside the turns checkpoints earlier, but the write-ahead log restarts only while
    // no connection writes.
    "PRAGMA wal_autocheckpoint = 32768",
    // A log that grew beyond this is truncated when it restarts; the truncating connection waits for the disk.
    "PRAGMA journal_size_limit = 67108864",
];

async fn set_up(connection: &mut sqlx::AnyConnection) -> Result<(), sqlx::Error> {
    for pragma in PRAGMAS {
        sqlx::query(pragma).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Returns the identity of the database; a new one is assigned `new`.
async fn identity(pool: &AnyPool, new: &str) -> Result<String, DatabaseError> {
    with_timeout(async {
        let sql = "UPDATE identity SET id = $1 WHERE one = 1 AND id = ''";
        sqlx::query(sql).bind(new).execute(pool).await?;
        Ok(sqlx::query_scalar("SELECT id FROM identity").fetch_one(pool).await?)
    })
    .await
}

/// Returns whether a connection that returns to the pool can be reused. A rollback fails if the database has rolled
/// back by itself, as SQLite does when the disk is full, and sqlx then counts a transaction that does not exist: such
/// a connection is closed, and the pool opens another one.
async fn is_reusable(connection: &mut sqlx::AnyConnection) -> Result<bool, sqlx::Error> {
    if !connection.is_in_transaction() {
        return Ok(true);
    }
    // The rollback of a dropped transaction may still be in progress.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}
