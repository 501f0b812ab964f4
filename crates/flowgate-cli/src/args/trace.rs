//! Declares the arguments and the help of `flowgate trace`, which exports the traces of conversations that a gateway
//! has stored. `clap` parses the arguments.

use std::path::PathBuf;

use clap::Subcommand;

/// The operations on traces.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Print the trace of a conversation of a gateway, or of all, as JSON lines, which `replay`, `explain` and `suggest` read.
    ///
    /// The conversation is replayed from the database that the configuration names; the gateway may be running. The trace has the text
    /// of the conversation. With --gateway, a running gateway replays it for a person with a key: what the person's clearance
    /// does not cover is left out or replaced by a constant. The parameters of the policy come first, if it has any.
    #[command(after_help = TRACE_EXPORT_HELP)]
    Export {
        /// The gateway's configuration.
        #[arg(long, value_name = "FILE", conflicts_with = "gateway")]
        #[cfg_attr(feature = "run", arg(required_unless_present = "gateway"))]
        #[cfg_attr(not(feature = "run"), arg(required = true))]
        config: Option<PathBuf>,
        /// The address of a running gateway, in place of its configuration.
        #[cfg(feature = "run")]
        #[arg(long, value_name = "URL")]
        gateway: Option<String>,
        /// A file that contains the key of the person, as `[people.NAME]` of the gateway has it; alternatively, set FLOWGATE_PERSON_KEY.
        #[cfg(feature = "run")]
        #[arg(long, value_name = "FILE", requires = "gateway")]
        key_file: Option<PathBuf>,
        /// The certificates (PEM) of the authorities that may vouch for the gateway, instead of the well-known ones.
        #[cfg(feature = "run")]
        #[arg(long, value_name = "FILE", requires = "gateway")]
        ca_file: Option<PathBuf>,
        /// The client; with --all, only its conversations are exported.
        #[arg(long, value_name = "NAME", required_unless_present = "all")]
        client: Option<String>,
        /// The name of the conversation, as in the log and in the header `x-flowgate-conversation`.
        #[arg(long, value_name = "NAME", required_unless_present = "all", conflicts_with = "all")]
        conversation: Option<String>,
        /// Export all conversations, one line for each.
        #[arg(long)]
        all: bool,
    },
}

const TRACE_EXPORT_HELP: &str = "\
Examples:
  flowgate trace export --config gateway.toml --client assistant --conversation c1 > c1.jsonl
  flowgate trace export --gateway https://gateway.example --client assistant --conversation c1 > c1.jsonl
                                                   from the running gateway, with the key in FLOWGATE_PERSON_KEY
  flowgate trace export --config gateway.toml --client assistant --all > week.jsonl
                                                   every conversation of the client, one line for each
  flowgate explain mail.flow c1.jsonl              why each of its calls got its verdict
  flowgate suggest mail.flow week.jsonl            the least changes that would have let them pass

Exit codes:
  0    the trace is printed, or with --all every one
  1    a conversation is stored, but cannot be replayed; or the gateway refuses the request
  2    the configuration, the database or the gateway cannot be used, or there is no such client or conversation";
