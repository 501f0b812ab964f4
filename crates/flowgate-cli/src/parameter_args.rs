//! Declares the option `--param`, which sets parameters of policies: the values of `input.NAME`. Also collects the
//! parameters that a policy reads and that neither an option nor a run sets; the commands that judge recorded runs warn
//! about these.

use std::collections::BTreeSet;

use flowgate::policy::Policy;
use flowgate::trace::read::RecordedRun;
use serde_json::{Map, Value};

use crate::output::Console;

/// The parameters of the policy.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct ParameterArgs {
    /// A parameter of the policy, `input.NAME`, instead of the value that a trace has. The value is read as JSON if it is JSON, otherwise
    /// as text. May be given several times.
    #[arg(long = "param", value_name = "NAME=VALUE", value_parser = parameter)]
    given: Vec<(String, Value)>,
}

impl ParameterArgs {
    /// Returns the values by their names; of several values of a name, the last one.
    pub(crate) fn values(&self) -> Map<String, Value> {
        self.given.iter().cloned().collect()
    }
}

/// Parses the value of `--param`, which sets a parameter of the policy: `NAME=VALUE`. A value that is not JSON is a
/// text, so that shells need no quotation marks. Returns the name and the value.
pub(crate) fn parameter(text: &str) -> Result<(String, Value), String> {
    let (name, value) = text.split_once('=').ok_or("the parameter has no `=`; write it as NAME=VALUE")?;
    if name.is_empty() {
        return Err("the parameter has no name before `=`; write it as NAME=VALUE".to_owned());
    }
    let value = serde_json::from_str(value).unwrap_or_else(|_| Value::String(value.to_owned()));
    Ok((name.to_owned(), value))
}

/// The parameters that policies read, and that neither the command line nor a judged run sets.
#[derive(Debug, Default)]
pub(crate) struct MissingParameters(BTreeSet<(String, String)>);

impl MissingParameters {
    /// Adds the parameters that a policy lacks when it judges `run`. `name` is the policy's file, and `given` has the
    /// parameters of the command line.
    pub(crate) fn add(&mut self, name: &str, policy: &Policy, given: &Map<String, Value>, run: &RecordedRun) {
        let of_run = run.parameters();
        let is_set = |parameter: &str| {
            given.contains_key(parameter) || of_run.is_some_and(|recorded| recorded.contains_key(parameter))
        };
        let missing = policy.parameters().filter(|parameter| !is_set(parameter));
        self.0.extend(missing.map(|parameter| (name.to_owned(), parameter.to_owned())));
    }

    /// Returns the number of missing parameters.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Prints a warning for each missing parameter, with the option that sets it.
    pub(crate) fn print(&self, output: &mut Console) {
        for (name, parameter) in &self.0 {
            output.warning(&format!(
                "`input.{parameter}` of {name} is not set, so the verdicts can differ from those of the agent; \
                 add --param {parameter}=VALUE"
            ));
        }
    }
}
