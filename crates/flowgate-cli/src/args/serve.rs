//! Declares the arguments and the help of `flowgate serve`, which runs the gateway. `clap` parses the arguments.

use std::path::PathBuf;

use crate::predicate_args::PredicateArgs;

pub(super) const SERVE_HELP: &str = "\
Examples:
  flowgate serve --config gateway.toml --check      list what is hidden from models and the line that would show it
  flowgate serve --config gateway.toml              guard agents that use this address for their model
  flowgate serve --config gateway.toml --login-link ann
                                                    print a link by which `ann` opens the page, once
  OPENAI_BASE_URL=http://127.0.0.1:8000/v1 OPENAI_API_KEY=$AGENT_KEY python agent.py
                                                    such an agent (for Anthropic, ANTHROPIC_BASE_URL without /v1)
  flowgate serve                                    the policy API on http://127.0.0.1:8000, for this machine
  INVARIANT_API_ENDPOINT=http://127.0.0.1:8000 python agent.py
                                                    a program with Invariant's library that uses it
  flowgate serve --compat                           read policies as invariant-ai 0.3.5 does
  flowgate serve --listen 0.0.0.0:8000 --token-file token.txt
                                                    for other machines, which set INVARIANT_API_KEY to the token
  curl -H 'Content-Type: application/json' -d '{\"policy\": \"raise\"}' http://127.0.0.1:8000/api/v1/policy/load

gateway.toml (see docs/gateway.md):
  [upstreams.local]
  url = \"http://localhost:8080/v1\"
  [clients.agent]
  key-from = \"AGENT_KEY\"         # the variable that contains its key
  upstream = \"local\"
  policy = \"mail.flow\"
  user-messages = \"trust-unmarked-even-if-pasted\"  # a person types them; pasted text is trusted, too
  pinned = [\"You help.\"]         # its instructions, word for word; other system messages are hidden

FLOWGATE_CONFIG__STORE__URL=... in the environment sets `url` in [store] of gateway.toml, and so on for every field.

The log goes to the standard error: one line for each turn, each refused request, each server failure, each limit that
was reached, with the setting that raises it, and each text that is hidden from a model; no line contains content.

SIGHUP reloads the configuration: clients, people, upstreams, MCP servers and policies. If something cannot be used, the
log says so, and the present configuration stays in force.

Exit codes:
  0    stopped by Ctrl-C or SIGTERM, after the requests that had begun; with --check, the configuration can be used
  1    there is a warning with --deny-warnings
  2    the command line, the configuration or a policy cannot be used, or the address is taken

GET /api/openapi.json describes the routes, GET /metrics serves Prometheus, GET /health serves health checks.
Without [tls] in the configuration, connections are not encrypted: for other machines, add it or a proxy with TLS.";

/// The options of `serve`.
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 chooses a free port.
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: std::net::SocketAddr,
    /// The configuration of the model routes, in TOML: upstreams, clients and MCP servers. Without it there are no
    /// model routes.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Check the configuration and its policies, list what is hidden from models and the lines that would show it, and
    /// exit. No port and no database is opened, and no request is sent.
    #[arg(long, requires = "config")]
    pub(crate) check: bool,
    /// Exit with 1 if there is a warning, instead of starting.
    #[arg(long, requires = "config")]
    pub(crate) deny_warnings: bool,
    /// Print a link by which this person of the configuration logs in to the page, once and within five minutes. It is
    /// printed at a terminal only, never into a log; `flowgate login-link` makes further ones.
    #[arg(long, requires = "config", value_name = "PERSON")]
    pub(crate) login_link: Option<String>,
    /// Read policies as invariant-ai 0.3.5 does, and answer 400 or 500 if a rule cannot be evaluated.
    #[arg(long)]
    pub(crate) compat: bool,
    /// A file that contains the token that clients must send; alternatively, set FLOWGATE_TOKEN.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Accept requests without a token from every address.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,
    /// The format of the log on the standard error. It overrides `[log] format` in the configuration [default: text].
    #[arg(long, value_name = "FORMAT")]
    pub(crate) log_format: Option<LogFormat>,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
    /// The largest size of a request body, in MiB.
    #[arg(long, default_value_t = 8, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=512), help_heading = "Limits")]
    pub(crate) max_body: u32,
    /// The largest size of all request bodies at the same time, in MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=16384), help_heading = "Limits")]
    pub(crate) max_bodies: u32,
    /// The estimated memory, in MiB, for the parsed values of all request bodies, of answers of MCP servers and of
    /// conversations in use. One body or answer can use a quarter of it.
    #[arg(long, default_value_t = 1280, value_name = "MIB", value_parser = clap::value_parser!(u32).range(8..=65536), help_heading = "Limits")]
    pub(crate) max_values: u32,
    /// The number of open connections; further connections wait.
    #[arg(long, default_value_t = 8192, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) max_connections: u32,
    /// The number of open connections of one address without a valid key; an IPv6 network of 64 bits counts as one
    /// address. If there are more, the slowest one is closed. 0 means no limit, which suits a reverse proxy, since all
    /// clients then have its address.
    #[arg(long, default_value_t = 64, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=65536), help_heading = "Limits")]
    pub(crate) max_connections_of_address: u32,
    /// The number of evaluations at the same time [default: the number of processors].
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    pub(crate) workers: Option<u32>,
    /// The number of evaluations that wait for a worker; further requests receive 503.
    #[arg(long, default_value_t = 64, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=65536), help_heading = "Limits")]
    pub(crate) queue: u32,
    /// The number of policies in one batch.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) max_batch: u32,
    /// The number of evaluation steps for one request.
    #[arg(long, default_value_t = flowgate::analysis::AnalysisOptions::default().fuel, value_name = "STEPS", help_heading = "Limits")]
    pub(crate) fuel: u64,
    /// The number of compiled policies in the cache.
    #[arg(long, default_value_t = 256, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(0..=65536), help_heading = "Limits")]
    pub(crate) cached_policies: u32,
    /// The size of the compiled policies in the cache, in MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(0..=4096), help_heading = "Limits")]
    pub(crate) cached_size: u32,
    /// The number of turns of agents at the same time. While more than half of them run, a client that has more than
    /// its share is refused.
    #[arg(long, default_value_t = 8192, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=65536), help_heading = "Limits")]
    pub(crate) max_turns: u32,
    /// The time limit for a turn of an agent, including the model's time, in seconds.
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400), help_heading = "Limits")]
    pub(crate) turn_time: u32,
    /// The time limit for the head of a request, and between two requests on a connection, in seconds.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) head_time: u32,
    /// The time limit for receiving a request body, in seconds.
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) body_time: u32,
    /// The time limit for an answer, from the end of the request body, in seconds.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) answer_time: u32,
    /// The time limit for a client to read a part of its answer, in seconds.
    #[arg(long, default_value_t = 20, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) write_time: u32,
    /// The time limit for requests to finish when the server stops, in seconds.
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3600), help_heading = "Limits")]
    pub(crate) drain_time: u32,
}

/// The formats of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

impl From<LogFormat> for flowgate_gateway::log::LogLineFormat {
    fn from(format: LogFormat) -> Self {
        match format {
            LogFormat::Text => Self::Text,
            LogFormat::Json => Self::Json,
        }
    }
}

/// Parses the value of `--listen`; `localhost` means 127.0.0.1.
fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8000 or [::1]:0".to_owned())
}
