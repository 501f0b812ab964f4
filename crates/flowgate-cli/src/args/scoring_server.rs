//! Declares the options that name a model on a server which scores texts. `flowgate bench propagation`, `flowgate lm
//! tune` and `flowgate replay` share them; `clap` parses the arguments.

/// The model on a server.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ScoringServerArgs {
    /// The name of a model on a server, which must score texts.
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(crate) model: Option<String>,
    /// The address of the server, such as http://localhost:8000/v1.
    #[arg(long, value_name = "URL", requires = "model")]
    pub(crate) url: Option<String>,
    /// The environment variable that contains the key of the server.
    #[arg(long, value_name = "VARIABLE", requires = "model")]
    pub(crate) key_from: Option<String>,
    /// The interface by which the server scores a given text.
    #[arg(long, value_enum, value_name = "METHOD", default_value_t = ScoresArg::PromptLogprobs, requires = "model")]
    pub(crate) scores: ScoresArg,
}

/// The interfaces by which servers score texts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ScoresArg {
    /// `prompt_logprobs` of completions, as in vLLM.
    PromptLogprobs,
    /// `echo` with `logprobs` of completions, as in llama-cpp-python.
    Echo,
    /// `n_probs` of llama.cpp's server: a request for each token.
    LlamaCpp,
}

impl ScoresArg {
    /// Returns the interface as `flowgate_lm` names it.
    pub(crate) fn method(self) -> flowgate_lm::remote::score::ScoreMethod {
        match self {
            Self::PromptLogprobs => flowgate_lm::remote::score::ScoreMethod::PromptLogprobs,
            Self::Echo => flowgate_lm::remote::score::ScoreMethod::Echo,
            Self::LlamaCpp => flowgate_lm::remote::score::ScoreMethod::LlamaCpp,
        }
    }
}
