//! Declares the arguments and the help of `flowgate hook`, which judges the tool calls of Claude Code.

use std::path::PathBuf;

use super::parameter;
use crate::predicate_args::PredicateArgs;

pub(super) const HOOK_HELP: &str = "\
In ~/.claude/settings.json, with the policy where the agent cannot write:
  {\"hooks\": {
    \"PreToolUse\": [{\"matcher\": \"*\", \"hooks\": [{\"type\": \"command\", \"timeout\": 60,
        \"command\": \"flowgate hook --policy /etc/flowgate/claude.flow || exit 2\"}]}],
    \"PostToolUse\": [ the same ], \"UserPromptSubmit\": [ the same, without the matcher ]}}

`|| exit 2` blocks the call if the program is missing. --seconds must be less than `timeout`, because Claude Code
ignores a hook that takes longer.

In policies, Claude Code's tools have their own names, `tool:Bash`, and tools of MCP servers are `tool:SERVER/NAME`.
Roles of messages: `user` for text that a person typed; `assistant` for text that the model wrote, including summaries
and tasks of sub-agents; `meta/TAG`, `client/TAG` and `attachment/KIND` for text that Claude Code adds (see docs/hooks.md).

Decisions:
  PreToolUse         deny or ask, with the reason; allow only with --allow
  PostToolUse        block, with a placeholder for the output, if a rule denies it or the model may not read it
  UserPromptSubmit   block, likewise

Exit codes:
  0    a decision was printed, or none is needed
  1    the hook is configured for an event that it does not judge
  2    the command line or the standard input cannot be used; Claude Code then blocks the call";

/// The options of `hook`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct HookArgs {
    /// The policy file.
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: PathBuf,
    /// Decide `allow` if the policy permits the call: Claude Code then does not ask the user. Without it, Claude Code's own permissions
    /// still apply.
    #[arg(long)]
    pub(crate) allow: bool,
    /// A parameter of the policy, `input.NAME`. The value is read as JSON if it is JSON, otherwise as text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    pub(crate) parameters: Vec<(String, serde_json::Value)>,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
    /// The largest size of a session's transcripts, including sub-agents, in MiB. Everything is denied in a longer session.
    #[arg(long, default_value_t = 64, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1024), help_heading = "Limits")]
    pub(crate) max_transcript: u32,
    /// The time limit for a verdict, in seconds; after it, the decision is `deny`.
    #[arg(long, default_value_t = 30, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(2..=600), help_heading = "Limits")]
    pub(crate) seconds: u32,
}
