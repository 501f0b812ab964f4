//! Declares the arguments and the help of `flowgate bench propagation`, which runs the evaluation of the paper
//! *Permissive Information-Flow Analysis*, and of `flowgate bench news-questions`, which writes questions for it.
//! `clap` parses the arguments.

use flowgate_bench::propagation::CopyingErrors;

use super::bench_model::BenchModelArgs;
use super::games::ReportFormat;

pub(super) const PROPAGATION_HELP: &str = "\
Examples:
  flowgate bench propagation                              all doubles
  flowgate bench propagation --double copy --questions 8 --pairs 20
                                                          in a few seconds
  flowgate bench propagation --format csv > figures.csv   figures for other programs
  flowgate bench propagation --format jsonl > run.jsonl   figures, tuning grids and attacks
  flowgate bench propagation --seed 7                     other documents and questions
  flowgate bench propagation --seeds 3                    three seeds: means and ranges
  flowgate bench propagation --news fakeNewsDataset       the public articles, with questions
                                                          of yours in questions.jsonl
  flowgate bench propagation --model qwen3 --url http://localhost:8000/v1
                                                          a model on a server that scores texts

The data sets, which are generated from the seed or written by us:
  key-value/14  persons with numbers and dates in 128 documents, each with its own
                label; 14 documents for each question, all minimal labels asked for
  key-value/8   the same with 8 documents, on which Algorithm 1 runs to the letter
  key-value/unseen
                14 documents, in phrasings that the model which ships was not trained
                on; only with a model
  news/...      a trusted and an untrusted article on one event, and others; found
                by a perfect retriever, or by TF-IDF, which may miss one; with
                `--embeddings-model` or `--local` also by embeddings
  agents/...    40 requests that call a retrieval tool, with a trusted and an
                untrusted result; the answer is given, or the double or the model
                writes it

The methods:
  naive            the join of all labels
  prompt           hitting-set search: which labels keep the answer as probable
  prompt/literal   Algorithm 1 of the paper
  prompt/shapley   the search, without labels of low Shapley value
  knn-lm           the search over a datastore of hidden states
  introspection    the model cites documents

The doubles, all of which copy what is visible:
  copy             a word is probable if a visible text has it
  copy/noisy       the same, with errors that depend on the prompt
  copy/distracted  less sure the more text is visible: not monotone
  copy/forms       also guesses words of a visible form, such as dates

How to read the tables:
  exact       questions whose labels are exactly the minimal ones
  improved    labels improved to the right one, of those that can be improved
  missed      labels that are too low, of those that were improved; the answer is
              then generated from fewer documents than it needs, but carries the
              label of what it was generated from
  λ           the loss of utility that is tolerated, tuned on other questions;
              0.2 for the agents
  cut off     searches that spent their budget

  With `--model`, the server scores texts (`--scores`), and the model answers and
  cites. No server returns hidden states, so knn-lm has no row. Tables 1 to 4 are
  then those of the model, on few questions if you limit them: a search scores
  dozens of texts.

  A double knows which words matter. The figures show what a search adds to a
  model, and are upper bounds: no figure is that of a real model.

Exit codes:
  0    the measurement is complete
  2    the command line cannot be used
  130  interrupted by Ctrl-C; doubles whose runs are complete have rows";

/// The options of `bench propagation`.
#[derive(Debug, clap::Args)]
pub(crate) struct PropagationArgs {
    /// The seed of documents, questions and errors. The same seed gives the same output.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of seeds, counted from `--seed`, from 1 to 1000. With several, the tables have means with the least and the
    /// greatest value of a seed.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// A double. May be given several times. [default: all]
    #[arg(long = "double", value_name = "NAME", value_parser = double)]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) doubles: Vec<CopyingErrors>,
    /// Measure a model in place of the doubles: the folder or GGUF file of its weights, or `embedded` for the small model that ships with Flowgate.
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER", conflicts_with = "doubles")]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) local: Option<std::path::PathBuf>,
    #[cfg(feature = "local")]
    #[command(flatten)]
    pub(crate) device: super::device::DeviceArgs,
    #[cfg(feature = "run")]
    #[command(flatten)]
    pub(crate) server: super::ScoringServerArgs,
    /// The most subcontexts that a search lets the model score at once, from 1 to 256. [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) batch: Option<u16>,
    /// The number of key-value questions, from 2 to 1000.
    #[arg(long, default_value_t = 64, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub(crate) questions: u16,
    /// The number of pairs of news articles, from 3 to 1000.
    #[arg(long, default_value_t = 240, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(3..=1000))]
    pub(crate) pairs: u16,
    /// A folder with the public pairs of legitimate and fake articles (fakeNewsDataset) and `questions.jsonl`, in place of the generated articles.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) news: Option<std::path::PathBuf>,
    /// The name of a model on a server whose embeddings also find articles.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "NAME", requires = "embeddings_url")]
    pub(crate) embeddings_model: Option<String>,
    /// The address of the server of the embeddings, such as http://localhost:8080/v1.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "URL", requires = "embeddings_model")]
    pub(crate) embeddings_url: Option<String>,
    /// The environment variable that contains the key of the server of the embeddings.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "VARIABLE", requires = "embeddings_model")]
    pub(crate) embeddings_key_from: Option<String>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Run nothing, and say how many requests to a model the run would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

#[cfg(any(feature = "local", feature = "run"))]
impl PropagationArgs {
    /// Returns the most subcontexts that a search lets the model score at once.
    pub(crate) fn batch_size(&self) -> usize {
        self.batch.map_or(1, usize::from)
    }
}

pub(super) const NEWS_QUESTIONS_HELP: &str = "\
Examples:
  flowgate bench news-questions fakeNewsDataset --model qwen3 --url http://localhost:8080/v1 \\
      > fakeNewsDataset/questions.jsonl
  flowgate bench news-questions fakeNewsDataset --pairs 10 --dry-run
                                         what ten pairs would cost

What is refused:
  a question with a fact whose quoted sentence the article does not have, whose
  words the answer or the quoted sentence lacks, which the question gives away, or
  which an article states that is not quoted. The reasons are on standard error.

Exit codes:
  0    the questions are printed; none if all were refused
  2    the command line or the folder cannot be used, or the model failed
  130  interrupted by Ctrl-C; the questions so far are printed";

/// The options of `bench news-questions`.
#[derive(Debug, clap::Args)]
pub(crate) struct NewsQuestionsArgs {
    /// The folder with the public pairs of legitimate and fake articles (fakeNewsDataset).
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: std::path::PathBuf,
    /// The number of pairs, from the first one on, from 1 to 1000.
    #[arg(long, default_value_t = 240, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) pairs: u16,
    #[command(flatten)]
    pub(crate) model: BenchModelArgs,
}

/// Parses the name of a double. The error lists the doubles.
fn double(name: &str) -> Result<CopyingErrors, String> {
    let names = CopyingErrors::ALL.map(CopyingErrors::name).join(", ");
    CopyingErrors::parse(name)
        .ok_or_else(|| format!("there is no double `{}`; use one of {names}", name.escape_debug()))
}
