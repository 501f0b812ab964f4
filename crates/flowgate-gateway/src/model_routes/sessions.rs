//! Which conversation a request belongs to, and where it is kept.
//!
//! A client may name it. Otherwise it is the one whose history the request begins with, up to a message that the model
//! wrote there. Where two have that in common, nobody knows which is meant, and the request begins a new one: what only a
//! conversation itself writes is nobody's there.
//!
//! Conversations are [kept](crate::store) turn by turn. Those that were used last are in memory as well; the others are made
//! again from what was put in when they are needed. One that does not come to the same as before begins anew, with nothing
//! known: what a client then says of the past is nobody's.

mod memory;

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate_guard::conversation::{Conversation, Judged};
use flowgate_guard::history::{self, Chat, History, Prefix, Remembered};
use flowgate_lm::wire;
use serde_json::Value;

use memory::Memory;

use super::Waiting;
use super::clients::Known;
use super::servers::Machines;
use super::turn::{self, Cause, Failure};
use crate::approvals::Asked;
use crate::ask::journal::Journal;
use crate::log::{Event as LogEvent, Limit, Log};
use crate::random;
use crate::recorder::Note;
use crate::store::{self, Kept, Opened, Seen, Store, StoreError, Transaction, wait};
use crate::visibility::Explained;

/// How long a request waits for another one that goes on with the same conversation in another gateway.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is said of a conversation that it is used.
const STALE: Duration = Duration::from_secs(60);
/// How much memory a conversation takes that is as short as can be, roughly.
const LEAST: usize = 64 << 10;
/// How much memory a conversation takes for each byte that was put in, roughly.
const GROWTH: usize = 16;

/// A conversation, and the chat as its client holds it.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) conversation: Conversation,
    pub(crate) history: History,
    /// What it was told last of its tenant's stores, in JSON.
    pub(crate) recalled: Option<String>,
    /// What its stores carry was this and no more when so much had [changed](Conversation::memory_changes).
    settled: Option<u64>,
    /// Requests with the tools that are on offer in it.
    pub(super) offered: Vec<Weak<wire::Asked>>,
    /// Its number: no other conversation has it.
    id: i64,
    /// When it was said last that it is used.
    touched: Instant,
    /// How many turns are kept, and their bytes.
    turns: i64,
    bytes: i64,
    /// What chats begin with that belong here, as it is kept.
    prefixes: Vec<Prefix>,
    /// What stands between its client and the servers of it.
    pub(super) machines: Machines,
    /// What its predicates are answered.
    pub(super) answers: Journal,
    /// What happened in this turn, for the audit log.
    pub(crate) events: Vec<Note>,
    /// Questions that were answered by a yes in this turn, whose calls go out with it.
    pub(crate) used: Vec<Asked>,
    /// Questions that were answered by a yes, and whose calls do not run.
    pub(crate) void: Vec<Asked>,
    /// What the log says of it already.
    pub(crate) explained: Explained,
}

type Slot = Arc<Mutex<Option<Session>>>;
/// A client and a name.
type Key = (String, String);

/// The conversations of all clients.
#[derive(Debug)]
pub(crate) struct Sessions {
    store: Arc<Store>,
    memory: Mutex<Memory>,
    /// Bytes that one conversation may have put in.
    most_bytes: i64,
    pub(crate) log: Log,
}

/// The conversation of a request.
#[derive(Debug)]
pub(crate) struct Found {
    key: Key,
    slot: Slot,
}

/// A conversation that nobody else goes on with meanwhile.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    session: MutexGuard<'a, Option<Session>>,
    key: &'a Key,
    store: &'a Store,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.store.note_held(&self.key.0, &self.key.1, false);
    }
}

impl Found {
    pub(crate) fn name(&self) -> &str {
        &self.key.1
    }
}

impl Held<'_> {
    pub(crate) fn get(&mut self) -> Option<&mut Session> {
        self.session.as_mut()
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match error {
            StoreError::Overtaken | StoreError::Held | StoreError::Withdrawn => StatusCode::CONFLICT,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        let cause = match error {
            StoreError::Overtaken | StoreError::Held | StoreError::Withdrawn => Cause::Request,
            StoreError::Audit(_) => Cause::Store("the audit log cannot be written"),
            StoreError::Silent => Cause::Store("the store did not answer in time"),
            StoreError::Damaged(_) => Cause::Store("what the store has is not what was put there"),
            _ => Cause::Store("the store failed: look at its disk, its file and its server"),
        };
        Self::new(status, error.to_string()).because(cause)
    }
}

impl Sessions {
    /// `memory` bytes of conversations stay in memory; one may have `most_bytes` put in.
    pub(crate) fn new(store: Arc<Store>, memory: usize, most_bytes: u64, log: Log) -> Self {
        let memory = Mutex::new(Memory::new(memory));
        Self { store, memory, most_bytes: i64::try_from(most_bytes).unwrap_or(i64::MAX), log }
    }

    pub(super) fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// The conversation that a client names, or that a chat goes on with.
    pub(crate) fn find(
        &self,
        client: &Known,
        named: Option<&str>,
        chat: &Chat<'_>,
    ) -> Result<Found, Failure> {
        let name = match named {
            Some(name) => name.to_owned(),
            None => {
                let longest = chat.longest_prefix().map(|prefix| hex(&prefix));
                let known = match longest {
                    None => None,
                    Some(longest) => match self.store.of_known_chat(&client.spec.name, &longest) {
                        None => {
                            let prefixes: Vec<String> = chat.prefixes().iter().map(hex).collect();
                            wait(self.store.of_chat(&client.spec.name, &prefixes))?
                        }
                        known => known,
                    },
                };
                known.map_or_else(fresh, Ok)?
            }
        };
        Ok(self.named(client, &name))
    }

    /// The conversation of this name.
    pub(crate) fn named(&self, client: &Known, name: &str) -> Found {
        let key = (client.spec.name.clone(), name.to_owned());
        let slot = self.memory().slot(&key);
        Found { key, slot }
    }

    /// Waits until no other request goes on with a conversation, here or elsewhere, and brings it up to date.
    pub(crate) fn lock<'f>(
        &'f self,
        client: &Known,
        found: &'f Found,
        waiting: &Waiting,
    ) -> Result<Held<'f>, Failure> {
        // Whoever broke off while it was held may have left it half done: it is made again from what was kept.
        let session = found.slot.lock().unwrap_or_else(|poisoned| {
            found.slot.clear_poison();
            let mut held = poisoned.into_inner();
            *held = None;
            held
        });
        // What was asked long ago must not come behind what was asked since.
        if waiting.has_gone() {
            return Err(Failure::new(StatusCode::REQUEST_TIMEOUT, "nobody waits for the answer"));
        }
        let mut held = Held { session, key: &found.key, store: &self.store };
        if held.session.is_some() && !self.store.is_shared() {
            return Ok(held);
        }
        self.store.note_held(&found.key.0, &found.key.1, true);
        let since = Instant::now();
        let opened = loop {
            match self.open(client, found, held.session.as_ref()) {
                Err(StoreError::Held) if since.elapsed() < PATIENCE && !waiting.has_gone() => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                opened => break opened?,
            }
        };
        // Another one of the same name may have begun since.
        let is_known = held
            .session
            .as_ref()
            .is_some_and(|session| session.id == opened.id && session.turns + rows(&opened) == opened.turns);
        if !is_known || !bring_up(client, held.session.as_mut(), &opened) {
            *held.session = None;
        }
        if held.session.is_none() {
            *held.session = Some(self.make(client, found, opened)?);
        }
        Ok(held)
    }

    fn open(&self, client: &Known, found: &Found, known: Option<&Session>) -> Result<Opened, StoreError> {
        let key =
            random::bytes::<32>().map_err(|_| StoreError::Damaged("the system gives no random bytes"))?;
        let name = (client.spec.name.as_str(), found.name());
        let known = known.map_or(0, |session| session.turns);
        wait(self.store.open_conversation(name, &client.spec.basis, &random::hex(&key), known))
    }

    /// Makes a conversation from what was put in; if it does not come to the same as before, it begins anew.
    fn make(&self, client: &Known, found: &Found, opened: Opened) -> Result<Session, Failure> {
        let opened = match rows(&opened) == opened.turns {
            true => opened,
            false => self.open(client, found, None)?,
        };
        let new = opened.turns == 0;
        if let Some(session) = again(client, &opened)? {
            if new && client.begins_another() {
                self.make_room(client, found.name())?;
            }
            return Ok(session);
        }
        wait(self.store.delete_conversation(&client.spec.name, found.name()))?;
        let opened = self.open(client, found, None)?;
        again(client, &opened)?.ok_or_else(|| StoreError::Damaged("a new conversation has a past").into())
    }

    /// Deletes the conversations of a client that were used longest ago, but for those that are being used.
    fn make_room(&self, client: &Known, newest: &str) -> Result<(), Failure> {
        let most = i64::try_from(client.spec.sessions).unwrap_or(i64::MAX);
        let surplus = wait(self.store.surplus(&client.spec.name, newest, most))?;
        if !surplus.is_empty() {
            self.log.limit(&Limit {
                what: "conversations of one client",
                effect: "those used longest ago are deleted; what an agent goes on with there is not trusted",
                setting: "[clients.NAME] sessions",
                most: u64::try_from(most).unwrap_or_default(),
                client: &client.spec.name,
                conversation: None,
            });
        }
        for name in surplus {
            let key = (client.spec.name.clone(), name);
            if !self.memory().is_used(&key) {
                wait(self.store.delete_conversation(&key.0, &key.1))?;
                self.memory().forget(&key);
            }
        }
        Ok(())
    }

    /// Keeps what was put into a conversation in this turn, with all that follows from it. Only then may anything of the turn go
    /// out that was not allowed to go out early.
    pub(crate) fn keep(&self, client: &Known, found: &Found, held: &mut Held<'_>) -> Result<(), Failure> {
        let Some(session) = held.session.as_mut() else { return Ok(()) };
        // A request that was refused is no turn.
        let is_empty = !session.conversation.has_inputs() && !session.machines.has_steps();
        if is_empty && session.used.is_empty() && session.void.is_empty() {
            return Ok(wait(self.store.let_go(&client.spec.name, found.name()))?);
        }
        // What a client was shown is known in the order in which it is kept.
        let mut known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
        session.conversation.tell(&mut known.client, &mut session.history);
        let learned = known.client.seen.learned();
        let kept = self.keep_turn(client, found, session, known.next, &learned);
        match kept {
            Ok((others, next)) => {
                known.next = next;
                recall(&mut known.client, others);
                let full = known.client.seen.take_full();
                drop(known);
                self.report_full(client, found.name(), &full);
                let bytes = usize::try_from(session.bytes).unwrap_or(usize::MAX);
                self.memory().note(&found.key, LEAST + bytes.saturating_mul(GROWTH));
                Ok(())
            }
            Err(error) => {
                known.client.seen.put_back(learned);
                drop(known);
                Err(self.give_up(found, held, error))
            }
        }
    }

    /// What is in memory is further than what was kept: it is forgotten.
    pub(crate) fn give_up(&self, found: &Found, held: &mut Held<'_>, error: StoreError) -> Failure {
        *held.session = None;
        let _ = wait(self.store.let_go(&found.key.0, found.name()));
        error.into()
    }

    fn keep_turn(
        &self,
        client: &Known,
        found: &Found,
        session: &mut Session,
        next: i64,
        learned: &history::Learned,
    ) -> Result<(Vec<Seen>, i64), StoreError> {
        let (spec, name) = (&client.spec, found.name());
        // What follows from most turns is nothing: those are kept at once.
        let is_alone = session.used.is_empty()
            && session.void.is_empty()
            && learned.texts.is_empty()
            && learned.full.is_empty()
            && self.leaves_stores(client, session)?;
        let tx = if is_alone { None } else { Some(wait(store::within(self.begin_turn(client, session)))?) };
        let inputs = session.row().map_err(|_| StoreError::Damaged("an input has no JSON"))?;
        let prefixes = session.history.prefixes();
        let longest = prefixes.last().map(hex);
        let is_stale = session.touched.elapsed() > STALE;
        let kept = Kept {
            client: &spec.name,
            name,
            conversation: session.id,
            is_stale,
            turns: session.turns,
            bytes: session.bytes,
            inputs: &inputs,
            prefixes: &beyond(&prefixes, &session.prefixes),
            forgotten: &beyond(&session.prefixes, &prefixes),
            longest: longest.as_deref(),
        };
        let (others, next) = match tx {
            None => {
                self.store.keep_alone(&kept)?;
                (Vec::new(), next)
            }
            Some(mut tx) => wait(store::within(async {
                store::keep_turn(&self.store, &mut tx, &kept).await?;
                let kept = keep_learned(&self.store, &mut tx, client, next, learned).await?;
                tx.commit().await?;
                Ok(kept)
            }))?,
        };
        if is_stale {
            session.touched = Instant::now();
        }
        session.turns += 1;
        session.bytes = session.bytes.saturating_add(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
        session.prefixes = prefixes;
        Ok((others, next))
    }

    /// Whether a turn has left the stores of its tenant as they are known to be.
    fn leaves_stores(&self, client: &Known, session: &mut Session) -> Result<bool, StoreError> {
        let Some(Some(before)) = self.store.known_tenant(&client.spec.tenant) else { return Ok(false) };
        if session.conversation.has_written() {
            return Ok(false);
        }
        session.recall(&before).map_err(|_| StoreError::Damaged("a tenant's stores"))?;
        let now = Some(session.conversation.memory_changes());
        if session.settled != now {
            let written = session.conversation.remember().to_string();
            session.settled = now.filter(|_| written == before);
        }
        Ok(session.settled == now)
    }

    /// Begins to keep a turn with what follows from it for questions and for the stores of its tenant.
    async fn begin_turn(&self, client: &Known, session: &mut Session) -> Result<Transaction, StoreError> {
        let spec = &client.spec;
        let mut tx = self.store.begin().await?;
        for asked in std::mem::take(&mut session.used) {
            store::use_question(&self.store, &mut tx, &asked.id).await?;
        }
        for asked in std::mem::take(&mut session.void) {
            store::void_question(&mut tx, &asked.id).await?;
        }
        // What others of the tenant wrote to stores meanwhile is joined, and what could have been written here.
        let before = store::take_tenant(&self.store, &mut tx, &spec.tenant).await?;
        if let Some(before) = &before {
            session.recall(before).map_err(|_| StoreError::Damaged("a tenant's stores"))?;
        }
        let stamp = random::name().map_err(|_| StoreError::Damaged("the system gives no random bytes"))?;
        session.conversation.stamp(&stamp);
        let written = session.conversation.remember().to_string();
        if before.as_ref() != Some(&written) {
            store::keep_tenant(&self.store, &mut tx, &spec.tenant, &written).await?;
        }
        Ok(tx)
    }

    /// Whether a conversation has room for another turn.
    pub(crate) fn has_room(&self, session: &Session, (client, name): (&str, &str)) -> bool {
        let has_room = session.bytes < self.most_bytes;
        if !has_room {
            self.log.limit(&Limit {
                what: "bytes of one conversation",
                effect: "its requests are refused until the agent begins a new one",
                setting: "[store] conversation-mib",
                most: u64::try_from(self.most_bytes).unwrap_or_default(),
                client,
                conversation: Some(name),
            });
        }
        has_room
    }

    /// Learns what a client was shown elsewhere, and what the stores of its tenant carry.
    pub(crate) fn catch_up(&self, client: &Known, session: &mut Session) -> Result<(), Failure> {
        session.answers.begin();
        let mut known = client.history.lock().unwrap_or_else(PoisonError::into_inner);
        if self.store.is_shared() || !known.is_loaded {
            let mut recalled = wait(self.store.seen(&client.spec.name, known.next))?;
            if recalled.cleared != known.cleared && known.next > 0 {
                // Somebody cleared it, by way of another gateway.
                known.read_again();
                recalled = wait(self.store.seen(&client.spec.name, known.next))?;
            }
            (known.next, known.cleared, known.is_loaded) = (recalled.next, recalled.cleared, true);
            if recalled.has_forgotten {
                known.client.seen.note_forgotten();
            }
            recall(&mut known.client, recalled.texts);
            // What was forgotten when it was read was known to be before.
            known.client.seen.take_full();
        }
        if known.aged.elapsed() > client.spec.quotation_age / 2 {
            known.client.seen.pass_time();
            known.aged = Instant::now();
        }
        drop(known);
        self.recall_stores(client, session)
    }

    /// Learns what others of the tenant have written to stores.
    pub(crate) fn recall_stores(&self, client: &Known, session: &mut Session) -> Result<(), Failure> {
        let record = wait(self.store.tenant(&client.spec.tenant))?;
        let Some(record) = record else { return Ok(()) };
        session.recall(&record).map_err(|error| {
            let message = format!("what stores carry is not known: {error}");
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        })
    }

    /// Tells the operator of sources of which texts were forgotten.
    fn report_full(&self, client: &Known, conversation: &str, full: &BTreeMap<String, u64>) {
        for (source, letters) in full {
            client.note_forgotten(*letters);
            let most = client.spec.quotations / history::SHARE;
            let fields = vec![
                ("limit", "letters that are remembered of one source".into()),
                ("setting", "[store] quotation-mib".into()),
                ("most", most.into()),
                ("source", source.as_str().into()),
                ("forgotten", (*letters).into()),
                ("conversation", conversation.into()),
            ];
            let sentence = "the oldest texts of this source are not recognised any more where another conversation quotes them";
            self.log.write(LogEvent::Limit, &client.spec.name, fields, sentence);
        }
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Session {
    /// How many turns were kept.
    pub(crate) fn turns(&self) -> i64 {
        self.turns
    }

    /// Joins what the stores of the tenant carry, which is said in JSON, unless it is known.
    pub(super) fn recall(&mut self, record: &str) -> Result<(), String> {
        if self.recalled.as_deref() != Some(record) {
            let read: Value = serde_json::from_str(record).map_err(|_| "it is no JSON".to_owned())?;
            self.conversation.recall(&read).map_err(|error| error.to_string())?;
            self.recalled = Some(record.to_owned());
            self.settled = None;
        }
        Ok(())
    }
}

fn rows(opened: &Opened) -> i64 {
    i64::try_from(opened.inputs.len()).unwrap_or(i64::MAX)
}

/// Brings a conversation up to date that has come as far as the turns that were not read.
fn bring_up(client: &Known, session: Option<&mut Session>, opened: &Opened) -> bool {
    let Some(session) = session else { return false };
    if !opened.inputs.iter().all(|row| session.again(client, row).is_some()) {
        return false;
    }
    if !opened.inputs.is_empty() {
        session.prefixes = session.history.prefixes();
        (session.recalled, session.settled) = (None, None);
        session.offered.clear();
    }
    (session.turns, session.bytes, session.touched) = (opened.turns, opened.bytes, Instant::now());
    true
}

/// What is judged in a conversation that is made from all that was put in, by its key.
pub(super) fn replay(client: &Known, key: &str, turns: &[String]) -> Result<Vec<Judged>, Failure> {
    let mut session = new(client, 0, key)?;
    let mut judged = Vec::new();
    for (number, row) in turns.iter().enumerate() {
        let again = session.again(client, row);
        judged.extend(again.ok_or_else(|| {
            let message = format!("turn {number} of the conversation does not come to the same");
            Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?);
    }
    Ok(judged)
}

/// A conversation that is made from all that was put in; nothing if it does not come to the same.
fn again(client: &Known, opened: &Opened) -> Result<Option<Session>, Failure> {
    let mut session = new(client, opened.id, &opened.key)?;
    Ok(bring_up(client, Some(&mut session), opened).then_some(session))
}

/// A conversation with nothing in it.
fn new(client: &Known, id: i64, key: &str) -> Result<Session, Failure> {
    let bytes = random::from_hex::<32>(key).ok_or(StoreError::Damaged("a conversation's key"))?;
    let answers = Journal::default();
    let conversation = turn::begin(client, bytes, &answers)?;
    let (history, recalled, prefixes) = (History::new(), None, Vec::new());
    Ok(Session {
        id,
        touched: Instant::now(),
        conversation,
        history,
        recalled,
        settled: None,
        offered: Vec::new(),
        turns: 0,
        bytes: 0,
        prefixes,
        machines: Machines::default(),
        answers,
        events: Vec::new(),
        used: Vec::new(),
        void: Vec::new(),
        explained: Explained::default(),
    })
}

/// Keeps what a client was shown in a turn. Returns what others have kept since number `next`, and the number after the last.
async fn keep_learned(
    store: &Store,
    tx: &mut Transaction,
    client: &Known,
    next: i64,
    learned: &history::Learned,
) -> Result<(Vec<Seen>, i64), StoreError> {
    let name = &client.spec.name;
    let new: Vec<Seen> = learned.texts.iter().map(seen).collect();
    if new.is_empty() && learned.full.is_empty() {
        return Ok((Vec::new(), next));
    }
    let (others, next) = store::keep_seen(store, tx, name, next, &new).await?;
    for (source, most) in &learned.full {
        store::forget_seen(tx, name, source, i64::try_from(*most).unwrap_or(i64::MAX)).await?;
    }
    Ok((others, next))
}

fn hex(prefix: &Prefix) -> String {
    random::hex(prefix)
}

/// Those that are not among the others, as they are kept.
fn beyond(prefixes: &[Prefix], others: &[Prefix]) -> Vec<String> {
    // What is said in a chat mostly stays.
    let same = prefixes.iter().zip(others).take_while(|(one, other)| one == other).count();
    let others: HashSet<&Prefix> = others.iter().skip(same).collect();
    prefixes.iter().skip(same).filter(|prefix| !others.contains(prefix)).map(hex).collect()
}

fn seen(text: &Remembered) -> Seen {
    Seen { source: text.source.clone(), label: text.label.to_string(), letters: text.letters.clone() }
}

fn recall(client: &mut history::Client, texts: Vec<Seen>) {
    for Seen { source, label, letters } in texts {
        // A label that cannot be read is no known name, and so as high as can be.
        let label = serde_json::from_str(&label).unwrap_or(Value::Null);
        client.seen.recall(&Remembered { source, label, letters });
    }
}

fn fresh() -> Result<String, Failure> {
    let broken = |_| Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the system gives no random bytes");
    random::name().map_err(broken)
}
