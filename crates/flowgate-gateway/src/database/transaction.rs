//! Defines the interface between the operations of the gateway and the backends that run them. An operation is a
//! sequence of SQL statements. It is written once, in the SQL that SQLite and PostgreSQL share, over the trait
//! [`Transaction`]. Each backend implements that trait and [`Backend`].
//!
//! A statement refers to its values by number (`?1`), and can contain these placeholders:
//!
//! * `{now}` is the time of the database, since the clocks of gateways may differ.
//! * `{used}` is the new time of last use of a conversation that is used now. The stored time changes at most once a
//!   minute, so that its index entry seldom changes.
//! * `{unexpired}` is the condition that a question has not expired, and `{expired}` the condition that it has. A
//!   question from the future counts as expired: the clock was set back, so its age is unknown.

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

/// The error for a column that does not exist, or holds another type than the caller expects.
const OTHER_TYPE: DatabaseError = DatabaseError::Damaged(
    "a column is missing, or has text instead of an integer or an integer instead of text",
);

impl SqlRow {
    /// Returns the integer in column `index`; fails if the column does not exist or is no integer.
    pub(super) fn integer(&self, index: usize) -> Result<i64, DatabaseError> {
        match self.0.get(index) {
            Some(SqlColumn::Integer(value)) => Ok(*value),
            _ => Err(OTHER_TYPE),
        }
    }

    /// Takes the text out of column `index`, which is empty afterwards; fails if the column does not exist or is no
    /// text.
    pub(super) fn text(&mut self, index: usize) -> Result<String, DatabaseError> {
        match self.0.get_mut(index) {
            Some(SqlColumn::Text(value)) => Ok(std::mem::take(value)),
            _ => Err(OTHER_TYPE),
        }
    }
}

/// The future of an operation: boxed, since the future of a request would otherwise contain those of all its
/// operations.
pub(super) type OperationFuture<'t, T> = Pin<Box<dyn Future<Output = Result<T, DatabaseError>> + Send + 't>>;

/// The statements of one operation.
pub(super) trait Transaction: Send {
    /// Executes a statement, and returns its rows.
    fn query<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, Vec<SqlRow>>;

    /// Executes a statement that returns no rows; returns the number of rows that it changed.
    fn execute<'t>(&'t mut self, sql: &'t str, values: &'t [SqlValue<'t>]) -> OperationFuture<'t, u64>;

    /// Rolls the transaction back at the end of the operation, even if the operation succeeds.
    fn discard(&mut self);

    /// Runs `action` once the transaction is committed. On SQLite, no other transaction is run in between.
    fn on_commit(&mut self, action: Box<dyn FnOnce() + Send>);
}

/// A transaction as an operation receives it.
pub(super) type DynTransaction<'t> = dyn Transaction + 't;

/// An operation as a backend runs it: a function that executes its statements, and hands its output to its caller by
/// itself.
pub(super) type Operation =
    Box<dyn for<'t> FnOnce(&'t mut DynTransaction<'t>) -> OperationFuture<'t, ()> + Send>;

/// What an operation does.
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

/// A database server or file. Operations that it runs for one gateway at the same time do not fail each other.
pub(super) trait Backend: fmt::Debug + Send + Sync {
    /// Runs an operation. An operation whose future is dropped before the end is rolled back.
    fn run(&self, access: Access, operation: Operation) -> OperationFuture<'_, ()>;

    /// Begins the transaction of a turn with `first`. Until it ends, no other turn of the tenant changes the record of
    /// the tenant's stores through this gateway.
    fn begin_turn<'b>(
        &'b self,
        tenant: &'b str,
        first: Operation,
    ) -> OperationFuture<'b, Box<dyn TurnTransaction>>;

    /// Closes all connections. When this returns, an operator can replace the files of the database, unless an
    /// operation ran for longer than a stop waits.
    fn close(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Rejects a database of this name if another one is expected.
    fn check_database(&self, name: &str) -> Result<(), DatabaseError>;

    /// Records the database of this name as the expected one.
    fn accept_database(&self, name: &str) -> Result<(), DatabaseError>;
}

/// The transaction of a turn. It is rolled back when it is dropped.
pub(super) trait TurnTransaction: Send {
    /// Runs the last operation of the transaction, and commits it.
    fn finish(self: Box<Self>, last: Operation) -> OperationFuture<'static, ()>;
}

/// Expands the placeholders of a statement, such as `{now}`; `now` is the SQL expression for the time in milliseconds.
///
/// `{unexpired}` and `{expired}` are conditions on a question. A question with a time of asking more than a minute in
/// the future counts as expired: it was stored before the clock was set back. `{used}` is the new time of last use of a
/// conversation, which changes only if the old one is off by more than a minute.
pub(super) fn expand_statement<'s>(sql: &'s str, now: &str) -> Cow<'s, str> {
    if !sql.contains('{') {
        return Cow::Borrowed(sql);
    }
    let sql = sql
        .replace("{unexpired}", "(expires > {now} AND asked <= {now} + 60000)")
        .replace("{expired}", "(expires <= {now} OR asked > {now} + 60000)")
        .replace("{used}", "CASE WHEN abs({now} - used) > 60000 THEN {now} ELSE used END")
        .replace("{now}", now);
    Cow::Owned(sql)
}
