//! Carries a stored conversation over to the present policy of its client, after the policy or another setting that
//! labels depend on has changed.
//!
//! The chat is processed again under the present policy ([`Conversation::carry_over`]), by which its texts and calls
//! receive the labels of this policy. The new form of the turns is stored together with the next turn: until then, the
//! conversation is stored as before, and the next request carries it over again. [`super::load`] calls this file.
//!
//! [`Conversation::carry_over`]: flowgate_guard::conversation::Conversation::carry_over

use std::time::Instant;

use flowgate_guard::journal::Input;
use tokio::sync::MutexGuard;

use super::load::empty_state;
use super::stored_turn::{StoredInput, StoredTurn};
use super::{ConversationHandle, ConversationState, Conversations};
use crate::chat::clients::{ClientHistory, ClientState};
use crate::database::{CarriedTurns, DatabaseError, OpenedConversation};
use crate::http::request_error::RequestError;
use crate::limits::count_values;
use crate::log::LogEvent;
use crate::random;

/// The reason why a conversation cannot be carried over: a sentence for the operator's log, without content.
type Obstacle = String;

impl Conversations {
    /// Carries the conversation `opened`, which was stored under another policy, over to the present one. If that is
    /// not possible, says why in the log, and returns `None`. `handle` names the conversation.
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
        let session = empty_state(client, opened.id, &key)?;
        // Quotations are searched in everything that the client was shown.
        let history = self.lock_shown_texts(client).await?;
        let carried = carry_turns(client, (session, history), key, opened);
        let sentence = match &carried {
            Ok(_) => "the policy has changed since the conversation was stored: its labels are those of the present \
                one, and messages of the model carry the labels of everything before them"
                .to_owned(),
            Err(why) => format!(
                "the policy has changed since the conversation was stored, and it cannot be carried over, so it begins \
                anew: what its agent sends of it is not trusted; {why}"
            ),
        };
        let fields = vec![("conversation", handle.name().into())];
        self.log.write(LogEvent::Configuration, &client.spec.name, fields, &sentence);
        Ok(carried.ok())
    }
}

/// Processes the stored turns of `opened` again on `session`, a conversation without turns whose digests have the key
/// `key`. Returns the conversation with these turns under the present policy of the client, and with their new stored
/// form. `history` are the texts that the client was shown.
///
/// # Errors
/// If a turn cannot be carried over: the number of the turn, from 0, and why.
fn carry_turns(
    client: &ClientState,
    (mut session, mut history): (ConversationState, MutexGuard<'_, ClientHistory>),
    key: String,
    opened: &OpenedConversation,
) -> Result<ConversationState, Obstacle> {
    let mut inputs = Vec::with_capacity(opened.inputs.len());
    for (number, row) in opened.inputs.iter().enumerate() {
        let obstacle = |why: &str| format!("turn {number}: {why}");
        let turn = StoredTurn::read(row).map_err(|_| obstacle("its stored form cannot be read"))?;
        let chat = turn.chat_inputs().ok_or_else(|| obstacle("it has messages of MCP servers"))?;
        // Extern predicates give the recorded answers again.
        session.answers.begin_replay(turn.answers.clone());
        let ConversationState { conversation, history: own, .. } = &mut session;
        let carried =
            conversation.carry_over(&mut history.client, own, &chat, &|name| client.spec.tool_of(name));
        carried.map_err(|why| obstacle(&why.to_string()))?;
        // Writes the turn in its form under the present policy.
        let chat = session.conversation.journal_mut().take();
        let row = StoredTurn::write(chat, turn.answers).map_err(|_| {
            obstacle("its new form cannot be serialized to JSON, because of a bug in the gateway: report it")
        })?;
        session.values = session.values.saturating_add(count_values(row.as_bytes()));
        session.bytes = session.bytes.saturating_add(i64::try_from(row.len()).unwrap_or(i64::MAX));
        inputs.push(row.into());
    }
    drop(history);
    session.prefixes = session.history.prefixes();
    (session.turns, session.touched) = (opened.turns, Instant::now());
    session.carried = Some(CarriedTurns {
        config_fingerprint: client.spec.config_fingerprint.clone(),
        key: key.into(),
        inputs,
    });
    Ok(session)
}

impl StoredTurn {
    /// Returns the inputs of the chat; `None` if there are inputs of MCP servers as well.
    fn chat_inputs(&self) -> Option<Vec<Input>> {
        let mut all = Vec::new();
        for step in &self.steps {
            match step {
                StoredInput::Chat(inputs) => all.extend(inputs.iter().cloned()),
                StoredInput::Server(_) => return None,
            }
        }
        Some(all)
    }
}
