//! Bounds the time and memory that the reading of a script may take, so that no text hangs its reader.
//!
//! A text and all scripts inside it share one [`ReadLimits`]. A part that exceeds a limit is reported as not read. The
//! parser counts the bytes that it reads, and the scanner counts the bytes of the texts that it creates.

/// What is left of the limits while a text is read.
#[derive(Debug)]
pub(super) struct ReadLimits {
    /// The number of bytes that may still be read.
    work: usize,
    /// The number of constructs that are open.
    depth: usize,
}

/// Maximum length of a text that is read, in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Maximum number of bytes that are read in a text and all scripts inside it together.
const MAX_WORK: usize = 4 << 20;
/// Maximum depth of constructs inside each other: groups, substitutions, and scripts that a shell executes.
const MAX_DEPTH: usize = 64;
/// Maximum number of bytes in a value of a variable that is followed.
pub(super) const MAX_VALUE: usize = 256;
/// Maximum number of variables that are followed.
pub(super) const MAX_VARIABLES: usize = 256;
/// Maximum number of syntax errors after which the reading of one script continues.
pub(super) const MAX_ERRORS: usize = 64;

/// Why a reader stops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ShellReadError {
    /// A limit is exceeded, so nothing more is read.
    Limit,
    /// The text is not a valid script, or different shells read it differently.
    Syntax,
}

impl ReadLimits {
    /// Creates the limits of a text of which nothing is read yet.
    pub(super) fn new() -> Self {
        Self { work: MAX_WORK, depth: 0 }
    }

    /// Counts bytes as read. Fails if fewer are left; then nothing is left for later calls either.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), ShellReadError> {
        match self.work.checked_sub(bytes) {
            Some(left) => {
                self.work = left;
                Ok(())
            }
            None => {
                self.work = 0;
                Err(ShellReadError::Limit)
            }
        }
    }

    /// Enters a construct. Fails if it is nested too deeply; else [`leave`](Self::leave) must follow.
    pub(super) fn enter(&mut self) -> Result<(), ShellReadError> {
        if self.depth >= MAX_DEPTH {
            return Err(ShellReadError::Limit);
        }
        self.depth += 1;
        Ok(())
    }

    /// Returns the number of constructs that were entered and not left.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Leaves constructs until this depth is reached, after a failure inside them.
    pub(super) fn return_to(&mut self, depth: usize) {
        self.depth = depth;
    }

    /// Leaves the construct that was entered last.
    pub(super) fn leave(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }
}
