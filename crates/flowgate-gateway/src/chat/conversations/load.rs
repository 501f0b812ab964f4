//! Loads a conversation: opens it in the database, and replays the turns that are not in memory. A conversation whose
//! replay diverges, or that cannot be carried over to a changed policy, is deleted and recreated without turns under
//! the same name.
//!
//! [`Conversations::lock`] loads the conversation of a request. `recheck`, the page for people and `policy_review`
//! replay stored conversations without loading them ([`replay`], [`replay_with`], [`replay_recording`]). This module
//! also creates conversations for requests that belong to no stored one ([`one_off`], [`recorded_elsewhere`]); they are
//! never stored.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use flowgate::monitor::Monitor;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{CallVerdict, Conversation, ConversationSettings};
use flowgate_guard::history::History;
use flowgate_guard::method::Method;

use super::{ConversationHandle, ConversationState, Conversations};
use crate::chat::clients::ClientState;
use crate::database::{DatabaseError, OpenedConversation};
use crate::http::request_error::RequestError;
use crate::limits::count_values;
use crate::mcp_proxy::proxies::ConversationProxies;
use crate::predicates::journal::PredicateJournal;
use crate::random;
use crate::visibility::ReportedItems;

impl Conversations {
    /// Opens a conversation in the database, and acquires its lease, by which other gateways recognise that it is in
    /// use. The first `turns` turns are in memory already, and are not read.
    ///
    /// # Errors
    /// If the database fails, another gateway has the lease, or the system has no random bytes.
    pub(super) async fn open(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        turns: i64,
    ) -> Result<OpenedConversation, DatabaseError> {
        // The key of the conversation's digests. The key is used only if the conversation is created now; an existing
        // conversation has a key.
        let key = random::bytes::<32>().map_err(|_| DatabaseError::NoRandomBytes)?;
        let name = (client.spec.name.as_str(), handle.name());
        self.store.open_conversation(name, &client.spec.config_fingerprint, &random::hex(&key), turns).await
    }

    /// Replays the conversation `opened`, which `handle` names, from its stored inputs, or carries it over from another
    /// policy. If neither is possible, deletes and recreates it without turns. If the conversation is new, also deletes
    /// the client's surplus conversations from time to time.
    ///
    /// # Errors
    /// If the database fails, or the conversation is damaged such that it cannot be recreated.
    pub(super) async fn load(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        opened: OpenedConversation,
    ) -> Result<ConversationState, RequestError> {
        // `opened` may have only the turns that were not in memory when it was read. The replay needs all turns.
        let opened = match turn_count(&opened) == opened.turns {
            true => opened,
            false => self.open(client, handle, 0).await?,
        };
        // The conversation was stored under another policy or other settings that labels depend on.
        if opened.config_fingerprint != client.spec.config_fingerprint {
            if let Some(session) = self.carry_over(client, handle, &opened).await? {
                return Ok(session);
            }
            return self.recreate(client, handle).await;
        }
        let is_new = opened.turns == 0;
        if let Some(session) = replay_stored(client, &opened)? {
            // Surplus conversations are not searched after each new one, because the query is slow.
            if is_new && client.count_new_conversation() {
                self.make_room(client, handle.name()).await?;
            }
            return Ok(session);
        }
        // The replay has diverged.
        self.recreate(client, handle).await
    }

    /// Deletes a conversation, and creates one without turns under its name.
    ///
    /// # Errors
    /// If the database fails.
    async fn recreate(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
    ) -> Result<ConversationState, RequestError> {
        self.store.delete_conversation(&client.spec.name, handle.name()).await?;
        let opened = self.open(client, handle, 0).await?;
        replay_stored(client, &opened)?.ok_or_else(|| {
            DatabaseError::Damaged("a conversation without turns has stored inputs that cannot be replayed")
                .into()
        })
    }
}

/// Returns the number of turns whose inputs `opened` contains, which may be fewer than the conversation has.
pub(super) fn turn_count(opened: &OpenedConversation) -> i64 {
    i64::try_from(opened.inputs.len()).unwrap_or(i64::MAX)
}

/// Replays the turns in `opened` on `session`, a conversation that contains the earlier turns. Returns `false` if there
/// is no conversation (`None`), or if the replay diverges. In the second case the caller must drop `session`, since it
/// may contain some of the turns.
pub(super) fn replay_missing(
    client: &ClientState,
    session: Option<&mut ConversationState>,
    opened: &OpenedConversation,
) -> bool {
    let Some(session) = session else { return false };
    if !opened.inputs.iter().all(|row| session.replay_stored_turn(client, row).is_some()) {
        return false;
    }
    for row in &opened.inputs {
        session.values = session.values.saturating_add(count_values(row.as_bytes()));
    }
    // These fields were computed from the turns that were in memory before, so they are out of date.
    if !opened.inputs.is_empty() {
        session.prefixes = session.history.prefixes();
        (session.recalled, session.settled) = (None, None);
        // Another gateway has recorded the verdicts on these turns.
        session.watcher = None;
    }
    (session.turns, session.bytes, session.touched) = (opened.turns, opened.bytes, Instant::now());
    true
}

/// Replays all stored turns of a conversation from its beginning, and returns the verdicts on its calls. `digest_key`
/// is the key of the digests of the conversation, in hexadecimal. `recheck` calls it.
///
/// # Errors
/// If the replay diverges; the message names the turn.
pub(crate) fn replay(
    client: &ClientState,
    digest_key: &str,
    turns: &[String],
) -> Result<Vec<CallVerdict>, RequestError> {
    let mut judged = Vec::new();
    replay_with(client, digest_key, turns, &mut |_, verdicts| judged = verdicts)?;
    Ok(judged)
}

/// Replays all stored turns of a conversation from its beginning. After the last turn, calls `at_end` once with the
/// monitor, whose trace and labels the caller may read, and with the verdicts on the calls. `digest_key` is the key
/// of the digests of the conversation, in hexadecimal.
///
/// # Errors
/// If the replay diverges; the message names the turn.
pub(crate) fn replay_with(
    client: &ClientState,
    digest_key: &str,
    turns: &[String],
    at_end: &mut dyn FnMut(&Monitor, Vec<CallVerdict>),
) -> Result<(), RequestError> {
    // 0: the replayed state is never persisted, so its number in the database does not matter.
    replay_state(client, empty_state(client, 0, digest_key)?, turns, at_end)
}

/// Replays a conversation as [`replay_with`] does, with a monitor that records its inputs, so that `at_end` can judge
/// them again under another policy.
///
/// # Errors
/// If the replay diverges; the message names the turn.
pub(crate) fn replay_recording(
    client: &ClientState,
    digest_key: &str,
    turns: &[String],
    at_end: &mut dyn FnMut(&Monitor, Vec<CallVerdict>),
) -> Result<(), RequestError> {
    // 0: the replayed state is never persisted, so its number in the database does not matter.
    let mut session = empty_state(client, 0, digest_key)?;
    session.conversation.monitor_mut().record_inputs();
    replay_state(client, session, turns, at_end)
}

/// Replays the stored turns `turns` on `session`, a conversation without turns. After the last turn, calls `at_end`
/// once with the monitor and with the verdicts on the calls.
///
/// # Errors
/// If the replay diverges; the message names the turn.
fn replay_state(
    client: &ClientState,
    mut session: ConversationState,
    turns: &[String],
    at_end: &mut dyn FnMut(&Monitor, Vec<CallVerdict>),
) -> Result<(), RequestError> {
    let mut judged = Vec::new();
    for (number, row) in turns.iter().enumerate() {
        let verdicts = session.replay_stored_turn(client, row);
        judged.extend(verdicts.ok_or_else(|| {
            let message = format!(
                "the replay of the conversation diverges at turn {number}: its result is not the recorded one, since \
                 the policy, the settings or the stored data changed; restore the configuration of that time, or \
                 compare the database with a backup"
            );
            RequestError::new(StatusCode::INTERNAL_SERVER_ERROR, message)
        })?);
    }
    at_end(session.conversation.monitor(), judged);
    Ok(())
}

/// Creates a conversation and replays the stored inputs of `opened`, which has all of its turns. `None` if the replay
/// diverges.
///
/// # Errors
/// If the stored key of the digests is damaged, or the conversation cannot be created.
fn replay_stored(
    client: &ClientState,
    opened: &OpenedConversation,
) -> Result<Option<ConversationState>, RequestError> {
    let mut session = empty_state(client, opened.id, &opened.key)?;
    Ok(replay_missing(client, Some(&mut session), opened).then_some(session))
}

/// Creates a conversation of a client for one request, which is never stored.
///
/// # Errors
/// If the system has no random bytes.
pub(crate) fn one_off(client: &ClientState) -> Result<ConversationState, RequestError> {
    let key = random::bytes::<32>().map_err(|_| DatabaseError::NoRandomBytes)?;
    // 0: the conversation has no number in the database.
    empty_state(client, 0, &random::hex(&key))
}

/// Creates a conversation for one request of a client: the request asks for a judgement on a chat between another
/// gateway and a model. The conversation is never stored. It hides nothing and does not limit the messages of a turn,
/// because the other gateway shows its model everything and has limits of its own.
///
/// # Errors
/// If the system has no random bytes.
pub(crate) fn recorded_elsewhere(client: &ClientState) -> Result<ConversationState, RequestError> {
    let mut session = one_off(client)?;
    let key = random::bytes::<32>().map_err(|_| DatabaseError::NoRandomBytes)?;
    let settings = ConversationSettings {
        steps: usize::MAX,
        messages: usize::MAX,
        ..ConversationSettings::new(Method::Everything, DigestKey::new(key))
    };
    // From now on, extern predicates are asked, as in a turn.
    session.answers.begin_turn();
    session.conversation = conversation_with(client, settings, &session.answers)?;
    Ok(session)
}

/// Creates an empty conversation of a client, with `key` as the key of its digests. The answers of its extern
/// predicates are added to `journal`. Its inputs are recorded.
///
/// # Errors
/// If the conversation cannot be created.
fn new_conversation(
    client: &ClientState,
    key: [u8; 32],
    journal: &PredicateJournal,
) -> Result<Conversation, RequestError> {
    let settings = ConversationSettings {
        expires: client.spec.approval_ttl,
        step_labels: client.spec.step_labels,
        ..ConversationSettings::new(client.spec.method, DigestKey::new(key))
    };
    let mut conversation = conversation_with(client, settings, journal)?;
    // From now on, inputs are recorded, so that each turn can be stored.
    conversation.journal_mut().start();
    Ok(conversation)
}

/// Creates an empty conversation of a client with these settings. The answers of its extern predicates are added to
/// `journal`. Fails if the monitor has no room for the descriptions of the tools on offer; the conversation begins
/// without tools.
fn conversation_with(
    client: &ClientState,
    settings: ConversationSettings,
    journal: &PredicateJournal,
) -> Result<Conversation, RequestError> {
    let mut monitor = Monitor::new(Arc::clone(&client.spec.policy));
    monitor.set_parameters(&client.spec.input);
    // The empty list: no answers of predicates were recorded before.
    monitor.set_predicates(journal.predicates(&client.spec.predicates), Vec::new());
    Ok(Conversation::new(monitor, Vec::new(), settings)?)
}

/// Creates the state of a conversation that has no turns yet. `id` is its number in the database, and `key` the key
/// of its digests in hexadecimal.
///
/// # Errors
/// If the key is damaged, or the conversation cannot be created.
pub(super) fn empty_state(
    client: &ClientState,
    id: i64,
    key: &str,
) -> Result<ConversationState, RequestError> {
    // The key of the digests. Everything else is empty at first.
    let bytes = random::from_hex::<32>(key).ok_or(DatabaseError::Damaged(
        "a row of the table `conversations` has no key of 32 bytes in hexadecimal",
    ))?;
    let answers = PredicateJournal::default();
    let conversation = new_conversation(client, bytes, &answers)?;
    let (history, recalled, prefixes) = (History::new(), None, Vec::new());
    Ok(ConversationState {
        id,
        key: key.to_owned(),
        generation: client.generation,
        touched: Instant::now(),
        conversation,
        history,
        recalled,
        settled: None,
        turns: 0,
        bytes: 0,
        values: 0,
        prefixes,
        proxies: ConversationProxies::default(),
        unpersisted: Vec::new(),
        answers,
        events: Vec::new(),
        used_approvals: Vec::new(),
        void_approvals: Vec::new(),
        removed_grants: Vec::new(),
        earlier_answers: Vec::new(),
        is_abandoned: false,
        explained: ReportedItems::default(),
        carried: None,
        watcher: None,
    })
}
