//! Runs `flowgate bench verify`: repeats a recorded run and compares every line. `flowgate_bench::verify` does the
//! work; this module reads the file and prints the differences.

use std::path::Path;

use flowgate_bench::corpora::CorpusFolder;
use flowgate_bench::verify::{OpenAnswers, VerifySettings, verify};
use flowgate_lm::{ChatModel, RecordedModel};
use serde_json::Value;

use super::corpus::Folder;
use super::games::sources;
#[cfg(feature = "local")]
use super::local_models::ModelFolders;
use crate::args::VerifyArgs;
use crate::input::{self, InputError, describe_io_error};
use crate::output::{Console, plural};

/// The largest run that is read, in bytes.
pub(super) const MAX_RUN: u64 = 64 << 20;

/// Runs `flowgate bench verify`: repeats the recorded run in a file. A run of a model is repeated with the recorded
/// answers of the model; a program with the feature `local` also repeats what was measured inside of a local model.
/// Returns 0 if every line that can be compared is the same, otherwise 1.
pub(crate) fn run(options: &VerifyArgs, output: &mut Console) -> Result<u8, InputError> {
    for file in [&options.answers, &options.attacker_answers].into_iter().flatten() {
        // `opener` opens the file again for each model. It is opened here first, so that a missing file has the message
        // that it has in other commands.
        let opened = std::fs::File::open(file);
        opened.map_err(|error| InputError(format!("{}: {}", file.display(), describe_io_error(&error))))?;
    }
    let folder = options.folder.as_deref().map(Folder::open).transpose()?;
    let texts = match (options.background.as_deref(), options.attack_texts.as_deref()) {
        (None, None) => None,
        (background, attack_texts) => Some(sources(background, attack_texts)?),
    };
    let lines = read_lines(&options.run)?;
    let answers = options.answers.as_deref().map(|file| opener("--answers", file));
    let attacker_answers = options.attacker_answers.as_deref().map(|file| opener("--attacker-answers", file));
    #[cfg(feature = "local")]
    let local = ModelFolders {
        folders: &options.local,
        screener: options.screener.as_deref(),
        traces: options.traces.as_deref(),
    };
    let settings = VerifySettings {
        answers: answers.as_ref().map(|open| open as &OpenAnswers<'_>),
        repeats_searches: options.searches,
        attacker_answers: attacker_answers.as_ref().map(|open| open as &OpenAnswers<'_>),
        folder: folder.as_ref().map(|folder| folder as &dyn CorpusFolder),
        texts: texts.as_ref(),
        #[cfg(feature = "local")]
        local: Some(&local),
        #[cfg(not(feature = "local"))]
        local: None,
    };
    let failed = |problem| InputError(format!("{}: {problem}", options.run.display()));
    let result = verify(&lines, settings).map_err(failed)?;
    for difference in &result.differences {
        output.line(difference);
    }
    for note in &result.notes {
        output.line(&format!("note: {note}"));
    }
    for left_out in &result.left_out {
        output.line(&format!("not compared: {left_out}"));
    }
    let repeated = plural(result.repeated, "line");
    match result.differences.len() {
        0 => {
            output.line(&format!("this program repeats the run: {repeated}"));
            Ok(0)
        }
        differences => {
            output.line(&format!("this program repeats {repeated}, but not {}", plural(differences, "line")));
            Ok(1)
        }
    }
}

/// Returns a function that takes the name of a model, and opens the answers of this model that `file` has recorded.
/// `option` is the option that names the file, for messages.
fn opener<'f>(
    option: &'static str,
    file: &'f Path,
) -> impl Fn(&str) -> Result<Box<dyn ChatModel>, String> + 'f {
    move |name| match RecordedModel::replay(name, file) {
        Ok(model) => Ok(Box::new(model)),
        Err(error) => Err(format!("{option} {}: {error}", file.display())),
    }
}

/// Reads the lines of a run in the format jsonl, one JSON value each.
///
/// # Errors
/// If the file cannot be read, or a line is not JSON; the message has the number of the line.
pub(super) fn read_lines(path: &Path) -> Result<Vec<Value>, InputError> {
    let text = input::bounded_text(path, MAX_RUN)?;
    let line = |(index, line): (usize, &str)| {
        let position = format!("{}:{}", path.display(), index + 1);
        let advice = "give a file that `flowgate bench` wrote with `--format jsonl`";
        let failed = |error| InputError(format!("{position}: the line is not valid JSON: {error}; {advice}"));
        serde_json::from_str(line).map_err(failed)
    };
    text.lines().enumerate().map(line).collect()
}
