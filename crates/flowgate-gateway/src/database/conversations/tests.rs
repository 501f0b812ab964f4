//! Tests of the leases on conversations, and of which conversations are deleted.

use super::*;
use crate::database::turns::tests::test_turn;
use crate::database::{DatabaseAddress, PersistedTurn};

/// A lease that a gateway does not renew expires, also if the gateway could not release it.
#[tokio::test]
async fn only_what_is_gone_on_with_is_held_on_to() {
    let mut store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    for name in ["used", "left", "let go", "another's"] {
        store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
    }
    let holder = store.holder.clone();
    for (holder, until, name) in [
        (holder.as_str(), 1, "used"),
        (holder.as_str(), 1, "left"),
        (holder.as_str(), 0, "let go"),
        ("another gateway", 1, "another''s"),
    ] {
        let hold = format!(
            "UPDATE conversations SET holder = '{holder}', held_until = {until} WHERE name = '{name}'"
        );
        assert_eq!(store.execute_for_test(&hold).await.unwrap(), 1);
    }
    // The set of leases of a shared database does not differ.
    store.is_shared = true;
    for name in ["used", "left", "let go", "another's"] {
        store.set_held("c", name, true);
    }
    store.set_held("c", "left", false);
    store.is_shared = false;
    store.renew_leases().await.unwrap();
    let held = names(&store, "SELECT name FROM conversations WHERE held_until > 1").await;
    assert_eq!(held, ["used"]);
}

async fn names(store: &Database, sql: &str) -> Vec<String> {
    store.query_for_test(sql).await.unwrap().iter_mut().map(|row| row.text(0).unwrap()).collect()
}

/// All conversations that were not used for long are deleted, with their prefixes.
#[tokio::test]
async fn what_is_not_used_for_long_is_deleted() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let keep = async |name: &str| {
        let conversation = store.open_conversation(("c", name), "basis", "key", 0).await.unwrap().id;
        let prefixes = [format!("prefix-{name}")];
        let turn = PersistedTurn { longest: None, ..test_turn((name, conversation), 0, &prefixes) };
        store.persist_turn(turn).await.unwrap();
    };
    for number in 0..70 {
        keep(&format!("old-{number}")).await;
    }
    keep("held").await;
    store.execute_for_test("UPDATE conversations SET used = 1").await.unwrap();
    keep("new").await;
    let hold = "UPDATE conversations SET held_until = 9000000000000 WHERE name = 'held'";
    store.execute_for_test(hold).await.unwrap();
    assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 70);
    assert_eq!(store.delete_unused(3_600_000).await.unwrap(), 0);
    let sql = "SELECT name FROM conversations ORDER BY name";
    let left = names(&store, sql).await;
    assert_eq!(left, ["held", "new"]);
    let sql = "SELECT prefix FROM prefixes ORDER BY prefix";
    let left = names(&store, sql).await;
    assert_eq!(left, ["prefix-held", "prefix-new"]);
}

/// A turn updates the time of last use, but not every turn does.
#[tokio::test]
async fn a_turn_says_that_its_conversation_is_used_if_that_is_old() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    let id = store.open_conversation(("c", "one"), "basis", "key", 0).await.unwrap().id;
    let used = async || -> i64 {
        store
            .query_for_test("SELECT used FROM conversations")
            .await
            .unwrap()
            .first()
            .unwrap()
            .integer(0)
            .unwrap()
    };
    store.execute_for_test("UPDATE conversations SET used = 1").await.unwrap();
    for (turns, is_stale) in [(0, false), (1, true)] {
        let turn = PersistedTurn { is_stale, ..test_turn(("one", id), turns, &[]) };
        store.persist_turn(turn).await.unwrap();
        assert_eq!(used().await > 1, is_stale);
    }
}

/// Of the conversations beyond the limit of a client, those that were used longest ago come first, and the newest never.
#[tokio::test]
async fn the_surplus_begins_with_what_was_used_longest_ago() {
    let store = Database::open(&DatabaseAddress::Memory).await.unwrap();
    for (used, name) in ["first", "second", "held", "third", "newest"].into_iter().enumerate() {
        store.open_conversation(("c", name), "basis", "key", 0).await.unwrap();
        store
            .execute_for_test(&format!("UPDATE conversations SET used = {used} WHERE name = '{name}'"))
            .await
            .unwrap();
    }
    let hold = "UPDATE conversations SET held_until = 9000000000000 WHERE name = 'held'";
    store.execute_for_test(hold).await.unwrap();
    let surplus = async |most| store.least_recently_used("c", "newest", most).await.unwrap();
    assert_eq!(surplus(1).await, ["first", "second", "third"]);
    assert_eq!(surplus(2).await, ["first", "second"]);
    assert_eq!(surplus(4).await, Vec::<String>::new());
}
