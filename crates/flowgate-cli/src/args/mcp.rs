//! `flowgate mcp`.

use std::path::PathBuf;

use super::parameter;
use crate::answering::Answering;

pub(super) const MCP_HELP: &str = "\
In the configuration of the client:
  {\"mcpServers\": {
    \"files\": {\"command\": \"flowgate\",
              \"args\": [\"mcp\", \"--policy\", \"files.flow\", \"--name\", \"files\",
                       \"--\", \"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]}}}

Policies call its tools `tool:files/NAME`, and what else it does `tool:files/resources/read`,
`tool:files/prompts/get`, `tool:files/initialize` and so on (docs/mcp.md lists them).

The first list of tools counts as approved of, until the server ends. To keep it:
  flowgate mcp --policy files.flow --name files --pins pins.json --accept-new -- ...
                                      the first list is kept
  flowgate mcp --policy files.flow --name files --pins pins.json -- ...
                                      what is new or was changed is hidden

Exit codes:
  0  the client has ended
  1  the server has ended by itself, or too much was waiting to be read
  2  the command line, a file, the server's command or the policy cannot be used";

/// How `mcp` stands between.
#[derive(Debug, clap::Args)]
pub(crate) struct McpArgs {
    /// The policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// What the policy calls the server.
    #[arg(long, value_name = "SERVER", default_value = "server", value_parser = server_name)]
    pub(crate) name: String,
    /// What others of this account wrote to stores: read from this file, and kept in it.
    #[arg(long, value_name = "FILE")]
    pub(crate) stores: Option<PathBuf>,
    /// What this client was shown through other servers: read from this file, and kept in it. Remove it when a chat begins anew.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// The tools that were approved of. What is not in this file, word for word, is hidden.
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,
    /// Approve of the tools that the server lists first, and keep them in the file of --pins.
    #[arg(long, requires = "pins")]
    pub(crate) accept_new: bool,
    /// A person sits in front of the client: ask there, if the client can, where the policy asks. Otherwise the answer is no.
    #[arg(long)]
    pub(crate) interactive: bool,
    /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// The largest message, in MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Limits")]
    pub(crate) max_message: u32,
    /// All messages of a session, in MiB. Nothing is forgotten, so a longer session ends.
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Limits")]
    pub(crate) max_session: u32,
    /// The server's command, behind `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

fn server_name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err("policies cannot name it; use up to 64 letters, digits, `-`, `_` and `.`".to_owned());
    }
    if name == flowgate::trace::Tool::OWN {
        return Err("policies mean Flowgate itself by this name; give it another".to_owned());
    }
    Ok(name.to_owned())
}
