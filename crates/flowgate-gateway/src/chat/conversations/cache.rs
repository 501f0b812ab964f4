//! Keeps recently used conversations in memory.
//!
//! [`Conversations`](super::Conversations) owns the cache. When the number or the memory of the conversations exceeds
//! its limit, the least recently used conversations that no request uses are evicted.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{ConversationCell, ConversationKey};

/// The limit on the number of conversations in memory, whatever their size.
const MAX_CONVERSATIONS: usize = 4096;

/// The conversations in memory.
#[derive(Debug, Default)]
pub(super) struct ConversationCache {
    /// The cell of each conversation, which holds the conversation, with the time of its last use and its memory.
    cells: HashMap<ConversationKey, (ConversationCell, ConversationUse)>,
    /// The conversations by the time of their last use.
    by_use: BTreeMap<u64, ConversationKey>,
    /// The time of the most recent use: a number that each use increments.
    clock: u64,
    /// The approximate memory of all conversations, in bytes.
    bytes: usize,
    max_bytes: usize,
}

/// The time of a conversation's last use, and its approximate memory in bytes.
#[derive(Debug, Default, Clone, Copy)]
struct ConversationUse {
    /// The value of [`ConversationCache::clock`] at the last use; 0 before the first use.
    at: u64,
    bytes: usize,
}

impl ConversationCache {
    /// Creates a cache for about `max_bytes` bytes of conversations.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { max_bytes, ..Self::default() }
    }

    /// Returns the cell of a conversation, and marks the conversation as used now. For a conversation that is not in
    /// memory, adds a cell, which is empty until a request loads the conversation.
    pub(super) fn cell(&mut self, key: &ConversationKey) -> ConversationCell {
        self.clock += 1;
        let (cell, used) = self.cells.entry(key.clone()).or_default();
        let cell = Arc::clone(cell);
        // Moves the key from the old time of use to the new one instead of copying it. A new cell has the time 0, and
        // there is no key to move.
        let moved_key = self.by_use.remove(&used.at);
        used.at = self.clock;
        self.by_use.insert(self.clock, moved_key.unwrap_or_else(|| key.clone()));
        // Does not evict this conversation: it is in use, since `cell` refers to it.
        self.make_room();
        cell
    }

    /// Sets the approximate memory of a conversation, in bytes, and evicts conversations if the limit is exceeded. Does
    /// nothing for a conversation that is not in memory.
    pub(super) fn set_size(&mut self, key: &ConversationKey, bytes: usize) {
        if let Some((_, used)) = self.cells.get_mut(key) {
            self.bytes = (self.bytes - used.bytes).saturating_add(bytes);
            used.bytes = bytes;
        }
        self.make_room();
    }

    /// Returns whether a request uses a conversation.
    pub(super) fn is_used(&self, key: &ConversationKey) -> bool {
        // The cache has one reference to the cell, and each request that uses the conversation another.
        self.cells.get(key).is_some_and(|(cell, _)| Arc::strong_count(cell) > 1)
    }

    /// Drops a conversation from memory; the database still has it. Does nothing for one that is not in memory.
    pub(super) fn forget(&mut self, key: &ConversationKey) {
        if let Some((_, used)) = self.cells.remove(key) {
            self.by_use.remove(&used.at);
            self.bytes -= used.bytes;
        }
    }

    /// Evicts the least recently used conversations until the limits hold, or all that are left are in use.
    fn make_room(&mut self) {
        while self.bytes > self.max_bytes || self.cells.len() > MAX_CONVERSATIONS {
            let Some(key) = self.by_use.values().find(|key| !self.is_used(key)).cloned() else { return };
            self.forget(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_conversations_without_a_request_are_evicted() {
        let key = |name: &str| ("client".to_owned(), name.to_owned());
        let mut memory = ConversationCache::new(300);
        let held = memory.cell(&key("held"));
        memory.set_size(&key("held"), 100);
        for name in ["a", "b", "a", "c"] {
            memory.cell(&key(name));
            memory.set_size(&key(name), 100);
        }
        // The names of the conversations in memory, their size in bytes, and the number of entries by time of use.
        let left = |memory: &ConversationCache| {
            let mut names: Vec<String> = memory.cells.keys().map(|key| key.1.clone()).collect();
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
        for number in 0..=MAX_CONVERSATIONS {
            memory.cell(&key(&number.to_string()));
        }
        assert_eq!((memory.cells.len(), memory.cells.contains_key(&key("0"))), (MAX_CONVERSATIONS, false));
    }
}
