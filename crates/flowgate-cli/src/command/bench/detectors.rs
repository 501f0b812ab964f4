//! Runs `flowgate bench detectors`: compares detectors with a flow rule on customer feedback with attacks.
//!
//! The rows, the detectors and the reports are in `flowgate_bench::detectors`; this module reads the policy, shows
//! progress and chooses the format.

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_bench::detectors::report::{comparison_rows, figure_rows, interrupted_lines, lines, page, text};
use flowgate_bench::detectors::{BUILTIN, DetectorFigures, JudgedRow, POLICY, manifest, rows};
use flowgate_bench::games::report::{csv_tables, object_rows};
use serde_json::json;

use super::model::print_no_requests;
use super::resume::recorded_lines;
use crate::args::{DetectorsArgs, ReportFormat};
use crate::input::{InputError, read_policy_text};
use crate::output::Console;
use crate::policy_file::load_policy;
use crate::progress::{INTERRUPTED, Progress};

/// Judges each row of customer feedback by the detectors and by the policy's flow rule, and prints both. Returns 0 if
/// the rule denied every injected message and permitted every honest one, 1 if not, and [`INTERRUPTED`] after an
/// interrupt. With `--resume`, the rows of an interrupted run are read and not judged again.
pub(crate) fn run(options: &DetectorsArgs, output: &mut Console) -> Result<u8, InputError> {
    let (policy, name, source) = match &options.policy {
        Some(path) => (load_policy(path, output)?, path.display().to_string(), read_policy_text(path)?),
        None => {
            let broken = |_| {
                InputError(
                    "the policy of the measurement cannot be read; this is a defect of Flowgate; please report it".to_owned(),
                )
            };
            (Policy::parse(POLICY).map_err(broken)?, BUILTIN.to_owned(), POLICY.to_owned())
        }
    };
    let rows = rows().map_err(InputError)?;
    if options.dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    let manifest = manifest(options.seed, &name, &source);
    let recorded = recorded_lines(options.resume.as_deref(), &manifest, options.format)?;
    let progress = Progress::over_steps(rows.len(), "row", output);
    // Returns whether to stop.
    let step = &mut || {
        progress.step();
        progress.is_interrupted()
    };
    let judged = JudgedRow::all_after(&recorded, &Arc::new(policy), &rows, step).map_err(InputError)?;
    let is_interrupted = progress.finish(output);
    let figures = DetectorFigures::of(&judged);
    let result_lines = || match is_interrupted {
        true => interrupted_lines(&judged),
        false => lines(&judged, &figures, &name, options.seed),
    };
    match options.format {
        ReportFormat::Text => {
            // `None` for the built-in policy: the report then prints its text.
            let named = options.policy.as_ref().map(|_| name.as_str());
            let text = text(&judged, &figures, named, options.seed, options.content);
            text.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Html => output.write_bytes(page(&judged, &figures, &manifest).as_bytes()),
        ReportFormat::Csv => {
            // Comparisons of some rows could be mistaken for those of all.
            let compared = match is_interrupted {
                true => Vec::new(),
                false => object_rows(comparison_rows(&judged, options.seed)),
            };
            let tables = csv_tables(&[&figure_rows(&judged, &figures), &compared]);
            tables.lines().for_each(|line| output.line(line));
        }
        ReportFormat::Json => {
            let document =
                json!({"manifest": manifest, "lines": result_lines(), "interrupted": is_interrupted});
            output.line(&document.to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            result_lines().iter().for_each(|line| output.line(&line.to_string()));
        }
    }
    Ok(if is_interrupted { INTERRUPTED } else { u8::from(!figures.has_no_rule_error()) })
}
