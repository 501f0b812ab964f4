//! Declares the arguments and the help of `flowgate doctor`, which finds what is wrong with a configuration of the
//! gateway, a policy or the MCP servers of a client. `clap` parses the arguments.

use std::path::PathBuf;

pub(super) const DOCTOR_HELP: &str = "\
Examples:
  flowgate doctor --config gateway.toml                      keys, files, policies, and what they hide from models
  flowgate doctor --config gateway.toml --online             also whether the models' servers answer, and issuers give tokens
  flowgate doctor --policy mail.flow --request request.json  which parts of a request are hidden from a step at the base label,
                                                             and the statement that would show them
  flowgate doctor --client claude-code                       the MCP servers and hooks of a client, for the user, in this folder's
                                                             project and for all users, and the policies that guard them
  flowgate doctor --file .mcp.json                           those of a file

The servers of plug-ins of Claude Code and of extensions of Claude Desktop are listed by `flowgate scan`, not examined here.

Nothing is started, and without --online nothing is asked over the network. No key is printed.

Exit codes:
  0    nothing is wrong
  1    at least one thing is wrong; each line says what to do
  2    the command line or a file cannot be used";

/// What `doctor` examines; at least one is needed.
#[derive(Debug, Clone, clap::Args)]
#[group(required = true, multiple = true)]
pub(crate) struct DoctorArgs {
    /// A configuration of the gateway.
    #[cfg(feature = "gateway")]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// A policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// A client of MCP servers, with its hooks: claude-code, claude-desktop, cursor, vscode, windsurf, codex or gemini.
    #[arg(long, value_name = "CLIENT")]
    pub(crate) client: Option<String>,
    /// A configuration of MCP servers or hooks.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// The options of `doctor`: what it examines (`subject`), and how.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct DoctorOptions {
    #[command(flatten)]
    pub(crate) subject: DoctorArgs,
    /// A request to a model (OpenAI, Anthropic) or a list of tools: says what of it is hidden from a step at the base
    /// label, the step with which a guarded agent begins a turn. With --config, by the policy of each client.
    #[arg(long, value_name = "FILE")]
    pub(crate) request: Option<PathBuf>,
    /// The home folder, for --client [default: that of this user].
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// The folder of a project with its own configurations, for --client [default: this folder].
    #[arg(long, value_name = "DIR", requires = "client")]
    pub(crate) project: Option<PathBuf>,
    /// Ask the models' servers whether they answer, without a key, and the issuers of MCP servers for a token.
    #[cfg(feature = "gateway")]
    #[arg(long, requires = "config")]
    pub(crate) online: bool,
}
