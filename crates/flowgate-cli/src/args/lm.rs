//! Declares the arguments and the help of `flowgate lm`, which trains and measures small models. `clap` parses them.

use std::path::PathBuf;

use clap::Subcommand;

/// The operations on small models.
#[derive(Debug, Subcommand)]
pub(crate) enum LmCommand {
    /// Train a small model on generated texts, or continue a training.
    ///
    /// The model learns to copy values from what it reads: it tells which document an answer depends on. The same seed and settings give the
    /// same weights. The folder is saved every hundred steps and at Ctrl-C, and the same command continues it.
    #[command(after_help = TRAIN_HELP)]
    Train(TrainArgs),
    /// Measure how well a model copies values of generated texts that no training has read.
    #[command(after_help = EVALUATE_HELP)]
    Evaluate(EvaluateArgs),
}

/// The options of `lm train`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrainArgs {
    /// The folder of the training, which is also the folder of the model.
    pub(crate) folder: PathBuf,
    /// The seed of texts and first weights. A training that is continued keeps its own.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of steps. A training that is continued keeps its own.
    #[arg(long, default_value_t = 3000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) steps: u32,
    /// Begin with the tokenizer and the weights of a trained model of the same shape: with texts of full length, and half the learning rate.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: Option<PathBuf>,
    /// When the training is complete, write the model in half precision to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) export: Option<PathBuf>,
}

/// The options of `lm evaluate`.
#[derive(Debug, clap::Args)]
pub(crate) struct EvaluateArgs {
    /// The folder or GGUF file of the model. [default: the model that ships with Flowgate]
    pub(crate) model: Option<PathBuf>,
    /// The seed of the texts.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of texts.
    #[arg(long, default_value_t = 200, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) texts: u32,
}

pub(super) const LM_HELP: &str = "\
Examples:
  flowgate lm evaluate                                  the model that ships with Flowgate
  flowgate lm train models/mine                         train another one

Exit codes:
  0    the operation is complete
  2    the command line, the folder or the model cannot be used
  130  interrupted by Ctrl-C";

const TRAIN_HELP: &str = "\
Examples:
  flowgate lm train models/mine                         on one machine, one to two hours on two cores
  flowgate lm train models/mine                         continue after Ctrl-C
  flowgate lm train models/more --from models/half      train a trained model further
  flowgate lm train models/mine --export models/half    and write the model as it ships
  flowgate bench propagation --local models/half        measure labels with it

The folder also has losses.csv, the loss of each step, and losses.svg, its curve.

Exit codes:
  0    the training is complete
  2    the command line or the folder cannot be used
  130  interrupted by Ctrl-C; the folder has all steps so far";

const EVALUATE_HELP: &str = "\
Examples:
  flowgate lm evaluate                                  the model that ships
  flowgate lm evaluate models/mine --texts 1000         another one
  flowgate lm evaluate models/Qwen3-0.6B                of any supported kind

Exit codes:
  0    the measurement is complete
  2    the command line or the model cannot be used
  130  interrupted by Ctrl-C; the table covers the texts so far";
