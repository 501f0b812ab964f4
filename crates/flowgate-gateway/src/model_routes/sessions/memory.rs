//! The conversations that are in memory, and which of them go when there are too many.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Key, Slot};
use crate::freeing::free;

/// Conversations in memory, however small they are.
const MOST_SLOTS: usize = 4096;

/// The conversations that are in memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    slots: HashMap<Key, (Slot, Used)>,
    /// When each was used last.
    by_use: BTreeMap<u64, Key>,
    clock: u64,
    bytes: usize,
    most: usize,
}

/// When a conversation was used, and how many bytes of memory it takes, roughly.
#[derive(Debug, Default, Clone, Copy)]
struct Used {
    at: u64,
    bytes: usize,
}

impl Memory {
    /// Room for so many bytes.
    pub(super) fn new(most: usize) -> Self {
        Self { most, ..Self::default() }
    }

    /// The place of a conversation, which is used now.
    pub(super) fn slot(&mut self, key: &Key) -> Slot {
        self.clock += 1;
        let (slot, used) = self.slots.entry(key.clone()).or_default();
        let slot = Arc::clone(slot);
        let before = self.by_use.remove(&used.at);
        used.at = self.clock;
        self.by_use.insert(self.clock, before.unwrap_or_else(|| key.clone()));
        self.make_room();
        slot
    }

    /// A conversation takes so many bytes, roughly.
    pub(super) fn note(&mut self, key: &Key, bytes: usize) {
        if let Some((_, used)) = self.slots.get_mut(key) {
            self.bytes = (self.bytes - used.bytes).saturating_add(bytes);
            used.bytes = bytes;
        }
        self.make_room();
    }

    /// Whether a request has a conversation.
    pub(super) fn is_used(&self, key: &Key) -> bool {
        self.slots.get(key).is_some_and(|(slot, _)| Arc::strong_count(slot) > 1)
    }

    /// Lets a conversation go.
    pub(super) fn forget(&mut self, key: &Key) {
        if let Some((slot, used)) = self.slots.remove(key) {
            self.by_use.remove(&used.at);
            self.bytes -= used.bytes;
            free(slot);
        }
    }

    /// Lets those go that were used longest ago, but for those that are being used.
    fn make_room(&mut self) {
        while self.bytes > self.most || self.slots.len() > MOST_SLOTS {
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
        let mut memory = Memory::new(300);
        let held = memory.slot(&key("held"));
        memory.note(&key("held"), 100);
        for name in ["a", "b", "a", "c"] {
            memory.slot(&key(name));
            memory.note(&key(name), 100);
        }
        let left = |memory: &Memory| {
            let mut names: Vec<String> = memory.slots.keys().map(|key| key.1.clone()).collect();
            names.sort();
            (names.join(" "), memory.bytes, memory.by_use.len())
        };
        assert_eq!(left(&memory), ("a c held".to_owned(), 300, 3));
        drop(held);
        memory.note(&key("a"), 200);
        assert_eq!(left(&memory), ("a c".to_owned(), 300, 2));
        // Even the one that is noted, if it is too long.
        memory.note(&key("a"), 400);
        assert_eq!(left(&memory), ("c".to_owned(), 100, 1));
        memory.forget(&key("c"));
        assert_eq!(left(&memory), (String::new(), 0, 0));
        for number in 0..=MOST_SLOTS {
            memory.slot(&key(&number.to_string()));
        }
        assert_eq!((memory.slots.len(), memory.slots.contains_key(&key("0"))), (MOST_SLOTS, false));
    }
}
