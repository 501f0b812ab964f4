//! Numbers the changes of questions, so that the event stream of questions can be resumed: after a reconnection, a
//! person's program sends the number of the last change that it received, and the stream continues with the next one.
//! [`questions`](super::questions) and [`lasting_grants`](super::lasting_grants) take a number in each transaction that
//! changes a question.

use super::error::DatabaseError;
use super::transaction::DynTransaction;

/// The error if the row with the last number, which the migration creates, does not exist.
pub(super) const NO_CHANGES: DatabaseError =
    DatabaseError::Damaged("the table `changes` has no row with the number of the last change");

/// Returns the number of the next change. The update locks the row until the transaction ends, so changes are committed
/// in the order of their numbers.
pub(super) async fn next_change(tx: &mut DynTransaction<'_>) -> Result<i64, DatabaseError> {
    let rows = tx.query("UPDATE changes SET last = last + 1 WHERE one = 1 RETURNING last", &[]).await?;
    rows.first().ok_or(NO_CHANGES)?.integer(0)
}
