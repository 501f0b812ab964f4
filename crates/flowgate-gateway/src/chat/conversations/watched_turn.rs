//! Connects the conversation of a client in watch mode to its [watcher](Watcher), which judges each new message without
//! effect. The model routes and the MCP routes call `begin_watching` before a message, and `take_watched` after the
//! message for its verdicts.

use flowgate_audit::watch::WatchedVerdict;

use super::ConversationState;
use crate::config::ClientSettings;
use crate::watching::watcher::Watcher;

impl ConversationState {
    /// Creates the watcher of the conversation. Does nothing outside watch mode, or if there is a watcher already. The
    /// watcher first reads the events that the conversation has already, such as the turns that were loaded from the
    /// database. Their verdicts are dropped, because they were recorded when the events happened.
    pub(crate) fn begin_watching(&mut self, client: &ClientSettings) {
        if let Some(watch) = client.watch.as_ref().filter(|_| self.watcher.is_none()) {
            let mut watcher = Watcher::new(watch, &client.predicates, &client.input);
            watcher.copy_parameters(self.conversation.monitor());
            // Reads the events so far, and drops their verdicts.
            watcher.observe(self.conversation.monitor());
            self.proxies.take_watched();
            self.watcher = Some(watcher);
        }
    }

    /// Returns the verdicts on what has happened since the last call; none unless the client is in watch mode.
    pub(crate) fn take_watched(&mut self) -> Vec<WatchedVerdict> {
        let Some(watcher) = &mut self.watcher else { return Vec::new() };
        let mut verdicts = watcher.observe(self.conversation.monitor());
        verdicts.extend(self.proxies.take_watched());
        verdicts
    }
}
