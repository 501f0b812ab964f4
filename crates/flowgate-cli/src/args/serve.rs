//! `flowgate serve`.

use std::path::PathBuf;

use crate::answering::Answering;

pub(super) const SERVE_HELP: &str = "\
Examples:
  flowgate serve --config gateway.toml --check      says what would be hidden from models, and which line would show it
  flowgate serve --config gateway.toml              guards agents that ask for models here
  OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=$AGENT_KEY python agent.py
                                                    such an agent (ANTHROPIC_BASE_URL without /v1 does as well)
  flowgate serve                                    the policy API on http://127.0.0.1:8000, for this machine
  INVARIANT_API_ENDPOINT=http://127.0.0.1:8000 python agent.py
                                                    a client of Invariant's library that asks it
  flowgate serve --compat                           reads policies as invariant-ai 0.3.5 did
  flowgate serve --listen 0.0.0.0:8000 --token-file token.txt
                                                    for other machines; they set INVARIANT_API_KEY to the token
  curl -H 'Content-Type: application/json' -d '{\"policy\": \"raise\"}' http://127.0.0.1:8000/api/v1/policy/load

gateway.toml (docs/gateway.md says more):
  [upstreams.local]
  url = \"http://localhost:8080/v1\"
  [clients.agent]
  key-from = \"AGENT_KEY\"         # the variable that holds its key
  upstream = \"local\"
  policy = \"mail.flow\"
  user-messages = \"trust-unmarked-even-if-pasted\"  # a person types them all; else user messages are hidden
  pinned = [\"You help.\"]         # its instructions, word for word; other system messages are hidden

The log is on the standard error: one line for each turn, each refused request, each failure of a server, each limit that was
reached, with the setting that raises it, and for what is hidden from a model; no line has content.

Exit codes:
  0  it was told to stop (Ctrl-C or SIGTERM), and the requests that had begun have ended
  1  there is a warning, and --deny-warnings
  2  it cannot start, and says what to do: the command line, the configuration or a policy cannot be used, or the address is taken

GET /api/openapi.json describes the routes, GET /metrics is for Prometheus, GET /health for whoever restarts it.
Connections are not encrypted: beyond this machine, put it behind a proxy that speaks TLS.";

/// How `serve` serves.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: std::net::SocketAddr,
    /// The upstreams and clients of the model routes, in TOML; without it there are none.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read the configuration and its policies, say what would be hidden from models and which line would show it, and end. Nothing is
    /// opened, asked or written.
    #[arg(long, requires = "config")]
    pub(crate) check: bool,
    /// End with 1 if there is such a warning, instead of starting.
    #[arg(long, requires = "config")]
    pub(crate) deny_warnings: bool,
    /// Read policies as invariant-ai 0.3.5 did, and answer 400 or 500 if a rule cannot be evaluated.
    #[arg(long)]
    pub(crate) compat: bool,
    /// A file with the token that clients must send; FLOWGATE_TOKEN in the environment does as well.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let everybody ask who can connect, though there is no token.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,
    /// How the lines of the log are written, on the standard error: one for each turn, each refusal and each limit that was reached.
    /// It wins over `[log] format` in the configuration; text, if neither says so.
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// The largest body, in MiB.
    #[arg(long, default_value_t = 8, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=512), help_heading = "Limits")]
    pub(crate) max_body: u32,
    /// All bodies that are read or evaluated at the same time, in MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=16384), help_heading = "Limits")]
    pub(crate) max_bodies: u32,
    /// What the values of all bodies may take in memory that are evaluated at the same time, in MiB, roughly; one body may take a quarter.
    #[arg(long, default_value_t = 1024, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=65536), help_heading = "Limits")]
    pub(crate) max_values: u32,
    /// Open connections; more wait.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) max_connections: u32,
    /// Evaluations at the same time; as many as there are processors by default.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    pub(crate) workers: Option<u32>,
    /// Evaluations that wait for a worker; more are answered 503.
    #[arg(long, default_value_t = 64, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=65536), help_heading = "Limits")]
    pub(crate) queue: u32,
    /// Policies of one batch.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) max_batch: u32,
    /// Steps of evaluation for one request.
    #[arg(long, default_value_t = flowgate::analysis::Options::default().fuel, value_name = "STEPS", help_heading = "Limits")]
    pub(crate) fuel: u64,
    /// Compiled policies to keep.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=65536), help_heading = "Limits")]
    pub(crate) cached_policies: u32,
    /// Size of the compiled policies to keep, in MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(0..=4096), help_heading = "Limits")]
    pub(crate) cached_size: u32,
    /// Turns of agents at the same time.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=500), help_heading = "Limits")]
    pub(crate) max_turns: u32,
    /// Seconds for a turn of an agent, with all that models take for it.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400), help_heading = "Limits")]
    pub(crate) turn_time: u32,
    /// Seconds for the head of a request, and between two requests of a connection.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) head_time: u32,
    /// Seconds for a body to arrive.
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) body_time: u32,
    /// Seconds for an answer, from the moment when the body is there.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) answer_time: u32,
    /// Seconds for a client to take a part of its answer.
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) write_time: u32,
    /// Seconds for requests to end when the server stops.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) drain_time: u32,
}

/// How lines of the log are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Words.
    Text,
    /// One JSON object on each line.
    Json,
}

impl From<LogFormat> for flowgate_gateway::log::Format {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8000 or [::1]:0".to_owned())
}
