//! The conversations that are in memory, and which of them go when there are too many.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Key, Slot};

/// Conversations in memory, however small they are.
const MOST_SLOTS: usize = 4096;

/// The conversations that are in memory.
#[derive(Debug, Default)]
pub(super) struct Memory {
    slots: HashMap<Key, (Slot, Used)>,
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
        let at = self.clock;
        let (slot, used) = self.slots.entry(key.clone()).or_default();
        used.at = at;
        let slot = Arc::clone(slot);
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
        if let Some((_, used)) = self.slots.remove(key) {
            self.bytes -= used.bytes;
        }
    }

    /// Lets those go that were used longest ago, but for those that are being used.
    fn make_room(&mut self) {
        if self.bytes <= self.most && self.slots.len() <= MOST_SLOTS {
            return;
        }
        let idle = self.slots.iter().filter(|(_, (slot, _))| Arc::strong_count(slot) == 1);
        let mut idle: Vec<(u64, Key)> = idle.map(|(key, (_, used))| (used.at, key.clone())).collect();
        idle.sort_unstable();
        // Somewhat more than need be, so that it is not done for every request.
        let (bytes, slots) = (self.most / 8 * 7, MOST_SLOTS / 8 * 7);
        for (_, key) in idle {
            if self.bytes <= bytes && self.slots.len() <= slots {
                return;
            }
            self.forget(&key);
        }
    }
}
