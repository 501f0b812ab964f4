//! Finds, locks and stores the conversation of a request. The model routes and the MCP routes call this module.
//!
//! A client may name the conversation. Otherwise the request belongs to the conversation whose history is the longest
//! prefix of the request's chat that ends with a message of the model. If two conversations share that history, the
//! request is ambiguous and begins a new conversation.
//!
//! Conversations are [stored](crate::database) turn by turn. Recently used conversations are in memory as well; the
//! others are replayed from their stored inputs when they are needed. A conversation that was stored under another
//! policy is [carried over](carry_over) to the present one. A conversation that can be neither replayed nor carried
//! over is deleted and recreated with an empty history.
//!
//! In a new or recreated conversation, the chat of the client can have replies of the model that the conversation did
//! not produce. These are labelled top.
//!
//! * `find`: finds the conversation that a request belongs to; `cache`: keeps recently used conversations in memory.
//! * `load`: replays a conversation from its stored inputs; `carry_over`: carries it over to a changed policy.
//! * `limits`: limits the memory, the size and the number of conversations.
//! * `persist`: stores a turn; `stored_turn`: converts a turn to its stored form and back.
//! * `watched_turn`: lets the policy of a client in watch mode judge each message.

mod cache;
mod carry_over;
mod find;
mod limits;
mod load;
mod persist;
mod stored_turn;
mod watched_turn;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate_guard::approve::Decision;
use flowgate_guard::conversation::Conversation;
use flowgate_guard::history::{self, ChatPrefixDigest, History, RememberedText};
use serde_json::Value;

use cache::ConversationCache;
pub(crate) use carry_over::{profile_with, replay_carried_over, replay_carried_over_recording};
pub(crate) use limits::MEMORY_OF_A_BYTE;
use limits::memory_of;
pub(crate) use load::{one_off, recorded_elsewhere, replay, replay_recording, replay_with};
use load::{replay_missing, turn_count};
use stored_turn::StoredInput;

use super::clients::{ClientHistory, ClientState};
use crate::approvals::ApprovalReference;
use crate::database::{CarriedTurns, Database, DatabaseError, OpenedConversation, ShownText};
use crate::http::client_presence::ClientPresence;
use crate::http::request_error::{RequestError, RequestErrorCause};
use crate::http::value_budget::{ValueBudget, ValueBudgetShare};
use crate::limits::count_values;
use crate::log::{LogEvent, OperatorLog};
use crate::mcp_proxy::proxies::ConversationProxies;
use crate::predicates::journal::PredicateJournal;
use crate::recorder::AuditEntry;
use crate::visibility::ReportedItems;
use crate::watching::watcher::Watcher;

/// The time for which a request waits while another gateway holds the lease on its conversation.
const HELD_ELSEWHERE_TIMEOUT: Duration = Duration::from_secs(120);
/// The interval at which a request that waits for another gateway tries to take the lease again.
const HELD_ELSEWHERE_POLL: Duration = Duration::from_millis(50);
/// A turn updates the stored time of last use only if that time is older than this interval, to save writes.
const LAST_USE_INTERVAL: Duration = Duration::from_secs(60);
/// The cause of a failure in the operator's log, if the labels of a tenant's stores cannot be read.
const DAMAGED_TENANT: &str =
    "the tenant's record of labels was changed after it was written: restore a backup of the database";
/// A conversation in memory, with its history and what is needed to store its next turn.
#[derive(Debug)]
pub(crate) struct ConversationState {
    pub(crate) conversation: Conversation,
    pub(crate) history: History,
    /// The labels of the tenant's stores, in JSON, as the conversation last joined them.
    pub(crate) recalled: Option<String>,
    /// The value of the monitor's counter of changes to the labels of external state when these labels were last equal
    /// to the tenant's stored record. While the counter is the same, so are the labels. `None` if the labels are not
    /// known to equal the record.
    settled: Option<u64>,
    /// The unique number of the conversation in the database.
    id: i64,
    /// The key of its digests, in hexadecimal. Another gateway that carries the conversation over to another policy
    /// changes the key.
    key: String,
    /// The [`ClientState::generation`] of the settings under which it was loaded.
    generation: u64,
    /// When the time of last use was last written to the database.
    touched: Instant,
    /// The number of stored turns.
    turns: i64,
    /// The size of the stored turns in bytes.
    bytes: i64,
    /// The number of JSON values in the stored turns.
    values: usize,
    /// The digests of chat prefixes that are stored as belonging to the conversation.
    prefixes: Vec<ChatPrefixDigest>,
    /// The proxies between the client and its MCP servers.
    pub(super) proxies: ConversationProxies,
    /// The inputs that are not stored yet, up to the last input of an MCP proxy. Later inputs of the chat are in the
    /// journal of `conversation`.
    unpersisted: Vec<StoredInput>,
    /// The recorded answers of extern predicates.
    pub(super) answers: PredicateJournal,
    /// The audit records of this turn.
    pub(crate) events: Vec<AuditEntry>,
    /// Approvals whose calls are sent with this turn.
    pub(crate) used_approvals: Vec<ApprovalReference>,
    /// Approvals whose calls do not run.
    pub(crate) void_approvals: Vec<ApprovalReference>,
    /// The answers of people that cover further calls of the message about which the turn waits for a person. They are
    /// not stored: after a restart, people are asked about these calls again.
    pub(crate) earlier_answers: Vec<(ApprovalReference, Decision)>,
    /// The withdrawn grants, by the ids of their questions, that the conversation does not contain any more.
    pub(crate) removed_grants: Vec<String>,
    /// Whether the turn must not be stored, because a question could not be asked or an MCP input failed halfway.
    pub(crate) is_abandoned: bool,
    /// The hidden items that were reported in the log already and are not reported again.
    pub(crate) explained: ReportedItems,
    /// The stored turns in the form for the present policy, if they were carried over to it and are not stored yet.
    carried: Option<CarriedTurns>,
    /// The monitor with the client's own policy, in watch mode, once a request has used the conversation.
    watcher: Option<Watcher>,
}

/// Holds a conversation while it is in memory. Requests of the conversation lock it one after the other.
type ConversationCell = Arc<tokio::sync::Mutex<Option<ConversationState>>>;
/// A client's name and a conversation's name.
type ConversationKey = (String, String);

/// The conversations of all clients.
#[derive(Debug)]
pub(crate) struct Conversations {
    store: Arc<Database>,
    /// The recently used conversations.
    memory: Mutex<ConversationCache>,
    /// The maximum number of bytes of input that one conversation may store.
    most_bytes: i64,
    /// The memory budget of parsed JSON values.
    value_budget: ValueBudget,
    pub(crate) log: OperatorLog,
}

/// The conversation of a request, not yet locked.
#[derive(Debug)]
pub(crate) struct ConversationHandle {
    key: ConversationKey,
    /// Contains the conversation if it is in memory.
    cell: ConversationCell,
}

/// A conversation, locked against all other requests.
///
/// A request can end between its first use of the conversation and its [storage](Conversations::persist), by a panic
/// or by a dropped future. The conversation is then dropped from memory, so that the next request loads the last
/// stored state.
#[derive(Debug)]
pub(crate) struct LockedConversation<'a> {
    /// The conversation; `None` if it is not loaded, or was dropped from memory.
    session: tokio::sync::MutexGuard<'a, Option<ConversationState>>,
    /// Whether the conversation in memory may differ from the stored one.
    is_unsettled: bool,
    key: &'a ConversationKey,
    store: &'a Database,
    /// The conversation's share of the memory budget of parsed values.
    _share: Option<ValueBudgetShare>,
}

impl Drop for LockedConversation<'_> {
    /// Drops the conversation from memory if it was used and not stored, and lets its lease expire.
    fn drop(&mut self) {
        // The turn was not stored, so the conversation in memory may differ from the stored one: the next request loads
        // the stored one from the database.
        if self.is_unsettled {
            *self.session = None;
        }
        // Ends the periodic renewal of the lease that `Conversations::lock` began.
        self.store.set_held(&self.key.0, &self.key.1, false);
    }
}

impl ConversationHandle {
    /// Returns the name of the conversation in the gateway.
    pub(crate) fn name(&self) -> &str {
        &self.key.1
    }
}

impl LockedConversation<'_> {
    /// Returns the history of the conversation, without using the conversation; `None` if it is not loaded.
    pub(crate) fn history(&self) -> Option<&History> {
        self.session.as_ref().map(|session| &session.history)
    }

    /// Returns the conversation for use; `None` if it is not loaded. From this call until it is persisted, the
    /// conversation in memory may differ from the stored one.
    pub(crate) fn get(&mut self) -> Option<&mut ConversationState> {
        self.is_unsettled = true;
        self.session.as_mut()
    }
}

/// Returns the error of a request whose client has disconnected.
fn disconnected() -> RequestError {
    RequestError::new(StatusCode::REQUEST_TIMEOUT, "the client no longer waits for the answer")
}

impl From<DatabaseError> for RequestError {
    /// Converts a failure of the database to the status and message for the client, and the cause for the log.
    fn from(error: DatabaseError) -> Self {
        let cause = match error {
            DatabaseError::Overtaken | DatabaseError::ConversationHeld | DatabaseError::Withdrawn => {
                RequestErrorCause::Request
            }
            DatabaseError::Audit(_) => {
                RequestErrorCause::Store("the audit log cannot be written: check its file and disk")
            }
            DatabaseError::Unwitnessed => RequestErrorCause::Store(
                "the witness of the audit log is too far behind: check [audit.witness]",
            ),
            DatabaseError::Timeout => {
                RequestErrorCause::Store("the database did not answer in time: check its load and its disk")
            }
            DatabaseError::Damaged(_) | DatabaseError::DamagedKey { .. } => RequestErrorCause::Store(
                "the stored data was changed after it was written: restore a backup of the database",
            ),
            DatabaseError::ExternalState { .. } => RequestErrorCause::Store(DAMAGED_TENANT),
            DatabaseError::Bug(_) => RequestErrorCause::Store(
                "the turn could not be stored because of a bug in the gateway: report it",
            ),
            DatabaseError::NoRandomBytes => RequestErrorCause::Store(
                "the operating system returned no random bytes: check the system of the gateway",
            ),
            _ => RequestErrorCause::Store("the database failed: check its file and disk, or its server"),
        };
        let failure = Self::new(error.status(), error.client_message()).with_cause(cause);
        // A conflict between two requests of a client is no failure of the database, so the log needs no detail.
        if cause == RequestErrorCause::Request { failure } else { failure.with_detail(error.to_string()) }
    }
}

impl Conversations {
    /// Creates the conversations, with a cache of about `memory` bytes. Each conversation may store `most_bytes` of
    /// input; `value_budget` is the memory budget of parsed values, which all requests share.
    pub(crate) fn new(
        store: Arc<Database>,
        memory: usize,
        most_bytes: u64,
        value_budget: ValueBudget,
        log: OperatorLog,
    ) -> Self {
        let memory = Mutex::new(ConversationCache::new(memory));
        Self { store, memory, most_bytes: i64::try_from(most_bytes).unwrap_or(i64::MAX), value_budget, log }
    }

    /// Returns the database that stores the conversations.
    pub(crate) fn store(&self) -> &Arc<Database> {
        &self.store
    }

    /// Waits until no other request, in this gateway or in another, uses the conversation that `handle` names, and
    /// loads the turns that are not in memory. `presence` says whether the client still waits.
    ///
    /// 1. Waits for the lock in this process. If no other gateway uses the database and the conversation is in memory,
    ///    it is up to date.
    /// 2. Otherwise takes the lease in the database, and waits while another gateway holds it.
    /// 3. Replays the turns that other gateways have stored since; if that is not possible, the whole conversation.
    ///
    /// The memory that the conversation takes is reserved in `_share` until the lock is dropped.
    ///
    /// # Errors
    /// If the client disconnects, another gateway holds the lease for [`HELD_ELSEWHERE_TIMEOUT`], the memory budget has
    /// no room, or the conversation cannot be loaded.
    pub(crate) async fn lock<'f>(
        &'f self,
        client: &ClientState,
        handle: &'f ConversationHandle,
        presence: &ClientPresence,
    ) -> Result<LockedConversation<'f>, RequestError> {
        // A request whose client has disconnected ends here: otherwise, its messages would be added after those of
        // later requests.
        let session = tokio::select! {
            biased;
            () = presence.disconnected() => return Err(disconnected()),
            session = handle.cell.lock() => session,
        };
        let mut locked = LockedConversation {
            session,
            is_unsettled: false,
            key: &handle.key,
            store: &self.store,
            _share: None,
        };
        // After a reload, the conversation in memory has another policy, or other sources of predicates.
        let is_current =
            locked.session.as_ref().is_some_and(|session| session.generation == client.generation);
        if !is_current {
            // Loading the conversation under the earlier policy would delete the one that a later request has
            // recreated.
            if client.is_replaced() {
                let message = "the configuration of the gateway was reloaded, and the conversation has another policy now: what was \
                    sent to a server before may have taken effect, so check that before you send it again";
                return Err(RequestError::new(StatusCode::SERVICE_UNAVAILABLE, message));
            }
            *locked.session = None;
        }
        let loaded_bytes =
            locked.session.as_ref().filter(|_| !self.store.is_shared()).map(ConversationState::memory);
        if let Some(bytes) = loaded_bytes {
            locked._share = Some(self.reserve_memory(client, handle, bytes).await?);
            return Ok(locked);
        }
        // From here until `locked` is dropped, the lease is renewed periodically.
        self.store.set_held(&handle.key.0, &handle.key.1, true);
        let turns = locked.session.as_ref().map_or(0, |session| session.turns);
        let opened = self.open_when_free(client, handle, turns, presence).await?;
        // Another gateway may have recreated the conversation under the same name. The turns in memory and those in
        // `opened` must together be all stored turns.
        let is_same_conversation = locked.session.as_ref().is_some_and(|session| {
            let is_same_config =
                opened.config_fingerprint == client.spec.config_fingerprint && session.carried.is_none();
            let is_same_key = session.key == opened.key;
            session.id == opened.id
                && is_same_config
                && is_same_key
                && session.turns + turn_count(&opened) == opened.turns
        });
        if !is_same_conversation || !replay_missing(client, locked.session.as_mut(), &opened) {
            *locked.session = None;
        }
        if locked.session.is_none() {
            // The conversation is replayed only if the memory budget has room for its stored inputs.
            let input_values = opened.inputs.iter().map(|row| count_values(row.as_bytes())).sum();
            let replay_share =
                self.reserve_memory(client, handle, memory_of(opened.bytes, input_values)).await?;
            // Boxed, because few turns load a conversation, and an unboxed future would enlarge the future of every
            // turn.
            *locked.session = Some(Box::pin(self.load(client, handle, opened)).await?);
            drop(replay_share);
        }
        let bytes = locked.session.as_ref().map_or(0, ConversationState::memory);
        self.memory().set_size(&handle.key, bytes);
        locked._share = Some(self.reserve_memory(client, handle, bytes).await?);
        Ok(locked)
    }

    /// Opens the conversation that `handle` names, without its first `turns` turns, and waits while another gateway
    /// holds its lease.
    ///
    /// # Errors
    /// If the client disconnects, another gateway holds the lease for [`HELD_ELSEWHERE_TIMEOUT`], or the conversation
    /// cannot be opened.
    async fn open_when_free(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        turns: i64,
        presence: &ClientPresence,
    ) -> Result<OpenedConversation, RequestError> {
        let began = Instant::now();
        loop {
            match self.open(client, handle, turns).await {
                Err(DatabaseError::ConversationHeld) if began.elapsed() < HELD_ELSEWHERE_TIMEOUT => {
                    tokio::select! {
                        () = presence.disconnected() => return Err(disconnected()),
                        () = tokio::time::sleep(HELD_ELSEWHERE_POLL) => {}
                    }
                }
                opened => return opened.map_err(RequestError::from),
            }
        }
    }

    /// Updates the state in memory before a turn. Begins a turn of the predicate journal (the recorded answers of
    /// extern predicates), and joins the current labels of the stores of the client's tenant into the session. Loads
    /// the texts that the client was shown by other gateways, and forgets stale texts.
    ///
    /// # Errors
    /// If the database fails, or its record of the stores' labels cannot be read.
    pub(crate) async fn catch_up(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<(), RequestError> {
        session.answers.begin_turn();
        let mut history = self.lock_shown_texts(client).await?;
        // `forget_stale` forgets a text when it is called for the second time after the text was last seen, so it is
        // called after half of the age.
        if history.aged.elapsed() > client.spec.quotation_age / 2 {
            history.client.quotations.forget_stale();
            history.aged = Instant::now();
        }
        drop(history);
        self.recall_external_state(client, session).await
    }

    /// Locks the texts that a client was shown, after loading those that are not in memory: texts that other gateways
    /// have stored since, or all texts after a restart.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) async fn lock_shown_texts<'c>(
        &self,
        client: &'c ClientState,
    ) -> Result<tokio::sync::MutexGuard<'c, ClientHistory>, RequestError> {
        let mut history = client.lock_history().await;
        // If no other gateway writes to the database, the texts in memory are complete once they are loaded.
        if self.store.is_shared() || !history.is_loaded {
            let mut recalled = self.store.shown_texts(&client.spec.name, history.next).await?;
            if recalled.cleared != history.cleared && history.next > 0 {
                // An admin has cleared the texts through another gateway, so those in memory (before `next`) are
                // dropped, and all are loaded again.
                history.reset();
                recalled = self.store.shown_texts(&client.spec.name, history.next).await?;
            }
            (history.next, history.cleared, history.is_loaded) = (recalled.next, recalled.cleared, true);
            if recalled.has_forgotten {
                history.client.quotations.note_forgotten();
            }
            load_history(&mut history.client, recalled.texts);
            // The result is dropped: texts that are forgotten while loading were reported when they were first
            // forgotten.
            history.client.quotations.take_full_sources();
        }
        Ok(history)
    }

    /// Reads the labels that other conversations of the tenant have written to external state, and joins them into the
    /// session. Does nothing if the tenant has no record of such labels.
    ///
    /// # Errors
    /// If the database fails, or the record of the labels cannot be read: without it, a label could be too low.
    pub(crate) async fn recall_external_state(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<(), RequestError> {
        let record = self.store.tenant(&client.spec.tenant).await?;
        let Some(record) = record else { return Ok(()) };
        session.join_external_state(&record).map_err(|error| {
            let message =
                "the labels of the tenant's external state cannot be read: ask the operator of the gateway, whose log has the \
                reason";
            let cause = RequestErrorCause::Store(DAMAGED_TENANT);
            RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message).with_cause(cause).with_detail(error)
        })
    }

    /// Logs each source whose oldest texts were forgotten because its share of the memory of quotations was full.
    /// `forgotten` has the number of forgotten text windows of each such source, about one window per byte. Adds these
    /// numbers to the client's counter.
    fn report_full(&self, client: &ClientState, conversation: &str, forgotten: &BTreeMap<String, u64>) {
        for (source, windows) in forgotten {
            client.add_forgotten(*windows);
            // One source may fill only this part of the memory.
            let source_limit = client.spec.quotations / history::SHARE;
            let fields = vec![
                ("limit", "text remembered of one source".into()),
                ("setting", "[store] quotation-mib".into()),
                ("most", source_limit.into()),
                ("source", source.as_str().into()),
                ("forgotten", (*windows).into()),
                ("conversation", conversation.into()),
            ];
            let sentence = "the gateway has forgotten the oldest texts of this source, so it does not \
                recognise quotations of them in other conversations";
            // `write` alone does not count the limit in the metrics.
            self.log.count_limit("text remembered of one source");
            self.log.write(LogEvent::Limit, &client.spec.name, fields, sentence);
        }
    }

    /// Locks the cache of conversations in memory.
    fn memory(&self) -> MutexGuard<'_, ConversationCache> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationState {
    /// Returns whether the conversation was carried over to another policy, and no turn was stored since.
    pub(super) fn is_newly_carried(&self) -> bool {
        self.carried.is_some()
    }

    /// Returns the number of stored turns.
    pub(crate) fn turns(&self) -> i64 {
        self.turns
    }

    /// Joins the labels of the tenant's stores, from their JSON record, into the session. Does nothing if this is the
    /// record that was joined last.
    ///
    /// # Errors
    /// What is wrong with the record.
    pub(super) fn join_external_state(&mut self, record: &str) -> Result<(), String> {
        if self.recalled.as_deref() != Some(record) {
            let read: Value = serde_json::from_str(record)
                .map_err(|_| "the record of the labels of its stores is not valid JSON".to_owned())?;
            self.conversation.join_external_state(&read).map_err(|error| error.to_string())?;
            self.recalled = Some(record.to_owned());
            // The labels may have changed, so they have to be compared with the record again.
            self.settled = None;
        }
        Ok(())
    }
}

/// Adds texts that a client was shown to the memory of quotations in its profile `client`. `texts` are in the form in
/// which the database stores them.
fn load_history(client: &mut history::ClientProfile, texts: Vec<ShownText>) {
    for ShownText { source, label, text: normalized } in texts {
        // A label that cannot be parsed becomes `null`, which is no label and therefore counts as top.
        let label = serde_json::from_str(label.as_str()).unwrap_or(Value::Null);
        let normalized = normalized.into_string();
        client.quotations.restore_text(&RememberedText { source, label, normalized });
    }
}
