//! Declares the arguments and the help of `flowgate labels`, which shows the labels of a recorded run. `clap` parses
//! the arguments.

use std::path::PathBuf;

use clap::ValueEnum;

use crate::parameter_args::ParameterArgs;
use crate::predicate_args::PredicateArgs;

pub(super) const LABELS_HELP: &str = "\
Examples:
  flowgate labels policy.flow trace.json                  each field, its label, and the line of the policy that gave it
  flowgate labels policy.flow trace.json --event 3        one event
  flowgate labels policy.flow trace.json --format json    the same, for programs

A field without a line has a label that no statement gave: that of the call that it answers, of what the model had seen,
or top. Below the fields is what a guarded agent is shown in a step at the base label, the label at which every tool of the
run can be called without a question.

Exit codes:
  0    the labels were printed
  2    the command line, the policy or the trace cannot be used, or there is no event with that number
  130  interrupted by Ctrl-C; the results so far are printed";

/// How `labels` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabelsFormat {
    /// Text for people, with the content of the fields.
    Text,
    /// One JSON document, with the content of the fields.
    Json,
}

/// The options of `labels`.
#[derive(Debug, clap::Args)]
pub(crate) struct LabelsArgs {
    /// The policy file.
    pub(crate) policy: PathBuf,
    /// The trace file.
    pub(crate) trace: PathBuf,
    /// Show only the event with this number.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) event: Option<usize>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = LabelsFormat::Text)]
    pub(crate) format: LabelsFormat,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    #[command(flatten)]
    pub(crate) answering: PredicateArgs,
}
