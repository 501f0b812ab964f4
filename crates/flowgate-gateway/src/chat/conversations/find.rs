//! Finds the conversation that a request belongs to: by its name, by its chat, or by an earlier answer that it
//! continues. `answer` and the MCP routes call this module.

use axum::http::StatusCode;
use flowgate_guard::history::SentChat;

use super::{ConversationHandle, Conversations};
use crate::chat::clients::ClientState;
use crate::http::request_error::RequestError;
use crate::random;
use crate::virtual_keys::scope::stored_prefix;

impl Conversations {
    /// Finds the conversation that a client names in its request (`requested_name`). Without a name, finds the
    /// conversation whose history is the longest prefix of the chat; if there is none, generates a new name. `scope` is
    /// the prefix of the names of all conversations of the request's virtual key; `requested_name` includes it. Only
    /// conversations with this prefix are found.
    ///
    /// # Errors
    /// If the database cannot be read, or the system has no random bytes for a name.
    pub(crate) async fn find(
        &self,
        (client, scope): (&ClientState, &str),
        requested_name: Option<&str>,
        chat: &SentChat<'_>,
    ) -> Result<ConversationHandle, RequestError> {
        if let Some(name) = requested_name {
            return Ok(self.find_by_name(client, name));
        }
        let name = match self.find_name_by_chat(client, scope, chat).await? {
            Some(name) => name,
            // A new name also begins with the scope, so that only requests of the same virtual key find it.
            None => scope.to_owned() + &generate_name()?,
        };
        Ok(self.find_by_name(client, &name))
    }

    /// Returns the name of the conversation of `scope` whose history is the longest prefix of the chat; `None` if there
    /// is none.
    ///
    /// # Errors
    /// If the database cannot be read.
    async fn find_name_by_chat(
        &self,
        client: &ClientState,
        scope: &str,
        chat: &SentChat<'_>,
    ) -> Result<Option<String>, RequestError> {
        let longest = chat.longest_prefix().map(|prefix| stored_prefix(scope, &prefix));
        // The chat has no earlier message of the model, so it begins a new conversation.
        let Some(longest) = longest else { return Ok(None) };
        // The cache, which saves most queries, knows only the longest prefix of each conversation. The database knows
        // all prefixes.
        if let Some(cached) = self.store.find_cached_by_chat(&client.spec.name, &longest) {
            return Ok(Some(cached));
        }
        let prefixes: Vec<String> = {
            let prefixes = chat.prefixes();
            prefixes.iter().map(|prefix| stored_prefix(scope, prefix)).collect()
        };
        Ok(self.store.find_by_chat(&client.spec.name, &prefixes).await?)
    }

    /// Returns the handle of a client's conversation with this name, whether or not the database has the conversation.
    pub(crate) fn find_by_name(&self, client: &ClientState, name: &str) -> ConversationHandle {
        let key = (client.spec.name.clone(), name.to_owned());
        let cell = self.memory().cell(&key);
        ConversationHandle { key, cell }
    }

    /// Returns the handle of a client's conversation with this name; `None` if the client has no such conversation, in
    /// memory or in the database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) async fn find_existing(
        &self,
        client: &ClientState,
        name: &str,
    ) -> Result<Option<ConversationHandle>, RequestError> {
        let handle = self.find_by_name(client, name);
        // `try_lock` fails if another request uses the cell: the conversation then exists, or is about to be created.
        let is_in_memory = handle.cell.try_lock().map_or(true, |session| session.is_some());
        let exists = is_in_memory || self.store.has_conversation(&client.spec.name, name).await?;
        if exists {
            return Ok(Some(handle));
        }
        // `find_by_name` has added an empty cell to the cache. It is removed, so that names that a client invents do
        // not fill the cache. The cell stays if another request has begun to use it.
        let ConversationHandle { key, cell } = handle;
        drop(cell);
        let mut memory = self.memory();
        if !memory.is_used(&key) {
            memory.forget(&key);
        }
        Ok(None)
    }
}

/// Generates a name for a new conversation; nobody can guess the name. Fails if the system has no random bytes.
fn generate_name() -> Result<String, RequestError> {
    let broken = |_| {
        RequestError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the operating system returned no random bytes: try again in a second",
        )
    };
    random::unguessable_name().map_err(broken)
}
