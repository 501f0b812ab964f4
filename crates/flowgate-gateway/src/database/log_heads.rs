//! The heads of audit logs in the database, written in the transactions that persist turns and decisions.
//!
//! A truncated log can be detected only against another record: a gateway whose log is behind its database does not
//! start.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use sqlx::Row as _;

use super::{Database, DatabaseError, Transaction, with_timeout};
use flowgate_audit::{
    AuditLog, AuditPublicKey, DatabaseLogAnchors, LastLineHandle, LineHash, LogAnchor, LogHead,
};

/// The audit log of this gateway.
#[derive(Debug)]
pub(crate) struct TrackedAuditLog {
    id: String,
    end: Arc<LastLineHandle>,
    /// The number of the last line that the database has recorded.
    kept: AtomicI64,
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
    pub(super) log: String,
    pub(super) seq: i64,
    pub(super) hash: String,
}

const UPDATE: &str = "UPDATE audit_logs SET seq = $1, hash = $2 WHERE log = $3 AND seq < $1";
/// The same statement for the connection for turns.
pub(super) const UPDATE_ON_TURN_CONNECTION: &str =
    "UPDATE audit_logs SET seq = ?1, hash = ?2 WHERE log = ?3 AND seq < ?1";

impl Database {
    /// Returns the heads of logs that the database has recorded.
    pub(crate) async fn anchors(&self) -> Result<DatabaseLogAnchors, DatabaseError> {
        with_timeout(async {
            let identity = sqlx::query("SELECT id, began_empty FROM identity").fetch_one(&self.pool).await?;
            let rows = sqlx::query("SELECT log, key, seq, hash, after FROM audit_logs ORDER BY log");
            let mut logs = Vec::new();
            for row in rows.fetch_all(&self.pool).await? {
                let damaged = DatabaseError::Damaged("what it knows of an audit log");
                let text = |index: usize| row.try_get::<String, _>(index);
                let (log, key, hash) = (
                    LineHash::parse(&text(0)?),
                    AuditPublicKey::parse(&text(1)?),
                    LineHash::parse(&text(3)?),
                );
                let (Some(log), Some(key), Some(hash)) = (log, key, hash) else { return Err(damaged) };
                let seq = u64::try_from(row.try_get::<i64, _>(2)?).map_err(|_| damaged)?;
                logs.push(LogAnchor { log, key, head: LogHead { seq, hash }, after: row.try_get(4)? });
            }
            Ok(DatabaseLogAnchors {
                database: identity.try_get(0)?,
                is_shared: self.is_shared,
                is_upgraded: identity.try_get::<i64, _>(1)? == 0,
                logs,
            })
        })
        .await
    }

    /// Returns the conversations that have turns.
    pub(crate) async fn conversations(&self) -> Result<Vec<ConversationListing>, DatabaseError> {
        let sql = "SELECT id, client, name, MAX(number) FROM conversations \
                   JOIN turns ON turns.conversation = conversations.id GROUP BY id, client, name ORDER BY id";
        let rows = sqlx::query(sql).fetch_all(&self.pool).await?;
        let listed = |row: &sqlx::any::AnyRow| {
            Ok(ConversationListing {
                id: row.try_get(0)?,
                client: row.try_get(1)?,
                name: row.try_get(2)?,
                turns: row.try_get::<i64, _>(3)?.saturating_add(1),
            })
        };
        rows.iter().map(listed).collect()
    }

    /// Records the head of this log, and removes those of the logs that it replaces. With `is_begun_anew`, existing
    /// conversations may have turns that the log has lost.
    pub(crate) async fn watch(&self, log: &AuditLog, is_begun_anew: bool) -> Result<(), DatabaseError> {
        let (id, key, end) = (log.id().to_string(), log.key().to_string(), log.last_line());
        let head = end.get();
        with_timeout(async {
            let mut tx = self.begin().await?;
            // Gateways that share the database keep the records of the others, each with a key of its own.
            let sql =
                "DELETE FROM audit_logs WHERE (log <> $1 OR $4 = 1) AND (log = $1 OR key = $2 OR $3 = 0)";
            let delete = sqlx::query(sql).bind(&id).bind(&key).bind(i64::from(self.is_shared));
            let delete = delete.bind(i64::from(is_begun_anew));
            delete.execute(&mut *tx).await?;
            let sql = "INSERT INTO audit_logs (log, key, seq, hash, after) \
                       SELECT $1, $2, $3, $4, COALESCE(MAX(id), 0) FROM conversations WHERE true \
                       ON CONFLICT (log) DO UPDATE SET seq = $3, hash = $4";
            let insert =
                sqlx::query(sql).bind(&id).bind(&key).bind(number(head.seq)).bind(head.hash.to_string());
            insert.execute(&mut *tx).await?;
            Ok(tx.commit().await?)
        })
        .await?;
        let kept = AtomicI64::new(number(head.seq));
        self.log
            .set(TrackedAuditLog { id, end, kept })
            .map_err(|_| DatabaseError::Damaged("it watches a log already"))
    }

    /// Returns the head of the log, if it is newer than the one in the database.
    pub(super) fn newer_head(&self) -> Option<NewerLogHead> {
        let TrackedAuditLog { id, end, kept } = self.log.get()?;
        let head = end.get();
        let seq = number(head.seq);
        (seq > kept.load(Ordering::Relaxed)).then(|| NewerLogHead {
            log: id.clone(),
            seq,
            hash: head.hash.to_string(),
        })
    }

    /// Notes that the database has recorded this head.
    pub(super) fn set_recorded(&self, beyond: Option<&NewerLogHead>) {
        if let (Some(beyond), Some(watched)) = (beyond, self.log.get()) {
            watched.kept.fetch_max(beyond.seq, Ordering::Relaxed);
        }
    }

    /// Records the head of the log in the database, if it is newer.
    pub(crate) async fn persist_log_head(&self) -> Result<(), DatabaseError> {
        let Some(beyond) = self.newer_head() else { return Ok(()) };
        with_timeout(async {
            let mut tx = self.begin().await?;
            update_log_head(&mut tx, &beyond).await?;
            Ok(tx.commit().await?)
        })
        .await?;
        self.set_recorded(Some(&beyond));
        Ok(())
    }
}

/// Records the head of the log in this transaction. The lines for the transaction have to be appended to the log
/// before.
pub(crate) async fn persist_log_head_in(store: &Database, tx: &mut Transaction) -> Result<(), DatabaseError> {
    match store.newer_head() {
        Some(newer) => update_log_head(tx, &newer).await,
        None => Ok(()),
    }
}

/// Replaces the recorded head of a log, unless the recorded one is as new.
async fn update_log_head(tx: &mut Transaction, newer: &NewerLogHead) -> Result<(), DatabaseError> {
    let NewerLogHead { log, seq, hash } = newer;
    sqlx::query(UPDATE).bind(*seq).bind(hash).bind(log).execute(&mut **tx).await?;
    Ok(())
}

fn number(seq: u64) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}
