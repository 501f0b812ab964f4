//! What outlives a request: conversations, what stores and clients are known to carry.
//!
//! One SQLite file for one gateway, or a PostgreSQL database for any number of them. Of a conversation, what was [put
//! in](flowgate_guard::journal) is kept; it is made again from that wherever it is needed. A turn is kept before its answer
//! goes out, in one transaction with all that follows from it: who cannot keep it gives no answer.
//!
//! * `place`: where the store is. * `migrations`: its tables.
//! * `conversations`: conversations, and what is known of tenants and clients. * `questions`: what people are asked.
//! * `quotations`: what clients were shown. * `tools`: which
//!   tools of servers were approved of.
//! * `cache`: what need not be asked again. * `turns`: a connection of their own for most turns. * `probe`: whether it can be written.
//! * `logs`: how far audit logs have come. * `file`: whose a file is, and whether it is the one that was there.

mod cache;
mod conversations;
pub(crate) mod file;
pub(crate) mod logs;
mod migrations;
mod place;
mod probe;
mod questions;
mod quotations;
mod tools;
mod turns;

use std::collections::HashSet;
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use sqlx::any::AnyPoolOptions;
use sqlx::{AnyPool, AssertSqlSafe, Connection as _, SqlSafeStr as _, SqlStr};

pub(crate) use conversations::{Kept, Opened, Past, keep_tenant, keep_turn, take_tenant};
pub(crate) use logs::keep_log;
pub use place::{Place, PlaceError};
pub(crate) use questions::{
    BESIDE, Freeze, MOST_OFFERED, Most, NewQuestion, OFFERED, OWN, Posed, Question, State, Undecided,
    use_question, void_question,
};
pub(crate) use quotations::{Seen, forget_seen, keep_seen};
pub(crate) use tools::Offer;

/// A transaction. Dropped without a commit, it leaves nothing behind.
pub(crate) type Transaction = sqlx::Transaction<'static, sqlx::Any>;

/// How long a database may take for one step.
const PATIENCE: Duration = Duration::from_secs(10);
/// Connections to a PostgreSQL database.
const CONNECTIONS: u32 = 16;

/// An open store.
#[derive(Debug)]
pub(crate) struct Store {
    pool: AnyPool,
    /// Whether other gateways use it, too.
    is_shared: bool,
    /// Whether nothing of it outlives this process.
    is_memory: bool,
    /// Which database it is.
    database: String,
    /// Who this gateway is among them.
    holder: String,
    cache: cache::Cache,
    /// What keeps most turns, if nobody else uses the store.
    turns: Option<turns::Turns>,
    /// The audit log of this gateway, if it keeps one.
    log: std::sync::OnceLock<logs::Watched>,
    /// Whether it could be written when somebody asked last.
    probe: tokio::sync::Mutex<Option<probe::Probed>>,
    /// The conversations that are held here, where others could hold them.
    held: Mutex<HashSet<(String, String)>>,
    /// Keeps another gateway from a file that is this one's.
    file: Option<file::Owned>,
}

/// Why something could not be kept or found.
#[derive(Debug)]
pub enum StoreError {
    /// The database says so.
    Database(sqlx::Error),
    /// SQLite says so of a turn.
    Turn(rusqlite::Error),
    /// It was not brought up to date.
    Migration(sqlx::migrate::MigrateError),
    /// Its tables are older, or there are none.
    Old,
    /// Its tables are newer than this program.
    New,
    /// It did not answer in time.
    Silent,
    /// Another gateway uses the file.
    Taken(String),
    /// The lock file names a database, and there is none.
    Gone(String),
    /// The lock file names another database than the one that is there.
    Replaced(String),
    /// The file cannot be locked.
    Lock(String, std::io::Error),
    /// Another request went on with the conversation meanwhile, or it was deleted.
    Overtaken,
    /// What was allowed was used or taken back meanwhile, or is over.
    Withdrawn,
    /// The conversation is being gone on with elsewhere.
    Held,
    /// No thread can be started.
    Runtime(std::io::Error),
    /// The audit log takes nothing more.
    Audit(String),
    /// What is kept is not what was put there.
    Damaged(&'static str),
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // What a database says of a row may quote it.
            Self::Database(sqlx::Error::Database(error)) => match error.code() {
                Some(code) => write!(f, "the store failed: the database refuses with code {code}"),
                None => f.write_str("the store failed: the database refuses"),
            },
            Self::Database(error) => write!(f, "the store failed: {error}"),
            Self::Turn(error) => match error.sqlite_error() {
                Some(error) => {
                    write!(f, "the store failed: the database refuses with code {}", error.extended_code)
                }
                None => f.write_str("the store failed: the database refuses"),
            },
            Self::Migration(error) => write!(f, "the store cannot be brought up to date: {error}"),
            Self::Old => f.write_str(
                "the store has not the tables of this version: start the gateway once, which brings it up to date",
            ),
            Self::New => f.write_str("the store is of a newer version of flowgate: use that one"),
            Self::Silent => write!(f, "the store did not answer within {} s", PATIENCE.as_secs()),
            Self::Taken(path) => write!(
                f,
                "{path} is in use by another gateway: give each its own file, or all of them one PostgreSQL database"
            ),
            Self::Gone(path) => write!(
                f,
                "{path}: the database that was here is gone, and with it what stores and clients are known to carry: put it back from a \
                 copy; or remove {path}.lock, to begin with an empty one"
            ),
            Self::Replaced(path) => write!(
                f,
                "{path}: another database stands where {path}.lock knows one, and may not know what stores and clients carry: put the \
                 right one back; or remove {path}.lock, to go on with this one"
            ),
            Self::Lock(path, error) => write!(f, "{path} cannot be locked: {error}"),
            Self::Overtaken => {
                f.write_str("another request went on with the conversation meanwhile: try again")
            }
            Self::Withdrawn => f.write_str(
                "what a person had allowed was used or taken back meanwhile, or is over: try again",
            ),
            Self::Held => f.write_str(
                "another request is going on with the conversation: try again when it is answered",
            ),
            Self::Runtime(error) => write!(f, "no thread can be started: {error}"),
            Self::Audit(error) => write!(f, "nothing is done that cannot be recorded: {error}"),
            Self::Damaged(what) => write!(f, "the store is damaged: {what}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Turn(error)
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl Store {
    /// Opens a store and brings its tables up to date; makes the file if there is none.
    pub(crate) async fn open(place: &Place) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let file = place.file().map(file::Owned::take).transpose()?;
        let is_shared = place.is_shared();
        let options = AnyPoolOptions::new()
            .max_connections(if is_shared { CONNECTIONS } else { 1 })
            .acquire_timeout(PATIENCE)
            // A file does not go away; to ask whether it is there takes as long as to ask it something.
            .test_before_acquire(is_shared)
            // The only connection to a memory is the memory.
            .idle_timeout(is_shared.then_some(Duration::from_secs(300)))
            .max_lifetime(is_shared.then_some(Duration::from_secs(1800)))
            .after_release(|connection, _| Box::pin(is_reusable(connection)));
        let options = if is_shared {
            options
        } else {
            options.after_connect(|connection, _| Box::pin(set_up(connection)))
        };
        let holder =
            crate::random::name().map_err(|_| StoreError::Damaged("the system gives no random bytes"))?;
        let memory = format!("/{holder}");
        let pool = within(async { Ok(options.connect(&place.url(&memory)).await?) }).await?;
        // Gateways that start at the same time wait for each other.
        migrations::run(&pool, is_shared).await?;
        let turns = turns::Turns::open(place, &memory)?;
        let database = identity(&pool, &holder).await?;
        if let Some(file) = &file {
            file.check(&database)?;
        }
        Ok(Self {
            database,
            pool,
            is_shared,
            is_memory: matches!(place, Place::Memory),
            holder,
            cache: cache::Cache::default(),
            turns,
            log: std::sync::OnceLock::new(),
            probe: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            file,
        })
    }

    /// Opens a store to read it, also while a gateway uses it.
    pub(crate) async fn read(place: &Place) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        let options = AnyPoolOptions::new().max_connections(1).acquire_timeout(PATIENCE);
        if place.file().is_some_and(|file| !file.exists()) {
            return Err(StoreError::Old);
        }
        let url = place.url("").replace("?mode=rwc", "?mode=ro");
        let pool = within(async { Ok(options.connect(&url).await?) }).await?;
        within(migrations::check(&pool)).await?;
        Ok(Self {
            database: String::new(),
            pool,
            is_shared: place.is_shared(),
            is_memory: matches!(place, Place::Memory),
            holder: String::new(),
            cache: cache::Cache::default(),
            turns: None,
            log: std::sync::OnceLock::new(),
            probe: tokio::sync::Mutex::default(),
            held: Mutex::default(),
            file: None,
        })
    }

    /// Whether other gateways use it, too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// This is the database that is expected here from now on.
    pub(crate) fn accept(&self) -> Result<(), StoreError> {
        self.file.as_ref().map_or(Ok(()), |file| file.name(&self.database))
    }

    /// Whether nothing of it outlives this process.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    pub(crate) async fn begin(&self) -> Result<Transaction, StoreError> {
        within(async {
            Ok(match &self.turns {
                // Who reads first and writes then may find that a turn was kept in between.
                Some(_) => self.pool.begin_with("BEGIN IMMEDIATE").await?,
                None => self.pool.begin().await?,
            })
        })
        .await
    }

    /// A statement in which `{now}` is the time of the database, since clocks of gateways may differ; `{used}` is that of a
    /// conversation that is used now, to the minute, so that its place among the others seldom changes; `{stands}` is true of a
    /// question that does, and `{over}` of one that does not. If the clock was put back, nobody knows for how long one has stood.
    fn timed(&self, sql: &str) -> SqlStr {
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

/// Waits for the database as long as one may.
pub(crate) async fn within<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(StoreError::Silent))
}

/// Waits for the store on a thread that may wait.
pub(crate) fn wait<T>(work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::runtime::Handle::current().block_on(work)
}

/// How every connection to SQLite is set up.
const PRAGMAS: [&str; 6] = [
    "PRAGMA journal_mode = WAL",
    // A crash of the program loses nothing; of the machine, perhaps the last turns, but never a part of one.
    "PRAGMA synchronous = NORMAL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA busy_timeout = 10000",
    // In pages, which are 128 MiB. Before that comes who does it beside the turns, but only when
    // nobody writes does the log begin anew.
    "PRAGMA wal_autocheckpoint = 32768",
    // The log is cut off if it grew much longer than usual when it begins anew: whoever has it cut off waits for the disk.
    "PRAGMA journal_size_limit = 67108864",
];

async fn set_up(connection: &mut sqlx::AnyConnection) -> Result<(), sqlx::Error> {
    for pragma in PRAGMAS {
        sqlx::query(pragma).execute(&mut *connection).await?;
    }
    Ok(())
}

/// Which database this is; a new one gets a name.
async fn identity(pool: &AnyPool, new: &str) -> Result<String, StoreError> {
    within(async {
        let sql = "UPDATE identity SET id = $1 WHERE one = 1 AND id = ''";
        sqlx::query(sql).bind(new).execute(pool).await?;
        Ok(sqlx::query_scalar("SELECT id FROM identity").fetch_one(pool).await?)
    })
    .await
}

/// Whether a connection that comes back to the pool can be used again. A rollback fails if the database has rolled back by itself,
/// as SQLite does when the disk is full, and sqlx then counts a transaction that is not there: such a connection is closed, and
/// the pool opens another one.
async fn is_reusable(connection: &mut sqlx::AnyConnection) -> Result<bool, sqlx::Error> {
    if !connection.is_in_transaction() {
        return Ok(true);
    }
    // The rollback of a transaction that was dropped may still be under way.
    connection.ping().await?;
    Ok(!connection.is_in_transaction())
}
