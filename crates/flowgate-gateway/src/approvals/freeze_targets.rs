//! Looks up the target that an admin names in an order to freeze: a client or a server of the configuration, a standing
//! consent of a policy, a tool, a conversation, or the grants for the rest of a conversation. `routes` calls
//! [`FreezeTargets::find`] before it stores a freeze.
//!
//! A freeze under a misspelt name would stop nothing. `routes` therefore rejects a name that can never have a target
//! under this configuration. `routes` accepts the name of a tool or a conversation that has not occurred yet only if
//! the order says `in_advance`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::freezes::consents_of;
use crate::config::ClientSettings;
use crate::database::{Database, DatabaseError, FreezeKind};

/// The most tools of agents that are remembered; an order to freeze another one has to say `in_advance`.
const MAX_TOOLS: usize = 10_000;
/// The maximum length of the name of a remembered tool, in bytes: agents choose these names.
const MAX_TOOL_NAME: usize = 256;
/// The most known names that an error message lists.
const MAX_LISTED: usize = 20;

/// The names of all targets that can be frozen, except conversations and approved tools, which the database has.
#[derive(Debug, Default)]
pub(crate) struct FreezeTargets {
    /// The names of the servers of each client, by its name.
    clients: BTreeMap<String, BTreeSet<String>>,
    servers: BTreeSet<String>,
    /// The standing consents of all policies, each as `CLIENT:LINE-DIGEST`.
    consents: BTreeSet<String>,
    /// The server of each prefix that agents put before the names of its tools.
    prefixes: BTreeMap<String, String>,
    /// The tools that agents have offered since the gateway started.
    tools: Arc<Mutex<BTreeSet<String>>>,
}

/// The outcome of looking up a name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FreezeTargetMatch {
    /// The target exists. The JSON object lists what the freeze affects, by kind.
    Known(Value),
    /// There is no such target yet, but there may be one later. The message says why there is none.
    Unseen(String),
    /// There can be no such target under this configuration. The message says why.
    Impossible(String),
}

impl FreezeTargets {
    /// Collects the names in the configuration and the policies of these clients. Tools of agents are added when they
    /// are offered ([`Self::note_tools`]); conversations and approved tools are looked up in the database.
    pub(crate) fn of(clients: &[ClientSettings]) -> Self {
        let mut names = Self::default();
        for client in clients {
            let servers: BTreeSet<String> = client.servers.iter().map(|server| server.name.clone()).collect();
            names.servers.extend(servers.iter().cloned());
            names.clients.insert(client.name.clone(), servers);
            names.consents.extend(consents_of(client).map(|(name, _)| name));
            let prefixes = client
                .servers
                .iter()
                .filter_map(|server| Some((server.prefix.clone()?, server.name.clone())));
            // Every name begins with the empty prefix, so that prefix identifies no server.
            names.prefixes.extend(prefixes.filter(|(prefix, _)| !prefix.is_empty()));
        }
        names
    }

    /// Collects the names under a reloaded configuration. The tools that agents have offered remain known.
    pub(super) fn reconfigured(&self, clients: &[ClientSettings]) -> Self {
        Self { tools: Arc::clone(&self.tools), ..Self::of(clients) }
    }

    /// Remembers the tools that an agent offers, so that an admin can freeze them by name. Agents choose these names,
    /// so [`MAX_TOOLS`] and [`MAX_TOOL_NAME`] bound the memory; further tools are ignored, and can still be frozen in
    /// advance.
    pub(crate) fn note_tools(&self, tools: impl Iterator<Item = String>) {
        let mut offered_tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        for tool in tools.filter(|tool| tool.len() <= MAX_TOOL_NAME) {
            if offered_tools.len() < MAX_TOOLS {
                offered_tools.insert(tool);
            }
        }
    }

    /// Looks up `what`, the name in an admin's order, among the targets of this kind. Tools and conversations are also
    /// looked up in the database.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(crate) async fn find(
        &self,
        store: &Database,
        kind: FreezeKind,
        what: &str,
    ) -> Result<FreezeTargetMatch, DatabaseError> {
        Ok(match kind {
            FreezeKind::Client => self.client(what),
            FreezeKind::Server if self.servers.contains(what) => {
                FreezeTargetMatch::Known(json!({"servers": [what], "clients": self.clients_of(what)}))
            }
            FreezeKind::Server => FreezeTargetMatch::Impossible(no_such("server", &self.servers)),
            FreezeKind::Consent if self.consents.contains(what) => {
                FreezeTargetMatch::Known(json!({"consents": [what]}))
            }
            FreezeKind::Consent => {
                let consents = listed(&self.consents);
                let why = format!(
                    "no policy has this standing consent; known ones, in the form CLIENT:LINE-DIGEST, are: {consents}"
                );
                FreezeTargetMatch::Impossible(why)
            }
            // A freeze of grants names the conversation whose grants it stops.
            FreezeKind::Conversation | FreezeKind::Grants => self.conversation(store, what).await?,
            FreezeKind::Tool => self.tool(store, what).await?,
        })
    }

    /// Looks up the name of a client in the configuration. A name that is not there cannot have a target.
    fn client(&self, what: &str) -> FreezeTargetMatch {
        match self.clients.contains_key(what) {
            true => FreezeTargetMatch::Known(json!({"clients": [what]})),
            false => FreezeTargetMatch::Impossible(no_such("client", self.clients.keys())),
        }
    }

    /// Looks up the conversation named `CLIENT/NAME`: `Known` if the database has it, and `Unseen` if the client may
    /// create it later. `Impossible` if the configuration has no such client.
    ///
    /// # Errors
    /// If the database cannot be read.
    async fn conversation(&self, store: &Database, what: &str) -> Result<FreezeTargetMatch, DatabaseError> {
        // The names of clients and of conversations may contain slashes, so every slash of `what` is tried as the end
        // of the client's name.
        let of_client = |(client, _): &(&str, &str)| self.clients.contains_key(*client);
        let mut splits = what.match_indices('/').filter_map(|(at, _)| what.split_at_checked(at));
        let Some((client, name)) = splits.find(of_client) else {
            let why =
                format!("a conversation is named CLIENT/NAME; {}", no_such("client", self.clients.keys()));
            return Ok(FreezeTargetMatch::Impossible(why));
        };
        // `split_at_checked` leaves the slash at the beginning of the conversation's name.
        let name = name.strip_prefix('/').unwrap_or(name);
        Ok(match store.has_conversation(client, name).await? {
            true => FreezeTargetMatch::Known(json!({"conversations": [what]})),
            false => {
                FreezeTargetMatch::Unseen(format!("the client `{client}` has no conversation of this name"))
            }
        })
    }

    /// Looks up the tool `what`, named `SERVER/NAME`, or `NAME` for a tool of the agent. Agents call the tool NAME of a
    /// server by a prefix and NAME, such as `mail_send`, but freezes and logs call the same tool `mail/send`. An order
    /// that names `mail_send` is therefore rejected with a message that says to use `mail/send`, unless an agent offers
    /// a tool of its own named `mail_send`.
    ///
    /// # Errors
    /// If the database cannot be read.
    async fn tool(&self, store: &Database, what: &str) -> Result<FreezeTargetMatch, DatabaseError> {
        if what.is_empty() {
            return Ok(FreezeTargetMatch::Impossible(
                "`what` is empty: write the name of the tool, or SERVER/NAME".to_owned(),
            ));
        }
        // The message for a name with the prefix of a server; `None` if `what` has no such prefix.
        let advice = self.prefixes.iter().find_map(|(prefix, server)| {
            let rest = what.strip_prefix(prefix.as_str()).filter(|rest| !rest.is_empty())?;
            Some(format!("the gateway calls this tool `{server}/{rest}`; use that name"))
        });
        let (server, name) = match what.split_once('/') {
            Some((server, name)) => (Some(server), name),
            None => (None, what),
        };
        if let Some(server) = server.filter(|server| !self.servers.contains(*server)) {
            let why = format!(
                "the configuration has no server `{server}`; known servers are: {}",
                listed(&self.servers)
            );
            return Ok(FreezeTargetMatch::Impossible(why));
        }
        let is_offered = self.tools.lock().unwrap_or_else(PoisonError::into_inner).contains(what);
        // A tool of a server is known if any tenant has ever approved it.
        let is_known_of_server = match server {
            // Requests of MCP other than tool calls, such as `resources/read`, can be frozen like tools.
            Some(server) => {
                flowgate_mcp::freezable_methods().any(|method| method == name)
                    || store.was_tool_approved(server, name).await?
            }
            None => false,
        };
        Ok(match (is_offered || is_known_of_server, advice) {
            (true, _) => {
                // Every client may offer a tool of its own of this name, but only some use a given server.
                let clients = server
                    .map_or_else(|| self.clients.keys().cloned().collect(), |server| self.clients_of(server));
                FreezeTargetMatch::Known(json!({"tools": [what], "clients": clients}))
            }
            (false, Some(advice)) => FreezeTargetMatch::Impossible(advice),
            (false, None) => FreezeTargetMatch::Unseen(
                "no agent has offered a tool of this name since the gateway started, and no tool of this name was \
                ever approved for a server"
                    .to_owned(),
            ),
        })
    }

    /// Returns the names of the clients that use this server.
    fn clients_of(&self, server: &str) -> Vec<String> {
        self.clients
            .iter()
            .filter(|(_, servers)| servers.contains(server))
            .map(|(name, _)| name.clone())
            .collect()
    }
}

/// Returns the message that the configuration has no target of this name, with the names that it has.
fn no_such<'n>(kind: &str, known: impl IntoIterator<Item = &'n String>) -> String {
    format!("the configuration has no {kind} of this name; known ones are: {}", listed(known))
}

/// Joins names for an error message: at most [`MAX_LISTED`] of them, then the number of the rest; `none` without names.
fn listed<'n>(names: impl IntoIterator<Item = &'n String>) -> String {
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    match names.get(..MAX_LISTED) {
        Some(first) if names.len() > MAX_LISTED => {
            format!("{}, and {} more", first.join(", "), names.len() - MAX_LISTED)
        }
        _ if names.is_empty() => "none".to_owned(),
        _ => names.join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::DatabaseAddress;

    #[test]
    fn names_are_listed_up_to_a_bound() {
        let check = |count: usize, expected: &str| {
            let names: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
            assert_eq!(listed(&names), expected);
        };
        let most = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20";
        check(0, "none");
        check(1, "1");
        check(2, "1, 2");
        check(MAX_LISTED, most);
        check(MAX_LISTED + 1, &format!("{most}, and 1 more"));
        check(MAX_LISTED + 7, &format!("{most}, and 7 more"));
    }

    /// The memory for the tools that agents offer is bounded; a tool beyond the bound can only be frozen in advance.
    #[tokio::test]
    async fn tools_are_remembered_up_to_a_bound() {
        let (names, store) =
            (FreezeTargets::default(), Database::open(&DatabaseAddress::Memory).await.unwrap());
        names.note_tools((1..=MAX_TOOLS + 1).map(|number| number.to_string()));
        let last = MAX_TOOLS.to_string();
        let known = FreezeTargetMatch::Known(json!({"tools": [last], "clients": []}));
        assert_eq!(names.find(&store, FreezeKind::Tool, &last).await.unwrap(), known);
        let beyond = names.find(&store, FreezeKind::Tool, &(MAX_TOOLS + 1).to_string()).await.unwrap();
        assert!(matches!(beyond, FreezeTargetMatch::Unseen(_)), "{beyond:?}");
    }
}
