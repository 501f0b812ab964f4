//! Replays one stored conversation, so that its trace can be exported. `flowgate trace export` calls
//! [`read_stored_trace`] on the database of a gateway, which may be running.

use flowgate::monitor::Monitor;

use super::clients::Clients;
use super::{conversations, recheck};
use crate::config::GatewayConfig;
use crate::database::{Database, DatabaseError};

/// The outcome of the search for a stored conversation and of its replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredTraceOutcome {
    /// The conversation was replayed.
    Replayed,
    /// The configuration has no client of this name; the names that it has.
    UnknownClient(Vec<String>),
    /// The client has no stored conversation of this name; the names of those that it has.
    UnknownConversation(Vec<String>),
    /// The conversation cannot be replayed: its policy or its client's settings have changed since, or its replay
    /// diverges. The text names the reason.
    Unreadable(String),
}

/// Replays the conversation `name` of a client, as the database of a configuration stores it, and calls `at_end` with
/// its monitor after the last turn. If there is no such conversation, or its replay fails, `at_end` is not called, and
/// the outcome says why.
///
/// # Errors
/// If the database cannot be read.
pub fn read_stored_trace(
    config: GatewayConfig,
    client: &str,
    name: &str,
    at_end: &mut dyn FnMut(&Monitor),
) -> Result<StoredTraceOutcome, DatabaseError> {
    recheck::run_blocking(async {
        let store = Database::read_with_keys(&config.store.address, &config.store.encryption).await?;
        let names = config.clients.iter().map(|client| client.name.clone()).collect();
        let clients = Clients::new(config.clients);
        store
            .close_after(async |store: &Database| {
                let Some(client) = clients.find_by_name(client) else {
                    return Ok(StoredTraceOutcome::UnknownClient(names));
                };
                let Some(journal) = store.read_journal(&client.spec.name, name).await? else {
                    let stored = store.conversations().await?;
                    let own = stored.into_iter().filter(|listed| listed.client == client.spec.name);
                    let names = own.map(|listed| listed.name).collect();
                    return Ok(StoredTraceOutcome::UnknownConversation(names));
                };
                // The digest of the policy and the settings under which the conversation began.
                if journal.config_fingerprint != client.spec.config_fingerprint {
                    let why =
                        "its policy or the settings of its client have changed since it began; restore them";
                    return Ok(StoredTraceOutcome::Unreadable(why.to_owned()));
                }
                // The verdicts on the calls are not needed.
                let mut at_end_of_replay = |monitor: &Monitor, _| at_end(monitor);
                let replayed =
                    conversations::replay_with(&client, &journal.key, &journal.inputs, &mut at_end_of_replay);
                Ok(match replayed {
                    Ok(()) => StoredTraceOutcome::Replayed,
                    Err(failure) => StoredTraceOutcome::Unreadable(failure.message),
                })
            })
            .await
    })
}
