//! Declares the options of `flowgate replay` for influence methods that ask a model: which model, the device it runs
//! on, and the tolerated loss of utility (λ). `clap` parses the arguments.

/// The influence methods that ask a model, as `--influence` of `replay` takes them.
#[cfg(any(feature = "local", feature = "run"))]
pub(crate) const ESTIMATED_METHODS: [&str; 3] = ["lambda", "knn-lm", "introspection"];
/// The influence methods that ask a model: none, since this program is built without a feature that asks models.
#[cfg(not(any(feature = "local", feature = "run")))]
pub(crate) const ESTIMATED_METHODS: [&str; 0] = [];

/// The model that the influence methods `lambda`, `knn-lm` and `introspection` ask.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct InfluenceModelArgs {
    #[cfg(feature = "run")]
    #[command(flatten)]
    pub(crate) server: super::ScoringServerArgs,
    /// The folder or GGUF file of a model in this process, or `embedded` for the one that ships with Flowgate, in place of a
    /// model on a server.
    #[cfg(feature = "local")]
    #[arg(long, value_name = "FOLDER")]
    #[cfg_attr(feature = "run", arg(conflicts_with = "model"))]
    pub(crate) local: Option<std::path::PathBuf>,
    #[cfg(feature = "local")]
    #[command(flatten)]
    pub(crate) device: super::device::DeviceArgs,
    /// The loss of utility that `lambda` and `knn-lm` tolerate. It does not carry over from one model to another: `flowgate
    /// lm tune` chooses it.
    #[cfg(any(feature = "local", feature = "run"))]
    #[arg(long, default_value_t = 0.2, value_name = "NUMBER", value_parser = lambda)]
    pub(crate) lambda: f64,
}

/// Parses λ: a number that is at least 0.
#[cfg(any(feature = "local", feature = "run"))]
fn lambda(text: &str) -> Result<f64, String> {
    let lambda = text.parse().ok().filter(|lambda: &f64| lambda.is_finite() && *lambda >= 0.0);
    lambda.ok_or_else(|| "λ must be a number that is at least 0".to_owned())
}
