//! Runs `flowgate lm`: trains small models, and measures how well models copy. `flowgate_lm::local::train` does the
//! work; this module shows progress and writes the curve of the loss.

use std::fmt::Write as _;
use std::path::Path;

use flowgate_bench::line_chart;
use flowgate_bench::propagation::{LAMBDAS, LabelMethod, Models, PropagationSuite, Size, TunedSet};
use flowgate_lm::block_on;
use flowgate_lm::local::train::{
    CopyAccuracy, Corpus, ExampleKind, ModelShape, Trainer, TrainingSettings, copy_accuracy,
};
use flowgate_lm::local::{LocalModel, LocalSettings};

use crate::args::{EvaluateArgs, LmCommand, TrainArgs, TuneArgs};
use crate::input::InputError;
use crate::output::{Console, plural};
use crate::progress::{INTERRUPTED, Progress};

/// The number of steps after which the training is saved, because a process that is killed loses the steps since
/// then.
const SAVED_STEPS: usize = 100;

/// Runs the subcommand of `flowgate lm`. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(command: &LmCommand, output: &mut Console) -> Result<u8, InputError> {
    match command {
        LmCommand::Train(options) => train(options, output),
        LmCommand::Evaluate(options) => evaluate(options, output),
        LmCommand::Tune(options) => tune(options, output),
    }
}

/// Trains a model in the folder of the options, and returns the exit code. If the folder contains a training, continues
/// it with its own seed and number of steps. Stores the training after every [`SAVED_STEPS`] steps and at the end, so
/// that the same command can continue after an interrupt. Exports a complete model if the options name a target.
fn train(options: &TrainArgs, output: &mut Console) -> Result<u8, InputError> {
    let failed = |error: &dyn std::fmt::Display| InputError(error.to_string());
    let folder = options.folder.as_path();
    let mut trainer = if folder.join("training.json").exists() {
        Trainer::resume(folder).map_err(|error| failed(&error))?
    } else {
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
        trainer.map_err(|error| failed(&error))?
    };
    trainer = trainer.on(options.device.processor).map_err(|error| failed(&error))?;
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
        output.line("interrupted: the same command continues");
        return Ok(INTERRUPTED);
    }
    if let Some(target) = &options.export {
        trainer.export(target).map_err(|error| failed(&error))?;
        output.line(&format!("the model is in {}", target.display()));
    }
    Ok(0)
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
        std::fs::write(&path, content).map_err(|error| InputError(format!("{}: {error}", path.display())))?;
    }
    Ok(())
}

/// Returns the points of the curve of the loss: for each group of ten steps, the number of its last step and the mean
/// of its losses. The last group may have fewer steps.
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

/// Prints how well a model copies the values in generated texts: a table with a row for each kind of text. Evaluates
/// the model that the options name, or else the one that ships. Returns the exit code; after an interrupt, the table
/// covers the texts so far.
fn evaluate(options: &EvaluateArgs, output: &mut Console) -> Result<u8, InputError> {
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

/// Chooses λ for a model and each phrasing of questions, and prints a row for each method. Returns the exit code; after an interrupt, prints nothing.
fn tune(options: &TuneArgs, output: &mut Console) -> Result<u8, InputError> {
    let path = options.model.as_deref().unwrap_or_else(|| Path::new(crate::local_model::EMBEDDED));
    let (model, name) = crate::local_model::load(path, options.device.processor)?;
    let size = Size { questions: options.questions.into(), pairs: options.pairs.into() };
    let suite = PropagationSuite::new(options.seed, size).map_err(InputError)?;
    let count = |text: &str| model.count_tokens(text).unwrap_or_default();
    let models = Models { scores: &model, states: Some(&model), chat: None, answers: None, count: &count };
    let progress = Progress::over_steps(suite.tuning_steps(true), "setting", output);
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    let tuned = suite.tune_model(models, step);
    let is_interrupted = progress.finish(output);
    let Some(tuned) =
        tuned.map_err(|error| InputError(format!("{name}: {error}")))?.filter(|_| !is_interrupted)
    else {
        return Ok(INTERRUPTED);
    };
    let rows: Vec<Vec<String>> = tuned.iter().flat_map(tuned_rows).collect();
    let lambdas: Vec<String> = LAMBDAS.iter().map(f64::to_string).collect();
    let header: Vec<&str> = ["questions", "method", "number", "λ"]
        .into_iter()
        .chain(lambdas.iter().map(String::as_str))
        .collect();
    output.line(&format!("{name}, seed {}: share of questions with exactly the true labels", options.seed));
    output.table(&header, &rows);
    // No method of the news prunes, so their threshold is not used.
    let thresholds = tuned.iter().filter(|tuned| tuned.set.is_key_value());
    for tuned in thresholds {
        let (set, best) = (tuned.set.name(), tuned.parameters);
        output.line(&format!(
            "{set}: with pruning, λ is {}, and labels with a Shapley value below {} are pruned",
            best.pruned_lambda, best.shapley
        ));
    }
    Ok(0)
}

/// Returns the rows of a set of questions: one for each method that has λ. A row has the name of the set and of the
/// method, the number of questions, the chosen λ and, for each λ that was tried, the share of questions with exactly
/// the true labels. Points of the grid with a threshold are about another parameter, so they are left out.
fn tuned_rows(tuned: &TunedSet) -> Vec<Vec<String>> {
    let row = |(method, lambda): (LabelMethod, f64)| {
        let mut row = vec![
            tuned.set.name().to_owned(),
            method.name().to_owned(),
            tuned.questions.to_string(),
            lambda.to_string(),
        ];
        let of_method = tuned.grid.iter().filter(|point| point.method == method && point.threshold.is_none());
        row.extend(of_method.map(|point| format!("{:.2}", point.exact)));
        row
    };
    let methods =
        [(LabelMethod::HittingSet, tuned.parameters.lambda), (LabelMethod::Knn, tuned.parameters.knn_lambda)];
    methods.into_iter().map(row).collect()
}
