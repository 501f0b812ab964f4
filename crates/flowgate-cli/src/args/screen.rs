//! Declares the arguments and the help of `flowgate screen`, which trains screeners that read a model's attention and
//! measures the time that they take. `clap` parses the arguments.

use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

use super::device::DeviceArgs;

/// The operations on screeners.
#[derive(Debug, Subcommand)]
pub(crate) enum ScreenCommand {
    /// Train a screener that reads the attention of a local model, and measure it.
    ///
    /// The screener says which regions of a chat the next message depends on ("RTBAS: Defending LLM Agents Against
    /// Prompt Injection and Privacy Leakage", sections 3.3 and 7.2). Its network is trained on generated cases; the
    /// threshold and the figures come from other cases.
    #[command(after_help = TRAIN_HELP)]
    Train(ScreenTrainArgs),
    /// Measure how long a trained screener takes for one step.
    ///
    /// A step is one evaluation of a prompt and a call with its gradients, the summary of the regions, and the network.
    /// The writing of the preliminary message is not part of it.
    #[command(after_help = TIME_HELP)]
    Time(ScreenTimeArgs),
}

/// The options of `screen time`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenTimeArgs {
    /// The folder of a screener that `screen train` wrote.
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The least number of tokens of the prompt.
    #[arg(long, default_value_t = 1000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(10..=100_000))]
    pub(crate) tokens: u32,
    /// The number of steps that are measured, after one that is not.
    #[arg(long, default_value_t = 20, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) runs: u16,
    /// The seed of the prompts.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
}

/// What the network of a screener reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScreenFeatures {
    /// Sum, mean and quantiles of the saliency, as in RTBAS.
    Paper,
    /// These, the same with equal weight of each token of the output, and the attention.
    Extended,
}

/// The options of `screen train`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenTrainArgs {
    /// The folder of the screener, which is created.
    pub(crate) folder: PathBuf,
    /// The folder or GGUF file of the model whose attention is read, or `embedded` for the small model that ships with
    /// Flowgate.
    #[arg(long, default_value = crate::local_model::EMBEDDED, value_name = "FOLDER")]
    pub(crate) local: PathBuf,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of cases and of the network. The same seed gives the same screener.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of cases of each set that train the network; as many choose the threshold, and as many are reported.
    #[arg(long, default_value_t = 40, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) cases: u16,
    /// What the network reads.
    #[arg(long, value_enum, default_value_t = ScreenFeatures::Extended)]
    pub(crate) features: ScreenFeatures,
    /// Train on the calls of the runs in this file, which examples/agentdojo/traces.py writes, instead of generated
    /// cases. `--cases` is then the most calls of each suite.
    #[arg(long, value_name = "FILE", requires = "suite")]
    pub(crate) traces: Option<PathBuf>,
    /// The suite of the traces that is left out of the training, and whose figures are printed.
    #[arg(long, value_name = "NAME", requires = "traces")]
    pub(crate) suite: Option<String>,
    /// The most bytes of a prompt from the traces; longer ones are left out.
    #[arg(long, default_value_t = 4000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) prompt_limit: u32,
}

pub(super) const SCREEN_HELP: &str = "\
Examples:
  flowgate screen train screeners/small                 read the attention of the model that ships with Flowgate
  flowgate screen time screeners/small                  the time of a step
  flowgate run --method judge --screener screeners/small --policy p.flow ...

Exit codes:
  0    the operation is complete
  2    the command line, the model or the folder cannot be used
  130  interrupted by Ctrl-C";

const TRAIN_HELP: &str = "\
Examples:
  flowgate screen train screeners/small                 read the model that ships with Flowgate
  flowgate screen train screeners/qwen --local models/Qwen3-0.6B
  flowgate screen train screeners/small --traces agentdojo.jsonl.gz --suite travel
                                                        learn from the other suites of AgentDojo
  flowgate run --method judge --screener screeners/small --policy p.flow ...
                                                        a chat with this screener

`flowgate bench screeners --help` explains the table.

Exit codes:
  0    the screener is trained
  2    the command line, the model or the folder cannot be used
  130  interrupted by Ctrl-C; no screener is written";

const TIME_HELP: &str = "\
Examples:
  flowgate screen time screeners/small
  RAYON_NUM_THREADS=1 taskset -c 0 flowgate screen time screeners/small
                                                        on one core
  flowgate screen time screeners/small --tokens 200

Exit codes:
  0    the measurement is complete
  2    the command line or the screener cannot be used
  130  interrupted by Ctrl-C; the table covers the steps so far";
