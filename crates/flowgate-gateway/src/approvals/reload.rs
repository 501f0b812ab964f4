//! Replaces the people, and the names of what can be frozen, when the configuration is reloaded. `chat::reload` calls it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::ApprovalService;
use super::people::People;
use crate::config::ClientSettings;

impl ApprovalService {
    /// Creates the service under a reloaded configuration, with these people and clients. The sessions of people who
    /// have lost their key or have another one end when [`Self::replace_by`] is called.
    pub(crate) fn reconfigured(&self, people: People, clients: &[ClientSettings]) -> Self {
        Self {
            store: Arc::clone(&self.store),
            people,
            recorder: self.recorder.clone(),
            asking: self.asking.clone(),
            webhook: self.webhook.clone(),
            names: self.names.reconfigured(clients),
            log: self.log.clone(),
            metrics: Arc::clone(&self.metrics),
            bell: Arc::clone(&self.bell),
            sessions: Arc::clone(&self.sessions),
            login_failures: Arc::clone(&self.login_failures),
            logins: Arc::clone(&self.logins),
            is_replaced: AtomicBool::new(false),
        }
    }

    /// Returns whether a reloaded configuration has replaced this service.
    pub(super) fn is_replaced(&self) -> bool {
        self.is_replaced.load(Ordering::Relaxed)
    }

    /// Ends what this service does for people under its own configuration, since `later` has replaced it: the event
    /// streams, and the sessions of people without their key.
    pub(crate) fn replace_by(&self, later: &Self) {
        for person in self.people.revoked_in(&later.people) {
            self.sessions.end_all_of(person);
        }
        self.is_replaced.store(true, Ordering::Relaxed);
        self.wake_waiters();
    }
}
