//! Runs `flowgate bench paper`: repeats the experiment of AgentSecBench with models in folders, and prints the figures
//! next to the paper's.
//!
//! The suite and the tables are in `flowgate_bench::games`; this module loads one model after the other, and writes the
//! run of each to a file.

use std::path::Path;
use std::time::{Duration, Instant};

use flowgate_bench::cost::{CountedModel, RequestCounter};
use flowgate_bench::games::experiment::{ModelRun, experiment_lines};
use flowgate_bench::games::report::{
    experiment_csv, experiment_json, experiment_page, experiment_text, paper_rows,
};
use flowgate_bench::games::{ANSWER_TOKENS, Defence, GameSuite, ModelDouble, experiment_manifest, manifest};
use serde_json::json;

use super::model::{local_model, print_cost};
use crate::args::{PaperArgs, ReportFormat};
use crate::input::{InputError, describe_io_error};
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench paper`: plays the games of AgentSecBench with each model, and prints the figures next to those
/// of the paper. Returns 0, or [`INTERRUPTED`] after an interrupt; a model whose run is incomplete is left out. With
/// `--dry-run`, only prints what the run would cost; no model is loaded then.
pub(crate) fn run(options: &PaperArgs, output: &mut Console) -> Result<u8, InputError> {
    let mut names: Vec<&std::ffi::OsStr> =
        options.models.iter().filter_map(|path| path.file_name()).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
        // The names identify the files of the runs.
        let name = name.display();
        return Err(InputError(format!("two models have the name {name}; rename one of the folders")));
    }
    let instances = usize::try_from(options.instances).unwrap_or(usize::MAX);
    let suite = GameSuite::generate(options.seed, instances);
    let steps = suite.executions_per_defence() * Defence::of_the_paper().len() * options.models.len();
    let progress = Progress::over_steps(steps, "execution", output);
    if options.dry_run {
        return count_requests(options.models.len(), &suite, &progress, output);
    }
    let mut runs = Vec::new();
    for path in &options.models {
        let Some(run) = run_model(path, options, &suite, &progress)? else { break };
        runs.push(run);
    }
    let is_interrupted = progress.finish(output);
    print(options.format, &suite, &runs, is_interrupted, output);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// Runs the tasks once for each of `models` models with a double, and prints how many requests a real run would send.
/// Returns 0, or [`INTERRUPTED`] after an interrupt.
fn count_requests(
    models: usize,
    suite: &GameSuite,
    progress: &Progress,
    output: &mut Console,
) -> Result<u8, InputError> {
    let counter = RequestCounter::default();
    let double = CountedModel { model: &ModelDouble::Gullible, counter: &counter };
    for _ in 0..models {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        ModelRun::complete(suite, &double, None, step).map_err(failed)?;
    }
    let is_interrupted = progress.finish(output);
    print_cost(&counter, ANSWER_TOKENS, output);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// Prints the results in a format. `is_interrupted` says whether models are missing because of an interrupt.
fn print(
    format: ReportFormat,
    suite: &GameSuite,
    runs: &[ModelRun],
    is_interrupted: bool,
    output: &mut Console,
) {
    let names: Vec<&str> = runs.iter().map(|run| run.name.as_str()).collect();
    let manifest = experiment_manifest(suite, &names);
    match format {
        ReportFormat::Text => experiment_text(runs).lines().for_each(|line| output.line(line)),
        ReportFormat::Json => output.line(&experiment_json(runs, &manifest, is_interrupted).to_string()),
        ReportFormat::Csv => experiment_csv(runs).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => output.write_bytes(experiment_page(runs, &manifest).as_bytes()),
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            experiment_lines(runs).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "models": runs.len()}).to_string());
            }
        }
    }
}

/// Returns the error of an execution as the problem of the command.
#[expect(clippy::needless_pass_by_value, reason = "passed to `map_err`")]
fn failed(error: flowgate_bench::games::ExecutionError) -> InputError {
    InputError(error.to_string())
}

/// Runs all tasks under each defence of the paper with the model at `path`, and writes the run to the folder of
/// `--runs`; `None` after an interrupt.
fn run_model(
    path: &Path,
    options: &PaperArgs,
    suite: &GameSuite,
    progress: &Progress,
) -> Result<Option<ModelRun>, InputError> {
    let model = local_model(path, options.device.processor, options.answers.as_deref())?;
    let begun = Instant::now();
    let clock: &dyn Fn() -> Duration = &|| begun.elapsed();
    // Times are measured only without a file of answers: the time of an answer from the file says nothing about the
    // model.
    let clock = options.answers.is_none().then_some(clock);
    // Returns whether to stop.
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    let Some(run) = ModelRun::complete(suite, model.chat(), clock, step).map_err(failed)? else {
        return Ok(None);
    };
    if let Some(folder) = &options.runs {
        // The file is a run of `flowgate bench games`.
        let mut lines = vec![manifest(suite, &Defence::of_the_paper(), model.chat())];
        lines.extend(run.lines());
        lines.extend(paper_rows(&[(run.name.as_str(), run.figures.as_slice())]));
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        // The file has the name of the folder alone, without the digest of the weights in the name of the model.
        let name = path.file_name().map_or_else(|| run.name.clone().into(), ToOwned::to_owned);
        save(&lines, &folder.join(name.display().to_string() + ".jsonl"))?;
    }
    Ok(Some(run))
}

/// Writes lines to a file, whose folder is created if it does not exist.
fn save(lines: &[String], path: &Path) -> Result<(), InputError> {
    let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
    let written = folder.and_then(|()| std::fs::write(path, lines.join("\n") + "\n"));
    written.map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))
}
