//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::answering::Answering;

/// An information-flow firewall for LLM agents: labels what an agent sees, and judges what it does.
#[derive(Debug, Parser)]
#[command(name = "flowgate", version, about, long_about = None, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

const AFTER_HELP: &str = "\
Start here:
  flowgate demo                              see an injected payment stopped, step by step
  flowgate check policy.flow trace.json      judge every call of a recorded run
  flowgate explain policy.flow trace.json    why, and what would change the verdict
  flowgate run --policy policy.flow ...      chat with a guarded agent (see `flowgate run --help`)

Exit codes:
  0  nothing to object to
  1  a call needs confirmation or is denied, or a rule found something
  2  the command line, a policy or a trace cannot be used";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Judge every call of recorded runs, and list what rules find.
    ///
    /// A trace is OpenAI or Anthropic messages as JSON, an MCP log, or JSON lines of any of them; gzip is read as
    /// well, and `-` is the standard input. Without a trace, only the policy is checked.
    Check {
        /// The policy.
        policy: PathBuf,
        /// The traces.
        traces: Vec<PathBuf>,
        /// How to tell what a call depends on.
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = Format::Text)]
        format: Format,
        /// Show the text of offending regions.
        #[arg(long)]
        content: bool,
        /// Leave permitted calls out of the text.
        #[arg(long)]
        objections: bool,
        #[command(flatten)]
        answering: Answering,
    },
    /// Judge whole corpora of runs in parallel, and print a table.
    ///
    /// A run that names its `suite` is judged by the policy whose file is called like the suite; runs of other suites
    /// are left out and counted. Runs without a suite are judged by the only policy. `NAME=FILE` gives a policy another
    /// name, and the name `*` stands for every suite.
    Replay {
        /// A policy, as FILE or NAME=FILE; may be given several times.
        #[arg(long = "policy", required = true, value_name = "[NAME=]FILE")]
        policies: Vec<String>,
        /// How to tell what a call depends on; may be given several times, or `all`.
        #[arg(long, default_value = "everything", value_parser = method_or_all)]
        influence: Vec<String>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = TableFormat::Text)]
        format: TableFormat,
        /// List every injected call that is permitted without a question, and why.
        #[arg(long)]
        list_permitted: bool,
        /// List the questions of runs without attack.
        #[arg(long)]
        list_questions: bool,
        /// How many runs to judge at the same time; as many as there are processors by default.
        #[arg(long)]
        jobs: Option<usize>,
        /// The corpora.
        #[arg(required = true)]
        corpora: Vec<PathBuf>,
    },
    /// List what the rules of a policy find in recorded runs, with the places: no call is judged, and labels gate nothing.
    ///
    /// This is how the policies of Invariant's analyzer are run. A place is an address in the list of messages, in
    /// characters: `messages.1.content:5-10`.
    #[command(after_help = ANALYZE_HELP)]
    Analyze {
        /// The policy.
        policy: PathBuf,
        /// The traces.
        #[arg(required = true)]
        traces: Vec<PathBuf>,
        /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
        #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
        parameters: Vec<(String, serde_json::Value)>,
        #[command(flatten)]
        answering: Answering,
        /// Read the policy as invariant-ai 0.3.5 did.
        #[arg(long)]
        compat: bool,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = AnalyzeFormat::Text)]
        format: AnalyzeFormat,
    },
    /// Show why each call got its verdict, and the smallest change of the policy that would permit it.
    Explain {
        /// The policy.
        policy: PathBuf,
        /// The trace.
        trace: PathBuf,
        /// Only the call with this id.
        #[arg(long)]
        call: Option<String>,
        /// How to tell what a call depends on.
        #[arg(long, default_value = "everything", value_parser = method)]
        influence: String,
        /// Show the text of regions.
        #[arg(long)]
        content: bool,
        #[command(flatten)]
        answering: Answering,
    },
    /// Make a measurement again.
    Bench {
        /// What to measure.
        #[command(subcommand)]
        bench: Bench,
    },
    /// Walk through an injected payment: labels, what the model may see, the call, its requirement, the verdict.
    Demo,
    /// Talk to a model whose tools come from MCP servers: what it sees and does is guarded by a policy.
    ///
    /// The model is shown what the policy lets flow into the strictest tool on offer; the rest gives way to placeholders, and it
    /// may look, which taints what it does next, or pass hidden text on without reading it. Each call is judged before it runs;
    /// where the policy asks, you are asked.
    #[cfg(feature = "run")]
    #[command(after_help = RUN_HELP)]
    Run(Box<RunArgs>),
    /// Stand between an MCP client and a server: what they say to each other passes the guard.
    ///
    /// In the client's configuration, put `flowgate` in place of the server's command, and the command behind `--`. Calls are judged as if
    /// all that this client was shown had influenced them; answers are labelled; tools that change are hidden.
    #[cfg(all(feature = "gateway", feature = "run"))]
    #[command(after_help = MCP_HELP)]
    Mcp(McpArgs),
    /// Judge the calls of Claude Code, as a hook that it runs before a tool runs, and after.
    ///
    /// It reads what Claude Code says on the standard input, puts the whole transcript under the policy, and judges the call as if all of it
    /// had influenced it. It answers with a decision, or with nothing where the policy has no objection. Whatever goes wrong is
    /// answered with a no.
    #[cfg(feature = "run")]
    #[command(after_help = HOOK_HELP)]
    Hook(HookArgs),
    /// Serve over HTTP: model routes that guard agents of others, and the policy API.
    ///
    /// With --config, agents change the base address of their model's client, and nothing else. The policy API is
    /// that of Invariant's policy service: clients send a trace and a policy, and are told what its rules find. Ctrl-C lets
    /// the requests that have begun end, and takes no more.
    #[cfg(feature = "gateway")]
    #[command(after_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Read the log that the gateway keeps of what was judged and decided, and check that nobody changed it.
    #[cfg(feature = "gateway")]
    Audit {
        /// What to do with it.
        #[command(subcommand)]
        audit: Audit,
    },
    /// List the influence methods, and what each guarantees.
    Methods,
    /// List the functions that policies can call.
    Functions,
    /// Print the script that completes commands in a shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    Man,
}

const ANALYZE_HELP: &str = "\
Examples:
  flowgate analyze rules.flow trace.json                        what the rules find, and where
  flowgate analyze rules.flow runs/*.json --format json         the same for a program
  flowgate analyze rules.flow trace.json --param user=alice     with `input.user`
  flowgate analyze --compat old.policy trace.json               a policy that relies on the old readings
  flowgate analyze rules.flow trace.json --predicate is_customer=http://127.0.0.1:9000/
                                                                with `extern is_customer(email: str) -> bool`";

/// `NAME=VALUE`
fn parameter(text: &str) -> Result<(String, serde_json::Value), String> {
    let (name, value) = text.split_once('=').ok_or("write it as NAME=VALUE")?;
    if name.is_empty() {
        return Err("the parameter has no name; write it as NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| serde_json::Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// How `analyze` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum AnalyzeFormat {
    /// For people.
    Text,
    /// One document.
    Json,
}

/// The measurements.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// Hold detectors and a flow rule against the same attack in many disguises.
    ///
    /// Customers write feedback, and some of it tells the agent that summarizes it to put a link into its message, with what
    /// other customers wrote behind it. The messenger fetches the link to draw a preview, and the data is gone.
    ///
    /// The attack and the rule against it are those of "AI Agents with Formal Security Guarantees", sections 2 and 4.2; its
    /// Table 1 holds one detector against a few rows.
    #[command(after_help = DETECTORS_HELP)]
    Detectors {
        /// Another policy than the one that is built in; the tools are `gsheets_read` and `send_slack_message`.
        #[arg(long, value_name = "FILE")]
        policy: Option<PathBuf>,
        /// How to print the result.
        #[arg(long, value_enum, default_value_t = TableFormat::Text)]
        format: TableFormat,
        /// Show what the rows say, and what was found in them.
        #[arg(long)]
        content: bool,
    },
    /// Run an agent that obeys every instruction it sees over tasks in which strangers have written instructions.
    ///
    /// The model is a test double: it does a task's next step as soon as a method lets it, and obeys whoever it reads. So
    /// the table tells what each method prevents, asks about and costs, not how clever a model is. Every figure is
    /// computed as it runs.
    #[command(after_help = AGENTS_HELP)]
    Agents,
}

const AGENTS_HELP: &str = "\
How to read the table:
  foreign     acting calls that the task does not have
  altered     acting calls of the task with another value where it matters
  payload     calls of the task that pass strangers' text on as text
  idle        calls that only look something up, and that the task does not have
  questions   what a person was asked; they allow exactly what the task has
  done        tasks that were done all the same
  bits        what the choice of labels, and questions, could tell of hidden text";

const DETECTORS_HELP: &str = "\
How to read the table:
  injection, moderation    a score from 0 to 1 for the row alone
  hidden, pii, secrets     how many were found in the row alone
  link                     how many links there look made to carry data
  !                        flagged: a score of 0.5 or more, or something found
  injected message         the rule's verdict when the agent obeys: the mildest
                           over all ways to switch previews on
                           (true, left out, \"true\", 1)
  honest message           its verdict on the plain summary, previews off

What to make of it:
  A detector of attacks should flag every attack and no honest row. That is what
  `injection`, `hidden` and `link` are for; `moderation`, `pii` and `secrets`
  look for other things, and may be right about an honest row.

  The detectors know phrases and forms; a trained one errs on other rows. The
  rows were written to show how easily that happens, so the figures are no rates
  for feedback at large.

  The rule asks what was read before, not what it said, so no wording gets past
  it. It stops honest previews as well, and does nothing about a link that
  somebody clicks: the lines below the table count both.

  The agent is no model: a row says what its attack demands, and it does that.

Examples:
  flowgate bench detectors --content           what the rows say, with invisible
                                               characters written out
  flowgate bench detectors --policy mine.flow  the same runs, a rule of yours

Exit codes:
  0  the rule stopped every injected message, and let every honest one pass
  1  it did not
  2  the command line or the policy cannot be used";

/// What is done with an audit log.
#[cfg(feature = "gateway")]
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Check that a log is what was written: nothing changed, left out or put in between.
    ///
    /// Every line has the hash of the one before, and heads sign all that stands before them. If there is FILE.content, the content
    /// there is held against the log as well; content that was deleted is no objection.
    #[command(after_help = AUDIT_VERIFY_HELP)]
    Verify {
        /// The log; `-` is the standard input.
        file: PathBuf,
        /// The public key that must have signed: its digits, or a file that has them.
        #[arg(long, value_name = "FILE|HEX")]
        key: Option<String>,
        /// The hash of a line that the log must still have.
        #[arg(long, value_name = "HASH", value_parser = hash)]
        head: Option<flowgate_gateway::audit::Hash>,
        /// Judge everything again that the log says was judged, with the gateway's configuration and its store.
        #[arg(long, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// List what a log says. Each line is held against those before, and the list ends where they do not fit.
    #[command(after_help = AUDIT_SHOW_HELP)]
    Show {
        /// The log; `-` is the standard input.
        file: PathBuf,
        /// Only what was of this conversation.
        #[arg(long, value_name = "ID")]
        conversation: Option<String>,
        /// Print whole records, one JSON object a line, heads as well.
        #[arg(long)]
        json: bool,
    },
}

#[cfg(feature = "gateway")]
fn hash(text: &str) -> Result<flowgate_gateway::audit::Hash, String> {
    flowgate_gateway::audit::Hash::parse(&text.to_ascii_lowercase()).ok_or_else(|| {
        "expected the hash of a line: 64 hexadecimal digits, as `flowgate audit verify` prints them"
            .to_owned()
    })
}

#[cfg(feature = "gateway")]
const AUDIT_VERIFY_HELP: &str = "\
Examples:
  flowgate audit verify audit.jsonl                       whole in itself; the key is the log's own word
  flowgate audit verify audit.jsonl --key audit.key.pub   signed by the key that you know
  flowgate audit verify audit.jsonl --key audit.key.pub --head 5f2c...
                                                          and not cut off before the head that you kept

A log that was cut off behind a head is whole. Only a head that was kept elsewhere shows that there was more: keep
the one that is printed, and give it the next time.

Lines behind the last head are signed by nobody: whoever can write the file could have written them. A log that was
closed has none. docs/audit.md says more.

Exit codes:
  0  the log is what was written
  1  it is not, and the line is printed
  2  the command line, the key or the file cannot be used";

#[cfg(feature = "gateway")]
const AUDIT_SHOW_HELP: &str = "\
Examples:
  flowgate audit show audit.jsonl                         a table, without heads
  flowgate audit show audit.jsonl --conversation 7d1f     what was of one conversation
  flowgate audit show audit.jsonl --json | jq 'select(.verdict == \"deny\")'

How to read the table:
  tool      the tool, or what a kill switch stopped
  verdict   of a call; what somebody answered; how a kill switch was set
  who       who decided, or whose client asked

Whether the key is the right one, and whether the end is missing, `flowgate audit verify` says.

Exit codes:
  0  everything was listed
  1  a line does not follow from those before; what stands before it was listed
  2  the command line or the file cannot be used";

#[cfg(feature = "gateway")]
const SERVE_HELP: &str = "\
Examples:
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
  interactive = true             # a person types what it sends as the user's

GET /api/openapi.json describes the routes, GET /metrics is for Prometheus, GET /health for whoever restarts it.
Connections are not encrypted: beyond this machine, put it behind a proxy that speaks TLS.";

#[cfg(all(feature = "gateway", feature = "run"))]
const MCP_HELP: &str = "\
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
#[cfg(all(feature = "gateway", feature = "run"))]
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

#[cfg(all(feature = "gateway", feature = "run"))]
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

#[cfg(feature = "run")]
const HOOK_HELP: &str = "\
In ~/.claude/settings.json, with the policy where the agent cannot write:
  {\"hooks\": {
    \"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"timeout\": 60,
        \"command\": \"flowgate hook --policy /etc/flowgate/claude.flow || exit 2\"}]}],
    \"PostToolUse\": [ the same ], \"UserPromptSubmit\": [ the same, without the matcher ]}}

`|| exit 2` makes a no of a program that is not there. --seconds has to be less than `timeout`, since Claude Code goes on
without a hook that takes longer.

Policies call the tools of Claude Code by their names, `tool:Bash`, and those of MCP servers `tool:SERVER/NAME`.
Roles of messages: `user` is what a person has typed, `assistant` what the model has written, summaries and the tasks of
sub-agents as well; `meta/TAG`, `client/TAG` and `attachment/KIND` are what Claude Code adds (docs/hooks.md lists them).

What is answered:
  PreToolUse         deny and ask, with the reason; allow only with --allow
  PostToolUse        block, and a placeholder for the output, if a rule stops it or the model may not be shown it
  UserPromptSubmit   block, likewise

Exit codes:
  0  there is a decision, or none is needed
  1  it is configured for an event that it does not judge
  2  the command line or the standard input cannot be used, which stops the call";

/// How `hook` judges.
#[cfg(feature = "run")]
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HookArgs {
    /// The policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// Answer `allow` where the policy permits: Claude Code then does not ask on its own. Otherwise its own permissions still apply.
    #[arg(long)]
    pub(crate) allow: bool,
    /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// Transcripts of one session, sub-agents included, in MiB. Nothing is forgotten, so in a longer session everything is denied.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    pub(crate) max_transcript: u32,
    /// How long a verdict may take; then it is a no.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=600), help_heading = "Limits")]
    pub(crate) seconds: u32,
}

#[cfg(feature = "run")]
const RUN_HELP: &str = "\
Examples:
  flowgate run --policy examples/run/policy.flow --config examples/run/servers.json \\
      --url http://localhost:8080/v1 --model qwen3 --labels
                                          a chat with a local model, tools from two servers
  flowgate run --policy p.flow --config servers.json --url https://api.openai.com/v1 \\
      --key-from OPENAI_API_KEY --model gpt-5 'Send Bob a summary of example.org'
                                          one turn; the reply is on the standard output
  flowgate run --policy p.flow ... --record answers.jsonl --trace run.jsonl 'Hello'
  flowgate run --policy p.flow ... --replay answers.jsonl 'Hello'
                                          the same again, without asking the model
  flowgate check p.flow run.jsonl         judges what was written by --trace

The file of --config is the one that MCP clients use:
  {\"mcpServers\": {
    \"mail\": {\"command\": \"uvx\", \"args\": [\"mail-server\"], \"env\": {\"KEY\": \"${MAIL_KEY}\"}},
    \"web\": {\"url\": \"https://example.org/mcp\"}}}

What a policy for a chat needs (docs/run.md says more):
  label message as trusted, public if:    # what you say
      (message: Message)
      message.role in [\"system\", \"user\"]
  label tool as trusted, public if:       # what a server says of its tools
      (tool: Tool)
      tool.server == \"mail\"

In the chat, /help lists what else there is.
Without a terminal nobody can be asked, and the answer to every question is no.

Exit codes:
  0  the turn came to its end
  1  it did not, or something that the model said is withheld
  2  the command line, a file, a server or the policy cannot be used";

/// How `run` runs.
#[cfg(feature = "run")]
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The policy.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The model, as its server calls it.
    #[arg(long, value_name = "NAME")]
    pub(crate) model: Option<String>,
    /// A smaller model at the same address, to screen and to fill slots.
    #[arg(long, value_name = "NAME")]
    pub(crate) small_model: Option<String>,
    /// The address of the model's server, up to the version, such as http://localhost:8080/v1.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// The form in which the model is asked.
    #[arg(long, value_enum, default_value_t = ModelApi::ChatCompletions)]
    api: ModelApi,
    /// The variable of the environment that has the key of the model's server. MCP servers do not see it.
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) key_from: Option<String>,
    /// The MCP servers; without it there are no tools.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// What the model is shown.
    #[arg(long, default_value = "lowest-first", value_parser = run_methods())]
    method: flowgate_guard::conversation::Method,
    /// Your instructions to the model, or @ and the file that has them.
    #[arg(long, value_name = "TEXT|@FILE")]
    pub(crate) system: Option<String>,
    /// Keep the model's answers in this file.
    #[arg(long, value_name = "FILE", conflicts_with = "replay")]
    pub(crate) record: Option<PathBuf>,
    /// Give the answers that were kept in this file, and ask no model.
    #[arg(long, value_name = "FILE")]
    pub(crate) replay: Option<PathBuf>,
    /// Say after each step what it carried and what was hidden, and at the end what the turn took.
    #[arg(long)]
    pub(crate) labels: bool,
    /// What earlier chats of this account wrote to stores: read from this file, and kept in it.
    #[arg(long, value_name = "FILE")]
    pub(crate) stores: Option<PathBuf>,
    /// Write what happens to this file, for `flowgate check`.
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// A parameter of the policy, `input.NAME`; the value is JSON, or else text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// Seconds for a tool to answer.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86400), help_heading = "Limits")]
    pub(crate) call_time: u32,
    /// The largest answer of a tool, in MiB.
    #[arg(long, default_value_t = 4, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=8), help_heading = "Limits")]
    pub(crate) max_answer: u32,
    /// What to say to the model; without it, what you say is read line by line.
    pub(crate) prompt: Option<String>,
}

#[cfg(feature = "run")]
impl RunArgs {
    pub(crate) fn api(&self) -> flowgate_lm::wire::Api {
        use flowgate_lm::wire::Api;
        match self.api {
            ModelApi::ChatCompletions => Api::ChatCompletions,
            ModelApi::Responses => Api::Responses,
            ModelApi::Messages => Api::Messages,
        }
    }

    pub(crate) fn method(&self) -> flowgate_guard::conversation::Method {
        self.method
    }
}

/// The forms in which models are asked.
#[cfg(feature = "run")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ModelApi {
    /// OpenAI's chat completions, which nearly every server of local models has.
    ChatCompletions,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

/// Reads the name of a method, and shows all of them in the help.
#[cfg(feature = "run")]
fn run_methods() -> impl clap::builder::TypedValueParser<Value = flowgate_guard::conversation::Method> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    use flowgate_guard::conversation::Method;
    let values = Method::ALL.map(|method| PossibleValue::new(method.name()).help(method.doc()));
    PossibleValuesParser::new(values).map(|name| {
        Method::ALL.into_iter().find(|method| method.name() == name).unwrap_or(Method::LowestFirst)
    })
}

/// How `serve` serves.
#[cfg(feature = "gateway")]
#[derive(Debug, clap::Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; port 0 takes any that is free.
    #[arg(long, default_value = "127.0.0.1:8000", value_name = "ADDRESS:PORT", value_parser = address)]
    pub(crate) listen: std::net::SocketAddr,
    /// The upstreams and clients of the model routes, in TOML; without it there are none.
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read policies as invariant-ai 0.3.5 did, and answer 400 or 500 if a rule cannot be evaluated.
    #[arg(long)]
    pub(crate) compat: bool,
    /// A file with the token that clients must send; FLOWGATE_TOKEN in the environment does as well.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Let everybody ask who can connect, though there is no token.
    #[arg(long)]
    pub(crate) allow_anonymous: bool,
    #[command(flatten)]
    pub(crate) answering: Answering,
    /// The largest body, in MiB.
    #[arg(long, default_value_t = 8, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=512), help_heading = "Limits")]
    pub(crate) max_body: u32,
    /// All bodies that are read or evaluated at the same time, in MiB.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=16384), help_heading = "Limits")]
    pub(crate) max_bodies: u32,
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

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// If the output is a terminal.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How `check` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON document.
    Json,
    /// One JSON object a line: calls and findings.
    Jsonl,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

/// How `replay` and `bench` print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TableFormat {
    /// A table.
    Text,
    /// One JSON object a line: for each suite and method, or for each row and for all of them.
    Json,
}

#[cfg(feature = "gateway")]
fn address(text: &str) -> Result<std::net::SocketAddr, String> {
    let text =
        text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| "expected an address and a port, such as 127.0.0.1:8000 or [::1]:0".to_owned())
}

fn method(name: &str) -> Result<String, String> {
    let known: Vec<&str> = flowgate_guard::influence::METHODS.iter().map(|method| method.name()).collect();
    match known.contains(&name) {
        true => Ok(name.to_owned()),
        false => Err(format!("known methods are {}", known.join(", "))),
    }
}

fn method_or_all(name: &str) -> Result<String, String> {
    if name == "all" { Ok(name.to_owned()) } else { method(name).map_err(|error| format!("{error} and all")) }
}
