//! Persists conversations, the labels of tenants' stores (their external state), the texts that clients were shown, and
//! questions to people. The model routes, the MCP routes and the routes for people use it.
//!
//! The database is one SQLite file for one gateway, or a PostgreSQL database that any number of gateways share. For
//! each conversation, it stores the [journal](flowgate_guard::journal) of the inputs, from which the conversation is
//! replayed on demand. A turn is persisted before its answer is sent, in one transaction with its other changes; a turn
//! that cannot be persisted is not answered.
//!
//! `Database` is the interface: its methods are the operations of the gateway. Each operation is written once, with the
//! trait `transaction::Transaction`, and one of the two backends, SQLite or PostgreSQL, runs it.
//!
//! * `transaction`: defines statements, operations, and the interface of a backend.
//! * `sqlite`: runs operations on SQLite, with one thread that writes.
//! * `postgres`: runs operations on PostgreSQL, with a pool of connections.
//! * `address`: parses the address of the database.
//! * `migrations`: lists the statements that create the tables.
//! * `conversations`: finds, opens, leases and deletes conversations.
//! * `turns`: stores turns, and the labels of tenants' stores.
//! * `questions`: stores questions to people; `freezes`: stores freezes; `freeze_kind`: defines what can be frozen,
//!   such as a client or a tool.
//! * `quotations`: stores texts that clients were shown.
//! * `changes`: gives each change of a question a number.
//! * `lasting_grants`: stores approvals for all conversations of a client.
//! * `request_quotas`: counts requests against the quotas of clients; `spending`: counts what the models of clients
//!   use on a day, for their budgets.
//! * `virtual_keys`: stores the keys that admins have made for clients.
//! * `tools`: stores the approved tools of servers.
//! * `cache`: keeps results of frequent queries in memory.
//! * `caller_step`: lets the caller of an operation do something within the transaction, such as write to the audit
//!   log.
//! * `probe`: tests whether the database is writable.
//! * `error`: defines the reasons why an operation fails, with messages for the operator; `client_messages`: defines
//!   the constant messages that clients receive instead.
//! * `log_heads`: stores the heads of audit logs.
//! * `encryption`: encrypts content with keys of the configuration.

mod address;
mod cache;
mod caller_step;
mod changes;
mod client_messages;
mod conversations;
mod encryption;
mod error;
mod freeze_kind;
mod freezes;
mod lasting_grants;
pub(crate) mod log_heads;
mod migrations;
mod postgres;
mod probe;
mod questions;
mod quotations;
mod request_quotas;
mod spending;
pub(crate) mod sqlite;
mod tools;
mod transaction;
mod turns;
mod virtual_keys;

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use tokio::sync::oneshot;

use self::encryption::ContentCipher;
use self::error::PATIENCE;
use self::postgres::PostgresDatabase;
use self::sqlite::SqliteDatabase;
use self::transaction::{Access, Backend, DynTransaction, OperationFuture};
pub use address::{DatabaseAddress, DatabaseAddressError};
pub(crate) use cache::Freeze;
pub(crate) use conversations::{ConversationJournal, OpenedConversation};
pub(crate) use encryption::Content;
pub use encryption::{
    EncryptionKeyError, EncryptionKeys, EncryptionReport, encrypt_audit_contents, encrypt_stored_content,
};
pub use error::{DatabaseError, MigrationError};
pub(crate) use freeze_kind::FreezeKind;
pub(crate) use lasting_grants::{GrantCandidate, GrantLimits, NewGrant, StoredGrant};
pub(crate) use questions::{
    APPROVERS, AskOutcome, AskedLimits, DecideError, HIDDEN_MEMBER, MAX_OFFERED, NewQuestion, QuestionLimit,
    QuestionLimits, QuestionOrigin, QuestionState, StoredQuestion, WithdrawnGrant,
};
pub(crate) use quotations::{NewShownTexts, ShownText, ShownTexts};
pub(crate) use request_quotas::RequestAdmission;
pub(crate) use tools::ServerTool;
pub(crate) use turns::{BegunTurn, CarriedTurns, PersistedTurn, TurnApprovals};
pub(crate) use virtual_keys::{AddedKey, KeyLimits, NewVirtualKey, StoredVirtualKey};

/// An open database.
#[derive(Debug)]
pub(crate) struct Database {
    backend: Box<dyn Backend>,
    /// Whether other gateways use the database too.
    is_shared: bool,
    /// Whether the database is in memory and ends with this process.
    is_memory: bool,
    /// The identity of the database.
    identity: String,
    /// The identity of this gateway among those that share the database.
    holder: String,
    cache: Arc<cache::DatabaseCache>,
    /// Encrypts and decrypts content.
    cipher: Arc<ContentCipher>,
    /// The audit log of this gateway, if it writes one.
    log: std::sync::OnceLock<log_heads::TrackedAuditLog>,
    /// The outcome of the last write probe.
    probe: tokio::sync::Mutex<Option<probe::ProbeResult>>,
    /// The conversations whose lease this gateway holds and renews, as pairs of the client and the name; used for a
    /// shared database only.
    held: Mutex<HashSet<(String, String)>>,
}

impl Database {
    /// Opens a database without keys, as [`Self::open_with_keys`] does.
    #[cfg(test)]
    pub(crate) async fn open(place: &DatabaseAddress) -> Result<Self, DatabaseError> {
        Self::open_with_keys(place, &EncryptionKeys::default()).await
    }

    /// Opens a database and migrates its tables; creates the file if there is none. Its content is encrypted with the
    /// keys, if there are any.
    ///
    /// # Errors
    /// If the file is in use, missing or replaced, the database cannot be opened or migrated, or it is encrypted with
    /// other keys.
    pub(crate) async fn open_with_keys(
        place: &DatabaseAddress,
        keys: &EncryptionKeys,
    ) -> Result<Self, DatabaseError> {
        // The random name of this process. It names this process as the holder of leases, and becomes the identity of a
        // new database.
        let holder = crate::random::unguessable_name().map_err(|_| DatabaseError::NoRandomBytes)?;
        let database = match place {
            DatabaseAddress::Postgres(url) => {
                let backend = with_timeout(PostgresDatabase::connect(url)).await?;
                if let Err(error) = backend.migrate().await {
                    backend.close().await;
                    return Err(error);
                }
                Self::new(backend, place, holder)
            }
            _ => {
                let (place_of_file, name) = (place.clone(), holder.clone());
                // On a blocking thread, because the migration of a large file takes long.
                let open = move || match place_of_file.file() {
                    Some(path) => SqliteDatabase::open_file(path),
                    None => SqliteDatabase::open_memory(&name),
                };
                let backend =
                    tokio::task::spawn_blocking(open).await.unwrap_or(Err(DatabaseError::Closed))?;
                Self::new(backend, place, holder)
            }
        };
        let mut database = database.with_identity().await?;
        // `true`: if there are keys, an unencrypted database is encrypted from now on.
        if let Err(error) = database.load_encryption(keys, true).await {
            database.close().await;
            return Err(error);
        }
        Ok(database)
    }

    /// Opens an existing database without keys for reading, as [`Self::read_with_keys`] does.
    #[cfg(test)]
    pub(crate) async fn read(place: &DatabaseAddress) -> Result<Self, DatabaseError> {
        Self::read_with_keys(place, &EncryptionKeys::default()).await
    }

    /// Opens an existing database for reading, also while a gateway uses it. The database is not migrated.
    ///
    /// # Errors
    /// If the database cannot be opened, its schema is not the one of this program, or it is encrypted with other keys.
    pub(crate) async fn read_with_keys(
        place: &DatabaseAddress,
        keys: &EncryptionKeys,
    ) -> Result<Self, DatabaseError> {
        // The empty name of the holder: a reader takes no leases.
        let mut database = match place {
            DatabaseAddress::Postgres(url) => {
                let backend = with_timeout(PostgresDatabase::connect(url)).await?;
                Self::new(backend, place, String::new())
            }
            DatabaseAddress::File(path) => {
                Self::new(SqliteDatabase::open_file_to_read(path)?, place, String::new())
            }
            // A database in memory belongs to the process that opened it, so here it has no tables yet.
            DatabaseAddress::Memory => return Err(DatabaseError::SchemaOlder),
        };
        let checked = match database.check_schema().await {
            // `false`: a reader does not begin to encrypt the database.
            Ok(()) => database.load_encryption(keys, false).await,
            Err(error) => Err(error),
        };
        if let Err(error) = checked {
            database.close().await;
            return Err(error);
        }
        Ok(database)
    }

    /// Creates a database on a backend, without the parts that the caller sets later: its identity is not read yet, its
    /// content counts as not encrypted (`Plain`), and it has no audit log. `holder` identifies this process as the
    /// holder of leases.
    fn new(backend: impl Backend + 'static, place: &DatabaseAddress, holder: String) -> Self {
        Self {
            backend: Box::new(backend),
            is_shared: place.is_shared(),
            is_memory: matches!(place, DatabaseAddress::Memory),
            identity: String::new(),
            holder,
            cache: Arc::default(),
            cipher: Arc::new(ContentCipher::Plain),
            log: std::sync::OnceLock::new(),
            probe: tokio::sync::Mutex::default(),
            held: Mutex::default(),
        }
    }

    /// Reads the identity of the database, or assigns one to a new database, and checks that the lock file of the
    /// backend, if there is one, names this database. The identity is a random name: by it, a later start notices that
    /// another file has replaced the database. Closes the database if one of these steps fails.
    ///
    /// # Errors
    /// If the lock file of the backend names another database, or the database fails.
    async fn with_identity(mut self) -> Result<Self, DatabaseError> {
        // The name of this process is random and unique, so a database that the process creates can have the same
        // name.
        let new_identity = self.holder.clone();
        let identity = self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // Only a new database has an empty identity.
                let sql = "UPDATE identity SET id = ?1 WHERE one = 1 AND id = ''";
                tx.execute(sql, &[(&new_identity).into()]).await?;
                let mut rows = tx.query("SELECT id FROM identity", &[]).await?;
                rows.first_mut().ok_or(DatabaseError::Damaged("the table `identity` has no row"))?.text(0)
            })
        });
        let checked =
            identity.await.and_then(|identity| self.backend.check_database(&identity).map(|()| identity));
        match checked {
            Ok(identity) => {
                self.identity = identity;
                Ok(self)
            }
            Err(error) => {
                self.close().await;
                Err(error)
            }
        }
    }

    /// Waits for the operations that run, at most until a time limit, and closes the connections. If the operations
    /// have ended in time, SQLite writes no more to the files, and an operator can replace them.
    pub(crate) async fn close(&self) {
        self.backend.close().await;
    }

    /// Runs `work`, closes the connections even if it fails, and returns its result.
    pub(crate) async fn close_after<T>(
        &self,
        work: impl AsyncFnOnce(&Self) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let result = work(self).await;
        self.close().await;
        result
    }

    /// Returns whether other gateways use the database too.
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Records the identity of this database in the lock file of its SQLite file, so that a later start with another
    /// database in this place fails. Does nothing for other databases.
    pub(crate) fn accept_database(&self) -> Result<(), DatabaseError> {
        self.backend.accept_database(&self.identity)
    }

    /// Returns whether the database is in memory and ends with this process.
    pub(crate) fn is_memory(&self) -> bool {
        self.is_memory
    }

    /// Runs an operation with this access, at most for [`PATIENCE`], and returns its output.
    ///
    /// # Errors
    /// The failure of the operation; `Timeout` if it takes too long, and `Closed` if the database is closed or the
    /// operation panics.
    async fn run<T: Send + 'static>(
        &self,
        access: Access,
        operation: impl for<'t> FnOnce(&'t mut DynTransaction<'t>) -> OperationFuture<'t, T> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        // A backend does not know the type of the output, so the output is sent through a channel.
        let (output_sender, mut output) = oneshot::channel();
        let operation: transaction::Operation = Box::new(move |tx| {
            let work = operation(tx);
            Box::pin(async move {
                // Fails only if the caller no longer waits.
                let _ = output_sender.send(work.await?);
                Ok(())
            })
        });
        with_timeout(self.backend.run(access, operation)).await?;
        // If the channel is empty, the backend dropped the operation before its end.
        output.try_recv().map_err(|_| DatabaseError::Closed)
    }

    /// Executes a statement without a transaction.
    #[cfg(test)]
    async fn execute_for_test(&self, sql: &str) -> Result<u64, DatabaseError> {
        let sql = sql.to_owned();
        self.run(Access::Statement, move |tx| Box::pin(async move { tx.execute(&sql, &[]).await })).await
    }

    /// Returns the rows of a statement on the connection that writes.
    #[cfg(test)]
    async fn query_for_test(&self, sql: &str) -> Result<Vec<transaction::SqlRow>, DatabaseError> {
        let sql = sql.to_owned();
        self.run(Access::Statement, move |tx| Box::pin(async move { tx.query(&sql, &[]).await })).await
    }
}

/// Waits for the database, at most for [`PATIENCE`].
async fn with_timeout<T>(work: impl Future<Output = Result<T, DatabaseError>>) -> Result<T, DatabaseError> {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or(Err(DatabaseError::Timeout))
}
