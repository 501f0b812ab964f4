//! Declares the arguments and the help of `flowgate mcp`, which guards one MCP server, and of the logins at remote
//! servers. `clap` parses the arguments.

use std::path::PathBuf;

use super::parameter;
use crate::predicate_args::PredicateArgs;

pub(super) const MCP_HELP: &str = "\
In the configuration of the client:
  {\"mcpServers\": {
    \"files\": {\"command\": \"flowgate\",
              \"args\": [\"mcp\", \"--policy\", \"files.flow\", \"--name\", \"files\",
                       \"--\", \"npx\", \"-y\", \"@modelcontextprotocol/server-filesystem\", \"/data\"]}}}

In policies, the server's tools are `tool:files/NAME`, and its other methods are `tool:files/resources/read`,
`tool:files/prompts/get`, `tool:files/initialize` and so on (see docs/mcp.md).

The first list of tools counts as approved until the server ends. To keep the approval:
  flowgate mcp --policy files.flow --name files --pins pins.json --accept-new -- ...
                                      store the first list
  flowgate mcp --policy files.flow --name files --pins pins.json -- ...
                                      hide new and changed tools

To see what a policy would stop before it stops anything:
  flowgate mcp --policy files.flow --name files --watch watch.jsonl -- ...
                                      record what would be asked about, denied and hidden; stop nothing
  flowgate report watch.jsonl         what that was, most frequent first
  flowgate mcp --policy files.flow --name files --watch watch.jsonl --traces traces -- ...
                                      record the sessions as well, with their content
  flowgate suggest files.flow traces  the least changes that would have let their calls pass

To log in at a server behind OAuth that `flowgate run` uses:
  flowgate mcp login web --config servers.json

Exit codes:
  0    the client closed the connection
  1    the server ended, or the client or the server did not read its messages
  2    the command line, a file, the server's command or the policy cannot be used";

const LOGIN_HELP: &str = "\
Examples:
  flowgate mcp login web --config servers.json     the server `web` of the file that `flowgate run` uses
  flowgate mcp login web --config servers.json --no-browser
                                                   print the address only

The server needs no `oauth` in the file: it names its issuer, at which Flowgate registers itself. With `oauth`, the
file names the issuer, the client or the scopes:
  {\"mcpServers\": {\"web\": {\"url\": \"https://example.org/mcp\",
                          \"oauth\": {\"issuer\": \"https://id.example.org\", \"clientId\": \"...\", \"scopes\": [\"read\"]}}}}

If the browser is on another machine, it cannot show the last page: paste its address into the terminal.

The tokens are in a file that only you can read, in $XDG_STATE_HOME/flowgate/mcp-logins or
~/.local/state/flowgate/mcp-logins. They are sent to this server and to this issuer only.

Exit codes:
  0    you are logged in
  1    the login failed
  2    the command line or the file cannot be used, or nobody can log in to the server";

const LOGOUT_HELP: &str = "\
Example:
  flowgate mcp logout web --config servers.json

The issuer is not told: to end the validity of the tokens as well, withdraw the access of Flowgate at the issuer.

Exit codes:
  0    the tokens of the login are removed, or there were none
  2    the command line or the file cannot be used, or the tokens cannot be removed";

/// The options of `mcp`: those of the guard, or a command for logins.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct McpArgs {
    #[command(subcommand)]
    pub(crate) login: Option<McpLoginCommand>,
    #[command(flatten)]
    pub(crate) guard: McpGuardArgs,
}

/// The commands for logins at remote servers.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum McpLoginCommand {
    /// Log in at a remote server behind OAuth, in a browser, for `flowgate run`, `init` and `scan`.
    #[command(after_help = LOGIN_HELP)]
    Login {
        #[command(flatten)]
        server: McpServerArgs,
        /// Print the address, and do not open it in a browser.
        #[arg(long)]
        no_browser: bool,
    },
    /// Remove the tokens of a login.
    #[command(after_help = LOGOUT_HELP)]
    Logout(McpServerArgs),
}

/// The server of a login.
#[derive(Debug, clap::Args)]
pub(crate) struct McpServerArgs {
    /// The name of the server in the file.
    #[arg(value_name = "SERVER")]
    pub(crate) name: String,
    /// The file of MCP servers, in the form that MCP clients use (`mcpServers`).
    #[arg(long, value_name = "FILE")]
    pub(crate) config: PathBuf,
}

/// The options of the guard before a server.
#[derive(Debug, clap::Args)]
pub(crate) struct McpGuardArgs {
    /// The policy file. Only a command for logins has none.
    #[arg(long, required = true, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// The server's name in the policy.
    #[arg(long, value_name = "SERVER", default_value = "server", value_parser = server_name)]
    pub(crate) name: String,
    /// A file for the labels of stores, shared by all sessions of one account; it is read and updated.
    #[arg(long, value_name = "FILE")]
    pub(crate) stores: Option<PathBuf>,
    /// A file for the labels of everything that the client has received, shared by the proxies of its servers; it is read and updated.
    /// Remove it when a new chat begins.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// The file of approved tools. A tool whose description is not in this file, word for word, is hidden.
    #[arg(long, value_name = "FILE")]
    pub(crate) pins: Option<PathBuf>,
    /// Approve the tools that the server lists first, and store them in the file of --pins.
    #[arg(long, requires = "pins")]
    pub(crate) accept_new: bool,
    /// A person uses the client: ask there, if the client supports it, when the policy requires confirmation. Without it, the answer
    /// is no.
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Watch only: append each verdict to this file, and stop, ask about and hide nothing. `flowgate report FILE` sums it up.
    #[arg(long, value_name = "FILE", conflicts_with = "interactive")]
    pub(crate) watch: Option<PathBuf>,
    /// While watching, also record each session as a trace in this folder, for `flowgate suggest`. The traces have the content of calls
    /// and answers, and only their owner can read them.
    #[arg(long, value_name = "FOLDER", requires = "watch")]
    pub(crate) traces: Option<PathBuf>,
    /// A parameter of the policy, `input.NAME`. The value is read as JSON if it is JSON, otherwise as text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
    /// The largest size of a message, in MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=64), help_heading = "Limits")]
    pub(crate) max_message: u32,
    /// The largest size of all messages of a session, in MiB. A longer session ends.
    #[arg(long, default_value_t = 256, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=4096), help_heading = "Limits")]
    pub(crate) max_session: u32,
    /// The server's command, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

/// Parses the value of `--name`: a name that a policy can give to a server, and that Flowgate does not use itself.
fn server_name(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
        return Err("no policy can refer to a server of this name; use 1 to 64 ASCII letters, digits, `-`, `_` and `.`"
            .to_owned());
    }
    if name == flowgate::trace::Tool::FLOWGATE_SERVER {
        return Err("this name is reserved for Flowgate itself; use another name".to_owned());
    }
    Ok(name.to_owned())
}
