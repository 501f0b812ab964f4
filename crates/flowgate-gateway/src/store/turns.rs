//! Turns from which nothing else follows, kept on the thread that answers them.
//!
//! sqlx asks SQLite from a thread of its own, and each statement is a way there and back: that takes longer than to keep a
//! turn. So most turns have a connection of their own, to a store that no other gateway uses.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _, TransactionBehavior, params};

use super::{Kept, PRAGMAS, Place, StoreError};

/// What is in the write-ahead log is brought into the file after so many turns, beside them: whoever brings it there waits for
/// the disk. Much at once would keep turns waiting, too. Only if that does not get anywhere, it is done [by a turn](super::PRAGMAS).
const BETWEEN_CHECKPOINTS: u32 = 32;

/// The connection for turns.
#[derive(Debug)]
pub(super) struct Turns(Mutex<State>);

#[derive(Debug)]
struct State {
    connection: Connection,
    /// How many were kept since the last checkpoint was asked for.
    count: u32,
    checkpoints: Option<Checkpoints>,
}

impl Turns {
    /// A connection to a store that is there and up to date; nothing if others use it, too.
    pub(super) fn open(place: &Place, memory: &str) -> Result<Option<Self>, StoreError> {
        let (path, vfs) = match place {
            Place::File(path) => (path.as_path(), None),
            Place::Memory => (Path::new(memory), Some("memdb")),
            Place::Postgres(_) => return Ok(None),
        };
        let connection = connect(path, vfs)?;
        let checkpoints = vfs.is_none().then(|| Checkpoints::begin(path)).transpose()?;
        Ok(Some(Self(Mutex::new(State { connection, count: 0, checkpoints }))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a conversation; false if it is there.
    pub(super) fn begin(
        &self,
        (client, name): (&str, &str),
        basis: &str,
        key: &str,
    ) -> Result<bool, StoreError> {
        let sql = "INSERT INTO conversations (client, name, basis, key, turns, bytes, used, holder, held_until) \
                   VALUES (?1, ?2, ?3, ?4, 0, 0, CAST(unixepoch('subsec') * 1000 AS INTEGER), '', 0) ON CONFLICT DO NOTHING";
        let state = self.state();
        let mut insert = state.connection.prepare_cached(sql)?;
        Ok(insert.execute(params![client, name, basis, key])? == 1)
    }

    /// The names that a query finds of a client's conversations.
    pub(super) fn names(
        &self,
        sql: &str,
        (client, newest): (&str, &str),
        from: i64,
    ) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let mut select = state.connection.prepare_cached(sql)?;
        let names = select.query_map(params![client, newest, from], |row| row.get(0))?;
        Ok(names.collect::<Result<_, _>>()?)
    }

    /// Keeps a turn if none was kept since. Before anybody else can write, `noted` is told whether chats that begin like this
    /// one may belong elsewhere.
    pub(super) fn keep(&self, kept: &Kept<'_>, noted: impl FnOnce(bool)) -> Result<(), StoreError> {
        let mut state = self.state();
        let State { connection, count, checkpoints } = &mut *state;
        let Kept { client, name, turns, inputs, prefixes, forgotten, longest, .. } = kept;
        let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let sql = "UPDATE conversations SET turns = turns + 1, bytes = ?1, used = CAST(unixepoch('subsec') * 1000 AS INTEGER), \
                   holder = '', held_until = 0 WHERE client = ?2 AND name = ?3 AND turns = ?4 AND holder = ''";
        if tx.prepare_cached(sql)?.execute(params![kept.bytes(), client, name, turns])? != 1 {
            return Err(StoreError::Overtaken);
        }
        let sql = "INSERT INTO turns (client, name, number, inputs) VALUES (?1, ?2, ?3, ?4)";
        tx.prepare_cached(sql)?.execute(params![client, name, turns, inputs])?;
        for prefix in *forgotten {
            let sql = "DELETE FROM prefixes WHERE client = ?1 AND prefix = ?2 AND name = ?3";
            tx.prepare_cached(sql)?.execute(params![client, prefix, name])?;
        }
        for prefix in *prefixes {
            let sql =
                "INSERT INTO prefixes (client, prefix, name) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING";
            tx.prepare_cached(sql)?.execute(params![client, prefix, name])?;
        }
        let sql = "SELECT 1 FROM prefixes WHERE client = ?1 AND prefix = ?2 AND name <> ?3";
        let other = match longest {
            Some(longest) => tx
                .prepare_cached(sql)?
                .query_row(params![client, longest, name], |_| Ok(()))
                .optional()?
                .is_some(),
            None => true,
        };
        noted(other);
        tx.commit()?;
        *count += 1;
        if *count >= BETWEEN_CHECKPOINTS
            && let Some(checkpoints) = checkpoints
        {
            *count = 0;
            checkpoints.ask();
        }
        Ok(())
    }
}

fn connect(path: &Path, vfs: Option<&str>) -> Result<Connection, StoreError> {
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

/// A thread that brings the write-ahead log into the file when it is asked to, until this is dropped.
#[derive(Debug)]
struct Checkpoints {
    asked: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpoints {
    fn begin(path: &Path) -> Result<Self, StoreError> {
        let connection = connect(path, None)?;
        let (asked, asks) = sync_channel::<()>(1);
        let work = move || {
            for () in asks {
                // What fails is tried again. It waits for nobody who reads or writes, and they do not wait for it.
                let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
            }
        };
        let thread = std::thread::Builder::new().name("checkpoints".to_owned()).spawn(work);
        Ok(Self { asked: Some(asked), thread: Some(thread.map_err(StoreError::Runtime)?) })
    }

    fn ask(&self) {
        if let Some(asked) = &self.asked {
            // Full: it is asked for already.
            let _ = asked.try_send(());
        }
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.asked = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::super::{Kept, Place, Store, StoreError, keep_turn};

    fn kept<'a>(name: &'a str, turns: i64, prefixes: &'a [String]) -> Kept<'a> {
        let longest = prefixes.last().map(String::as_str);
        Kept { client: "c", name, turns, bytes: 0, inputs: "[]", prefixes, forgotten: &[], longest }
    }

    /// A memory, and a file that is gone when this is dropped.
    struct Places(PathBuf);

    impl Places {
        fn new(test: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("flowgate-turns-{test}-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn each(&self) -> [Place; 2] {
            [Place::Memory, Place::File(self.0.join("flowgate.db"))]
        }
    }

    impl Drop for Places {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    async fn turns(store: &Store, name: &str) -> usize {
        store.past("c", name).await.unwrap().unwrap().inputs.len()
    }

    async fn of_chat(store: &Store, prefix: &str) -> Option<String> {
        store.of_chat("c", &[prefix.to_owned()]).await.unwrap()
    }

    #[tokio::test]
    async fn a_turn_is_kept_as_a_whole_or_not_at_all() {
        let places = Places::new("whole");
        for place in places.each() {
            let store = Store::open(&place).await.unwrap();
            store.open_conversation(("c", "one"), "basis", "key", 0).await.unwrap();
            let [p, q] = [vec!["p".to_owned()], vec!["q".to_owned(), "\"r".to_owned()]];
            store.keep_alone(&kept("one", 0, &p)).unwrap();
            assert_eq!((turns(&store, "one").await, of_chat(&store, "p").await.as_deref()), (1, Some("one")));
            // One was kept since; and those of a conversation that has not come so far, or is not there.
            for (name, number) in [("one", 0), ("one", 2), ("two", 0)] {
                let kept = store.keep_alone(&Kept { forgotten: &p, ..kept(name, number, &q) });
                assert!(matches!(kept, Err(StoreError::Overtaken)), "{name} {number}: {kept:?}");
                assert_eq!((turns(&store, "one").await, of_chat(&store, "q").await), (1, None));
                assert_eq!(of_chat(&store, "p").await.as_deref(), Some("one"));
            }
            store.keep_alone(&Kept { forgotten: &p, ..kept("one", 1, &q) }).unwrap();
            assert_eq!(turns(&store, "one").await, 2);
            assert_eq!(
                (of_chat(&store, "p").await, of_chat(&store, "\"r").await.as_deref()),
                (None, Some("one"))
            );
        }
    }

    #[tokio::test]
    async fn a_chat_is_known_only_to_belong_where_it_is_found() {
        let places = Places::new("chats");
        for place in places.each() {
            let store = Store::open(&place).await.unwrap();
            let [p, q] = [vec!["p".to_owned()], vec!["p".to_owned(), "q".to_owned()]];
            for name in ["one", "two", "three"] {
                store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
            }
            // Kept together with something else: it is known to the database alone.
            let mut tx = store.begin().await.unwrap();
            keep_turn(&store, &mut tx, &kept("one", 0, &p)).await.unwrap();
            tx.commit().await.unwrap();
            assert_eq!(
                (store.of_known_chat("c", "p"), of_chat(&store, "p").await.as_deref()),
                (None, Some("one"))
            );
            // Of two that begin so, neither is known.
            store.keep_alone(&kept("two", 0, &p)).unwrap();
            assert_eq!((store.of_known_chat("c", "p"), of_chat(&store, "p").await), (None, None));
            store.keep_alone(&kept("two", 1, &q)).unwrap();
            assert_eq!(store.of_known_chat("c", "q").as_deref(), Some("two"));
            store.keep_alone(&kept("three", 0, &q)).unwrap();
            assert_eq!((store.of_known_chat("c", "q"), of_chat(&store, "q").await), (None, None));
            // What is deleted is not found.
            store.keep_alone(&kept("three", 1, &["r".to_owned()])).unwrap();
            assert_eq!(store.of_known_chat("c", "r").as_deref(), Some("three"));
            store.delete_conversation("c", "three").await.unwrap();
            assert_eq!((store.of_known_chat("c", "r"), of_chat(&store, "r").await), (None, None));
        }
    }

    /// Who keeps turns without a pause keeps nobody else from it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_wait_for_turns_and_no_longer() {
        let places = Places::new("waits");
        for place in places.each() {
            let store = Arc::new(Store::open(&place).await.unwrap());
            let begun = std::time::Instant::now();
            let tasks = ["one", "two", "three"].map(|name| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
                    for number in 0..300 {
                        store.keep_alone(&kept(name, number, &[])).unwrap();
                    }
                })
            });
            for task in tasks {
                task.await.unwrap();
            }
            assert!(begun.elapsed() < super::super::PATIENCE, "{:?}", begun.elapsed());
        }
    }

    /// Nobody fails because somebody else writes.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_and_everything_else_are_kept_side_by_side() {
        let places = Places::new("shared");
        for place in places.each() {
            let store = Arc::new(Store::open(&place).await.unwrap());
            let tasks = ["one", "two", "three", "four"].map(|name| {
                let store = Arc::clone(&store);
                tokio::spawn(async move {
                    store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
                    for number in 0..50 {
                        store.keep_alone(&kept(name, number, &[format!("{name} {number}")])).unwrap();
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
