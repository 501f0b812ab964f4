//! Replays stored conversations, so that their traces can be exported. `flowgate trace export` calls
//! [`read_stored_trace`], or [`read_every_stored_trace`] with `--all`, on the database of a gateway, which may be
//! running.

use std::sync::Arc;

use flowgate::monitor::Monitor;

use super::clients::{ClientState, Clients};
use super::{conversations, recheck};
use crate::config::GatewayConfig;
use crate::database::{Database, DatabaseError};

/// The outcome of the search for a stored conversation and of its replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredTraceOutcome {
    /// The conversation was replayed.
    Replayed,
    /// The configuration has no client of this name. Contains the names of its clients.
    UnknownClient(Vec<String>),
    /// The client has no stored conversation of this name. Contains the names of its stored conversations.
    UnknownConversation(Vec<String>),
    /// The conversation cannot be replayed: its policy or its client's settings have changed since, or its replay
    /// diverges. The text names the reason.
    Unreadable(String),
}

/// One of the stored conversations that [`read_every_stored_trace`] replays.
#[derive(Debug)]
pub struct StoredTrace<'a> {
    /// The name of the client.
    pub client: &'a str,
    /// The name of the conversation.
    pub conversation: &'a str,
    /// The monitor after the last turn, or the reason why the conversation cannot be replayed.
    pub replayed: Result<&'a Monitor, String>,
}

/// Replays the stored conversation `name` of a client from the database of a configuration, and calls `at_end` with the
/// monitor of the conversation after the last turn. If there is no such conversation, or its replay fails, `at_end` is
/// not called, and the outcome says why.
///
/// # Errors
/// If the database cannot be read.
pub fn read_stored_trace(
    config: GatewayConfig,
    client: &str,
    name: &str,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<StoredTraceOutcome, DatabaseError> {
    with_database(config, async |store, clients| {
        let Some(client) = clients.find_by_name(client) else {
            return Ok(StoredTraceOutcome::UnknownClient(names_of(clients)));
        };
        if let Some(outcome) = replay_stored(store, &client, name, at_end).await? {
            return Ok(outcome);
        }
        // The client has no conversation `name`: lists those that it has.
        let stored = store.conversations().await?;
        let own = stored.into_iter().filter(|listed| listed.client == client.spec.name);
        Ok(StoredTraceOutcome::UnknownConversation(own.map(|listed| listed.name).collect()))
    })
}

/// Replays every stored conversation of `client`, or of all clients if it is `None`, the oldest first, and calls `each`
/// once for each conversation, also for one that cannot be replayed. Returns [`StoredTraceOutcome::Replayed`] at the
/// end. If the configuration has no such client, returns [`StoredTraceOutcome::UnknownClient`] without a call of
/// `each`.
///
/// # Errors
/// If the database cannot be read.
pub fn read_every_stored_trace(
    config: GatewayConfig,
    client: Option<&str>,
    each: &mut dyn FnMut(StoredTrace<'_>),
) -> Result<StoredTraceOutcome, DatabaseError> {
    with_database(config, async |store, clients| {
        if client.is_some_and(|client| clients.find_by_name(client).is_none()) {
            return Ok(StoredTraceOutcome::UnknownClient(names_of(clients)));
        }
        for listed in store.conversations().await? {
            let is_wanted = client.is_none_or(|client| client == listed.client);
            if !is_wanted {
                continue;
            }
            let (client, conversation) = (listed.client.as_str(), listed.name.as_str());
            let Some(owner) = clients.find_by_name(&listed.client) else {
                let why = "the configuration no longer has a client of this name; add the client to it again";
                let why = why.to_owned();
                each(StoredTrace { client, conversation, replayed: Err(why) });
                continue;
            };
            // Receives the monitor at the end of the replay; it is not called if the replay fails.
            let mut at_end =
                |monitor: &Monitor| each(StoredTrace { client, conversation, replayed: Ok(monitor) });
            // `None` if a running gateway has deleted the conversation since it was listed: it is skipped.
            let outcome = replay_stored(store, &owner, &listed.name, &mut at_end).await?;
            if let Some(StoredTraceOutcome::Unreadable(why)) = outcome {
                each(StoredTrace { client, conversation, replayed: Err(why) });
            }
        }
        Ok(StoredTraceOutcome::Replayed)
    })
}

/// Opens the database of a configuration to read it, calls `body` with it and the clients, and closes it.
fn with_database<T>(
    config: GatewayConfig,
    body: impl AsyncFnOnce(&Database, &Clients) -> Result<T, DatabaseError>,
) -> Result<T, DatabaseError> {
    recheck::run_blocking(async {
        let store = Database::read_with_keys(&config.store.address, &config.store.encryption).await?;
        let clients = Clients::new(config.clients);
        store.close_after(async |store: &Database| body(store, &clients).await).await
    })
}

/// Returns the names of all clients.
fn names_of(clients: &Clients) -> Vec<String> {
    clients.all().map(|client| client.spec.name.clone()).collect()
}

/// Replays the stored conversation `name` of a client, and calls `at_end` with the monitor after it. The outcome is
/// [`StoredTraceOutcome::Replayed`], or [`StoredTraceOutcome::Unreadable`] if `at_end` was not called; `None` if the
/// client has no conversation of this name.
///
/// # Errors
/// If the database cannot be read.
async fn replay_stored(
    store: &Database,
    client: &Arc<ClientState>,
    name: &str,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<Option<StoredTraceOutcome>, DatabaseError> {
    let Some(journal) = store.read_journal(&client.spec.name, name).await? else { return Ok(None) };
    // `config_fingerprint` is a digest of the policy and of the settings on which the conversations of a client depend.
    if journal.config_fingerprint != client.spec.config_fingerprint {
        let why = "its policy or the settings of its client have changed since it began; restore them";
        return Ok(Some(StoredTraceOutcome::Unreadable(why.to_owned())));
    }
    // The verdicts on the calls are not needed.
    let mut at_end_of_replay = |monitor: &Monitor, _| at_end(monitor);
    let replayed = conversations::replay_with(client, &journal.key, &journal.inputs, &mut at_end_of_replay);
    Ok(Some(match replayed {
        Ok(()) => StoredTraceOutcome::Replayed,
        Err(failure) => StoredTraceOutcome::Unreadable(failure.message),
    }))
}
