//! Runs `flowgate screen train`: trains a screener, which chooses the hidden regions that a step needs, from the
//! attention of a local model; measures it, and writes it to a folder that `flowgate run --screener` reads.
//!
//! The cases and figures are those of `flowgate bench screeners` (`flowgate_bench::saliency`), the file format is in
//! `attention_screener`.

use std::path::Path;
use std::sync::Arc;

use flowgate_bench::saliency::{self, ScreenerRow, ScreenerScore};
use flowgate_lm::local::classifier::DependencyClassifier;

use crate::args::{ScreenCommand, ScreenTrainArgs};
use crate::attention_screener::{SavedScreener, save};
use crate::input::InputError;
use crate::local_model;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate screen`. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(command: &ScreenCommand, output: &mut Console) -> Result<u8, InputError> {
    match command {
        ScreenCommand::Train(options) => train(options, output),
    }
}

/// Trains and measures a screener, and writes it to the folder. Returns 0. After an interrupt, writes nothing and
/// returns [`INTERRUPTED`].
fn train(options: &ScreenTrainArgs, output: &mut Console) -> Result<u8, InputError> {
    let (model, name) = local_model::load(&options.local)?;
    // Fails now instead of after the training, if the folder cannot be created.
    std::fs::create_dir_all(&options.folder)
        .map_err(|error| InputError(format!("{}: {error}", options.folder.display())))?;
    let cases = usize::from(options.cases);
    let progress = Progress::over_steps(saliency::steps(cases), "case", output);
    // Returns whether to stop.
    let mut step = || {
        progress.step();
        progress.is_interrupted()
    };
    // The trained network: the measurement has it, and it is written at the end.
    let mut network = None;
    let mut train = |prompts: &[saliency::LabelledPrompt]| {
        let trained = DependencyClassifier::train(prompts, options.seed, &mut || progress.is_interrupted())?;
        let trained = Arc::new(trained);
        network = Some(Arc::clone(&trained));
        Ok(Box::new(trained) as _)
    };
    let results = saliency::run(&model, &mut train, options.seed, cases, &mut step);
    let is_interrupted = progress.finish(output);
    let results = results.map_err(|error| InputError(format!("{name}: {error}")))?;
    let (Some(results), Some(network), false) = (results, network, is_interrupted) else {
        return Ok(INTERRUPTED);
    };
    saliency::table_text(&name, &results).lines().for_each(|line| output.line(line));
    let Some(threshold) = threshold(&results.rows) else {
        return Err(InputError("the cases have no dependencies to measure; raise --cases".to_owned()));
    };
    let screener = SavedScreener {
        model: options.local.clone(),
        model_name: name,
        threshold,
        seed: options.seed,
        cases: options.cases,
    };
    save(&options.folder, &screener, &network)?;
    output.line(&format!("the screener is in {}", Path::display(&options.folder)));
    Ok(0)
}

/// Returns the score from which the trained screener selects a region; `None` if nothing was measured. Each row of the
/// network has the same threshold, so the first one is used.
fn threshold(rows: &[ScreenerRow]) -> Option<f64> {
    rows.iter().find(|row| row.screener == ScreenerScore::Network).map(|row| row.threshold)
}
