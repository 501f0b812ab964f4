//! Defines [`LoadError`], the error of a model that cannot be loaded or saved. The error names the file, the problem
//! and, where it is known, what to do about it, all in one line. All code that reads or writes the files of a local
//! model returns this error.

use std::fmt;
use std::path::{Path, PathBuf};

/// Why a local model cannot be loaded or saved: a file, the problem, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadError {
    file: PathBuf,
    problem: String,
    /// Whether the model was being saved, not loaded.
    is_saving: bool,
}

impl LoadError {
    /// Creates the error that the model cannot be loaded from `file`. `problem` says what is wrong with the file, and
    /// what to do about it; its lines are joined to one.
    pub(crate) fn new(file: &Path, problem: impl Into<String>) -> Self {
        // Messages of this crate have one line, but a parser may describe an error in several.
        let problem: Vec<String> = problem.into().lines().map(|line| line.trim().to_owned()).collect();
        Self { file: file.to_owned(), problem: problem.join(" "), is_saving: false }
    }

    /// Creates the error that a model cannot be saved to `file`. `reason` is the text of the error of the system or of
    /// the library.
    pub(crate) fn of_saving(file: &Path, reason: impl fmt::Display) -> Self {
        let problem = format!("{reason}; check the path, its permissions and the free space");
        Self { is_saving: true, ..Self::new(file, problem) }
    }

    /// Creates the error that the model cannot be loaded because of a tensor of `file`. `problem` continues the
    /// sentence after the name of the tensor, such as `is missing; download the file again`.
    pub(crate) fn of_tensor(file: &Path, tensor: &str, problem: impl fmt::Display) -> Self {
        Self::new(file, format!("tensor `{tensor}` {problem}"))
    }

    /// Returns the file, or the folder if a file is missing.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for LoadError {
    /// Writes the file and the problem. The advice is part of the problem.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let action = if self.is_saving { "save the model to" } else { "load the model from" };
        write!(f, "cannot {action} `{}`: {}", self.file.display(), self.problem)
    }
}

impl std::error::Error for LoadError {}
