//! Runs `flowgate bench screeners`: measures how well screeners find the regions of a prompt on which an output
//! depends. Most of them read the attention or the gradients of a model.
//!
//! The cases and the figures are in `flowgate_bench::saliency`, the network in `flowgate_lm::local::classifier`; this
//! module connects them.

use std::io::{BufRead as _, Read as _};
use std::path::Path;

use flowgate_bench::document::by_kind;
use flowgate_bench::saliency::{self, ScreenerError, ScreenerResults, TraceCases};
use flowgate_lm::FeatureSet;
use flowgate_lm::local::LocalModel;
use flowgate_lm::local::classifier::DependencyClassifier;
use serde_json::Value;

use super::model::print_no_requests;
use crate::args::{ReportFormat, ScreenersArgs};
use crate::input::{InputError, describe_io_error, open};
use crate::local_model;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench screeners`: trains networks, and measures them and the other screeners on generated cases or on
/// the calls of recorded runs (`--traces`). Returns 0, or [`INTERRUPTED`] after an interrupt, which prints no figures.
pub(crate) fn run(options: &ScreenersArgs, output: &mut Console) -> Result<u8, InputError> {
    let (model, name) = local_model::load(&options.local, options.device.processor)?;
    let cases = usize::from(options.cases);
    let limit = usize::try_from(options.prompt_limit).unwrap_or(usize::MAX);
    let cases = match &options.traces {
        Some(path) => {
            let calls = read_traces(path, limit)?.sample(options.seed, cases);
            ScreenerCases::Recorded { path, calls, limit, most: cases }
        }
        None => ScreenerCases::Generated(cases),
    };
    let steps = cases.steps();
    if options.dry_run {
        print_no_requests(Some(steps), output);
        return Ok(0);
    }
    let progress = Progress::over_steps(steps, "case", output);
    // Returns whether to stop.
    let mut step = || {
        progress.step();
        progress.is_interrupted()
    };
    let stops = || progress.is_interrupted();
    let measured = measure(&model, &name, options.seed, &cases, &stops, &mut step);
    let is_interrupted = progress.finish(output);
    let measured = measured?.filter(|_| !is_interrupted);
    let Some((manifest, results)) = measured else { return Ok(INTERRUPTED) };
    if let Some(folder) = &options.charts {
        write_charts(&results, folder)?;
    }
    print(options.format, &name, &manifest, &results, output);
    Ok(0)
}

/// Prints the results of the model `name` in a format. `manifest` says what they were made with.
fn print(
    format: ReportFormat,
    name: &str,
    manifest: &Value,
    results: &ScreenerResults,
    output: &mut Console,
) {
    match format {
        ReportFormat::Text => {
            saliency::table_text(name, results).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Json => {
            output.line(&by_kind(manifest, saliency::lines(results), false).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            saliency::lines(results).iter().for_each(|line| output.line(&line.to_string()));
        }
        ReportFormat::Csv => saliency::csv_text(results).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => {
            output.write_bytes(saliency::page(name, results, manifest).as_bytes());
        }
    }
}

/// The cases with which screeners are measured.
pub(super) enum ScreenerCases<'a> {
    /// Generated cases; the number is that of each set.
    Generated(usize),
    /// Calls of recorded runs.
    Recorded {
        /// The file of the runs, for messages.
        path: &'a Path,
        /// The calls that were drawn.
        calls: TraceCases,
        /// The maximum length of a prompt in bytes.
        limit: usize,
        /// The most calls of a suite.
        most: usize,
    },
}

impl ScreenerCases<'_> {
    /// Returns the number of calls of `step` that [`measure`] makes.
    fn steps(&self) -> usize {
        match self {
            Self::Generated(cases) => saliency::steps(*cases),
            Self::Recorded { calls, .. } => saliency::trace_steps(calls),
        }
    }
}

/// Trains networks, and measures them and the other screeners with a model, whose name in reports is `name`. Returns the
/// manifest (what the results were made with) and the results. `step` is called after each case; if it returns true, the
/// measurement ends and the result is `None`. The training of a network ends early if `stops` returns true.
pub(super) fn measure(
    model: &LocalModel,
    name: &str,
    seed: u64,
    cases: &ScreenerCases<'_>,
    stops: &dyn Fn() -> bool,
    step: &mut dyn FnMut() -> bool,
) -> Result<Option<(Value, ScreenerResults)>, InputError> {
    // The measurement calls this to train a network on the prompts that it sets apart for training.
    let mut train = |features: FeatureSet, prompts: &[saliency::LabelledPrompt]| {
        let network = DependencyClassifier::train(prompts, features, seed, &mut || stops())?;
        Ok(Box::new(network) as _)
    };
    let (results, path) = match cases {
        ScreenerCases::Generated(cases) => (saliency::run(model, &mut train, seed, *cases, step), None),
        // `None`: the calls of every suite are measured.
        ScreenerCases::Recorded { path, calls, .. } => {
            (saliency::run_traces(model, &mut train, seed, calls, None, step), Some(*path))
        }
    };
    let results = results.map_err(|error| screener_error(&error, name, path))?;
    let manifest = || match cases {
        ScreenerCases::Generated(cases) => saliency::manifest(seed, *cases, name),
        ScreenerCases::Recorded { calls, limit, most, .. } => {
            saliency::trace_manifest(seed, *most, calls, *limit, name)
        }
    };
    Ok(results.map(|results| (manifest(), results)))
}

/// Returns the error of a run that has no results. It names the model if the model failed, and otherwise the file of
/// traces, if the cases come from one.
pub(crate) fn screener_error(error: &ScreenerError, model: &str, traces: Option<&Path>) -> InputError {
    InputError(match (error, traces) {
        (ScreenerError::Model(error), _) => format!("{model}: {error}"),
        (ScreenerError::Cases(problem), Some(traces)) => format!("{}: {problem}", traces.display()),
        (ScreenerError::Cases(problem), None) => problem.clone(),
    })
}

/// The longest line of a file of traces, in bytes. Each line is a run.
const LONGEST_RUN: u64 = 16 << 20;

/// Reads the calls of the runs in a file, which may be compressed; each line is a run. Calls whose prompt has more than
/// `limit` bytes are left out and counted.
pub(crate) fn read_traces(path: &Path, limit: usize) -> Result<TraceCases, InputError> {
    let mut reader = open(path)?;
    let mut traces = TraceCases::default();
    for number in 1_u64.. {
        let failed = |problem: &str| InputError(format!("{}: line {number}: {problem}", path.display()));
        let mut line = String::new();
        let read = (&mut reader).take(LONGEST_RUN).read_line(&mut line);
        if read.map_err(|error| failed(&describe_io_error(&error)))? == 0 {
            break;
        }
        // Only a line of at least this length fills the limit.
        if line.len() as u64 == LONGEST_RUN {
            return Err(failed("the run is longer than 16 MiB; remove the line from the file"));
        }
        if line.trim().is_empty() {
            continue;
        }
        let run = serde_json::from_str(&line).map_err(|error| {
            failed(&format!("the line is not valid JSON: {error}; remove it from the file"))
        })?;
        traces.add_run(&run, limit).map_err(|problem| failed(&problem))?;
    }
    Ok(traces)
}

/// Writes the charts to a folder, which is created if it is missing.
fn write_charts(results: &ScreenerResults, folder: &Path) -> Result<(), InputError> {
    let failed = |path: &Path, error: &std::io::Error| {
        InputError(format!("--charts {}: {}", path.display(), describe_io_error(error)))
    };
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    for (name, chart) in saliency::chart_files(results) {
        let path = folder.join(name);
        std::fs::write(&path, chart).map_err(|error| failed(&path, &error))?;
    }
    Ok(())
}
