//! Runs a thread that checkpoints the write-ahead log of SQLite (moves its pages into the database file), so that the
//! thread that writes does not have to wait for this. `sqlite` starts the checkpoint thread for a file, and `thread`
//! counts the writes.
//!
//! With checkpoints in the thread that writes, the time that the gateway adds to an answer is the same in the median,
//! and 1.5 times as long at the 99th percentile (`compat/latency/README.md`, *What hand-tuned paths save*).

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;

use super::connection::DatabasePlace;
use crate::database::error::DatabaseError;

/// The number of writes after which the thread checkpoints the write-ahead log. Each checkpoint waits for the disk, so
/// there should not be too many; a large one would delay writes, so there should not be too few.
const BETWEEN_CHECKPOINTS: u32 = 128;

/// The number of pages at which the write-ahead log may restart from its beginning. The write that restarts it waits
/// for the disk, and later writes wait for that one, so the log restarts seldom. It stays short enough to be in memory,
/// because a page that is partly overwritten is read first.
const LONG_LOG: i64 = 4096;

/// The time without a request for a checkpoint after which the write-ahead log may restart at any time.
const CHECKPOINT_IDLE_TIME: Duration = Duration::from_secs(2);

/// A thread that checkpoints the write-ahead log on request, until this is dropped.
#[derive(Debug)]
pub(super) struct CheckpointThread {
    /// The number of writes since the last request for a checkpoint.
    count: u32,
    /// The channel of requests for checkpoints; `None` when the thread has to end.
    requests: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    /// Starts the thread, which runs a checkpoint when one is requested, and ends when this value is dropped. Between
    /// checkpoints, the thread has a read transaction open, which prevents the restart of the write-ahead log: a
    /// restart makes writes wait for the disk. The write-ahead log may restart when it is long ([`LONG_LOG`]), or when
    /// no checkpoint was requested for [`CHECKPOINT_IDLE_TIME`].
    pub(super) fn begin(path: &Path) -> Result<Self, DatabaseError> {
        let (connection, mut reader) = (connect(path)?, WalReader::new(path)?);
        let (request_sender, requests) = sync_channel::<()>(1);
        let work = move || {
            let mut log_pages = 0;
            loop {
                match requests.recv_timeout(CHECKPOINT_IDLE_TIME) {
                    Ok(()) => {}
                    // Idle: another program that writes to the file runs its own checkpoints, and an open read
                    // transaction here would hinder them.
                    Err(RecvTimeoutError::Timeout) => {
                        reader.renew_read_transaction(false);
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let is_long = log_pages >= LONG_LOG;
                reader.renew_read_transaction(!is_long);
                // A long log restarts only if no write arrives during a checkpoint. Of four checkpoints, each is
                // shorter than the one before, so that one of them probably meets this condition.
                let checkpoints = if is_long { 4 } else { 1 };
                for _ in 0..checkpoints {
                    // A failure is retried with the next request. A passive checkpoint neither waits for readers and
                    // writers nor delays them.
                    // The second column of the result is the number of pages in the log.
                    let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
                    log_pages = connection.query_row(checkpoint, [], |row| row.get(1)).unwrap_or_default();
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(work);
        Ok(Self {
            count: 0,
            requests: Some(request_sender),
            thread: Some(thread.map_err(DatabaseError::Runtime)?),
        })
    }

    /// Counts a write; requests a checkpoint after [`BETWEEN_CHECKPOINTS`] of them.
    pub(super) fn count_write(&mut self) {
        self.count += 1;
        if self.count >= BETWEEN_CHECKPOINTS {
            self.count = 0;
            self.request_checkpoint();
        }
    }

    /// Requests a checkpoint from the thread, without waiting for it.
    fn request_checkpoint(&self) {
        if let Some(requests) = &self.requests {
            // Fails if the queue is full: a checkpoint is requested already.
            let _ = requests.try_send(());
        }
    }
}

/// A reader of the write-ahead log: while it reads, the log does not restart.
#[derive(Debug)]
struct WalReader(Connection);

impl WalReader {
    /// Opens a connection to the database file at `path`, which does not read yet.
    fn new(path: &Path) -> Result<Self, DatabaseError> {
        Ok(Self(connect(path)?))
    }

    /// Ends the current read transaction, and begins another one if `is_reading`. While one is open, SQLite cannot
    /// restart the write-ahead log from its beginning. Errors are ignored: without the transaction, the write-ahead log
    /// only restarts more often.
    fn renew_read_transaction(&mut self, is_reading: bool) {
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
        if is_reading {
            let _ = self.0.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema");
        }
    }
}

impl Drop for CheckpointThread {
    /// Ends the thread, and waits until it has ended.
    fn drop(&mut self) {
        // Closes the channel, at which the thread ends.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // An error means that the thread has panicked, which changes nothing here: no checkpoint is necessary.
            let _ = thread.join();
        }
    }
}

/// Opens a connection to the database file at `path`, with the settings of every connection.
fn connect(path: &Path) -> Result<Connection, DatabaseError> {
    DatabasePlace::File(path.to_owned()).connect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Database;
    use crate::database::turns::tests::{TestDatabases, open, test_turn};

    /// Ends a test that hangs.
    const HANG: Duration = Duration::from_secs(120);

    /// The log does not restart while turns arrive, and may restart when they do not.
    #[tokio::test]
    async fn the_log_restarts_soon_despite_readers() {
        let places = TestDatabases::new("log");
        let [_, place] = places.addresses();
        let store = Database::open(&place).await.unwrap();
        let one = ("one", open(&store, "one").await);
        let other = connect(place.file().unwrap()).unwrap();
        other.execute_batch("PRAGMA busy_timeout = 100").unwrap();
        let is_kept = || {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            other.query_row(checkpoint, [], |row| row.get::<_, bool>(0)).unwrap()
        };
        let begun = std::time::Instant::now();
        // Turns arrive until the log is kept: a reader that begins after the log was truncated keeps nothing.
        let mut turns = 0..;
        loop {
            for number in turns.by_ref().take(BETWEEN_CHECKPOINTS as usize) {
                store.persist_turn(test_turn(one, number, &[])).await.unwrap();
            }
            if is_kept() {
                break;
            }
            assert!(begun.elapsed() < HANG, "the log restarts while turns arrive");
        }
        while is_kept() {
            assert!(begun.elapsed() < HANG, "the log does not restart");
        }
    }
}
