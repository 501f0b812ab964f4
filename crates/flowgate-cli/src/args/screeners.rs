//! Declares the arguments and the help of `flowgate bench screeners`, which measures screeners that read a model's
//! attention. `clap` parses the arguments.

use std::path::PathBuf;

use super::device::DeviceArgs;
use super::games::ReportFormat;

pub(super) const SCREENERS_HELP: &str = "\
Examples:
  flowgate bench screeners                              the model that ships with Flowgate
  flowgate bench screeners --local models/opt-125m      another one
  flowgate screen train screeners/small                 train a screener for `flowgate run`
  flowgate bench screeners --format html --charts charts > screeners.html
                                                        ROC curves, and RTBAS's Figures 2 and 3

  flowgate bench screeners --traces agentdojo.jsonl.gz --cases 100
                                                        calls of AgentDojo's tasks

The sets:
  documents         answers from documents, some of which state the same fact
  unseen phrasing   the same in phrasings that neither model nor network has read
  calls             a call with values that one output of a tool has
  same value twice  a call with values that two outputs have; the request names one
  reformatted       a call with values in another spelling
  derived           a call with the sum of two values
  in words          a call with numbers that a region has in words
  choice of the tool  the tool follows from a region, the values from the request

With --traces, the sets are the suites of AgentDojo. A case is a call of the ground
truth of a task, and a region is the output of an earlier tool as a whole. A call
depends on the outputs with its arguments, and a call of an attacker on the output
with the injected text. Calls with derived arguments are left out. What is learned
comes from the other suites.

The screeners:
  shared values     values of the output that the region has: no model
  saliency/...      attention times its gradient: the highest, the sum, the sum with
                    equal weight of each token of the output, the greatest share of one
                    token of the output, and with the margin to the likeliest other
                    token as the loss
  attention/mass    the attention itself, in the head with the most
  jacobian/...      a bound on what the output reveals of a region if its
                    embeddings are noisy, in nats, and its share of all bounds
  leave-one-in      the probability of the output after one region alone
  network           two layers of LSTM over the features of all regions, as in RTBAS
  network/extended  the same with further features
  values, then network  shared values, and the extended network where there are none

How to read the table:
  area                  the probability that a dependency scores higher than another region
  false at full recall  other regions that are named if no dependency may be missed
  balanced              the mean of the shares of dependencies and of other regions
                        that are decided rightly at the threshold
  majority              the accuracy of always giving the more frequent answer

The second table has the distributions of RTBAS's Figures 2 and 3, computed on the
cases of this suite: Figure 2 for all regions, Figure 3 for calls that follow the
user (3a) or an instruction in the output of a tool (3b).

Exit codes:
  0    the measurement is complete
  2    the command line or the model cannot be used
  130  interrupted by Ctrl-C";

/// The options of `bench screeners`.
#[derive(Debug, clap::Args)]
pub(crate) struct ScreenersArgs {
    /// The folder or GGUF file of a model with attention, or `embedded` for the small model that ships with Flowgate.
    #[arg(long, default_value = crate::local_model::EMBEDDED, value_name = "FOLDER")]
    pub(crate) local: PathBuf,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// The seed of cases and of the network. The same seed gives the same output.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// Measure the calls of the runs in this file, which examples/agentdojo/traces.py writes, instead of the generated
    /// sets.
    #[arg(long, value_name = "FILE")]
    pub(crate) traces: Option<PathBuf>,
    /// The most bytes of a prompt from the traces; longer ones are left out.
    #[arg(long, default_value_t = 4000, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    pub(crate) prompt_limit: u32,
    /// The number of cases of each set; of generated sets, as many again train the network, and choose thresholds.
    #[arg(long, default_value_t = 40, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) cases: u16,
    /// Write the ROC curves of each set, and RTBAS's Figures 2 and 3, to this folder as SVG.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) charts: Option<PathBuf>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Run nothing, and say how many requests to a model the run would cost: none, since no model of a server takes
    /// part.
    #[arg(long)]
    pub(crate) dry_run: bool,
}
