//! Implements watch mode, in which the verdicts of a client's policy are recorded, and nothing is stopped, asked about
//! or hidden.
//!
//! Two monitors receive the events of each conversation of such a client:
//!
//! * The conversation itself runs under a permissive policy, which `permissive_policy` derives from the client's
//!   policy: it has the same statements about labels, but none that stop, ask or hide something.
//! * A `watcher` judges the same events by the whole policy. The chat and the MCP routes call it after each
//!   message, and append its verdicts to the watch log, which `flowgate report` reads.
//!
//! This file owns the settings of such a client ([`ClientWatch`]), which `config` creates. Only the configuration file
//! can switch the mode; no request, header or order of a person can.

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
    /// The watched policy: the one that the operator wrote for the client. The permissive policy under which its
    /// conversations run is in the settings of the client.
    pub policy: Arc<Policy>,
    /// The log of the verdicts.
    pub log: WatchLog,
}
