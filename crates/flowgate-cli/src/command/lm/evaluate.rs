//! Runs `flowgate lm evaluate`: measures how well a model copies values of texts that no training has read.

use flowgate_lm::block_on;
use flowgate_lm::local::train::{CopyAccuracy, Corpus, ExampleKind, copy_accuracy};
use flowgate_lm::local::{LocalModel, LocalSettings};

use crate::args::EvaluateArgs;
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Prints how well a model copies the values in generated texts: a table with a row for each kind of text. Evaluates
/// the model that the options name, or else the one that ships. Returns the exit code; after an interrupt, the table
/// covers the texts so far.
pub(super) fn evaluate(options: &EvaluateArgs, output: &mut Console) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(error.to_string());
    let processor = options.device.processor;
    let model = match &options.model {
        Some(path) => LocalModel::load(path, &LocalSettings { processor, ..LocalSettings::default() }),
        None => LocalModel::embedded_on(processor),
    };
    let model = model.map_err(|error| failed(&error))?;
    let texts = usize::try_from(options.texts).unwrap_or(usize::MAX);
    let progress = Progress::over_steps(texts, "text", output);
    // Returns whether to stop.
    let mut step = || {
        progress.step();
        progress.is_interrupted()
    };
    let found = block_on(copy_accuracy(&model, &Corpus::new(options.seed), texts, &mut step));
    let is_interrupted = progress.finish(output);
    let found = found.map_err(|error| failed(&error))?;
    let row = |(kind, accuracy): (&ExampleKind, &CopyAccuracy)| {
        vec![
            kind.name().to_owned(),
            format!("{}/{}", accuracy.copied, accuracy.values),
            format!("{:.3}", accuracy.copied_share()),
            format!("{:.3}", accuracy.likely_share()),
            format!("{:.3}", accuracy.loss / accuracy.tokens.max(1) as f64),
        ]
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    output.table(&["text", "copied values", "share", "likely tokens", "loss of a token"], &rows);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}
