//! Defines the interface between the operations on the database and the two backends (SQLite, PostgreSQL) that run
//! them: the traits [`Transaction`] and [`Backend`], and the values and rows of statements. The other files of
//! `database` use it.
//!
//! An operation is a function that executes SQL statements through the trait [`Transaction`]. It is written once, in
//! the SQL that both backends share. Each backend implements this trait and [`Backend`].
//!
//! A statement refers to its values by number (`?1`), and can contain these placeholders:
//!
//! * `{now}` is the time of the database, since the clocks of gateways may differ.
//! * `{used}` is the new time of last use of a conversation that is used now. The stored time changes at most once a
//!   minute, so that its index entry seldom changes.
//! * `{unexpired}` is the condition that a question has not expired, and `{expired}` is the condition that it has
//!   expired. A question from the future counts as expired: the clock was set back, so its age is unknown.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;

use super::error::DatabaseError;

/// A value of a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum SqlValue<'v> {
    Integer(i64),
    Text(&'v str),
}

impl From<i64> for SqlValue<'_> {
    fn from(value: i64) -> Self {
        Self::Integer(value)
    }
}

impl<'v> From<&'v str> for SqlValue<'v> {
    fn from(value: &'v str) -> Self {
        Self::Text(value)
    }
}

impl<'v> From<&'v String> for SqlValue<'v> {
    fn from(value: &'v String) -> Self {
        Self::Text(value)
    }
}

/// A column of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SqlColumn {
    Null,
    Integer(i64),
    Text(String),
}

/// A row that a statement returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SqlRow(pub(super) Vec<SqlColumn>);

/// The error if a column does not exist, or has another type than the caller expects.
const OTHER_TYPE: DatabaseError = DatabaseError::Damaged(
    "a column is missing, or has text instead of an integer or an integer instead of text",
);

impl SqlRow {
    /// Returns the integer in column `index`; fails if the column does not exist or is not an integer.
    pub(super) fn integer(&self, index: usize) -> Result<i64, DatabaseError> {
        match self.0.get(index) {
            Some(SqlColumn::Integer(value)) => Ok(*value),
            _ => Err(OTHER_TYPE),
        }
    }

    /// Takes the text out of column `index`, which is empty afterwards; fails if the column does not exist or is not
    /// text.
    pub(super) fn text(&mut self, index: usize) -> Result<String, DatabaseError> {
        match self.0.get_mut(index) {
            Some(SqlColumn::Text(value)) => Ok(std::mem::take(value)),
            _ => Err(OTHER_TYPE),
        }
    }
}

/// The future of an operation. It is boxed, since the future of a request would otherwise contain the futures of all
/// its operations and be very large.
pub(super) type OperationFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 't>>;

/// The statements of one operation.
pub(super) trait Transaction: Send {
    /// Executes a statement, and returns its rows.
    fn query<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, Vec<SqlRow>>;

    /// Executes a statement that returns no rows; returns the number of rows that it changed.
    fn execute<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, u64>;

    /// Rolls the transaction back at the end of the operation, even if the operation succeeds.
    fn discard(&mut self);

    /// Runs `action` after the transaction is committed. On SQLite, no other transaction runs between the two.
    fn on_commit(&mut self, action: Box<dyn FnOnce() + Send>);
}

/// A transaction as an operation receives it.
pub(super) type DynTransaction<'t> = dyn Transaction + 't;

/// An operation as a backend runs it: a function that executes statements. It returns nothing to the backend; it sends
/// its output to its caller through a channel of its own.
pub(super) type Operation =
    Box<dyn for<'t> FnOnce(&'t mut DynTransaction<'t>) -> OperationFuture<'t, ()> + Send>;

/// Whether an operation reads or writes, and whether it needs a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Reads; each statement by itself.
    Query,
    /// Reads, in one transaction.
    Snapshot,
    /// Executes one statement that writes.
    Statement,
    /// Reads and writes, in one transaction.
    Transaction,
}

impl Access {
    /// Returns whether the operation may write.
    pub(super) fn writes(self) -> bool {
        matches!(self, Self::Statement | Self::Transaction)
    }

    /// Returns whether all statements of the operation run in one transaction.
    pub(super) fn is_transaction(self) -> bool {
        matches!(self, Self::Snapshot | Self::Transaction)
    }
}

/// A database server or file that runs operations. Operations of one gateway that run at the same time do not make each
/// other fail.
pub(super) trait Backend: fmt::Debug + Send + Sync {
    /// Runs an operation, in a transaction if `access` requires one. The transaction is rolled back if the operation
    /// fails or discards it, or if the returned future is dropped before the end.
    fn run(&self, access: Access, operation: Operation) -> OperationFuture<'_, ()>;

    /// Begins the transaction of a turn with the statements of `first`, which a backend may defer until
    /// [`TurnTransaction::finish`]. Until the transaction ends, no other turn of the tenant changes the record of the
    /// tenant's stores through this gateway.
    fn begin_turn<'b>(
        &'b self,
        tenant: &'b str,
        first: Operation,
    ) -> OperationFuture<'b, Box<dyn TurnTransaction>>;

    /// Waits for the operations that run, at most until a time limit, and closes all connections. If the operations
    /// have ended in time, an operator can replace the files of the database.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Checks that the lock file names the open database, whose identity is `name`, or no database yet. A backend
    /// without a lock file accepts every name.
    fn check_database(&self, name: &str) -> Result<(), DatabaseError>;

    /// Records `name`, the identity of the open database, in the lock file: later starts expect this database.
    fn accept_database(&self, name: &str) -> Result<(), DatabaseError>;
}

/// The transaction of a turn. It is rolled back when it is dropped.
pub(super) trait TurnTransaction: Send {
    /// Runs the last operation of the transaction, and commits the transaction; rolls it back if the operation fails or
    /// discards it.
    fn finish(self: Box<Self>, last: Operation) -> OperationFuture<'static, ()>;
}

/// Replaces the placeholders of a statement: `{now}` by `now`, the backend's SQL expression for the time in
/// milliseconds, and `{used}`, `{unexpired}` and `{expired}` by the expressions that the header of this module
/// explains.
pub(super) fn expand_statement<'s>(sql: &'s str, now: &str) -> Cow<'s, str> {
    if !sql.contains('{') {
        return Cow::Borrowed(sql);
    }
    // 60,000 ms is the minute by which clocks may differ, and for which the time of last use is not rewritten.
    let sql = sql
        .replace("{unexpired}", "(expires > {now} AND asked <= {now} + 60000)")
        .replace("{expired}", "(expires <= {now} OR asked > {now} + 60000)")
        .replace("{used}", "CASE WHEN abs({now} - used) > 60000 THEN {now} ELSE used END")
        .replace("{now}", now);
    Cow::Owned(sql)
}
