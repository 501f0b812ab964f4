//! Caches in memory what the gateway reads often, to save queries: the labels of tenants' stores, the freezes, and the
//! conversation to which a chat belongs. [`Database`](super::Database) owns the cache, and uses it only if no other
//! gateway writes to the database.
//!
//! Without the cache, the time that the gateway adds to an answer is 1.5 times as long in the median, and the CPU time
//! of a request 1.4 times (`compat/latency/README.md`, *What hand-tuned paths save*).

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::freeze_kind::FreezeKind;

/// A freeze: its kind, its target, who ordered it and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Freeze {
    pub(crate) kind: FreezeKind,
    /// The name of the target.
    pub(crate) what: String,
    /// The person who ordered it.
    pub(crate) who: String,
    /// The time of the order, in milliseconds since 1970.
    pub(crate) since: i64,
}

/// The cached facts; not used if other gateways write to the database as well.
#[derive(Debug, Default)]
pub(super) struct DatabaseCache(Mutex<DatabaseCacheState>);

/// The cached facts, behind the lock of [`DatabaseCache`].
#[derive(Debug, Default)]
struct DatabaseCacheState {
    /// The records of the labels of external state, by tenant.
    tenants: HashMap<String, TenantRecord>,
    /// All freezes; `None` if they are not cached.
    freezes: Option<Arc<[Freeze]>>,
    /// The number of freezes and thaws so far.
    changes: u64,
    chats: ChatOwners,
}

/// The record of the labels of a tenant's stores.
#[derive(Debug)]
struct TenantRecord {
    /// The record in JSON; `None` if the tenant has none.
    record: Option<String>,
    /// Whether the database has this record; false while the outcome of its write is unknown.
    is_persisted: bool,
}

/// Maps the longest prefix of a chat to its conversation, for conversations that share this prefix with no other. A
/// prefix is the digest of the beginning of a chat.
#[derive(Debug, Default)]
struct ChatOwners {
    /// The conversation of each pair of client and prefix.
    owners: HashMap<(String, String), String>,
    /// The prefix of each pair of client and conversation: the inverse of `owners`.
    prefixes: HashMap<(String, String), String>,
}

/// The most conversations in the cache; when it is full, it is cleared.
const MAX_CHATS: usize = 16_384;

impl ChatOwners {
    /// Drops the conversation `name` of a client and its prefix.
    fn forget(&mut self, client: &str, name: &str) {
        let prefix = self.prefixes.remove(&(client.to_owned(), name.to_owned()));
        if let Some(prefix) = prefix {
            self.owners.remove(&(client.to_owned(), prefix));
        }
    }
}

impl DatabaseCache {
    /// Locks the cached facts.
    fn lock(&self) -> MutexGuard<'_, DatabaseCacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the record of the labels of a tenant's stores. The outer `None` means that the cache does not know it,
    /// the inner one that the tenant has no record.
    pub(super) fn tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.lock().tenants.get(tenant).map(|cached| cached.record.clone())
    }

    /// Returns whether the record of the labels of a tenant's stores is known, and known to be in the database.
    pub(super) fn is_tenant_persisted(&self, tenant: &str) -> bool {
        self.lock().tenants.get(tenant).is_some_and(|cached| cached.is_persisted)
    }

    /// Adds the record of the labels of a tenant's stores that was read from the database, unless the cache has one
    /// already.
    pub(super) fn add_tenant(&self, tenant: &str, record: Option<String>) {
        let read = TenantRecord { record, is_persisted: true };
        self.lock().tenants.entry(tenant.to_owned()).or_insert(read);
    }

    /// Sets the record of the labels of a tenant's stores before it is written to the database. If the outcome of the
    /// write remains unknown, the cache keeps the record, since its labels are at least as high as the earlier ones,
    /// and the next turn writes it again.
    pub(super) fn set_unconfirmed_tenant(&self, tenant: &str, record: String) {
        let written = TenantRecord { record: Some(record), is_persisted: false };
        self.lock().tenants.insert(tenant.to_owned(), written);
    }

    /// Notes that the database has this record of the labels of a tenant's stores. Does nothing if the cache has a
    /// newer record.
    pub(super) fn confirm_tenant(&self, tenant: &str, record: &str) {
        if let Some(cached) = self.lock().tenants.get_mut(tenant) {
            cached.is_persisted |= cached.record.as_deref() == Some(record);
        }
    }

    /// Returns the cached freezes. If none are cached, the error is the number of changes of freezes so far; the caller
    /// passes it to [`set_freezes`](Self::set_freezes) after it has read the freezes.
    pub(super) fn freezes(&self) -> Result<Arc<[Freeze]>, u64> {
        let state = self.lock();
        state.freezes.clone().ok_or(state.changes)
    }

    /// Caches the freezes that were read from the database, unless one was added or removed since. `changes` is the
    /// number of such changes when the read began.
    pub(super) fn set_freezes(&self, changes: u64, freezes: &Arc<[Freeze]>) {
        let mut state = self.lock();
        if state.changes == changes {
            state.freezes = Some(Arc::clone(freezes));
        }
    }

    /// Returns the conversation to which all chats with this longest prefix (the digest of a beginning of the chat)
    /// belong; `None` if the cache knows none.
    pub(super) fn chat(&self, client: &str, prefix: &str) -> Option<String> {
        self.lock().chats.owners.get(&(client.to_owned(), prefix.to_owned())).cloned()
    }

    /// Records that chats with the longest prefix `prefix` belong to this conversation alone. (A prefix is the digest
    /// of a beginning of a chat.) Forgets the conversations of the other `prefixes` of the chat, since each of these
    /// prefixes may now belong to several conversations. A full cache is emptied first.
    pub(super) fn set_chat(&self, client: &str, name: &str, prefix: &str, prefixes: &[String]) {
        self.forget_prefixes(client, name, prefixes);
        let chats = &mut self.lock().chats;
        if chats.prefixes.len() >= MAX_CHATS {
            *chats = ChatOwners::default();
        }
        chats.prefixes.insert((client.to_owned(), name.to_owned()), prefix.to_owned());
        chats.owners.insert((client.to_owned(), prefix.to_owned()), name.to_owned());
    }

    /// Forgets the prefix (the digest of a beginning of the chat) of the conversation `name` of a client, and each
    /// conversation to which the cache assigns one of `prefixes`: these prefixes may now belong to several
    /// conversations.
    pub(super) fn forget_prefixes(&self, client: &str, name: &str, prefixes: &[String]) {
        let chats = &mut self.lock().chats;
        chats.forget(client, name);
        for prefix in prefixes {
            let owner = chats.owners.get(&(client.to_owned(), prefix.clone())).cloned();
            if let Some(owner) = owner {
                chats.forget(client, &owner);
            }
        }
    }

    /// Forgets the chat prefix by which the conversation `name` of a client is found, since the conversation was
    /// deleted.
    pub(super) fn forget_chat(&self, client: &str, name: &str) {
        self.lock().chats.forget(client, name);
    }

    /// Forgets the freezes, since one was added or removed. Counts this change, so that
    /// [`set_freezes`](Self::set_freezes) ignores freezes that were read before it.
    pub(super) fn forget_freezes(&self) {
        let mut state = self.lock();
        state.changes += 1;
        state.freezes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_known_after_it() {
        let cache = DatabaseCache::default();
        let nothing: Arc<[Freeze]> = Arc::new([]);
        let before = cache.freezes().unwrap_err();
        cache.forget_freezes();
        cache.set_freezes(before, &nothing);
        let now = cache.freezes().unwrap_err();
        cache.set_freezes(now, &nothing);
        assert!(cache.freezes().is_ok());
    }

    #[test]
    fn a_chat_is_known_as_long_as_it_is_one_conversations() {
        let cache = DatabaseCache::default();
        let check = |prefix: &str, expected: Option<&str>| {
            assert_eq!(cache.chat("c", prefix).as_deref(), expected, "{prefix}");
        };
        cache.set_chat("c", "one", "p", &[]);
        cache.set_chat("other", "two", "p", &[]);
        check("p", Some("one"));
        // The conversation is extended.
        cache.set_chat("c", "one", "q", &[]);
        check("p", None);
        check("q", Some("one"));
        // Another conversation of the same client has the same prefix.
        cache.forget_prefixes("c", "two", &["q".to_owned()]);
        check("q", None);
        assert_eq!(cache.chat("other", "p").as_deref(), Some("two"));
        cache.set_chat("c", "one", "r", &[]);
        cache.forget_chat("c", "one");
        check("r", None);
        assert_eq!(cache.chat("other", "p").as_deref(), Some("two"));
    }
}
