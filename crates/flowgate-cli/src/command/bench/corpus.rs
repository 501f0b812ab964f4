//! Runs `flowgate bench corpus`: measures what a drafted policy decides on the cases of a public benchmark.
//!
//! The forms of the benchmarks and the measurement are in `flowgate_bench::corpora`; this module shows progress and
//! chooses the format. It also owns [`Folder`], through which all measurements read the files of a folder, with a limit
//! on the size of each file.

use std::path::{Path, PathBuf};

use flowgate_bench::corpora::report::{case_rows, figure_rows, page, text};
use flowgate_bench::corpora::{
    CallFate, CaseRow, CorpusError, CorpusFolder, CorpusSuite, METHODS, load, manifest,
};
use flowgate_bench::games::report::csv;
use flowgate_guard::conversation::Method;
use serde_json::{Value, json};

use super::model::print_no_requests;
use crate::args::{CorpusArgs, ReportFormat};
use crate::input::{InputError, bounded_text, describe_io_error};
use crate::output::Console;
use crate::progress::{INTERRUPTED, Progress};

/// The largest file of a benchmark, in bytes.
const MAX_FILE: u64 = 64 << 20;
/// The maximum number of entries of a folder.
const MAX_ENTRIES: usize = 10_000;

/// Runs the cases of the benchmark under each method, and prints the result. Returns 1 if an attack ran without a
/// question under the method `everything`, [`INTERRUPTED`] after an interrupt, otherwise 0. With `--dry-run`, reads the
/// benchmark and only prints that no model is asked.
pub(crate) fn run(options: &CorpusArgs, output: &mut Console) -> Result<u8, InputError> {
    let folder = Folder::open(&options.folder)?;
    let failed = |error: CorpusError| InputError(format!("{}: {error}", options.folder.display()));
    let corpus = load(options.benchmark, &folder).map_err(failed)?;
    let suite = CorpusSuite::new(corpus).map_err(failed)?;
    if options.dry_run {
        print_no_requests(None, output);
        return Ok(0);
    }
    let methods: Vec<Method> =
        if options.methods.is_empty() { METHODS.to_vec() } else { options.methods.clone() };
    let progress = Progress::over_steps(suite.corpus().cases.len() * methods.len(), "case", output);
    let mut rows: Vec<CaseRow> = Vec::new();
    for method in &methods {
        // Returns whether to stop.
        let step = &mut || {
            progress.step();
            progress.is_interrupted()
        };
        match suite.run_method(*method, step).map_err(failed)? {
            Some(found) => rows.extend(found),
            // A method whose run is incomplete has no row.
            None => break,
        }
    }
    let is_interrupted = progress.finish(output);
    print(options, &manifest(suite.corpus(), &methods), &rows, is_interrupted, output);
    let ran_unasked =
        |row: &CaseRow| row.method == Method::Everything.name() && row.attack() == Some(CallFate::Permitted);
    let has_escaped = rows.iter().any(ran_unasked);
    Ok(if is_interrupted { INTERRUPTED } else { u8::from(has_escaped) })
}

/// Prints the rows of the cases, and figures computed from them, in the format of the options. `manifest` says how the
/// rows were measured. `is_interrupted` says whether rows are missing because of an interrupt.
fn print(
    options: &CorpusArgs,
    manifest: &Value,
    rows: &[CaseRow],
    is_interrupted: bool,
    output: &mut Console,
) {
    let name = options.benchmark.name();
    // Only the format jsonl has a line about an interrupt. In the other formats, the warning of `Progress::finish` on the
    // standard error suffices.
    match options.format {
        ReportFormat::Text => text(name, rows).lines().for_each(|line| output.line(line)),
        ReportFormat::Html => output.write_bytes(page(name, rows, manifest).as_bytes()),
        ReportFormat::Csv => csv(&figure_rows(name, rows)).lines().for_each(|line| output.line(line)),
        ReportFormat::Json => {
            let (figures, cases) = (figure_rows(name, rows), case_rows(rows));
            output.line(&json!({"manifest": manifest, "figures": figures, "cases": cases}).to_string());
        }
        ReportFormat::Jsonl => {
            output.line(&manifest.to_string());
            figure_rows(name, rows).iter().for_each(|line| output.line(&json!(line).to_string()));
            case_rows(rows).iter().for_each(|line| output.line(&line.to_string()));
            if is_interrupted {
                output.line(&json!({"type": "interrupted", "cases": rows.len()}).to_string());
            }
        }
    }
}

/// A folder on the disk with the files of a benchmark.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// Checks that there is a folder at `path`, and returns it.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let problem = match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => return Ok(Self(path.to_owned())),
            Ok(_) => "the path is not a folder; give the folder with the benchmark's files".to_owned(),
            Err(error) => describe_io_error(&error),
        };
        Err(InputError(format!("{}: {problem}", path.display())))
    }

    /// Returns the path of a file or folder in this folder. The loader or [`list`](CorpusFolder::list) gives its name,
    /// so the path cannot lead out of the folder.
    fn path(&self, path: &str) -> PathBuf {
        path.split('/').fold(self.0.clone(), |folder, name| folder.join(name))
    }

    /// Returns the names of the entries of a folder for which `is_of_kind` returns true, sorted; none if there is no
    /// such folder. A symbolic link to a folder is left out, since it could lead back to a folder above. More than
    /// [`MAX_ENTRIES`] names are an error.
    fn entry_names(&self, folder: &str, is_of_kind: fn(&Path) -> bool) -> Result<Vec<String>, CorpusError> {
        let path = self.path(folder);
        if !path.is_dir() {
            return Ok(Vec::new());
        }
        let problem = |error: &std::io::Error| CorpusError::new(folder, describe_io_error(error));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&path).map_err(|error| problem(&error))? {
            let entry = entry.map_err(|error| problem(&error))?;
            let path = entry.path();
            if is_of_kind(&path) && !(path.is_dir() && path.is_symlink()) {
                names.extend(entry.file_name().to_str().map(str::to_owned));
            }
            if names.len() > MAX_ENTRIES {
                return Err(CorpusError::new(
                    folder,
                    format!(
                        "the folder has too many files (limit {MAX_ENTRIES}); give the folder of one benchmark"
                    ),
                ));
            }
        }
        names.sort();
        Ok(names)
    }
}

impl CorpusFolder for Folder {
    /// Reads a file of at most [`MAX_FILE`] bytes; `None` if there is no file at `path`, which is relative to this
    /// folder.
    fn read(&self, path: &str) -> Result<Option<String>, CorpusError> {
        let file = self.path(path);
        if !file.is_file() {
            return Ok(None);
        }
        let problem = |error: InputError| CorpusError::new(path, without_name(&file, &error));
        bounded_text(&file, MAX_FILE).map(Some).map_err(problem)
    }

    /// Returns the names of the files in a folder of the benchmark.
    fn list(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
        self.entry_names(folder, Path::is_file)
    }

    /// Returns the names of the folders in a folder of the benchmark.
    fn folders(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
        self.entry_names(folder, Path::is_dir)
    }
}

/// Returns the message of an error about `file` without the name of the file, which the caller adds itself.
fn without_name(file: &Path, error: &InputError) -> String {
    let text = error.to_string();
    text.strip_prefix(&format!("{}: ", file.display())).unwrap_or(&text).to_owned()
}
