//! Declares the arguments and the help of `flowgate bench screeners`, which measures screeners that read a model's attention. `clap` parses them.

use std::path::PathBuf;

use super::TableFormat;

pub(super) const SCREENERS_HELP: &str = "\
Examples:
  flowgate bench screeners                              the model that ships with Flowgate
  flowgate bench screeners --local models/opt-125m      another one
  flowgate screen train screeners/small                 train a screener for `flowgate run`

The sets:
  documents         answers from documents, some of which state the same fact
  unseen phrasing   the same in phrasings that neither model nor network has read
  calls             a call with values that one output of a tool has
  same value twice  a call with values that two outputs have; the request names one
  reformatted       a call with values in another spelling

The screeners:
  shared values     values of the output that the region has: no model
  saliency/...      attention times its gradient: the highest, the sum, the sum with
                    equal weight of each token of the output, and with the margin to
                    the likeliest other token as the loss
  leave-one-in      the probability of the output after one region alone
  network           two layers of LSTM over the features of all regions

How to read the table:
  area                  the probability that a dependency scores higher than another region
  false at full recall  other regions that are named if no dependency may be missed
  balanced              the mean of the shares of dependencies and of other regions
                        that are decided rightly at the threshold
  majority              the accuracy of always giving the more frequent answer

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
    /// The seed of cases and of the network. The same seed gives the same output.
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    pub(crate) seed: u64,
    /// The number of cases of each set; as many again train the network, and choose thresholds.
    #[arg(long, default_value_t = 40, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(crate) cases: u16,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = TableFormat::Text)]
    pub(crate) format: TableFormat,
}
