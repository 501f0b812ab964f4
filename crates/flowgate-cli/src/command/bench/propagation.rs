//! Runs `flowgate bench propagation`: evaluates permissive label propagation, which searches for labels of an
//! answer that are lower than the join of all documents, with each double.
//!
//! The questions, the methods and the measures are in `flowgate_bench::propagation`; this module shows progress and
//! chooses the format.

use flowgate_bench::document::by_kind;
use flowgate_bench::games::report::csv;
use flowgate_bench::propagation::report::{figure_rows, lines, page, tables};
#[cfg(feature = "local")]
use flowgate_bench::propagation::report::{model_lines, model_page, model_rows, model_tables};
use flowgate_bench::propagation::{CopyingErrors, DoubleResults, PropagationSuite, Size, manifest};
#[cfg(feature = "local")]
use flowgate_bench::propagation::{Models, model_manifest};
use serde_json::json;

#[cfg(feature = "local")]
use flowgate_guard::propagation::ContinuedAnswers;
#[cfg(feature = "local")]
use std::path::Path;

use super::model::print_no_requests;
use crate::args::{PropagationArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench propagation` with each double of the options. Returns 0, or [`INTERRUPTED`] after an
/// interrupt.
pub(crate) fn run(options: &PropagationArgs, output: &mut Console) -> Result<u8, InputError> {
    let size = Size { questions: options.questions.into(), pairs: options.pairs.into() };
    let suite = PropagationSuite::new(options.seed, size).map_err(InputError)?;
    #[cfg(feature = "local")]
    if let Some(path) = &options.local {
        return run_local((&suite, size), path, (options.format, options.dry_run), output);
    }
    if options.dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    let doubles =
        if options.doubles.is_empty() { CopyingErrors::ALL.to_vec() } else { options.doubles.clone() };
    let progress = Progress::over_steps(suite.steps() * doubles.len(), "step", output);
    let mut results: Vec<DoubleResults> = Vec::new();
    for double in &doubles {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        match suite.run(*double, step).map_err(|error| InputError(error.to_string()))? {
            Some(found) => results.push(found),
            // A double whose run is incomplete has no row.
            None => break,
        }
    }
    let is_interrupted = progress.finish(output);
    // What Algorithm 1 of Permissive Information-Flow Analysis would cost; it is computed and not run.
    let literal = if is_interrupted { None } else { suite.literal_cost() };
    let manifest = manifest(&suite, size, &doubles);
    match options.format {
        ReportFormat::Text => {
            tables(&results, literal).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Csv => {
            let rows: Vec<_> = results.iter().flat_map(figure_rows).collect();
            csv(&rows).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => output.write_bytes(page(&results, literal, &manifest).as_bytes()),
        ReportFormat::Json => {
            let lines = lines(&results, literal);
            output.line(&by_kind(&manifest, lines, is_interrupted).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(&results, literal).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "doubles": results.len()}).to_string());
            }
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// The most tokens of an answer that a model writes.
#[cfg(feature = "local")]
const ANSWER_TOKENS: usize = 64;

/// Runs the suite with the model at `path`, or with the one that ships if `path` is `embedded`. A dry run only counts
/// its steps.
#[cfg(feature = "local")]
fn run_local(
    (suite, size): (&PropagationSuite, Size),
    path: &Path,
    (format, is_dry_run): (ReportFormat, bool),
    output: &mut Console,
) -> Result<u8, InputError> {
    let (model, name) = crate::local_model::load(path)?;
    // Special tokens and errors do not matter here: the counts are for reports of cost.
    let count = |text: &str| model.count_tokens(text).unwrap_or_default();
    // `None`: no chats are needed, since the method that asks the model itself (introspection) is not measured here.
    let answers = ContinuedAnswers { model: &model, tokens: ANSWER_TOKENS };
    let models =
        Models { scores: &model, states: Some(&model), chat: None, answers: Some(&answers), count: &count };
    if is_dry_run {
        print_no_requests(Some(suite.model_steps(models)), output);
        return Ok(0);
    }
    let progress = Progress::over_steps(suite.model_steps(models), "step", output);
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    let results = suite.run_model(models, &name, step);
    let is_interrupted = progress.finish(output);
    let Some(results) = results.map_err(|error| InputError(format!("{name}: {error}")))? else {
        return Ok(INTERRUPTED);
    };
    let manifest = model_manifest(suite, size, &name);
    match format {
        ReportFormat::Text => model_tables(&results).lines().for_each(|line| output.line(line)),
        ReportFormat::Csv => csv(&model_rows(&results)).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => output.write_bytes(model_page(&results, &manifest).as_bytes()),
        ReportFormat::Json => {
            let lines = model_lines(&results);
            output.line(&by_kind(&manifest, lines, is_interrupted).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            model_lines(&results).iter().for_each(|line| output.line(&line.to_string()));
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}
