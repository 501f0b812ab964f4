//! Which conversation a request belongs to.
//!
//! A client may name it. Otherwise it is the one whose history the request begins with, up to a message that the model
//! wrote there. Where two have that in common, nobody knows which is meant, and the request begins a new one: what only a
//! conversation itself writes is nobody's there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate_guard::conversation::Conversation;
use flowgate_guard::history::{History, Prefix};
use flowgate_lm::chat::Message;

use super::clients::Known;
use super::turn::Failure;

/// A conversation, and the chat as its client holds it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Conversation,
    pub(crate) history: History,
}

/// The conversations of all clients.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<HashMap<String, Table>>);

/// The conversations of one client.
#[derive(Debug, Default)]
struct Table {
    slots: HashMap<String, Slot>,
    /// Which conversations have what in common.
    prefixes: HashMap<Prefix, Vec<String>>,
    clock: u64,
}

#[derive(Debug)]
struct Slot {
    session: Arc<Mutex<Option<Session>>>,
    prefixes: Vec<Prefix>,
    used: u64,
}

/// The conversation of a request.
#[derive(Debug)]
pub(crate) struct Found {
    name: String,
    session: Arc<Mutex<Option<Session>>>,
}

/// A conversation that nobody else goes on with meanwhile.
#[derive(Debug)]
pub(crate) struct Held<'a>(MutexGuard<'a, Option<Session>>);

impl Found {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until no other request goes on with it. A conversation that has just begun is made by `begin`.
    pub(crate) fn lock(&self, begin: impl FnOnce() -> Result<Session, Failure>) -> Result<Held<'_>, Failure> {
        // Whoever broke off while it was held may have left it half done: it begins anew, with nothing known.
        let mut held = self.session.lock().unwrap_or_else(|poisoned| {
            self.session.clear_poison();
            let mut held = poisoned.into_inner();
            *held = None;
            held
        });
        if held.is_none() {
            *held = Some(begin()?);
        }
        Ok(Held(held))
    }
}

impl Held<'_> {
    pub(crate) fn get(&mut self) -> Option<&mut Session> {
        self.0.as_mut()
    }
}

impl Sessions {
    /// The conversation that a client names, or that a chat goes on with.
    pub(crate) fn find(&self, client: &Known, named: Option<&str>, chat: &[Message]) -> Found {
        let prefixes = if named.is_some() { Vec::new() } else { History::prefixes_of(chat) };
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let table = tables.entry(client.spec.name.clone()).or_default();
        let name = match named {
            Some(name) => name.to_owned(),
            None => table.of_chat(&prefixes).unwrap_or_else(fresh),
        };
        table.clock += 1;
        let now = table.clock;
        let slot = table.slots.entry(name.clone()).or_insert_with(|| Slot {
            session: Arc::default(),
            prefixes: Vec::new(),
            used: now,
        });
        slot.used = now;
        let session = Arc::clone(&slot.session);
        table.make_room(client.spec.sessions);
        Found { name, session }
    }

    /// Takes note of what a conversation has come to, so that it is found again.
    pub(crate) fn remember(&self, client: &Known, found: &Found, held: &mut Held<'_>) {
        let prefixes = held.get().map(|session| session.history.prefixes()).unwrap_or_default();
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(table) = tables.get_mut(&client.spec.name) else { return };
        table.forget_prefixes(&found.name);
        let Some(slot) = table.slots.get_mut(&found.name) else { return };
        slot.prefixes.clone_from(&prefixes);
        for prefix in prefixes {
            table.prefixes.entry(prefix).or_default().push(found.name.clone());
        }
    }
}

impl Table {
    fn of_chat(&self, prefixes: &[Prefix]) -> Option<String> {
        let longest = prefixes.iter().rev().find_map(|prefix| self.prefixes.get(prefix))?;
        match longest.as_slice() {
            [name] => Some(name.clone()),
            _ => None,
        }
    }

    fn forget_prefixes(&mut self, name: &str) {
        let Some(slot) = self.slots.get_mut(name) else { return };
        for prefix in std::mem::take(&mut slot.prefixes) {
            if let Some(names) = self.prefixes.get_mut(&prefix) {
                names.retain(|known| known != name);
                if names.is_empty() {
                    self.prefixes.remove(&prefix);
                }
            }
        }
    }

    /// Forgets the conversations that were used longest ago, but for those that are being used.
    fn make_room(&mut self, most: usize) {
        while self.slots.len() > most {
            let idle = self.slots.iter().filter(|(_, slot)| Arc::strong_count(&slot.session) == 1);
            let Some(oldest) = idle.min_by_key(|(_, slot)| slot.used).map(|(name, _)| name.clone()) else {
                return;
            };
            self.forget_prefixes(&oldest);
            self.slots.remove(&oldest);
        }
    }
}

/// A name that nobody can guess.
fn fresh() -> String {
    let mut bytes = [0_u8; 16];
    // Without random bytes no session can begin, and the request is refused there.
    let _ = getrandom::fill(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
