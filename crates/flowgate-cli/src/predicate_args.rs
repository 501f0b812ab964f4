//! Declares the option `--predicate`, which names the services and WebAssembly modules that answer the `extern`
//! predicates of a policy, and loads them. Most commands that judge calls or runs have this option.

#[cfg(feature = "gateway")]
use flowgate_gateway::predicates::{PredicateSourceSpec, PredicateSources};

use flowgate::policy::Policy;
use flowgate::predicates::Predicates;

use crate::input::InputError;

/// The services and modules that answer predicates.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct PredicateArgs {
    /// The service or module that answers a predicate which the policy declares `extern`: a URL that receives POST
    /// requests, or a WebAssembly module with a function of that name. May be given several times.
    #[cfg(feature = "gateway")]
    #[arg(long = "predicate", value_name = "NAME=URL|NAME=FILE.wasm")]
    sources: Vec<PredicateSourceSpec>,
}

impl PredicateArgs {
    /// Loads the services and modules that the options name. Fails if one of them cannot be used.
    #[cfg(feature = "gateway")]
    pub(crate) fn predicate_sources(&self) -> Result<PredicateSources, InputError> {
        PredicateSources::load(&self.sources).map_err(|error| InputError(format!("--predicate: {error}")))
    }

    /// Returns the functions that answer the extern predicates of a policy; `name` is its file, for messages. Each
    /// request to a service has its own time limit; there is none for all requests together.
    ///
    /// # Errors
    /// If a service or module cannot be loaded; if one of them answers a predicate that the policy does not declare; or
    /// if the policy declares a predicate that none of them answers.
    pub(crate) fn predicates(&self, policy: &Policy, name: &str) -> Result<Predicates, InputError> {
        #[cfg(feature = "gateway")]
        let predicate_sources = self.predicate_sources()?;
        #[cfg(feature = "gateway")]
        let (answered, predicates) = (
            predicate_sources.predicate_names().collect::<Vec<_>>(),
            predicate_sources.predicates(std::time::Duration::MAX),
        );
        #[cfg(not(feature = "gateway"))]
        let (answered, predicates) = (Vec::<&str>::new(), Predicates::new());
        if let Some(missing) = policy.externs().find(|declared| !answered.contains(declared)) {
            return Err(InputError(format!(
                "{name}: no service answers the predicate `{missing}`; add --predicate {missing}=URL or --predicate {missing}=FILE.wasm"
            )));
        }
        if let Some(unknown) =
            answered.iter().find(|name| !policy.externs().any(|declared| declared == **name))
        {
            return Err(InputError(format!(
                "--predicate: {name} declares no `extern {unknown}`; declare it there, or leave the option out"
            )));
        }
        Ok(predicates)
    }
}
