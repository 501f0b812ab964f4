//! Runs `flowgate bench propagation`: evaluates permissive label propagation, which searches for labels of an
//! answer that are lower than the join of all documents, with each double.
//!
//! The questions, the methods and the measures are in `flowgate_bench::propagation`; this module shows progress and
//! chooses the format.

use flowgate_bench::games::report::csv;
use flowgate_bench::propagation::report::{figure_rows, lines, page, tables};
use flowgate_bench::propagation::{Copying, DoubleResults, PropagationSuite, Size, manifest};
use serde_json::json;

use crate::args::{PropagationArgs, PropagationFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs `flowgate bench propagation` with each double of the options. Returns 0, or [`INTERRUPTED`] after an
/// interrupt.
pub(crate) fn run(options: &PropagationArgs, output: &mut Console) -> Result<u8, InputError> {
    let size = Size { questions: options.questions.into(), pairs: options.pairs.into() };
    let suite = PropagationSuite::new(options.seed, size).map_err(InputError)?;
    let doubles = if options.doubles.is_empty() { Copying::ALL.to_vec() } else { options.doubles.clone() };
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
    // The computed cost of the naive algorithm, for comparison; it is not run.
    let literal = if is_interrupted { None } else { suite.literal_cost() };
    let manifest = manifest(&suite, size, &doubles);
    match options.format {
        PropagationFormat::Text => {
            tables(&results, literal).lines().for_each(|line| output.line(line));
        }
        PropagationFormat::Csv => {
            let rows: Vec<_> = results.iter().flat_map(figure_rows).collect();
            csv(&rows).lines().for_each(|line| output.line(line));
        }
        PropagationFormat::Html => output.write_bytes(page(&results, literal, &manifest).as_bytes()),
        PropagationFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(&results, literal).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "doubles": results.len()}).to_string());
            }
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}
