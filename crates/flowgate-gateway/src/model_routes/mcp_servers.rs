//! MCP servers behind the gateway: an agent's tools, in the same conversation as its chat.
//!
//! The messages between a client and a server pass a [state machine](flowgate_mcp), one for each server and
//! conversation. All of them, and the chat, share one monitor: what one server has shown counts when another server or
//! the model is called. No decision depends on the session id of MCP.
//!
//! The inputs of a machine are stored with those of the chat, in order, so that any gateway can replay the
//! conversation.
//!
//! * `exchange`: one message of a client, until it is answered.
//! * `tool_approvals`: the tools on offer.
//! * `audit_records`: audit records of questions to people at clients.
//! * `listening`: server messages that answer no request.
//! * `upstream`: requests to a server; `events`: its answers; `rest`: resumption of broken streams.
//! * `pending_reply`: replies to a client.
//! * `headers`: the HTTP headers of a message.

mod audit_records;
mod event_stream;
pub(crate) mod exchange;
mod headers;
pub(crate) mod listening;
mod pending_reply;
mod resumption;
mod tool_approvals;
mod upstream;

use std::collections::BTreeMap;

use flowgate::monitor::Question;
use flowgate_guard::conversation::{CallVerdict, Conversation};
use flowgate_guard::journal::Input;
use serde::{Deserialize, Serialize};

use super::config::{ClientSettings, McpServer};
use super::conversations::ConversationState;
pub(crate) use listening::opens_stream;
pub(crate) use upstream::McpServerClient;

use crate::limits::count_values;
use crate::predicates::journal::RecordedPredicateAnswer;
use flowgate_mcp::{PersonAnswer, Pins, Proxy, ProxyAction, ProxyLimits, ProxySettings};

/// An element of the stored inputs of a conversation, which are in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum StoredInput {
    /// Inputs of its chat.
    Chat(Vec<Input>),
    /// An input of a server's state machine.
    Server(ServerProxyEvent),
}

/// An input of a server's state machine, with the name of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerProxyEvent {
    pub(crate) server: String,
    pub(crate) what: ProxyEvent,
}

/// The kinds of input of a state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ProxyEvent {
    /// A message of the client; `labels` is set if it asks for the labels of the answer.
    Client {
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        labels: bool,
    },
    /// A message of the server.
    Server(String),
    /// The server received the request with this id, and gave no answer that can be passed on.
    Failed { id: serde_json::Value, why: String },
    /// The request with this id was not sent to the server.
    Unsent { id: serde_json::Value, why: String },
    /// The tools that are approved now.
    Pinned { pins: Pins, accept_new: bool },
    /// The answer to a question.
    Decided { question: String, said: PersonAnswer },
}

/// The state machines of one conversation.
#[derive(Debug, Default)]
pub(crate) struct ConversationProxies {
    machines: BTreeMap<String, Proxy>,
    /// The inputs that are not stored yet, if any of them is of a machine.
    steps: Vec<StoredInput>,
    /// The number of JSON values in the messages of clients and servers.
    values: usize,
}

impl ConversationProxies {
    /// Returns the machine of a server, if the client has this server.
    fn proxy_of(
        &mut self,
        conversation: &Conversation,
        client: &ClientSettings,
        name: &str,
    ) -> Option<&mut Proxy> {
        let server = client.server(name)?;
        let begun = || Proxy::new(settings(client, server, conversation));
        Some(self.machines.entry(name.to_owned()).or_insert_with(begun))
    }

    /// Hands an input to the machine of a server; returns nothing if the client does not have this server.
    fn handle_event(
        &mut self,
        conversation: &mut Conversation,
        client: &ClientSettings,
        put: &ServerProxyEvent,
    ) -> Vec<ProxyAction> {
        if let ProxyEvent::Client { text, .. } | ProxyEvent::Server(text) = &put.what {
            self.values = self.values.saturating_add(count_values(text.as_bytes()));
        }
        let Some(machine) = self.proxy_of(conversation, client, &put.server) else { return Vec::new() };
        match &put.what {
            ProxyEvent::Client { text, labels } => {
                machine.set_tells_labels(*labels);
                machine.handle_client_message(conversation, text.as_bytes())
            }
            ProxyEvent::Server(text) => machine.handle_server_message(conversation, text.as_bytes()),
            ProxyEvent::Failed { id, why } => machine.handle_failed_request(conversation, id, why),
            ProxyEvent::Unsent { id, why } => machine.handle_unsent_request(id, why),
            ProxyEvent::Pinned { pins, accept_new } => {
                machine.pin(pins, *accept_new);
                Vec::new()
            }
            ProxyEvent::Decided { question, said } => machine.handle_decision(conversation, question, said),
        }
    }

    fn take_judgements(&mut self, server: &str) -> Vec<CallVerdict> {
        self.machines.get_mut(server).map(Proxy::take_judgements).unwrap_or_default()
    }

    /// Returns the number of JSON values in the messages of clients and servers.
    pub(super) fn value_count(&self) -> usize {
        self.values
    }

    /// Returns whether inputs of a machine are not stored yet.
    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }
}

fn settings(client: &ClientSettings, server: &McpServer, conversation: &Conversation) -> ProxySettings {
    ProxySettings {
        is_interactive: client.asks_in_front,
        names: Some(conversation.text_digest(&server.name)),
        asks_elsewhere: true,
        // The size of the whole conversation is bounded elsewhere.
        limits: ProxyLimits { session: usize::MAX, ..ProxyLimits::default() },
        ..ProxySettings::new(&server.name)
    }
}

impl ConversationState {
    /// Hands an input to the machine of a server. Returns the actions that follow, and the verdicts.
    pub(crate) fn handle_proxy_event(
        &mut self,
        client: &ClientSettings,
        put: ServerProxyEvent,
    ) -> (Vec<ProxyAction>, Vec<CallVerdict>) {
        let chat = self.conversation.take_inputs();
        if !chat.is_empty() {
            self.machines.steps.push(StoredInput::Chat(chat));
        }
        let out = self.machines.handle_event(&mut self.conversation, client, &put);
        let judged = self.machines.take_judgements(&put.server);
        self.machines.steps.push(StoredInput::Server(put));
        (out, judged)
    }

    /// Returns the actions for a server's message that changes nothing and is therefore not stored; `None` if it must
    /// be processed as an input.
    pub(crate) fn handle_stateless_message(
        &mut self,
        client: &ClientSettings,
        server: &str,
        text: &str,
    ) -> Option<Vec<ProxyAction>> {
        let machine = self.machines.proxy_of(&self.conversation, client, server)?;
        machine.handle_stateless_message(&mut self.conversation, text.as_bytes())
    }

    /// Returns the approved tools of a server, as far as its machine has received them.
    pub(crate) fn pins(&self, server: &str) -> Option<&Pins> {
        self.machines.machines.get(server)?.pins()
    }

    /// Returns an open question of a machine.
    pub(crate) fn question(&self, server: &str, name: &str) -> Option<&Question> {
        self.machines.machines.get(server)?.question(name)
    }

    /// Takes the inputs since the last call, in their stored form.
    pub(super) fn take_stored_turn(&mut self) -> serde_json::Result<String> {
        let (chat, answers) = (self.conversation.take_inputs(), self.answers.take_answers());
        if self.machines.steps.is_empty() && answers.is_empty() {
            return serde_json::to_string(&chat);
        }
        let mut steps = std::mem::take(&mut self.machines.steps);
        if !chat.is_empty() {
            steps.push(StoredInput::Chat(chat));
        }
        serde_json::to_string(&StoredTurn { steps, answers })
    }

    /// Replays one stored row. Returns its verdicts, or `None` if the replay diverges.
    pub(super) fn replay_stored_turn(
        &mut self,
        client: &super::clients::ClientState,
        row: &str,
    ) -> Option<Vec<CallVerdict>> {
        let mut own = client.for_replay();
        let mut judged = Vec::new();
        let StoredTurn { steps, answers } = StoredTurn::read(row).ok()?;
        self.answers.begin_replay(answers);
        for step in steps {
            let (inputs, put) = match step {
                StoredInput::Chat(inputs) => (inputs, None),
                StoredInput::Server(put) => (Vec::new(), Some(put)),
            };
            if let Some(put) = put {
                self.machines.handle_event(&mut self.conversation, &client.spec, &put);
                judged.extend(self.machines.take_judgements(&put.server));
            }
            // The history of the client includes what it was shown by machines.
            judged.extend(self.conversation.replay(&mut own, &mut self.history, &inputs).ok()?);
        }
        // Calls that ran were recorded when they first ran.
        self.conversation.drain_taken_calls();
        Some(judged)
    }
}

/// The stored form of a turn that has more than chat inputs.
#[derive(Debug, Serialize, Deserialize)]
struct StoredTurn {
    steps: Vec<StoredInput>,
    /// The answers of extern predicates in this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<RecordedPredicateAnswer>,
}

impl StoredTurn {
    /// Reads a stored row: a list, if it has only chat inputs.
    fn read(row: &str) -> serde_json::Result<Self> {
        if row.starts_with('[') {
            let steps = vec![StoredInput::Chat(serde_json::from_str(row)?)];
            return Ok(Self { steps, answers: Vec::new() });
        }
        serde_json::from_str(row)
    }
}
