//! `flowgate hook`.

use std::path::PathBuf;

use super::parameter;
use crate::answering::Answering;

pub(super) const HOOK_HELP: &str = "\
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
