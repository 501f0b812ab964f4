//! Serves the figures of the gateway (requests and verdicts over time, `figures`) to the page. `http::service` calls
//! it.

use std::time::Instant;

use axum::http::{HeaderMap, StatusCode};

use crate::chat::ModelRoutes;
use crate::config::Role;
use crate::http::reply::HttpReply;
use crate::policy_review::reads_everything;

impl ModelRoutes {
    /// Returns the reply with the figures of all clients together. Only people of all tenants receive it, since the
    /// figures reveal what clients of every tenant do. The table of findings names only clients of which the person may
    /// read everything: it has names of tools, which models can choose.
    ///
    /// # Errors
    /// The reply to send if the person is not authenticated, or is limited to some tenants.
    pub(crate) fn serve_figures(&self, headers: &HeaderMap) -> Result<HttpReply, HttpReply> {
        let person = self.approvals.person(headers, Role::Viewer)?;
        if !person.tenants.is_empty() {
            let message = "your role is limited to some tenants, but the figures are the sums of all clients: \
                ask a person of all tenants";
            return Err(HttpReply::detail(StatusCode::FORBIDDEN, message));
        }
        let shows_findings = |client: &str| {
            let client = self.clients.find_by_name(client);
            client.is_some_and(|client| reads_everything(&person, &client))
        };
        Ok(HttpReply::json(StatusCode::OK, &self.figures.to_json(Instant::now(), &shows_findings)))
    }
}
