//! Serves the list of the stored conversations that a person may see, newest first. Each answer has a part of the list.
//! `http::service` calls it.

use axum::http::{HeaderMap, StatusCode};
use serde_json::json;

use super::query::Query;
use crate::chat::ModelRoutes;
use crate::config::Role;
use crate::http::reply::HttpReply;

/// The most conversations of one answer.
const PAGE: usize = 50;
/// The number of conversations that one query of the database reads.
const CHUNK: i64 = 200;
/// The most queries for one answer. The queries read the conversations of all clients, so for a person of one tenant
/// many of them can be left out.
const MAX_QUERIES: usize = 20;

impl ModelRoutes {
    /// Lists conversations of the clients of the person's tenants, newest first, at most [`PAGE`]. The query can
    /// restrict the list to one client (`client`) and to conversations older than the one with a number (`before`). In
    /// the reply, `next` is the value of `before` for the next request, or null if no conversations are left. An answer
    /// can be empty although conversations are left, since the number of database queries for one answer is limited.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated, the query is malformed, or the database fails.
    pub(crate) async fn list_conversations(
        &self,
        headers: &HeaderMap,
        query: Option<&str>,
    ) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        let query = Query::read(query, &["client", "before"])?;
        let mut before = query.number("before")?.unwrap_or(i64::MAX);
        let clients: Vec<(&str, &str)> = (self.clients.all())
            .map(|client| (client.spec.name.as_str(), client.spec.tenant.as_str()))
            .filter(|(_, tenant)| person.sees_tenant(tenant))
            .collect();
        let is_chosen = |client: &str| query.text("client").is_none_or(|chosen| chosen == client);
        // `before` is the number of the last conversation that was examined, whether or not it is listed.
        let mut listed = Vec::new();
        // Whether no older conversation is stored.
        let mut is_end = false;
        for _ in 0..MAX_QUERIES {
            let read = self.approvals.store.newest_conversations(before, CHUNK).await;
            let read = read.map_err(|error| HttpReply::of_database_error(&error))?;
            is_end = i64::try_from(read.len()).is_ok_and(|count| count < CHUNK);
            for stored in read {
                // `None` if the conversation is not listed: the person may not see its tenant, or chose another client.
                let client = clients.iter().find(|(name, _)| *name == stored.client && is_chosen(name));
                if client.is_some() && listed.len() >= PAGE {
                    // This conversation is the first one of the next page.
                    is_end = false;
                    break;
                }
                before = stored.id;
                listed.extend(client.map(|(name, tenant)| {
                    json!({
                        "client": name,
                        "conversation": stored.name,
                        "tenant": tenant,
                        "turns": stored.turns,
                        "used": stored.used,
                    })
                }));
            }
            if is_end || listed.len() >= PAGE {
                break;
            }
        }
        let names: Vec<&str> = clients.iter().map(|(name, _)| *name).collect();
        let answer = json!({"clients": names, "conversations": listed, "next": (!is_end).then_some(before)});
        Ok(HttpReply::json(StatusCode::OK, &answer))
    }
}
