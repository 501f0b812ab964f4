//! Runs `flowgate bench agents`: measures the methods of guarded conversations on tasks with injected instructions.
//!
//! The tasks, the methods and the reports are in `flowgate_bench::agents`; this module shows progress and chooses the
//! format.

use flowgate_bench::agents::report::{comparison_rows, figure_rows, lines, page, tables};
use flowgate_bench::agents::{Guard, GuardResults, TaskSuite, manifest};
use flowgate_bench::games::report::{csv_tables, object_rows};
use serde_json::{Value, json};

use super::model::print_no_requests;
use super::resume::recorded_lines;
use crate::args::{AgentsArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Runs the tasks under each method and prints the results. Returns [`INTERRUPTED`] after an interrupt, otherwise 0. A
/// method whose runs are incomplete has no row. With `--resume`, the complete methods of an interrupted run are read.
/// With `--dry-run`, only prints that no model is asked.
pub(crate) fn run(options: &AgentsArgs, output: &mut Console) -> Result<u8, InputError> {
    let guards = if options.methods.is_empty() { Guard::ALL.to_vec() } else { options.methods.clone() };
    let suite = TaskSuite::new().map_err(InputError)?;
    if options.dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    let manifest = manifest(options.seed, &guards);
    let recorded = recorded_lines(options.resume.as_deref(), &manifest, options.format)?;
    let mut rows = suite.read_guards(&guards, &recorded);
    // The first methods were read, and only those after them run.
    let read = rows.len();
    let progress =
        Progress::over_steps(suite.run_count(guards.get(read..).unwrap_or_default()), "run", output);
    for guard in guards.iter().skip(read) {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        match suite.run_guard(*guard, step).map_err(InputError)? {
            Some(row) => rows.push(row),
            None => break,
        }
    }
    let is_interrupted = progress.finish(output);
    print(options, &manifest, (&guards, &rows), is_interrupted, output);
    Ok(if is_interrupted { INTERRUPTED } else { 0 })
}

/// Prints the results (`rows`) of the methods (`guards`) in the format of the options. `manifest` says how the results
/// were measured. `is_interrupted` says whether methods are missing because of an interrupt.
fn print(
    options: &AgentsArgs,
    manifest: &Value,
    (guards, rows): (&[Guard], &[GuardResults]),
    is_interrupted: bool,
    output: &mut Console,
) {
    match options.format {
        ReportFormat::Text => {
            tables(guards, rows, options.seed).lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => output.write_bytes(page(guards, rows, manifest).as_bytes()),
        ReportFormat::Csv => {
            let compared = object_rows(comparison_rows(guards, rows, options.seed));
            let tables = csv_tables(&[&figure_rows(guards, rows), &compared]);
            tables.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Json => {
            let document = json!({
                "manifest": manifest,
                "figures": figure_rows(guards, rows),
                "comparisons": comparison_rows(guards, rows, options.seed),
                "interrupted": is_interrupted,
            });
            output.line(&document.to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            lines(guards, rows, options.seed).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "methods": rows.len()}).to_string());
            }
        }
    }
}
