//! Watch mode of a client: its policy is judged and reported, and nothing is stopped, asked about or hidden.
//!
//! The conversations of the client run under a policy that permits everything: the client's own with all that it stops left out
//! (`permissive_policy`). So they have the labels of what the model was shown, which is everything. A monitor with the whole policy
//! reads what happened there (`watcher`), and its verdicts are appended to the watch log that `flowgate report` reads.
//!
//! Only the configuration file switches the mode: no request, header or order of a person does. `config` reads it; the chat and the
//! MCP routes pass each conversation to its watcher after each message.

pub(crate) mod permissive_policy;
pub(crate) mod watcher;

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_audit::watch::WatchLog;

/// What an operator reads about a client in watch mode, at each start and with `--check`.
pub const WARNING: &str = "watch mode: nothing of this client is stopped, asked about or hidden; the verdicts of its policy are \
    appended to the file of [watch]; set mode = \"enforce\" to put the policy in force";

/// What the client of a configuration is judged by in watch mode, and where the verdicts go.
#[derive(Debug, Clone)]
pub struct ClientWatch {
    /// The policy of the client. Its conversations run under another one, which permits everything.
    pub policy: Arc<Policy>,
    /// The log of the verdicts.
    pub log: WatchLog,
}
