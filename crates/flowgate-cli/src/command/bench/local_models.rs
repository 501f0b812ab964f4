//! Provides the models with which `flowgate bench verify` repeats what a run measured inside of a model: the model that
//! ships with Flowgate, and the models in the folders of `--local`. A model is found by the digest of its weights, which
//! its recorded name contains, so a folder with other weights is not taken for the recorded model.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate_bench::propagation::{PropagationSuite, model_manifest, report::model_lines};
use flowgate_bench::saliency;
use flowgate_bench::verify::{LocalModels, PropagationRun, ScreenerRun};
use flowgate_guard::screener::attention::AttentionReader;
use flowgate_lm::BlockingModel;
use flowgate_lm::local::{LocalModel, Processor};
use serde_json::Value;

use super::attention::{saved_reader, trained_reader};
use super::propagation::with_model::with_local_model;
use super::screeners::{ScreenerCases, measure, read_traces};
use crate::input::InputError;
use crate::local_model::{self, EMBEDDED};

/// The most cases with which a network is trained again: the limit of `flowgate screen train`. It bounds the time that a
/// manipulated file of a run can cost.
const MAX_CASES: u64 = 10_000;

/// The processor of a verification. On a GPU, the last bits of a figure can differ.
const PROCESSOR: Processor = Processor::Cpu;

/// The models that this program can evaluate for a verification.
pub(super) struct ModelFolders<'a> {
    /// The folders and GGUF files of `--local`.
    pub(super) folders: &'a [PathBuf],
    /// The folder of the screener of a run of the privacy suite, if one is named.
    pub(super) screener: Option<&'a Path>,
    /// The file of recorded calls of a run of the screeners, if one is named.
    pub(super) traces: Option<&'a Path>,
}

impl ModelFolders<'_> {
    /// Returns the model whose name in a recorded run is `name`: the model that ships, if it has this name, or the
    /// first model of the folders with the digest that is the last word of the name. `None` if there is no such model.
    /// A folder may have been renamed since the run.
    fn find(&self, name: &str) -> Result<Option<LocalModel>, InputError> {
        if name == LocalModel::embedded_name() {
            return local_model::load(EMBEDDED.as_ref(), PROCESSOR).map(|(model, _)| Some(model));
        }
        let Some((_, digest)) = name.rsplit_once(' ') else { return Ok(None) };
        for folder in self.folders {
            let found = local_model::load_identified(folder, PROCESSOR)
                .map_err(|InputError(problem)| InputError(format!("--local: {problem}")))?;
            if found.digest.short() == digest {
                return Ok(Some(found.model.with_name(name)));
            }
        }
        Ok(None)
    }
}

/// Returns the problem of a command as a text.
fn problem(error: InputError) -> String {
    error.0
}

impl LocalModels for ModelFolders<'_> {
    /// Returns the reader of attention of a recorded run. `screener` is its description in the manifest of the run.
    /// With `--screener`, loads the screener of this option. Without it, trains the network again, as the run did;
    /// returns `None` if the run did not train a network but read a screener from a folder, or if its model is not
    /// found.
    fn attention_reader(&self, screener: &Value) -> Result<Option<(AttentionReader, Value)>, String> {
        if let Some(folder) = self.screener {
            return saved_reader(folder, PROCESSOR).map(Some).map_err(problem);
        }
        let number = |name: &str| screener.get(name).and_then(Value::as_u64);
        let name = screener.get("model").and_then(Value::as_str).unwrap_or_default();
        // A description without the number of cases belongs to a network in a folder, which this verification does not
        // have.
        let (Some(cases), Some(seed)) = (number("cases"), number("seed")) else { return Ok(None) };
        let cases = usize::try_from(cases).ok().filter(|_| (1..=MAX_CASES).contains(&cases)).ok_or_else(|| {
            format!("line 1: `screener.cases` is not from 1 to {MAX_CASES}; give a file that `flowgate bench` wrote")
        })?;
        let Some(model) = self.find(name).map_err(problem)? else { return Ok(None) };
        // Nothing interrupts the verification.
        trained_reader(model, name, (cases, seed), &mut || false).map_err(problem)
    }

    /// Measures the screeners as the recorded `run` did, and returns the lines of the new run in the format jsonl; `None`
    /// if the model of the run is not found.
    fn screener_lines(&self, run: ScreenerRun<'_>) -> Result<Option<Vec<Value>>, String> {
        let Some(model) = self.find(run.model).map_err(problem)? else { return Ok(None) };
        // A run with a limit on prompts has measured recorded calls; any other run has generated its cases.
        let cases = match run.prompt_limit {
            None => ScreenerCases::Generated(run.cases),
            Some(limit) => {
                let path = self.traces.ok_or(
                    "line 1: the run read recorded calls; name their file with `--traces`, as the run did",
                )?;
                let calls = read_traces(path, limit).map_err(problem)?.sample(run.seed, run.cases);
                ScreenerCases::Recorded { path, calls, limit, most: run.cases }
            }
        };
        // Nothing interrupts the verification.
        let measured = measure(&model, run.model, run.seed, &cases, &|| false, &mut || false);
        let Some((manifest, results)) = measured.map_err(problem)? else { return Ok(None) };
        Ok(Some([manifest].into_iter().chain(saliency::lines(&results)).collect()))
    }

    /// Measures the label searches of a model as the recorded `run` did on the `suites`, one for each seed, and returns
    /// the lines of the new run in the format jsonl; `None` if the model of the run is not found.
    fn propagation_lines(
        &self,
        run: PropagationRun<'_>,
        mut suites: Vec<PropagationSuite>,
    ) -> Result<Option<Vec<Value>>, String> {
        let PropagationRun { model, size, batch } = run;
        let Some(loaded) = self.find(model).map_err(problem)? else { return Ok(None) };
        let results = with_local_model(&loaded, model, (&mut suites, batch), |suites, models| {
            let runs =
                suites.iter().filter_map(|suite| suite.run_model(models, model, &mut || false).transpose());
            runs.collect::<Result<Vec<_>, _>>().map_err(|error| InputError(format!("{model}: {error}")))
        });
        // The outer error is that of the hidden states, the inner one that of a run.
        let results = results.map_err(problem)?.map_err(problem)?;
        let manifest = model_manifest(&suites, size, model, batch);
        Ok(Some([manifest].into_iter().chain(model_lines(&results)).collect()))
    }

    /// Returns the model whose name in a recorded run is `model`, as a model that can block attention; `None` if it is
    /// not found.
    fn blocking_model(&self, model: &str) -> Result<Option<Arc<dyn BlockingModel>>, String> {
        Ok(self.find(model).map_err(problem)?.map(|model| Arc::new(model) as _))
    }
}
