//! Runs `flowgate bench screeners`: measures how well screeners that read a model's attention tell what an output depends on.
//!
//! The cases and the figures are in `flowgate_bench::saliency`, the network in `flowgate_lm::local::classifier`; this module connects them.

use std::path::Path;

use flowgate_bench::saliency::{self, RegionClassifier};
use flowgate_lm::local::classifier::DependencyClassifier;
use flowgate_lm::{Error, RegionFeatures};

use crate::args::{ScreenersArgs, TableFormat};
use crate::input::InputError;
use crate::local_model;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// The network as the measurement uses it.
struct TrainedNetwork(DependencyClassifier);

impl RegionClassifier for TrainedNetwork {
    fn probabilities(&self, regions: &[RegionFeatures]) -> Result<Vec<f64>, Error> {
        self.0.probabilities(regions)
    }
}

/// Runs `flowgate bench screeners`: trains a network, and measures how well it and the other screeners tell which
/// regions of a prompt the output of the model depends on. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &ScreenersArgs, output: &mut Console) -> Result<u8, InputError> {
    let (model, name) = local_model::load(&options.local)?;
    let cases = usize::from(options.cases);
    let progress = Progress::over_steps(saliency::steps(cases), "case", output);
    let mut step = || {
        progress.step();
        progress.is_interrupted()
    };
    let save = options.save.as_deref();
    let mut train = |prompts: &[Vec<(RegionFeatures, bool)>]| train(prompts, options.seed, save, &progress);
    let rows = saliency::run(&model, &mut train, options.seed, cases, &mut step);
    let is_interrupted = progress.finish(output);
    let rows = rows.map_err(|error| InputError(format!("{name}: {error}")))?;
    let Some(rows) = rows.filter(|_| !is_interrupted) else { return Ok(INTERRUPTED) };
    match options.format {
        TableFormat::Text => saliency::table_text(&name, &rows).lines().for_each(|line| output.line(line)),
        TableFormat::Json => {
            output.line(&saliency::manifest(options.seed, cases, &name).to_string());
            saliency::lines(&rows).iter().for_each(|line| output.line(&line.to_string()));
        }
    }
    Ok(0)
}

/// Trains the network, and writes it to the file `save` if there is one. `prompts` has the regions of each prompt, each
/// with whether the output of the model depends on it. An interrupt ends the training.
fn train(
    prompts: &[Vec<(RegionFeatures, bool)>],
    seed: u64,
    save: Option<&Path>,
    progress: &Progress,
) -> Result<Box<dyn RegionClassifier>, Error> {
    let network = DependencyClassifier::train(prompts, seed, &mut || progress.is_interrupted())?;
    if let Some(path) = save {
        network.save(path).map_err(|error| Error::Failed(error.to_string()))?;
    }
    Ok(Box::new(TrainedNetwork(network)))
}
