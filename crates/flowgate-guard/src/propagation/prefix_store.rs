//! Stores the beginnings of prompts that a model has evaluated ([`PrefixStore`]), by the documents that they contain.
//! [`ContextScorer`](super::ContextScorer) looks each beginning up before it lets the model evaluate it.

use std::collections::HashMap;

use flowgate_lm::Prefix;

/// The evaluated beginnings of prompts, up to a maximum number. If there is no room for another one, the least recently
/// used is dropped. So the shortest beginnings stay: all subcontexts share them, and each prompt uses them.
#[derive(Debug)]
pub(super) struct PrefixStore {
    /// The beginnings by their documents, in the order of the prompt.
    stored: HashMap<Vec<usize>, StoredPrefix>,
    /// The most beginnings that are stored.
    room: usize,
    /// The number of prompts so far.
    prompts: u64,
}

/// A beginning, and when it was used last.
#[derive(Debug)]
struct StoredPrefix {
    prefix: Prefix,
    /// The number of the last prompt that began with it.
    used: u64,
}

impl PrefixStore {
    /// Creates a store with room for `room` beginnings.
    pub(super) fn new(room: usize) -> Self {
        Self { stored: HashMap::new(), room, prompts: 0 }
    }

    /// Begins a prompt: the beginnings that are looked up or stored from now on count as used by it.
    pub(super) fn begin_prompt(&mut self) {
        self.prompts += 1;
    }

    /// Returns the beginning with these documents, if it is stored.
    pub(super) fn get(&mut self, documents: &[usize]) -> Option<Prefix> {
        let found = self.stored.get_mut(documents)?;
        found.used = self.prompts;
        Some(found.prefix.clone())
    }

    /// Stores the beginning with these documents. If the store is full, drops the least recently used beginning; of
    /// several that the same prompt used last, the longest, since fewer prompts share it. A store that was created
    /// without room stores nothing.
    pub(super) fn insert(&mut self, documents: &[usize], prefix: Prefix) {
        if self.room == 0 {
            return;
        }
        if self.stored.len() >= self.room && !self.stored.contains_key(documents) {
            // The documents are compared last, so that the choice does not depend on the order of the map.
            let age = |(documents, stored): &(&Vec<usize>, &StoredPrefix)| {
                (stored.used, std::cmp::Reverse(documents.len()), (*documents).clone())
            };
            let oldest = self.stored.iter().min_by_key(age).map(|(documents, _)| documents.clone());
            oldest.map(|documents| self.stored.remove(&documents));
        }
        self.stored.insert(documents.to_vec(), StoredPrefix { prefix, used: self.prompts });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes prompts to a store with room for three beginnings; a prompt is the list of its documents. Compares the
    /// beginnings that had to be evaluated, each with its documents as digits.
    #[test]
    fn the_least_recently_used_beginning_is_dropped() {
        let check = |prompts: &[&[usize]], expected: &[&str]| {
            let mut store = PrefixStore::new(3);
            let mut evaluated = Vec::new();
            for prompt in prompts {
                store.begin_prompt();
                for length in 0..=prompt.len() {
                    let documents = &prompt[..length];
                    let name: String = documents.iter().map(usize::to_string).collect();
                    match store.get(documents) {
                        Some(prefix) => assert_eq!(prefix.text(), name),
                        None => {
                            store.insert(documents, Prefix::new(None, &name, None));
                            evaluated.push(name);
                        }
                    }
                    assert!(store.stored.len() <= 3);
                }
            }
            assert_eq!(evaluated, expected, "{prompts:?}");
        };
        // All prompts share the beginning without documents, and 1 is used after 2: 2 is dropped.
        check(&[&[1], &[2], &[1], &[3], &[1], &[2]], &["", "1", "2", "3", "2"]);
        // A prompt that needs more than there is room for keeps what it shares with others, and drops its own end.
        check(&[&[1, 2, 3, 4], &[1, 5]], &["", "1", "12", "123", "1234", "15"]);
        check(&[&[] as &[usize]; 4], &[""]);
    }

    #[test]
    fn a_store_without_room_stores_nothing() {
        let mut store = PrefixStore::new(0);
        store.insert(&[], Prefix::new(None, "", None));
        assert!(store.get(&[]).is_none());
    }
}
