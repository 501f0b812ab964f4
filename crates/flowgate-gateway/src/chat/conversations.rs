//! Finds, holds and stores the conversation of a request.
//!
//! A client may name the conversation. Otherwise it is the one with whose history the request begins, up to a message
//! that the model wrote there. If two conversations share that history, the request is ambiguous and begins a new one:
//! text that only the conversation itself could have written is labelled top there.
//!
//! Conversations are [stored](crate::database) turn by turn. Those used last are in memory as well; the others are
//! replayed from their stored inputs when they are needed. A conversation whose replay diverges is deleted and begins
//! anew with an empty history: what its client then sends as the past is labelled top.

mod cache;
mod load;
mod persist;
mod stored_turn;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate_guard::conversation::Conversation;
use flowgate_guard::history::{self, ChatPrefixDigest, History, RememberedText, SentChat};
use flowgate_lm::wire;
use serde_json::Value;

use cache::ConversationCache;
pub(super) use load::replay;
use load::{replay_missing, turn_count};
use stored_turn::StoredInput;

use super::clients::ClientState;
use crate::approvals::ApprovalReference;
use crate::database::{Database, DatabaseError, ShownText};
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::http::value_budget::{SETTING, ValueBudget, ValueBudgetShare, WHAT};
use crate::limits::count_values;
use crate::log::{Limit, LogEvent, OperatorLog};
use crate::mcp_proxy::proxies::ConversationProxies;
use crate::predicates::journal::PredicateJournal;
use crate::random;
use crate::recorder::AuditEntry;
use crate::visibility::ReportedItems;

/// The time for which a request waits for another gateway that holds its conversation.
const HELD_ELSEWHERE_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which it asks again.
const HELD_ELSEWHERE_POLL: Duration = Duration::from_millis(50);
/// The age of the stored time of last use beyond which a turn updates it.
const LAST_USE_INTERVAL: Duration = Duration::from_secs(60);
/// The approximate memory of the shortest conversation, in bytes.
const MIN_CONVERSATION_BYTES: usize = 64 << 10;
/// The approximate memory for each stored byte of input, in bytes: measured, with a margin.
pub(crate) const GROWTH: usize = 8;
/// The approximate memory for each JSON value of the input, however short, in bytes: measured, with a margin.
const FOR_A_VALUE: usize = 600;

/// A conversation, and the chat as its client holds it.
#[derive(Debug)]
pub(crate) struct ConversationState {
    pub(crate) conversation: Conversation,
    pub(crate) history: History,
    /// The record of its tenant's stores that it recalled last, in JSON.
    pub(crate) recalled: Option<String>,
    /// The [number of memory changes](Conversation::memory_changes) at which its record equalled `recalled`.
    settled: Option<u64>,
    /// Requests that carry the tools on offer, by which an unchanged offer is recognised without comparing it.
    pub(super) offered: Vec<Weak<wire::ReceivedRequest>>,
    /// Its unique number in the store.
    id: i64,
    /// The time at which its last use was last stored.
    touched: Instant,
    /// The number of stored turns; `bytes` is their size.
    turns: i64,
    bytes: i64,
    /// The number of JSON values in its stored turns.
    values: usize,
    /// The stored prefixes of chats that belong to it.
    prefixes: Vec<ChatPrefixDigest>,
    /// The state machines between its client and the MCP servers.
    pub(super) machines: ConversationProxies,
    /// The inputs that are not stored yet, if any of them is of a machine.
    unpersisted: Vec<StoredInput>,
    /// The recorded answers of its extern predicates.
    pub(super) answers: PredicateJournal,
    /// The audit records of this turn.
    pub(crate) events: Vec<AuditEntry>,
    /// Questions that were answered with a yes in this turn and whose calls go out with it.
    pub(crate) used: Vec<ApprovalReference>,
    /// Questions that were answered with a yes and whose calls do not run.
    pub(crate) void: Vec<ApprovalReference>,
    /// Whether the turn is not stored, because a question could not be asked or an input of MCP failed halfway.
    pub(crate) is_abandoned: bool,
    /// The explanations that the log already contains.
    pub(crate) explained: ReportedItems,
}

type ConversationCell = Arc<tokio::sync::Mutex<Option<ConversationState>>>;
/// A client's name and a conversation's name.
type ConversationKey = (String, String);

/// The conversations of all clients.
#[derive(Debug)]
pub(crate) struct Conversations {
    store: Arc<Database>,
    memory: Mutex<ConversationCache>,
    /// The bytes of input that one conversation may store.
    most_bytes: i64,
    /// The bound on the memory of parsed JSON values.
    room: ValueBudget,
    pub(crate) log: OperatorLog,
}

/// The conversation of a request, not yet locked.
#[derive(Debug)]
pub(crate) struct ConversationHandle {
    key: ConversationKey,
    slot: ConversationCell,
}

/// A conversation, locked against all other requests.
///
/// If a request ends between its first use of the conversation and its [storage](Conversations::persist), by a panic or
/// by a dropped future, the conversation is dropped from memory: the next request finds it as it was stored last.
#[derive(Debug)]
pub(crate) struct LockedConversation<'a> {
    session: tokio::sync::MutexGuard<'a, Option<ConversationState>>,
    /// Whether it may differ from what is stored.
    is_unsettled: bool,
    key: &'a ConversationKey,
    store: &'a Database,
    /// Its share of the memory for values.
    _share: Option<ValueBudgetShare>,
}

impl Drop for LockedConversation<'_> {
    fn drop(&mut self) {
        if self.is_unsettled {
            *self.session = None;
        }
        self.store.set_held(&self.key.0, &self.key.1, false);
    }
}

impl ConversationHandle {
    pub(crate) fn name(&self) -> &str {
        &self.key.1
    }
}

impl LockedConversation<'_> {
    pub(crate) fn get(&mut self) -> Option<&mut ConversationState> {
        self.is_unsettled = true;
        self.session.as_mut()
    }
}

impl From<DatabaseError> for RequestError {
    fn from(error: DatabaseError) -> Self {
        let cause = match error {
            DatabaseError::Overtaken | DatabaseError::ConversationHeld | DatabaseError::Withdrawn => {
                RequestErrorCause::Request
            }
            DatabaseError::Audit(_) => RequestErrorCause::Store("the audit log cannot be written"),
            DatabaseError::Unwitnessed => {
                RequestErrorCause::Store("the witness of the audit log is too far behind")
            }
            DatabaseError::Timeout => RequestErrorCause::Store("the database did not answer in time"),
            DatabaseError::Damaged(_) => {
                RequestErrorCause::Store("the stored conversation differs from what was stored")
            }
            _ => RequestErrorCause::Store("the database failed: look at its disk, its file and its server"),
        };
        let failure = Self::new(error.status(), error.client_message()).with_cause(cause);
        // A client whose request conflicts with another one needs no detail in the log.
        if cause == RequestErrorCause::Request { failure } else { failure.with_detail(error.to_string()) }
    }
}

impl Conversations {
    /// Keeps about `memory` bytes of conversations in memory; each may store `most_bytes` of input.
    pub(crate) fn new(
        store: Arc<Database>,
        memory: usize,
        most_bytes: u64,
        room: ValueBudget,
        log: OperatorLog,
    ) -> Self {
        let memory = Mutex::new(ConversationCache::new(memory));
        Self { store, memory, most_bytes: i64::try_from(most_bytes).unwrap_or(i64::MAX), room, log }
    }

    pub(super) fn store(&self) -> &Arc<Database> {
        &self.store
    }

    /// Finds the conversation that a client names, or that a chat continues.
    pub(crate) async fn find(
        &self,
        client: &ClientState,
        named: Option<&str>,
        chat: &SentChat<'_>,
    ) -> Result<ConversationHandle, RequestError> {
        let name = match named {
            Some(name) => name.to_owned(),
            None => {
                let longest = chat.longest_prefix().map(|prefix| hex(&prefix));
                let existing = match longest {
                    None => None,
                    Some(longest) => match self.store.find_cached_by_chat(&client.spec.name, &longest) {
                        None => {
                            let prefixes: Vec<String> = chat.prefixes().iter().map(hex).collect();
                            self.store.find_by_chat(&client.spec.name, &prefixes).await?
                        }
                        cached => cached,
                    },
                };
                existing.map_or_else(generate_name, Ok)?
            }
        };
        Ok(self.find_by_name(client, &name))
    }

    /// Returns the conversation of this name.
    pub(crate) fn find_by_name(&self, client: &ClientState, name: &str) -> ConversationHandle {
        let key = (client.spec.name.clone(), name.to_owned());
        let slot = self.memory().slot(&key);
        ConversationHandle { key, slot }
    }

    /// Waits until no other request holds a conversation, here or in another gateway, and brings it up to date.
    pub(crate) async fn lock<'f>(
        &'f self,
        client: &ClientState,
        found: &'f ConversationHandle,
        presence: &ClientPresence,
    ) -> Result<LockedConversation<'f>, RequestError> {
        let disconnected =
            || RequestError::new(StatusCode::REQUEST_TIMEOUT, "the client does not wait for the answer");
        // A request whose client has disconnected must not be appended after later ones.
        let session = tokio::select! {
            biased;
            () = presence.disconnected() => return Err(disconnected()),
            session = found.slot.lock() => session,
        };
        let mut held = LockedConversation {
            session,
            is_unsettled: false,
            key: &found.key,
            store: &self.store,
            _share: None,
        };
        let loaded_bytes =
            held.session.as_ref().filter(|_| !self.store.is_shared()).map(ConversationState::memory);
        if let Some(bytes) = loaded_bytes {
            held._share = Some(self.reserve_memory(client, found, bytes).await?);
            return Ok(held);
        }
        self.store.set_held(&found.key.0, &found.key.1, true);
        let since = Instant::now();
        let opened = loop {
            let turns = held.session.as_ref().map_or(0, |session| session.turns);
            match self.open(client, found, turns).await {
                Err(DatabaseError::ConversationHeld) if since.elapsed() < HELD_ELSEWHERE_TIMEOUT => {
                    tokio::select! {
                        () = presence.disconnected() => return Err(disconnected()),
                        () = tokio::time::sleep(HELD_ELSEWHERE_POLL) => {}
                    }
                }
                opened => break opened?,
            }
        };
        // A conversation of the same name may have been recreated in the meantime.
        let is_known = held.session.as_ref().is_some_and(|session| {
            session.id == opened.id && session.turns + turn_count(&opened) == opened.turns
        });
        if !is_known || !replay_missing(client, held.session.as_mut(), &opened) {
            *held.session = None;
        }
        if held.session.is_none() {
            // It is replayed only if there is room for its stored inputs.
            let read = opened.inputs.iter().map(|row| count_values(row.as_bytes())).sum();
            let before = self.reserve_memory(client, found, memory_of(opened.bytes, read)).await?;
            // Boxed, because few turns need it, and each would reserve its room.
            *held.session = Some(Box::pin(self.load(client, found, opened)).await?);
            drop(before);
        }
        let bytes = held.session.as_ref().map_or(0, ConversationState::memory);
        self.memory().set_size(&found.key, bytes);
        held._share = Some(self.reserve_memory(client, found, bytes).await?);
        Ok(held)
    }

    /// Reserves memory for a conversation for as long as it is in use.
    async fn reserve_memory(
        &self,
        client: &ClientState,
        found: &ConversationHandle,
        bytes: usize,
    ) -> Result<ValueBudgetShare, RequestError> {
        if let Ok(share) = self.room.take_for_conversation(bytes) {
            return Ok(share);
        }
        self.log.limit(&Limit {
            what: WHAT,
            effect: "a request was refused with 503, since there is no room for its conversation",
            setting: SETTING,
            most: u64::try_from(self.room.total_bytes()).unwrap_or(u64::MAX),
            client: &client.spec.name,
            conversation: Some(found.name()),
        });
        let _ = self.store.release_lease(&client.spec.name, found.name()).await;
        let message = "the gateway has too much to do: try again in a second";
        Err(RequestError::new(StatusCode::SERVICE_UNAVAILABLE, message).with_cause(RequestErrorCause::Full))
    }

    /// Deletes the least recently used conversations of a client beyond its limit, except those in use.
    async fn make_room(&self, client: &ClientState, newest: &str) -> Result<(), RequestError> {
        let most = i64::try_from(client.spec.sessions).unwrap_or(i64::MAX);
        let surplus = self.store.least_recently_used(&client.spec.name, newest, most).await?;
        if !surplus.is_empty() {
            self.log.limit(&Limit {
                what: "conversations of one client",
                effect: "the least recently used are deleted; chats that continue them are not trusted",
                setting: "[clients.NAME] sessions",
                most: u64::try_from(most).unwrap_or_default(),
                client: &client.spec.name,
                conversation: None,
            });
        }
        for name in surplus {
            let key = (client.spec.name.clone(), name);
            let is_used = self.memory().is_used(&key);
            if !is_used {
                self.store.delete_conversation(&key.0, &key.1).await?;
                self.memory().forget(&key);
            }
        }
        Ok(())
    }

    /// Returns whether a conversation has room for another turn.
    pub(crate) fn has_room(&self, session: &ConversationState, (client, name): (&str, &str)) -> bool {
        let has_bytes = session.bytes < self.most_bytes;
        let has_room = has_bytes && session.memory() <= memory_of(self.most_bytes, 0);
        if !has_room {
            let what = match has_bytes {
                true => "memory of one conversation, which has many short values",
                false => "bytes of one conversation",
            };
            self.log.limit(&Limit {
                what,
                effect: "its requests are refused until the agent begins a new one",
                setting: "[store] conversation-mib",
                most: u64::try_from(self.most_bytes).unwrap_or_default(),
                client,
                conversation: Some(name),
            });
        }
        has_room
    }

    /// Brings up to date what a client was shown elsewhere, and the labels of its tenant's stores.
    pub(crate) async fn catch_up(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<(), RequestError> {
        session.answers.begin_turn();
        let mut history = client.history.lock().await;
        if self.store.is_shared() || !history.is_loaded {
            let mut recalled = self.store.shown_texts(&client.spec.name, history.next).await?;
            if recalled.cleared != history.cleared && history.next > 0 {
                // It was cleared through another gateway.
                history.reset();
                recalled = self.store.shown_texts(&client.spec.name, history.next).await?;
            }
            (history.next, history.cleared, history.is_loaded) = (recalled.next, recalled.cleared, true);
            if recalled.has_forgotten {
                history.client.quotations.note_forgotten();
            }
            load_history(&mut history.client, recalled.texts);
            // Texts that were forgotten during loading had been reported before.
            history.client.quotations.take_full_sources();
        }
        if history.aged.elapsed() > client.spec.quotation_age / 2 {
            history.client.quotations.forget_stale();
            history.aged = Instant::now();
        }
        drop(history);
        self.recall_external_state(client, session).await
    }

    /// Joins the labels that other clients of the tenant have written to stores.
    pub(crate) async fn recall_external_state(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<(), RequestError> {
        let record = self.store.tenant(&client.spec.tenant).await?;
        let Some(record) = record else { return Ok(()) };
        session.join_external_state(&record).map_err(|error| {
            let message = "what stores carry is not known; the log of the gateway has the reason";
            let cause = RequestErrorCause::Store("the stored conversation differs from what was stored");
            RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_cause(cause).with_detail(error)
        })
    }

    /// Logs the sources of which texts were forgotten.
    fn report_full(&self, client: &ClientState, conversation: &str, full: &BTreeMap<String, u64>) {
        for (source, bytes) in full {
            client.add_forgotten(*bytes);
            let most = client.spec.quotations / history::SHARE;
            let fields = vec![
                ("limit", "text remembered of one source".into()),
                ("setting", "[store] quotation-mib".into()),
                ("most", most.into()),
                ("source", source.as_str().into()),
                ("forgotten", (*bytes).into()),
                ("conversation", conversation.into()),
            ];
            let sentence = "the oldest texts of this source are not recognised any more where another conversation quotes them";
            self.log.count_limit("text remembered of one source");
            self.log.write(LogEvent::Limit, &client.spec.name, fields, sentence);
        }
    }

    fn memory(&self) -> MutexGuard<'_, ConversationCache> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationState {
    /// Returns the approximate memory that it takes, in bytes.
    fn memory(&self) -> usize {
        memory_of(self.bytes, self.values.saturating_add(self.machines.value_count()))
    }

    /// Returns the number of stored turns.
    pub(crate) fn turns(&self) -> i64 {
        self.turns
    }

    /// Joins the labels of the tenant's stores from their JSON record, unless that record is already recalled.
    pub(super) fn join_external_state(&mut self, record: &str) -> Result<(), String> {
        if self.recalled.as_deref() != Some(record) {
            let read: Value = serde_json::from_str(record).map_err(|_| "it is not JSON".to_owned())?;
            self.conversation.join_external_state(&read).map_err(|error| error.to_string())?;
            self.recalled = Some(record.to_owned());
            self.settled = None;
        }
        Ok(())
    }
}

/// Returns the approximate memory of a conversation with this many bytes and values of input, in bytes.
fn memory_of(bytes: i64, values: usize) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or_default().saturating_mul(GROWTH);
    MIN_CONVERSATION_BYTES.saturating_add(bytes).saturating_add(values.saturating_mul(FOR_A_VALUE))
}

fn hex(prefix: &ChatPrefixDigest) -> String {
    random::hex(prefix)
}

fn load_history(client: &mut history::ClientProfile, texts: Vec<ShownText>) {
    for ShownText { source, label, text: normalized } in texts {
        // A label that cannot be parsed becomes `null`, which names no label and therefore counts as top.
        let label = serde_json::from_str(&label).unwrap_or(Value::Null);
        client.quotations.restore_text(&RememberedText { source, label, normalized });
    }
}

fn generate_name() -> Result<String, RequestError> {
    let broken = |_| {
        RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, "the operating system returned no random bytes")
    };
    random::name().map_err(broken)
}
