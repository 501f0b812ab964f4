//! Carries a stored conversation over to the present policy of its client, after the policy or another setting that
//! labels depend on has changed. [`super::load`] calls this module.
//!
//! The chat is processed again under the present policy ([`Conversation::carry_over`]), so its texts and calls receive
//! the labels of this policy. The messages of MCP servers are processed again by their proxies, with the recorded
//! decisions of the earlier policy ([`flowgate_mcp::ProxyRuling`]), since the calls that it permitted have run. The new
//! form of the turns is stored together with the next turn: until then, the database has the earlier form, and the next
//! request carries the conversation over again. [`replay_carried_over`] and [`replay_carried_over_recording`] do the
//! same for a person who views the conversation and for the review of a policy, and store nothing.
//!
//! [`Conversation::carry_over`]: flowgate_guard::conversation::Conversation::carry_over

use std::time::Instant;

use axum::http::StatusCode;
use flowgate::monitor::Monitor;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::history::ClientProfile;
use flowgate_guard::journal::Input;

use super::load::empty_state;
use super::stored_turn::{StoredInput, StoredTurn};
use super::{ConversationHandle, ConversationState, Conversations, load_history};
use crate::chat::clients::ClientState;
use crate::database::{CarriedTurns, Content, DatabaseError, OpenedConversation, ShownTexts};
use crate::http::request_error::RequestError;
use crate::limits::count_values;
use crate::log::LogEvent;
use crate::mcp_proxy::proxies::ServerProxyEvent;
use crate::random;

/// The reason why a conversation cannot be carried over: a sentence for the operator's log, without content.
type Obstacle = String;

impl Conversations {
    /// Carries the conversation `opened`, which was stored under another policy, over to the present policy. If that is
    /// not possible, logs why, and returns `None`. `handle` names the conversation.
    ///
    /// # Errors
    /// If the system has no random bytes, the conversation cannot be created, or the database fails.
    pub(super) async fn carry_over(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        opened: &OpenedConversation,
    ) -> Result<Option<ConversationState>, RequestError> {
        // With a new key, no id and no digest of the earlier policy is valid any more.
        let key = random::hex(&random::bytes::<32>().map_err(|_| DatabaseError::NoRandomBytes)?);
        let mut session = empty_state(client, opened.id, &key)?;
        // Quotations are searched in everything that the client was shown.
        let mut history = self.lock_shown_texts(client).await?;
        let earlier_key = earlier_key(&opened.key)?;
        let turns = (earlier_key, opened.inputs.as_slice());
        let carried = carry_turns(client, &mut session, &mut history.client, turns);
        drop(history);
        let carried = carried.map(|inputs| {
            session.prefixes = session.history.prefixes();
            (session.turns, session.touched) = (opened.turns, Instant::now());
            // The new form of the turns, which is stored together with the next turn.
            session.carried = Some(CarriedTurns {
                config_fingerprint: client.spec.config_fingerprint.clone(),
                key: key.into(),
                inputs,
            });
            session
        });
        let sentence = match &carried {
            Ok(_) => "the policy has changed since the conversation was stored: its labels are those of the present policy, and \
                messages of the model carry the labels of everything before them"
                .to_owned(),
            Err(why) => format!(
                "the policy has changed since the conversation was stored, and the conversation cannot be carried over, so it \
                starts over without its history: what the agent sends of this history is not trusted; the reason: {why}"
            ),
        };
        let fields = vec![("conversation", handle.name().into())];
        self.log.write(LogEvent::Configuration, &client.spec.name, fields, &sentence);
        Ok(carried.ok())
    }
}

/// Returns a separate profile of the client for [`replay_carried_over`]. Its memory of quotations has `shown`, the
/// texts of the client in the database. Texts that are added to this memory do not become part of the client's own
/// memory.
pub(crate) fn profile_with(client: &ClientState, shown: ShownTexts) -> ClientProfile {
    let mut profile = client.separate_profile();
    if shown.has_forgotten {
        profile.quotations.note_forgotten();
    }
    load_history(&mut profile, shown.texts);
    profile
}

/// Replays a conversation under the present policy and settings of its client, although it was stored under earlier
/// ones. `turns` are its stored turns, and `digest_key` is the key of its digests, in hexadecimal. Quotations are
/// searched among the texts of `profile` ([`profile_with`]). After the last turn, calls `at_end` once with the monitor,
/// whose trace and labels the caller may read. Stores nothing, and adds no text to the client's memory of quotations.
///
/// # Errors
/// If a turn cannot be carried over; the message says which, and why.
pub(crate) fn replay_carried_over(
    client: &ClientState,
    (digest_key, turns): (&str, &[String]),
    profile: ClientProfile,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<(), RequestError> {
    // 0: the replayed state is never persisted, so its number in the database does not matter.
    let session = empty_state(client, 0, digest_key)?;
    carry_over_on(session, client, (digest_key, turns), profile, at_end)
}

/// Processes the turns of a conversation again as [`replay_carried_over`] does, with a monitor that records its inputs,
/// so that `at_end` can judge them again under another policy.
///
/// # Errors
/// If a turn cannot be carried over; the message says which, and why.
pub(crate) fn replay_carried_over_recording(
    client: &ClientState,
    (digest_key, turns): (&str, &[String]),
    profile: ClientProfile,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<(), RequestError> {
    // 0: the replayed state is never persisted, so its number in the database does not matter.
    let mut session = empty_state(client, 0, digest_key)?;
    session.conversation.monitor_mut().record_inputs();
    carry_over_on(session, client, (digest_key, turns), profile, at_end)
}

/// Processes the stored turns `turns` again on `session`, a conversation without turns, as [`replay_carried_over`]
/// does.
///
/// # Errors
/// If a turn cannot be carried over; the message says which, and why.
fn carry_over_on(
    mut session: ConversationState,
    client: &ClientState,
    (digest_key, turns): (&str, &[String]),
    mut profile: ClientProfile,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<(), RequestError> {
    let turns = (earlier_key(digest_key)?, turns);
    carry_turns(client, &mut session, &mut profile, turns).map_err(|why| {
        let message = format!(
            "the policy or the settings of the client have changed since this conversation began, and the conversation \
             cannot be shown under the present ones: {why}; choose a conversation that began after the change"
        );
        RequestError::new(StatusCode::CONFLICT, message)
    })?;
    at_end(session.conversation.monitor());
    Ok(())
}

/// Returns the key of the digests of a stored conversation, from its form in hexadecimal.
///
/// # Errors
/// If the key is damaged.
fn earlier_key(key: &str) -> Result<DigestKey, DatabaseError> {
    let bytes = random::from_hex::<32>(key);
    bytes.map(DigestKey::new).ok_or(DatabaseError::Damaged(
        "a row of the table `conversations` has no key of 32 bytes in hexadecimal",
    ))
}

/// Processes the stored turns `turns` again under the present policy of the client, and returns their new stored form.
/// `session` is a conversation without turns, which receives them. `earlier_key` is the key of the digests in the
/// stored turns. `profile` has the texts that the client was shown, and receives the texts of the turns as well.
///
/// # Errors
/// If a turn cannot be carried over: the number of the turn, from 0, and why.
fn carry_turns(
    client: &ClientState,
    session: &mut ConversationState,
    profile: &mut ClientProfile,
    (earlier_key, turns): (DigestKey, &[String]),
) -> Result<Vec<Content>, Obstacle> {
    let mut inputs = Vec::with_capacity(turns.len());
    for (number, row) in turns.iter().enumerate() {
        let obstacle = |why: &str| format!("turn {number}: {why}");
        let turn = StoredTurn::read(row).map_err(|_| obstacle("its stored form cannot be read"))?;
        // Extern predicates give the recorded answers again.
        session.answers.begin_replay(turn.answers.clone());
        let mut steps = Vec::with_capacity(turn.steps.len());
        for step in turn.steps {
            let carried = match step {
                StoredInput::Chat(inputs) => carry_chat(client, session, profile, &inputs),
                StoredInput::Server(event) => carry_event(client, session, profile, (&earlier_key, event)),
            };
            steps.extend(carried.map_err(|why| obstacle(&why))?);
        }
        // Discards the list of calls that the chat handed over and that MCP clients ran: the audit log has had these
        // calls since they ran.
        session.conversation.drain_taken_calls();
        let row = StoredTurn::write(steps, turn.answers).map_err(|_| {
            obstacle("its new form cannot be serialized to JSON, because of a bug in the gateway: report it")
        })?;
        // The memory of the conversation is estimated from the size of the new form.
        session.values = session.values.saturating_add(count_values(row.as_bytes()));
        session.bytes = session.bytes.saturating_add(i64::try_from(row.len()).unwrap_or(i64::MAX));
        inputs.push(row.into());
    }
    Ok(inputs)
}

/// Processes inputs of the chat again on `session`. `profile` has the texts that the client was shown, and receives the
/// texts of the inputs as well. Returns the inputs in their new stored form; `None` if no input has to be stored.
///
/// # Errors
/// Why they cannot be carried over.
fn carry_chat(
    client: &ClientState,
    session: &mut ConversationState,
    profile: &mut ClientProfile,
    inputs: &[Input],
) -> Result<Option<StoredInput>, Obstacle> {
    let ConversationState { conversation, history, .. } = session;
    let carried = conversation.carry_over(profile, history, inputs, &|name| client.spec.tool_of(name));
    carried.map_err(|why| why.to_string())?;
    let carried = session.conversation.journal_mut().take();
    Ok((!carried.is_empty()).then_some(StoredInput::Chat(carried)))
}

/// Processes an input of an MCP server's proxy again on `session`, with the decisions (`rulings`) of the policy under
/// which the input was stored. `profile` has the texts that the client was shown, and receives the texts of the input
/// as well. Returns the input in its new stored form; never `None`, the result that only [`carry_chat`] may have.
/// `earlier_key` is the key of the digests in the stored conversation.
///
/// # Errors
/// Why it cannot be carried over.
fn carry_event(
    client: &ClientState,
    session: &mut ConversationState,
    profile: &mut ClientProfile,
    (earlier_key, mut event): (&DigestKey, ServerProxyEvent),
) -> Result<Option<StoredInput>, Obstacle> {
    let server = event.server.clone();
    if client.spec.server(&server).is_none() {
        return Err(format!(
            "it has messages of the MCP server `{server}`, which the client may not use any more"
        ));
    }
    if event.rulings.is_none() {
        return Err(format!(
            "it has messages of the MCP server `{server}` that were stored in watch mode or by an earlier version"
        ));
    }
    // `earlier` is the word in the request ids that the proxy generated when the input was received; the proxy derives
    // it from the key of the conversation's digests. An input that was carried over before has this word already.
    event.earlier.get_or_insert_with(|| earlier_key.text_digest(&server));
    if !session.proxies.carry_event(&mut session.conversation, &client.spec, &event) {
        return Err(format!(
            "its messages of the MCP server `{server}` do not match the recorded decisions about them"
        ));
    }
    // From now on, messages that quote the texts of the server are recognised.
    session.conversation.memorize(profile, &mut session.history);
    Ok(Some(StoredInput::Server(event)))
}
