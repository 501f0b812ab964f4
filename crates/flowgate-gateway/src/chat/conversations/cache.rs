//! The cache of conversations in memory.
//!
//! `Conversations` owns the cache. When a limit is exceeded, the least recently used conversations are evicted, except
//! those in use.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{ConversationCell, ConversationKey};
use crate::background_drop::drop_in_background;

/// The limit on the number of conversations in memory, whatever their size.
const MAX_SLOTS: usize = 4096;

/// The conversations in memory.
#[derive(Debug, Default)]
pub(super) struct ConversationCache {
    slots: HashMap<ConversationKey, (ConversationCell, ConversationUse)>,
    /// The conversations by the time of their last use.
    by_use: BTreeMap<u64, ConversationKey>,
    clock: u64,
    bytes: usize,
    most: usize,
}

/// The time of a conversation's last use, and its approximate memory in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct ConversationUse {
    at: u64,
    bytes: usize,
}

impl ConversationCache {
    /// Creates a cache for about `most` bytes of conversations.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// Returns the slot of a conversation, and marks the conversation as used now; the slot of an unknown conversation
    /// is empty.
    pub(super) fn slot(&mut self, key: &ConversationKey) -> ConversationCell {
        self.clock += 1;
        let (slot, used) = self.slots.entry(key.clone()).or_default();
        let slot = Arc::clone(slot);
        let before = self.by_use.remove(&used.at);
        used.at = self.clock;
        self.by_use.insert(self.clock, before.unwrap_or_else(|| key.clone()));
        self.make_room();
        slot
    }

    /// Sets the approximate memory of a conversation, in bytes.
    pub(super) fn set_size(&mut self, key: &ConversationKey, bytes: usize) {
        if let Some((_, used)) = self.slots.get_mut(key) {
            self.bytes = (self.bytes - used.bytes).saturating_add(bytes);
            used.bytes = bytes;
        }
        self.make_room();
    }

    /// Returns whether a request uses a conversation.
    pub(super) fn is_used(&self, key: &ConversationKey) -> bool {
        self.slots.get(key).is_some_and(|(slot, _)| Arc::strong_count(slot) > 1)
    }

    /// Drops a conversation from memory.
    pub(super) fn forget(&mut self, key: &ConversationKey) {
        if let Some((slot, used)) = self.slots.remove(key) {
            self.by_use.remove(&used.at);
            self.bytes -= used.bytes;
            drop_in_background(slot);
        }
    }

    /// Evicts the least recently used conversations, except those in use, until the limits hold.
    fn make_room(&mut self) {
        while self.bytes > self.most || self.slots.len() > MAX_SLOTS {
            let Some(key) = self.by_use.values().find(|key| !self.is_used(key)).cloned() else { return };
            self.forget(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_used_longest_ago_go_but_for_those_in_use() {
        let key = |name: &str| ("client".to_owned(), name.to_owned());
        let mut memory = ConversationCache::new(300);
        let held = memory.slot(&key("held"));
        memory.set_size(&key("held"), 100);
        for name in ["a", "b", "a", "c"] {
            memory.slot(&key(name));
            memory.set_size(&key(name), 100);
        }
        let left = |memory: &ConversationCache| {
            let mut names: Vec<String> = memory.slots.keys().map(|key| key.1.clone()).collect();
            names.sort();
            (names.join(" "), memory.bytes, memory.by_use.len())
        };
        assert_eq!(left(&memory), ("a c held".to_owned(), 300, 3));
        drop(held);
        memory.set_size(&key("a"), 200);
        assert_eq!(left(&memory), ("a c".to_owned(), 300, 2));
        // Even the conversation whose size is set now is evicted if it is too large.
        memory.set_size(&key("a"), 400);
        assert_eq!(left(&memory), ("c".to_owned(), 100, 1));
        memory.forget(&key("c"));
        assert_eq!(left(&memory), (String::new(), 0, 0));
        for number in 0..=MAX_SLOTS {
            memory.slot(&key(&number.to_string()));
        }
        assert_eq!((memory.slots.len(), memory.slots.contains_key(&key("0"))), (MAX_SLOTS, false));
    }
}
