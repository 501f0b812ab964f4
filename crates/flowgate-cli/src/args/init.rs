//! Declares the arguments and the help of `flowgate init`, which writes a first policy. `clap` parses the arguments.

use std::path::PathBuf;

pub(super) const INIT_HELP: &str = "\
Examples:
  flowgate init tools.json                            a policy for the tools of an agent: a request to a model with `tools`
                                                      (OpenAI, Anthropic), or a list of tools
  flowgate init mail=mail.json --out mail.flow        the tools of the server `mail`, as MCP `tools/list` returns them
  flowgate init .mcp.json                             which servers there are; none of them is started
  flowgate init .mcp.json --start                     start the servers, list their tools, and end the servers
  flowgate scan --format json > scan.json
  flowgate init scan.json                             the servers of all clients; --start starts them
  flowgate init trace.json                            the tools that a recorded run has used
  flowgate init request.json --gateway gateway.toml   a configuration for `flowgate serve`, too
  flowgate init tools.json --out -                    print the policy

Then:
  flowgate check policy.flow --tools tools.json       which tools no statement covers
  flowgate labels policy.flow trace.json              what is labelled how, and by which line

Annotations of MCP servers, such as `readOnlyHint`, are claims of the servers. Where they contradict names or arguments,
the stricter one counts; with --no-hints, only those that restrict count.

Exit codes:
  0    the policy was written
  1    the policy was written, but a server did not list its tools
  2    the command line or a file cannot be used, or a file exists already and --force is missing";

/// The options of `init`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InitArgs {
    /// What describes the tools: an `mcpServers` file, a result of `flowgate scan`, a list of tools, a request to a
    /// model, or a trace. `NAME=FILE` means the tools of the server NAME.
    #[arg(required = true, value_name = "[NAME=]FILES")]
    pub(crate) files: Vec<String>,
    /// The policy to write; `-` prints it.
    #[arg(long, default_value = "policy.flow", value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write a configuration of the gateway, too.
    #[arg(long, value_name = "FILE")]
    pub(crate) gateway: Option<PathBuf>,
    /// The model server behind the gateway.
    #[arg(long, value_name = "URL", default_value = "https://api.openai.com/v1", requires = "gateway")]
    pub(crate) upstream: String,
    /// A person types the agent's user messages: they are trusted, including text that the agent pastes into them
    /// unmarked. Without this option, user messages are hidden until the configuration says who writes them.
    #[arg(long, requires = "gateway")]
    pub(crate) user_types: bool,
    /// Start the servers of `mcpServers` files and scans to list their tools. Without this option, no program is
    /// executed.
    #[arg(long)]
    pub(crate) start: bool,
    /// The time limit for the servers to start and to list their tools, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=600), requires = "start")]
    pub(crate) seconds: u32,
    /// Ignore annotations that permit something.
    #[arg(long)]
    pub(crate) no_hints: bool,
    /// Replace files that exist.
    #[arg(long)]
    pub(crate) force: bool,
}
