//! Serves the routes by which admins see how much text the gateway remembers for each client, and clear such texts. The
//! remembered texts are those that a client was shown; the guard compares new messages with them to recognise
//! quotations. The list names the sources of the texts, such as a tool, with the numbers, sizes and ages of the texts,
//! and never contains a text.
//!
//! Also collects the metrics about these texts, the issuers, the witnesses and the spans. `http::service` calls the
//! methods of this module.

use axum::http::{HeaderMap, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::ModelRoutes;
use crate::config::Role;
use crate::database::DatabaseError;
use crate::http::reply::HttpReply;
use crate::metrics::Metric;
use crate::witness::HeadDestinations;
use flowgate_audit::AuditEvent;

/// The body of a request to clear texts.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearQuotationsRequest {
    client: String,
    /// The source to clear; `None` clears all sources.
    source: Option<String>,
}

impl ModelRoutes {
    /// Lists, for each client of the admin's tenants, the sources of its remembered texts with their numbers, sizes
    /// and ages, and the limits on them.
    ///
    /// # Errors
    /// The reply to send if the request does not have the key of an admin, or the database fails.
    pub(crate) async fn quotations(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Admin)?;
        let mut listed_clients: Vec<Value> = Vec::new();
        for client in self.clients.all().filter(|client| person.sees_tenant(&client.spec.tenant)) {
            // `forgotten` counts how often texts of the client were forgotten: for room, for their age, or cleared.
            let (usages, forgotten) = self
                .sessions
                .store()
                .source_usages(&client.spec.name)
                .await
                .map_err(|error| database_error_reply(&error))?;
            let sources: Vec<Value> = usages
                .iter()
                .map(|usage| json!({"source": usage.source, "texts": usage.texts, "letters": usage.characters, "oldest": usage.oldest, "newest": usage.newest}))
                .collect();
            // The limits: on the texts of all sources together, and on those of one source.
            let room = client.spec.quotations;
            let most_of_source = room / flowgate_guard::history::SHARE;
            listed_clients.push(json!({
                "client": client.spec.name,
                "tenant": client.spec.tenant,
                "most_letters": room,
                "most_letters_of_a_source": most_of_source,
                "forgotten": forgotten,
                "sources": sources,
            }));
        }
        Ok(HttpReply::json(StatusCode::OK, &json!({"clients": listed_clients})))
    }

    /// Clears the remembered texts of a client, or those from one source, in all gateways that share the database.
    ///
    /// # Errors
    /// The reply to send if the person is not an admin of the client's tenant, or the request is malformed or cannot be
    /// carried out.
    pub(crate) async fn clear_quotations(
        &self,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Admin)?;
        let clear: ClearQuotationsRequest = serde_json::from_slice(body).map_err(|error| {
            let form = "{\"client\": \"...\", \"source\": \"...\"}";
            let message = format!(
                "the body of the request does not have the form `{form}`, in which `source` is optional: \
                {error}"
            );
            HttpReply::detail(StatusCode::BAD_REQUEST, &message)
        })?;
        let client =
            self.clients.find_by_name(&clear.client).filter(|client| person.sees_tenant(&client.spec.tenant));
        let Some(client) = client else {
            return Err(HttpReply::detail(
                StatusCode::NOT_FOUND,
                "the configuration has no client of this name that you may see: GET /api/v1/quotations lists the clients",
            ));
        };
        let event = AuditEvent::QuotationsCleared {
            client: clear.client.clone(),
            tenant: client.spec.tenant.clone(),
            what: clear.source.clone().unwrap_or_else(|| "all".to_owned()),
            who: person.name.clone(),
        };
        // Recorded first: an order that the audit log cannot record is not carried out.
        self.recorder.record(&[event.into()]).map_err(|error| database_error_reply(&error))?;
        let store = self.sessions.store();
        let cleared = store.clear_shown_texts(&clear.client, clear.source.as_deref()).await;
        // The texts are loaded again before their next use even if clearing failed, because the outcome may be unknown.
        client.reload_history().await;
        let cleared = cleared.map_err(|error| {
            let what = format!("quotations of {}", clear.client);
            self.recorder.record_unconfirmed(what, &person.name, &error);
            database_error_reply(&error)
        })?;
        Ok(HttpReply::json(StatusCode::OK, &json!({"client": clear.client, "cleared": cleared})))
    }

    /// Returns the metrics of the issuers of tokens, of the texts that clients were shown, of the witnesses that store
    /// heads of the audit log, and of the export of spans. A metric is its name, its description, its value, and
    /// whether it is a counter.
    pub(crate) fn figures(&self) -> [Metric; 6] {
        // The lines that are not yet delivered to the witnesses, and the failed deliveries; 0 without a witness.
        let (behind, failures) =
            self.recorder.witnesses().map(HeadDestinations::delivery_metrics).unwrap_or_default();
        let sum =
            |of: fn(&super::clients::ClientState) -> u64| self.clients.all().map(|client| of(client)).sum();
        let keyless = self.issuers().iter().filter(|issuer| issuer.key_count() == 0).count();
        [
            (
                "flowgate_issuers_without_keys",
                "Issuers of tokens whose keys could not be fetched: their tokens are refused.",
                u64::try_from(keyless).unwrap_or(u64::MAX),
                false,
            ),
            (
                "flowgate_quotations_forgotten_total",
                "Windows of texts shown to clients, about one for each byte, that the gateway has forgotten for lack of room.",
                sum(super::clients::ClientState::forgotten_windows),
                true,
            ),
            (
                "flowgate_quotation_bits_total",
                "Upper bound, in bits, on what may be learned about texts shown to clients from which words of users are hidden.",
                sum(super::clients::ClientState::leaked_bits),
                true,
            ),
            (
                "flowgate_witness_behind_lines",
                "Lines of the audit log that were not delivered to a witness.",
                behind,
                false,
            ),
            (
                "flowgate_witness_failures_total",
                "Failed deliveries to a witness of the audit log.",
                failures,
                true,
            ),
            (
                "flowgate_spans_dropped_total",
                "Spans that were dropped, because the queue was full or the collector did not take them.",
                self.telemetry.dropped_spans(),
                true,
            ),
        ]
    }
}

/// Returns the reply to a request for which the database or the audit log failed.
fn database_error_reply(error: &DatabaseError) -> HttpReply {
    HttpReply::of_database_error(error)
}
