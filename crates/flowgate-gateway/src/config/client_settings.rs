//! Defines the settings of a client ([`ClientSettings`]), as `client` reads them from a section `[clients.NAME]`. The
//! whole gateway uses them. [`ClientSettings`] also translates names of tools: a client offers a tool of an MCP server
//! to its model under the server's `prefix` and the name of the tool, but a policy names the tool as `SERVER/TOOL`.

use std::sync::Arc;
use std::time::Duration;

use flowgate::policy::Policy;
use flowgate::trace::Tool;
use flowgate_guard::conversation::StepLabelling;
use flowgate_guard::history::MessageTemplate;
use flowgate_guard::method::Method;
use flowgate_lm::wire::SafeguardAnswer;
use serde_json::{Map, Value};

use super::{Budget, FallbackUpstream, McpServer, SystemMessageTrust, UpstreamConfig, UserMessageTrust};
use crate::identity::client_token::ClientToken;
use crate::predicates::PredicateSources;
use crate::secret::Secret;
use crate::tls::client_certificate::CertificateName;
use crate::watching::ClientWatch;

/// A client and its settings.
#[derive(Debug)]
pub struct ClientSettings {
    /// Its name, which is that of its section `[clients.NAME]`.
    pub name: String,
    /// The key that it sends, if it has one. A client without a key has a certificate or sends tokens.
    pub key: Option<Secret>,
    /// The name in the certificate that it presents, if it must present one.
    pub certificate: Option<CertificateName>,
    /// The tokens that authenticate it, if any do.
    pub(crate) token: Option<ClientToken>,
    /// The time until its questions expire.
    pub approval_ttl: Duration,
    /// The name of its owner, the person on whose behalf it acts. The owner never decides its questions.
    pub owner: Option<String>,
    /// Its tenant: clients of one tenant share the labels of stores.
    pub tenant: String,
    /// The policy under which its conversations run: its own or, in watch mode, one that permits everything.
    pub policy: Arc<Policy>,
    /// Its own policy and the log of verdicts, in watch mode.
    pub watch: Option<ClientWatch>,
    /// The file of the policy, as the configuration names it.
    pub policy_file: String,
    /// The services and modules that answer the policy's extern predicates.
    pub predicates: PredicateSources,
    /// The digest of the policy and all other settings that a replay of its conversations depends on.
    pub config_fingerprint: String,
    /// The upstream of its requests to a model, if it may send any.
    pub upstream: Option<Arc<UpstreamConfig>>,
    /// The upstreams that are asked, in this order, if `upstream` cannot answer.
    pub fallback: Vec<FallbackUpstream>,
    /// The MCP servers that it may use.
    pub servers: Vec<Arc<McpServer>>,
    /// The model that screens and fills slots; the requested model, if none is set.
    pub small_model: Option<String>,
    /// The method that chooses the view of each step.
    pub method: Method,
    /// How the steps are labelled.
    pub step_labels: StepLabelling,
    /// Whether a person uses it interactively.
    pub interactive: bool,
    /// The extent to which its user messages are trusted.
    pub user_messages: UserMessageTrust,
    /// The extent to which its system messages are trusted.
    pub system_messages: SystemMessageTrust,
    /// What the gateway answers if the client asks for verdicts on calls.
    pub safeguards: SafeguardAnswer,
    /// Whether it is another gateway that may ask for judgements of its chats.
    pub guardrail: bool,
    /// Whether the file sets `interactive` but not `user-messages`. The user messages are then untrusted, and the
    /// operator receives advice: a person who can be asked did not necessarily write the messages.
    pub is_interactive_alone: bool,
    /// The limit on the texts that are remembered of what it was shown. The unit is a window of text: there is about
    /// one for each byte of normalised text.
    pub quotations: usize,
    /// The retention time of the remembered texts.
    pub quotation_age: Duration,
    /// Whether the person who uses the client interactively decides the policy's questions about calls of MCP servers:
    /// only if no approver is configured for the client.
    pub asks_its_user: bool,
    /// Message templates that the operator has pinned.
    pub pinned: Vec<MessageTemplate>,
    /// The parameters of its policy: the values of `input.NAME`.
    pub input: Map<String, Value>,
    /// The most requests that it may send per minute.
    pub requests_per_minute: u32,
    /// What its models may use on one day.
    pub budget: Budget,
    /// The most requests that it may send in parallel.
    pub parallel: usize,
    /// The most conversations that the database stores for it.
    pub sessions: usize,
}

impl ClientSettings {
    /// Returns the policy that the configuration file names for the client. In watch mode, the gateway only reports
    /// what this policy would do, and enforces a permissive one (`policy`).
    pub fn own_policy(&self) -> &Arc<Policy> {
        self.watch.as_ref().map_or(&self.policy, |watch| &watch.policy)
    }

    /// Returns the upstream that receives the client's requests for a model.
    ///
    /// # Errors
    /// If the configuration gives the client no upstream.
    pub(crate) fn upstream(&self) -> Result<&UpstreamConfig, &'static str> {
        self.upstream
            .as_deref()
            .ok_or("this client has no model: its operator can give it one with `upstream` in [clients.NAME]")
    }

    /// Returns the upstreams that may answer the client's requests for a model, in the order in which they are asked.
    pub(crate) fn upstreams(&self) -> impl Iterator<Item = &UpstreamConfig> {
        let others = self.fallback.iter().map(|further| &*further.upstream);
        self.upstream.as_deref().into_iter().chain(others)
    }

    /// Returns the MCP server of this name, if the client may use it.
    pub(crate) fn server(&self, name: &str) -> Option<&Arc<McpServer>> {
        self.servers.iter().find(|server| server.name == name)
    }

    /// Returns the tool that the client offers its model under a name: the tool of a server if the name begins with the
    /// server's prefix, otherwise a tool of the client itself.
    pub(crate) fn tool_of(&self, name: &str) -> Tool {
        // The server whose prefix the name begins with, and the rest of the name.
        let mut servers = self.servers.iter();
        let server_and_rest =
            servers.find_map(|server| Some((server, name.strip_prefix(server.prefix.as_deref()?)?)));
        match server_and_rest {
            // A name that is nothing but the prefix names no tool of the server.
            Some((server, rest)) if !rest.is_empty() => Tool::of(&server.name, rest),
            _ => Tool::local(name),
        }
    }

    /// Returns the name under which the client offers a tool to its model; the inverse of [`tool_of`](Self::tool_of). A
    /// tool without a server, or of a server without a prefix, has its own name.
    pub(crate) fn name_of(&self, tool: &Tool) -> String {
        let server = tool.server.as_deref().and_then(|name| self.server(name));
        let prefix = server.and_then(|server| server.prefix.as_deref()).unwrap_or_default();
        format!("{prefix}{}", tool.name)
    }
}
