//! The only connection to a store of one's own, kept between turns.
//!
//! Each time a connection goes back to the pool, a task of its own asks the database whether it is there: that takes longer than
//! to keep a turn. So whoever keeps turns holds on to it, until somebody wants it for something else.

use std::sync::{Mutex, MutexGuard, PoisonError};

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyPool};

type Connection = PoolConnection<Any>;

/// Nothing of it is used where there are many connections.
#[derive(Debug, Default)]
pub(super) struct Alone(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The connection, while no turn is kept.
    idle: Option<Connection>,
    /// How many want it from the pool.
    wanted: usize,
}

impl Alone {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, for a turn; nothing if it is in the pool.
    pub(super) fn take(&self) -> Option<Connection> {
        self.state().idle.take()
    }

    /// A turn has been kept.
    pub(super) fn put(&self, connection: Connection) {
        let mut state = self.state();
        if state.wanted == 0 && state.idle.is_none() {
            state.idle = Some(connection);
        }
    }

    /// The pool, for who wants the connection for something else.
    pub(super) fn pool<'a>(&'a self, pool: &'a AnyPool) -> Wanted<'a> {
        let idle = {
            let mut state = self.state();
            state.wanted += 1;
            state.idle.take()
        };
        drop(idle);
        Wanted { alone: self, pool }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        // There may be no runtime any more that could take it back to the pool.
        if let Some(connection) = self.state().idle.take() {
            drop(connection.leak());
        }
    }
}

/// A pool to which the connection has gone back, until this is dropped.
pub(super) struct Wanted<'a> {
    alone: &'a Alone,
    pub(super) pool: &'a AnyPool,
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.alone.state().wanted -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{Kept, Place, Store, StoreError, keep_turn};

    fn kept<'a>(name: &'a str, turns: i64, prefixes: &'a [String]) -> Kept<'a> {
        let longest = prefixes.last().map(String::as_str);
        Kept { client: "c", name, turns, bytes: 0, inputs: "[]", prefixes, forgotten: &[], longest }
    }

    async fn turns(store: &Store, name: &str) -> usize {
        store.past("c", name).await.unwrap().unwrap().inputs.len()
    }

    async fn of_chat(store: &Store, prefix: &str) -> Option<String> {
        store.of_chat("c", &[prefix.to_owned()]).await.unwrap()
    }

    #[tokio::test]
    async fn a_turn_is_kept_as_a_whole_or_not_at_all() {
        let store = Store::open(&Place::Memory).await.unwrap();
        store.open_conversation(("c", "one"), "basis", "key", 0).await.unwrap();
        let [p, q] = [vec!["p".to_owned()], vec!["q".to_owned(), "\"r".to_owned()]];
        store.keep_alone(&kept("one", 0, &p)).await.unwrap();
        assert_eq!((turns(&store, "one").await, of_chat(&store, "p").await.as_deref()), (1, Some("one")));
        // One was kept since; and those of a conversation that has not come so far, or is not there.
        for (name, number) in [("one", 0), ("one", 2), ("two", 0)] {
            let kept = store.keep_alone(&Kept { forgotten: &p, ..kept(name, number, &q) }).await;
            assert!(matches!(kept, Err(StoreError::Overtaken)), "{name} {number}: {kept:?}");
            assert_eq!((turns(&store, "one").await, of_chat(&store, "q").await), (1, None));
            assert_eq!(of_chat(&store, "p").await.as_deref(), Some("one"));
        }
        store.keep_alone(&Kept { forgotten: &p, ..kept("one", 1, &q) }).await.unwrap();
        assert_eq!(turns(&store, "one").await, 2);
        assert_eq!(
            (of_chat(&store, "p").await, of_chat(&store, "\"r").await.as_deref()),
            (None, Some("one"))
        );
    }

    #[tokio::test]
    async fn a_chat_is_known_only_to_belong_where_it_is_found() {
        let store = Store::open(&Place::Memory).await.unwrap();
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
        store.keep_alone(&kept("two", 0, &p)).await.unwrap();
        assert_eq!((store.of_known_chat("c", "p"), of_chat(&store, "p").await), (None, None));
        store.keep_alone(&kept("two", 1, &q)).await.unwrap();
        assert_eq!(store.of_known_chat("c", "q").as_deref(), Some("two"));
        store.keep_alone(&kept("three", 0, &q)).await.unwrap();
        assert_eq!((store.of_known_chat("c", "q"), of_chat(&store, "q").await), (None, None));
        // What is deleted is not found.
        store.keep_alone(&kept("three", 1, &["r".to_owned()])).await.unwrap();
        assert_eq!(store.of_known_chat("c", "r").as_deref(), Some("three"));
        store.delete_conversation("c", "three").await.unwrap();
        assert_eq!((store.of_known_chat("c", "r"), of_chat(&store, "r").await), (None, None));
    }

    /// Who keeps turns without a pause keeps nobody else from it.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_wait_for_turns_and_no_longer() {
        let store = Arc::new(Store::open(&Place::Memory).await.unwrap());
        let begun = std::time::Instant::now();
        let tasks = ["one", "two", "three"].map(|name| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
                for number in 0..300 {
                    store.keep_alone(&kept(name, number, &[])).await.unwrap();
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        assert!(begun.elapsed() < super::super::PATIENCE, "{:?}", begun.elapsed());
    }

    /// The connection is handed on, however many want it at the same time, and for whatever.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn turns_and_everything_else_share_the_connection() {
        let store = Arc::new(Store::open(&Place::Memory).await.unwrap());
        let tasks = ["one", "two", "three", "four"].map(|name| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
                for number in 0..50 {
                    store.keep_alone(&kept(name, number, &[format!("{name} {number}")])).await.unwrap();
                    if number % 7 == 0 {
                        assert_eq!(of_chat(&store, &format!("{name} {number}")).await.as_deref(), Some(name));
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
