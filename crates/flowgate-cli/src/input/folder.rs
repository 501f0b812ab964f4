//! Lists the files with recorded runs in a folder and in the folders below it, for commands that read a corpus. A
//! benchmark such as AgentDojo writes one file for each run, in nested folders for pipelines, suites, tasks and
//! attacks.

use std::path::{Path, PathBuf};

use super::{InputError, describe_io_error};

/// The endings of the names of files with runs.
const ENDINGS: [&str; 4] = [".json", ".jsonl", ".json.gz", ".jsonl.gz"];

/// The maximum number of levels of folders below the named one; AgentDojo has five.
const MAX_DEPTH: usize = 16;

/// Returns the files at the paths. A folder is replaced by the files with runs in it and below it, in the order of
/// their names.
///
/// # Errors
/// If a folder cannot be read, has no such file, or has too many levels.
pub(crate) fn files_of(paths: &[PathBuf]) -> Result<Vec<PathBuf>, InputError> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let before = files.len();
        // `0`: the level of this folder.
        collect(path, 0, &mut files)?;
        if files.len() == before {
            let endings = ENDINGS.join(", ");
            let name = path.display();
            return Err(InputError(format!(
                "{name}: the folder has no file that ends with {endings}; name another folder, or the files"
            )));
        }
    }
    Ok(files)
}

/// Adds the files with runs in a folder and in the folders below it to `files`. `depth` is the level of the folder
/// below the named one. Fails if a folder cannot be read, or is nested too deep.
fn collect(folder: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), InputError> {
    let failed =
        |error: &std::io::Error| InputError(format!("{}: {}", folder.display(), describe_io_error(error)));
    if depth > MAX_DEPTH {
        return Err(InputError(format!(
            "{}: the folder is nested too deep (more than {MAX_DEPTH}) below the folder that was named; name a folder nearer to the files",
            folder.display()
        )));
    }
    let entries = std::fs::read_dir(folder).map_err(|error| failed(&error))?;
    let mut paths: Vec<(PathBuf, std::fs::FileType)> = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| failed(&error))?;
        let kind = entry.file_type().map_err(|error| failed(&error))?;
        paths.push((entry.path(), kind));
    }
    paths.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (path, kind) in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // A symbolic link is neither a folder nor a file here. Links are ignored, because one could lead back to a
        // folder above.
        if kind.is_dir() {
            collect(&path, depth + 1, files)?;
        } else if kind.is_file() && ENDINGS.iter().any(|ending| name.ends_with(ending)) {
            files.push(path);
        }
    }
    Ok(())
}
