//! Declares the arguments and the help of `flowgate scan`, `flowgate wrap` and `flowgate unwrap`, which read and change
//! the configurations of MCP clients. `clap` parses the arguments.

use std::path::PathBuf;

use clap::ValueEnum;

pub(super) const SCAN_HELP: &str = "\
Examples:
  flowgate scan                       the clients of this user, and of the project in this folder
  flowgate scan --project ../shop      another project
  flowgate scan --start                start each server after a question, and judge by the tools that it lists
  flowgate scan --format json > scan.json
  flowgate init scan.json              draft a policy for the servers that were found

Reads the configurations of Claude Code, Claude Desktop, Cursor, VS Code, Windsurf, Codex and Gemini CLI: those of the user, of the
project, and for all users of the machine, with the plug-ins of Claude Code and the extensions of Claude Desktop that are switched
on. Settings that an organisation distributes over the network are not read. Without --start, nothing is started, and no server is
asked: what a server reads and does is guessed from its name and its program.

With --start, each server is started if you say yes to its command line or address, its tools are listed, and it is ended
again. What a tool does is judged as `flowgate init` does it, by its name, its arguments and its annotations. A server
that is not started, or does not list its tools, is guessed by its name. With --yes, all servers are started without a
question: a project can configure any program.

A combination can leak if one server reads strangers' text, one reads private data and one acts: the text can make the
agent send the data. It can be steered if one reads strangers' text and one acts.

A hook of Flowgate guards a client if it judges every call before the call runs. A hook guards nothing if it only watches, is for
some tools only, or runs after the calls. A hook of a project guards only what the client does in that project.

Exit codes:
  0    no combination can leak or be steered, or Flowgate guards it
  1    a combination can leak or be steered, as far as names or tools say; or a file, a plug-in or an extension could not be read, so
       its servers are not known
  2    the command line cannot be used, there is no home folder, or there is no terminal to ask at
  130  Ctrl-C stopped the servers";

pub(super) const WRAP_HELP: &str = "\
Examples:
  flowgate wrap claude-desktop --policy ~/mail.flow        all servers of Claude Desktop run behind `flowgate mcp`
  flowgate wrap cursor --policy ~/mail.flow --server mail  one server
  flowgate wrap --file .mcp.json --policy mail.flow        a file
  flowgate wrap codex --policy ~/mail.flow --dry-run       what would change

Clients: claude-code, claude-desktop, cursor, vscode, windsurf, codex, gemini. Close the client first, since some write
their configuration while they run.

Only the command lines of servers change, in every file of the client that has servers. A backup with the original content is written to
NAME.flowgate-backup in the same folder. A server that has
an address is not changed: put it behind `flowgate serve`.

Exit codes:
  0    the servers run behind `flowgate mcp`
  1    at least one server was not changed; the message says why
  2    the command line, the policy or a file cannot be used; the message names the file, which
       was not changed";

pub(super) const UNWRAP_HELP: &str = "\
Examples:
  flowgate unwrap claude-desktop      the servers of Claude Desktop run as before
  flowgate unwrap --file .mcp.json    a file
  flowgate unwrap codex --dry-run     what would change

If the file has not changed otherwise since `flowgate wrap`, it is byte for byte what it was.

Exit codes:
  0    no server runs behind `flowgate mcp`
  2    the command line or a file cannot be used; the message names the file, which was not
       changed";

/// How `scan` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScanFormat {
    /// Text for people.
    Text,
    /// One JSON document.
    Json,
}

/// The options of `scan`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScanArgs {
    /// The home folder [default: that of this user].
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// The folder of a project with its own configurations [default: this folder].
    #[arg(long, value_name = "DIR")]
    pub(crate) project: Option<PathBuf>,
    /// The root of the file system, below which the configurations for all users are [default: /; with --home, they are not read].
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ScanFormat::Text)]
    pub(crate) format: ScanFormat,
    /// Start the servers to list their tools, each after a question at the terminal. Without this option, no program is
    /// executed.
    #[arg(long)]
    pub(crate) start: bool,
    /// Start all servers without a question.
    #[arg(long, requires = "start")]
    pub(crate) yes: bool,
    /// The time limit for the servers to start and to list their tools, in seconds; eight of them start at the same
    /// time.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600), requires = "start")]
    pub(crate) seconds: u32,
}

/// Which file `wrap` and `unwrap` change.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClientArgs {
    /// The client whose configurations to change.
    #[arg(required_unless_present = "file", conflicts_with = "file")]
    pub(crate) client: Option<String>,
    /// The file to change.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// The home folder [default: that of this user].
    #[arg(long, value_name = "DIR")]
    pub(crate) home: Option<PathBuf>,
    /// Change only this server. May be given several times.
    #[arg(long = "server", value_name = "NAME")]
    pub(crate) servers: Vec<String>,
    /// Print what would change, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The options of `wrap`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct WrapArgs {
    #[command(flatten)]
    pub(crate) target: ClientArgs,
    /// The policy file. It calls the tools of a server `tool:NAME/...`.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// A file for the labels of everything that the client has received, shared by its servers: what one of them has
    /// shown then counts for the others. Remove it when a new chat begins.
    #[arg(long, value_name = "FILE")]
    pub(crate) session: Option<PathBuf>,
    /// A person uses the client: ask there when the policy requires confirmation. Without it, the answer is no.
    #[arg(long)]
    pub(crate) interactive: bool,
    /// The program that the client starts [default: this one].
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) flowgate: Option<String>,
}
