//! Serves a stored conversation to the page, with its labels and verdicts, and its trace to `flowgate trace export`.
//! `http::service` calls [`ModelRoutes::requested_conversation`], and then [`RequestedConversation::show`] or
//! [`RequestedConversation::export`] on one of a bounded number of worker threads.
//!
//! The conversation is replayed from its journal, as by `flowgate trace export`; it is not changed.

use std::sync::Arc;

use axum::http::{HeaderMap, StatusCode};
use flowgate::monitor::Monitor;
use flowgate_guard::conversation::CallVerdict;
use serde_json::{Value, json};

use super::exported_trace;
use super::labelled_trace::LabelledTrace;
use super::query::Query;
use crate::approvals::clearance::ReadBound;
use crate::chat::ModelRoutes;
use crate::chat::clients::ClientState;
use crate::chat::conversations;
use crate::config::{Person, Role};
use crate::database::ConversationJournal;
use crate::http::reply::HttpReply;
use crate::http::value_budget::ValueBudgetShare;
use crate::limits::estimated_memory;

/// The most bytes of the journal of a conversation that the page shows.
const MAX_JOURNAL: usize = 4 << 20;

/// A conversation that a person may see, before its replay.
#[derive(Debug)]
pub(crate) struct RequestedConversation {
    client: Arc<ClientState>,
    name: String,
    journal: ConversationJournal,
    /// The number of the first event in the answer.
    from: usize,
    person: Arc<Person>,
    /// The memory of the replayed values.
    _memory: ValueBudgetShare,
}

impl ModelRoutes {
    /// Reads the conversation with the `client` and the `name` in the query of the request, if the person may see its
    /// tenant. The query can also have the number of the first event to show (`from`).
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated, there is no such conversation, its policy or settings have
    /// changed, it is too large, or the gateway has no room for it now.
    pub(crate) async fn requested_conversation(
        self: &Arc<Self>,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<RequestedConversation, HttpReply> {
        // Reads the journal of a conversation that the person may see.
        let person = self.approvals.person(headers, Role::Viewer)?;
        let query = Query::read(query, &["client", "name", "from"])?;
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
        let journal = self.approvals.store.read_journal(&client.spec.name, name).await;
        let journal = journal.map_err(|error| HttpReply::of_database_error(&error))?.ok_or_else(unknown)?;
        // Checks whether it can be replayed, and reserves the memory for the replay.
        if journal.config_fingerprint != client.spec.config_fingerprint {
            let message = "the policy or the settings of the client have changed since this conversation began, so it \
                cannot be replayed: choose a conversation that began after the change";
            return Err(HttpReply::detail(StatusCode::CONFLICT, message));
        }
        let bytes: usize = journal.inputs.iter().map(String::len).sum();
        if bytes > MAX_JOURNAL {
            let message = "this conversation is too large to be shown: use `flowgate trace export --config`";
            return Err(HttpReply::detail(StatusCode::PAYLOAD_TOO_LARGE, message));
        }
        let memory: usize = journal.inputs.iter().map(|turn| estimated_memory(turn.as_bytes())).sum();
        let memory = self.values.take_for_conversation(memory).map_err(|_| {
            let message = "the gateway has no room for this conversation now: try again later";
            HttpReply::detail(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let name = name.to_owned();
        Ok(RequestedConversation { client, name, journal, from, person, _memory: memory })
    }
}

impl RequestedConversation {
    /// Replays the conversation, and returns the reply with its events from number `from` on, as the person may see
    /// them. The reply is an error if the replay diverges from the recorded state.
    pub(crate) fn show(self) -> HttpReply {
        let from = self.from;
        self.reply(&mut |monitor, judged, clearance| {
            LabelledTrace::new(monitor, clearance).page(from, &judged)
        })
    }

    /// Replays the conversation, and returns the reply with the lines of its trace from number `from` on, as the person
    /// may see them. The reply is an error if the replay diverges from the recorded state.
    pub(crate) fn export(self) -> HttpReply {
        let from = self.from;
        self.reply(&mut |monitor, _, clearance| exported_trace::page(monitor, &clearance, from))
    }

    /// Replays the conversation, and returns the reply with what `view` returns at its end, and with the names of the
    /// client and of the conversation. `view` receives the verdicts, and the clearance of the person.
    fn reply(&self, view: &mut dyn FnMut(&Monitor, Vec<CallVerdict>, ReadBound) -> Value) -> HttpReply {
        // Set by the closure, which `replay_with` calls once after the last turn.
        let mut trace = Value::Null;
        let ConversationJournal { key, inputs, .. } = &self.journal;
        let replayed = conversations::replay_with(&self.client, key, inputs, &mut |monitor, judged| {
            let clearance = self.person.may_read.bound_under(monitor.policy().space(), monitor.name_table());
            trace = view(monitor, judged, clearance);
        });
        if let Err(failure) = replayed {
            return HttpReply::detail(StatusCode::CONFLICT, &failure.message);
        }
        if let Some(fields) = trace.as_object_mut() {
            fields.insert("client".to_owned(), json!(self.client.spec.name));
            fields.insert("conversation".to_owned(), json!(self.name));
        }
        HttpReply::json(StatusCode::OK, &trace)
    }
}
