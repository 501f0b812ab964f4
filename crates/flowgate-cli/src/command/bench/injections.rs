//! Runs `flowgate bench injections`: measures detectors of prompt injections on the labelled texts of PromptShield.
//!
//! The detectors and the figures are in `flowgate_bench::detection`; this module reads the folder, shows progress and
//! chooses the format.

use std::path::Path;

use flowgate_bench::corpora::load_prompt_shield;
use flowgate_bench::detection::{InjectionDetector, figure_rows, lines, measure, page, table_text};
use flowgate_bench::games::report::csv;
use serde_json::Value;

use super::corpus::Folder;
use super::model::print_no_requests;
use crate::args::ReportFormat;
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Measures the detectors on the texts in `folder`, and prints the result. `seed` is that of the comparison of the
/// detectors. A dry run only reads the texts. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(
    folder: &Path,
    seed: u64,
    (format, is_dry_run): (ReportFormat, bool),
    output: &mut Console,
) -> Result<u8, InputError> {
    let texts = load_prompt_shield(&Folder::open(folder)?)
        .map_err(|error| InputError(format!("{}: {error}", folder.display())))?;
    if is_dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    let count: usize = texts.splits.iter().map(|(_, texts)| texts.len()).sum();
    let progress = Progress::over_steps(count * InjectionDetector::ALL.len(), "text", output);
    let rows = measure(&texts, &mut || {
        progress.step();
        progress.is_interrupted()
    });
    let is_interrupted = progress.finish(output);
    let Some(rows) = rows.filter(|_| !is_interrupted) else { return Ok(INTERRUPTED) };
    match format {
        ReportFormat::Text => table_text(&rows).lines().for_each(|line| output.line(line)),
        ReportFormat::Csv => csv(&figure_rows(&rows)).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => {
            let lines = lines(&texts, &rows, seed);
            // The first line is the manifest.
            output.write_bytes(page(&rows, lines.first().unwrap_or(&Value::Null)).as_bytes());
        }
        ReportFormat::Json => output.line(&Value::from(lines(&texts, &rows, seed)).to_string()),
        ReportFormat::Jsonl => {
            lines(&texts, &rows, seed).iter().for_each(|line| output.line(&line.to_string()));
        }
    }
    Ok(0)
}
