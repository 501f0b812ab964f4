//! Implements watch mode of a client: the verdicts of its policy are reported, and nothing is stopped, asked about or
//! hidden.
//!
//! The conversations of the client run under a policy that permits everything: the client's own policy without the
//! statements that stop, ask or hide something (`permissive_policy`). So the events of a conversation have the labels
//! of what the model was shown, which is everything. A second monitor, with the whole policy, judges the same events
//! (`watcher`). Its verdicts are appended to the watch log, which `flowgate report` reads.
//!
//! Only the configuration file can switch the mode; no request, header or order of a person can. `config` reads it, and
//! the chat and the MCP routes pass each conversation to its watcher after each message.

pub(crate) mod permissive_policy;
pub(crate) mod watcher;

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_audit::watch::WatchLog;

/// The warning that an operator is shown about a client in watch mode, at each start and with `--check`.
pub const WARNING: &str = "watch mode: nothing of this client is stopped, asked about or hidden; the verdicts of its policy are \
    appended to the file of [watch]; set mode = \"enforce\" to put the policy in force";

/// The settings of a client in watch mode: the policy that judges it, and the log of the verdicts.
#[derive(Debug, Clone)]
pub struct ClientWatch {
    /// The policy of the client. Its conversations run under another one, which permits everything.
    pub policy: Arc<Policy>,
    /// The log of the verdicts.
    pub log: WatchLog,
}
