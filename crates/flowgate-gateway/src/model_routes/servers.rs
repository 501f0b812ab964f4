//! MCP servers behind the gateway: an agent's tools, in the same conversation as its chat.
//!
//! The messages between a client and a server pass a [state machine](crate::mcp), one for each server and
//! conversation. All of them, and the chat, share one monitor: what one server has shown counts when another server or
//! the model is called. No decision depends on the session id of MCP.
//!
//! The inputs of a machine are stored with those of the chat, in order, so that any gateway can replay the
//! conversation.
//!
//! * `exchange`: one message of a client, until it is answered.
//! * `tools`: the tools on offer.
//! * `recorded`: audit records of questions to people at clients.
//! * `listening`: server messages that answer no request.
//! * `upstream`: requests to a server; `events`: its answers; `rest`: resumption of broken streams.
//! * `way`: replies to a client.
//! * `headers`: the HTTP headers of a message.

mod events;
pub(crate) mod exchange;
mod headers;
pub(crate) mod listening;
mod recorded;
mod rest;
mod tools;
mod upstream;
mod way;

use std::collections::BTreeMap;

use flowgate::monitor::Question;
use flowgate_guard::conversation::{Conversation, Judged};
use flowgate_guard::journal::Input;
use serde::{Deserialize, Serialize};

use super::config::{Client, Server};
use super::sessions::Session;
pub(crate) use listening::listens;
pub(crate) use upstream::Upstream;

use crate::ask::journal::Answered;
use crate::limits::values;
use crate::mcp::{Limits, Out, Pins, Proxy, Said, Settings};

/// An element of the stored inputs of a conversation, which are in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Inputs of its chat.
    Chat(Vec<Input>),
    /// An input of a server's state machine.
    Server(Put),
}

/// An input of a server's state machine, with the name of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Put {
    pub(crate) server: String,
    pub(crate) what: Told,
}

/// The kinds of input of a state machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
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
    Decided { question: String, said: Said },
}

/// The state machines of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    machines: BTreeMap<String, Proxy>,
    /// The inputs that are not stored yet, if any of them is of a machine.
    steps: Vec<Step>,
    /// The number of JSON values in the messages of clients and servers.
    values: usize,
}

impl Machines {
    /// Returns the machine of a server, if the client has this server.
    fn of(&mut self, conversation: &Conversation, client: &Client, name: &str) -> Option<&mut Proxy> {
        let server = client.server(name)?;
        let begun = || Proxy::new(settings(client, server, conversation));
        Some(self.machines.entry(name.to_owned()).or_insert_with(begun))
    }

    /// Hands an input to the machine of a server; returns nothing if the client does not have this server.
    fn put(&mut self, conversation: &mut Conversation, client: &Client, put: &Put) -> Vec<Out> {
        if let Told::Client { text, .. } | Told::Server(text) = &put.what {
            self.values = self.values.saturating_add(values(text.as_bytes()));
        }
        let Some(machine) = self.of(conversation, client, &put.server) else { return Vec::new() };
        match &put.what {
            Told::Client { text, labels } => {
                machine.tell_labels(*labels);
                machine.from_client(conversation, text.as_bytes())
            }
            Told::Server(text) => machine.from_server(conversation, text.as_bytes()),
            Told::Failed { id, why } => machine.failed(conversation, id, why),
            Told::Unsent { id, why } => machine.unsent(id, why),
            Told::Pinned { pins, accept_new } => {
                machine.pin(pins, *accept_new);
                Vec::new()
            }
            Told::Decided { question, said } => machine.decided(conversation, question, said),
        }
    }

    fn judged(&mut self, server: &str) -> Vec<Judged> {
        self.machines.get_mut(server).map(Proxy::judged).unwrap_or_default()
    }

    /// Returns the number of JSON values in the messages of clients and servers.
    pub(super) fn values(&self) -> usize {
        self.values
    }

    /// Returns whether inputs of a machine are not stored yet.
    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }
}

fn settings(client: &Client, server: &Server, conversation: &Conversation) -> Settings {
    Settings {
        is_interactive: client.asks_in_front,
        names: Some(conversation.nonce_of(&server.name)),
        asks_elsewhere: true,
        // The size of the whole conversation is bounded elsewhere.
        limits: Limits { session: usize::MAX, ..Limits::default() },
        ..Settings::new(&server.name)
    }
}

impl Session {
    /// Hands an input to the machine of a server. Returns the actions that follow, and the verdicts.
    pub(crate) fn put(&mut self, client: &Client, put: Put) -> (Vec<Out>, Vec<Judged>) {
        let chat = self.conversation.inputs();
        if !chat.is_empty() {
            self.machines.steps.push(Step::Chat(chat));
        }
        let out = self.machines.put(&mut self.conversation, client, &put);
        let judged = self.machines.judged(&put.server);
        self.machines.steps.push(Step::Server(put));
        (out, judged)
    }

    /// Returns the actions for a server's message that changes nothing and is therefore not stored; `None` if it must
    /// be processed as an input.
    pub(crate) fn overhear(&mut self, client: &Client, server: &str, text: &str) -> Option<Vec<Out>> {
        let machine = self.machines.of(&self.conversation, client, server)?;
        machine.overhear(&mut self.conversation, text.as_bytes())
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
    pub(super) fn row(&mut self) -> serde_json::Result<String> {
        let (chat, answers) = (self.conversation.inputs(), self.answers.answered());
        if self.machines.steps.is_empty() && answers.is_empty() {
            return serde_json::to_string(&chat);
        }
        let mut steps = std::mem::take(&mut self.machines.steps);
        if !chat.is_empty() {
            steps.push(Step::Chat(chat));
        }
        serde_json::to_string(&Row { steps, answers })
    }

    /// Replays one stored row. Returns its verdicts, or `None` if the replay diverges.
    pub(super) fn again(&mut self, client: &super::clients::Known, row: &str) -> Option<Vec<Judged>> {
        let mut own = client.for_replay();
        let mut judged = Vec::new();
        let Row { steps, answers } = Row::read(row).ok()?;
        self.answers.again(answers);
        for step in steps {
            let (inputs, put) = match step {
                Step::Chat(inputs) => (inputs, None),
                Step::Server(put) => (Vec::new(), Some(put)),
            };
            if let Some(put) = put {
                self.machines.put(&mut self.conversation, &client.spec, &put);
                judged.extend(self.machines.judged(&put.server));
            }
            // The history of the client includes what it was shown by machines.
            judged.extend(self.conversation.again(&mut own, &mut self.history, &inputs).ok()?);
        }
        // Calls that ran were recorded when they first ran.
        self.conversation.taken();
        Some(judged)
    }
}

/// The stored form of a turn that has more than chat inputs.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    steps: Vec<Step>,
    /// The answers of extern predicates in this turn.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answered>,
}

impl Row {
    /// Reads a stored row: a list, if it has only chat inputs.
    fn read(row: &str) -> serde_json::Result<Self> {
        if row.starts_with('[') {
            let steps = vec![Step::Chat(serde_json::from_str(row)?)];
            return Ok(Self { steps, answers: Vec::new() });
        }
        serde_json::from_str(row)
    }
}
