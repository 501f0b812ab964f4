//! Runs `flowgate bench injections`: measures detectors of prompt injections on the labelled texts of PromptShield.
//!
//! The detectors and the figures are in `flowgate_bench::detection`; this module reads the folder and the model of
//! `--classifier`, shows progress and chooses the format.

use flowgate_bench::corpora::load_prompt_shield;
use flowgate_bench::detection::{
    CallerDetector, InjectionDetector, figure_rows, lines, measure, page, table_text,
};
use flowgate_bench::games::report::csv;
use serde_json::Value;

use super::corpus::Folder;
use super::model::print_no_requests;
use crate::args::{InjectionsArgs, ReportFormat};
use crate::input::InputError;
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// Measures the detectors on the texts in the folder of the options, and prints the result. A dry run only reads the
/// texts. Returns 0, or [`INTERRUPTED`] after an interrupt.
pub(crate) fn run(options: &InjectionsArgs, output: &mut Console) -> Result<u8, InputError> {
    let (folder, seed) = (options.folder.as_path(), options.seed);
    let texts = load_prompt_shield(&Folder::open(folder)?)
        .map_err(|error| InputError(format!("{}: {error}", folder.display())))?;
    if options.dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    // The classifier that `--classifier` names is measured as one more detector, `caller`, which borrows `loaded`.
    #[cfg(feature = "local")]
    let loaded = match &options.classifier {
        Some(path) => Some((path, crate::local_model::load_classifier(path, options.device.processor)?)),
        None => None,
    };
    #[cfg(feature = "local")]
    let caller = match &loaded {
        Some((path, (model, name))) => {
            let detector = CallerDetector::new(name.as_str(), model, options.label.as_deref());
            Some(
                detector
                    .map_err(|problem| InputError(format!("--classifier {}: {problem}", path.display())))?,
            )
        }
        None => None,
    };
    #[cfg(not(feature = "local"))]
    let caller: Option<CallerDetector<'_>> = None;
    let count: usize = texts.splits.iter().map(|(_, texts)| texts.len()).sum();
    let detectors = InjectionDetector::ALL.len() + usize::from(caller.is_some());
    let progress = Progress::over_steps(count * detectors, "text", output);
    let rows = measure(&texts, caller.as_ref(), &mut || {
        progress.step();
        progress.is_interrupted()
    });
    let is_interrupted = progress.finish(output);
    let rows = rows.map_err(|error| InputError(format!("the classifier: {error}")))?;
    let Some(rows) = rows.filter(|_| !is_interrupted) else { return Ok(INTERRUPTED) };
    match options.format {
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
