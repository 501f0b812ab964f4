//! Whether the store is writable.
//!
//! A process that answers can still be unable to persist a turn: the disk may be full, or the database unreachable.
//! The health route therefore writes a probe, on the same connections as turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::turn_connection::probe_text;
use super::{Database, DatabaseError, with_timeout};

/// The time for which an outcome is reused. The health route is public, and must not cause more frequent writes.
const FRESH: Duration = Duration::from_secs(1);
/// The time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

const WRITE: &str = "UPDATE probe SET content = $1 WHERE one = 1";

/// The outcome of a probe, and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeResult {
    at: Instant,
    is_writable: bool,
}

impl Database {
    /// Returns whether the store is writable, as of at most a second ago.
    pub(crate) async fn is_writable(self: &Arc<Self>) -> bool {
        let mut probed = self.probe.lock().await;
        if let Some(probed) = probed.filter(|probed| probed.at.elapsed() < FRESH) {
            return probed.is_writable;
        }
        let is_writable = matches!(tokio::time::timeout(PROBE_TIMEOUT, self.write()).await, Ok(Ok(())));
        *probed = Some(ProbeResult { at: Instant::now(), is_writable });
        is_writable
    }

    /// Writes on each of the connections that persist turns.
    async fn write(self: &Arc<Self>) -> Result<(), DatabaseError> {
        let store = Arc::clone(self);
        let beside =
            move || store.turns.as_ref().map_or(Ok(()), super::turn_connection::TurnConnection::probe);
        tokio::task::spawn_blocking(beside).await.unwrap_or(Err(DatabaseError::Timeout))?;
        with_timeout(async {
            let mut tx = self.begin().await?;
            sqlx::query(WRITE).bind(probe_text()).execute(&mut *tx).await?;
            Ok(tx.commit().await?)
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::turn_connection::tests::{TestDatabases, open, test_turn, turns};
    use super::*;

    /// A way for a store to fail.
    #[derive(Debug, Clone, Copy)]
    enum DatabaseFault {
        /// SQLite has rolled back by itself: the explicit rollback fails.
        RolledBack,
        /// A transaction for a turn could not be ended.
        Unended,
        /// There is no space for another page.
        Full,
    }

    async fn limit_pages(store: &Database, most: &str) {
        let sql = format!("PRAGMA max_page_count = {most}");
        sqlx::query(sqlx::AssertSqlSafe(sql.clone())).execute(&store.pool).await.unwrap();
        store.turns.as_ref().unwrap().execute(&sql);
    }

    /// After any failure, turns are persisted as soon as possible, without a restart, and health reports it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_store_that_failed_goes_on() {
        for (fault, breaks_writes) in
            [(DatabaseFault::RolledBack, false), (DatabaseFault::Unended, false), (DatabaseFault::Full, true)]
        {
            let places = TestDatabases::new(&format!("{fault:?}"));
            for place in places.addresses() {
                let at = format!("{fault:?} {place:?}");
                let name = format!("{fault:?}");
                let store = Arc::new(Database::open(&place).await.unwrap());
                let one = (name.as_str(), open(&store, &name).await);
                store.persist_turn_alone(&test_turn(one, 0, &[])).unwrap();
                match fault {
                    DatabaseFault::RolledBack => {
                        let mut tx = store.begin().await.unwrap();
                        sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
                    }
                    DatabaseFault::Unended => store.turns.as_ref().unwrap().execute("BEGIN IMMEDIATE"),
                    DatabaseFault::Full => limit_pages(&store, "1").await,
                }
                assert_eq!(store.is_writable().await, !breaks_writes, "{at}");
                if breaks_writes {
                    let long = "x".repeat(1 << 20);
                    let refused = store.persist_turn_alone(&crate::database::PersistedTurn {
                        inputs: &long,
                        ..test_turn(one, 1, &[])
                    });
                    assert!(matches!(refused, Err(DatabaseError::Turn(_))), "{at}: {refused:?}");
                    limit_pages(&store, "1000000").await;
                }
                store.persist_turn_alone(&test_turn(one, 1, &[])).unwrap();
                store.begin().await.unwrap().commit().await.unwrap();
                assert_eq!(turns(&store, &name).await, 2, "{at}");
                while !store.is_writable().await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}
