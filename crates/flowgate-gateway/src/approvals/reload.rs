//! Replaces the [`ApprovalService`] when the configuration is reloaded: creates a service with the people and the
//! freeze targets of the new configuration, and ends the event streams of the earlier service. `chat::reload` calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ApprovalService;
use super::people::People;
use crate::config::ClientSettings;

impl ApprovalService {
    /// Creates the service for a reloaded configuration, with these people and clients; it shares the database, the
    /// sessions and all other state with this service. This service continues until [`Self::replace_by`] is called on
    /// it.
    pub(crate) fn reconfigured(&self, people: People, clients: &[ClientSettings]) -> Self {
        Self {
            store: Arc::clone(&self.store),
            people,
            recorder: self.recorder.clone(),
            settings: self.settings.clone(),
            webhook: self.webhook.clone(),
            freeze_targets: self.freeze_targets.reconfigured(clients),
            log: self.log.clone(),
            metrics: Arc::clone(&self.metrics),
            question_changes: Arc::clone(&self.question_changes),
            sessions: Arc::clone(&self.sessions),
            login_failures: Arc::clone(&self.login_failures),
            refused_codes: Arc::clone(&self.refused_codes),
            login_links: Arc::clone(&self.login_links),
            logins: Arc::clone(&self.logins),
            is_replaced: AtomicBool::new(false),
        }
    }

    /// Returns whether a reloaded configuration has replaced this service.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Ends this service, which `later`, the service for a reloaded configuration, replaces: ends its event streams,
    /// whose readers connect again, and the sessions and login links of people whose key has changed or who were
    /// removed.
    pub(crate) fn replace_by(&self, later: &Self) {
        for person in self.people.revoked_in(&later.people) {
            self.sessions.end_all_of(person);
            self.login_links.remove_all_of(person);
        }
        // Every event stream wakes, sees that its service is replaced, and ends.
        self.is_replaced.store(true, Ordering::Relaxed);
        self.wake_waiters();
    }
}
