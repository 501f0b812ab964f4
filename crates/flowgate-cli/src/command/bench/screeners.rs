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
use flowgate_lm::local::classifier::DependencyClassifier;

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
    let traces = match &options.traces {
        Some(path) => Some(read_traces(path, limit)?.sample(options.seed, cases)),
        None => None,
    };
    let steps = traces.as_ref().map_or_else(|| saliency::steps(cases), saliency::trace_steps);
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
    let mut train = |features: FeatureSet, prompts: &[saliency::LabelledPrompt]| {
        let stop = &mut || progress.is_interrupted();
        let network = DependencyClassifier::train(prompts, features, options.seed, stop)?;
        Ok(Box::new(network) as _)
    };
    let results = match &traces {
        Some(traces) => saliency::run_traces(&model, &mut train, options.seed, traces, None, &mut step),
        None => saliency::run(&model, &mut train, options.seed, cases, &mut step),
    };
    let is_interrupted = progress.finish(output);
    let results = results.map_err(|error| screener_error(&error, &name, options.traces.as_deref()))?;
    let Some(results) = results.filter(|_| !is_interrupted) else { return Ok(INTERRUPTED) };
    if let Some(folder) = &options.charts {
        write_charts(&results, folder)?;
    }
    let manifest = match &traces {
        Some(traces) => saliency::trace_manifest(options.seed, traces, limit, &name),
        None => saliency::manifest(options.seed, cases, &name),
    };
    match options.format {
        ReportFormat::Text => {
            saliency::table_text(&name, &results).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Json => {
            output.line(&by_kind(&manifest, saliency::lines(&results), false).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            saliency::lines(&results).iter().for_each(|line| output.line(&line.to_string()));
        }
        ReportFormat::Csv => saliency::csv_text(&results).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => {
            output.write_bytes(saliency::page(&name, &results, &manifest).as_bytes());
        }
    }
    Ok(0)
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
        if line.len() as u64 == LONGEST_RUN {
            return Err(failed("the run is longer than 16 MiB; leave it out"));
        }
        if line.trim().is_empty() {
            continue;
        }
        let run = serde_json::from_str(&line)
            .map_err(|error| failed(&format!("the line is not valid JSON: {error}; leave it out")))?;
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
