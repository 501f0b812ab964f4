//! Defines [`DatabaseError`], the reason why an operation of [`Database`](super::Database) fails, and
//! [`MigrationError`], the reason why the tables cannot be brought to the schema of this program. Both have a message
//! for the operator; `client_messages` has the messages for clients.

use std::fmt;
use std::time::Duration;

/// The time limit of one database operation.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The reason why an operation of the database failed.
#[derive(Debug)]
pub enum DatabaseError {
    /// PostgreSQL returned an error.
    Postgres(sqlx_core::Error),
    /// SQLite returned an error.
    Sqlite(rusqlite::Error),
    /// A migration failed.
    Migration(MigrationError),
    /// The tables are older than this program, or do not exist.
    SchemaOlder,
    /// The tables are newer than this program.
    SchemaNewer,
    /// The database did not answer in time.
    Timeout,
    /// The database was closed, or the operation failed unexpectedly.
    Closed,
    /// Another gateway uses the file.
    FileInUse(String),
    /// The lock file names a database, but the database file does not exist.
    DatabaseMissing(String),
    /// The database in the file is not the one that the lock file names.
    DatabaseSwapped(String),
    /// The file cannot be locked.
    Lock(String, std::io::Error),
    /// Another request extended the conversation in the meantime, or it was deleted.
    Overtaken,
    /// The approval was used, withdrawn or expired in the meantime.
    Withdrawn,
    /// Another request holds the conversation.
    ConversationHeld,
    /// The system refuses a thread or a file handle.
    Runtime(std::io::Error),
    /// The audit log cannot be opened, read or written, or a required witness cannot be used at the start.
    Audit(String),
    /// The watch log cannot be opened.
    WatchLog(String),
    /// A required witness of the audit log is too far behind.
    Unwitnessed,
    /// The operating system returned no random bytes for a new key or name.
    NoRandomBytes,
    /// The database is encrypted with the key of this id, and the configuration names no key.
    EncryptionKeyMissing {
        /// The id of the key.
        id: String,
    },
    /// The database is encrypted with a key that the configuration does not name.
    EncryptionKeyOther {
        /// The id of the key.
        id: String,
        /// The ids of the keys that the configuration names.
        given: String,
    },
    /// A value of this column cannot be decrypted.
    Unreadable(&'static str),
    /// A value of this column is not encrypted, although all content is.
    Unsealed(&'static str),
    /// The stored data is not what was written. The text says what was expected and what was found.
    Damaged(&'static str),
    /// The row of a virtual key is not what was written.
    DamagedKey {
        /// The id of the key.
        id: String,
    },
    /// The stored labels of the external state of a tenant cannot be read.
    ExternalState {
        /// The name of the tenant.
        tenant: String,
        /// What is wrong with the stored record, without its text.
        reason: String,
    },
    /// An operation failed because of a bug in the gateway. The database is unchanged.
    Bug(&'static str),
}

impl fmt::Display for DatabaseError {
    /// Writes the reason of the failure and, where that helps, what to do: for the operator, without stored content.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The message of the server is left out, since it may quote the row.
            Self::Postgres(sqlx_core::Error::Database(error)) => match error.code() {
                Some(code) => {
                    write!(f, "PostgreSQL reports an error (SQLSTATE {code}): its server log has the message")
                }
                None => f.write_str("PostgreSQL reports an error: its server log has the message"),
            },
            Self::Postgres(error) => {
                write!(f, "the PostgreSQL database failed: {error}; check its server and `url` in [store]")
            }
            Self::Sqlite(error) => match error.sqlite_error() {
                Some(error) => {
                    write!(f, "SQLite reports: {error}; check the file and the disk of the database")
                }
                None => f.write_str(
                    "SQLite failed without an error code: check the file and the disk of the database",
                ),
            },
            Self::Migration(error) => write!(f, "the database cannot be migrated: {error}"),
            Self::SchemaOlder => f.write_str(
                "the database schema is outdated, or there is no database: start the gateway once, which creates or migrates it",
            ),
            Self::SchemaNewer => {
                f.write_str("the database schema belongs to a newer version of Flowgate: use that version")
            }
            Self::Timeout => write!(
                f,
                "the database did not answer within {} s: check its load and its disk, and try again",
                PATIENCE.as_secs()
            ),
            Self::Closed => f.write_str(
                "the database is closed, or a bug in the gateway ended its operation: start the gateway again, and \
                report it if this recurs",
            ),
            Self::FileInUse(path) => write!(
                f,
                "{path} is in use by another gateway: give each gateway its own file, or let all of them use one PostgreSQL database"
            ),
            Self::DatabaseMissing(path) => write!(
                f,
                "{path}: the database is missing, and with it the labels of external state and of texts that clients \
                were shown: restore the database from a copy; or remove {path}.lock, to begin with an empty database"
            ),
            Self::DatabaseSwapped(path) => write!(
                f,
                "{path}: this is not the database that {path}.lock names, so it may lack the labels of external state \
                and of texts that clients were shown: restore the right database; or remove {path}.lock, to continue \
                with this one"
            ),
            Self::Lock(path, error) => {
                write!(
                    f,
                    "{path} cannot be locked: {error}; check the permissions of the file and its folder"
                )
            }
            Self::Overtaken => {
                f.write_str("another request extended the conversation in the meantime: try again")
            }
            Self::Withdrawn => {
                f.write_str("an approval was used, withdrawn or expired in the meantime: try again")
            }
            Self::ConversationHeld => {
                f.write_str("another request holds the conversation: try again when it is answered")
            }
            Self::Runtime(error) => {
                write!(
                    f,
                    "the system refuses a thread or a file handle that the gateway needs: {error}; raise the limits \
                    of processes and open files (`ulimit -u`, `ulimit -n`, `TasksMax`)"
                )
            }
            Self::Audit(error) => {
                write!(f, "the audit log cannot be used, so nothing is done that it must record: {error}")
            }
            Self::WatchLog(error) => {
                write!(f, "the watch log cannot be opened: {error}; correct `file` in [watch]")
            }
            Self::Unwitnessed => f.write_str(
                "no turn begins while the witness of the audit log is too far behind: check [audit.witness]",
            ),
            Self::NoRandomBytes => f.write_str("the operating system returned no random bytes: try again"),
            Self::EncryptionKeyMissing { id } => write!(
                f,
                "the database is encrypted with the key {id}, and the configuration names no key: set \
                `encryption-key-from` or `encryption-key-file` in [store]"
            ),
            Self::EncryptionKeyOther { id, given } => write!(
                f,
                "the database is encrypted with the key {id}, and the configuration has other keys ({given}): add \
                that key after the first one"
            ),
            Self::Unreadable(column) => write!(
                f,
                "a value of `{column}` cannot be decrypted: it was altered, moved from another row, or encrypted with \
                a key that the configuration does not have; add the key, or restore a backup of the database"
            ),
            Self::Unsealed(column) => write!(
                f,
                "a value of `{column}` is not encrypted, although the database was encrypted as a whole: it was \
                altered, or written by a gateway without the key; restore a backup, or run `flowgate database \
                encrypt --accept-unencrypted`"
            ),
            Self::Damaged(what) => {
                write!(f, "the stored data is damaged: {what}; restore a backup of the database")
            }
            Self::DamagedKey { id } => write!(
                f,
                "the stored data of the virtual key `{id}` is damaged (table `virtual_keys`): a limit or the list of \
                models is invalid; revoke the key, or restore a backup of the database"
            ),
            Self::ExternalState { tenant, reason } => write!(
                f,
                "the stored data of the tenant `{tenant}` is damaged (table `tenants`): {reason}; restore a backup of the database"
            ),
            Self::Bug(what) => write!(f, "{what}, because of a bug in the gateway: report it"),
        }
    }
}

impl std::error::Error for DatabaseError {}

/// PostgreSQL's code of the error that a table does not exist.
const POSTGRES_UNDEFINED_TABLE: &str = "42P01";

impl DatabaseError {
    /// Returns whether a statement failed because a table does not exist.
    pub(super) fn is_missing_table(&self) -> bool {
        match self {
            // SQLite has no code for this error.
            Self::Sqlite(rusqlite::Error::SqliteFailure(_, Some(message))) => {
                message.starts_with("no such table")
            }
            Self::Postgres(error) => error
                .as_database_error()
                .and_then(|error| error.code())
                .is_some_and(|code| code == POSTGRES_UNDEFINED_TABLE),
            _ => false,
        }
    }

    /// Returns whether a statement failed because a row that it refers to does not exist (a foreign key). On SQLite,
    /// whose primary error code does not distinguish constraints, returns true for every violated constraint.
    pub(super) fn is_missing_reference(&self) -> bool {
        match self {
            Self::Sqlite(error) => {
                error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
            }
            Self::Postgres(error) => {
                error.as_database_error().is_some_and(|error| error.is_foreign_key_violation())
            }
            _ => false,
        }
    }
}

/// The reason why a migration failed.
#[derive(Debug)]
pub enum MigrationError {
    /// PostgreSQL cannot be migrated.
    Postgres(sqlx_core::migrate::MigrateError),
    /// A statement of the migration with this number failed on SQLite.
    Sqlite(i64, rusqlite::Error),
    /// The migration with this number was applied with other statements than those of this version.
    Changed(i64),
    /// The migration with this number was applied in part.
    Partial(i64),
}

impl fmt::Display for MigrationError {
    /// Writes which migration is affected and, where that helps, what to do.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(error) => write!(f, "{error}; see the log of the PostgreSQL server"),
            Self::Sqlite(version, error) => write!(
                f,
                "migration {version} failed: {error}; check the disk and the permissions of the file, and start the gateway again"
            ),
            Self::Changed(version) => write!(
                f,
                "migration {version} of this database differs from that of this version of Flowgate: use the version that \
                created the database"
            ),
            Self::Partial(version) => {
                write!(f, "migration {version} was applied only in part: restore a backup of the database")
            }
        }
    }
}

impl std::error::Error for MigrationError {}

impl From<rusqlite::Error> for DatabaseError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<sqlx_core::Error> for DatabaseError {
    fn from(error: sqlx_core::Error) -> Self {
        Self::Postgres(error)
    }
}
