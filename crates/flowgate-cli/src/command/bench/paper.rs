//! Runs `flowgate bench paper`: repeats the experiment of AgentSecBench with models in folders, and prints the figures
//! beside those of the paper.
//!
//! The suite and the tables are in `flowgate_bench::games`; this module loads one model after the other and writes
//! their runs.

use std::path::Path;
use std::time::{Duration, Instant};

use flowgate_bench::games::figures::DefenceFigures;
use flowgate_bench::games::report::{figure_rows, paper_rows, paper_tables, tables};
use flowgate_bench::games::{Defence, GameSuite, Runner, manifest};
use serde_json::Value;

use super::model::local_model;
use crate::args::{PaperArgs, TableFormat};
use crate::input::{InputError, describe_io_error};
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// The run of one model.
struct ModelRun {
    /// The name of the model.
    name: String,
    /// The figures of each defence of the paper.
    figures: Vec<DefenceFigures>,
    /// The lines of the run: the manifest, the executions and the figures.
    lines: Vec<String>,
}

/// Runs `flowgate bench paper`: plays the games of AgentSecBench with each model, and prints the figures beside those
/// of the paper. Returns 0, or [`INTERRUPTED`] after an interrupt; a model whose run is incomplete is left out.
pub(crate) fn run(options: &PaperArgs, output: &mut Console) -> Result<u8, InputError> {
    let mut names: Vec<&std::ffi::OsStr> =
        options.models.iter().filter_map(|path| path.file_name()).collect();
    names.sort_unstable();
    if let Some([name, _]) = names.windows(2).find(|pair| matches!(pair, [a, b] if a == b)) {
        // The names identify the answers and the files of the runs.
        let name = name.display();
        return Err(InputError(format!("two models have the name {name}; rename one of the folders")));
    }
    let instances = usize::try_from(options.instances).unwrap_or(usize::MAX);
    let suite = GameSuite::generate(options.seed, instances);
    let steps = suite.executions_per_defence() * Defence::of_the_paper().len() * options.models.len();
    let progress = Progress::over_steps(steps, "execution", output);
    let mut runs = Vec::new();
    for path in &options.models {
        let Some(run) = run_model(path, options, &suite, &progress)? else { break };
        if let Some(folder) = &options.runs {
            save(&run, folder)?;
        }
        runs.push(run);
    }
    let is_interrupted = progress.finish(output);
    let models: Vec<(&str, &[DefenceFigures])> =
        runs.iter().map(|run| (run.name.as_str(), run.figures.as_slice())).collect();
    match options.format {
        TableFormat::Text => {
            let mut texts: Vec<String> = models.iter().map(|(name, figures)| tables(figures, name)).collect();
            texts.push(paper_tables(&models));
            texts.join("\n").lines().for_each(|line| output.line(line));
        }
        TableFormat::Json => {
            for (name, figures) in &models {
                rows(figures, name).iter().for_each(|row| output.line(&row.to_string()));
            }
            paper_rows(&models).iter().for_each(|row| output.line(&row.to_string()));
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// Runs all tasks under each defence of the paper with the model at `path`; `None` after an interrupt.
fn run_model(
    path: &Path,
    options: &PaperArgs,
    suite: &GameSuite,
    progress: &Progress,
) -> Result<Option<ModelRun>, InputError> {
    let model = local_model(path, options.answers.as_deref())?;
    let begun = Instant::now();
    let clock: &dyn Fn() -> Duration = &|| begun.elapsed();
    // The time of an answer from the file says nothing about the model.
    let measures_time = options.answers.is_none();
    let failed = |error: flowgate_bench::games::ExecutionError| InputError(error.to_string());
    let runner = Runner::new(model.chat(), measures_time.then_some(clock)).map_err(failed)?;
    let name = model.chat().name().to_owned();
    let defences = Defence::of_the_paper();
    let mut lines = vec![manifest(suite, &defences, model.chat()).to_string()];
    let mut figures = Vec::new();
    for defence in defences {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        let Some(executions) = suite.run_defence(&runner, defence, step).map_err(failed)? else {
            return Ok(None);
        };
        // `false`: without the responses of the model.
        lines.extend(executions.iter().map(|execution| execution.to_json(&name, false).to_string()));
        // The empty list: what leaks is enumerated only with a double.
        figures.push(DefenceFigures::of(defence, &executions, Vec::new()));
    }
    lines.extend(rows(&figures, &name).iter().map(Value::to_string));
    Ok(Some(ModelRun { name, figures, lines }))
}

/// Returns the figures of a model as the objects of its JSON lines.
fn rows(figures: &[DefenceFigures], model: &str) -> Vec<Value> {
    let undefended = figures.iter().find(|figures| figures.defence == Defence::None);
    figures.iter().flat_map(|of| figure_rows(of, undefended, model)).map(Value::Object).collect()
}

/// Writes the lines of a model's run to the file `NAME.jsonl` in `folder`, where `NAME` is the name of the model.
/// Creates the folder if it does not exist.
fn save(run: &ModelRun, folder: &Path) -> Result<(), InputError> {
    let path = folder.join(format!("{}.jsonl", run.name));
    let written =
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, run.lines.join("\n") + "\n"));
    written.map_err(|error| InputError(format!("{}: {}", path.display(), describe_io_error(&error))))
}
