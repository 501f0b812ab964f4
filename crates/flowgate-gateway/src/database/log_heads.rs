//! Stores the heads of audit logs (the number and the digest of the newest line) in the database, in the transactions
//! that persist turns and decisions.
//!
//! With the recorded head, a gateway notices at its start that its log was truncated, and does not start; the log alone
//! could not show this. `recorder` opens the log and compares it with the recorded head; `turns`, `questions` and
//! `lasting_grants` store newer heads; `flowgate audit` reads the heads. This module also lists the stored
//! conversations, which `flowgate audit` compares with the log.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use flowgate_audit::{
    AuditLog, AuditPublicKey, DatabaseLogAnchors, LastLineHandle, LineHash, LogAnchor, LogHead,
};

use super::Database;
use super::error::DatabaseError;
use super::transaction::{Access, DynTransaction, SqlRow};

/// The audit log of this gateway, whose heads the database records.
#[derive(Debug)]
pub(crate) struct TrackedAuditLog {
    /// The identity of the log: the digest of its first line.
    id: String,
    /// The number and the digest of the last line that was written.
    end: Arc<LastLineHandle>,
    /// The number of the last line that the database has recorded.
    recorded_seq: AtomicI64,
}

/// A conversation in the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConversationListing {
    pub(crate) id: i64,
    pub(crate) client: String,
    pub(crate) name: String,
    /// The number of persisted turns.
    pub(crate) turns: i64,
}

/// A head of the log that is newer than the one in the database.
#[derive(Debug, Clone)]
pub(crate) struct NewerLogHead {
    /// The identity of the log.
    pub(super) log: String,
    /// The number of the last line.
    pub(super) seq: i64,
    /// The digest of the last line.
    pub(super) hash: String,
}

impl Database {
    /// Returns the heads of logs that the database has recorded, with the identity of the database.
    pub(crate) async fn anchors(&self) -> Result<DatabaseLogAnchors, DatabaseError> {
        let is_shared = self.is_shared;
        self.run(Access::Snapshot, move |tx| {
            Box::pin(async move {
                let mut identity = tx.query("SELECT id, began_empty FROM identity", &[]).await?;
                let identity =
                    identity.first_mut().ok_or(DatabaseError::Damaged("the table `identity` has no row"))?;
                let sql = "SELECT log, key, seq, hash, after FROM audit_logs ORDER BY log";
                Ok(DatabaseLogAnchors {
                    database: identity.text(0)?,
                    is_shared,
                    // `began_empty` is 0 if the database had conversations before it recorded logs.
                    is_upgraded: identity.integer(1)? == 0,
                    logs: tx.query(sql, &[]).await?.iter_mut().map(read_anchor).collect::<Result<_, _>>()?,
                })
            })
        })
        .await
    }

    /// Returns the conversations that have turns, each with the number of its turns.
    pub(crate) async fn conversations(&self) -> Result<Vec<ConversationListing>, DatabaseError> {
        self.run(Access::Query, |tx| {
            Box::pin(async move {
                let sql = "SELECT id, client, name, MAX(number) FROM conversations \
                           JOIN turns ON turns.conversation = conversations.id GROUP BY id, client, name ORDER BY id";
                let listed = |row: &mut SqlRow| {
                    Ok(ConversationListing {
                        id: row.integer(0)?,
                        client: row.text(1)?,
                        name: row.text(2)?,
                        // Turns are numbered from 0.
                        turns: row.integer(3)?.saturating_add(1),
                    })
                };
                tx.query(sql, &[]).await?.iter_mut().map(listed).collect()
            })
        })
        .await
    }

    /// Begins to track the gateway's audit log: records the head of the log, and deletes the heads of the logs that
    /// this log replaces (all others; in a shared database, only others with the same key). From now on, the
    /// transactions of turns and decisions store newer heads. `has_lost_lines` says that the log has lost lines. Turns
    /// of the conversations that exist now may then be missing in the log, so these conversations are recorded as older
    /// than the log.
    ///
    /// # Errors
    /// If the database fails, or this gateway tracks a log already.
    pub(crate) async fn watch(&self, log: &AuditLog, has_lost_lines: bool) -> Result<(), DatabaseError> {
        let (id, key, last_line) = (log.id().to_string(), log.key().to_string(), log.last_line());
        let head = last_line.get();
        let (log, seq, hash) = (id.clone(), number(head.seq), head.hash.to_string());
        let is_shared = self.is_shared;
        let recorded = self.run(Access::Transaction, move |tx| {
            Box::pin(async move {
                // Of gateways that share the database (?3 = 1), each has its own key, and removes only other logs with
                // that key. If turns may be lost (?4 = 1), the row of this log is also replaced, with a new `after`.
                let sql =
                    "DELETE FROM audit_logs WHERE (log <> ?1 OR ?4 = 1) AND (log = ?1 OR key = ?2 OR ?3 = 0)";
                let (is_shared, has_lost_lines) = (i64::from(is_shared), i64::from(has_lost_lines));
                let values = [(&log).into(), (&key).into(), is_shared.into(), has_lost_lines.into()];
                tx.execute(sql, &values).await?;
                // `after` is the number of the newest conversation that is older than the log. SQLite needs the `WHERE`
                // to parse `ON CONFLICT` after a `SELECT`.
                let sql = "INSERT INTO audit_logs (log, key, seq, hash, after) \
                           SELECT ?1, ?2, ?3, ?4, COALESCE(MAX(id), 0) FROM conversations WHERE true \
                           ON CONFLICT (log) DO UPDATE SET seq = ?3, hash = ?4";
                let values = [(&log).into(), (&key).into(), seq.into(), (&hash).into()];
                tx.execute(sql, &values).await.map(drop)
            })
        });
        recorded.await?;
        let recorded_seq = AtomicI64::new(seq);
        self.log.set(TrackedAuditLog { id, end: last_line, recorded_seq }).map_err(|_| {
            DatabaseError::Audit(
                "this gateway already tracks another audit log in its database, because of a bug in the gateway: report it"
                    .to_owned(),
            )
        })
    }

    /// Returns the head of the log, if it is newer than the recorded one; `None` if it is not, or there is no log. The
    /// caller has appended the lines about its transaction to the log before this call, so that the head covers them.
    pub(super) fn newer_head(&self) -> Option<NewerLogHead> {
        let TrackedAuditLog { id, end, recorded_seq } = self.log.get()?;
        let head = end.get();
        let seq = number(head.seq);
        (seq > recorded_seq.load(Ordering::Relaxed)).then(|| NewerLogHead {
            log: id.clone(),
            seq,
            hash: head.hash.to_string(),
        })
    }

    /// Notes that the database has recorded this head. Does nothing if a newer head is noted already, by a transaction
    /// that ended earlier.
    pub(super) fn set_recorded(&self, newer: Option<&NewerLogHead>) {
        if let (Some(newer), Some(tracked)) = (newer, self.log.get()) {
            tracked.recorded_seq.fetch_max(newer.seq, Ordering::Relaxed);
        }
    }

    /// Records the head of the gateway's audit log in the database, if it is newer than the recorded one. Does
    /// nothing for a gateway without an audit log.
    pub(crate) async fn persist_log_head(&self) -> Result<(), DatabaseError> {
        let Some(newer) = self.newer_head() else { return Ok(()) };
        let head = newer.clone();
        let recorded = self.run(Access::Transaction, move |tx| {
            Box::pin(async move { update_log_head(tx, Some(&head)).await })
        });
        recorded.await?;
        // Notes this, so that the same head does not count as newer again.
        self.set_recorded(Some(&newer));
        Ok(())
    }
}

/// Replaces the recorded head of a log by `newer`, if `newer` has a greater number. Does nothing for `None`, or if the
/// database has no head of the log.
pub(super) async fn update_log_head(
    tx: &mut DynTransaction<'_>,
    newer: Option<&NewerLogHead>,
) -> Result<(), DatabaseError> {
    let Some(NewerLogHead { log, seq, hash }) = newer else { return Ok(()) };
    let sql = "UPDATE audit_logs SET seq = ?1, hash = ?2 WHERE log = ?3 AND seq < ?1";
    tx.execute(sql, &[(*seq).into(), hash.into(), log.into()]).await.map(drop)
}

/// Reads a row of the table `audit_logs`: a log, its key, its recorded head, and the number of the newest conversation
/// that is older than the log (`after`).
fn read_anchor(row: &mut SqlRow) -> Result<LogAnchor, DatabaseError> {
    let damaged = DatabaseError::Damaged(
        "a row of the table `audit_logs` has an invalid hash, key or number of a log head",
    );
    let (log, key, hash) = (
        LineHash::parse(&row.text(0)?),
        AuditPublicKey::parse(&row.text(1)?),
        LineHash::parse(&row.text(3)?),
    );
    let (Some(log), Some(key), Some(hash)) = (log, key, hash) else { return Err(damaged) };
    let Ok(seq) = u64::try_from(row.integer(2)?) else { return Err(damaged) };
    Ok(LogAnchor { log, key, head: LogHead { seq, hash }, after: row.integer(4)? })
}

/// Converts the number of a line of an audit log to the type of numbers in the database.
fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
