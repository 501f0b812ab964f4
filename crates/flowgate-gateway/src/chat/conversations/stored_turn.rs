//! Converts a turn to its stored form and back: the inputs of the chat and of the MCP proxies in the order in which
//! they arrived, and the answers of extern predicates. `persist`, `load` and `carry_over` use the form. `mcp_proxy`
//! passes its inputs to the conversation through this module, which records their order among the inputs of the chat.

use flowgate::monitor::Question;
use flowgate_guard::conversation::CallVerdict;
use flowgate_guard::journal::Input;
use flowgate_mcp::{Pins, ProxyAction};
use serde::{Deserialize, Serialize};

use super::ConversationState;
use crate::chat::clients::ClientState;
use crate::config::ClientSettings;
use crate::mcp_proxy::proxies::ServerProxyEvent;
use crate::predicates::journal::RecordedPredicateAnswer;
use crate::virtual_keys::valid_key::ValidKey;

/// An element of the ordered list of stored inputs of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredInput {
    /// Consecutive inputs of the chat.
    Chat(Vec<Input>),
    /// An input of an MCP server's state proxy.
    Server(ServerProxyEvent),
}

/// The stored form of a turn that has more than chat inputs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct StoredTurn {
    pub(super) steps: Vec<StoredInput>,
    /// The answers of extern predicates in this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) answers: Vec<RecordedPredicateAnswer>,
}

impl StoredTurn {
    /// Parses a stored row. A turn with chat inputs only, without answers of extern predicates, is stored as a plain
    /// list.
    pub(super) fn read(row: &str) -> serde_json::Result<Self> {
        if row.starts_with('[') {
            let steps = vec![StoredInput::Chat(serde_json::from_str(row)?)];
            return Ok(Self { steps, answers: Vec::new() });
        }
        serde_json::from_str(row)
    }

    /// Returns the stored row of a turn: a plain list of the inputs if there are chat inputs only and extern predicates
    /// have not answered in the turn, and otherwise the form with named fields.
    pub(super) fn write(
        steps: Vec<StoredInput>,
        answers: Vec<RecordedPredicateAnswer>,
    ) -> serde_json::Result<String> {
        match steps.as_slice() {
            [] if answers.is_empty() => serde_json::to_string::<[Input]>(&[]),
            [StoredInput::Chat(chat)] if answers.is_empty() => serde_json::to_string(chat),
            _ => serde_json::to_string(&Self { steps, answers }),
        }
    }
}

impl ConversationState {
    /// Passes an input to the MCP proxy of a server, and appends it to the inputs to store, after the chat's inputs
    /// so far. Returns the resulting actions, and the verdicts on calls.
    pub(crate) fn handle_proxy_event(
        &mut self,
        client: &ClientSettings,
        mut event: ServerProxyEvent,
    ) -> (Vec<ProxyAction>, Vec<CallVerdict>) {
        let chat = self.conversation.journal_mut().take();
        if !chat.is_empty() {
            self.unpersisted.push(StoredInput::Chat(chat));
        }
        let actions = self.proxies.handle_event(&mut self.conversation, client, &event);
        let verdicts = self.proxies.take_judgements(&event.server);
        // The decisions of the policy are stored with the input, so that the conversation can be carried over to
        // another policy.
        event.rulings = self.proxies.take_rulings(&event.server);
        self.unpersisted.push(StoredInput::Server(event));
        (actions, verdicts)
    }

    /// Passes `text`, a message of an MCP server, to the proxy of the server if the message changes no state and is
    /// therefore not stored, and returns the resulting actions. `None` if the message must be processed as an input
    /// ([`Self::handle_proxy_event`]), or the client may not use this server.
    pub(crate) fn handle_stateless_message(
        &mut self,
        client: &ClientSettings,
        server: &str,
        text: &str,
    ) -> Option<Vec<ProxyAction>> {
        let proxy = self.proxies.proxy_of(&self.conversation, client, server)?;
        proxy.handle_stateless_message(&mut self.conversation, text.as_bytes())
    }

    /// Returns the approved tools of a server (its *pins*), if the MCP proxy of this server has received them in this
    /// conversation.
    pub(crate) fn pins(&self, server: &str) -> Option<&Pins> {
        self.proxies.pins(server)
    }

    /// Returns the open question with this name that the MCP proxy of a server asks in this conversation; `None` if
    /// there is none.
    pub(crate) fn question(&self, server: &str, name: &str) -> Option<&Question> {
        self.proxies.question(server, name)
    }

    /// Returns whether the conversation has inputs that are not stored yet.
    pub(super) fn has_unpersisted_inputs(&self) -> bool {
        !self.conversation.journal().is_empty() || !self.unpersisted.is_empty()
    }

    /// Adds the parameters of the policy that belong to the caller's virtual key or token (`key`) to a conversation
    /// without events. A conversation with events has them among its stored inputs already, since callers with
    /// different parameters never share a conversation.
    pub(crate) fn add_caller_parameters(&mut self, key: Option<&ValidKey>) {
        let input = key.map(|key| &key.input).filter(|input| !input.is_empty());
        if let Some(input) = input.filter(|_| self.conversation.monitor().trace().is_empty()) {
            self.conversation.add_parameters(input);
        }
    }

    /// Returns whether the conversation has inputs or used approvals that are not stored yet.
    pub(crate) fn has_unpersisted_changes(&self) -> bool {
        self.has_unpersisted_inputs() || !self.used_approvals.is_empty()
    }

    /// Takes the inputs since the last call, in their stored form, which [`StoredTurn::read`] parses: a plain list if
    /// the turn has chat inputs only, as most turns do, otherwise a [`StoredTurn`].
    ///
    /// # Errors
    /// If an input cannot be serialized to JSON.
    pub(super) fn take_stored_turn(&mut self) -> serde_json::Result<String> {
        let (chat, answers) = (self.conversation.journal_mut().take(), self.answers.take_answers());
        if self.unpersisted.is_empty() && answers.is_empty() {
            return serde_json::to_string(&chat);
        }
        let mut steps = std::mem::take(&mut self.unpersisted);
        if !chat.is_empty() {
            steps.push(StoredInput::Chat(chat));
        }
        serde_json::to_string(&StoredTurn { steps, answers })
    }

    /// Replays one stored turn: its inputs from chats and from MCP servers, in their order, with the recorded answers
    /// of predicates. Returns the verdicts, or `None` if the row is damaged or the replay diverges.
    pub(in crate::chat) fn replay_stored_turn(
        &mut self,
        client: &ClientState,
        row: &str,
    ) -> Option<Vec<CallVerdict>> {
        let mut profile = client.replay_profile();
        let mut verdicts = Vec::new();
        let StoredTurn { steps, answers } = StoredTurn::read(row).ok()?;
        self.answers.begin_replay(answers);
        for step in steps {
            let (inputs, server_event) = match step {
                StoredInput::Chat(inputs) => (inputs, None),
                StoredInput::Server(event) => (Vec::new(), Some(event)),
            };
            if let Some(event) = server_event.as_ref().filter(|event| event.earlier.is_some()) {
                // `earlier` marks an input that was carried over. It has no verdicts, since the earlier policy judged
                // it.
                if !self.proxies.carry_event(&mut self.conversation, &client.spec, event) {
                    return None;
                }
            } else if let Some(event) = server_event {
                self.proxies.handle_event(&mut self.conversation, &client.spec, &event);
                verdicts.extend(self.proxies.take_judgements(&event.server));
            }
            // Replays the inputs of the chat. For an event of a server, `inputs` is empty; this call then only adds
            // what the server showed to the client to the history.
            verdicts.extend(self.conversation.replay(&mut profile, &mut self.history, &inputs).ok()?);
        }
        // Calls that ran are discarded, because they were recorded when they first ran.
        self.conversation.drain_taken_calls();
        Some(verdicts)
    }
}
