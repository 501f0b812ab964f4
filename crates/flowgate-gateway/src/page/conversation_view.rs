//! Serves a stored conversation to the page, with its labels and verdicts, and its trace to `flowgate trace export`.
//! `http::service` calls [`ModelRoutes::requested_conversation`], and then [`FoundConversation::show`] or
//! [`FoundConversation::export`] on one of a bounded number of worker threads.
//!
//! The conversation is replayed from its journal, and not changed. If its policy or the settings of its client have
//! changed since, it is shown as its next request would find it: with the labels of the present policy, and without the
//! verdicts of the earlier one. A page that shows a conversation sends the version of the last answer; the journal is
//! read and replayed again only if the version has changed.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::Monitor;
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Map, Value, json};

use super::exported_trace;
use super::labelled_trace::LabelledTrace;
use super::query::Query;
use crate::approvals::clearance::ReadBound;
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::chat::conversations::{self, MEMORY_OF_A_BYTE};
use crate::config::{Person, Role};
use crate::database::{ConversationJournal, ShownTexts};
use crate::http::reply::HttpReply;
use crate::http::value_budget::ValueBudgetShare;
use crate::limits::estimated_memory;

/// The most bytes of the journal of a conversation that the page shows.
const MAX_JOURNAL: usize = 4 << 20;

/// The result of looking up a requested conversation that the person may see.
#[derive(Debug)]
pub(crate) enum FoundConversation {
    /// The page has shown this version already.
    Unchanged(String),
    /// The page has not shown the present version: the conversation has to be replayed.
    Journal(Box<RequestedConversation>),
}

/// A conversation that a person may see, before its replay.
#[derive(Debug)]
pub(crate) struct RequestedConversation {
    client: Arc<ClientState>,
    name: String,
    journal: ConversationJournal,
    /// The number of the first event in the answer.
    from: usize,
    version: String,
    /// The texts that the client was shown, if the conversation began under another policy or other settings.
    earlier: Option<ShownTexts>,
    person: Arc<Person>,
    /// The memory of the replayed values.
    _memory: ValueBudgetShare,
}

impl ModelRoutes {
    /// Reads the conversation with the `client` and the `name` in the query of the request, if the person may see
    /// its tenant. The query can also have the number of the first event to show (`from`), and the `version` of an
    /// earlier answer: if it is still the present one, nothing else is read, and the result says that the
    /// conversation is unchanged.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated, the query is malformed, there is no such conversation, it
    /// is too large, the database fails, or the gateway has no room for the conversation now.
    pub(crate) async fn requested_conversation(
        self: &Arc<Self>,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<FoundConversation, HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        let query = Query::read(query, &["client", "name", "from", "version"])?;
        let (client, name) = (query.required("client")?, query.required("name")?);
        let from = query.number("from")?.unwrap_or(0);
        let unknown = || {
            let message = "there is no conversation of this name, or it is of a tenant that you may not see: \
                choose one from the list of conversations";
            HttpReply::detail(StatusCode::NOT_FOUND, message)
        };
        let client =
            self.clients.find_by_name(client).filter(|client| person.sees_tenant(&client.spec.tenant));
        let client = client.ok_or_else(unknown)?;
        if let Some(known) = query.text("version") {
            let length = self.approvals.store.conversation_length(&client.spec.name, name).await;
            let length = length.map_err(|error| HttpReply::of_database_error(&error))?;
            let (id, turns) = length.ok_or_else(unknown)?;
            if version(id, turns, &client) == known {
                return Ok(FoundConversation::Unchanged(known.to_owned()));
            }
        }
        let journal = self.approvals.store.read_journal(&client.spec.name, name).await;
        let journal = journal.map_err(|error| HttpReply::of_database_error(&error))?.ok_or_else(unknown)?;
        let turns = i64::try_from(journal.inputs.len()).unwrap_or(i64::MAX);
        let version = version(journal.id, turns, &client);
        let is_earlier = journal.config_fingerprint != client.spec.config_fingerprint;
        // The replay needs memory, so the journal may not be too large.
        let bytes: usize = journal.inputs.iter().map(String::len).sum();
        if bytes > MAX_JOURNAL {
            let message = "this conversation is too large to be shown: use `flowgate trace export --config`";
            return Err(HttpReply::detail(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        // To carry over a conversation, all texts that its client was shown (from number 0 on) are needed.
        let earlier = match is_earlier {
            true => Some(self.approvals.store.shown_texts(&client.spec.name, 0).await),
            false => None,
        };
        let earlier = earlier.transpose().map_err(|error| HttpReply::of_database_error(&error))?;
        let memory = replay_memory(&journal, earlier.as_ref());
        let memory = self.values.take_for_conversation(memory).map_err(|_| {
            let message = "the gateway has no memory left for this conversation now: try again later";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let name = name.to_owned();
        Ok(FoundConversation::Journal(Box::new(RequestedConversation {
            client,
            name,
            journal,
            from,
            version,
            earlier,
            person,
            _memory: memory,
        })))
    }
}

/// Estimates the memory for the replay of a journal: for the values of its inputs, and for the texts that the client
/// was shown, if they are needed.
fn replay_memory(journal: &ConversationJournal, shown: Option<&ShownTexts>) -> usize {
    let texts = shown.into_iter().flat_map(|shown| &shown.texts);
    let remembered: usize = texts.map(|text| text.text.as_str().len() * MEMORY_OF_A_BYTE).sum();
    let turns = journal.inputs.iter().map(|turn| estimated_memory(turn.as_bytes()));
    turns.sum::<usize>().saturating_add(remembered)
}

/// Returns the version of a conversation. It changes whenever the view of the conversation can change: with the number
/// of its turns, which are never changed under the same settings, and with the settings of its client. `id` is the
/// number of the conversation in the database.
fn version(id: i64, turns: i64, client: &ClientState) -> String {
    format!("{id}.{turns}.{}", client.generation)
}

impl FoundConversation {
    /// Returns the reply of [`RequestedConversation::show`]; if the page knows the conversation already, the reply says
    /// so.
    pub(crate) fn show(self) -> HttpReply {
        match self {
            Self::Unchanged(version) => {
                HttpReply::json(StatusCode::OK, &json!({"version": version, "is_unchanged": true}))
            }
            Self::Journal(requested) => requested.show(),
        }
    }

    /// Returns the reply of [`RequestedConversation::export`].
    pub(crate) fn export(self) -> HttpReply {
        match self {
            Self::Unchanged(_) => self.show(),
            Self::Journal(requested) => requested.export(),
        }
    }
}

impl RequestedConversation {
    /// Replays the conversation, and returns the reply with its events from number `from` on, as the person may see
    /// them. The reply is an error if the replay diverges from the recorded state, or the conversation cannot be shown
    /// under the present policy.
    fn show(self) -> HttpReply {
        let (from, version, is_carried_over) = (self.from, self.version.clone(), self.earlier.is_some());
        let mut reply = self.replayed(&mut |monitor, judged, clearance| {
            LabelledTrace::new(monitor, clearance).page(from, &judged)
        });
        if let Ok(fields) = &mut reply {
            fields.insert("version".to_owned(), json!(version));
            fields.insert("is_carried_over".to_owned(), json!(is_carried_over));
        }
        reply_of(reply)
    }

    /// Replays the conversation, and returns the reply with the lines of its trace from number `from` on, as the person
    /// may see them. The reply is an error as in [`Self::show`].
    fn export(self) -> HttpReply {
        let from = self.from;
        reply_of(self.replayed(&mut |monitor, _, clearance| exported_trace::page(monitor, &clearance, from)))
    }

    /// Replays the conversation, or carries it over to the present policy if it began under another one. Then calls
    /// `view`, and returns its result with the names of the client and of the conversation. `view` receives the
    /// monitor, the verdicts (none if the conversation was carried over) and the clearance of the person.
    ///
    /// # Errors
    /// The reply to send if the conversation cannot be replayed.
    fn replayed(
        self,
        view: &mut dyn FnMut(&Monitor, Vec<CallVerdict>, ReadBound) -> Value,
    ) -> Result<Map<String, Value>, HttpReply> {
        // Set by the closure, which the replay calls once after the last turn.
        let mut shown = Value::Null;
        let mut at_end = |monitor: &Monitor, judged: Vec<CallVerdict>| {
            let clearance = self.person.may_read.bound_under(monitor.policy().space(), monitor.name_table());
            shown = view(monitor, judged, clearance);
        };
        let ConversationJournal { key, inputs, .. } = &self.journal;
        let replayed = match self.earlier {
            None => conversations::replay_with(&self.client, key, inputs, &mut at_end),
            Some(texts) => {
                let profile = conversations::profile_with(&self.client, texts);
                conversations::replay_carried_over(&self.client, (key, inputs), profile, &mut |monitor| {
                    at_end(monitor, Vec::new());
                })
            }
        };
        replayed.map_err(|failure| HttpReply::detail(StatusCode::CONFLICT, &failure.message))?;
        // `view` always returns an object.
        let Value::Object(mut fields) = shown else { return Ok(Map::new()) };
        fields.insert("client".to_owned(), json!(self.client.spec.name));
        fields.insert("conversation".to_owned(), json!(self.name));
        Ok(fields)
    }
}

/// Returns the reply with these fields, or the error.
fn reply_of(fields: Result<Map<String, Value>, HttpReply>) -> HttpReply {
    fields.map_or_else(|error| error, |fields| HttpReply::json(StatusCode::OK, &Value::Object(fields)))
}
