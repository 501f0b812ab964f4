//! Declares the arguments and the help of `flowgate lm`, which trains and measures small models, and tunes label
//! searches for any. `clap` parses the arguments.

#[cfg(feature = "local")]
use std::path::PathBuf;

use clap::Subcommand;

#[cfg(feature = "local")]
use super::device::DeviceArgs;

/// The operations on small models.
#[derive(Debug, Subcommand)]
pub(crate) enum LmCommand {
    /// Train a small model on generated texts, or continue a training.
    ///
    /// The model learns to copy values from what it reads: it tells which document an answer depends on. The same seed
    /// and settings give the same weights. The folder is saved every hundred steps and at Ctrl-C, and the same command
    /// continues it.
    #[cfg(feature = "local")]
    #[command(after_help = TRAIN_HELP)]
    Train(TrainArgs),
    /// Measure how well a model copies values of generated texts that no training has read.
    #[cfg(feature = "local")]
    #[command(after_help = EVALUATE_HELP)]
    Evaluate(EvaluateArgs),
    /// Choose for a model how much utility a label search may lose (λ), for each phrasing of questions.
    ///
    /// λ does not carry over from one model, or from one template of prompts, to another. It is chosen on generated
    /// questions of which `flowgate bench propagation` with the same seed reports nothing.
    #[command(after_help = TUNE_HELP)]
    Tune(TuneArgs),
}

/// The options of `lm train`.
#[cfg(feature = "local")]
#[derive(Debug, clap::Args)]
pub(crate) struct TrainArgs {
    /// The folder of the training, which is also the folder of the model.
    pub(crate) folder: PathBuf,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of texts and first weights. A training that is continued keeps its own.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of steps. A training that is continued keeps its own.
    #[arg(long, default_value_t = 3000, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) steps: u32,
    /// The number of layers. A training that is continued keeps its own.
    #[arg(long, default_value_t = 3, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) layers: u8,
    /// The width of the layers, a multiple of 64. A training that is continued keeps its own.
    #[arg(long, default_value_t = 128, value_name = "NUMBER", value_parser = width)]
    pub(crate) width: u16,
    /// The number of texts of each step. A training that is continued keeps its own.
    #[arg(long, default_value_t = 8, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=4096))]
    pub(crate) batch: u16,
    /// Begin with the tokenizer and the weights of a trained model of the same shape: with texts of full length, and
    /// half the learning rate.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) from: Option<PathBuf>,
    /// When the training is complete, write the model in half precision to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) export: Option<PathBuf>,
}

/// The options of `lm evaluate`.
#[cfg(feature = "local")]
#[derive(Debug, clap::Args)]
pub(crate) struct EvaluateArgs {
    /// The folder or GGUF file of the model. [default: the model that ships with Flowgate]
    pub(crate) model: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of the texts.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of texts.
    #[arg(long, default_value_t = 200, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) texts: u32,
}

/// Parses the width of a model: a multiple of 64, because an attention head has a width of 32 and two heads share keys.
#[cfg(feature = "local")]
fn width(text: &str) -> Result<u16, String> {
    let width =
        text.parse().ok().filter(|width: &u16| (64..=4096).contains(width) && width.is_multiple_of(64));
    width.ok_or_else(|| "the width must be a multiple of 64 from 64 to 4096".to_owned())
}

/// The options of `lm tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// The folder or GGUF file of the model. [default: the model that ships with Flowgate]
    #[cfg(feature = "local")]
    #[arg(value_name = "MODEL")]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) folder: Option<PathBuf>,
    #[cfg(feature = "local")]
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    #[cfg(feature = "run")]
    #[command(flatten)]
    pub(crate) server: super::ScoringServerArgs,
    /// The seed of the questions.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of key-value questions of a benchmark; half as many are tuned on.
    #[arg(long, default_value_t = 16, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub(crate) questions: u16,
    /// The number of pairs of news articles of a benchmark; a quarter as many are tuned on.
    #[arg(long, default_value_t = 6, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(3..=1000))]
    pub(crate) pairs: u16,
    /// The most subcontexts that a search lets the model score at once, from 1 to 256.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: u16,
    /// Tune nothing, and say how many requests to a model on a server it would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[cfg(feature = "local")]
pub(super) const LM_HELP: &str = "\
Examples:
  flowgate lm evaluate                                  the model that ships with Flowgate
  flowgate lm train models/mine                         train another one
  flowgate lm tune models/mine                          choose λ of label searches for it
  flowgate lm tune --model qwen3 --url http://localhost:8000/v1
                                                        and for a model on a server

Exit codes:
  0    the operation is complete
  2    the command line, the folder or the model cannot be used
  130  interrupted by Ctrl-C";

#[cfg(not(feature = "local"))]
pub(super) const LM_HELP: &str = "\
Examples:
  flowgate lm tune --model qwen3 --url http://localhost:8000/v1
                                                        choose λ of label searches for a model

Exit codes:
  0    the operation is complete
  2    the command line or the model cannot be used
  130  interrupted by Ctrl-C";

#[cfg(feature = "local")]
const TRAIN_HELP: &str = "\
Examples:
  RAYON_NUM_THREADS=1 flowgate lm train models/mine     one to two hours on two cores
  flowgate lm train models/mine                         continue after Ctrl-C
  flowgate lm train models/more --from models/half      train a trained model further
  flowgate lm train models/large --layers 6 --width 256 --batch 16
                                                        a larger one
  flowgate lm train models/mine --export models/half    and write the model as it ships
  flowgate bench propagation --local models/half        measure labels with it

The folder also has losses.csv, the loss of each step, and losses.svg, its curve. With RAYON_NUM_THREADS=1, each text is
computed by one thread; otherwise, the threads of the matrix library wait for work on the cores that compute other texts.

Exit codes:
  0    the training is complete
  2    the command line or the folder cannot be used
  130  interrupted by Ctrl-C; the folder has all steps so far";

#[cfg(feature = "local")]
const EVALUATE_HELP: &str = "\
Examples:
  flowgate lm evaluate                                  the model that ships
  flowgate lm evaluate models/mine --texts 1000         another one
  flowgate lm evaluate models/Qwen3-0.6B                of any supported kind

Exit codes:
  0    the measurement is complete
  2    the command line or the model cannot be used
  130  interrupted by Ctrl-C; the table covers the texts so far";

const TUNE_HELP: &str = "\
Examples:
  flowgate lm tune                                      the model that ships, with the feature `local`
  flowgate lm tune models/mine --questions 64 --pairs 40
                                                        another one, on more questions
  flowgate lm tune --model qwen3 --url http://localhost:8000/v1
                                                        a model on a server that scores texts
  flowgate lm tune --model m --url http://localhost:8080 --scores llama-cpp --dry-run
                                                        what that would cost

How to read the table:
  λ           the loss of utility that finds the most exact labels; of several, the
              middle one
  0.01 ...    the share of questions with exactly the true labels at this λ

Exit codes:
  0    λ is chosen
  2    the command line or the model cannot be used
  130  interrupted by Ctrl-C; nothing is printed";
