//! Runs `flowgate bench screeners`: measures how well screeners that read a model's attention tell what an output depends on.
//!
//! The cases and the figures are in `flowgate_bench::saliency`, the network in `flowgate_lm::local::classifier`; this module connects them.

use flowgate_bench::saliency;
use flowgate_lm::local::classifier::DependencyClassifier;

use crate::args::{ScreenersArgs, TableFormat};
use crate::input::InputError;
use crate::local_model;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench screeners`. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &ScreenersArgs, output: &mut Console) -> Result<u8, InputError> {
    let (model, name) = local_model::load(&options.local)?;
    let cases = usize::from(options.cases);
    let progress = Progress::over_steps(saliency::steps(cases), "case", output);
    let mut step = || {
        progress.step();
        progress.is_interrupted()
    };
    let mut train = |prompts: &[saliency::LabelledPrompt]| {
        let network = DependencyClassifier::train(prompts, options.seed, &mut || progress.is_interrupted())?;
        Ok(Box::new(network) as _)
    };
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
