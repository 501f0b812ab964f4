//! Lists the files of recorded runs below a folder. AgentDojo writes one file for each run, in folders for pipelines,
//! suites, tasks and attacks.

use std::path::{Path, PathBuf};

use super::{InputError, describe_io_error};

/// The endings of files that hold runs.
const ENDINGS: [&str; 4] = [".json", ".jsonl", ".json.gz", ".jsonl.gz"];

/// Folders within folders; AgentDojo has five levels.
const MAX_DEPTH: usize = 16;

/// Returns the files that the paths name: a path of a folder stands for all files of runs in it, in the order of their names.
pub(crate) fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        collect(path, 0, &mut files)?;
        if files.len() == before {
            let endings = ENDINGS.join(", ");
            let name = path.display();
            return Err(InputError(format!("{name}: the folder has no file that ends with {endings}")));
        }
    }
    Ok(files)
}

/// Adds the files of runs in a folder and in the folders below it to `files`.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let error =
        |error: &std::io::Error| InputError(format!("{}: {}", folder.display(), describe_io_error(error)));
    if depth > MAX_DEPTH {
        return Err(InputError(format!(
            "{}: the depth of the folder exceeds {MAX_DEPTH}; name a folder below it",
            folder.display()
        )));
    }
    let entries = std::fs::read_dir(folder).map_err(|problem| error(&problem))?;
    let mut paths: Vec<(PathBuf, std::fs::FileType)> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|problem| error(&problem))?;
        let kind = entry.file_type().map_err(|problem| error(&problem))?;
        paths.push((entry.path(), kind));
    }
    paths.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, kind) in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A link could lead back to a folder above.
        if kind.is_dir() {
            collect(&path, depth + 1, files)?;
        } else if kind.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            files.push(path);
        }
    }
    Ok(())
}
