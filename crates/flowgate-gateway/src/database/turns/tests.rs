//! Tests that turns are persisted as a whole, one after the other, while other operations of the database run.

use std::path::PathBuf;
use std::sync::Arc;

use super::*;
use crate::database::{DatabaseAddress, error::PATIENCE};

pub(in crate::database) fn test_turn(
    (name, conversation): (&str, i64),
    turns: i64,
    prefixes: &[String],
) -> PersistedTurn {
    let longest = prefixes.last().cloned();
    PersistedTurn {
        client: "c".to_owned(),
        name: name.to_owned(),
        conversation,
        is_stale: true,
        turns,
        bytes: 0,
        inputs: "[]".into(),
        prefixes: prefixes.to_vec(),
        forgotten: Vec::new(),
        longest,
        carried: None,
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
        store.persist_turn(test_turn(one, 0, &p)).await.unwrap();
        assert_eq!((turns(&store, "one").await, of_chat(&store, "p").await.as_deref()), (1, Some("one")));
        // A turn was persisted since; then: the conversation is shorter, or does not exist.
        for (one, number) in [(one, 0), (one, 2), (("two", one.1 + 1), 0)] {
            let kept = store
                .persist_turn(PersistedTurn { forgotten: p.clone(), ..test_turn(one, number, &q) })
                .await;
            assert!(matches!(kept, Err(DatabaseError::Overtaken)), "{one:?} {number}: {kept:?}");
            assert_eq!((turns(&store, "one").await, of_chat(&store, "q").await), (1, None));
            assert_eq!(of_chat(&store, "p").await.as_deref(), Some("one"));
        }
        store.persist_turn(PersistedTurn { forgotten: p.clone(), ..test_turn(one, 1, &q) }).await.unwrap();
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
        // The database and the cache know it.
        store.persist_turn(test_turn(one, 0, &p)).await.unwrap();
        assert_eq!(store.find_cached_by_chat("c", "p").as_deref(), Some("one"));
        assert_eq!(of_chat(&store, "p").await.as_deref(), Some("one"));
        // Two conversations have the same prefix: the chat belongs to neither.
        store.persist_turn(test_turn(two, 0, &p)).await.unwrap();
        assert_eq!((store.find_cached_by_chat("c", "p"), of_chat(&store, "p").await), (None, None));
        store.persist_turn(test_turn(two, 1, &q)).await.unwrap();
        assert_eq!(store.find_cached_by_chat("c", "q").as_deref(), Some("two"));
        store.persist_turn(test_turn(three, 0, &q)).await.unwrap();
        assert_eq!((store.find_cached_by_chat("c", "q"), of_chat(&store, "q").await), (None, None));
        // A deleted conversation is not found.
        store.persist_turn(test_turn(three, 1, &["r".to_owned()])).await.unwrap();
        assert_eq!(store.find_cached_by_chat("c", "r").as_deref(), Some("three"));
        store.delete_conversation("c", "three").await.unwrap();
        assert_eq!((store.find_cached_by_chat("c", "r"), of_chat(&store, "r").await), (None, None));
    }
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
                    store.persist_turn(test_turn(one, number, &[])).await.unwrap();
                }
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
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
                    store.persist_turn(test_turn(one, number, &[format!("{name} {number}")])).await.unwrap();
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

/// A raise of a label is written again with the next turn if the turn that had it failed.
#[tokio::test]
async fn a_tenant_record_of_a_failed_turn_is_written_by_the_next() {
    let places = TestDatabases::new("failed-record");
    for place in places.addresses() {
        let store = Database::open(&place).await.unwrap();
        let one = ("one", open(&store, "one").await);
        let begin = || store.begin_turn("t", TurnApprovals::default());
        let begun = begin().await.unwrap();
        assert_eq!((&begun.record, begun.is_persisted), (&None, true));
        let high = Some("high".to_owned());
        // There is no turn before number 7.
        let failed = store.finish_turn(begun, high.clone(), test_turn(one, 7, &[]), None).await;
        assert!(matches!(failed, Err(DatabaseError::Overtaken)), "{failed:?}");
        assert_eq!((store.tenant("t").await.unwrap(), store.persisted_tenant("t")), (high.clone(), None));
        let begun = begin().await.unwrap();
        assert_eq!((&begun.record, begun.is_persisted), (&high, false));
        store.finish_turn(begun, high.clone(), test_turn(one, 0, &[]), None).await.unwrap();
        assert_eq!(store.persisted_tenant("t"), Some(high.clone()));
        assert!(begin().await.unwrap().is_persisted);
    }
}
