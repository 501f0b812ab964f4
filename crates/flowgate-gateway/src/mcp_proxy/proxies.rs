//! Owns the MCP proxies of one conversation, one for each MCP server ([`flowgate_mcp::Proxy`], a state machine without
//! I/O), and hands each its inputs. `conversation_inputs` and the replay of stored turns call it.

use std::collections::BTreeMap;

use flowgate::monitor::{Outcome, Question};
use flowgate_audit::watch::WatchedVerdict;
use flowgate_guard::approve::QuestionCount;
use flowgate_guard::conversation::{CallVerdict, Conversation};
use flowgate_mcp::{Pins, Proxy, ProxyAction, ProxyDecision, ProxyLimits, ProxyRuling, ProxySettings};
use serde::{Deserialize, Serialize};

use crate::config::{ClientSettings, McpServer};
use crate::limits::count_values;

/// An input of a server's proxy, with the name of the server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ServerProxyEvent {
    pub(crate) server: String,
    pub(crate) what: ProxyEvent,
    /// What the policy decided about the input (its rulings). By these, the input can be replayed in a conversation
    /// under another policy. `None` in watch mode, and in a conversation that an earlier version of the gateway has
    /// stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rulings: Option<Vec<ProxyRuling>>,
    /// For an input that was carried over from a conversation under an earlier policy to one under the present policy:
    /// the word that the proxy puts into the request ids of the earlier conversation. `None` for every other input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) earlier: Option<String>,
}

impl ServerProxyEvent {
    /// Creates an input of a server's proxy about which the policy has decided nothing yet.
    pub(crate) fn new(server: String, what: ProxyEvent) -> Self {
        Self { server, what, rulings: None, earlier: None }
    }
}

/// The kinds of input of a proxy.
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
    /// The request with this id was sent to the server, but no answer can be forwarded, because of `why`.
    Failed { id: serde_json::Value, why: String },
    /// The request with this id was not sent to the server, because of `why`.
    Unsent { id: serde_json::Value, why: String },
    /// The tools that are approved now. With `accept_new`, further tools of the server's first list count as approved
    /// too.
    Pinned { pins: Pins, accept_new: bool },
    /// The decision on a question.
    Decided {
        question: String,
        #[serde(rename = "answer")]
        decision: ProxyDecision,
    },
}

/// The proxies of one conversation, by the name of the server.
#[derive(Debug, Default)]
pub(crate) struct ConversationProxies {
    proxies: BTreeMap<String, Proxy>,
    /// The questions that the person at the client was asked about calls of all servers.
    questions: QuestionCount,
    /// The number of JSON values in the messages of clients and servers.
    values: usize,
}

impl ConversationProxies {
    /// Returns the proxy of the server `name`, created at its first use; `None` if the client may not use this server.
    pub(crate) fn proxy_of(
        &mut self,
        conversation: &Conversation,
        client: &ClientSettings,
        name: &str,
    ) -> Option<&mut Proxy> {
        let server = client.server(name)?;
        let new_proxy = || {
            let mut proxy = Proxy::new(proxy_settings(client, server, conversation));
            // The rulings are stored with each input, so that the input can be carried over to another policy.
            proxy.record_rulings();
            proxy
        };
        Some(self.proxies.entry(name.to_owned()).or_insert_with(new_proxy))
    }

    /// Hands an input to the proxy of its server. The input was carried over from a conversation under an earlier
    /// policy. The proxy decides as that policy has ruled (`event.rulings`), so that its state becomes what it was.
    /// Returns whether the proxy could follow all of these rulings; `false` also if the client may not use this server
    /// any more, or the rulings are not known.
    pub(crate) fn carry_event(
        &mut self,
        conversation: &mut Conversation,
        client: &ClientSettings,
        event: &ServerProxyEvent,
    ) -> bool {
        // The request ids in the messages of the earlier conversation contain `id_word`.
        let (Some(rulings), Some(id_word)) = (&event.rulings, &event.earlier) else { return false };
        let Some(proxy) = self.proxy_of(conversation, client, &event.server) else { return false };
        proxy.begin_earlier_input(rulings, id_word);
        // Nothing is sent: everything was sent when the input was received.
        self.hand_over(conversation, client, event);
        self.proxies.get_mut(&event.server).is_some_and(Proxy::end_earlier_input)
    }

    /// Hands an input to the proxy of its server, and returns the resulting actions; none if the client may not use
    /// this server. Also counts the JSON values of messages, by which the memory of the conversation is estimated.
    pub(crate) fn handle_event(
        &mut self,
        conversation: &mut Conversation,
        client: &ClientSettings,
        event: &ServerProxyEvent,
    ) -> Vec<ProxyAction> {
        // This is an input of the present conversation: questions of an earlier one that are still open end here.
        if let Some(proxy) = self.proxy_of(conversation, client, &event.server) {
            proxy.end_earlier_conversation();
        }
        // Drops the rulings about messages that are not stored: they belong to no input.
        self.take_rulings(&event.server);
        self.hand_over(conversation, client, event)
    }

    /// Hands an input to the proxy of its server, and returns the resulting actions; none if the client may not use
    /// this server. The caller has told the proxy before whether it decides by the present policy or follows the
    /// rulings of an earlier one.
    fn hand_over(
        &mut self,
        conversation: &mut Conversation,
        client: &ClientSettings,
        event: &ServerProxyEvent,
    ) -> Vec<ProxyAction> {
        // The other inputs contain no message of the client or the server.
        if let ProxyEvent::Client { text, .. } | ProxyEvent::Server(text) = &event.what {
            self.values = self.values.saturating_add(count_values(text.as_bytes()));
        }
        let questions = self.questions;
        let Some(proxy) = self.proxy_of(conversation, client, &event.server) else { return Vec::new() };
        // One person is asked about the calls of all servers.
        proxy.set_question_count(questions);
        let actions = match &event.what {
            ProxyEvent::Client { text, labels } => {
                proxy.set_tells_labels(*labels);
                proxy.handle_client_message(conversation, text.as_bytes())
            }
            ProxyEvent::Server(text) => proxy.handle_server_message(conversation, text.as_bytes()),
            ProxyEvent::Failed { id, why } => proxy.handle_failed_request(conversation, id, why),
            ProxyEvent::Unsent { id, why } => proxy.handle_unsent_request(id, why),
            ProxyEvent::Pinned { pins, accept_new } => {
                proxy.pin(pins, *accept_new);
                Vec::new()
            }
            ProxyEvent::Decided { question, decision } => {
                proxy.handle_decision(conversation, question, decision)
            }
        };
        self.questions = proxy.question_count();
        actions
    }

    /// Returns and removes what the policy decided about the last input of a server's proxy; `None` if that is not
    /// recorded.
    pub(crate) fn take_rulings(&mut self, server: &str) -> Option<Vec<ProxyRuling>> {
        self.proxies.get_mut(server)?.take_rulings()
    }

    /// Returns and removes the verdicts on calls that a server's proxy has collected since the last call of this
    /// method.
    pub(crate) fn take_judgements(&mut self, server: &str) -> Vec<CallVerdict> {
        self.proxies.get_mut(server).map(Proxy::take_judgements).unwrap_or_default()
    }

    /// Returns and removes the verdicts in watch mode by which the proxies would have stopped something. Verdicts that
    /// permit are left out: in watch mode, the conversation runs under a policy that permits everything, so they say
    /// nothing about the watched policy.
    pub(crate) fn take_watched(&mut self) -> Vec<WatchedVerdict> {
        let watched = self.proxies.values_mut().flat_map(Proxy::take_watched);
        watched.filter(|verdict| verdict.outcome != Outcome::Permit).collect()
    }

    /// Returns the number of JSON values in the messages of clients and servers.
    pub(crate) fn value_count(&self) -> usize {
        self.values
    }

    /// Returns the approved tools of a server that its proxy received last; `None` if it has received none.
    pub(crate) fn pins(&self, server: &str) -> Option<&Pins> {
        self.proxies.get(server)?.pins()
    }

    /// Returns the open question `name` of a server's proxy; `None` if the proxy has no such question.
    pub(crate) fn question(&self, server: &str, name: &str) -> Option<&Question> {
        self.proxies.get(server)?.question(name)
    }
}

/// Returns the settings of the proxy between a client and a server in a conversation.
fn proxy_settings(client: &ClientSettings, server: &McpServer, conversation: &Conversation) -> ProxySettings {
    ProxySettings {
        is_interactive: client.asks_its_user,
        is_watching: client.watch.is_some(),
        // Several connections of the client may use the proxy, so it replaces their request ids by ids of the
        // conversation.
        id_word: Some(conversation.text_digest(&server.name)),
        // The gateway asks people where the client cannot.
        asks_elsewhere: true,
        // The size of the whole conversation is bounded elsewhere.
        limits: ProxyLimits { session: usize::MAX, ..ProxyLimits::default() },
        ..ProxySettings::new(&server.name)
    }
}
