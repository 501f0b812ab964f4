//! Runs `flowgate lm train`: trains a small model. `flowgate_lm::local::train` does the work; this module shows progress
//! and writes the curve of the loss.

use std::fmt::Write as _;
use std::path::Path;

use flowgate_bench::line_chart;
use flowgate_lm::local::train::{Corpus, ModelShape, Trainer, TrainingSettings};

use crate::args::TrainArgs;
use crate::input::{InputError, describe_io_error};
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// The number of steps after which the training is saved. A process that is killed loses at most these steps.
const SAVED_STEPS: usize = 100;

/// Trains a model in the folder of the options, and returns the exit code. If the folder contains a training,
/// continues it with the seed and the number of steps that it was begun with. Saves the training after every
/// [`SAVED_STEPS`] steps and at the end, so that the same command can continue after an interrupt. When the training is
/// complete, exports the model if the options name a target.
pub(super) fn train(options: &TrainArgs, output: &mut Console) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(error.to_string());
    let folder = options.folder.as_path();
    let trainer = resume_or_begin(options)?;
    let mut trainer = trainer.on(options.device.processor).map_err(|error| failed(&error))?;
    let settings = trainer.settings().clone();
    let corpus = Corpus::new(settings.seed);
    output.line(&format!(
        "{}, seed {}, step {} of {}",
        plural(trainer.weight_count(), "weight"),
        settings.seed,
        trainer.steps_done(),
        settings.steps,
    ));
    let progress = Progress::over_steps(settings.steps.saturating_sub(trainer.steps_done()), "step", output);
    while !trainer.is_done() && !progress.is_interrupted() {
        trainer.step(&corpus).map_err(|error| failed(&error))?;
        progress.step();
        if trainer.steps_done().is_multiple_of(SAVED_STEPS) {
            save(&trainer, folder)?;
        }
    }
    let is_interrupted = progress.finish(output) && !trainer.is_done();
    save(&trainer, folder)?;
    output.line(&describe_losses(trainer.losses()));
    if is_interrupted {
        output.line("interrupted: run the same command again to continue");
        return Ok(INTERRUPTED);
    }
    if let Some(target) = &options.export {
        trainer.export(target).map_err(|error| failed(&error))?;
        output.line(&format!("the model is in {}", target.display()));
    }
    Ok(0)
}

/// Continues the training in the folder of the options or, if the folder contains none, begins one: of a new model, or
/// of the trained model that `--from` names.
fn resume_or_begin(options: &TrainArgs) -> Result<Trainer, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(error.to_string());
    let folder = options.folder.as_path();
    if folder.join("training.json").exists() {
        return Trainer::resume(folder).map_err(|error| failed(&error));
    }
    let steps = usize::try_from(options.steps).unwrap_or(usize::MAX);
    let settings = TrainingSettings {
        shape: ModelShape::of_size(options.layers.into(), options.width.into()),
        seed: options.seed,
        steps,
        batch: options.batch.into(),
        ..TrainingSettings::default()
    };
    let corpus = Corpus::new(settings.seed);
    let trainer = match &options.from {
        Some(model) => Trainer::from_model(settings.for_trained_model(), model),
        None => Trainer::new(settings, &corpus),
    };
    trainer.map_err(|error| failed(&error))
}

/// Writes the state of the training to its folder, from which it can continue, and its losses as `losses.csv` and
/// `losses.svg`.
fn save(trainer: &Trainer, folder: &Path) -> Result<(), InputError> {
    trainer.save(folder).map_err(|error| InputError(error.to_string()))?;
    let mut table = "step,loss\n".to_owned();
    for (step, loss) in trainer.losses().iter().enumerate() {
        // Writing to a text does not fail.
        let _ = writeln!(table, "{},{loss:.4}", step + 1);
    }
    let curve = line_chart("Loss of each step (mean of ten)", &means(trainer.losses()));
    for (name, content) in [("losses.csv", table), ("losses.svg", curve)] {
        let path = folder.join(name);
        std::fs::write(&path, content)
            .map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))?;
    }
    Ok(())
}

/// Returns the points of the curve of the loss: for each ten successive steps, the number of the last step and the mean
/// loss. The last group may have fewer steps.
fn means(losses: &[f32]) -> Vec<(f64, f64)> {
    let mean = |(index, chunk): (usize, &[f32])| {
        let sum: f64 = chunk.iter().copied().map(f64::from).sum();
        ((index * 10 + chunk.len()) as f64, sum / chunk.len() as f64)
    };
    losses.chunks(10).enumerate().map(mean).collect()
}

/// Returns a sentence with the mean loss of the first ten steps, and of the last group of ten, which may have fewer.
fn describe_losses(losses: &[f32]) -> String {
    let means = means(losses);
    match (means.first(), means.last()) {
        (Some((_, first)), Some((step, last))) => {
            format!("loss {first:.3} at the beginning, {last:.3} at step {step}")
        }
        _ => "no step was done".to_owned(),
    }
}
