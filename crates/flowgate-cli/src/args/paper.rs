//! Declares the arguments and the help of `flowgate bench paper`, which repeats the experiment of AgentSecBench. `clap`
//! parses the arguments.

use std::path::PathBuf;

use super::device::DeviceArgs;
use super::games::ReportFormat;

pub(super) const PAPER_HELP: &str = "\
Examples:
  flowgate bench paper models/Qwen3-0.6B models/Qwen3-1.7B
                                      the paper's 576 executions
  flowgate bench paper models/Qwen3-0.6B models/Qwen3-1.7B --answers answers.jsonl --runs results
                                      run it again to continue; the folder has
                                      one file for each model
  flowgate bench paper models/Qwen3-0.6B models/Qwen3-1.7B --dry-run
                                      what that would cost; no model is loaded
  flowgate bench paper models/Qwen3-0.6B models/Qwen3-1.7B --answers answers.jsonl --format html > paper.html
                                      a page with the charts and the tables
  flowgate bench paper models/Qwen3-0.6B models/Qwen3-1.7B --answers answers.jsonl --format jsonl > paper.jsonl
  flowgate bench verify paper.jsonl --answers answers.jsonl
                                      repeats the run with the answers in the file
  flowgate bench compare results/*.jsonl > compare.html

The protocol (its sections 6.2 to 6.4):
  Eight pairs of each of the three games, each under the six defences of the
  paper: 288 executions for each model. Answers are greedy and have at most 64
  tokens. A model that can think does not.

How to read the tables:
  First the tables of `flowgate bench games`, for each model. Then the paper's
  Tables 4 to 6 with the mean of all models beside the figures of the paper, which
  are means of Qwen3-0.6B and Qwen3-1.7B over tasks that are not public. The title
  of a table says if the models are others.

Exit codes:
  0    the measurement is complete
  2    the command line or a model cannot be used
  130  interrupted by Ctrl-C; models whose executions are complete have tables";

/// The options of `bench paper`.
#[derive(Debug, clap::Args)]
pub(crate) struct PaperArgs {
    /// The folder of a model in Hugging Face's form with a chat template, or a GGUF file. May be given several times.
    #[arg(value_name = "FOLDER", required = true)]
    pub(crate) models: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of the tasks: the same seed gives the same tasks.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of pairs of each game. The paper has 8.
    #[arg(long, default_value_t = 8, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) instances: u32,
    /// Keep the answers in this file, and ask only for those that it lacks: a run that was interrupted continues.
    /// Latency is then not measured.
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Write the run of each model to this folder in the format jsonl, which `flowgate bench compare` reads.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) runs: Option<PathBuf>,
    /// Load no model, and say how many answers and tokens the run would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}
