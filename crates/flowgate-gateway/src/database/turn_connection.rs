//! The connection for turns without other effects, used on the thread that answers them.
//!
//! sqlx runs SQLite on a thread of its own, and each statement is a round trip between threads: that takes longer
//! than to persist a turn. Most turns therefore use a connection of their own, to a store that no other gateway uses.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _, params};

use super::log_heads::{self, NewerLogHead};
use super::{DatabaseAddress, DatabaseError, PRAGMAS, PersistedTurn};

/// Writes a probe of whether the disk takes writes.
const WRITE_PROBE: &str = "UPDATE probe SET content = ?1 WHERE one = 1";

/// The bytes that a probe writes: about as many as a turn.
const PROBE_BYTES: usize = 16 << 10;

/// Returns a different text each time: SQLite does not write a page that is unchanged.
pub(super) fn probe_text() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(0);
    let letter = char::from(b'a' + COUNT.fetch_add(1, Ordering::Relaxed) % 26);
    std::iter::repeat_n(letter, PROBE_BYTES).collect()
}

/// The number of turns after which a thread beside them checkpoints the write-ahead log: a checkpoint waits for the
/// disk, and a large one would delay turns too. Only if that makes no progress, [a turn](super::PRAGMAS) checkpoints.
const BETWEEN_CHECKPOINTS: u32 = 128;

/// The number of pages at which the write-ahead log restarts. The turn that restarts it waits for the disk, and so do
/// others. The log is kept short enough to stay in memory: a page that is partly overwritten is read first.
const LONG_LOG: i64 = 4096;

/// The time without a request for a checkpoint after which the write-ahead log may restart at any time.
const CHECKPOINT_IDLE_TIME: Duration = Duration::from_secs(2);

/// The connection for turns.
#[derive(Debug)]
pub(super) struct TurnConnection(Mutex<TurnConnectionState>);

#[derive(Debug)]
struct TurnConnectionState {
    path: PathBuf,
    vfs: Option<&'static str>,
    connection: Connection,
    /// The number of turns since the last request for a checkpoint.
    count: u32,
    checkpoints: Option<CheckpointThread>,
}

impl TurnConnection {
    /// Connects to an open, migrated store; returns nothing if other gateways may use it.
    pub(super) fn open(place: &DatabaseAddress, memory: &str) -> Result<Option<Self>, DatabaseError> {
        let (path, vfs) = match place {
            DatabaseAddress::File(path) => (path.as_path(), None),
            DatabaseAddress::Memory => (Path::new(memory), Some("memdb")),
            DatabaseAddress::Postgres(_) => return Ok(None),
        };
        let connection = connect(path, vfs)?;
        let checkpoints = vfs.is_none().then(|| CheckpointThread::begin(path)).transpose()?;
        Ok(Some(Self(Mutex::new(TurnConnectionState {
            path: path.to_owned(),
            vfs,
            connection,
            count: 0,
            checkpoints,
        }))))
    }

    /// Runs `work` on the connection, which is in no transaction before and after. A connection whose rollback
    /// failed, as it can when the disk is full, is closed and replaced: it would reject every turn and block other
    /// writers.
    fn with_connection<T>(
        &self,
        work: impl FnOnce(&mut TurnConnectionState) -> Result<T, DatabaseError>,
    ) -> Result<T, DatabaseError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.end_transaction()?;
        let done = work(&mut state);
        // If this fails, the next caller tries again.
        let _ = state.end_transaction();
        done
    }

    /// Closes the connections. A turn that still runs fails afterwards.
    pub(super) fn close(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Ends the thread, which has connections of its own.
        state.checkpoints = None;
        // An empty database has no tables, so every statement fails.
        if let Ok(empty) = Connection::open_in_memory() {
            state.connection = empty;
        }
    }

    /// Executes a statement for a test.
    #[cfg(test)]
    pub(super) fn execute(&self, sql: &str) {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = state
            .connection
            .prepare(sql)
            .map(|mut statement| statement.query([]).map(|mut rows| rows.next().map(drop)));
    }

    /// Writes as much as a turn.
    pub(super) fn probe(&self) -> Result<(), DatabaseError> {
        self.with_connection(|state| {
            let tx = TurnTransaction::new(&state.connection)?;
            tx.prepare_cached(WRITE_PROBE)?.execute(params![probe_text()])?;
            tx.commit()
        })
    }

    /// Begins a conversation and returns its number; returns nothing if it exists.
    pub(super) fn begin(
        &self,
        (client, name): (&str, &str),
        basis: &str,
        key: &str,
    ) -> Result<Option<i64>, DatabaseError> {
        let sql = "INSERT INTO conversations (client, name, basis, key, used, holder, held_until) \
                   VALUES (?1, ?2, ?3, ?4, CAST(unixepoch('subsec') * 1000 AS INTEGER), '', 0) \
                   ON CONFLICT DO NOTHING";
        self.with_connection(|state| {
            let mut insert = state.connection.prepare_cached(sql)?;
            // The row is committed when this returns. A statement that returns rows commits after the last one only,
            // and a failure then is not reported.
            let is_new = insert.execute(params![client, name, basis, key])? == 1;
            Ok(is_new.then(|| state.connection.last_insert_rowid()))
        })
    }

    /// Returns the names of a client's conversations that a query finds.
    pub(super) fn conversation_names(
        &self,
        sql: &str,
        (client, newest): (&str, &str),
        from: i64,
    ) -> Result<Vec<String>, DatabaseError> {
        self.with_connection(|state| {
            let mut select = state.connection.prepare_cached(sql)?;
            let names = select.query_map(params![client, newest, from], |row| row.get(0))?;
            Ok(names.collect::<Result<_, _>>()?)
        })
    }

    /// Persists a turn if none was persisted since. Before another writer can proceed, calls `noted` with whether the
    /// longest prefix may belong to another conversation as well.
    pub(super) fn persist(
        &self,
        kept: &PersistedTurn<'_>,
        log: Option<&NewerLogHead>,
        noted: impl FnOnce(bool),
    ) -> Result<(), DatabaseError> {
        self.with_connection(|state| state.persist(kept, log, noted))
    }
}

impl TurnConnectionState {
    fn end_transaction(&mut self) -> Result<(), DatabaseError> {
        if !self.connection.is_autocommit() && self.connection.execute_batch("ROLLBACK").is_err() {
            self.connection = connect(&self.path, self.vfs)?;
        }
        Ok(())
    }

    fn persist(
        &mut self,
        kept: &PersistedTurn<'_>,
        log: Option<&NewerLogHead>,
        noted: impl FnOnce(bool),
    ) -> Result<(), DatabaseError> {
        let Self { connection, count, checkpoints, .. } = self;
        let PersistedTurn { client, conversation, turns, inputs, prefixes, forgotten, longest, .. } = kept;
        let tx = TurnTransaction::new(connection)?;
        if kept.is_stale {
            let sql =
                "UPDATE conversations SET used = CAST(unixepoch('subsec') * 1000 AS INTEGER) WHERE id = ?1";
            tx.prepare_cached(sql)?.execute(params![conversation])?;
        }
        // Two statements: SQLite journals the pages that a statement changes if it may insert any number of rows.
        let sql = "SELECT 1 FROM turns WHERE conversation = ?1 AND number = ?2 - 1";
        let mut select = tx.prepare_cached(sql)?;
        if *turns > 0 && !select.exists(params![conversation, turns])? {
            return Err(DatabaseError::Overtaken);
        }
        let sql =
            "INSERT INTO turns (conversation, number, bytes, prefixes, inputs) VALUES (?1, ?2, ?3, ?4, ?5)";
        let mut insert = tx.prepare_cached(sql)?;
        match insert.execute(params![conversation, turns, kept.bytes(), prefixes.join(" "), inputs]) {
            Ok(_) => {}
            // The turn exists, or the conversation was deleted.
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => {
                return Err(DatabaseError::Overtaken);
            }
            Err(error) => return Err(error.into()),
        }
        drop((select, insert));
        for prefix in *forgotten {
            let sql = "DELETE FROM prefixes WHERE client = ?1 AND prefix = ?2 AND conversation = ?3";
            tx.prepare_cached(sql)?.execute(params![client, prefix, conversation])?;
        }
        for prefix in *prefixes {
            let sql = "INSERT INTO prefixes (client, prefix, conversation) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            tx.prepare_cached(sql)?.execute(params![client, prefix, conversation])?;
        }
        let sql = "SELECT 1 FROM prefixes WHERE client = ?1 AND prefix = ?2 AND conversation <> ?3";
        let other = match longest {
            Some(longest) => tx
                .prepare_cached(sql)?
                .query_row(params![client, longest, conversation], |_| Ok(()))
                .optional()?
                .is_some(),
            None => true,
        };
        if let Some(NewerLogHead { log, seq, hash }) = log {
            tx.prepare_cached(log_heads::UPDATE_ON_TURN_CONNECTION)?.execute(params![seq, hash, log])?;
        }
        noted(other);
        tx.commit()?;
        *count += 1;
        if *count >= BETWEEN_CHECKPOINTS
            && let Some(checkpoints) = checkpoints
        {
            *count = 0;
            checkpoints.request_checkpoint();
        }
        Ok(())
    }
}

/// A transaction that rolls back when it is dropped. Its statements are cached; those of rusqlite's transactions are
/// parsed each time.
struct TurnTransaction<'c>(&'c Connection);

impl<'c> TurnTransaction<'c> {
    fn new(connection: &'c Connection) -> Result<Self, DatabaseError> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self(connection))
    }

    fn commit(self) -> Result<(), DatabaseError> {
        self.prepare_cached("COMMIT")?.execute([])?;
        Ok(())
    }
}

impl Deref for TurnTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.0
    }
}

impl Drop for TurnTransaction<'_> {
    fn drop(&mut self) {
        if !self.is_autocommit() {
            let _ = self.execute_batch("ROLLBACK");
        }
    }
}

fn connect(path: &Path, vfs: Option<&str>) -> Result<Connection, DatabaseError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = match vfs {
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
        None => Connection::open_with_flags(path, flags)?,
    };
    for pragma in PRAGMAS {
        connection.prepare(pragma)?.query([])?.next()?;
    }
    Ok(connection)
}

/// A thread that checkpoints the write-ahead log on request, until this is dropped.
#[derive(Debug)]
struct CheckpointThread {
    asked: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl CheckpointThread {
    fn begin(path: &Path) -> Result<Self, DatabaseError> {
        let (connection, mut reader) = (connect(path, None)?, WalReader::new(path)?);
        let (asked, asks) = sync_channel::<()>(1);
        let work = move || {
            let mut pages = 0;
            loop {
                match asks.recv_timeout(CHECKPOINT_IDLE_TIME) {
                    Ok(()) => {}
                    // Writes of other connections checkpoint themselves, and must not wait for the reader.
                    Err(RecvTimeoutError::Timeout) => {
                        reader.restart_read(false);
                        continue;
                    }
                    Err(RecvTimeoutError::Disconnected) => return,
                }
                let is_long = pages >= LONG_LOG;
                reader.restart_read(!is_long);
                // The log restarts if no turn arrives during the last of these checkpoints, each of which has less to
                // do.
                for _ in 0..if is_long { 4 } else { 1 } {
                    // A failure is retried with the next request. A passive checkpoint neither waits for readers and
                    // writers nor delays them.
                    let checkpoint = "PRAGMA wal_checkpoint(PASSIVE)";
                    pages = connection.query_row(checkpoint, [], |row| row.get(1)).unwrap_or_default();
                }
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(work);
        Ok(Self { asked: Some(asked), thread: Some(thread.map_err(DatabaseError::Runtime)?) })
    }

    fn request_checkpoint(&self) {
        if let Some(asked) = &self.asked {
            // The queue is full: a checkpoint is requested already.
            let _ = asked.try_send(());
        }
    }
}

/// A reader of the write-ahead log: while it reads, the log does not restart.
#[derive(Debug)]
struct WalReader(Connection);

impl WalReader {
    fn new(path: &Path) -> Result<Self, DatabaseError> {
        Ok(Self(connect(path, None)?))
    }

    /// Ends the current read, and begins another one if `is_reading`. If that fails, the log restarts more often.
    fn restart_read(&mut self, is_reading: bool) {
        if !self.0.is_autocommit() {
            let _ = self.0.execute_batch("ROLLBACK");
        }
        if is_reading {
            let _ = self.0.execute_batch("BEGIN; SELECT 1 FROM sqlite_schema");
        }
    }
}

impl Drop for CheckpointThread {
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::super::{Database, DatabaseAddress, DatabaseError, PersistedTurn, persist_turn};

    pub(in crate::database) fn test_turn<'a>(
        (name, conversation): (&'a str, i64),
        turns: i64,
        prefixes: &'a [String],
    ) -> PersistedTurn<'a> {
        let longest = prefixes.last().map(String::as_str);
        PersistedTurn {
            client: "c",
            name,
            conversation,
            is_stale: true,
            turns,
            bytes: 0,
            inputs: "[]",
            prefixes,
            forgotten: &[],
            longest,
        }
    }

    /// A memory store, and a file that is deleted when this is dropped.
    pub(in crate::database) struct TestDatabases(PathBuf);

    impl TestDatabases {
        pub(in crate::database) fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("flowgate-turns-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        pub(in crate::database) fn addresses(&self) -> [DatabaseAddress; 2] {
            [DatabaseAddress::Memory, DatabaseAddress::File(self.0.join("flowgate.db"))]
        }
    }

    impl Drop for TestDatabases {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    /// Begins a conversation.
    pub(in crate::database) async fn open(store: &Database, name: &str) -> i64 {
        store.open_conversation(("c", name), "basis", "key", 0).await.unwrap().id
    }

    pub(in crate::database) async fn turns(store: &Database, name: &str) -> usize {
        store.read_journal("c", name).await.unwrap().unwrap().inputs.len()
    }

    async fn of_chat(store: &Database, prefix: &str) -> Option<String> {
        store.find_by_chat("c", &[prefix.to_owned()]).await.unwrap()
    }

    #[tokio::test]
    async fn a_turn_is_kept_as_a_whole_or_not_at_all() {
        let places = TestDatabases::new("whole");
        for place in places.addresses() {
            let store = Database::open(&place).await.unwrap();
            let one = ("one", open(&store, "one").await);
            let [p, q] = [vec!["p".to_owned()], vec!["q".to_owned(), "\"r".to_owned()]];
            store.persist_turn_alone(&test_turn(one, 0, &p)).unwrap();
            assert_eq!((turns(&store, "one").await, of_chat(&store, "p").await.as_deref()), (1, Some("one")));
            // A turn was persisted since; then: the conversation is shorter, or does not exist.
            for (one, number) in [(one, 0), (one, 2), (("two", one.1 + 1), 0)] {
                let kept =
                    store.persist_turn_alone(&PersistedTurn { forgotten: &p, ..test_turn(one, number, &q) });
                assert!(matches!(kept, Err(DatabaseError::Overtaken)), "{one:?} {number}: {kept:?}");
                assert_eq!((turns(&store, "one").await, of_chat(&store, "q").await), (1, None));
                assert_eq!(of_chat(&store, "p").await.as_deref(), Some("one"));
            }
            store.persist_turn_alone(&PersistedTurn { forgotten: &p, ..test_turn(one, 1, &q) }).unwrap();
            assert_eq!(turns(&store, "one").await, 2);
            assert_eq!(
                (of_chat(&store, "p").await, of_chat(&store, "\"r").await.as_deref()),
                (None, Some("one"))
            );
        }
    }

    #[tokio::test]
    async fn a_chat_is_known_only_to_belong_where_it_is_found() {
        let places = TestDatabases::new("chats");
        for place in places.addresses() {
            let store = Database::open(&place).await.unwrap();
            let [p, q] = [vec!["p".to_owned()], vec!["p".to_owned(), "q".to_owned()]];
            let one = ("one", open(&store, "one").await);
            let two = ("two", open(&store, "two").await);
            let three = ("three", open(&store, "three").await);
            // Persisted together with other effects: the database knows it, the cache does not.
            let mut tx = store.begin().await.unwrap();
            persist_turn(&store, &mut tx, &test_turn(one, 0, &p)).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(
                (store.find_cached_by_chat("c", "p"), of_chat(&store, "p").await.as_deref()),
                (None, Some("one"))
            );
            // Two conversations have the same prefix: the chat belongs to neither.
            store.persist_turn_alone(&test_turn(two, 0, &p)).unwrap();
            assert_eq!((store.find_cached_by_chat("c", "p"), of_chat(&store, "p").await), (None, None));
            store.persist_turn_alone(&test_turn(two, 1, &q)).unwrap();
            assert_eq!(store.find_cached_by_chat("c", "q").as_deref(), Some("two"));
            store.persist_turn_alone(&test_turn(three, 0, &q)).unwrap();
            assert_eq!((store.find_cached_by_chat("c", "q"), of_chat(&store, "q").await), (None, None));
            // A deleted conversation is not found.
            store.persist_turn_alone(&test_turn(three, 1, &["r".to_owned()])).unwrap();
            assert_eq!(store.find_cached_by_chat("c", "r").as_deref(), Some("three"));
            store.delete_conversation("c", "three").await.unwrap();
            assert_eq!((store.find_cached_by_chat("c", "r"), of_chat(&store, "r").await), (None, None));
        }
    }

    /// The log does not restart while turns arrive, and may restart when they do not.
    #[tokio::test]
    async fn nobody_keeps_the_log_from_beginning_anew_for_long() {
        let places = TestDatabases::new("log");
        let [_, place] = places.addresses();
        let store = Database::open(&place).await.unwrap();
        let one = ("one", open(&store, "one").await);
        for number in 0..i64::from(super::BETWEEN_CHECKPOINTS) {
            store.persist_turn_alone(&test_turn(one, number, &[])).unwrap();
        }
        let other = super::connect(place.file().unwrap(), None).unwrap();
        other.execute_batch("PRAGMA busy_timeout = 100").unwrap();
        let is_kept = || {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            other.query_row(checkpoint, [], |row| row.get::<_, bool>(0)).unwrap()
        };
        let begun = std::time::Instant::now();
        let wait = |until: bool| {
            while is_kept() != until {
                assert!(begun.elapsed() < super::super::PATIENCE, "{until}");
            }
        };
        wait(true);
        wait(false);
    }

    /// A steady stream of turns does not starve others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_wait_for_turns_and_no_longer() {
        let places = TestDatabases::new("waits");
        for place in places.addresses() {
            let store = Arc::new(Database::open(&place).await.unwrap());
            let begun = std::time::Instant::now();
            let tasks = ["one", "two", "three"].map(|name| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let one = (name, open(&store, name).await);
                    for number in 0..300 {
                        store.persist_turn_alone(&test_turn(one, number, &[])).unwrap();
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
            assert!(begun.elapsed() < super::super::PATIENCE, "{:?}", begun.elapsed());
        }
    }

    /// Concurrent writers do not fail each other.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_and_everything_else_are_kept_side_by_side() {
        let places = TestDatabases::new("shared");
        for place in places.addresses() {
            let store = Arc::new(Database::open(&place).await.unwrap());
            let tasks = ["one", "two", "three", "four"].map(|name| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    let one = (name, open(&store, name).await);
                    for number in 0..50 {
                        store
                            .persist_turn_alone(&test_turn(one, number, &[format!("{name} {number}")]))
                            .unwrap();
                        if number % 7 == 0 {
                            assert_eq!(
                                of_chat(&store, &format!("{name} {number}")).await.as_deref(),
                                Some(name)
                            );
                        }
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
            assert_eq!(turns(&store, "four").await, 50);
        }
    }
}
