//! Declares the arguments and the help of `flowgate report`, which sums up the verdicts that were recorded in watch
//! mode. `clap` parses the arguments.

use std::path::PathBuf;

use super::TableFormat;

pub(super) const REPORT_HELP: &str = "\
Examples:
  flowgate hook --policy agent.flow --watch watch.jsonl   record what a hook would decide, and stop nothing
  flowgate mcp --policy files.flow --watch watch.jsonl -- COMMAND
                                                          the same for an MCP server; a gateway has `mode = \"watch\"`
  flowgate report watch.jsonl                             what would have been asked and denied, most frequent first
  flowgate report --format json watch.jsonl               the same, for programs

A watch log has no content, so it cannot be judged again. `flowgate suggest` finds the
least changes of a policy over recorded traces: those of `--traces` beside `--watch`, or of `flowgate trace export --all`.

Exit codes:
  0    nothing would have been asked about or denied
  1    something would have been, or a line cannot be read
  2    the command line or a file cannot be used";

/// The options of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportArgs {
    /// The files that a guard has written in watch mode: `flowgate hook --watch`, `flowgate mcp --watch`, a gateway with `[watch]`.
    #[arg(required = true, value_name = "FILES")]
    pub(crate) files: Vec<PathBuf>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub(crate) format: TableFormat,
}
