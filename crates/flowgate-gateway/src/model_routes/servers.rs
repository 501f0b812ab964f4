//! MCP servers behind the gateway: an agent's tools, in the same conversation as its chat.
//!
//! What a client and its servers say to each other passes the [machine](crate::mcp) between them, one for each server and
//! conversation. All of them, and the chat, share one monitor: what one server has shown counts when another one is called, or the
//! model. Nothing hangs on the session that MCP knows.
//!
//! What is put into a machine is kept with what is put into the chat, in its order, so that a conversation can be made again anywhere.
//!
//! * `exchange`: one request of a client, until it is answered. * `tools`: which tools are on offer. * `recorded`: what people in front of
//!   clients were asked.
//! * `listening`: what a server says unasked. * `upstream`: how a server is asked, `events` how it answers, `rest` how that
//!   goes on. * `way`: how a client is answered. * `headers`: what HTTP says of a message besides the message.

mod events;
pub(crate) mod exchange;
mod headers;
mod listening;
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
use crate::mcp::{Limits, Out, Pins, Proxy, Said, Settings};

/// What is put into a conversation, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// Into its chat.
    Chat(Vec<Input>),
    /// Into the machine of a server.
    Server(Put),
}

/// Something that is put into the machine of a server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Put {
    pub(crate) server: String,
    pub(crate) what: Told,
}

/// What a machine is told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    /// The client says this; if it wants to, it is told what the answer carries.
    Client {
        text: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        labels: bool,
    },
    /// The server says this.
    Server(String),
    /// The server was sent the request that it knows by this id, and does not answer it in a way that can be passed on.
    Failed { id: serde_json::Value, why: String },
    /// The server was not sent the request that has this id.
    Unsent { id: serde_json::Value, why: String },
    /// These tools were approved of by now.
    Pinned { pins: Pins, accept_new: bool },
    /// Somebody who was asked says this.
    Decided { question: String, said: Said },
}

/// The machines of one conversation.
#[derive(Debug, Default)]
pub(crate) struct Machines {
    machines: BTreeMap<String, Proxy>,
    /// What was put in and is not kept yet, if anything was put into a machine.
    steps: Vec<Step>,
}

impl Machines {
    /// The machine of a server, if the client has such a server.
    fn of(&mut self, conversation: &Conversation, client: &Client, name: &str) -> Option<&mut Proxy> {
        let server = client.server(name)?;
        let begun = || Proxy::new(settings(client, server, conversation));
        Some(self.machines.entry(name.to_owned()).or_insert_with(begun))
    }

    /// Hands something to the machine of a server; nothing comes of it if the client has no such server.
    fn put(&mut self, conversation: &mut Conversation, client: &Client, put: &Put) -> Vec<Out> {
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

    /// Whether something was put into a machine and is not kept.
    pub(super) fn has_steps(&self) -> bool {
        !self.steps.is_empty()
    }
}

fn settings(client: &Client, server: &Server, conversation: &Conversation) -> Settings {
    Settings {
        is_interactive: client.asks_in_front,
        names: Some(conversation.nonce_of(&server.name)),
        asks_elsewhere: true,
        // How much is put in is bounded for all of the conversation.
        limits: Limits { session: usize::MAX, ..Limits::default() },
        ..Settings::new(&server.name)
    }
}

impl Session {
    /// Hands something to the machine of a server. Returns what is to be done, and what was judged.
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

    /// What is to be done for a message of a server that changes nothing, and so is not kept. `None` if it is to be put in.
    pub(crate) fn overhear(&mut self, client: &Client, server: &str, text: &str) -> Option<Vec<Out>> {
        let machine = self.machines.of(&self.conversation, client, server)?;
        machine.overhear(&mut self.conversation, text.as_bytes())
    }

    /// The tools of a server that were approved of, as far as its machine knows.
    pub(crate) fn pins(&self, server: &str) -> Option<&Pins> {
        self.machines.machines.get(server)?.pins()
    }

    /// The question of a machine that is to be asked.
    pub(crate) fn question(&self, server: &str, name: &str) -> Option<&Question> {
        self.machines.machines.get(server)?.question(name)
    }

    /// What was put in since it was last taken out, as it is kept.
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

    /// Puts in again what was kept as one row. Returns what was judged; nothing if it does not come to the same.
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
            // What the client was shown is known, by whichever way.
            judged.extend(self.conversation.again(&mut own, &mut self.history, &inputs).ok()?);
        }
        // What ran then was recorded then.
        self.conversation.taken();
        Some(judged)
    }
}

/// What is kept of a turn with more than a chat in it.
#[derive(Debug, Serialize, Deserialize)]
struct Row {
    steps: Vec<Step>,
    /// What predicates were answered meanwhile.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<Answered>,
}

impl Row {
    /// What was put in, from how it is kept: a list if it is a chat and nothing else.
    fn read(row: &str) -> serde_json::Result<Self> {
        if row.starts_with('[') {
            let steps = vec![Step::Chat(serde_json::from_str(row)?)];
            return Ok(Self { steps, answers: Vec::new() });
        }
        serde_json::from_str(row)
    }
}
