//! Tests whether the database is writable. The health route of `http` calls it.
//!
//! A gateway that answers requests may still be unable to persist a turn: the disk may be full, or the database
//! unreachable. The probe therefore writes about as much as a turn, in the same way.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use super::Database;
use super::error::DatabaseError;
use super::transaction::Access;

/// The time for which an outcome is reused. The health route is public, and must not cause more frequent writes.
const FRESH: Duration = Duration::from_secs(1);
/// The time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);
/// The bytes that a probe writes: about as many as a turn.
const PROBE_BYTES: usize = 16 << 10;

/// The outcome of a probe, and its time.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProbeResult {
    at: Instant,
    is_writable: bool,
}

impl Database {
    /// Returns whether the database is writable, as of at most a second ago.
    pub(crate) async fn is_writable(&self) -> bool {
        // Requests at the same time wait for one probe.
        let mut probed = self.probe.lock().await;
        if let Some(probed) = probed.filter(|probed| probed.at.elapsed() < FRESH) {
            return probed.is_writable;
        }
        let is_writable = matches!(tokio::time::timeout(PROBE_TIMEOUT, self.write_probe()).await, Ok(Ok(())));
        *probed = Some(ProbeResult { at: Instant::now(), is_writable });
        is_writable
    }

    /// Writes as many bytes as a turn, in a transaction, so that it fails where a turn would fail. The table `probe`
    /// has a single row, so the database does not grow.
    async fn write_probe(&self) -> Result<(), DatabaseError> {
        self.run(Access::Transaction, |tx| {
            Box::pin(async move {
                let text = probe_text();
                let sql = "UPDATE probe SET content = ?1 WHERE one = 1";
                tx.execute(sql, &[(&text).into()]).await.map(drop)
            })
        })
        .await
    }
}

/// Returns a text that differs from that of the previous call, since SQLite does not write a page that is unchanged.
fn probe_text() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let letter = char::from(b'a' + COUNT.fetch_add(1, Ordering::Relaxed) % 26);
    std::iter::repeat_n(letter, PROBE_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::database::turns::tests::{TestDatabases, open, test_turn, turns};

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
        store.query_for_test(&format!("PRAGMA max_page_count = {most}")).await.unwrap();
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
                store.persist_turn(test_turn(one, 0, &[])).await.unwrap();
                match fault {
                    DatabaseFault::RolledBack => {
                        let rolled_back = store.run(Access::Transaction, |tx| {
                            Box::pin(async move { tx.execute("ROLLBACK", &[]).await })
                        });
                        assert!(rolled_back.await.is_err(), "{at}");
                    }
                    DatabaseFault::Unended => {
                        store.execute_for_test("BEGIN IMMEDIATE").await.map(drop).unwrap()
                    }
                    DatabaseFault::Full => limit_pages(&store, "1").await,
                }
                assert_eq!(store.is_writable().await, !breaks_writes, "{at}");
                if breaks_writes {
                    let long = "x".repeat(1 << 20);
                    let turn =
                        crate::database::PersistedTurn { inputs: long.into(), ..test_turn(one, 1, &[]) };
                    let refused = store.persist_turn(turn).await;
                    assert!(matches!(refused, Err(DatabaseError::Sqlite(_))), "{at}: {refused:?}");
                    limit_pages(&store, "1000000").await;
                }
                store.persist_turn(test_turn(one, 1, &[])).await.unwrap();
                store.execute_for_test("UPDATE changes SET last = last").await.unwrap();
                assert_eq!(turns(&store, &name).await, 2, "{at}");
                while !store.is_writable().await {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}
