//! What is known of a store that nobody else writes to, so that it is not asked every time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Freeze;

/// Nothing of it is used where others write as well.
#[derive(Debug, Default)]
pub(super) struct Cache(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    tenants: HashMap<String, Option<String>>,
    freezes: Option<Arc<[Freeze]>>,
    /// How often something was stopped or let go on.
    changes: u64,
    chats: Chats,
}

/// The conversations of which it is known that nobody else's chats begin with all that was said in them.
#[derive(Debug, Default)]
struct Chats {
    /// By a client and a prefix.
    owners: HashMap<(String, String), String>,
    /// The prefix of each, by its client and name.
    prefixes: HashMap<(String, String), String>,
}

/// How many conversations are known so; when there are more, it begins anew.
const MOST_CHATS: usize = 16_384;

impl Chats {
    fn forget(&mut self, client: &str, name: &str) {
        let prefix = self.prefixes.remove(&(client.to_owned(), name.to_owned()));
        if let Some(prefix) = prefix {
            self.owners.remove(&(client.to_owned(), prefix));
        }
    }
}

impl Cache {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The record of a tenant's stores, if it is known what it is.
    pub(super) fn tenant(&self, tenant: &str) -> Option<Option<String>> {
        self.known().tenants.get(tenant).cloned()
    }

    /// What the record of a tenant's stores is. Until a write of it has failed or not, it is known as what was written: that
    /// carries no less.
    pub(super) fn set_tenant(&self, tenant: &str, record: Option<String>) {
        self.known().tenants.insert(tenant.to_owned(), record);
    }

    /// What is stopped, or how often that has changed.
    pub(super) fn freezes(&self) -> Result<Arc<[Freeze]>, u64> {
        let known = self.known();
        known.freezes.clone().ok_or(known.changes)
    }

    /// What was stopped when it had changed so often; if it has changed since, nothing is known.
    pub(super) fn set_freezes(&self, changes: u64, freezes: &Arc<[Freeze]>) {
        let mut known = self.known();
        if known.changes == changes {
            known.freezes = Some(Arc::clone(freezes));
        }
    }

    /// The conversation to which alone chats belong that begin so.
    pub(super) fn chat(&self, client: &str, prefix: &str) -> Option<String> {
        self.known().chats.owners.get(&(client.to_owned(), prefix.to_owned())).cloned()
    }

    /// From now on, chats that begin with `prefix` belong to this conversation alone, and those that begin like the other
    /// `prefixes` may belong to it.
    pub(super) fn set_chat(&self, client: &str, name: &str, prefix: &str, prefixes: &[String]) {
        self.forget_prefixes(client, name, prefixes);
        let chats = &mut self.known().chats;
        if chats.prefixes.len() >= MOST_CHATS {
            *chats = Chats::default();
        }
        chats.prefixes.insert((client.to_owned(), name.to_owned()), prefix.to_owned());
        chats.owners.insert((client.to_owned(), prefix.to_owned()), name.to_owned());
    }

    /// Chats that begin so may belong to this conversation, and what is known of it itself is not sure any more.
    pub(super) fn forget_prefixes(&self, client: &str, name: &str, prefixes: &[String]) {
        let chats = &mut self.known().chats;
        chats.forget(client, name);
        for prefix in prefixes {
            let owner = chats.owners.get(&(client.to_owned(), prefix.clone())).cloned();
            if let Some(owner) = owner {
                chats.forget(client, &owner);
            }
        }
    }

    /// A conversation is there no longer.
    pub(super) fn forget_chat(&self, client: &str, name: &str) {
        self.known().chats.forget(client, name);
    }

    /// Something was stopped, or let go on.
    pub(super) fn forget_freezes(&self) {
        let mut known = self.known();
        known.changes += 1;
        known.freezes = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_before_a_change_is_not_known_after_it() {
        let cache = Cache::default();
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
        let cache = Cache::default();
        let check = |prefix: &str, expected: Option<&str>| {
            assert_eq!(cache.chat("c", prefix).as_deref(), expected, "{prefix}");
        };
        cache.set_chat("c", "one", "p", &[]);
        cache.set_chat("other", "two", "p", &[]);
        check("p", Some("one"));
        // Goes on.
        cache.set_chat("c", "one", "q", &[]);
        check("p", None);
        check("q", Some("one"));
        // Another conversation of the same client says the same.
        cache.forget_prefixes("c", "two", &["q".to_owned()]);
        check("q", None);
        assert_eq!(cache.chat("other", "p").as_deref(), Some("two"));
        cache.set_chat("c", "one", "r", &[]);
        cache.forget_chat("c", "one");
        check("r", None);
        assert_eq!(cache.chat("other", "p").as_deref(), Some("two"));
    }
}
