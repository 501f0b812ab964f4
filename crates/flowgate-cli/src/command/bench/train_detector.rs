//! Runs `flowgate bench train-detector`: trains the small detector of prompt injections, writes its weights, and prints
//! how well it does on phrases that it was not trained on. `flowgate_bench::detectors::learned` does the work.

use std::path::Path;

use flowgate_bench::detectors::learned::{TRAINING_TEXTS, measure, train};
use flowgate_lm::Error;

use crate::input::{InputError, describe_io_error};
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// The passes over the texts, which the progress counts.
const PASSES: usize = 12;

/// Trains the detector with `seed`, and writes its weights to `file`. Returns 0, or [`INTERRUPTED`] after an interrupt,
/// which writes nothing.
pub(crate) fn run(seed: u64, file: &Path, output: &mut Console) -> Result<u8, InputError> {
    let failed =
        |error: &std::io::Error| InputError(format!("{}: {}", file.display(), describe_io_error(error)));
    // The file is opened before the training, so that an unusable file is reported at once. Its old content stays until
    // there are weights.
    std::fs::OpenOptions::new().append(true).create(true).open(file).map_err(|error| failed(&error))?;
    let progress = Progress::over_steps(PASSES, "pass", output);
    let trained = train(seed, &mut || {
        progress.step();
        progress.is_interrupted()
    });
    let is_interrupted = progress.finish(output);
    let classifier = match trained {
        Err(Error::Cancelled) => return Ok(INTERRUPTED),
        // The interrupt came after the last pass, too late to end the training. Nothing is written either.
        _ if is_interrupted => return Ok(INTERRUPTED),
        trained => trained.map_err(|error| InputError(error.to_string()))?,
    };
    let bytes = classifier.to_bytes();
    std::fs::write(file, &bytes).map_err(|error| failed(&error))?;
    let figures = measure(&classifier, seed);
    output.line(&format!(
        "{} bytes of weights, trained on {TRAINING_TEXTS} generated texts with seed {seed}",
        bytes.len()
    ));
    output.line(&format!(
        "with phrases that were not trained: injections found, {} of {}; harmless texts flagged, {} of {}",
        figures.found.hits, figures.found.of, figures.flagged.hits, figures.flagged.of
    ));
    Ok(0)
}
