//! Reads the files of a model with a limit on their size, so that no file can exhaust the memory. All modules that load
//! a model open their files with this module.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::load_error::LoadError;

/// The limit on files that are read as text, in bytes: configurations, the index of shards, templates.
pub(crate) const TEXT_LIMIT: u64 = 16 << 20;

/// Opens a file, and returns it with its size in bytes. Fails for anything that is not a regular file, such as a pipe.
pub(crate) fn open(path: &Path) -> Result<(File, u64), LoadError> {
    let metadata = std::fs::metadata(path).map_err(|error| {
        LoadError::new(path, format!("the file cannot be read: {error}; check its path and its permissions"))
    })?;
    // A pipe or a device has no end.
    if !metadata.is_file() {
        return Err(LoadError::new(
            path,
            "the path does not name a regular file; put the model's file there",
        ));
    }
    let file = File::open(path).map_err(|error| {
        LoadError::new(path, format!("the file cannot be opened: {error}; make it readable"))
    })?;
    Ok((file, metadata.len()))
}

/// Reads a file of at most `limit` bytes. Fails if it is longer.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let (file, size) = open(path)?;
    if size > limit {
        return Err(LoadError::new(
            path,
            format!(
                "the file has {size} bytes, more than the limit of {limit} bytes; check that it is the right file"
            ),
        ));
    }
    let mut bytes = Vec::new();
    // The limit applies here as well, since the file may have grown.
    file.take(limit).read_to_end(&mut bytes).map_err(|error| {
        LoadError::new(path, format!("the file cannot be read: {error}; download it again"))
    })?;
    Ok(bytes)
}

/// Reads a JSON file of at most [`TEXT_LIMIT`] bytes.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    serde_json::from_slice(&read(path, TEXT_LIMIT)?).map_err(|error| {
        LoadError::new(
            path,
            format!("the file is damaged or has another format: {error}; replace it with an undamaged copy"),
        )
    })
}

/// Reads a JSON file; `None` if it does not exist.
pub(crate) fn read_optional_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
    // `try_exists` fails if the folder cannot be searched. The attempt to read the file then returns this error.
    if path.try_exists().unwrap_or(true) { read_json(path).map(Some) } else { Ok(None) }
}
