//! Declares the arguments and the help of `flowgate bench privacy`, which runs the privacy-leak tasks of the paper
//! RTBAS. `clap` parses the arguments.

use flowgate_bench::privacy::PrivacyDefence;

use super::bench_model::BenchModelArgs;
use super::games::ReportFormat;

pub(super) const PRIVACY_HELP: &str = "\
Examples:
  flowgate bench privacy                                 all defences
  flowgate bench privacy --defence lowest-first --defence everything
  flowgate bench privacy --format csv > figures.csv      figures for other programs
  flowgate bench privacy --format jsonl > run.jsonl      one line for each task and defence
  flowgate bench privacy --format html > run.html        a page with charts
  flowgate bench privacy --model qwen3 --url http://localhost:8080/v1 --answers qwen3.jsonl
                                                         a model; run it again to continue
  flowgate bench privacy --seed 7                        other errors of judge/noisy, other resamples
  flowgate bench privacy --seeds 20 --defence judge/noisy
                                                         the spread of its errors over 20 seeds

The tasks:
  37 tasks with three sets of tools that really run: payments, flights and a shop.
  Private data comes from tools, before the request or during it. An oracle label
  says for each call whether a person has to confirm it and which categories of
  private data it discloses. A task has the first of these patterns that fits;
  four are those of RTBAS, section 3.2, and `ambiguous` is in its introduction:
  ambiguous     the request leaves open whether the data is meant, or which
  none          the data is in the context, and nothing needs it
  decides       the data decides about a call that does not repeat it
  description   the description of a tool asks for the data (3.2)
  intermediate  the data is used in a step of reasoning or of another tool (3.2)
  implicit      the request needs the data without naming it (3.2)
  explicit      the request names the data (3.2)

The defences:
  paper/redact-all       hides all private data and never asks
  paper/confirm-always   asks about every call
  METHOD                 a guarded conversation; `flowgate run --help` lists them.
                         `everything` asks whenever private data is in the
                         context: the paper counts its second baseline so
  judge/JUDGE, introspection/JUDGE
                         a screener whose double is
                         honest    names what the next step needs
                         noisy     is wrong about one region in ten
                         curious   names everything as soon as something is needed
  planted/judge/JUDGE, planted/introspection/JUDGE
                         in tables of their own, only with a double: the same tasks
                         with instructions to assistants in the data, and a judge
                         that is honest, or obeying: does what the regions say
  attention              the double is the agent, and a network that reads the
                         attention of a local model is the screener: only in a
                         program with the feature `local`; otherwise the row is empty
  provenance/guessing    the agent leaves out, or guesses, what it may not see
  lowest-first           ours: the default of `flowgate run`
  lowest-first/curious   the same; the agent looks at everything at once
  oracle                 the ground truth with the oracle labels
  judge/model, introspection/model
                         only with a model, which is its own screener; with a model,
                         the default is every METHOD and these two

How to read the tables:
  FN          tasks with a call that needs a confirmation and was not asked about,
              or not made, of all tasks (the paper's prose swaps FN and FP;
              one table has both pairs)
  FP          tasks with a question about a call that needs none, of all tasks
  exact       calls of the ground truth whose categories are exactly the oracle's;
              a call that was not made has disclosed nothing
  private     the same, of the calls that disclose something
  utility     tasks completed, with a person who refuses or allows every question
  disclosed   tasks in which a private call took place although nobody allowed it
  p           McNemar's exact test, not corrected for the number of comparisons

  The agent is a double that knows what each step needs. Where the double looks
  is therefore right by construction: `lowest-first` and the honest judges show
  what the guard adds to perfect choices, and no figure is that of a real model,
  but for the choices of `attention`, which are those of the network.

Exit codes:
  0    the measurement is complete, and nothing was disclosed that nobody allowed
  1    something was disclosed that nobody allowed
  2    the command line cannot be used
  130  interrupted by Ctrl-C; defences whose runs are complete have a row";

/// The options of `bench privacy`.
#[derive(Debug, clap::Args)]
pub(crate) struct PrivacyArgs {
    /// The seed of the noisy judge and of the bootstrap. The same seed gives the same output.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of seeds, counted from `--seed`, with which a defence runs that draws random numbers: `judge/noisy`
    /// alone. The tasks, the other doubles and the greedy answers of a model are the same with every seed.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) seeds: u32,
    /// A defence. May be given several times. [default: all]
    #[arg(long = "defence", value_name = "NAME", value_parser = defence_name)]
    pub(crate) defences: Vec<&'static str>,
    /// The folder of the screener that `attention` reads, which `flowgate screen train` wrote. [default: one that is
    /// trained now for the small model that ships]
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) screener: Option<std::path::PathBuf>,
    #[command(flatten)]
    pub(crate) model: BenchModelArgs,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
}

/// Checks the name of a defence, and returns it as a static text. `parse` needs a seed, which does not affect the name,
/// so it is 0.
fn defence_name(name: &str) -> Result<&'static str, flowgate_bench::privacy::UnknownPrivacyDefence> {
    PrivacyDefence::parse(name, 0).map(PrivacyDefence::name)
}
