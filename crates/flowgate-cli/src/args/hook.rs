//! Declares the arguments and the help of `flowgate hook`, which judges the tool calls of coding agents. `clap` parses
//! the arguments.

use std::path::PathBuf;

use super::parameter;
use crate::predicate_args::PredicateArgs;

/// The environment variable with the key of an agent for the gateway.
pub(crate) const AGENT_KEY: &str = "FLOWGATE_KEY";

pub(super) const HOOK_HELP: &str = "\
For Claude Code, in ~/.claude/settings.json, with the policy where the agent cannot write:
  {\"hooks\": {
    \"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"timeout\": 60,
        \"onFailure\": \"block\",
        \"command\": \"flowgate hook --policy /etc/flowgate/claude.flow || exit 2\"}]}],
    \"PostToolUse\": [ the same ], \"UserPromptSubmit\": [ the same, without the matcher ]}}

`onFailure` blocks the call if the program is missing or takes too long; `|| exit 2` is for versions before 2.1.295. --seconds
must be less than `timeout`, because those versions ignore a hook that takes longer.

In policies, Claude Code's tools have their own names, `tool:Bash`, and tools of MCP servers are `tool:SERVER/NAME`.
Roles of messages: `user` for text that a person typed; `assistant` for text that the model wrote, including summaries
and tasks of sub-agents; `meta/TAG`, `client/TAG` and `attachment/KIND` for text that Claude Code adds (see docs/hooks.md).

For Codex, in ~/.codex/hooks.json: the same with `--harness codex`, and SessionStart as well. For Gemini CLI, in
~/.gemini/settings.json: `--harness gemini` for SessionStart, BeforeAgent, BeforeTool and AfterTool, with `timeout` in
milliseconds. Their events are recorded in a file for each session (--sessions). What they add to the context without a
hook, such as AGENTS.md, is an empty message of the role `attachment/context`. Codex cannot ask: `ask` is `deny` there.

For Cursor (`--harness cursor`), Copilot CLI (`--harness copilot`) and OpenCode (`--harness opencode`, run by a plugin), see
examples/hooks. Cursor and OpenCode cannot ask either.

If the agent uses Flowgate's gateway as its base URL, --gateway asks the gateway about each call, with the agent's key
(FLOWGATE_KEY): a call runs only if the hook permits it and the gateway has handed it over.

To try a policy without stopping anything, for a week or so:
  flowgate hook --policy /etc/flowgate/claude.flow --watch ~/flowgate-watch.jsonl
  flowgate report ~/flowgate-watch.jsonl
With --traces FOLDER as well, the sessions are recorded with their content and the parameters (--param), and the least changes that
let them pass are found by
  flowgate suggest /etc/flowgate/claude.flow FOLDER
Without `onFailure` and `|| exit 2`, a hook that fails stops nothing either.

Decisions (by the names of Claude Code's events):
  PreToolUse         deny or ask, with the reason; allow only with --allow
  PostToolUse        block, with a placeholder for the output, if a rule denies it or the model may not read it
  UserPromptSubmit   block, likewise

Exit codes:
  0    a decision was printed, or none is needed
  1    the hook is configured for an event that it does not judge
  2    the command line or the standard input cannot be used; the agent then blocks the call";

/// The coding agents whose hooks `flowgate hook` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Harness {
    /// Claude Code, by its transcript.
    ClaudeCode,
    /// Codex CLI, by the events of its session.
    Codex,
    /// Gemini CLI, by the events of its session.
    Gemini,
    /// Cursor, by the events of its session.
    Cursor,
    /// Copilot CLI, by the events of its session.
    Copilot,
    /// OpenCode, by the events that a plugin reports.
    #[value(name = "opencode")]
    OpenCode,
}

/// The options of `hook`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HookArgs {
    /// The policy file.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// The coding agent that runs the hook.
    #[arg(long, value_enum, default_value_t = Harness::ClaudeCode, value_name = "AGENT")]
    pub(crate) harness: Harness,
    /// The folder with a file for each session, for agents other than Claude Code: $XDG_STATE_HOME/flowgate/hooks or
    /// ~/.local/state/flowgate/hooks, if it is not given. The agent must not write there.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) sessions: Option<PathBuf>,
    /// Decide `deny` where the policy asks a person: for runs that nobody watches. Gemini CLI with `-p` otherwise waits without end.
    #[arg(long)]
    pub(crate) no_questions: bool,
    /// Decide `allow` if the policy permits the call: Claude Code and Cursor then do not ask the user. Without it, their own
    /// permissions still apply. Other agents always apply theirs.
    #[arg(long)]
    pub(crate) allow: bool,
    /// Watch only: append what would be decided to this file, and let the agent go on. `flowgate report FILE` sums it up.
    #[arg(long, value_name = "FILE", conflicts_with = "allow")]
    pub(crate) watch: Option<PathBuf>,
    /// While watching, also record each session as a trace in this folder, for `flowgate suggest`. The traces have the content that the
    /// agent reads, and only their owner can read them. The agent must not write there.
    #[arg(long, value_name = "FOLDER", requires = "watch")]
    pub(crate) traces: Option<PathBuf>,
    /// A parameter of the policy, `input.NAME`. The value is read as JSON if it is JSON, otherwise as text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
    /// The gateway that the agent uses as its base URL: a call runs only if the gateway has handed it over as well. For Claude Code, Codex,
    /// Copilot CLI, Gemini CLI and OpenCode.
    #[arg(long, value_name = "URL")]
    pub(crate) gateway: Option<String>,
    /// A file that contains the key of the agent for the gateway; alternatively, set FLOWGATE_KEY.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    pub(crate) key_file: Option<PathBuf>,
    /// The certificates (PEM) of the authorities that may vouch for the gateway, instead of the well-known ones.
    #[arg(long, value_name = "FILE", requires = "gateway")]
    pub(crate) ca_file: Option<PathBuf>,
    /// The largest size of a session's transcripts, including sub-agents, or of its file, in MiB. Everything is denied in a longer session.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    pub(crate) max_transcript: u32,
    /// The time limit for a verdict, in seconds; after it, the decision is `deny`.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=600), help_heading = "Limits")]
    pub(crate) seconds: u32,
}
