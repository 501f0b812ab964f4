//! Limits what conversations take: the memory budget that all requests share, the number of conversations of a client,
//! and the bytes and the memory of one conversation. Each refusal is logged with the setting that raises the limit.
//! [`super`] and `load` call this module before a conversation takes more, and the model routes and the MCP routes
//! before each turn or message.

use axum::http::StatusCode;

use super::super::clients::ClientState;
use super::{ConversationHandle, ConversationState, Conversations};
use crate::http::request_error::RequestError;
use crate::http::value_budget::{LIMIT_NAME, LIMIT_SETTING, ValueBudgetShare};
use crate::log::Limit;

/// The approximate memory of an empty conversation, in bytes.
const MIN_CONVERSATION_BYTES: usize = 64 << 10;
/// The approximate memory for each stored byte of input, in bytes. The factor was measured, and has a margin.
pub(crate) const MEMORY_OF_A_BYTE: usize = 8;
/// The approximate memory for each JSON value of the input, however short, in bytes. It was measured, and has a margin.
const MEMORY_OF_A_VALUE: usize = 600;

impl Conversations {
    /// Reserves `bytes` of the memory budget for the conversation that `handle` names, until the returned share is
    /// dropped. If the budget has no room, logs the limit, and releases the lease of the conversation.
    ///
    /// # Errors
    /// The refusal of the request, if the budget has no room.
    pub(super) async fn reserve_memory(
        &self,
        client: &ClientState,
        handle: &ConversationHandle,
        bytes: usize,
    ) -> Result<ValueBudgetShare, RequestError> {
        if let Ok(share) = self.value_budget.take_for_conversation(bytes) {
            return Ok(share);
        }
        self.log.limit(&Limit {
            what: LIMIT_NAME,
            effect: "a request was refused with 503, since there is no room for its conversation",
            setting: Some(LIMIT_SETTING),
            advice: None,
            most: u64::try_from(self.value_budget.total_bytes()).unwrap_or(u64::MAX),
            client: &client.spec.name,
            conversation: Some(handle.name()),
        });
        // A lease that cannot be released expires by itself.
        let _ = self.store.release_lease(&client.spec.name, handle.name()).await;
        let message = "the gateway is overloaded: try again in a second";
        Err(RequestError::new(StatusCode::SERVICE_UNAVAILABLE, message))
    }

    /// Deletes the least recently used conversations of a client beyond its limit, except those in use and `newest`,
    /// the conversation that was just created.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) async fn make_room(&self, client: &ClientState, newest: &str) -> Result<(), RequestError> {
        let limit = i64::try_from(client.spec.sessions).unwrap_or(i64::MAX);
        let surplus = self.store.least_recently_used(&client.spec.name, newest, limit).await?;
        if !surplus.is_empty() {
            self.log.limit(&Limit {
                what: "conversations of one client",
                effect: "the least recently used conversations are deleted; the history of chats that \
                    continue them is not trusted",
                setting: Some("[clients.NAME] sessions"),
                advice: None,
                most: u64::try_from(limit).unwrap_or_default(),
                client: &client.spec.name,
                conversation: None,
            });
        }
        for name in surplus {
            let key = (client.spec.name.clone(), name);
            // Whether a request of this gateway uses the conversation.
            let is_used = self.memory().is_used(&key);
            if !is_used {
                self.store.delete_conversation(&key.0, &key.1).await?;
                self.memory().forget(&key);
            }
        }
        Ok(())
    }

    /// Returns whether a conversation may store another turn; logs the limit if it may not. The log line has the
    /// names of the client and of the conversation.
    pub(crate) fn has_room(&self, session: &ConversationState, (client, name): (&str, &str)) -> bool {
        // Many short values take far more memory than their bytes, so the memory is limited as well: to that of a
        // conversation which has reached the limit on bytes with long values.
        let most_memory = memory_of(self.most_bytes, 0);
        let has_bytes = session.bytes < self.most_bytes;
        let has_room = has_bytes && session.memory() <= most_memory;
        if !has_room {
            let (what, most) = match has_bytes {
                true => {
                    ("memory of one conversation, which has many short values", u64::try_from(most_memory))
                }
                false => ("bytes of one conversation", u64::try_from(self.most_bytes)),
            };
            self.log.limit(&Limit {
                what,
                effect: "requests of the conversation are refused until the agent begins a new one",
                setting: Some("[store] conversation-mib"),
                advice: None,
                most: most.unwrap_or(u64::MAX),
                client,
                conversation: Some(name),
            });
        }
        has_room
    }
}

impl ConversationState {
    /// Returns the approximate memory of the conversation, in bytes.
    pub(super) fn memory(&self) -> usize {
        memory_of(self.bytes, self.values.saturating_add(self.proxies.value_count()))
    }
}

/// Returns the approximate memory, in bytes, of a conversation whose stored input has this many bytes and JSON values.
pub(super) fn memory_of(bytes: i64, values: usize) -> usize {
    let bytes = usize::try_from(bytes).unwrap_or_default().saturating_mul(MEMORY_OF_A_BYTE);
    MIN_CONVERSATION_BYTES.saturating_add(bytes).saturating_add(values.saturating_mul(MEMORY_OF_A_VALUE))
}
