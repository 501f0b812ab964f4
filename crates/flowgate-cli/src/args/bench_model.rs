//! Declares the options by which a measurement (`flowgate bench ...`) uses a model. Without these options, a double, a
//! simple program, answers in place of a model. Several measurements share the options; `clap` parses the arguments.

use std::path::PathBuf;

/// The model of a measurement.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct BenchModelArgs {
    /// The name of a model on a server, which answers greedily instead of a double.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(crate) model: Option<String>,
    /// The address of the server, such as http://localhost:8080/v1.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "URL", requires = "model")]
    pub(crate) url: Option<String>,
    /// The interface of the server.
    #[cfg(feature = "run")]
    #[arg(long, value_enum, value_name = "API", default_value_t = BenchApi::Chat, requires = "model")]
    pub(crate) api: BenchApi,
    /// The environment variable that contains the key of the server.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "VARIABLE", requires = "model")]
    pub(crate) key_from: Option<String>,
    /// A folder with the weights of a model in Hugging Face's form, which is evaluated in this process.
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER")]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) local: Option<PathBuf>,
    #[cfg(feature = "local")]
    #[command(flatten)]
    pub(crate) device: super::device::DeviceArgs,
    /// Keep the model's answers in this file, and ask only for those that it lacks: a run that was interrupted
    /// continues. Latency is then not measured. Answers with blocked attention are not kept.
    #[arg(long, value_name = "FILE")]
    pub(crate) answers: Option<PathBuf>,
    /// Ask for at most this many answers at once. Needs `--answers`.
    #[arg(long, default_value_t = 1, value_name = "NUMBER", requires = "answers", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub(crate) jobs: u32,
    /// Send at most this many requests in a minute. [default: no limit]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=60_000_000))]
    pub(crate) rate: Option<u32>,
    /// Send nothing, and say how many requests and tokens the run would cost.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

impl BenchModelArgs {
    /// Returns the number of answers to ask for at once. It is 1 in a dry run: with more, a measurement runs all of its
    /// parts twice, first on the threads and then in order, and each request would be counted twice.
    pub(crate) fn threads(&self) -> u32 {
        if self.dry_run { 1 } else { self.jobs }
    }

    /// Returns whether the model is evaluated in this process.
    #[cfg(feature = "local")]
    pub(crate) fn is_local(&self) -> bool {
        self.local.is_some()
    }

    /// Returns false: a program without the feature `local` evaluates no models.
    #[cfg(not(feature = "local"))]
    #[expect(clippy::unused_self, reason = "as with the feature `local`")]
    pub(crate) fn is_local(&self) -> bool {
        false
    }
}

/// The model that drives the attacker of a search.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct AttackerArgs {
    /// The name of a model on a server, which writes the attacks of `--queries`: it sees the defence and what its best
    /// and its latest attempts achieved.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "NAME", requires_all = ["attacker_url", "queries"])]
    pub(crate) attacker_model: Option<String>,
    /// The address of the server of the attacker's model.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "URL", requires = "attacker_model")]
    pub(crate) attacker_url: Option<String>,
    /// The interface of the server of the attacker's model.
    #[cfg(feature = "run")]
    #[arg(long, value_enum, value_name = "API", default_value_t = BenchApi::Chat, requires = "attacker_model")]
    pub(crate) attacker_api: BenchApi,
    /// The environment variable that contains the key of the server of the attacker's model.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "VARIABLE", requires = "attacker_model")]
    pub(crate) attacker_key_from: Option<String>,
    /// Keep the answers of the attacker's model in this file, and ask only for those that it lacks: a search that was
    /// interrupted continues.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "FILE", requires = "attacker_model")]
    pub(crate) attacker_answers: Option<PathBuf>,
    /// Send at most this many requests in a minute to the attacker's model. [default: no limit]
    #[cfg(feature = "run")]
    #[arg(long, value_name = "NUMBER", requires = "attacker_model", value_parser = clap::value_parser!(u32).range(1..=60_000_000))]
    pub(crate) attacker_rate: Option<u32>,
}

impl AttackerArgs {
    /// Returns whether the answers of the attacker's model are kept in a file.
    #[cfg(feature = "run")]
    pub(crate) fn keeps_answers(&self) -> bool {
        self.attacker_answers.is_some()
    }

    /// Returns false: a program without the feature `run` asks no model on a server.
    #[cfg(not(feature = "run"))]
    #[expect(clippy::unused_self, reason = "as with the feature `run`")]
    pub(crate) fn keeps_answers(&self) -> bool {
        false
    }
}

/// The interfaces of servers.
#[cfg(feature = "run")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum BenchApi {
    /// OpenAI's chat completions.
    #[default]
    Chat,
    /// OpenAI's responses.
    Responses,
    /// Anthropic's messages.
    Messages,
}

#[cfg(feature = "run")]
impl BenchApi {
    /// Returns the interface as `flowgate_lm` names it.
    pub(crate) fn api(self) -> flowgate_lm::wire::Api {
        match self {
            Self::Chat => flowgate_lm::wire::Api::ChatCompletions,
            Self::Responses => flowgate_lm::wire::Api::Responses,
            Self::Messages => flowgate_lm::wire::Api::Messages,
        }
    }
}
