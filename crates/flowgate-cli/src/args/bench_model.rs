//! Declares the options with which a measurement runs with a model instead of a double. The suites share them; `clap` parses them.

use std::path::PathBuf;

/// The model of a measurement.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct BenchModelArgs {
    /// The name of a model on a server, which answers greedily instead of a double.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(crate) model: Option<String>,
    /// The address of the server, which speaks OpenAI's chat completions, such as http://localhost:8080/v1.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "URL", requires = "model")]
    pub(crate) url: Option<String>,
    /// The environment variable that contains the key of the server.
    #[cfg(feature = "run")]
    #[arg(long, value_name = "VARIABLE", requires = "model")]
    pub(crate) key_from: Option<String>,
    /// A folder with the weights of a model in Hugging Face's form, which is evaluated in this process.
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER")]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) local: Option<PathBuf>,
    /// Keep the model's answers in this file, and ask only for those that it lacks: a run that was interrupted continues. Latency is then not
    /// measured.
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
