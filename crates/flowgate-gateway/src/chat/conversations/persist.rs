//! Stores a turn: the inputs of its conversation, and the state that changes with them.
//!
//! A turn is stored in one transaction with its changes to questions, to the labels of its tenant's stores and to the
//! texts that its client was shown. The model routes and the MCP routes call [`Conversations::persist`] before they
//! send the reply.

use std::collections::HashSet;
use std::time::Instant;

use flowgate_guard::history::{self, ChatPrefixDigest, RememberedText};

use super::{
    ConversationHandle, ConversationState, Conversations, LAST_USE_INTERVAL, LockedConversation, load_history,
};
use crate::approvals::ApprovalReference;
use crate::chat::clients::ClientState;
use crate::database::{BegunTurn, DatabaseError, NewShownTexts, PersistedTurn, ShownText, TurnApprovals};
use crate::http::request_error::RequestError;
use crate::limits::count_values;
use crate::log::LogEvent;
use crate::random;
use crate::virtual_keys::scope::stored_prefix;

impl Conversations {
    /// Stores the inputs of a turn, and the state that changes with them, and releases the lease of the conversation.
    /// Until this succeeds, the caller may send only the text that the guard released early. If the turn was abandoned
    /// or cannot be stored, drops the conversation from memory; the next request then loads its last stored state. Logs
    /// the failures of extern predicates, and the sources whose oldest texts were forgotten.
    ///
    /// # Errors
    /// If the turn could not be stored. The caller must then send no more of it.
    pub(crate) async fn persist(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        locked: &mut LockedConversation<'_>,
    ) -> Result<(), RequestError> {
        // A conversation that is not loaded, or was dropped from memory, has no turn to store.
        let Some(session) = locked.session.as_mut() else { return Ok(()) };
        if session.is_abandoned {
            // The request fails with the error because of which the turn was abandoned, so this is no further error.
            self.drop_turn(handle, locked).await;
            return Ok(());
        }
        for (predicate, why) in session.answers.take_failures() {
            let fields =
                vec![("conversation", handle.name().into()), ("predicate", predicate.as_str().into())];
            let sentence = format!("the extern predicate failed, so rules that use it deny the call: {why}");
            self.log.write(LogEvent::Upstream, &client.spec.name, fields, &sentence);
        }
        // A rejected request has no inputs, so there is no turn to store.
        let changes_nothing = !session.has_unpersisted_inputs()
            && session.used_approvals.is_empty()
            && session.void_approvals.is_empty();
        if changes_nothing {
            // The conversation in memory equals the stored one, so it may stay in memory.
            locked.is_unsettled = false;
            return Ok(self.store.release_lease(&client.spec.name, handle.name()).await?);
        }
        // The new texts that the client was shown are stored with the turn. The lock gives them the same order in
        // memory as in the database.
        let mut history = client.lock_history().await;
        session.conversation.memorize(&mut history.client, &mut session.history);
        let learned = history.client.quotations.take_learned();
        let persisted = self.persist_turn(client, handle, session, history.next, &learned).await;
        match persisted {
            // `others` are the texts that other gateways have stored since, and `next` is the number of the first
            // stored text that this gateway has not loaded.
            Ok((others, next)) => {
                history.next = next;
                load_history(&mut history.client, others);
                let full = history.client.quotations.take_full_sources();
                drop(history);
                self.report_full(client, handle.name(), &full);
                self.memory().set_size(&handle.key, session.memory());
                locked.is_unsettled = false;
                Ok(())
            }
            Err(error) => {
                // A later turn stores the texts instead.
                history.client.quotations.restore_learned(learned);
                drop(history);
                Err(self.evict_unpersisted(handle, locked, error).await)
            }
        }
    }

    /// Drops a conversation from memory because its last turn could not be stored. Returns `error`, the reason, as the
    /// error of the request.
    pub(crate) async fn evict_unpersisted(
        &self,
        handle: &ConversationHandle,
        locked: &mut LockedConversation<'_>,
        error: DatabaseError,
    ) -> RequestError {
        self.drop_turn(handle, locked).await;
        error.into()
    }

    /// Drops a conversation from memory, so that the next request loads the last stored state, and releases its lease.
    async fn drop_turn(&self, handle: &ConversationHandle, locked: &mut LockedConversation<'_>) {
        *locked.session = None;
        // A lease that cannot be released expires by itself.
        let _ = self.store.release_lease(&handle.key.0, handle.name()).await;
    }

    /// Stores the new inputs of a turn and, if they changed, its approvals, the labels of the tenant's stores and the
    /// texts in `learned`, which the client was shown. Afterwards updates the counters of `session`. `next_text` is
    /// the number of the client's first stored text that this gateway has not loaded. Returns the texts that other
    /// gateways have stored since then, and the new value of `next_text`.
    ///
    /// # Errors
    /// If the database fails, or another turn of the conversation was stored in the meantime.
    async fn persist_turn(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        session: &mut ConversationState,
        next_text: i64,
        learned: &history::LearnedTexts,
    ) -> Result<(Vec<ShownText>, i64), DatabaseError> {
        let (spec, name) = (&client.spec, handle.name());
        // Most turns change only their conversation. They skip the tenant's lock, and so wait for no other turn of the
        // tenant.
        let changes_only_conversation = session.used_approvals.is_empty()
            && session.void_approvals.is_empty()
            && learned.texts.is_empty()
            && learned.full.is_empty()
            && self.leaves_external_state(client, session)?;
        let tenant_transaction =
            if changes_only_conversation { None } else { Some(self.begin_turn(client, session).await?) };
        let inputs = session.take_stored_turn().map_err(|_| {
            DatabaseError::Bug("the turn cannot be stored, since an input of it cannot be serialized to JSON")
        })?;
        let prefixes = session.history.prefixes();
        // Whether the stored time of last use is so old that this turn has to write it.
        let is_stale = session.touched.elapsed() > LAST_USE_INTERVAL;
        let bytes = session.bytes.saturating_add(i64::try_from(inputs.len()).unwrap_or(i64::MAX));
        let values = session.values.saturating_add(count_values(inputs.as_bytes()));
        let stored = |prefixes: Vec<&ChatPrefixDigest>| {
            prefixes.into_iter().map(|prefix| stored_prefix(name, prefix)).collect()
        };
        let turn = PersistedTurn {
            client: spec.name.clone(),
            name: name.to_owned(),
            conversation: session.id,
            is_stale,
            // The numbers before this turn: if another gateway has stored a turn since, the database rejects this
            // one.
            turns: session.turns,
            bytes: session.bytes,
            inputs: inputs.into(),
            prefixes: stored(digests_not_in(&prefixes, &session.prefixes)),
            forgotten: stored(digests_not_in(&session.prefixes, &prefixes)),
            longest: prefixes.last().map(|prefix| stored_prefix(name, prefix)),
            carried: session.carried.clone(),
        };
        let shown = match tenant_transaction {
            None => {
                self.store.persist_turn(turn).await?;
                None
            }
            Some((transaction, record)) => {
                let shown = new_shown_texts(&spec.name, next_text, learned);
                self.store.finish_turn(transaction, record, turn, shown).await?
            }
        };
        // The turn is stored: the session in memory counts it.
        if is_stale {
            session.touched = Instant::now();
        }
        session.turns += 1;
        session.carried = None;
        (session.bytes, session.values) = (bytes, values);
        session.prefixes = prefixes;
        Ok(shown.unwrap_or_else(|| (Vec::new(), next_text)))
    }

    /// Returns whether a turn leaves the labels of its tenant's external state unchanged. Joins the labels of the
    /// cached record into the session first. Reads only the cache, not the database, so `false` can also mean that the
    /// cache has no record of the tenant.
    ///
    /// # Errors
    /// If the record of the labels cannot be read.
    fn leaves_external_state(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<bool, DatabaseError> {
        // The outer `None` means that the cache does not know the record, the inner one that the tenant has none.
        let Some(Some(before)) = self.store.persisted_tenant(&client.spec.tenant) else { return Ok(false) };
        // A call that writes to a store changes the record even if all labels stay the same (see the stamp in
        // `begin_turn`).
        if session.conversation.monitor().has_written() {
            return Ok(false);
        }
        session.join_external_state(&before).map_err(|reason| {
            let tenant = client.spec.tenant.clone();
            DatabaseError::ExternalState { tenant, reason }
        })?;
        // While the monitor's counter of changes is the same, so are the labels. `settled` is the value of the counter
        // when the labels were last equal to the record; only if it differs are they compared again.
        let change_count = Some(session.conversation.monitor().external_state_changes());
        if session.settled != change_count {
            let written = session.conversation.monitor().external_state_record().to_string();
            session.settled = change_count.filter(|_| written == before);
        }
        Ok(session.settled == change_count)
    }

    /// Begins the transaction of a turn with its changes to questions (approvals that become used or void, grants that
    /// were removed), and joins the labels that other conversations of the tenant have written since. The second part
    /// of the result is the new record of the labels of the tenant's external state; `None` if the turn leaves the
    /// record unchanged.
    ///
    /// # Errors
    /// If the database fails, the record of the labels cannot be read, or the system has no random bytes.
    async fn begin_turn(
        &self,
        client: &ClientState,
        session: &mut ConversationState,
    ) -> Result<(BegunTurn, Option<String>), DatabaseError> {
        let ids = |asked: Vec<ApprovalReference>| asked.into_iter().map(|asked| asked.id).collect();
        let approvals = TurnApprovals {
            used: ids(std::mem::take(&mut session.used_approvals)),
            void: ids(std::mem::take(&mut session.void_approvals)),
            removed: std::mem::take(&mut session.removed_grants),
        };
        let begun = self.store.begin_turn(&client.spec.tenant, approvals).await?;
        if let Some(before) = &begun.record {
            session.join_external_state(before).map_err(|reason| {
                let tenant = client.spec.tenant.clone();
                DatabaseError::ExternalState { tenant, reason }
            })?;
        }
        // The stamp is unique, so the record changes with each write to a store, even if the label of the store does
        // not. The other gateways and conversations of the tenant therefore notice the write.
        let stamp = random::unguessable_name().map_err(|_| DatabaseError::NoRandomBytes)?;
        session.conversation.stamp_writes(&stamp);
        let written = session.conversation.monitor().external_state_record().to_string();
        // `is_persisted` is false while it is unknown whether the last write of the record succeeded; the record is
        // then written again.
        let is_current = begun.is_persisted && begun.record.as_ref() == Some(&written);
        let changed = (!is_current).then_some(written);
        Ok((begun, changed))
    }
}

/// Returns `learned`, the texts that a client was shown in a turn, in the form in which the database stores them;
/// `None` if the turn has no such text, and no source has forgotten its oldest texts. `next_text` is the number of the
/// first stored text that this gateway has not loaded.
fn new_shown_texts(client: &str, next_text: i64, learned: &history::LearnedTexts) -> Option<NewShownTexts> {
    if learned.texts.is_empty() && learned.full.is_empty() {
        return None;
    }
    // Sources whose share of the memory is full, with the size down to which the database forgets their oldest texts
    // too.
    let full = learned.full.iter();
    let full = full.map(|(source, most)| (source.clone(), i64::try_from(*most).unwrap_or(i64::MAX)));
    Some(NewShownTexts {
        client: client.to_owned(),
        from: next_text,
        texts: learned.texts.iter().map(to_shown_text).collect(),
        full: full.collect(),
    })
}

/// Returns the digests in `prefixes` that are not in `others`. Each is the digest of a beginning of a chat.
fn digests_not_in<'p>(
    prefixes: &'p [ChatPrefixDigest],
    others: &[ChatPrefixDigest],
) -> Vec<&'p ChatPrefixDigest> {
    // Two versions of a chat mostly share their first prefixes, which need no hash set.
    let shared_count = prefixes.iter().zip(others).take_while(|(one, other)| one == other).count();
    let others: HashSet<&ChatPrefixDigest> = others.iter().skip(shared_count).collect();
    prefixes.iter().skip(shared_count).filter(|prefix| !others.contains(prefix)).collect()
}

/// Converts a text that a client was shown to the form in which the database stores it, with its label as JSON.
fn to_shown_text(text: &RememberedText) -> ShownText {
    ShownText {
        source: text.source.clone(),
        label: text.label.to_string().into(),
        text: text.normalized.as_str().into(),
    }
}
