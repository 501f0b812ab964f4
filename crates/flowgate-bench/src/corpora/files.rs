//! Reads the files of a benchmark's folder, and records the path and the digest of each. The digests identify the data of a run in its manifest. This
//! crate does no I/O, so the command line implements the trait [`CorpusFolder`].

use std::collections::{BTreeMap, BTreeSet};

use super::reading::CorpusError;
use crate::games::manifest::digest;

/// A folder with the files of a benchmark.
pub trait CorpusFolder {
    /// Returns the text of a file, by its path below the folder with `/` between names; `None` if there is no such file.
    ///
    /// # Errors
    /// If the file cannot be read, is too long, or is not UTF-8.
    fn read(&self, path: &str) -> Result<Option<String>, CorpusError>;

    /// Returns the names of the files in a folder below this one, or in this one if `folder` is empty, in order; none
    /// if there is no such folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    fn list(&self, folder: &str) -> Result<Vec<String>, CorpusError>;

    /// Returns the names of the folders in a folder below this one, or in this one if `folder` is empty, in order; none if there is no such folder.
    ///
    /// # Errors
    /// If the folder cannot be read.
    fn folders(&self, folder: &str) -> Result<Vec<String>, CorpusError>;
}

/// A folder in memory: the texts of the files by their paths.
impl CorpusFolder for BTreeMap<String, String> {
    /// Returns the text with this path; `None` if there is none. Never fails.
    fn read(&self, path: &str) -> Result<Option<String>, CorpusError> {
        Ok(self.get(path).cloned())
    }

    /// Returns the names of the files directly in `folder`; the empty path is the root. Never fails.
    fn list(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.keys().filter_map(|path| path.strip_prefix(prefix.as_str()));
        Ok(below.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    /// Returns the names of the folders directly in `folder`; the empty path is the root. A folder exists if it is on
    /// the path of a file. Never fails.
    fn folders(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let below = self.keys().filter_map(|path| path.strip_prefix(prefix.as_str())?.split_once('/'));
        let names: BTreeSet<String> = below.map(|(name, _)| name.to_owned()).collect();
        Ok(names.into_iter().collect())
    }
}

/// A file that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadFile {
    /// The path below the folder.
    pub path: String,
    /// The SHA-256 digest of its text, in hexadecimal.
    pub sha256: String,
}

/// The files of a folder, and which of them were read.
pub(super) struct CorpusFiles<'f> {
    folder: &'f dyn CorpusFolder,
    read: Vec<ReadFile>,
}

impl<'f> CorpusFiles<'f> {
    /// Creates a reader of a folder's files; no file has been read so far.
    pub(super) fn new(folder: &'f dyn CorpusFolder) -> Self {
        Self { folder, read: Vec::new() }
    }

    /// Returns the files that were read, in order.
    pub(super) fn into_read(self) -> Vec<ReadFile> {
        self.read
    }

    /// Reads a file, and records that it was read; `None` if there is no such file.
    pub(super) fn optional(&mut self, path: &str) -> Result<Option<String>, CorpusError> {
        let text = self.folder.read(path)?;
        if let Some(text) = &text {
            self.read.push(ReadFile { path: path.to_owned(), sha256: digest([text]) });
        }
        Ok(text)
    }

    /// Returns the names of the files in a folder that end with `ending`, in order; none if there is no such folder.
    pub(super) fn list(&self, folder: &str, ending: &str) -> Result<Vec<String>, CorpusError> {
        let mut names = self.folder.list(folder)?;
        names.retain(|name| name.ends_with(ending));
        Ok(names)
    }

    /// Returns the names of the folders in a folder, in order.
    pub(super) fn folders(&self, folder: &str) -> Result<Vec<String>, CorpusError> {
        self.folder.folders(folder)
    }

    /// Reads the first file of `paths` that exists, records that it was read, and returns its path and its text.
    /// `what` says in the error what the folder must have.
    ///
    /// # Errors
    /// If none of the files exists, or a file cannot be read.
    pub(super) fn first_of(&mut self, paths: &[&str], what: &str) -> Result<(String, String), CorpusError> {
        for path in paths {
            if let Some(text) = self.optional(path)? {
                return Ok(((*path).to_owned(), text));
            }
        }
        let first = paths.first().copied().unwrap_or_default();
        Err(CorpusError::new(first, format!("there is no such file; the folder must have {what}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_has_files_and_says_what_is_missing() {
        let folder: BTreeMap<String, String> =
            [("a/x.py", "1"), ("a/y.py", "2"), ("a/b/z.py", "3")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(folder.list("a").unwrap(), ["x.py", "y.py"]);
        assert_eq!(folder.list("c").unwrap(), [""; 0]);
        assert_eq!(
            (folder.folders("").unwrap(), folder.folders("a").unwrap()),
            (vec!["a".into()], vec!["b".into()])
        );
        let mut files = CorpusFiles::new(&folder);
        assert_eq!(files.first_of(&["n", "a/y.py"], "a file").unwrap(), ("a/y.py".into(), "2".into()));
        let error = files.first_of(&["tools.json"], "the tools").unwrap_err();
        assert_eq!(error.to_string(), "tools.json: there is no such file; the folder must have the tools");
        let read = files.into_read();
        assert_eq!(read.len(), 1, "what is missing was not read");
        assert_eq!(read[0].sha256, digest(["2"]));
    }
}
