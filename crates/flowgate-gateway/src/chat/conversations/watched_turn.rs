//! Lets the [watcher](Watcher) of a conversation, which belongs to a client in watch mode, judge each new message. The
//! model routes and the MCP routes call `begin_watching` before a message, and `take_watched` after it for the
//! verdicts.

use flowgate_audit::watch::WatchedVerdict;

use super::ConversationState;
use crate::config::ClientSettings;
use crate::watching::watcher::Watcher;

impl ConversationState {
    /// Prepares to judge what is about to happen; does nothing outside watch mode, or if it is prepared already. What
    /// has happened before, such as the turns that were loaded from the database, is judged without a record: its
    /// verdicts were recorded when it happened.
    pub(crate) fn begin_watching(&mut self, client: &ClientSettings) {
        if let Some(watch) = client.watch.as_ref().filter(|_| self.watcher.is_none()) {
            let mut watcher = Watcher::new(watch, &client.predicates, &client.input);
            watcher.copy_parameters(self.conversation.monitor());
            // The verdicts on what has happened before are dropped.
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
