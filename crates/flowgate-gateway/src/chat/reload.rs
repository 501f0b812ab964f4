//! Replaces the clients, policies, upstreams and people of a running gateway by those of a reloaded configuration.
//! `http::service` calls it for a reload.
//!
//! The new routes share with the earlier ones what the process has opened and counted: the database, the audit log, the
//! conversations in memory, the questions and the statistics. Turns that have begun end under the earlier
//! configuration. A conversation whose policy has changed is carried over to the new policy at its next request.

use std::sync::Arc;

use flowgate_audit::ConfigurationCause;
use tokio_util::sync::CancellationToken;

use super::{ModelRoutes, announce_clients, maintenance};
use crate::approvals::people::People;
use crate::config::{ClientSettings, GatewayConfig};
use crate::database::DatabaseError;
use crate::policy_review::ReviewRuns;

/// What a reload has changed, by the names in the configuration file.
#[derive(Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(crate) struct ReloadSummary {
    /// The clients that are new.
    pub(crate) added: Vec<String>,
    /// The clients that are gone: their keys are refused.
    pub(crate) removed: Vec<String>,
    /// The clients whose policy has changed, or another setting on which their conversations depend.
    pub(crate) changed: Vec<String>,
    /// The sections that have changed and take effect only at the next start.
    pub(crate) needs_restart: Vec<String>,
}

impl ModelRoutes {
    /// Creates the routes under a reloaded configuration, and records in the audit log that it takes effect because of
    /// `cause`. The caller then serves the new routes instead of these, and calls [`Self::replace_by`].
    ///
    /// # Errors
    /// If the reload cannot be recorded, or the log of a client in watch mode cannot be opened. These routes are
    /// unchanged then.
    pub(crate) fn reconfigured(
        &self,
        config: GatewayConfig,
        cause: ConfigurationCause,
    ) -> Result<Self, DatabaseError> {
        // Removes the new keys from log lines, and warns about clients in watch mode, after checking their watch logs.
        announce_clients(&config, &self.log)?;
        let GatewayConfig { clients, people, login, keys, .. } = config;
        self.recorder.reconfigure(&clients, &keys, cause)?;
        let people = People::new(people, login, &clients);
        let approvals = Arc::new(self.approvals.reconfigured(people, &clients));
        // The periodic task of the earlier service ends when that service is dropped.
        maintenance::spawn_expiry(&approvals, self.retention);
        let watching = clients.iter().filter(|client| client.watch.is_some()).count();
        let routes = Self {
            clients: self.clients.reconfigured(clients),
            sessions: Arc::clone(&self.sessions),
            approvals,
            recorder: self.recorder.clone(),
            answers: Arc::clone(&self.answers),
            pending: Arc::clone(&self.pending),
            log: self.log.clone(),
            values: self.values.clone(),
            closing: CancellationToken::new(),
            watching,
            figures: Arc::clone(&self.figures),
            coverage: Arc::clone(&self.coverage),
            metrics: Arc::clone(&self.metrics),
            telemetry: self.telemetry.clone(),
            remembered_chats: Arc::clone(&self.remembered_chats),
            handed_calls: Arc::clone(&self.handed_calls),
            // Evaluations of edited policies that have begun belong to the earlier routes, and end there.
            reviews: ReviewRuns::default(),
            // The sections under which the process was started, whatever the file has now.
            fixed_sections: self.fixed_sections.clone(),
            retention: self.retention,
        };
        // An issuer takes over the keys that are fetched already from the earlier issuer of the same name, if the keys
        // of both come from the same place.
        for issuer in routes.issuers() {
            let earlier =
                self.issuers().into_iter().find(|earlier| earlier.settings.name == issuer.settings.name);
            if let Some(earlier) = earlier {
                issuer.continue_from(earlier);
            }
        }
        routes.fetch_issuer_keys();
        Ok(routes)
    }

    /// Compares a reloaded configuration with the one that these routes serve, and returns what it changes.
    pub(crate) fn compare(&self, config: &GatewayConfig) -> ReloadSummary {
        let mut summary = ReloadSummary {
            needs_restart: self.fixed_sections.changed_in(&config.fixed_sections),
            ..ReloadSummary::default()
        };
        for client in &config.clients {
            match self.clients.find_by_name(&client.name) {
                None => summary.added.push(client.name.clone()),
                Some(earlier) if is_changed(&earlier.spec, client) => {
                    summary.changed.push(client.name.clone())
                }
                Some(_) => {}
            }
        }
        let is_gone = |name: &&String| config.clients.iter().all(|client| client.name != **name);
        let names = self.clients.all().map(|client| &client.spec.name);
        summary.removed = names.filter(is_gone).cloned().collect();
        summary
    }

    /// Ends what these routes do under the earlier configuration, since `later` has replaced them: listening streams,
    /// event streams, sessions of people whose key is gone, and requests of changed clients whose turn has not begun.
    pub(crate) fn replace_by(&self, later: &Self) {
        self.clients.replace_by(&later.clients);
        self.approvals.replace_by(&later.approvals);
        self.close();
    }
}

/// Returns whether the earlier and the later settings of a client differ in what its conversations depend on, or in its
/// own policy. In watch mode, conversations do not depend on that policy, so it is compared separately.
fn is_changed(earlier: &ClientSettings, later: &ClientSettings) -> bool {
    earlier.config_fingerprint != later.config_fingerprint
        || earlier.own_policy().source() != later.own_policy().source()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::{mistakes, schema};

    #[test]
    fn summaries_have_the_described_form() {
        let summary = ReloadSummary { added: vec!["a".to_owned()], ..ReloadSummary::default() };
        let found = mistakes(&serde_json::json!(summary), &schema("Reload"), "summary");
        assert_eq!(found, Vec::<String>::new());
    }
}
