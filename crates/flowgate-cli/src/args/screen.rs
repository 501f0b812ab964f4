//! Declares the arguments and the help of `flowgate screen`, which trains screeners that read a model's attention.
//! `clap` parses them.

use std::path::PathBuf;

use clap::Subcommand;

/// The operations on screeners.
#[derive(Debug, Subcommand)]
pub(crate) enum ScreenCommand {
    /// Train a screener that reads the attention of a local model, and measure it.
    ///
    /// The screener says which regions of a chat the next message depends on ("RTBAS: Defending LLM Agents Against Prompt Injection and Privacy
    /// Leakage", sections 3.3 and 7.2). Its network is trained on generated cases; the threshold and the figures come from other cases.
    #[command(after_help = TRAIN_HELP)]
    Train(ScreenTrainArgs),
}

/// The options of `screen train`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenTrainArgs {
    /// The folder of the screener, which is created.
    pub(crate) folder: PathBuf,
    /// The folder or GGUF file of the model whose attention is read, or `embedded` for the small model that ships with Flowgate.
    #[arg(long, default_value = crate::local_model::EMBEDDED, value_name = "FOLDER")]
    pub(crate) local: PathBuf,
    /// The seed of cases and of the network. The same seed gives the same screener.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of cases of each set that train the network; as many choose the threshold, and as many are reported.
    #[arg(long, default_value_t = 40, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) cases: u16,
}

pub(super) const SCREEN_HELP: &str = "\
Examples:
  flowgate screen train screeners/small                 read the attention of the model that ships with Flowgate
  flowgate run --method judge --screener screeners/small --policy p.flow ...

Exit codes:
  0    the screener is trained
  2    the command line, the model or the folder cannot be used
  130  interrupted by Ctrl-C";

const TRAIN_HELP: &str = "\
Examples:
  flowgate screen train screeners/small                 read the model that ships with Flowgate
  flowgate screen train screeners/qwen --local models/Qwen3-0.6B
  flowgate run --method judge --screener screeners/small --policy p.flow ...
                                                        a chat with this screener

`flowgate bench screeners --help` explains the table.

Exit codes:
  0    the screener is trained
  2    the command line, the model or the folder cannot be used
  130  interrupted by Ctrl-C; no screener is written";
