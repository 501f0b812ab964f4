//! Reads files of a model with a limit on their size, so that no file can exhaust the memory. Everything that loads a
//! model reads through this file.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde::de::DeserializeOwned;

use super::load_error::LoadError;

/// The limit on files that are read as text: configurations, the index of shards, templates.
pub(crate) const TEXT_LIMIT: u64 = 16 << 20;

/// Opens a regular file; returns it with its size.
pub(crate) fn open(path: &Path) -> Result<(File, u64), LoadError> {
    let metadata = std::fs::metadata(path)
        .map_err(|error| LoadError::new(path, format!("the file cannot be read: {error}")))?;
    // A pipe or a device has no end.
    if !metadata.is_file() {
        return Err(LoadError::new(path, "the path does not name a regular file"));
    }
    let file = File::open(path)
        .map_err(|error| LoadError::new(path, format!("the file cannot be opened: {error}")))?;
    Ok((file, metadata.len()))
}

/// Reads a file of at most `limit` bytes.
pub(crate) fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let (file, size) = open(path)?;
    if size > limit {
        return Err(LoadError::new(
            path,
            format!("the file has {size} bytes, more than the limit of {limit}"),
        ));
    }
    let mut bytes = Vec::new();
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(|error| LoadError::new(path, format!("the file cannot be read: {error}")))?;
    Ok(bytes)
}

/// Reads a JSON file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, LoadError> {
    serde_json::from_slice(&read(path, TEXT_LIMIT)?)
        .map_err(|error| LoadError::new(path, format!("the file is not the expected JSON: {error}")))
}

/// Reads a JSON file that need not exist.
pub(crate) fn read_optional_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, LoadError> {
    if path.try_exists().unwrap_or(true) { read_json(path).map(Some) } else { Ok(None) }
}
