//! Remembers the chats that LiteLLM has sent before it asks the model. LiteLLM later sends the answer of the model
//! without the chat, and the answer is judged as the next message of the remembered chat. Both messages of LiteLLM have
//! the id of its request to the model, by which the chat is found. `guardrail` calls this module.
//!
//! The id may be chosen by a program that uses LiteLLM. If two chats have the same id, an answer is judged as the
//! answer to each of them: otherwise, a program could have the answer to one chat judged as the answer to another. The
//! chats are in the memory of this process alone: after a restart, and in another process, the answer belongs to no
//! known chat.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The most bytes of the chats of one client. Beyond it, the oldest chats are forgotten.
pub(crate) const MAX_BYTES: usize = 32 << 20;
/// The bytes that count for each chat in addition to its text.
const BYTES_PER_CHAT: usize = 256;
/// The most different chats under one id.
const MAX_OF_CALL: usize = 4;
/// The time for which a chat is remembered.
const MAX_AGE: Duration = Duration::from_secs(3600);

/// The chats of all clients.
#[derive(Debug, Default)]
pub(crate) struct RememberedChats(Mutex<HashMap<String, ClientChats>>);

/// The chats of one client.
#[derive(Debug, Default)]
struct ClientChats {
    /// The chats by the id of the request to the model.
    by_call: HashMap<Arc<str>, Vec<Arc<str>>>,
    /// All chats with their ids, the oldest first.
    order: VecDeque<(Instant, Arc<str>, Arc<str>)>,
    bytes: usize,
}

/// The error that too many different chats have the same id.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AmbiguousCall;

impl RememberedChats {
    /// Remembers `chat`, the text of a request of a client, under the id `call`, and forgets the oldest chats of the
    /// client if there is no room.
    ///
    /// # Errors
    /// If [`MAX_OF_CALL`] other chats are remembered under this id already.
    pub(super) fn remember(
        &self,
        client: &str,
        call: &str,
        chat: &str,
        now: Instant,
    ) -> Result<(), AmbiguousCall> {
        let mut all = self.lock();
        let chats = all.entry(client.to_owned()).or_default();
        // 0: this forgets only the chats that are too old. Others are forgotten below, if the new chat is stored and
        // needs their room.
        chats.forget(now, 0);
        // A request that is sent again with the same chat needs nothing new.
        let known = chats.by_call.get(call).map_or(&[][..], Vec::as_slice);
        if known.iter().any(|known| **known == *chat) {
            return Ok(());
        }
        if known.len() >= MAX_OF_CALL {
            return Err(AmbiguousCall);
        }
        // Forgets the oldest chats until there is room for the new one.
        chats.forget(now, size(chat));
        let (call, chat): (Arc<str>, Arc<str>) = (call.into(), chat.into());
        chats.bytes = chats.bytes.saturating_add(size(&chat));
        chats.by_call.entry(Arc::clone(&call)).or_default().push(Arc::clone(&chat));
        chats.order.push_back((now, call, chat));
        Ok(())
    }

    /// Returns the chats of a client that are remembered under the id `call`.
    pub(super) fn of_call(&self, client: &str, call: &str, now: Instant) -> Vec<Arc<str>> {
        let mut all = self.lock();
        let Some(chats) = all.get_mut(client) else { return Vec::new() };
        // 0: no room is needed, so this forgets only the chats that are too old.
        chats.forget(now, 0);
        chats.by_call.get(call).cloned().unwrap_or_default()
    }

    /// Locks the chats of all clients, also after a panic.
    fn lock(&self) -> MutexGuard<'_, HashMap<String, ClientChats>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientChats {
    /// Forgets the chats that are older than [`MAX_AGE`]. Then forgets the oldest of the others until there is room for
    /// `more` bytes. `now` is the present time.
    fn forget(&mut self, now: Instant, more: usize) {
        while let Some((since, _, _)) = self.order.front() {
            let is_old = now.saturating_duration_since(*since) > MAX_AGE;
            if !is_old && self.bytes.saturating_add(more) <= MAX_BYTES {
                return;
            }
            let Some((_, call, chat)) = self.order.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(size(&chat));
            if let Some(chats) = self.by_call.get_mut(&call) {
                chats.retain(|known| !Arc::ptr_eq(known, &chat));
                if chats.is_empty() {
                    self.by_call.remove(&call);
                }
            }
        }
    }
}

/// Returns the number of bytes by which a chat counts against [`MAX_BYTES`].
fn size(chat: &str) -> usize {
    chat.len().saturating_add(BYTES_PER_CHAT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chats_are_remembered_by_client_and_call() {
        let (chats, now) = (RememberedChats::default(), Instant::now());
        for (client, call, chat) in [("a", "1", "one"), ("a", "1", "one"), ("a", "2", "two"), ("b", "1", "x")]
        {
            assert_eq!(chats.remember(client, call, chat, now), Ok(()));
        }
        let check = |client: &str, call: &str, at: Instant, expected: &[&str]| {
            let found = chats.of_call(client, call, at);
            let found: Vec<&str> = found.iter().map(|chat| &**chat).collect();
            assert_eq!(found, expected, "{client} {call}");
        };
        check("a", "1", now, &["one"]);
        check("a", "2", now, &["two"]);
        check("b", "1", now, &["x"]);
        check("b", "2", now, &[]);
        check("c", "1", now, &[]);
        check("a", "1", now + MAX_AGE, &["one"]);
        check("a", "1", now + MAX_AGE + Duration::from_secs(1), &[]);
    }

    /// The chats under one id are bounded, and never replaced by a later one.
    #[test]
    fn the_chats_of_one_call_are_bounded() {
        let (chats, now) = (RememberedChats::default(), Instant::now());
        for number in 0..MAX_OF_CALL {
            assert_eq!(chats.remember("a", "1", &number.to_string(), now), Ok(()));
        }
        assert_eq!(chats.remember("a", "1", "more", now), Err(AmbiguousCall));
        assert_eq!(chats.remember("a", "1", "0", now), Ok(()));
        assert_eq!(chats.of_call("a", "1", now).len(), MAX_OF_CALL);
    }

    /// Two of the large chats exceed the limit together, so only the last one is remembered. Other clients lose
    /// nothing.
    #[test]
    fn the_oldest_chats_of_the_client_make_room() {
        let (chats, now) = (RememberedChats::default(), Instant::now());
        assert_eq!(chats.remember("b", "1", "of another client", now), Ok(()));
        let large = "x".repeat(MAX_BYTES / 2);
        for call in ["1", "2", "3"] {
            assert_eq!(chats.remember("a", call, &large, now), Ok(()));
        }
        let known = |client: &str, call: &str| chats.of_call(client, call, now).len();
        assert_eq!([known("a", "1"), known("a", "2"), known("a", "3"), known("b", "1")], [0, 0, 1, 1]);
        assert!(chats.lock()["a"].bytes <= MAX_BYTES);
    }
}
