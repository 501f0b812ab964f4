//! Who answers the predicates that a policy declares `extern`: the option `--predicate`.

#[cfg(feature = "gateway")]
use flowgate_gateway::ask::{Asker, Source};

use flowgate::policy::Policy;
use flowgate::predicates::Predicates;

use crate::input::InputError;

/// Who answers predicates.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Answering {
    /// Who answers a predicate that the policy declares `extern`: a service that is asked with POST, or the function of that
    /// name in a WebAssembly module. May be given several times.
    #[cfg(feature = "gateway")]
    #[arg(long = "predicate", value_name = "NAME=URL|NAME=FILE.wasm")]
    sources: Vec<Source>,
}

impl Answering {
    /// Loads what is needed to ask.
    #[cfg(feature = "gateway")]
    pub(crate) fn asker(&self) -> Result<Asker, InputError> {
        Asker::load(&self.sources).map_err(|error| InputError(format!("--predicate: {error}")))
    }

    /// The predicates of a policy. Each question has its own time: whoever is at the other end may wait.
    pub(crate) fn predicates(&self, policy: &Policy, name: &str) -> Result<Predicates, InputError> {
        #[cfg(feature = "gateway")]
        let asker = self.asker()?;
        #[cfg(feature = "gateway")]
        let (answered, predicates) =
            (asker.names().collect::<Vec<_>>(), asker.predicates(std::time::Duration::MAX));
        #[cfg(not(feature = "gateway"))]
        let (answered, predicates) = (Vec::<&str>::new(), Predicates::new());
        if let Some(missing) = policy.externs().find(|declared| !answered.contains(declared)) {
            return Err(InputError(format!(
                "{name}: nobody answers `{missing}`; add --predicate {missing}=URL, or {missing}=FILE.wasm"
            )));
        }
        if let Some(unknown) =
            answered.iter().find(|name| !policy.externs().any(|declared| declared == **name))
        {
            return Err(InputError(format!("--predicate: {name} declares no `extern {unknown}`")));
        }
        Ok(predicates)
    }
}
